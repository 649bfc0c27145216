"""`rdma-cts compare`: what has regressed or been fixed between two runs. Made for nightly jobs."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from commands.output import show
from reports import confirmation
from reports.comparison import KINDS, NEW, REGRESSED, Change, Comparison, compare, stacks
from reports.digest import Digest, read

NAME = "compare"
HELP = "Compare two runs case by case and point by point; exit status 1 if something has regressed."

_MOST = 20  # changes shown of each kind


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    parser.add_argument("old", type=Path, metavar="OLD", help="the directory or results.jsonl of the earlier run")
    parser.add_argument("new", type=Path, metavar="NEW", help="the directory or results.jsonl of the later run")
    parser.add_argument("--unlike-tables", action="store_true", help="compare runs of different tables too")
    parser.add_argument("--all", action="store_true", help=f"show every change, not only {_MOST} of each kind")


def execute(arguments: argparse.Namespace) -> int:
    """Prints the comparison. Exit status 1: a regression, 3: the new run decides less than the old one, 0: neither."""
    comparison = compare(read(arguments.old), read(arguments.new), arguments.unlike_tables)
    show(render(comparison, most=None if arguments.all else _MOST))
    return comparison.status


def render(comparison: Comparison, most: int | None = _MOST) -> Iterator[str]:
    """The lines people read; at most `most` of each kind of change (None: all)."""
    old, new = comparison.old, comparison.new
    yield f"old: {old.directory}: {old.short_sentence}"
    yield f"new: {new.directory}: {new.short_sentence}"
    for name, before, after in stacks(old, new):
        yield f"  {name}: {before or 'none'} -> {after or 'none'}"
    for kind, meaning in KINDS.items():
        changes = comparison.of(kind)
        if changes:
            yield ""
            yield f"{kind}: {_amount(changes)} ({meaning})"
            yield from (line for change in changes[:most] for line in _format_change(change, new))
            if most is not None and len(changes) > most:
                yield f"  and {len(changes) - most} more (--all shows them)"
    yield ""
    counts = ", ".join(f"{_amount(changes)} {kind}" for kind in KINDS if (changes := comparison.of(kind)))
    yield f"{comparison.compared:,} cases compared: {counts or 'nothing has changed'}"
    yield {
        0: "nothing has regressed (exit status 0)",
        1: "something has regressed (exit status 1)",
        3: "nothing has regressed, but the new run is incomplete or undecided (exit status 3)",
    }[comparison.status]


def _amount(changes: list[Change]) -> str:
    cases, points = sum(not change.points for change in changes), sum(change.points for change in changes)
    amounts = [f"{cases:,} case{'' if cases == 1 else 's'}"] if cases else []
    return " and ".join([*amounts, *([f"{points:,} point{'' if points == 1 else 's'}"] if points else [])])


def _format_change(change: Change, new: Digest) -> Iterator[str]:
    arrow = " -> ".join(verdict for verdict in (change.old, change.new) if verdict)
    if change.points:
        yield f"  {arrow}  {change.points:,} points of {change.case}, such as {'; '.join(change.examples)}"
        return
    yield f"  {arrow}  {' '.join(change.record['rules'])}  {change.case}"
    if change.kind == REGRESSED or (change.kind == NEW and change.new == "FAIL"):
        yield f"      {change.record['reason']}"
        yield f"      {change.record['repro']}"
        if confirmed := confirmation.of_case(new, change.case):
            yield f"      {confirmed}"
