"""Cases in guests of other kinds than most tests use: with another driver, mended, and without optional resources."""

import json
from pathlib import Path

import pytest

from conformance.model.verdict import Verdict
from conformance.results.records import Recorded, read_results
from fixtures.guest.changes import read_changes
from launched import launched, run_in_guest
from trial.kernel.report import read_history
from trial.kernel.trying import BY_ITS_RULE

pytestmark = [pytest.mark.guest, pytest.mark.nightly]


def ran(out: Path, expected: dict[str, Verdict], *options: str) -> tuple[Recorded, str]:
    """Runs the cases, which must have these verdicts; returns the run and its output."""
    done = run_in_guest(out, "--no-confirm", *options, only=expected)
    assert done.returncode == int(Verdict.FAIL in expected.values()), done.stdout + done.stderr
    recorded = read_results(out)
    assert {result["case"]: result["verdict"] for result in recorded.results} == expected, done.stdout
    return recorded, done.stdout


# siw, whose module is compiled for the kernel of the guest.
ON_IWARP = {
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
    recorded, _ = ran(tmp_path / "out", ON_IWARP, "--driver", "siw")
    device = recorded.header["device"]
    assert (device["name"], device["driver"], device["transport"]) == ("siw0", "siw", "iWARP")
    assert list(recorded.header["under_test"]["given"]["driver"]["files"]) == ["siw.ko"]
    assert all(result["repro"].startswith("./rdma-cts run --guest --driver siw ") for result in recorded.results)
    plan = json.loads((tmp_path / "out/plan.json").read_text(encoding="utf-8"))
    assert plan["argv"][:3] == ["--guest", "--driver", "siw"]


def test_a_mutant_of_siw_is_killed_by_a_case_that_passes_without_it(tmp_path: Path) -> None:
    case, name = "reg_mr/extent/rdma-write-of-200-at-0", "last-byte-refused"
    words = ("--driver", "siw", "--mutant", name, "--only", case, "--yes", "--out", tmp_path / "out")
    done = launched("trial", "kernel", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    found = read_history(tmp_path / "out")[name]
    assert (found["outcome"], found["by"]) == (BY_ITS_RULE, [case])


MENDED = {
    # These cases fail on rxe as shipped: a window without bounds, on-demand data in wrong places, a process that dies.
    "bind_mw/type_1/part-from-buf": Verdict.PASS,
    "reg_mr/on_demand/rdma-write-at-buf-+-100": Verdict.PASS,
    "bind_mw/rebinding/unbind-without-a-region": Verdict.PASS,
    # rxe as shipped does not offer these features: dma-bufs at both entries, re-registration by the library, implicit
    # regions.
    "reg_dmabuf_mr/parts/whole-of-a-buffer-of-8-pages@libibverbs": Verdict.PASS,
    "reg_dmabuf_mr/parts/whole-of-a-buffer-of-8-pages@uverbs": Verdict.PASS,
    "rereg_mr/changes/from-nothing-to-every-remote-right": Verdict.PASS,
    "reg_mr/rights/implicit-region": Verdict.PASS,
    # The kernel's core answers this call before it calls a driver.
    "reg_mr_iova/translation/other-page-offset-registers@uverbs": Verdict.FAIL,
}


def test_mended_cases_pass_and_the_report_names_the_changes(tmp_path: Path) -> None:
    recorded, said = ran(tmp_path / "out", MENDED, "--stack", "forky-mended")
    changes = {change.name: change.sha256 for change in read_changes()}
    assert recorded.header["stack"] == "forky-mended"
    assert recorded.header["under_test"]["given"]["changes"] == changes
    assert f"the stack under test was changed: {len(changes)} changes (" in said
    assert all("--stack forky-mended" in result["repro"] for result in recorded.results)


# For each case, its verdict and a part of its reason: how to provide the missing resource.
LACKING = {
    "reg_mr/several_packets/huge-pages": (Verdict.UNREACHABLE, "sysctl vm.nr_hugepages="),
    "reg_mr/on_demand_pages/swapped-out-rdma-write": (Verdict.UNREACHABLE, "mkswap"),
    "reg_mr/limits_and_pages/persistent-beside-binding": (Verdict.UNREACHABLE, "RDMA_CTS_PMEM"),
    "api/declarations/enum-ibv-node-type": (Verdict.UNREACHABLE, "install gcc or clang"),
    # What the device lacks is reported first: Soft-RoCE registers no dma-bufs, whatever their exporter.
    "reg_dmabuf_mr/parts/structure-of-1-at-100@libibverbs": (Verdict.UNSUPPORTED, ""),
    "reg_mr/rights/remote-write-refused-by-local-write": (Verdict.PASS, ""),
}


def test_cases_without_their_resource_are_unreachable_with_a_remedy(tmp_path: Path) -> None:
    """The guest has no huge pages, dma-bufs, swap space, persistent memory or C compiler, and little memory to lock."""
    expected = {case: verdict for case, (verdict, _) in LACKING.items()}
    recorded, _ = ran(tmp_path / "out", expected, "--guest-env", "RDMA_CTS_BARE=8192")
    for result in recorded.results:
        assert LACKING[result["case"]][1] in result["reason"], result["case"]
