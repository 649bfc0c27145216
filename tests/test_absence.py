"""Tests of the word for a defect that a run does not show."""

from typing import Any

import pytest

from conformance.model.record_shape import RESULT, completed
from reports.absence import absence, is_judged, judged_in_part, not_judged


@pytest.mark.parametrize(
    "judged, word",
    [
        ([True, True], "not seen"),
        ([True, False], "not decided"),
        ([True, None], "not decided"),
        ([None], "not decided"),
        ([False, None], "not tried"),
        ([False], "not tried"),
    ],
)
def test_the_word_follows_from_what_was_judged(judged, word):
    assert absence(judged) == word


def result(case: str, verdict: str, points: dict[str, int], tries: int = 0) -> Any:
    space = {"tries": tries} if tries else {}
    return {**RESULT, "case": case, "effective": verdict, "points": points, "space": space}


def test_points_without_a_verdict_count_unless_the_other_run_has_as_many():
    sweep = result("a/b/sweep", "PASS", {"PASS": 7, "UNSUPPORTED": 3})
    assert is_judged(sweep) is None
    assert is_judged(sweep, 3) is True
    assert is_judged(result("a/b/race", "PASS", {"PASS": 7, "MISSED": 3}, tries=10)) is True
    assert is_judged(None) is False
    assert judged_in_part([sweep, result("a/b/c", "PASS", {})]) == {"a/b/sweep": 3}


def test_points_of_a_model_without_a_verdict_count():
    """Older versions recorded their numbers only in the reason of the result."""
    points = {"PASS": 298, "UNSUPPORTED": 1394, "UNREACHABLE": 8}
    reason = "1,700 points: 298 PASS, 1,394 UNSUPPORTED, 8 UNREACHABLE; 3 UNSUPPORTED otherwise"
    reason += (
        "; 1,500 of 2,000 combinations were not reached: 1,234 of one, two, 266 refused with 3"
    )
    older: Any = {**result("access/a/slice", "PASS", {}), "type": "result", "reason": reason}
    older["pairs"] = {"parameters": {"one": ["a"]}, "states": ""}
    assert completed(older)["pairs"] == {
        **older["pairs"],
        "points": points,
        "combinations": 2000,
        "lacking": {"of one, two": 1234, "refused with 3": 266},
    }
    model: Any = {**older, "reason": "", "pairs": {**older["pairs"], "points": points}}
    assert completed(model)["pairs"] == model["pairs"]
    for record in (completed(older), model):
        assert judged_in_part([record]) == {"access/a/slice": 1402}


def test_a_table_without_a_judged_case_is_named_once():
    verdicts = {"a/b/c": "UNSUPPORTED", "a/b/d": "MISSED", "a/x/c": "PASS", "a/x/d": "UNREACHABLE"}
    results = [result(case, verdict, {}) for case, verdict in verdicts.items()]
    assert [*not_judged(results)] == ["a/b", "a/x/d"]
