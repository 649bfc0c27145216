"""Writes KTAP, the test protocol of the Linux kernel: diagnostic lines and a result line for each case, the most severe
violations first. The output begins with the version of TAP, as the output of kselftest does. Therefore parsers of TAP
and parsers of KTAP accept the output.

FAIL, CRASH, HANG, BROKEN and MISSED are `not ok`; UNSUPPORTED and UNREACHABLE are skipped; WAIVED and STACK are
expected failures (XFAIL).
"""

from collections.abc import Iterator, Sequence

from conformance.defects.symptom import violated_rules
from conformance.model.verdict import EXCUSED, INCOMPLETE, NOT_TESTABLE, VIOLATIONS, Verdict
from reports import evidence
from reports.digest import Digest

_FIRST, _FIRST_INSIDE = "TAP version 13", "KTAP version 1"
# The outcome and the directive of each verdict.
_RESULT = {
    Verdict.PASS: ("ok", ""),
    **dict.fromkeys(NOT_TESTABLE, ("ok", "SKIP")),
    **dict.fromkeys(EXCUSED, ("ok", "XFAIL")),
    **dict.fromkeys(VIOLATIONS, ("not ok", "")),
    Verdict.HANG: ("not ok", "TIMEOUT"),
    **dict.fromkeys(INCOMPLETE, ("not ok", "ERROR")),
}


def render(runs: Sequence[Digest]) -> str:
    """Returns the KTAP document. If there are several runs, each run is a subtest."""
    if len(runs) == 1:
        return "\n".join([_FIRST, *_run(runs[0])]) + "\n"
    lines = [_FIRST, f"1..{len(runs)}"]
    for number, run in enumerate(runs, 1):
        inner = (_FIRST_INSIDE, f"# Subtest: {_name(run.environment.name)}", *_run(run))
        lines += [
            *(f"  {line}" for line in inner),
            f"{'not ok' if run.summary.status else 'ok'} {number} {_name(run.environment.name)}",
        ]
    return "\n".join(lines) + "\n"


def _run(run: Digest) -> Iterator[str]:
    yield f"1..{len(run.results)}"
    yield f"# {run.environment.name}: {run.summary.conclusion}"
    yield f"# {run.summary.sentence}"
    if run.summary.headline:
        yield f"# {run.summary.headline}"
    if evidence.has_points(run):
        yield f"# {evidence.POINT}"
    for number, record in enumerate(run.violations.by_severity(), 1):
        outcome, directive = _RESULT[record["effective"]]
        if outcome == "not ok":
            rules = violated_rules(record) or record["rules"]
            yield f"# {record['case']}: {record['effective']} {' '.join(rules)}: {record['reason']}"
            yield from (f"# {text}" for text in evidence.lines(run, record))
        if directive:
            reason = f" # {directive} {record['effective']}: {_escaped(record['reason'])}"
        else:
            reason = ""
        yield f"{outcome} {number} {_name(record['case'])}{reason}"


def _name(text: str) -> str:
    """Returns the name of a test without #, because the kernel's parser rejects # in a name, also an escaped #."""
    return text.replace("#", "?")


def _escaped(text: str) -> str:
    """Returns the text with every # escaped, so that parsers find no directive in the text."""
    return text.replace("#", "\\#")
