"""A driver that panics, hangs, dies, leaks or taints its kernel: each fault costs one case, and the run is complete."""

from pathlib import Path

import pytest

import bad_driver
from conformance.model.record import ResultRecord
from conformance.results.records import Recorded, read_results
from launched import run_in_guest
from samples import footer_of

pytestmark = pytest.mark.guest
# A deadline that no valid case reaches, even on a slow machine. The hanging case takes this time.
DEADLINE_S = "60"
ROWS = ("works", "panics", "hangs", "leaks", "dies", "taints", "loses", "works-too")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Runs the bad driver's cases."""
    return run_in(tmp_path_factory.mktemp("bad"), "--no-confirm")


def run_in(place: Path, *options: str) -> Recorded:
    tables, overlay = bad_driver.tables(place / "tables", *ROWS), bad_driver.overlay(place / "overlay")
    chosen = ("--cases", tables, "--overlay", overlay, "-k", "bad/", "--deadline", DEADLINE_S, "--guests", "1")
    done = run_in_guest(place / "out", *chosen, *options)
    assert done.returncode == 1, done.stdout + done.stderr
    return read_results(place / "out")


def result(run: Recorded, row: str) -> ResultRecord:
    (line,) = [line for line in run.results if line["case"] == f"reg_mr/bad/{row}"]
    return line


def test_the_run_is_complete_and_says_how_many_guests_it_took(run: Recorded) -> None:
    assert footer_of(run)["complete"] is True
    assert footer_of(run)["boots"] == 4
    assert {line["case"].rpartition("/")[2]: line["verdict"] for line in run.results} == {
        "works": "PASS",
        "panics": "CRASH",
        "hangs": "HANG",
        "leaks": "FAIL",
        "dies": "CRASH",
        "taints": "FAIL",
        "loses": "HANG",
        "works-too": "PASS",
    }


@pytest.mark.nightly
def test_each_violation_occurs_alone_in_a_fresh_guest_too(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    assert footer_of(run)["confirmation"] == {"confirmed": 6, "not_confirmed": 0, "not_tried": 0}


def test_a_panic_is_reported_in_the_kernels_own_words(run: Recorded) -> None:
    line = result(run, "panics")
    assert "the kernel under test died" in line["reason"]
    assert any("Kernel panic - not syncing: sysrq triggered crash" in text for text in line["kernel"]["log"])


def test_a_case_that_stands_in_the_kernel_is_a_hang_that_says_where(run: Recorded) -> None:
    line = result(run, "hangs")
    assert "no answer within its deadline" in line["reason"]
    log = "\n".join(line["kernel"]["log"])
    assert "handle_userfault" in log
    assert "ib_umem_get" in log


def test_a_region_that_was_not_given_back_fails_the_case_whatever_the_call_returned(run: Recorded) -> None:
    line = result(run, "leaks")
    assert line["observed"]["returned"] == "MR"
    assert "1 MR" in line["reason"]
    assert f"{bad_driver.PAGES['leaks'] * 4} kB pinned" in line["reason"]
    assert f"{bad_driver.PAGES['leaks']} pages pinned" in line["reason"]
    resources = line["kernel"]["resources"]
    assert resources["after"]["MR"] == resources["before"]["MR"] + 1
    memory = line["kernel"]["memory"]
    assert memory["after"]["kB pinned"] > memory["before"]["kB pinned"]


def test_a_process_that_dies_is_a_crash_that_names_the_signal(run: Recorded) -> None:
    assert "the process under test died of SIGSEGV" in result(run, "dies")["reason"]


def test_a_kernel_that_becomes_tainted_fails_the_case(run: Recorded) -> None:
    line = result(run, "taints")
    assert line["observed"]["returned"] == "MR"
    assert "the kernel became tainted (0 to 512)" in line["reason"]


def test_a_completion_that_never_comes_is_judged_within_the_cases_deadline(run: Recorded) -> None:
    assert "gave no completion" in result(run, "loses")["reason"]


def test_the_preloaded_library_is_known_by_its_hash(run: Recorded) -> None:
    given = run.header["under_test"]["given"]["overlay"]["files"]
    assert sorted(given) == ["etc/ld.so.preload", "usr/local/lib/preload.so"]
