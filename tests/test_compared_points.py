"""Comparisons of two runs point by point: of sweeps whose points have other outcomes, other names, or no file."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conformance.model.record import ResultRecord
from conformance.sweeps.outcome import Outcome
from conformance.tables.suite import ROOT
from patience import calls_of
from reports.compared.comparison import compare
from reports.compared.text import text
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


WRONG_THERE = "MW_BIND LOCAL_WRITE+MW_BIND".split()
ELSEWHERE = ["none", "LOCAL_WRITE"]
# What has no verdict in the old run and in the new run, whether there are files of points, and whether the violations
# of the old run are known to be judged in the new run.
HIDING = {
    "failing points": ([], WRONG_THERE, True, False),
    "other points": ([], ELSEWHERE, True, True),
    "as many points as before": (ELSEWHERE, WRONG_THERE, True, False),
    "more points": ([], ELSEWHERE, False, False),
}


@pytest.mark.parametrize("before, after, files, fixed", HIDING.values(), ids=HIDING)
def test_a_violation_is_fixed_only_if_its_points_are_judged(
    before, after, files, fixed, tmp_path, cli
):
    def swept_at(folder: Path, wrong: list[str], lacking: list[str]) -> Path:
        numbers = {**dict.fromkeys(wrong, 2), **dict.fromkeys(lacking, 3)}
        points = sweep(
            folder, SUITE.cases[0], FLAGS, lambda at: numbers.get(at["access"], 1), NEWLY
        )
        return run(folder, [points])

    old = swept_at(tmp_path / "old", WRONG_THERE, before)
    new = swept_at(tmp_path / "new", [], after)
    if not files:
        shutil.rmtree(tmp_path / "new" / "points")
    comparison = compare(read(old), read(new))
    counts = [len(comparison.defects.by_kind[kind]) for kind in ("gone", "not decided")]
    assert counts == ([1, 0] if fixed else [0, 1])
    kind = "fixed" if fixed else "became unsupported"
    assert comparison.rules.kind("REG-15") == kind
    assert [change.kind for change in comparison.changes if not change.points] == [kind]
    why = "" if fixed else " (its failing points UNSUPPORTED)"
    said = cli(0, "compare", old, new).out
    assert f"\n  {kind}  FAIL -> PASS{why}  REG-15  " in said
    assert f"\n  FAIL -> PASS{why}  " in said
    said = cli(0, "compare", old, new, "--format", "markdown").out
    assert f"| {kind} | REG-15 | FAIL | PASS{why} |" in said
    assert f"- FAIL → PASS{why}: " in said
    assert f": FAIL -&gt; PASS{why}: " in cli(0, "compare", old, new, "--format", "junit").out
    data = json.loads(cli(0, "compare", old, new, "--format", "json").out)
    whole = next(change for change in data["changes"] if not change["points"])
    of_rule = next(item for item in data["rules"] if item["rule"] == "REG-15")
    for item in (whole, of_rule):
        assert item["failing_points"] == ([] if fixed else ["UNSUPPORTED"])


def test_a_defect_is_not_gone_on_a_device_that_does_not_offer_the_points_of_the_model():
    rxe, siw = (read(ROOT / f"docs/runs/{name}.jsonl.xz") for name in ("rxe", "siw"))
    undecided = compare(rxe, siw).defects.by_kind["not decided"]
    assert [defect.title for defect in undecided if defect.title.startswith("FLUSH_GLOBAL")]


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
        number = len(here.rules.by_fewer_cases)
        assert number
        assert f"\n  {number} rules decided by fewer cases in the {name} run; --all" in listed
        assert "decided by fewer" not in "\n".join(text(here, None))
        assert (" -> " in listed) == (name == "old"), listed
