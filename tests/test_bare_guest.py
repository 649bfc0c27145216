"""A guest without resources: no huge pages, dma-bufs, swap space, persistent memory, C compiler, and little memory to
lock."""

from pathlib import Path

import pytest

from conformance.model.verdict import Verdict
from conformance.results.records import read_results
from launched import run_in_guest

pytestmark = [pytest.mark.guest, pytest.mark.nightly]
# For each case, its verdict and a part of its reason: how to provide the missing resource.
ANSWERS = {
    "reg_mr/several_packets/huge-pages": (Verdict.UNREACHABLE, "sysctl vm.nr_hugepages="),
    "reg_mr/on_demand_pages/swapped-out-rdma-write": (Verdict.UNREACHABLE, "mkswap"),
    "reg_mr/limits_and_pages/persistent-beside-binding": (Verdict.UNREACHABLE, "RDMA_CTS_PMEM"),
    "api/declarations/enum-ibv-node-type": (Verdict.UNREACHABLE, "install gcc or clang"),
    # What the device lacks is reported first: Soft-RoCE registers no dma-bufs, whatever their exporter.
    "reg_dmabuf_mr/parts/structure-of-1-at-100@libibverbs": (Verdict.UNSUPPORTED, ""),
    "reg_mr/rights/remote-write-refused-by-local-write": (Verdict.PASS, ""),
}


def test_cases_without_their_resource_are_unreachable_with_a_remedy(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run_in_guest(out, "--no-confirm", "--guest-env", "RDMA_CTS_BARE=8192", only=ANSWERS)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    results = {result["case"]: result for result in read_results(out).results}
    assert {case: result["verdict"] for case, result in results.items()} == {
        case: verdict for case, (verdict, _) in ANSWERS.items()
    }
    for case, (_, mending) in ANSWERS.items():
        assert mending in results[case]["reason"], case
