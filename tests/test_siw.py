"""A second kernel driver in the guest, with another transport: siw, whose module is compiled for the guest's kernel."""

import json
from pathlib import Path

import pytest

from conformance.model.verdict import Verdict
from conformance.results.records import read_results
from launched import launched, run_in_guest
from trial.kernel.report import read_history
from trial.kernel.trying import BY_ITS_RULE

pytestmark = [pytest.mark.guest, pytest.mark.nightly]
VERDICTS = {
    # On queue pairs that rdma_cm has connected, bytes arrive, and after a refusal the next operation uses a new pair.
    "reg_mr/rights/remote-write-refused-by-local-write": Verdict.PASS,
    "reg_mr/sizes/message-of-a-megabyte": Verdict.PASS,
    # siw has no atomics; iWARP has no immediate data, and a READ on iWARP has only one SGE.
    "reg_mr/atomics_and_order/unequal-values-by-kind": Verdict.UNSUPPORTED,
    "reg_mr/atomics_and_order/immediates-in-order-of-8": Verdict.UNSUPPORTED,
    "reg_mr/element_lists/two-regions-read": Verdict.UNSUPPORTED,
    "reg_mr/element_lists/two-regions-write": Verdict.PASS,
    # siw answers an RDMA READ of a region that does not allow it: siw_qp_sq_proc_tx checks only the range.
    "reg_mr/rights/remote-read-refused-by-local-write": Verdict.FAIL,
}


def test_the_same_cases_run_on_iwarp(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run_in_guest(out, "--driver", "siw", "--no-confirm", only=VERDICTS)
    assert done.returncode == 1, done.stdout + done.stderr
    recorded = read_results(out)
    device = recorded.header["device"]
    assert (device["name"], device["driver"], device["transport"]) == ("siw0", "siw", "iWARP")
    assert list(recorded.header["under_test"]["given"]["driver"]["files"]) == ["siw.ko"]
    assert {result["case"]: result["verdict"] for result in recorded.results} == VERDICTS, done.stdout
    assert all(result["repro"].startswith("./rdma-cts run --guest --driver siw ") for result in recorded.results)
    plan = json.loads((out / "plan.json").read_text(encoding="utf-8"))
    assert plan["argv"][:3] == ["--guest", "--driver", "siw"]


def test_a_mutant_of_siw_is_killed_by_a_case_that_passes_without_it(tmp_path: Path) -> None:
    case, name = "reg_mr/extent/rdma-write-of-200-at-0", "last-byte-refused"
    words = ("--driver", "siw", "--mutant", name, "--only", case, "--yes", "--out", tmp_path / "out")
    done = launched("trial", "kernel", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    found = read_history(tmp_path / "out")[name]
    assert (found["outcome"], found["by"]) == (BY_ITS_RULE, [case])
