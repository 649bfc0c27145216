"""Tests the slice of the model's triples that a short run carries out, and the verdicts on rules of a case with
combinations."""

import functools
import itertools
from collections.abc import Sequence
from contextlib import closing

import pytest

from conformance.combinations.run import observe
from conformance.execution.runner import no_progress
from conformance.judging.combinations import Judged, verdicts_of_rules
from conformance.model.case import Case
from conformance.model.combinations import Conditions, CoveringArray, Point
from conformance.model.fault import FaultKind
from conformance.model.verdict import Verdict
from conformance.tables.suite import load_suite
from conformance.tables.tiers import DEFAULT, of_tier
from trial.reference.bench import ReferenceBench
from trial.reference.device import Device
from trial.slices import dense_points


def _case(name: str, table: str = "model") -> Case:
    case = load_suite().find(f"access/{table}/{name}")
    assert case is not None
    return case


def _array(name: str, table: str = "model") -> CoveringArray:
    array = _case(name, table).array
    assert array is not None
    return array


SLICE, GRANTED, REFUSED = map(_array, ("slice", "triples", "refused-triples"))
_CONDITIONS = Conditions(SLICE.model)


def _combinations(points: Sequence[Point], strength: int) -> set[tuple[tuple[int, str], ...]]:
    parts = set[tuple[tuple[int, str], ...]]()
    for point in points:
        parts.update(itertools.combinations(enumerate(point), strength))
    return parts


def test_the_slice_has_each_pair_of_values_of_granted_points_that_do_not_wait():
    prompt = [point for point in GRANTED.points if not _CONDITIONS.is_slow(point)]
    granted = [point for point in SLICE.points if not _CONDITIONS.faults(point)]
    assert _combinations(granted, 2) == _combinations(prompt, 2)


def test_the_slice_has_each_fault_with_each_value_that_it_can_meet():
    def met(points: Sequence[Point]) -> set[tuple[str, int, str]]:
        pairs = set[tuple[str, int, str]]()
        for point in points:
            for fault in _CONDITIONS.faults(point):
                pairs |= {(fault, number, label) for number, label in enumerate(point)}
        return pairs

    assert met(SLICE.points) == met(REFUSED.points)


def test_the_slice_is_a_part_of_the_triples_and_has_no_point_that_waits():
    assert {*SLICE.points} <= {*GRANTED.points, *REFUSED.points}
    assert not any(map(_CONDITIONS.is_slow, SLICE.points))
    assert any(map(_CONDITIONS.is_slow, GRANTED.points))


@pytest.mark.parametrize("table", ["binds", "changes", "registrations"])
def test_each_slice_has_the_pairs_of_its_triples(table):
    part, whole = (_array(name, table) for name in ("slice", "triples"))
    conditions = Conditions(part.model)

    def granted(array: CoveringArray) -> list[Point]:
        return [point for point in array.points if not conditions.faults(point)]

    assert {*part.points} < {*whole.points}
    assert _combinations(granted(part), 2) == _combinations(granted(whole), 2)


def test_the_slices_that_ran_on_each_stack_are_in_the_default_tier():
    cases = of_tier(load_suite().cases, DEFAULT)
    slices = [case.id for case in cases if case.array]
    tables = ["binds", "changes", "model", "registrations"]
    assert slices == [f"access/{table}/slice" for table in tables]


def test_points_with_more_new_combinations_are_chosen_first():
    points = SLICE.points[:60]
    repeated = [*points, *points]
    assert len({*dense_points(SLICE.model, repeated, 60)}) == 60
    few = dense_points(SLICE.model, points, 10)
    assert few == dense_points(SLICE.model, points, 10)
    others = [point for point in points if point not in few]
    assert len(_combinations(few, 3)) > len(_combinations(others[-10:], 3))


@functools.cache
def _judged(lacking: str) -> Judged:
    with closing(ReferenceBench(Device())) as bench:
        seen = observe(SLICE, bench, lambda name: name != lacking, no_progress)
    return Judged(SLICE, seen["combinations"])


def test_a_rule_whose_points_need_what_the_device_lacks_is_unsupported():
    verdicts = verdicts_of_rules(_case("slice").rules, Verdict.PASS, "", _judged("zero_based"))
    assert verdicts["REG-11"] == Verdict.UNSUPPORTED
    others = {verdict for rule, verdict in verdicts.items() if rule != "REG-11"}
    assert others == {Verdict.PASS}


def test_a_fault_of_the_whole_case_violates_only_the_rule_of_its_row():
    rules = _case("slice").rules
    kind = FaultKind.KERNEL_WARNED
    warned = verdicts_of_rules(rules, Verdict.FAIL, kind, _judged("zero_based"))
    assert [rule for rule in rules if warned[rule] == Verdict.FAIL] == ["WC-01"]
    died = verdicts_of_rules(rules, Verdict.CRASH, FaultKind.KERNEL_WARNED, None)
    assert died.pop("WC-01") == Verdict.CRASH
    assert {*died.values()} == {Verdict.UNREACHABLE}


def test_a_case_has_only_the_rules_for_which_a_point_counts():
    granted, refused = _case("triples").rules, _case("refused-triples").rules
    assert "BIND-05" in granted
    assert "BIND-05" not in refused
    assert "STAT-01" in refused
    assert "STAT-01" not in granted
    assert {*_case("slice").rules} == {*granted, *refused}
