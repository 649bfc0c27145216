"""The instrumented stack: its kernel is built only once, some options cannot be combined with it, and its kernel can
fail the allocations of a call."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from conformance.device.limits import can_fail
from conformance.model.deadline import CASE_DEADLINE_S
from conformance.results.records import read_results
from conformance.run_options import RunOptions
from conformance.tables.suite import load_suite
from fixtures.guest.image import Image
from fixtures.guest.recipe import recipe_for
from fixtures.guest.under_test import SLOWER, Builds, instrumented
from kinds import Patch
from launched import built_by, root_of
from recorded_reference import record
from reference.device import Device
from reference.stack import STACKS as SIMULATED
from samples import laid
from targets.target import with_target

STACK = "forky-instrumented"
RELEASE = "7.2.12-instrumented"


def test_the_instrumented_kernel_is_built_once_and_booted_with_its_modules(tmp_path: Path, monkeypatch: Patch) -> None:
    commands: list[Sequence[str]] = []

    def make(command: Sequence[str], log: Path) -> int:
        commands.append(command)
        builtin = {f"lib/modules/{RELEASE}/modules.builtin": "kernel/drivers/net/veth.ko\n"}
        laid(root_of(command) / "made", {**builtin, "bzImage": "kernel"})
        return 0

    built_by(make, monkeypatch)
    image = Image(tmp_path / "vmlinuz", tmp_path / "initrd", tmp_path / "root.erofs", "0123", "7.2.12-amd64")
    own = Builds(overlay=tmp_path)
    made = instrumented(own, recipe_for(STACK), image, tmp_path, print)
    assert made.kernel
    made.kernel.with_name("accelerator").write_text("what a run has found out about this kernel")
    assert instrumented(own, recipe_for(STACK), image, tmp_path, print) == made
    assert len(commands) == 1
    assert "CONFIG_KASAN=y" in " ".join(commands[0])
    assert (made.overlay, made.rdma_core) == (tmp_path, None)
    assert made.kernel.read_bytes() == b"kernel"
    assert made.modules
    assert (made.modules / "lib/modules" / RELEASE / "modules.builtin").exists()


def test_cases_on_the_instrumented_stack_have_more_time_by_default() -> None:
    options = RunOptions(guest=True, stack=STACK)
    assert with_target(options).case_deadline_s == CASE_DEADLINE_S * SLOWER
    assert with_target(RunOptions(guest=True, stack=STACK, case_deadline_s=7)).case_deadline_s == 7
    assert with_target(RunOptions(guest=True)).case_deadline_s == CASE_DEADLINE_S


def test_a_kernel_fails_allocations_if_its_fault_injection_also_takes_those_that_may_wait(tmp_path: Path) -> None:
    assert not can_fail(tmp_path)
    laid(tmp_path, dict.fromkeys(("failslab/ignore-gfp-wait", "fail_page_alloc/ignore-gfp-wait"), "N\n"))
    assert can_fail(tmp_path)
    laid(tmp_path, {"failslab/ignore-gfp-wait": "Y\n"})
    assert not can_fail(tmp_path)


class PageFaults(Device):
    """A device. During its first call, a page fault of the process uses up the injected failure."""

    def setup(self) -> None:
        super().setup()
        self.faults = 1

    def allocate(self) -> None:
        if self.allocations_left and self.faults:
            self.faults, self.allocations_left = 0, 0
        super().allocate()


@pytest.mark.parametrize("device", [Device, PageFaults])
@pytest.mark.parametrize(
    "name",
    [
        "advise_mr/codes/out-of-memory@uverbs",
        "alloc_mw/allocation/lack-of-memory-for-type-1",
        "reg_mr/registration/failure-for-lack-of-memory-local-write",
    ],
)
def test_a_call_is_made_until_each_allocation_has_failed(name: str, device: type[Device], tmp_path: Path) -> None:
    (stack,) = [each for each in SIMULATED if each.reach("failing_allocations")]
    suite = load_suite()
    record(tmp_path, suite, [case for case in suite.cases if case.id == name], device(stack))
    (seen,) = read_results(tmp_path).results
    assert seen["verdict"] == "PASS"
    assert "ENOMEM" in seen["reason"]
