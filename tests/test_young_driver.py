"""Unfinished drivers in the real guest: the cases are run and judged for any answers of the drivers to the harness
itself.

One preloaded library (young_driver.c) can make all of these mistakes; an environment variable selects one.
"""

from pathlib import Path

import pytest

import bad_driver
from conformance.model.verdict import Verdict
from conformance.results.records import read_results
from launched import run_in_guest

pytestmark = [pytest.mark.guest, pytest.mark.nightly]
WRITE = "reg_mr/rights/remote-write-granted-by-local-write+remote-write"
READ = "reg_mr/rights/remote-read-granted-by-local-write+remote-read"
SEND = "reg_mr/rights/local-read-with-none"
NO_RIGHTS = "reg_mr/registration/access-zero"
LAST_BYTE = "reg_mr/registration/last-byte"
DEREGISTERED = "dereg_mr/deregistration/of-local-write"
REFUSED = "reg_mr/registration/failure-by-rights-gives-null-and-errno"
ROWS = (WRITE, READ, SEND, NO_RIGHTS, LAST_BYTE, DEREGISTERED, REFUSED)
# The rows that fail because of a mistake, or whose set-up is refused, by mistake; the other rows pass.
MISTAKES: dict[str, tuple[str, ...]] = {
    "no-remote-read": (READ,),
    "no-remote-write": (WRITE, REFUSED),
    "keys-of-the-last": (WRITE, READ, SEND),
    "access-0-refused": (SEND, NO_RIGHTS),
    "byte-too-long": (WRITE, READ, SEND, NO_RIGHTS, LAST_BYTE, DEREGISTERED),
    "page-too-long": (WRITE, READ, SEND, NO_RIGHTS, LAST_BYTE, DEREGISTERED),
    "no-dereg": (WRITE, READ, SEND, NO_RIGHTS, LAST_BYTE, DEREGISTERED),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_mistake_affects_only_its_own_rules(mistake: str, tmp_path: Path) -> None:
    overlay = bad_driver.overlay(tmp_path / "overlay", "young_driver.c")
    how = ("--guests", "1", "--no-confirm", "--overlay", overlay, "--guest-env", f"RDMA_CTS_MISTAKE={mistake}")
    done = run_in_guest(tmp_path / "out", *how, only=ROWS)
    assert done.returncode == 1, done.stdout + done.stderr
    found = read_results(tmp_path / "out")
    assert found.footer is not None
    assert found.footer["complete"] is True
    failing = {line["case"]: line["reason"] for line in found.results if line["verdict"] != Verdict.PASS}
    assert sorted(failing) == sorted(MISTAKES[mistake]), failing
    not_set_up = {line["case"]: line["reason"] for line in found.results if line["verdict"] == Verdict.BROKEN}
    assert not_set_up.keys() <= {DEREGISTERED}
    assert set(not_set_up.values()) <= {"the setup failed: registering the MR 'mr' was refused with EFAULT"}
