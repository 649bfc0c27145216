"""Tests of cases in guests that few tests use: with another driver, mended, and without optional resources."""

import json
from pathlib import Path

import pytest

from conformance.model.verdict import Verdict
from conformance.results.records import Recorded, read_written
from fixtures.guest.changes import read_changes
from kinds import rows
from launched import launched, run_in_guest
from trial.kernel.outcome import BY_ITS_RULE
from trial.kernel.report import read_history

pytestmark = [pytest.mark.guest, pytest.mark.nightly]


def ran(kind: str, out: Path, *options: str) -> tuple[Recorded, str]:
    """Runs the cases of rows/other_guests.txt for this kind of guest; returns the run and its output."""
    expected = {
        row.split()[1]: said.split(" ", 1)
        for row, said in rows("other_guests")
        if row.startswith(kind)
    }
    verdicts = {case: verdict for case, (verdict, *_) in expected.items()}
    done = run_in_guest(out, "--no-confirm", *options, only=expected)
    assert done.returncode == int(Verdict.FAIL in verdicts.values()), done.stdout + done.stderr
    recorded = read_written(out)
    assert {result["case"]: result["verdict"] for result in recorded.results} == verdicts, (
        done.stdout
    )
    for result in recorded.results:
        _, *reason = expected[result["case"]]
        assert "".join(reason) in result["reason"], result["case"]
    return recorded, done.stdout


def test_cases_on_iwarp_have_the_expected_verdicts(tmp_path):
    """The module of siw is compiled for the kernel of the guest."""
    recorded, _ = ran("siw", tmp_path / "out", "--driver", "siw")
    device = recorded.header["device"]
    assert (device["name"], device["driver"], device["transport"]) == ("siw0", "siw", "iWARP")
    assert list(recorded.header["under_test"]["given"]["driver"]["files"]) == ["siw.ko"]
    assert all(
        result["repro"].startswith("./rdma-cts run --guest --driver siw ")
        for result in recorded.results
    )
    plan = json.loads((tmp_path / "out/plan.json").read_text(encoding="utf-8"))
    assert plan["argv"][:3] == ["--guest", "--driver", "siw"]


def test_a_mutant_of_siw_is_killed_by_a_case_that_passes_without_it(tmp_path):
    case, name = "reg_mr/extent/rdma-write-of-200-at-0", "last-byte-refused"
    words = (
        "--driver",
        "siw",
        "--mutant",
        name,
        "--only",
        case,
        "--yes",
        "--out",
        tmp_path / "out",
    )
    done = launched("trial", "kernel", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    entry = read_history(tmp_path / "out")[name]
    assert (entry["outcome"], entry["by"]) == (BY_ITS_RULE, [case])


def test_mended_cases_pass_and_the_report_names_the_changes(tmp_path):
    recorded, said = ran("mended", tmp_path / "out", "--stack", "forky-mended")
    changes = {change.name: change.sha256 for change in read_changes()}
    assert recorded.header["stack"] == "forky-mended"
    assert recorded.header["under_test"]["given"]["changes"] == changes
    assert f"the stack under test was changed: {len(changes)} changes (" in said
    assert all("--stack forky-mended" in result["repro"] for result in recorded.results)


def test_cases_without_their_resource_are_unreachable_with_a_remedy(tmp_path):
    """The guest has no huge pages, dma-bufs, swap space, persistent memory or C compiler, and little memory to lock."""
    ran("bare", tmp_path / "out", "--guest-env", "RDMA_CTS_BARE=8192")
