"""The trial that leaves out one change of the mended stack: what it runs, and what it says of what comes back."""

from __future__ import annotations

from dataclasses import replace

from commands.__main__ import main
from conformance.model.kind import Kind
from kinds import Says
from samples import numbered, result
from trial.mended import SAMPLE, left_out, selected, table

CASES = numbered(3 * SAMPLE).cases
IDS = [case.id for case in CASES]


def test_it_runs_what_was_violated_what_is_of_the_rules_and_a_sample() -> None:
    shipped = {IDS[5]: result(CASES[5], "FAIL")}
    assert selected(["BIND-10"], CASES, shipped) == [IDS[5], IDS[SAMPLE], IDS[2 * SAMPLE]]
    assert selected(["REG-01"], CASES, shipped) == IDS


def test_of_the_exhaustive_tier_it_runs_the_rows_of_the_rules_alone() -> None:
    dear = [replace(case, tier="exhaustive") for case in CASES]
    assert selected(["REG-01"], [dear[0], replace(dear[1], kind=Kind.SWEEP)], {}) == [IDS[0]]
    assert selected(["BIND-10"], dear, {IDS[5]: result(CASES[5], "FAIL")}) == []


def test_violations_of_its_own_rules_that_come_back_are_its_own() -> None:
    whole = {case.id: result(case) for case in CASES[:3]} | {IDS[3]: result(CASES[3], "FAIL")}
    without = [result(CASES[0], "FAIL"), result(CASES[1]), result(CASES[2], "UNSUPPORTED"), result(CASES[3], "FAIL")]
    found = left_out("window-bounds", ["REG-01"], [], whole, without)
    assert (found.violated, found.not_verified, found.tried) == ((IDS[0],), (IDS[2],), 4)
    assert found.outcome == "its own alone"
    assert len(found.defects) == 1
    assert "| window-bounds | REG-01 | 1 | 1 |" in table([found])


def test_a_violation_of_other_rules_and_nothing_at_all_are_reported() -> None:
    whole = {IDS[0]: result(CASES[0])}
    assert left_out("a", ["BIND-10"], [], whole, [result(CASES[0], "CRASH")]).outcome == "others as well"
    assert left_out("a", ["REG-01"], [], whole, [result(CASES[0])]).outcome == "nothing: no case sees it"


def test_its_changes_are_listed(capsys: Says) -> None:
    assert main(["trial", "mended", "run", "--list"]) == 0
    assert capsys.readouterr().out
