"""Tests with preloaded libraries in the real guest: a driver that panics, hangs, dies, leaks or taints its kernel;
unfinished drivers; and libraries that attack the program that loads them. Each misbehaviour affects only its own cases,
causes no wrong PASS, and does not prevent the run from completing."""

from pathlib import Path

import pytest

import bad_driver
from conformance.model.record import ResultRecord
from conformance.model.verdict import Verdict
from conformance.results.records import Recorded
from kinds import Folders, rows
from samples import footer_of

pytestmark = pytest.mark.guest
# A deadline that no valid case reaches, even on a slow machine. A hanging case takes as long as its deadline.
DEADLINE_S = "30"
EXPECTED = {
    "works": "PASS",
    "panics": "CRASH",
    "hangs": "HANG",
    "leaks": "FAIL",
    "dies": "CRASH",
    "taints": "FAIL",
    "loses": "HANG",
    "works-too": "PASS",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: Folders) -> Recorded:
    return run_in(tmp_path_factory.mktemp("bad"), "--no-confirm")


def run_in(place: Path, *options: str) -> Recorded:
    tables = bad_driver.tables(place / "tables", {row: bad_driver.PAGES[row] for row in EXPECTED})
    chosen = ("--cases", tables, "-k", "bad/", "--deadline", DEADLINE_S)
    return bad_driver.run_with(place, "preload.c", *chosen, *options)


def by_row(run: Recorded) -> dict[str, ResultRecord]:
    return {line["case"].rpartition("/")[2]: line for line in run.results}


@pytest.fixture
def results(run: Recorded) -> dict[str, ResultRecord]:
    return by_row(run)


def test_each_misbehaviour_affects_one_case_and_the_footer_counts_the_boots(run):
    assert footer_of(run)["boots"] == 4
    assert {row: line["verdict"] for row, line in by_row(run).items()} == EXPECTED


@pytest.mark.nightly
def test_each_violation_occurs_again_in_a_fresh_guest(tmp_path):
    run = run_in(tmp_path)
    assert footer_of(run)["confirmation"] == {"confirmed": 6, "not_confirmed": 0, "not_tried": 0}


PINNED = bad_driver.PAGES["leaks"]


@pytest.mark.parametrize(
    "row, words",
    [
        ("panics", ["the kernel under test died"]),
        ("hangs", ["no answer within its deadline"]),
        ("leaks", ["1 MR", f"{PINNED * 4} kB pinned", f"{PINNED} pages pinned"]),
        ("dies", ["the process under test died of SIGSEGV"]),
        ("taints", ["the kernel became tainted (0 to 512)"]),
        ("loses", ["produced no completion"]),
    ],
)
def test_each_misbehaviour_is_named_in_the_reason(row, words, results):
    assert [word for word in words if word not in results[row]["reason"]] == []


def test_the_log_has_the_lines_of_the_kernel_about_a_panic_and_a_hang(results):
    panic, hang = ("\n".join(results[row]["kernel"]["log"]) for row in ("panics", "hangs"))
    assert "Kernel panic - not syncing: sysrq triggered crash" in panic
    assert "handle_userfault" in hang
    assert "ib_umem_get" in hang


def test_a_leak_and_a_taint_fail_the_case_whatever_the_call_returned(results):
    assert (
        results["leaks"]["observed"]["returned"]
        == results["taints"]["observed"]["returned"]
        == "MR"
    )
    resources, memory = (
        results["leaks"]["kernel"]["resources"],
        results["leaks"]["kernel"]["memory"],
    )
    assert resources["after"]["MR"] == resources["before"]["MR"] + 1
    assert memory["after"]["kB pinned"] > memory["before"]["kB pinned"]


def test_the_preloaded_library_is_known_by_its_hash(run):
    files = run.header["under_test"]["given"]["overlay"]["files"]
    assert sorted(files) == ["etc/ld.so.preload", "usr/local/lib/preload.so"]


# Unfinished drivers. One library (young_driver.c) can make all mistakes; an environment variable selects one.

WRITE = "reg_mr/rights/remote-write-granted-by-local-write+remote-write"
READ = "reg_mr/rights/remote-read-granted-by-local-write+remote-read"
SEND = "reg_mr/rights/local-read-with-none"
NO_RIGHTS = "reg_mr/registration/access-zero"
LAST_BYTE = "reg_mr/registration/last-byte"
DEREGISTERED = "dereg_mr/deregistration/of-local-write"
REFUSED = "reg_mr/registration/failure-by-rights-gives-null-and-errno"
ALL_BUT_REFUSED = (WRITE, READ, SEND, NO_RIGHTS, LAST_BYTE, DEREGISTERED)
# For each mistake, the cases that fail or whose set-up is refused; the other cases pass.
MISTAKES: dict[str, tuple[str, ...]] = {
    "no-remote-read": (READ,),
    "no-remote-write": (WRITE, REFUSED),
    "keys-of-the-last": (WRITE, READ, SEND),
    "access-0-refused": (SEND, NO_RIGHTS),
    **dict.fromkeys(("byte-too-long", "page-too-long", "no-dereg"), ALL_BUT_REFUSED),
}


@pytest.mark.nightly
@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_mistake_affects_only_its_own_cases(mistake, tmp_path):
    how = ("--no-confirm", "--guest-env", f"RDMA_CTS_MISTAKE={mistake}")
    recorded = bad_driver.run_with(
        tmp_path,
        "young_driver.c",
        *how,
        only=(*ALL_BUT_REFUSED, REFUSED),
    )
    failing = {
        line["case"]: line["reason"] for line in recorded.results if line["verdict"] != Verdict.PASS
    }
    assert sorted(failing) == sorted(MISTAKES[mistake]), failing
    not_set_up = {
        line["case"]: line["reason"]
        for line in recorded.results
        if line["verdict"] == Verdict.BROKEN
    }
    assert not_set_up.keys() <= {DEREGISTERED}
    assert set(not_set_up.values()) <= {
        "the setup failed: registering the MR 'mr' was refused with EFAULT",
    }


# Attacks. One library (hostile.c) has all attacks, and each row selects one of them. All rows are in one run.

FIRST_PAGES = 201
# The attacks in the order of hostile.c, and the allowed verdicts of their rows.
ATTACKS = {attack: verdicts.split() for attack, verdicts in rows("hostile_libraries")}
ATTACKED = {
    "first": 4,
    **{attack: FIRST_PAGES + number for number, attack in enumerate(ATTACKS)},
    "last": 4,
}


@pytest.mark.nightly
def test_each_attack_affects_only_its_case_and_no_forged_result_is_recorded(tmp_path):
    assert len(ATTACKS) >= 10
    forged = f"RDMA_CTS_FORGED={','.join(f'reg_mr/bad/{row}' for row in ATTACKED)}"
    chosen = (
        "--cases",
        bad_driver.tables(tmp_path / "tables", ATTACKED),
        "-k",
        "bad/",
        "--deadline",
        DEADLINE_S,
    )
    recorded = bad_driver.run_with(
        tmp_path,
        "hostile.c",
        *chosen,
        "--guest-env",
        forged,
        "--no-confirm",
    )
    expected, verdicts_by_row = {"first": ["PASS"], **ATTACKS, "last": ["PASS"]}, by_row(recorded)
    assert verdicts_by_row.keys() == expected.keys()
    assert {
        row: line["verdict"]
        for row, line in verdicts_by_row.items()
        if line["verdict"] not in expected[row]
    } == {}
    assert all(line["reason"] != "forged" for line in recorded.results)
    assert "the worker reports PASS" in verdicts_by_row["alter"]["reason"]
    assert "its observation gives FAIL" in verdicts_by_row["alter"]["reason"]
