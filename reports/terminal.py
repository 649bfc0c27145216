"""The summary at the end of a run, and colours on a terminal.

Made from records only, so that an old results file can be summarised again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from conformance.errors import PROGRAM
from conformance.model.record import HeaderRecord, ResultRecord
from conformance.model.verdict import INCOMPLETE, VERDICTS, VIOLATIONS, Verdict
from conformance.results.conclusions import headline, verdict_on
from reports import confirmation
from reports.digest import Digest, one_line

_COLOURS: dict[str, str] = {
    Verdict.PASS: "32", Verdict.FAIL: "31", Verdict.CRASH: "31", Verdict.HANG: "31",
    Verdict.BROKEN: "35", Verdict.MISSED: "35", Verdict.UNSUPPORTED: "33", Verdict.UNREACHABLE: "33",
    Verdict.WAIVED: "33",
}  # fmt: skip
REPORT = "report.html"


def summary(run: Digest, out: Path, stream: TextIO | None = None) -> str:
    """The last lines of a run: one line for each violated rule, the figures, the report, what to do next."""
    stream = stream or sys.stdout
    lines = ["", *_unsettled(run, stream), ""]
    duration = f" in {run.footer['duration_s']:.1f} s" if run.footer and "duration_s" in run.footer else ""
    figures = ", ".join(
        f"{run.counts[verdict]} {coloured(verdict, stream)}"
        for verdict in reversed(VERDICTS) if run.counts.get(verdict)
    )  # fmt: skip
    points = f", {run.points:,} calls judged" if run.points != len(run.results) else ""
    lines += [f"{len(run.results)} cases{duration}{points}: {figures}", run.short_sentence]
    remarks = sum(bool(record["notes"]) for record in run.results)
    if remarks:
        lines.append(f"{remarks} results with remarks: the documents leave the outcome open or contradict each other")
    lines += confirmation.summary(run)
    lines += [f"waiver: {problem}" for problem in run.waivers.get("problems", ())]
    lines += [device_line(run.header), f"report: {out / REPORT} (results: {out})", f"next: {_next(run, out)}"]
    return "\n".join([*lines, f"{_conclusion(run)} (exit status {run.status})"])


def _unsettled(run: Digest, stream: TextIO) -> Iterator[str]:
    """One line for each rule that is violated or undecided, with its first case."""
    found: dict[str, list[ResultRecord]] = {}
    for record in run.results:
        for rule in record["rules"]:
            if verdict_on(rule, record) in (*VIOLATIONS, *INCOMPLETE):
                found.setdefault(rule, []).append(record)
    for rule, records in sorted(found.items()):
        record, more = records[0], f" (and {len(records) - 1} more)" if len(records) > 1 else ""
        source = record["source"]
        reason, repro = headline(rule, record)
        yield (
            f"{coloured(record['effective'], stream)} {rule} {reason}{more}"
            f" · {source.get('file', '')}:{source.get('line', '')} · {repro}"
        )


def _next(run: Digest, out: Path) -> str:
    """The most useful next step."""
    violated = next(iter(run.violations()), "")
    if run.footer is None or run.counts.get(Verdict.MISSED):
        return f"{PROGRAM} run --resume {out} runs the missing cases"
    if violated:
        return f"{PROGRAM} explain {violated} --results {out} explains the first violation"
    if run.status == 1:
        return "correct the waivers named above (see docs/waivers.md)"
    if run.status == 3:
        return f"{PROGRAM} doctor shows what is missing on this host"
    return f"{PROGRAM} compare OLD {out} shows what has changed since another run"


def _conclusion(run: Digest) -> str:
    if run.footer is None:
        return "the run was cut short"
    if run.status == 1 and not run.violations():
        return "no rule was violated, but the waivers do not fit"
    return {
        0: "no rule was violated",
        1: "the device does not conform to its documents: see the lines above",
        3: "the run is incomplete or broken: no conclusion about the device",
    }[run.status]


def device_line(header: HeaderRecord) -> str:
    """The stack under test in one line."""
    device, env = header["device"], header["env"]
    return one_line(
        f"{device.get('name', '?')} ({device.get('driver', '?')}), kernel {env.get('kernel', '?')}"
        f", rdma-core {env.get('rdma_core', '?')}, stack {header['stack']}"
    )


def can_redraw(stream: TextIO) -> bool:
    """Whether the stream is a terminal on which a line can be overwritten."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def coloured(verdict: str, stream: TextIO) -> str:
    """The verdict in its colour, if the stream is a terminal and NO_COLOR is not set."""
    if not can_redraw(stream) or os.environ.get("NO_COLOR"):
        return verdict
    return f"\x1b[{_COLOURS.get(verdict, '0')}m{verdict}\x1b[0m"
