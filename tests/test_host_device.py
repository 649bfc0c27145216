"""A device of a host: a process that dies, a process that cannot be killed, and files that must not be touched.

The guest stands for the host: the project's own command line runs in the guest, on the guest's device. Kills at random
moments and runs on two devices are tested in test_kills_on_a_host.py.
"""

from typing import Any

import pytest

import bad_driver
from own_guest import told_by

pytestmark = [pytest.mark.guest, pytest.mark.long]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The report of tests/on_a_host.py."""
    place = tmp_path_factory.mktemp("host")
    tables = bad_driver.tables(place / "tables", "works", "dies", "hangs", "works-too")
    files = [(tables, "bad"), (bad_driver.library(place / "preload.so"), "preload.so")]
    settings = "PYTHONDONTWRITEBYTECODE= LD_PRELOAD=/suite/preload.so"  # bytecode is cached as on a host
    return told_by("on_a_host.py", place, files=files, settings=settings)


def test_a_device_that_others_use_is_refused(found: dict[str, Any]) -> None:
    output = found["in use"]
    assert output["refused"]["status"] == 2
    assert "rxe0 is in use, by queue pairs: process" in output["refused"]["said"]
    assert "(python3) has 1; end these programs, or give --shared" in output["refused"]["said"]
    assert output["left"] is False


def test_a_device_that_is_not_there_is_named_with_those_that_are(found: dict[str, Any]) -> None:
    output = found["in use"]["missing"]
    assert "no RDMA device 'rxe9'; devices of this host: rxe0" in output["said"]
    assert output["status"] == 2


def test_a_process_that_dies_costs_one_case_and_one_that_is_stuck_makes_the_device_suspect(
    found: dict[str, Any],
) -> None:
    output = found["stuck"]
    assert output["status"] == 1
    assert output["verdicts"]["works"].startswith("PASS")
    assert output["verdicts"]["dies"].startswith("CRASH")
    assert "died of SIGSEGV" in output["verdicts"]["dies"]
    assert output["verdicts"]["hangs"].startswith("HANG")
    assert output["verdicts"]["works-too"].startswith("MISSED not run: the device is suspect: process ")
    assert output["footer"]["complete"] is False


def test_a_run_whose_device_was_suspect_is_carried_on_once_it_is_not(found: dict[str, Any]) -> None:
    output = found["stuck"]
    assert output["footer at last"]["complete"] is True
    assert output["verdicts at last"]["works-too"].startswith("PASS")
    assert output["verdicts at last"]["hangs"].startswith("HANG")


def test_nothing_is_written_elsewhere_and_nobody_is_listened_to(found: dict[str, Any]) -> None:
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
