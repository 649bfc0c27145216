"""Makes histories of made-up nightly results, for tests."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from commands import report
from conformance.model.record import ResultRecord
from conformance.results.records import Recorded
from samples import numbered, recorded, registry, result, written

SUITE = numbered(8)
RULES = {rule.id: rule.as_data() for rule in registry().values()}


def lines(verdicts: Mapping[int, str]) -> list[ResultRecord]:
    """Returns a result for each case of SUITE. `verdicts` has verdicts by the case's number; the others are PASS."""
    fault = {"kind": "refused", "verb": "ibv_reg_mr", "returned": "NULL"}
    lines_read = []
    for number, case in enumerate(SUITE.cases):
        verdict, line = (
            verdicts.get(number, "PASS"),
            f"ibv_reg_mr(access={number}) should succeed, but returned NULL",
        )
        lines_read.append(
            result(case, verdict, line, **({"fault": fault} if verdict == "FAIL" else {}))
        )
    return lines_read


def run_of(
    verdicts: Mapping[int, str],
    *,
    complete: bool = True,
    count: int = 8,
    **head: Any,
) -> Recorded:
    """Returns a run of the first `count` cases with these verdicts."""
    results = lines(verdicts)[:count]
    return recorded(results, complete=complete, rules=RULES, **head)


def write_run(folder: Path, run: Recorded) -> None:
    """Writes the results file of a run, and the reports next to it."""
    report.write_beside(written(run, folder))
