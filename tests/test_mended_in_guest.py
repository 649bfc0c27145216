"""The mended stack in the guest: cases that fail on Debian's driver pass, and rows about features that Debian's driver
lacks are run."""

from pathlib import Path

import pytest

from conformance.model.verdict import Verdict
from conformance.results.records import read_results
from fixtures.guest.changes import read_changes
from launched import run_in_guest

pytestmark = [pytest.mark.guest, pytest.mark.nightly]
VERDICTS = {
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
    out = tmp_path / "out"
    done = run_in_guest(out, "--stack", "forky-mended", "--no-confirm", only=VERDICTS)
    assert done.returncode == 1, done.stdout + done.stderr
    recorded = read_results(out)
    assert {result["case"]: result["verdict"] for result in recorded.results} == VERDICTS
    changes = {change.name: change.sha256 for change in read_changes()}
    assert recorded.header["stack"] == "forky-mended"
    assert recorded.header["under_test"]["given"]["changes"] == changes
    assert f"the stack under test was changed: {len(changes)} changes (" in done.stdout
    assert all("--stack forky-mended" in result["repro"] for result in recorded.results)
