"""Tests of the users of a device and of the counts of its objects, with a stand-in for the kernel's RDMA netlink."""

import mmap
import os
from contextlib import closing
from pathlib import Path

import pytest

from conformance.device.other_process import killed
from conformance.execution.runner import run_case
from conformance.kernel.device_users import users_of
from conformance.kernel.netlink import CQ, MR, PD, QP, RdmaNetlink
from conformance.kernel.resources import OwnQueuePairs, ResourceCounter, leaked
from conformance.model.verdict import Verdict
from conformance.results.case_record import case_record
from conformance.results.rule_conclusions import conclude_rules
from conformance.tables.suite import load_suite
from kinds import Patch
from samples import laid
from stand_in_netlink import Owned, StandInDevice, StandInKernel, own
from trial.reference.bench import ReferenceBench
from trial.reference.device import Device
from trial.running import on_the_reference

KILLED = "reg_mr/killed_process/rdma-write-in-flight"
_CALLS = 3  # of a process before its work is under way
IPOIB, NVME = Owned(kernel="ib_ipoib", type="UD"), Owned(kernel="rdma_cm")
MANAGEMENT = [Owned(kernel="ib_core", type="SMI"), Owned(kernel="ib_core", type="GSI")]


def mlx5(*queue_pairs: Owned) -> StandInDevice:
    return StandInDevice("mlx5", {QP: [*MANAGEMENT, *queue_pairs]})


def test_domains_of_the_kernel_do_not_refuse_a_run(monkeypatch):
    StandInKernel({"mlx5_0": mlx5(IPOIB, NVME, NVME)}).installed(monkeypatch)
    users = users_of(RdmaNetlink("mlx5_0"))
    assert not users
    domain = "(1 protection domain)"
    assert users.in_words() == f"the kernel's ib_ipoib {domain}, the kernel's nvme_rdma {domain}"


def test_the_processes_of_a_device_are_named_but_not_this_process(monkeypatch):
    other = os.getppid()
    domains = [own(), Owned(other), Owned(other), Owned(kernel="ib_ipoib"), Owned()]
    StandInKernel({"mlx5_0": StandInDevice("mlx5", {PD: domains})}).installed(monkeypatch)
    users = users_of(RdmaNetlink("mlx5_0"))
    name = Path(f"/proc/{other}/comm").read_text().strip()
    hidden = "a process outside of this PID namespace"
    assert users.processes == {f"process {other} ({name})": 2, hidden: 1}


def test_programs_whose_queue_pairs_only_the_firmware_knows_are_users(monkeypatch):
    """UCX makes its queue pairs by DevX. The driver's own domain, for its changes of memory keys, is no user."""
    domains = [Owned(kernel="ib_core"), Owned(kernel="mlx5_ib"), Owned(os.getppid())]
    kernel = StandInKernel({"mlx5_0": StandInDevice("mlx5", {QP: MANAGEMENT, PD: domains})})
    users = users_of(RdmaNetlink("mlx5_0")) if kernel.installed(monkeypatch) else None
    assert users
    assert (list(users.processes.values()), users.kernel) == ([1], {})


def test_the_users_of_a_device_cost_no_command_of_the_firmware(monkeypatch):
    device = mlx5(*[Owned(os.getppid())] * 1000)
    StandInKernel({"mlx5_0": device}).installed(monkeypatch)
    assert users_of(RdmaNetlink("mlx5_0"))
    assert device.commands == 0


def test_queue_pairs_of_a_type_of_the_driver_count(monkeypatch):
    """EFA's SRD queue pairs are listed only on request."""
    efa = StandInDevice("efa", {QP: [Owned(os.getppid(), type="SRD")]})
    StandInKernel({"rdmap0s6": efa}).installed(monkeypatch)
    netlink = RdmaNetlink("rdmap0s6")
    assert users_of(netlink)
    assert netlink.totals()[QP] == 1


def test_the_list_of_a_kernel_without_this_netlink_is_empty(monkeypatch):
    StandInKernel({}).installed(monkeypatch)
    netlink = RdmaNetlink("mlx5_0")
    assert (users_of(netlink).in_words(), netlink.totals(), netlink.count()) == ("", {}, {})


# Counts


def counter_on(device: StandInDevice, monkeypatch: Patch, tmp_path: Path) -> ResourceCounter:
    """Returns a counter of objects alone: this process has no memory and no control group to count."""
    laid(tmp_path, {"self/status": ""})
    StandInKernel({"any0": device}).installed(monkeypatch)
    netlink = RdmaNetlink("any0")
    pairs = OwnQueuePairs(netlink, 1)
    for entry in device.objects.get(QP, ()):
        if entry.pid == os.getpid():
            pairs.created(entry.number)
    return ResourceCounter("any0", netlink, pairs, False, tmp_path, tmp_path)


def crowded(driver: str = "mlx5", refuses_queries: bool = False) -> StandInDevice:
    """Returns a device with 10,000 queue pairs of another process, and one object of each kind of this process."""
    foreign = [Owned(os.getppid(), number=number) for number in range(100, 10_100)]
    objects = {kind: [own(number=7), *foreign[:3]] for kind in (CQ, MR, PD)}
    return StandInDevice(driver, {QP: [own(number=7), *foreign], **objects}, refuses_queries)


def test_a_count_costs_the_device_nothing_if_no_total_has_changed(monkeypatch, tmp_path):
    device = crowded()
    counter = counter_on(device, monkeypatch, tmp_path)
    first = counter.count()
    assert first == {QP: 1, CQ: 1, MR: 1, PD: 1}
    spent = device.commands
    assert [counter.count() for _ in range(2_300)] == [first] * 2_300
    assert device.commands == spent <= 1


def test_only_queue_pairs_of_this_process_are_queried_for_a_leak(monkeypatch, tmp_path):
    device = crowded()
    counter = counter_on(device, monkeypatch, tmp_path)
    before = counter.count()
    device.objects[MR] += [own(), Owned(os.getppid())]
    device.objects[QP].append(Owned(os.getppid(), number=20_000))
    assert leaked(before, counter.count()) == "the kernel still counts 1 MR"
    assert device.commands == 2


@pytest.mark.parametrize("in_reset", [False, True])
def test_a_leaked_queue_pair_is_counted_also_if_the_driver_has_no_query(
    monkeypatch, tmp_path, in_reset
):
    device = crowded("mana", refuses_queries=True)
    counter = counter_on(device, monkeypatch, tmp_path)
    before = counter.count()
    device.objects[QP].append(own(number=8, in_reset=in_reset))
    counter._queue_pairs.created(8)
    assert leaked(before, counter.count()) == "the kernel still counts 1 QP"
    del device.objects[QP][-1]
    assert counter.count() == before


def test_a_number_that_another_process_has_taken_over_is_no_leak(monkeypatch, tmp_path):
    device = crowded()
    counter = counter_on(device, monkeypatch, tmp_path)
    counter.count()
    device.objects[QP] = [Owned(os.getppid(), number=7)]
    assert counter.count()[QP] == 0


def test_what_a_kernel_cannot_count_is_omitted_and_not_zero(monkeypatch, tmp_path):
    device = crowded()
    counter = counter_on(device, monkeypatch, tmp_path)
    monkeypatch.setattr(RdmaNetlink, "has_queue_pair", lambda *_: True)  # a kernel before 5.0
    assert counter.count() == {CQ: 1, MR: 1, PD: 1}


def test_a_process_is_killed_as_soon_as_its_work_is_under_way():
    with mmap.mmap(-1, 1) as seen:
        counts: list[int] = []

        def work() -> bool:
            seen[0] += 1
            return seen[0] == _CALLS

        def count(process: int) -> dict[str, int]:
            """The child has objects before it works, and none after it has worked and was killed."""
            assert seen[0] == (_CALLS if counts else 0)
            counts.append(process)
            return dict.fromkeys((CQ, MR, PD), int(len(counts) == 1))

        assert killed(lambda: work, count) == {CQ: 0, MR: 0, PD: 0}
        assert len(set(counts)) == 1
        assert not Path(f"/proc/{counts[0]}").exists()


def test_a_rule_that_rests_on_counts_says_what_cannot_be_counted(monkeypatch):
    """Otherwise a kernel that keeps regions of killed processes, and that cannot list regions, would pass."""
    device = StandInDevice("mana", unlisted=(MR,))
    kernel = StandInKernel({"mana_0": device}).installed(monkeypatch)
    netlink = RdmaNetlink("mana_0")

    def count(process: int) -> dict[str, int]:
        kernel.devices["mana_0"].objects = {kind: [Owned(process)] for kind in (CQ, MR, PD)}
        return netlink.count(process)

    monkeypatch.setattr(ReferenceBench, "killed", lambda *_: killed(lambda: lambda: True, count))
    (row,) = (case for case in load_suite().cases if case.id == KILLED)
    with closing(ReferenceBench(Device())) as bench:
        record = case_record(run_case(row, on_the_reference(bench)), load_suite().registry)
    assert record["verdict"] == Verdict.UNREACHABLE
    conclusion = conclude_rules([record], load_suite().registry.needs)["REG-31"]
    assert conclusion.verdict == Verdict.UNREACHABLE
    assert record["reason"].startswith("not countable on this driver and kernel: MR")
