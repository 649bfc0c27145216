"""Tests the tier health in a guest that stands for a node, beside a process that uses the node's device."""

from typing import Any

import pytest

from conformance.tables.health import CASES
from kinds import Folders
from own_guest import told_by

# Soft-RoCE writes a line with its name for a refused request or call; the crypto layer writes one at its first use.
_EXPECTED = ("rxe0: ", "evm: ")

pytestmark = pytest.mark.guest
# Soft-RoCE lets a peer write outside of a window (BIND-10), a known defect.
KNOWN = "bind_mw/type_1/byte-before-the-window"


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: Folders) -> Any:
    return told_by("health_in_guest.py", tmp_path_factory.mktemp("node"))


def test_the_tier_runs_beside_a_process_that_uses_the_device(outcome):
    assert set(outcome["verdicts"]) == set(CASES)
    assert {case for case, verdict in outcome["verdicts"].items() if verdict != "PASS"} == {KNOWN}
    assert outcome["status"] == 1
    assert "rxe0 is also in use by process" in outcome["said"]


def test_the_other_process_is_not_disturbed(outcome):
    assert outcome["user"] == ["in use", 0]


def test_the_kernel_reports_only_refused_requests(outcome):
    unexpected = [line for line in outcome["kernel"] if not line.startswith(_EXPECTED)]
    assert unexpected == []
    assert len(outcome["kernel"]) <= 60  # both ends of at most 30 refused requests
