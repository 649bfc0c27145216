"""On a device of this host: another user, a closed terminal, two devices, and kills of a run and of its pytest.

The guest stands for the host. RDMA_CTS_MOMENTS is the number of kills of each kind.
"""

import os
import signal
from typing import Any

import pytest

from own_guest import told_by

# By day, test_kills.py kills the same processes of runs in a guest, and test_supervision.py kills the process of a
# worker on a host.
pytestmark = [pytest.mark.guest, pytest.mark.nightly]
MOMENTS = int(os.environ.get("RDMA_CTS_MOMENTS", "1"))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The report of tests/on_a_host.py."""
    return told_by("on_a_host.py", tmp_path_factory.mktemp("host"), str(MOMENTS), settings="PYTHONDONTWRITEBYTECODE=")


@pytest.mark.parametrize("who", ["supervisor", "pytest"])
def test_a_kill_at_any_moment_loses_nothing(found: dict[str, Any], who: str) -> None:
    assert len(found[who]) == MOMENTS
    for output in found[who]:
        assert output["same"], output


def test_another_user_sees_the_same(found: dict[str, Any]) -> None:
    own, other = (found["isolated"][name] for name in ("own", "other"))
    assert (own["user"], other["user"]) == (None, "nobody"), other
    assert other["log"], "the other user cannot read the kernel's log"
    assert other["status"] == own["status"]
    assert other["footer"] == own["footer"] == found["footer"]
    assert other["footer"]["complete"]


def test_isolate_keeps_attacks_from_the_judge(found: dict[str, Any]) -> None:
    for name, answers in (("own", {"can"}), ("other", {"Permission denied", "Operation not permitted"})):
        probes = found["isolated"][name]["could"]
        assert probes, found["isolated"][name]
        for probe in probes:
            assert {*probe.pop("results"), *probe.pop("reports")} <= answers
            assert set(probe.values()) <= answers, (name, probe)


def test_a_closed_terminal_leaves_a_report_and_nothing_temporary(found: dict[str, Any]) -> None:
    output = found["closed"]
    assert output["status"] == 128 + signal.SIGHUP, output
    assert "report.html" in output["left"]
    assert not [name for name in output["left"] if name.startswith("work-")]
    assert output["processes"] == []
    assert output["cut"] == {}
    assert output["footer"] == found["footer"]


def test_two_devices_of_one_kind_share_the_cases_next_to_others_with_shared(found: dict[str, Any]) -> None:
    output = found["shared"]
    assert output["devices"] == ["rxe0", "rxe1"], output
    assert output["footer"]["complete"], output
    assert output["repro"]
    assert output["other cases"]
    assert output["done"]["status"] in (0, 1)
    assert "no RDMA device 'rxe7'" in output["unknown"]["said"]
