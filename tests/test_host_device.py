"""A device of a host: a process that dies, a process that cannot be killed, and files that must not be touched.

The guest stands for the host: the project's own command line runs in the guest, on the guest's device. Kills at random
moments and runs on two devices are tested in test_kills_on_a_host.py.
"""

import shutil
from typing import Any

import pytest

import bad_driver
from conformance.tables.suite import ROOT
from own_guest import told_by

pytestmark = pytest.mark.guest


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The report of tests/on_a_host.py."""
    place = tmp_path_factory.mktemp("host")
    tables = bad_driver.tables(place / "tables", "works", "hangs", "works-too", "dies")
    files = [(tables, "bad"), (bad_driver.library(place / "preload.so"), "preload.so")]
    own = place / "cases/reg_mr"  # without the suite's tables: an emulator needs a minute for reading them
    own.mkdir(parents=True)
    for name in ("test_reg_mr.py", "rules.yaml"):
        shutil.copy(ROOT / "cases/reg_mr" / name, own)
    settings = "PYTHONDONTWRITEBYTECODE= LD_PRELOAD=/suite/preload.so"  # bytecode is cached as on a host
    return told_by("on_a_host.py", place, files=files, settings=settings, cases=own.parent)


def test_a_device_that_others_use_is_refused(found: dict[str, Any]) -> None:
    output = found["in use"]
    assert output["refused"]["status"] == 2
    assert "rxe0 is in use, by queue pairs: process" in output["refused"]["said"]
    assert "(python3) has 1; end these programs, or give --shared" in output["refused"]["said"]
    assert output["left"] is False


def test_an_absent_device_is_reported_with_the_present_ones(found: dict[str, Any]) -> None:
    output = found["in use"]["missing"]
    assert "no RDMA device 'rxe9'; devices of this host: rxe0" in output["said"]
    assert output["status"] == 2


def test_a_stuck_process_ends_the_run(found: dict[str, Any]) -> None:
    output = found["stuck"]
    assert output["status"] == 1
    assert output["verdicts"]["works"].startswith("PASS")
    assert output["verdicts"]["hangs"].startswith("HANG")
    assert output["verdicts"]["works-too"].startswith("MISSED not run: the device is suspect: process ")
    assert output["footer"]["complete"] is False


def test_a_run_that_a_stuck_process_ended_can_be_resumed_and_a_dead_process_costs_one_case(
    found: dict[str, Any],
) -> None:
    output = found["stuck"]
    assert output["footer at last"]["complete"] is True
    assert output["verdicts at last"]["works-too"].startswith("PASS")
    assert output["verdicts at last"]["hangs"].startswith("HANG")
    assert output["verdicts at last"]["dies"].startswith("CRASH")
    assert "died of SIGSEGV" in output["verdicts at last"]["dies"]


def test_a_run_writes_only_into_its_directory_and_opens_no_port(found: dict[str, Any]) -> None:
    output = found["stuck"]
    # The last case needs the BAR of a test device.
    allowed = (output["out"], "/dev/", "/proc/", "/run/audit/", "/sys/bus/pci/devices/")
    assert len(output["audit"]) > 5
    for line in output["audit"]:
        event, _, what = line.partition(" ")
        if event.startswith("socket."):
            assert event in ("socket.__new__", "socket.bind"), line
            assert "NETLINK" in what or what == "16", line
        else:
            assert what.startswith(allowed), line
