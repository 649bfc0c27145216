"""Tests of what reports and comparisons say about the confirmation of violations."""

import json
from pathlib import Path
from typing import Any

import pytest

from commands.report import renderer
from conformance.model.record import ConfirmationRecord
from repeated import Run, after, always
from reports import terminal
from reports.digest import read
from reports.preceding import with_preceding
from reports.repetitions import Repetitions
from samples import (
    numbered,
    result,
)

COUNT = 12
SUITE = numbered(COUNT)
IDS = [case.id for case in SUITE.cases]


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A run with one violation that is confirmed and another that depends on an earlier case."""
    depends = after(11, 2)
    Run(
        tmp_path / "mixed",
        lambda case, before: "FAIL" if case == IDS[5] else depends(case, before),
    )()
    return tmp_path / "mixed"


NOT_CONFIRMED = (
    "not confirmed: FAIL in the run, but PASS in isolation "
    "(ibv_reg_mr(pd=pd, addr=buf.addr, length=buf.size, access=0) returned an MR); "
    f"it occurs again after {IDS[2]}"
)


@pytest.mark.parametrize("form", ["junit", "ktap", "html"])
def test_a_report_has_the_confirmation_next_to_each_violation(mixed, form):
    text = renderer(form).render([read(mixed)])
    if not (isinstance(text, str)):
        text = text.decode()
    assert "confirmed: the same when repeated with other cases, in a different order" in text
    assert NOT_CONFIRMED in text
    assert f"--only {IDS[2]} --only {IDS[11]}" in text


def test_the_summaries_have_the_figures_and_the_violations_that_were_not_confirmed(mixed):
    run = read(mixed)
    assert list(run.violations.repetitions.summary()) == [
        "confirmation: 1 of 2 violations reproduced in a fresh worker, 1 of them together with others",
        f"{IDS[11]}: {NOT_CONFIRMED}",
    ]
    assert all(
        line in terminal.summary(run, mixed) for line in run.violations.repetitions.summary()
    )
    assert "1 of 2 violations reproduced in a fresh worker" in str(
        renderer("markdown").render([run]),
    )
    data = json.loads(renderer("summary").render([run]))
    assert data["confirmation"] == {
        "confirmed": 1,
        "not_confirmed": 1,
        "not_tried": 0,
        "unconfirmed": [IDS[11]],
    }


def test_a_comparison_has_the_confirmation_of_a_regression(tmp_path, mixed, cli):
    Run(tmp_path / "old", always())()
    assert NOT_CONFIRMED in cli(1, "compare", tmp_path / "old", mixed).out


def test_a_run_that_repeated_nothing_says_so():
    figures = {"confirmed": 0, "not_confirmed": 0, "not_tried": 23}
    assert list(Repetitions([], figures).summary()) == [
        "confirmation: none of 23 violations was repeated; each counts as it was observed",
    ]


def test_a_repetition_of_a_whole_sweep_is_about_each_of_its_points_and_that_of_a_point_about_none():
    records: list[ConfirmationRecord] = [
        {"type": "confirmation", "case": "a/b/whole", "confirmed": True, "by": "run"},
        {
            "type": "confirmation",
            "case": "a/b/points",
            "point": "x=1",
            "confirmed": True,
            "by": "run",
        },
    ]
    repetitions = Repetitions(records)
    assert repetitions.text_at("a/b/whole", "x=1").startswith("confirmed")
    assert repetitions.text_at("a/b/points", "x=1").startswith("confirmed")
    assert repetitions.text_at("a/b/points", "x=2") == ""
    assert repetitions.text_at("a/b/absent", "x=1") == ""


def test_the_command_of_a_violation_runs_the_cases_that_it_needs_before():
    """What needs the earlier points of its own sweep is shown by the whole sweep."""
    record = result(SUITE.cases[11], "FAIL", "", repro=f"./rdma-cts run --guest --only {IDS[11]}")
    confirmation: ConfirmationRecord = {
        "type": "confirmation",
        "case": IDS[11],
        "confirmed": False,
        "by": "repetition",
        "after": [IDS[4], IDS[2]],
    }
    shown = with_preceding(record, confirmation)["repro"]
    ids = f"--only {IDS[4]} --only {IDS[2]} --only {IDS[11]}"
    assert shown == f"./rdma-cts run --guest --guests 1 {ids}"
    point: Any = {"smallest": {"x": "1"}, "repro": f"./rdma-cts run --only {IDS[11]}#x=1"}
    swept: Any = {**record, "deviations": [point, {**point, "smallest": {"x": "2"}}]}
    of_sweep: Any = {**confirmation, "point": "x=1", "after": [IDS[11]]}
    deviations = with_preceding(swept, of_sweep)["deviations"]
    assert [deviation["repro"] for deviation in deviations] == [record["repro"], point["repro"]]
