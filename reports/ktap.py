"""KTAP version 1, the test protocol of the Linux kernel: one line for each case, after its diagnostics, the most severe
violations first.

FAIL, CRASH, HANG, BROKEN and MISSED are `not ok`; UNSUPPORTED and UNREACHABLE are skipped; a waived violation is an
expected failure (XFAIL), as in kselftest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conformance.model.record import ResultRecord
from conformance.model.verdict import Verdict
from reports import evidence
from reports.digest import Digest

# The outcome and the directive of each verdict.
_RESULT = {
    Verdict.PASS: ("ok", ""),
    Verdict.UNSUPPORTED: ("ok", "SKIP"),
    Verdict.UNREACHABLE: ("ok", "SKIP"),
    Verdict.WAIVED: ("ok", "XFAIL"),
    Verdict.STACK: ("ok", "XFAIL"),
    Verdict.FAIL: ("not ok", ""),
    Verdict.CRASH: ("not ok", ""),
    Verdict.HANG: ("not ok", "TIMEOUT"),
    Verdict.BROKEN: ("not ok", "ERROR"),
    Verdict.MISSED: ("not ok", "ERROR"),
}


def render(runs: Sequence[Digest]) -> str:
    """The KTAP document; each of several runs is a subtest."""
    if len(runs) == 1:
        return "\n".join(_run(runs[0])) + "\n"
    lines = ["KTAP version 1", f"1..{len(runs)}"]
    for number, run in enumerate(runs, 1):
        inner = _run(run)
        lines += [f"  {next(inner)}", f"  # Subtest: {_escaped(run.name)}", *(f"  {line}" for line in inner)]
        lines.append(f"{'not ok' if run.status else 'ok'} {number} {_escaped(run.name)}")
    return "\n".join(lines) + "\n"


def _run(run: Digest) -> Iterator[str]:
    yield "KTAP version 1"
    yield f"1..{len(run.results)}"
    yield f"# {run.name}: {run.conclusion}"
    yield f"# {run.sentence}"
    if run.headline:
        yield f"# {run.headline}"
    if evidence.has_points(run):
        yield f"# {evidence.POINT}"
    for number, record in enumerate(run.by_severity(), 1):
        outcome, directive = _RESULT[record["effective"]]
        if outcome == "not ok":
            yield from (f"# {text}" for text in _details(run, record))
        reason = f" # {directive} {record['effective']}: {_escaped(record['reason'])}" if directive else ""
        yield f"{outcome} {number} {_escaped(record['case'])}{reason}"


def _details(run: Digest, record: ResultRecord) -> Iterator[str]:
    yield f"{record['case']}: {record['effective']} {' '.join(record['rules'])}: {record['reason']}"
    yield from evidence.lines(run, record)


def _escaped(text: str) -> str:
    """The text with every # escaped, so that no part of it is read as a directive."""
    return text.replace("#", "\\#")
