"""Tests that a new symptom does not hide in an old fingerprint, on the violations of a real run."""

import copy
import operator
from collections.abc import Sequence
from pathlib import Path

import pytest

from conformance.defects import Defect, defects_of
from conformance.model.fault import Fault, FaultKind
from conformance.model.record import ResultRecord
from reports.compared.changed_defects import news_of
from reports.digest import read
from samples import changed

RUN = Path(__file__).with_name("recorded_violations") / "forky.jsonl"
ADVICE = "74523eb0e047"


def records() -> list[ResultRecord]:
    return list(read(RUN).results)


def defect(results: Sequence[ResultRecord], name: str) -> Defect:
    (shown,) = [defect for defect in defects_of(results) if defect.fingerprint == name]
    return shown


def test_nothing_is_new_about_the_same_defects():
    for shown in defects_of(records()):
        assert news_of(shown, [shown], frozenset()) == ""


def test_another_code_of_the_same_cause_is_new():
    now = defect(records(), ADVICE)
    other = next(shown for shown in defects_of(records()) if shown.fingerprint != ADVICE)
    assert "wrong-code with EINVAL" in news_of(now, [other], frozenset())


@pytest.mark.parametrize("answer, what", [("changed", "written"), ("leaked", "read")])
def test_a_request_in_flight_is_named_in_words(answer, what):
    fault = Fault(FaultKind.MOVED, verb="await_traffic", returned=answer, changed=("CHANGE_PD",))
    violation = {"verdict": "FAIL", "deviations": [], "fault": fault.as_data()}
    record = changed(records()[0], violation)
    (shown,) = defects_of([record])
    assert f"bytes {what} by a request in flight" in news_of(shown, [], frozenset())


def test_a_case_that_passed_before_is_a_larger_extent():
    now = defect(records(), ADVICE)
    case = now.cases[-1]
    fewer = [record for record in records() if record["case"] != case]
    assert (
        news_of(now, [defect(fewer, ADVICE)], frozenset({case}))
        == f"in 1 case that passed before ({case})"
    )
    assert news_of(now, [defect(fewer, ADVICE)], frozenset()) == "", "the case was not tried"


def test_more_points_of_a_sweep_are_a_larger_extent():
    swept = next(
        shown
        for shown in defects_of(records())
        if max(map(operator.attrgetter("points"), shown.symptoms)) > 1
    )
    fewer = copy.deepcopy(records())
    for record in fewer:
        for deviation in record["deviations"]:
            if deviation["count"] > 1:
                deviation["count"] -= 1
    before = defect(fewer, swept.fingerprint)
    shown = next(symptom for symptom in swept.symptoms if symptom.points > 1)
    assert f" of {shown.case} and" in news_of(swept, [before], frozenset())
    news = news_of(swept, [before], frozenset(), lambda symptom: symptom is shown)
    assert news.endswith(f"of the same cases, such as {shown.name}")
    assert news_of(before, [swept], frozenset()) == ""
