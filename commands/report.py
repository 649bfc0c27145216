"""`rdma-cts report`: renders recorded runs as a page for people, or in a format for CI systems and programs."""

from __future__ import annotations

import argparse
import importlib
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from commands.cli.output import STANDARD_OUTPUT, check_out, write_out
from commands.cli.run_arguments import add, add_cases_argument, suite_from
from commands.cli.streams import show, show_line
from conformance.errors import UserError
from conformance.results.files import write_atomically
from reports.digest import Digest, read, read_several

if TYPE_CHECKING:
    from reports.novelty import Novelty

# each is a module of reports/ with `render`
FORMATS = ("html", "junit", "ktap", "markdown", "summary", "tmt")
# The names of the reports that every run writes next to its results.
BESIDE = ("summary", "junit", "html")
# The formats that list first what is new against an earlier run.
_WITH_NEWS = ("html", "markdown")
_PAGE = "report.html"
# how the reports of all formats begin
_OWN = re.compile(
    rb"<!doctype html>\n(?s:.{,8000}?) \xc2\xb7 rdma-cts</title>\n"
    rb"|<\?xml[^>]*>\n<testsuites>\s*<testsuite name=\"rdma-cts[ \"]"
    rb"|TAP version 13\n1\.\.\d+\n(  KTAP version 1\n  # Subtest: .*\n  1\.\.\d+\n)? *# .*\n *# .* rules? "
    rb"|## .* rdma-cts: "
    rb'|\[?\s*\{\s*"schema": "rdma-cts-summary/'
    rb'|\[\n( \{"name": "/[^"]+", "result": "[a-z]+", |\])',
)


def renderer(name: str) -> ModuleType:
    """Returns the module of a format. It is imported only when it is needed, because some imports take longer than a
    short run."""
    return importlib.import_module(f"reports.{name}")


def load_beside() -> None:
    """Loads modules and templates for `write_beside` in a thread, while the run waits for its worker."""

    def load() -> None:
        for name in BESIDE:
            renderer(name)
        renderer("html").load()

    threading.Thread(target=load, daemon=True).start()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(
        parser,
        "runs [RUN...]",
        "the directory or results.jsonl of a run, also compressed (.jsonl.xz)",
    )
    add(
        parser,
        "--history DIR",
        "all nights of a history (see nightly) on one page, by default history.html in DIR",
    )
    add(
        parser,
        "--site DIR",
        "with --history: a page for each rule, each defect and each night, and badges, in an empty directory or an "
        "earlier site, whose files are replaced or removed",
    )
    add(
        parser,
        "--remote",
        "with --site: also the packets, cases, causes, programs and mails of defects that a remote peer can trigger, for a "
        "site that is not public",
    )
    add(
        parser,
        "--against RUN",
        "for html and markdown: list first what is new against this earlier run",
    )
    add(parser, "--format", "the format (default: html)", choices=FORMATS, default="html")
    add(
        parser,
        "--out FILE",
        "where to write; - is standard output (default: for html, report.html next to the first "
        "run's results, else standard output)",
    )
    add_cases_argument(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Writes the report. Returns exit status 3 if no cell of a history has results that can be read, else 0, whatever
    the verdicts of the runs are."""
    if arguments.cases and not arguments.site:
        raise UserError("--cases is for the rules of a --site", hint="leave out --cases")
    if arguments.history:
        return _of_history(arguments)
    if arguments.remote and not arguments.site:
        raise UserError("--remote is only for --site")
    if arguments.site:
        raise UserError("--site shows a history: give --history DIR")
    if not arguments.runs:
        raise UserError("no run is given: give the directory of a run, or --history DIR")
    recorded_name = renderer(arguments.format).FILE_NAME if arguments.format in BESIDE else ""
    if arguments.out:
        check_out(arguments.out, _OWN, recorded_name)
    digests = read_several(arguments.runs)
    since: Sequence[Mapping[str, str]] = ()
    if arguments.format == "html":
        from reports.nights.presence import since_when  # imported late: runs do not need it

        since = [since_when(run) for run in digests]
    report = _rendered(arguments.format, digests, _novelty(digests, arguments), since)
    if arguments.format == "html":
        beside = digests[0].directory / _PAGE
    else:
        beside = STANDARD_OUTPUT
    _write(arguments.out, beside, report, recorded_name)
    return 0


def _of_history(arguments: argparse.Namespace) -> int:
    """Writes the page or the site of a history. Returns exit status 3 if no cell has results that can be read,
    else 0."""
    if arguments.runs or arguments.against or arguments.format != "html":
        raise UserError(
            "--history writes a separate page",
            hint="give neither runs nor --against nor another format",
        )
    if arguments.site:
        if arguments.out:
            raise UserError("--site is a directory of its own", hint="leave out --out")
        from commands.report_site import write_site  # imported late: other reports do not need it

        write_site(
            arguments.history, arguments.site, lambda: suite_from(arguments), arguments.remote
        )
        return 0
    from reports.nights.history import PAGE, read_history  # imported late: runs do not need it

    if arguments.out:
        check_out(arguments.out, _OWN)
    history = read_history(arguments.history)
    if not history.nights:
        raise UserError(f"{arguments.history} is not a history: it has no night")
    show(history.problems, sys.stderr)
    out = None if arguments.out == STANDARD_OUTPUT else arguments.out
    page = renderer("nights.page").page_of(history, out.parent if out else None)
    _write(arguments.out, arguments.history / PAGE, page.encode())
    if history.is_readable:
        return 0
    return 3


def _novelty(runs: Sequence[Digest], arguments: argparse.Namespace) -> Novelty | None:
    if arguments.against is None:
        return None
    if len(runs) > 1 or arguments.format not in _WITH_NEWS:
        raise UserError(
            "--against is for one run, as html or markdown",
            hint="give one run, or leave out --against",
        )
    from reports.novelty import novelty  # imported late: only --against needs it

    return novelty(runs[0], read(arguments.against))


def _rendered(
    name: str,
    runs: Sequence[Digest],
    news: Novelty | None,
    since: Sequence[Mapping[str, str]] = (),
) -> bytes:
    if name in _WITH_NEWS:
        more = (since,) if since else ()
        page: str = renderer(name).render(runs, news, *more)
        return page.encode()
    report: str | bytes = renderer(name).render(runs)
    if isinstance(report, bytes):
        return report
    return report.encode()


def _write(given: Path | None, beside: Path, report: bytes, recorded_name: str = "") -> None:
    """Writes the file that the user has named or, without a name, the file `beside` the results. Another user could
    have prepared the directory of the results, so a link in the place of this file is replaced."""
    if given or beside == STANDARD_OUTPUT:
        path = given or beside
        return write_out(path, report, f"report: {path}", _OWN, recorded_name)
    write_atomically(beside, report)
    return show_line(f"report: {beside}")


def write_beside(
    directory: Path,
    digest: Digest | None = None,
    news: Novelty | None = None,
) -> None:
    """Writes the reports that every run has next to its results, small reports first. Without `digest`, reads the
    results. If a report cannot be written, writes the other reports, and then raises UserError for the first failure.
    Also raises UserError if the results are invalid."""
    digest = digest or read(directory)
    failed: list[UserError] = []
    for name in BESIDE:
        data = _rendered(name, [digest], news)
        try:
            write_atomically(directory / renderer(name).FILE_NAME, data, durable=False)
        except UserError as error:
            failed.append(error)
    if failed:
        raise failed[0]
