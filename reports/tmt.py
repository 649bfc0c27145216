"""Writes results.yaml of a tmt test with `result: custom`: a result for each case, in JSON, which is also YAML. FAIL,
CRASH and HANG are `fail`; BROKEN and MISSED are `error`; UNSUPPORTED and UNREACHABLE are `skip`; WAIVED and STACK are
`warn`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from conformance.defects.symptom import violated_rules
from conformance.model.printable import one_line
from conformance.model.record import ResultRecord
from conformance.model.verdict import EXCUSED, INCOMPLETE, NOT_TESTABLE, VIOLATIONS, Verdict
from reports.digest import Digest

_RESULT = {
    Verdict.PASS: "pass",
    **dict.fromkeys(NOT_TESTABLE, "skip"),
    **dict.fromkeys(EXCUSED, "warn"),
    **dict.fromkeys(VIOLATIONS, "fail"),
    **dict.fromkeys(INCOMPLETE, "error"),
}


def render(runs: Sequence[Digest]) -> str:
    """Returns the list of results. If there are several runs, each name begins with the name of the run."""
    results = [
        result
        for run in runs
        for result in _run(run, f"/{run.environment.name}" if len(runs) > 1 else "")
    ]
    # one line for each result
    return "[" + ",".join("\n " + json.dumps(result) for result in results) + "\n]\n"


def _run(run: Digest, prefix: str) -> Iterator[dict[str, Any]]:
    for record in run.results:
        yield {
            "name": f"{prefix}/{record['case']}",
            "result": _RESULT[record["effective"]],
            "note": [one_line(text) for text in _notes(record)],
            "duration": _duration(record["duration_us"]),
        }


def _notes(record: ResultRecord) -> Iterator[str]:
    rules = violated_rules(record) or record["rules"]
    yield f"{record['effective']} {' '.join(rules)}"
    if record["effective"] != Verdict.PASS:
        yield record["reason"]
        yield record["repro"]


def _duration(microseconds: float | None) -> str:
    seconds = round((microseconds or 0) / 1e6)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
