"""Tests runs whose wire peer cannot work or goes away, in a guest that stands for a host: no case fails for it."""

from typing import Any

import pytest

from conformance.tables.suite import load_suite
from conformance.tables.tiers import DEFAULT, of_tier
from kinds import Folders
from own_guest import told_by

pytestmark = [pytest.mark.guest, pytest.mark.nightly]
FEW = ("wire/first_packets/write", "reg_mr/rights/remote-write-refused-by-none@wire")
TABLES = ("wire/first_packets/", "reg_mr/rights/")


def many() -> list[str]:
    """Rows of packets, and rows that the wire peer carries."""
    return [
        case.id
        for case in of_tier(load_suite().cases, DEFAULT)
        if case.id.startswith(TABLES) and (case.id.startswith("wire/") or case.id.endswith("@wire"))
    ]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: Folders) -> Any:
    names = map(",".join, (FEW, many()))
    return told_by("wire_in_guest.py", tmp_path_factory.mktemp("wire"), *names)


@pytest.mark.parametrize(
    "name, cause",
    [
        ("taken", "the wire peer cannot have UDP port 4791 of 10.77.0.2: Address already in use"),
        ("dropped", "the wire peer's WRITE from 10.77.0.2 to 10.77.0.1 did not arrive"),
        ("unanswered", "WRITE arrived, but no acknowledgement came back to 10.77.0.2"),
    ],
)
def test_a_peer_that_cannot_work_is_the_reason_of_its_rows(name, cause, outcomes):
    seen = outcomes[name]["seen"]
    assert set(seen) == set(FEW)
    for verdict, reason in seen.values():
        assert verdict == "UNREACHABLE", outcomes[name]["said"]
        assert cause in reason
        assert "\n" not in reason


def test_a_peer_that_goes_away_fails_no_row_and_loses_no_result(outcomes):
    lost = outcomes["lost"]
    print(lost["said"])
    assert set(lost["seen"]) == set(many())
    assert {verdict for verdict, _ in lost["seen"].values()} == {"PASS", "BROKEN", "UNREACHABLE"}
    broken = [reason for verdict, reason in lost["seen"].values() if verdict == "BROKEN"]
    assert len(broken) == 1
    assert "the wire peer's connection to the device no longer works" in broken[0]
    assert lost["status"] == 3
