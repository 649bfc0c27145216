"""`rdma-cts compare`: prints what has regressed or been fixed between two runs."""

import argparse
import sys
from dataclasses import replace

from commands.cli.run_arguments import add
from commands.cli.streams import show
from conformance.errors import PROGRAM, UserError, format_count
from reports.compared import formats as comparison_formats
from reports.compared import text as comparison_text
from reports.compared.changes import DEFAULT_FAIL_ON, FAIL_ON
from reports.compared.comparison import compare
from reports.digest import read_several

_MOST = 20  # the maximum number of printed changes of each kind


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(
        parser,
        "runs RUN...",
        "the earlier and the later run, each a directory or results.jsonl (also compressed: .jsonl.xz); with --nodes, the "
        "directories of nodes, or directories in which each subdirectory is a node; no files",
    )
    add(parser, "--nodes", "write one page about the runs of many nodes, by node")
    add(
        parser,
        "--out DIR",
        "with --nodes: where to write the page and its data",
    )
    add(
        parser,
        "--unlike-tables",
        "accepted for older scripts: runs are compared even if their tables differ",
    )
    add(
        parser,
        "--format",
        "the format (default: text)",
        choices=("text", *comparison_formats.FORMATS),
        default="text",
    )
    add(
        parser,
        "--fail-on WHAT",
        "what has exit status 1: all that is newly wrong, or only what the old stack had right, or less wrong (default: "
        f"{DEFAULT_FAIL_ON})",
        choices=(*FAIL_ON,),
        default=DEFAULT_FAIL_ON,
    )
    add(parser, "--all", f"show every change, not only {_MOST} of each kind")


def execute(arguments: argparse.Namespace) -> int:
    """Prints the comparison. Returns exit status 1 after a change of a kind of --fail-on; 3 if the new run is incomplete
    or decides less than the old run, or if the runs have no case in common; else 0. With --nodes, returns the status of
    the nodes."""
    if arguments.nodes:
        from commands import compare_nodes  # imported late: two runs do not need it

        return compare_nodes.execute(arguments)
    if len(arguments.runs) != 2:
        raise UserError(
            f"compare takes an earlier and a later run; {format_count(len(arguments.runs), 'run')} given",
            hint=f"{PROGRAM} report shows several runs on one page; --nodes compares nodes",
        )
    if arguments.out:
        raise UserError("--out is where --nodes writes its page", hint="leave out --out")
    old, new = read_several(arguments.runs)
    comparison = replace(compare(old, new), fail_on=FAIL_ON[arguments.fail_on])
    if arguments.format != "text":
        sys.stdout.write(comparison_formats.FORMATS[arguments.format](comparison))
    else:
        show(comparison_text.text(comparison, None if arguments.all else _MOST))
    return comparison.status
