"""Tests of runs on a device of a host: processes that die, are killed or cannot be killed, another user, and files that
must not be changed. A guest stands for the host: the project's command line runs in it, on the guest's device."""

import os
import shutil
import signal
from typing import Any

import pytest

import bad_driver
from conformance.tables.suite import ROOT
from kinds import Folders
from own_guest import told_by

pytestmark = pytest.mark.guest


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: Folders) -> Any:
    place = tmp_path_factory.mktemp("host")
    rows = ("works", "hangs", "works-too", "dies")
    tables = bad_driver.tables(place / "tables", {row: bad_driver.PAGES[row] for row in rows})
    files = [(tables, "bad"), (bad_driver.library(place / "preload.so"), "preload.so")]
    # without the suite's tables: an emulator needs a minute for reading them
    rules_of_device = place / "cases/reg_mr"
    rules_of_device.mkdir(parents=True)
    for name in ("test_reg_mr.py", "rules.yaml"):
        shutil.copy(ROOT / "cases/reg_mr" / name, rules_of_device)
    settings = "PYTHONDONTWRITEBYTECODE= LD_PRELOAD=/suite/preload.so"  # empty: bytecode is cached, as on a host
    return told_by(
        "on_a_host.py", place, files=files, settings=settings, cases=rules_of_device.parent
    )


def test_a_device_that_others_use_is_refused(outputs):
    output = outputs["in use"]
    assert output["refused"]["status"] == 2
    assert "rxe0 is in use by process" in output["refused"]["said"]
    assert (
        "(python3) (1 protection domain); end these programs, or give --shared"
        in output["refused"]["said"]
    )
    assert output["left"] is False


def test_an_absent_device_is_reported_with_the_present_ones(outputs):
    output = outputs["in use"]["missing"]
    assert "no RDMA device 'rxe9'; devices of this host: rxe0" in output["said"]
    assert output["status"] == 2


def test_a_stuck_process_ends_the_run(outputs):
    output = outputs["stuck"]
    assert output["status"] == 1
    assert output["verdicts"]["works"].startswith("PASS")
    assert output["verdicts"]["hangs"].startswith("HANG")
    assert output["verdicts"]["works-too"].startswith(
        "MISSED not run: the device is suspect: process ",
    )
    assert output["footer"]["complete"] is False


def test_a_run_that_a_stuck_process_ended_can_be_resumed_and_a_dead_process_affects_one_case(
    outputs,
):
    output = outputs["stuck"]["at last"]
    assert output["footer"]["complete"] is True
    assert output["verdicts"]["works-too"].startswith("PASS")
    assert output["verdicts"]["hangs"].startswith("HANG")
    assert output["verdicts"]["dies"].startswith("CRASH")
    assert "died of SIGSEGV" in output["verdicts"]["dies"]


def test_a_run_writes_only_into_its_directory_and_opens_no_port(outputs):
    output = outputs["stuck"]
    # Memory of the kind `bar` is mapped from a file of /sys that belongs to a PCI test device.
    allowed = (output["out"], "/dev/", "/proc/", "/run/audit/", "/sys/bus/pci/devices/")
    assert len(output["audit"]) > 5
    for line in output["audit"]:
        event, _, what = line.partition(" ")
        if event.startswith("socket."):
            assert event in ("socket.__new__", "socket.bind"), line
            assert "NETLINK" in what or what == "16", line
        else:
            assert what.startswith(allowed), line


# Another user, a closed terminal, two devices, and kills. RDMA_CTS_MOMENTS is the number of kills of each kind. By day,
# test_kills.py kills the supervisor of runs in a guest, and test_supervision.py has workers that exit or hang.

MOMENTS = int(os.environ.get("RDMA_CTS_MOMENTS", "1"))


def told_of(folders: Folders, *parts: str) -> Any:
    """Boots a guest that does these parts of the script. Each part takes minutes."""
    place = folders.mktemp("host")
    settings = "PYTHONDONTWRITEBYTECODE="
    return told_by("on_a_host.py", place, str(MOMENTS), *parts, settings=settings)


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: Folders) -> Any:
    return told_of(tmp_path_factory, "isolated", "closed", "shared")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: Folders) -> Any:
    return told_of(tmp_path_factory, "supervisor", "pytest")


@pytest.mark.nightly
@pytest.mark.parametrize("who", ["supervisor", "pytest"])
def test_a_kill_at_any_moment_loses_nothing(killed, who):
    assert len(killed[who]) == MOMENTS
    for output in killed[who]:
        assert output["same"], output


@pytest.mark.nightly
def test_a_clock_that_jumps_by_an_hour_during_a_run_changes_nothing(tmp_path_factory):
    told = told_of(tmp_path_factory, "jumps")
    assert len(told["jumps"]) == 2
    for output in told["jumps"]:
        assert output["running"]
        assert output["footer"] == told["footer"]
        assert 0 <= output["duration"] < 3600


@pytest.mark.nightly
def test_a_run_as_another_user_has_the_same_results(disturbed):
    own_results, other = (disturbed["isolated"][name] for name in ("own", "other"))
    assert (own_results["user"], other["user"]) == (None, "nobody"), other
    assert other["log"], "the other user cannot read the kernel's log"
    assert other["status"] == own_results["status"]
    assert other["footer"] == own_results["footer"] == disturbed["footer"]
    assert other["footer"]["complete"]


@pytest.mark.nightly
def test_with_isolate_no_attack_on_the_supervisor_succeeds(disturbed):
    for name, answers in (
        ("own", {"can"}),
        ("other", {"Permission denied", "Operation not permitted"}),
    ):
        probes = disturbed["isolated"][name]["could"]
        assert probes, disturbed["isolated"][name]
        for probe in probes:
            assert {*probe.pop("results"), *probe.pop("reports")} <= answers
            assert set(probe.values()) <= answers, (name, probe)


@pytest.mark.nightly
def test_a_closed_terminal_leaves_a_report_and_nothing_temporary(disturbed):
    output = disturbed["closed"]
    assert output["status"] == 128 + signal.SIGHUP, output
    assert "report.html" in output["left"]
    assert not [name for name in output["left"] if name.startswith("work-")]
    assert output["processes"] == []
    assert output["cut"] == {}
    assert output["footer"] == disturbed["footer"]


@pytest.mark.nightly
def test_two_devices_of_one_kind_share_the_cases_while_another_process_uses_one(disturbed):
    output = disturbed["shared"]
    assert output["devices"] == ["rxe0", "rxe1"], output
    assert output["footer"]["complete"], output
    assert output["repro"]
    assert output["other cases"]
    assert output["done"]["status"] in (0, 1)
    assert "no RDMA device 'rxe7'" in output["unknown"]["said"]
