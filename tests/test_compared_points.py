"""Comparisons of two runs point by point: of sweeps whose points have other outcomes, other names, or no file."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conformance.model.record import ResultRecord
from conformance.sweeps.outcome import Outcome
from conformance.tables.suite import ROOT
from patience import calls_of
from reports.comparison import compare
from reports.comparison_formats import text
from reports.digest import read
from samples import FLAGS, OUTCOMES, changed, sweep
from test_comparison import SUITE, changes, run

# Outcomes of made-up sweeps; in the last, the device does not offer the call.
NEWLY = [*OUTCOMES, Outcome("UNSUPPORTED", "success", "it is not there", "REG-15")]


def swept(directory: Path, *accepted: str, axes: dict[str, Any] = FLAGS) -> list[ResultRecord]:
    """Returns the result of a sweep in which these combinations are wrongly accepted."""
    return [sweep(directory, SUITE.cases[0], axes, lambda at: 2 if at["access"] in accepted else 0)]


def test_points_are_compared_even_if_the_verdict_is_unchanged(tmp_path):
    old = swept(tmp_path / "old", "MW_BIND")
    new = swept(tmp_path / "new", "LOCAL_WRITE", "LOCAL_WRITE+MW_BIND")
    comparison, status = changes(tmp_path, old, new)
    assert [(change.kind, change.points, change.examples) for change in comparison] == [
        ("regressed", 2, ("access=LOCAL_WRITE",)),
        ("fixed", 1, ("access=MW_BIND",)),
    ]
    assert status == 1


def test_a_sweep_without_its_points_is_compared_by_its_verdict_only(tmp_path, cli):
    old, new = (run(tmp_path / name, swept(tmp_path / name, "MW_BIND")) for name in ("old", "new"))
    shutil.rmtree(tmp_path / "new" / "points")
    said = cli(0, "compare", old, new).out
    assert (
        "1 case compared (1 sweep not point by point, because a file of points is missing): nothing has changed"
        in said
    )
    assert "no case that both runs tried has regressed (exit status 0)" in said


WAIVED_POINTS = {
    ("", "yes"): 0,
    ("", "unsteady"): 0,
    ("", "no"): 1,
    ("MW_BIND", "yes"): 1,
    ("MW_BIND", "unsteady"): 0,
}


@pytest.mark.parametrize("before, listed", WAIVED_POINTS)
def test_a_waived_sweep_may_vary_as_its_waiver_says(before, listed, tmp_path):
    """Before, the sweep passes or has another violation, which is waived, too."""
    waived: Any = {"effective": "WAIVED", "waiver": {"for": "defect 0", "listed": listed}}
    old, new = swept(tmp_path / "old", before), swept(tmp_path / "new", "MW_BIND", "LOCAL_WRITE")
    if before:
        old = [changed(record, waived) for record in old]
    _, status = changes(tmp_path, old, [changed(record, waived) for record in new])
    assert status == WAIVED_POINTS[before, listed]


def test_points_that_are_tries_of_one_combination_are_not_compared(tmp_path):
    old, new = (
        swept(tmp_path / "old", "MW_BIND"),
        swept(tmp_path / "new", "LOCAL_WRITE", "LOCAL_WRITE+MW_BIND"),
    )
    for record in (*old, *new):
        record["space"] = {**record["space"], "tries": True}
    assert changes(tmp_path, old, new) == ([], 0)


def test_points_of_spaces_that_differ_are_compared_by_their_names(tmp_path):
    old = swept(tmp_path / "old", axes={"access": ["none", "LOCAL_WRITE"]})
    new = swept(tmp_path / "new", "LOCAL_WRITE")
    comparison, _ = changes(tmp_path, old, new)
    assert {(change.kind, change.points) for change in comparison} == {
        ("regressed", 1),
        ("new", 6),
    } | {
        ("regressed", 0),
    }


def test_a_hundred_thousand_points_cost_little_more_than_a_call_each(tmp_path):
    axes = {"access": {"subsets": [f"FLAG_{number}" for number in range(17)]}}
    old, new = swept(tmp_path / "old", axes=axes), swept(tmp_path / "new", "FLAG_3", axes=axes)
    before, after = read(run(tmp_path / "old", old)), read(run(tmp_path / "new", new))
    comparison = compare(before, after)
    assert calls_of(lambda: compare(before, after)) < 1.5 * 2**17
    assert [change.points for change in comparison.of("regressed")] == [0, 1]


def test_a_sweep_that_is_wrong_only_where_it_is_newly_supported_has_not_regressed(tmp_path):
    old = [
        sweep(
            tmp_path / "old",
            SUITE.cases[0],
            FLAGS,
            lambda at: 3 if "MW_BIND" in at["access"] else 0,
            NEWLY,
        ),
    ]
    new = [
        sweep(
            tmp_path / "new",
            SUITE.cases[0],
            FLAGS,
            lambda at: 2 if "MW_BIND" in at["access"] else 0,
            NEWLY,
        ),
    ]
    comparison, status = changes(tmp_path, old, new)
    assert [(change.kind, change.points) for change in comparison] == [
        ("newly supported, and wrong", 0),
        ("newly supported, and wrong", 4),
    ]
    assert status == 1


def test_a_violation_at_points_that_are_no_longer_judged_is_neither_fixed_nor_gone(tmp_path):
    def with_bind(number: int, folder: Path) -> Path:
        """Makes a run of a sweep whose points with MW_BIND have this outcome."""
        points = sweep(
            folder,
            SUITE.cases[0],
            FLAGS,
            lambda at: number if "MW_BIND" in at["access"] else 0,
            NEWLY,
        )
        return run(folder, [points])

    old, new = with_bind(2, tmp_path / "old"), with_bind(3, tmp_path / "new")
    comparison = compare(read(old), read(new))
    assert "fixed" not in {change.kind for change in comparison.changes}
    assert comparison.defects["gone"] == []
    assert len(comparison.defects["not decided"]) == 1


def test_rules_that_a_run_of_one_verb_decides_by_fewer_cases_are_one_line():
    whole = read(ROOT / "docs" / "runs" / "rxe.jsonl.xz")
    results = tuple(line for line in whole.results if line["case"].startswith("reg_mr/"))
    planned = [line["case"] for line in results]
    head = changed(
        whole.header, {"planned": planned, "left_out": len(whole.results) - len(planned)}
    )
    part = replace(whole, header=head, results=results, confirmations=())
    for runs, name in (((part, whole), "old"), ((whole, part), "new")):
        here = compare(*runs)
        said = "\n".join(text(here, 20)).partition("other rules with another verdict")[2]
        listed = said.partition("\n\n")[0]
        number = len(here.rules_by_fewer_cases)
        assert number
        assert f"\n  {number} rules decided by fewer cases in the {name} run; --all" in listed
        assert "decided by fewer" not in "\n".join(text(here, None))
