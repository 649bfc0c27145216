"""One answer has one verdict, whichever row gave it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from conformance.results.records import read_results
from conformance.tables.suite import Suite, load_suite
from conformance.tables.tiers import DEFAULT, of_tier
from one_verdict import contradictions
from recorded_reference import record
from reference.device import Device
from reference.stack import without


@pytest.fixture(scope="module")
def suite() -> Suite:
    return load_suite()


class NoOffsets(Device):
    """ZERO_BASED and HUGETLB are answered with EOPNOTSUPP."""

    def access_fault(self, access: int) -> int:
        return 95 if access & (1 << 5 | 1 << 7) else super().access_fault(access)


def check(suite: Suite, directory: Path, device: Device) -> list[str]:
    cases = [case for case in of_tier(suite.cases, DEFAULT) if case.verb in ("ibv_rereg_mr", "ibv_reg_mr")]
    fast = [case for case in cases if case.sweep is None or case.sweep.space.size <= 2048]
    path = record(directory, suite, fast, device)
    return contradictions(suite.cases, read_results(path), path)


@pytest.mark.parametrize(
    "device", [Device(), NoOffsets(), Device(without("rereg_translation")), Device(without("odp", "rereg_mr"))]
)
def test_no_answer_has_two_verdicts(suite: Suite, tmp_path: Path, device: Device) -> None:
    assert check(suite, tmp_path, device) == []


def test_a_row_that_forgets_what_it_needs_contradicts_the_others(suite: Suite, tmp_path: Path) -> None:
    path = record(
        tmp_path,
        suite,
        [case for case in suite.cases if case.verb == "ibv_rereg_mr" and case.sweep is None],
        Device(without("rereg_translation")),
    )
    forgetful = [replace(case, needs=()) if "/all-three" in case.id else case for case in suite.cases]
    found = contradictions(forgetful, read_results(path), path)
    assert found == []  # no other row changes all three
    forgetful = [
        replace(case, needs=()) if case.id.endswith("/shorter-translation@uverbs") else case for case in suite.cases
    ]
    (line,) = contradictions(forgetful, read_results(path), path)
    assert "CHANGE_TRANSLATION" in line
    assert "FAIL" in line
    assert "UNSUPPORTED" in line
