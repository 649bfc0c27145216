"""`rdma-cts compare --nodes`: writes one page about the runs of many nodes, from the summaries of the runs."""

import argparse
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from commands.cli.streams import show, show_line
from conformance.errors import UserError, format_count, reading
from conformance.model.printable import one_line
from conformance.model.verdict import Verdict
from conformance.results.files import write_together
from conformance.results.folder import directory_for
from conformance.results.records import FILE_NAME as RESULTS
from conformance.results.records import PACKED
from reports import fleet, summary
from reports.compared.changes import DEFAULT_FAIL_ON
from reports.fleet import Fleet
from reports.fleet_group import Difference, Node, first_of, format_differences
from reports.nights.facts import facts_of
from reports.own_tables import suite_of_header
from reports.terminal import REPORT

_MOST = 20  # the maximum number of printed lines of a kind
_MOST_RULES = 5  # of the rules in which groups differ: groups of other firmware can differ in many


def execute(arguments: argparse.Namespace) -> int:
    """Writes the page, its data and the commands for Slurm. The exit status shows whether any node differs."""
    _refuse_options(arguments)
    if not arguments.out:
        raise UserError(
            "--nodes writes three files",
            hint="--out DIR says where",
        )
    folders: dict[str, Path] = {}
    for folder in (node for names in arguments.runs for node in _nodes_in(names)):
        name = one_line(folder.name)
        if name in folders:
            raise UserError(
                f"two nodes are called {name}: {folders[name]} and {folder}",
                hint="rename one directory",
            )
        folders[name] = folder
    out = arguments.out
    _check_free(out, folders.values())
    suite = suite_of_header(None)
    nodes = tuple(_node(name, folder, out) for name, folder in folders.items())
    rules = suite.registry if suite else {}
    fleet_here = Fleet(nodes, {rule: texts.short for rule, texts in rules.items()})
    script = fleet.drain(fleet_here)
    write_together(
        out,
        {
            fleet.DATA: fleet.data(fleet_here),
            fleet.DRAIN: script,
            fleet.FILE_NAME: fleet.page(fleet_here),
        },
    )
    missing = _lines([(node.name, node.problem) for node in fleet_here.missing])
    show(
        [
            *differences(fleet_here),
            *missing,
            f"{fleet_here.headline} (exit status {fleet_here.status})",
        ]
    )
    page, data, drain = (out / name for name in (fleet.FILE_NAME, fleet.DATA, fleet.DRAIN))
    for_slurm = f"; for Slurm: sh {drain}" if script.startswith(b"#!") else ""
    show_line(f"page: {page} (data: {data}{for_slurm})")
    return fleet_here.status


def _check_free(out: Path, nodes: Iterable[Path]) -> None:
    """Raises UserError (status 2) if the page would be written among files that are neither nodes nor an earlier page."""
    if not out.is_dir() or (out / fleet.DATA).exists():
        return
    of_nodes = {folder.resolve() for folder in nodes}
    with reading(out):
        names = sorted(path.name for path in out.iterdir() if path.resolve() not in of_nodes)
    if names:
        what = f"{out} is not empty (it has {names[0]}), and has no page of nodes"
        raise UserError(what, hint="give --out a new or an empty directory")


def _refuse_options(arguments: argparse.Namespace) -> None:
    """Raises UserError for an option that only applies to the comparison of two runs."""
    given = {
        "--format": arguments.format != "text",
        "--all": arguments.all,
        "--fail-on": arguments.fail_on != DEFAULT_FAIL_ON,
        "--unlike-tables": arguments.unlike_tables,
    }
    for option in filter(given.__getitem__, given):
        raise UserError(
            f"{option} is for two runs, and --nodes writes a page",
            hint=f"leave out {option}; the page's data are in {fleet.DATA}",
        )


def _nodes_in(given: Path) -> Iterator[Path]:
    """Yields the directories of nodes that an argument names. Raises UserError if the argument names no node."""
    if given.is_file():
        raise UserError(
            f"{given} is a file, and a node is a directory",
            hint=directory_for(given),
        )
    with reading(given):
        if {summary.FILE_NAME, RESULTS, PACKED} & {entry.name for entry in os.scandir(given)}:
            yield Path(os.path.abspath(given))
            return
        below = sorted(Path(entry.path) for entry in os.scandir(given) if entry.is_dir())
    if not below:
        raise UserError(
            f"{given} has neither results nor subdirectories",
            hint="give the directories of the nodes",
        )
    yield from (Path(os.path.abspath(folder)) for folder in below)


def _node(name: str, folder: Path, out: Path) -> Node:
    """Returns a node. A problem with its directory affects only this node."""
    try:
        facts = facts_of(folder)
        has_report = (folder / REPORT).is_file()
    except UserError as error:
        return Node(name, problem=one_line(error.message))
    except OSError as error:
        return Node(name, problem=f"{folder} cannot be read: {error.strerror}")
    if has_report:
        report = os.path.relpath(folder / REPORT, os.path.abspath(out))
    else:
        report = ""
    if facts is None:
        return Node(name, problem="no results")
    return Node(name, report, facts, "" if facts.complete else "the run is incomplete")


def differences(nodes: Fleet) -> Iterator[str]:
    """Yields lines for the terminal: the rules in which groups differ, the nodes that differ from their group, with one
    difference each, the nodes with a difference without a majority, and the rules that are BROKEN, with their reason."""
    for difference in nodes.between[:_MOST_RULES]:
        beside = "".join(f"; with it {text}" for text in difference.beside)
        yield f"groups differ: {difference.what}: {difference.values}{beside}"
    if left := nodes.between[_MOST_RULES:]:
        yield f"groups differ: and {format_count(len(left), 'more rule')}"
    yield from _lines(
        [(node, format_differences(several)) for node, several in nodes.differing.items()]
    )
    for group in nodes.groups:
        ties: dict[tuple[str, ...], list[Difference]] = {}
        for difference in group.ties:
            ties.setdefault(difference.nodes, []).append(difference)
        yield from _lines(
            [(first_of(names), format_differences(several)) for names, several in ties.items()]
        )
    yield from _lines(
        [
            (first_of(names), f"{rule} is {Verdict.BROKEN}: {reason}")
            for (rule, reason), names in nodes.broken.items()
        ]
    )


def _lines(said: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yields a line for each text that is said about nodes. A node with much to say hides no other node."""
    nodes: dict[str, list[str]] = {}
    for node, text in said:
        nodes.setdefault(text, []).append(node)
    for text, names in [*nodes.items()][:_MOST]:
        yield f"{first_of(names)}: {text}"
    if left := [name for names in [*nodes.values()][_MOST:] for name in names]:
        yield f"and {format_count(len(left), 'more node')}"
