"""`rdma-cts compare`: prints what has regressed or been fixed between two runs."""

import argparse
import sys

from commands.cli.run_arguments import add
from commands.cli.streams import show
from reports import comparison_formats
from reports.comparison import compare
from reports.digest import read

_MOST = 20  # the maximum number of printed changes of each kind


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "old OLD", "the directory or results.jsonl of the earlier run")
    add(parser, "new NEW", "the directory or results.jsonl of the later run")
    add(parser, "--unlike-tables", "compare the runs even if their tables differ")
    add(
        parser,
        "--format",
        "the format (default: text)",
        choices=("text", *comparison_formats.FORMATS),
        default="text",
    )
    add(parser, "--all", f"show every change, not only {_MOST} of each kind")


def execute(arguments: argparse.Namespace) -> int:
    """Prints the comparison. Returns exit status 1 after a regression; 3 if the new run is incomplete or decides less
    than the old run, or if the runs have no case in common; else 0."""
    comparison = compare(read(arguments.old), read(arguments.new), arguments.unlike_tables)
    if arguments.format != "text":
        sys.stdout.write(comparison_formats.FORMATS[arguments.format](comparison))
    else:
        show(comparison_formats.text(comparison, None if arguments.all else _MOST))
    return comparison.status
