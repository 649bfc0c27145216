"""The summary at the end of a run, and colours on a terminal.

Made from records only, so that an old results file can be summarised again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from conformance.defects import Severity
from conformance.errors import PROGRAM
from conformance.model.record import HeaderRecord, ResultRecord
from conformance.model.verdict import INCOMPLETE, VERDICTS, Verdict
from conformance.results.conclusions import verdict_on
from reports import confirmation
from reports.digest import Digest
from reports.rule_ids import format_rules
from reports.text import columns_of, fitted, format_count, one_line

_COLOURS: dict[str, str] = {
    Verdict.PASS: "32",
    Verdict.FAIL: "31",
    Verdict.CRASH: "31",
    Verdict.HANG: "31",
    Verdict.BROKEN: "35",
    Verdict.MISSED: "35",
    Verdict.UNSUPPORTED: "33",
    Verdict.UNREACHABLE: "33",
    Verdict.WAIVED: "33",
    Verdict.STACK: "33",
}
REPORT = "report.html"
_SEVERITY, _WAIVED = "31", "33"
_WIDTH = 100  # columns of a line about a defect, at most
_LABEL = max(len(severity.label) for severity in Severity)
_MOST_RULES = 3
QUIET, NORMAL, VERBOSE = 0, 1, 2


def summary(run: Digest, out: Path, stream: TextIO | None = None, level: int = NORMAL) -> str:
    """The last lines of a run: a line for each defect, the figures, the report, what to do next.

    With `level` VERBOSE also each defect's smallest command; with QUIET only the conclusion.
    """
    stream = stream or sys.stdout
    conclusion = f"{run.conclusion} (exit status {run.status})"
    if level == QUIET:
        return f"{run.headline}; {conclusion}" if run.headline else conclusion
    lines = ["", *_defects(run, stream, level), *_undecided(run, stream), ""]
    duration = f" in {run.footer['duration_s']:.1f} s" if run.footer and "duration_s" in run.footer else ""
    figures = ", ".join(
        f"{run.counts[verdict]} {coloured(verdict, stream)}"
        for verdict in reversed(VERDICTS)
        if run.counts.get(verdict)
    )
    points = f", {run.points:,} calls judged" if run.points != len(run.results) else ""
    lines.append(f"{format_count(len(run.results), 'case')}{duration}{points}: {figures}")
    lines += [*([run.headline] if run.headline else ()), run.short_sentence]
    remarks = sum(bool(record["notes"]) for record in run.results)
    if remarks:
        lines.append(
            f"{format_count(remarks, 'result')} with remarks: the documents leave the outcome open or contradict "
            "each other"
        )
    lines += confirmation.summary(run)
    lines += [f"waiver: {problem}" for problem in run.waivers.get("problems", ())]
    last = (f"report: {out / REPORT} (results: {out})", *_program(run, out), f"next: {_next(run, out)}")
    lines += [device_line(run.header), *map(one_line, last)]
    return "\n".join([*(line if "\x1b" in line else fitted(line, stream) for line in lines), conclusion])


def _defects(run: Digest, stream: TextIO, level: int) -> Iterator[str]:
    """One line of at most _WIDTH columns for each defect, below one that says what they have."""
    if run.defects and level == NORMAL:
        yield "defects, most severe first: severity, number, what is wrong (rules), in how many cases"
    first_of_stack = next((defect for defect in run.defects if defect.of_stack), None)
    for defect in run.defects:
        if defect is first_of_stack:
            yield "of the stack, on every device: answered by the kernel's core or libibverbs"
        label = (
            Verdict.WAIVED.value if defect.waived else "unconfirmed" if defect.unconfirmed else defect.severity.label
        )
        ends = f" ({format_rules(defect.rules, _MOST_RULES)}) x{len(defect.cases)}"
        head = f"{label:<{_LABEL}} {defect.fingerprint} "
        line = shortened(defect.title, _width(stream) - len(head) - len(ends)) + ends
        yield painted(head, _WAIVED if defect not in run.open_defects else _SEVERITY, stream) + line
        if level == VERBOSE:
            yield f"{'':<{_LABEL}} {defect.first.line}"
            yield f"{'':<{_LABEL}} {defect.first.repro}"


def _undecided(run: Digest, stream: TextIO) -> Iterator[str]:
    """One line for each rule that is undecided, with its first case."""
    found: dict[str, list[ResultRecord]] = {}
    for record in run.results:
        for rule in record["rules"]:
            if verdict_on(rule, record) in INCOMPLETE:
                found.setdefault(rule, []).append(record)
    for rule, records in sorted(found.items()):
        more = f" (and {len(records) - 1} more)" if len(records) > 1 else ""
        verdict = verdict_on(rule, records[0])
        head = f"{verdict:<{_LABEL}} {rule} "
        text = shortened(f"{records[0]['case']}: {records[0]['reason']}", _width(stream) - len(head) - len(more))
        yield f"{painted(head, _COLOURS[verdict], stream)}{text}{more}"


def _width(stream: TextIO) -> int:
    return min(_WIDTH, columns_of(stream)) if stream.isatty() else _WIDTH


def shortened(text: str, width: int) -> str:
    """The text in at most `width` columns."""
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"


def _program(run: Digest, out: Path) -> Iterator[str]:
    """The commands for the C program that shows the first defect, and for running the failed cases again."""
    if run.open_defects:
        first = run.open_defects[0]
        yield f"C program: {PROGRAM} reproducer {first.fingerprint} --run {out} shows the first defect"
        target, only, _ = first.first.repro.rpartition(" --only ")  # on the stack of this run, not on the default one
        yield f"again: {target if only else f'{PROGRAM} run'} --failed {out} runs what has failed"


def _next(run: Digest, out: Path) -> str:
    """The most useful next step."""
    if run.footer is None or run.counts.get(Verdict.MISSED):
        return f"{PROGRAM} run --resume {out} runs the missing cases"
    if run.open_defects:
        return f"{PROGRAM} explain {run.open_defects[0].fingerprint} --run {out} explains the first defect"
    if run.status == 1:
        return "correct the waivers named above (see docs/waivers.md)"
    if run.status == 3:
        return f"{PROGRAM} doctor shows what is missing on this host"
    return f"{PROGRAM} compare OLD {out} shows what has changed since another run"


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
    return painted(verdict, _COLOURS.get(verdict, "0"), stream)


def painted(text: str, colour: str, stream: TextIO) -> str:
    """The text in a colour (the number of ECMA-48), if the stream is a terminal and NO_COLOR is not set."""
    return text if not can_redraw(stream) or os.environ.get("NO_COLOR") else f"\x1b[{colour}m{text}\x1b[0m"
