"""`rdma-cts report`: renders recorded runs as a page for people, or in a format for CI systems and programs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from conformance.results.files import not_written, write_atomically
from reports import html, junit, ktap, markdown, summary
from reports.digest import Digest, read

NAME = "report"
HELP = "Make a report of recorded runs; several runs become columns of one page."

Render = Callable[[Sequence[Digest]], str | bytes]
FORMATS: dict[str, Render] = {
    "html": html.render, "junit": junit.render, "ktap": ktap.render, "markdown": markdown.render,
    "summary": summary.render,
}  # fmt: skip
# The reports that every run writes beside its results.
BESIDE: dict[str, Render] = {
    html.FILE_NAME: html.render, junit.FILE_NAME: junit.render, summary.FILE_NAME: summary.render,
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    parser.add_argument("runs", nargs="+", type=Path, metavar="DIR", help="the directory or results.jsonl of a run")
    parser.add_argument("--format", choices=tuple(FORMATS), default="html", help="default: html")
    parser.add_argument("--out", type=Path, metavar="FILE",
                        help="where to write; - is standard output (default: for html, report.html beside the first "
                        "run's results, else standard output)")  # fmt: skip


def execute(arguments: argparse.Namespace) -> int:
    """Writes the report; exit status 0 whatever the verdicts of the runs."""
    digests = [read(path) for path in arguments.runs]
    report = FORMATS[arguments.format](digests)
    out = arguments.out or (digests[0].directory / html.FILE_NAME if arguments.format == "html" else Path("-"))
    data = report if isinstance(report, bytes) else report.encode()
    if str(out) == "-" or _is_standard_output(out):
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
    else:
        _write(out, data)
        print(f"report: {out}")
    return 0


def _write(path: Path, data: bytes) -> None:
    """Writes a file atomically; what is no regular file, such as a pipe, is written through and stays what it is."""
    if not path.exists() or path.is_file():
        write_atomically(path, data)
        return
    try:
        path.write_bytes(data)
    except OSError as error:
        raise not_written(path, error) from error


def _is_standard_output(path: Path) -> bool:
    """Whether this is the file behind standard output, as /dev/stdout is; opened again, it would lose its text."""
    return path.exists() and os.path.samestat(path.stat(), os.fstat(sys.stdout.fileno()))


def write_beside(directory: Path) -> None:
    """Writes the reports that every run has beside its results. Raises UserError if the results are invalid."""
    digest = read(directory)
    for name, render in BESIDE.items():
        report = render([digest])
        write_atomically(directory / name, report if isinstance(report, bytes) else report.encode())
