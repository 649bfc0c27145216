"""What a result shows of its rules, for its record: by the row, or by the points of a sweep and their outcomes.

Not for what the results of a run come to (conclusions.py).
"""

from __future__ import annotations

from dataclasses import replace

from conformance.model.case import Case, Expectation
from conformance.model.evidence import distinct_points, shown_by
from conformance.model.record import ResultRecord, Shows
from conformance.model.verdict import VERDICTS, Verdict
from conformance.sweeps.outcome import OUTSIDE, Points


def shown_in(case: Case, record: ResultRecord) -> list[Shows]:
    """What the result of a case is about; of a sweep, with rule and verdict. The points are in the record still."""
    if "points_data" in record:
        return _of_points(case, Points.of_data(record["points_data"]))
    outcome = record["expected"].get("outcome", case.when.then.outcome)
    return [shown.as_data() for shown in shown_by(_expecting(case, outcome))]


def _expecting(case: Case, outcome: str) -> Case:
    """The case with the outcome that was expected of it: that of a point depends on the device."""
    return replace(case, when=replace(case.when, then=Expectation(outcome)))


def _of_points(case: Case, points: Points) -> list[Shows]:
    assert case.sweep is not None
    best: dict[tuple[str, str, str], int] = {}  # by what is shown and the rule, the number of the best outcome
    for number, point in distinct_points(case.sweep, points.index):
        if number == OUTSIDE:
            continue
        outcome = points.outcomes[number]
        expected = outcome.expected.partition(" ")[0]
        for shown in shown_by(_expecting(case.sweep.case_at(case, point), expected)):
            data = shown.as_data()
            key = (data["shows"], data["on"], outcome.rule)
            best[key] = max(
                best.get(key, number), number, key=lambda each: VERDICTS.index(points.outcomes[each].verdict)
            )
    return [_shows(points, number, *key) for key, number in sorted(best.items())]


def _shows(points: Points, number: int, shows: str, on: str, rule: str) -> Shows:
    found: Shows = {"shows": shows, "on": on, "rule": rule, "verdict": Verdict(points.outcomes[number].verdict)}
    example = points.examples[number] if points.examples else None
    if example and found["verdict"] in (Verdict.UNSUPPORTED, Verdict.UNREACHABLE):
        found["lacking"] = ", ".join(example["observed"].get("lacking", ())) or example["reason"]
    return found
