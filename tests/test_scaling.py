"""Tests of ci/benchmarks/scaling.py: how long a run takes on more guests, by the schedule."""

import sys
from collections.abc import Sequence

import pytest

from conformance.model.case import Case
from conformance.supervision.schedule import START_S
from conformance.tables.suite import ROOT, load_suite

sys.path.append(str(ROOT / "ci/benchmarks"))
from scaling import simulated_s


@pytest.fixture(scope="module")
def ordinary() -> Sequence[Case]:
    """Returns 40 cases that may share a guest."""
    cases = load_suite().cases
    return [case for case in cases if not case.alone and not case.needs_kept_memory][:40]


@pytest.mark.parametrize("guests", [1, 2, 4, 8])
def test_equal_cases_are_divided_equally(ordinary: Sequence[Case], guests: int) -> None:
    seconds = dict.fromkeys((case.id for case in ordinary), 10.0)
    assert simulated_s(ordinary, seconds, seconds, guests) == pytest.approx(START_S + 400 / guests)


def test_no_run_is_shorter_than_its_longest_case(ordinary: Sequence[Case]) -> None:
    seconds = dict.fromkeys((case.id for case in ordinary), 0.1)
    seconds[ordinary[7].id] = 100.0
    assert simulated_s(ordinary, seconds, seconds, 16) >= START_S + 100


def test_a_case_that_can_crash_the_kernel_has_its_own_guest() -> None:
    cases = [case for case in load_suite().cases if case.hazardous][:3]
    seconds = dict.fromkeys((case.id for case in cases), 1.0)
    assert simulated_s(cases, seconds, (), 1) == pytest.approx(3 * (START_S + 1))
    assert simulated_s(cases, seconds, seconds, 1) == pytest.approx(START_S + 3)
