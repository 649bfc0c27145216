"""KTAP version 1, the kernel's own test protocol, one line a case with its diagnostics before it.

A FAIL, CRASH, BROKEN or MISSED is `not ok`; what the stack does not have is skipped; a waived violation
is an expected failure (XFAIL), as kselftest writes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conformance.model.verdict import Verdict
from conformance.results.records import Record
from reports.digest import Digest, flat, told_deviation

# Verdict to outcome and directive.
_RESULT = {
    Verdict.PASS: ("ok", ""),
    Verdict.UNSUPPORTED: ("ok", "SKIP"),
    Verdict.UNREACHABLE: ("ok", "SKIP"),
    Verdict.WAIVED: ("ok", "XFAIL"),
    Verdict.FAIL: ("not ok", ""),
    Verdict.CRASH: ("not ok", ""),
    Verdict.HANG: ("not ok", "TIMEOUT"),
    Verdict.BROKEN: ("not ok", "ERROR"),
    Verdict.MISSED: ("not ok", "ERROR"),
}


def render(runs: Sequence[Digest]) -> str:
    """The document of these runs; of several, each is a subtest."""
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
    yield f"# {run.name}: {run.words}"
    for number, line in enumerate(run.results, 1):
        outcome, directive = _RESULT[line["effective"]]
        if outcome == "not ok":
            yield from (f"# {text}" for text in _details(line))
        reason = f" # {directive} {line['effective']}: {_escaped(line['reason'])}" if directive else ""
        yield f"{outcome} {number} {_escaped(line['case'])}{reason}"


def _details(line: Record) -> Iterator[str]:
    yield f"{line['case']}: {line['effective']} {' '.join(line['rules'])}: {line['reason']}"
    yield f"call: {line['call']}"
    for word in ("expected", "observed"):
        yield f"{word}: {'; '.join(f'{name} {text}' for name, text in flat(line[word]))}"
    yield from (text for each in line["deviations"] for text in told_deviation(each).splitlines())
    yield f"table: {line['source'].get('file', '')}:{line['source'].get('line', '')}"
    yield f"reproduce: {line['repro']}"
    yield from (f"kernel: {text}" for text in line["kernel"]["log"])


def _escaped(text: str) -> str:
    """A text in which nothing is taken for the beginning of a directive."""
    return text.replace("#", "\\#")
