"""Tests of the trial with rdma-core's own tests and with rdma-unit-test, which run on the mutants too."""

import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, cast

import pytest

from conformance.errors import UserError
from conformance.model.verdict import Verdict
from launched import ended
from test_kernel_trial import Driver, finding, mutant
from trial.kernel import report
from trial.kernel.guest import Lost
from trial.kernel.modules import Modules
from trial.kernel.outcome import BY_ITS_RULE, ELSEWHERE, SURVIVED
from trial.kernel.peers import Peers, rdma_core, rdma_unit_test


class WithPeers(Driver):
    """A driver on which rdma-core's tests are run. `failing` has the mutants with which each test fails."""

    failing: ClassVar[dict[str, tuple[str, ...]]] = {
        "bad": ("",),
        "good": ("seen",),
        "weak": ("flaky", "late"),
        "stuck": ("hangs",),
        "last": ("late", "seen"),
    }

    def outcomes(self, program: bytes, arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
        modules = {"test_mr": ("good", "weak", "stuck", "last"), "test_pd": ("bad",)}
        for name in modules.get(
            arguments[1],
            () if arguments[1].startswith("test_") else arguments[1:],
        ):
            by = [
                outcome for outcome in self.failing[name] if outcome in (*self.module.split(), "")
            ]
            if "hangs" in by:
                raise Lost(Verdict.HANG, f"in {name}", name)
            # without other mutants, the test fails only the first time
            if self.module == "flaky" and by:
                if self.unfit:
                    by = []
                self.unfit.add("shown")
            yield name, "failed" if by else "passed"


def test_rdma_cores_tests_count_if_they_pass_without_the_mutant_and_fail_twice_with_it(tmp_path):
    (tmp_path / "test_mr.py").write_text("")
    driver = WithPeers()
    peers = Peers(*rdma_core(tmp_path), driver.trial(), cast(Modules, driver))
    several = [mutant(name) for name in ("seen", "not-seen", "flaky", "hangs", "late")]
    assert dict(peers.seen(several)) == {
        "seen": "good",
        "not-seen": "",
        "flaky": "",
        "hangs": "stuck",
        "late": "weak",
    }
    with pytest.raises(UserError, match=r"there is no test_mr\.py"):
        rdma_core(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=r"there is no such program"):
        rdma_unit_test(tmp_path / "elsewhere")


class WithoutUnmutatedModule(WithPeers):
    def load(self, module: str) -> str:
        if module:
            return super().load(module)
        return "insmod: refused"


def test_rdma_cores_tests_do_not_count_if_the_module_without_mutants_is_not_loaded(tmp_path):
    (tmp_path / "test_mr.py").write_text("")
    driver = WithoutUnmutatedModule()
    peers = Peers(*rdma_core(tmp_path), driver.trial(), cast(Modules, driver))
    assert dict(peers.seen([mutant("seen")])) == {"seen": ""}


def test_rdma_unit_test_continues_after_a_test_that_kills_its_program(tmp_path):
    """The program is a script. Its first run skips a test and dies in the next test; its second run has the rest."""
    (tmp_path / "program").write_bytes(
        Path(__file__).with_name("stand_in_unit_test.sh").read_bytes(),
    )
    program, parts = rdma_unit_test(tmp_path / "program")
    (tmp_path / "tests.pyz").write_bytes(program)
    lines = map(
        json.loads,
        ended(sys.executable, tmp_path / "tests.pyz", "rxe0", parts[0]).stdout.splitlines(),
    )
    assert [(line["test"], line["outcome"]) for line in lines if line["outcome"]] == [
        ("A.skips", "skipped"),
        ("A.dies", "ended with status -15"),
        ("A.fails", "failed"),
        ("A.good", "passed"),
    ]


def test_the_table_compares_detections_by_kind(tmp_path):
    seen = (
        (BY_ITS_RULE, "a.test"),
        (ELSEWHERE, ""),
        (SURVIVED, "a.test"),
        (SURVIVED, ""),
        (BY_ITS_RULE, None),
    )
    findings = [
        dataclasses.replace(finding(str(n), outcome), peer=peer)
        for n, (outcome, peer) in enumerate(seen)
    ]
    report.write(tmp_path, findings, {})
    assert (
        "| range | 4 | 1 | 1 | 1 | 1 |\n| all | 4 | 1 | 1 | 1 | 1 |"
        in (tmp_path / "kernel.md").read_text()
    )
