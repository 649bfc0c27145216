"""Tests of the kernel's counts: the resources of a process, missing counts and leaks, and memory that modules never
free."""

import os
import socket
import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

import samples
from conformance.bench.interface import Entry
from conformance.defects import Severity, defects_of
from conformance.device.other_process import killed
from conformance.errors import HostLacks, SetupRefused
from conformance.execution.runner import run_case
from conformance.judging import judge
from conformance.kernel import module_memory, resources
from conformance.kernel.log import KernelFile, number_after
from conformance.kernel.module_memory import REPETITIONS, ModuleMemory
from conformance.kernel.netlink import RdmaNetlink
from conformance.model.fault import FaultKind
from conformance.model.observation import Observation
from conformance.model.verdict import Verdict
from conformance.results.case_record import case_record
from kinds import Patch
from patience import await_true, is_running
from samples import ROW, SPACE, laid
from trial.reference.bench import ReferenceBench
from trial.running import on_the_reference

STATUS = "Name:\tpython3\nVmLck:\t       4 kB\nVmPin:\t      16 kB\n"


class Netlink:
    """Reports one more object of each kind for the whole kernel than for this process."""

    def __init__(self, **counts: int) -> None:
        self.counts = counts
        self.count = lambda: dict(self.counts)
        self.totals = lambda: {kind: number + 1 for kind, number in self.counts.items()}


@pytest.fixture
def system(tmp_path: Path) -> Path:
    files = {
        "proc/self/status": STATUS,
        "proc/self/cgroup": "12:rdma:/\n0::/cases\n",
        "proc/vmstat": "nr_foll_pin_acquired 12\nnr_foll_pin_released 5\n",
        "proc/sys/vm/stat_refresh": "",
        "cgroup/cases/rdma.current": "rxe1 hca_handle=1 hca_object=9\nrxe0 hca_handle=1 hca_object=7\n",
    }
    return laid(tmp_path, files)


def count(system: Path, netlink: Any, alone: bool = True) -> dict[str, int]:
    return counter(system, netlink, alone).count()


def counter(system: Path, netlink: Any, alone: bool = True) -> resources.ResourceCounter:
    pairs = SimpleNamespace(count=lambda: netlink.counts.get("QP"))
    return resources.ResourceCounter(
        "rxe0",
        netlink,
        cast(Any, pairs),
        alone,
        system / "proc",
        system / "cgroup",
    )


def test_objects_that_only_the_control_group_counts_are_others(system):
    assert count(system, Netlink(QP=2, MR=1, PD=1)) == {
        "QP": 2,
        "MR": 1,
        "PD": 1,
        resources.OTHERS: 3,
        resources.PINNED: 16,
        resources.LOCKED: 4,
        resources.PAGES: 7,
    }


def test_only_new_objects_of_the_process_are_leaked(system):
    netlink = Netlink(QP=2, MR=1)
    counting = counter(system, netlink)
    first = counting.count()
    netlink.counts = {"QP": 2, "MR": 3}
    assert resources.leaked(first, counting.count()) == "the kernel still counts 2 MR"


def summary(*entries: tuple[bytes, int]) -> bytes:
    """Returns the kernel's message with the numbers of objects of a device (fill_res_info of nldev.c)."""
    packed = b"".join(
        struct.pack("=HH4sHHQ", 4 + len(name) + 1, 17, name, 12, 18, number)
        for name, number in entries
    )
    return struct.pack("=IHHII", 16 + len(packed), 5 << 10 | 9, 0, 1, 0) + packed


@pytest.mark.parametrize(
    "names",
    [(b"pd", b"cq", b"qp", b"mr"), (b"pd", b"cq", b"qp")],
    ids=["all", "an older kernel"],
)
def test_one_message_of_the_kernel_has_the_numbers_of_all_kinds(names):
    netlink = RdmaNetlink.__new__(RdmaNetlink)
    netlink._index = 0
    # there is only one message
    only = iter([summary(*((name, 300 + at) for at, name in enumerate(names)))])
    netlink._socket = cast(
        socket.socket,
        SimpleNamespace(send=lambda _: None, recv=lambda _: next(only)),
    )
    numbers = {"PD": 300, "CQ": 301, "QP": 302, "MR": 303}
    assert netlink.totals() == (numbers if b"mr" in names else {})


@pytest.mark.parametrize("lack", ["proc/self/cgroup", "cgroup/cases/rdma.current", "proc/vmstat"])
def test_counts_that_a_system_does_not_provide_are_omitted(system, lack):
    assert resources.PAGES not in count(system, Netlink(), alone=False), (
        "pages that another process pinned are counted"
    )
    (system / lack).unlink()
    assert {resources.OTHERS, resources.PAGES} - set(count(system, Netlink(MR=1))) == {
        resources.PAGES if lack == "proc/vmstat" else resources.OTHERS,
    }


def test_counts_only_of_the_control_group_are_remarks_and_not_leaks():
    assert resources.leaked({"MR": 1, resources.OTHERS: 2}, {"MR": 1, resources.OTHERS: 5}) == ""
    assert (
        resources.kept({resources.OTHERS: 2}, {resources.OTHERS: 5})
        == "the RDMA control group counts 3 more objects than before (MW or other)"
    )
    assert (
        resources.kept({resources.OTHERS: 2}, {resources.OTHERS: 2}) == resources.kept({}, {}) == ""
    )
    observed: Observation = {
        "returned": "NULL",
        "errno": "EINVAL",
        "rc": None,
        "remarks": ["noticed"],
    }
    judgement = judge(
        samples.case("{rules: [REG-01], when: {access: []}, then: refused}"),
        [],
        observed,
    )
    assert (judgement.verdict, judgement.notes) == ("PASS", ("noticed",))


def test_only_a_larger_count_than_before_is_a_leak():
    assert (
        resources.leaked({"MR": 1, resources.PINNED: 4}, {"MR": 3, resources.PINNED: 16})
        == "the kernel still counts 2 MR, 12 kB pinned"
    )
    assert resources.leaked({"MR": 1, resources.PINNED: 4}, {"MR": 0}) == ""


def test_resources_freed_a_little_later_are_not_leaks(monkeypatch):
    counts = iter([{"MR": 1}, {"MR": 1}, {"MR": 0}])
    assert resources.count_when_settled({"MR": 0}, lambda: next(counts)) == {"MR": 0}
    monkeypatch.setattr(resources, "SETTLING_S", 0.02)
    assert resources.count_when_settled({"MR": 0}, lambda: {"MR": 1}) == {"MR": 1}


def test_the_evidence_separates_objects_from_memory():
    assert resources.resource_evidence(
        {"MR": 0, resources.PINNED: 0},
        {"MR": 1, resources.PINNED: 4},
    ) == {
        "resources": {"before": {"MR": 0}, "after": {"MR": 1}},
        "memory": {"before": {resources.PINNED: 0}, "after": {resources.PINNED: 4}},
    }


TEXT = "VmPinned: 3 kB\nVmPin:\t      16 kB\nnr_released 5\nnr_acquired 12"


def test_each_reading_returns_the_current_text(tmp_path):
    path = tmp_path / "status"
    file = KernelFile(path)
    with pytest.raises(FileNotFoundError):
        file.read()
    path.write_text("a" * 200_000)
    assert file.read() == "a" * 200_000
    path.write_text("short")
    assert file.read() == file.read() == "short"


def test_a_forked_process_reads_its_own_file():
    file = KernelFile(Path("/proc/self/stat"))
    assert file.read().startswith(f"{os.getpid()} ")
    if not (child := os.fork()):
        os._exit(0 if file.read().startswith(f"{os.getpid()} ") else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert file.read().startswith(f"{os.getpid()} ")


def test_a_file_is_closed_when_it_is_no_longer_used():
    def is_open() -> bool:
        return any(
            os.path.realpath(f"/proc/self/fd/{name}") == "/proc/version"
            for name in os.listdir("/proc/self/fd")
        )

    file = KernelFile(Path("/proc/version"))
    file.read()
    assert is_open()
    del file
    assert not is_open()


@pytest.mark.parametrize(
    "text, name, number",
    [
        (TEXT, "VmPin:", 16),
        (TEXT, "VmPinned:", 3),
        (TEXT, "nr_acquired ", 12),
        (TEXT, "nr_released ", 5),
        (TEXT, "VmLck:", None),
        (TEXT, "acquired ", None),
        ("VmPin:", "VmPin:", None),
        ("VmPin: none", "VmPin:", None),
    ],
)
def test_a_number_is_read_from_the_line_that_begins_with_its_name(text, name, number):
    assert number_after(text, name) == number


class Counted:
    """Returns these counts of regions: of the living process, and then of its leftovers. Repeats the last count."""

    def __init__(self, *counts: int) -> None:
        self.counts = list(counts)
        self.alive: list[bool] = []

    def __call__(self, process: int) -> Mapping[str, int]:
        self.alive.append(Path(f"/proc/{process}").exists())
        regions = self.counts.pop(0) if len(self.counts) > 1 else self.counts[0]
        return {"CQ": 0, "MR": regions, "PD": 0}


def idle() -> bool:
    """What the process does before it is killed."""
    return True


def test_a_process_is_counted_alive_and_after_its_kill_until_nothing_is_left():
    count = Counted(3, 2, 1, 0)
    assert killed(lambda: idle, count) == {"CQ": 0, "MR": 0, "PD": 0}
    assert count.alive == [True, False, False, False]
    assert killed(lambda: idle, Counted(3, 1)) == {"CQ": 0, "MR": 1, "PD": 0}, (
        "the remaining region is not reported"
    )


def test_the_process_is_killed_with_its_parent():
    """A child that survives would keep the pipes of a trial open."""
    number, report = os.pipe()

    def ended(process: int) -> Mapping[str, int]:
        os.write(report, str(process).encode())
        os._exit(0)

    if not (parent := os.fork()):
        killed(lambda: idle, ended)
    os.waitpid(parent, 0)
    bytes_left = int(os.read(number, 20))
    await_true(lambda: not is_running(bytes_left))
    os.close(number)
    os.close(report)


def test_the_reason_for_missing_counts_is_reported():
    refused = SetupRefused("registering the MR 'mr'", "ENOMEM")
    with pytest.raises(SetupRefused, match="registering the MR 'mr'"):
        killed(Mock(side_effect=refused), Counted(0))
    with pytest.raises(HostLacks, match="does not report"):
        killed(lambda: idle, Counted(0))


# Memory of the kernel's modules

HEAD = """\
allocinfo - version: 2.0
#     <size>  <calls> <tag info>
       40960        {0} mm/filemap.c:2001 func:__filemap_get_folio
           0        0 net/core/skbuff.c:656 func:__alloc_skb
"""


class Kernel:
    """A kernel that counts its memory. Objects that wait to be freed are freed only by `free`."""

    def __init__(self, proc: Path) -> None:
        self.proc, self.ran = proc, 0
        self.held, self.waiting = Counter(rxe_alloc_ucontext=1), Counter[str]()
        laid(proc / "sys/vm", {"mem_profiling": "1\n"})
        self._write()

    def runs(self, held: Mapping[str, int], waits: Sequence[str] = ()) -> None:
        """Runs a case whose calls allocate these objects, and objects of other functions that wait to be freed."""
        self.ran += 1
        self.held.update(held)
        self.waiting.update(waits)
        self._write()

    def free(self) -> None:
        self.waiting.clear()
        self._write()

    def _write(self) -> None:
        lines = [
            f"{96 * number:12} {number:8} rxe_mr.c:{len(function)} [rdma_rxe] func:{function} \n"
            for function, number in (self.held + self.waiting).items()
        ]
        (self.proc / "allocinfo").write_text(HEAD.format(sum(self.held.values())) + "".join(lines))

    def memory(self) -> ModuleMemory:
        return ModuleMemory(self.proc, self.free)


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: Patch) -> Kernel:
    monkeypatch.setattr(module_memory, "FREED_S", 0.0)
    return Kernel(tmp_path)


def leaks(memory: ModuleMemory, case: Callable[[], object]) -> dict[str, list[int]]:
    case()
    return {leak["function"]: leak["objects"] for leak in memory.leaked_by(lambda number: case())}


def test_memory_is_leaked_if_each_repetition_keeps_more(kernel):
    memory = kernel.memory()
    leaks_seen = leaks(memory, lambda: kernel.runs({"rxe_mr_init_user": 2}, ["alloc_uobj"]))
    assert leaks_seen == {"rxe_mr_init_user": [2] * (1 + REPETITIONS)}
    assert leaks(memory, lambda: kernel.runs({}, ["alloc_uobj"])) == {}, (
        "the leak is counted again in the next case"
    )


def test_memory_that_only_the_first_run_keeps_is_not_a_leak(kernel):
    memory, first = kernel.memory(), iter([1])
    for ran in (2, 3):  # the first case is repeated once, and the second case never
        assert leaks(memory, lambda: kernel.runs({"pool_grow": next(first, 0)})) == {}
        assert kernel.ran == ran


def test_a_case_is_not_repeated_for_objects_that_wait_to_be_freed(kernel):
    memory = kernel.memory()
    assert [leaks(memory, lambda: kernel.runs({}, ["alloc_uobj"])) for _ in range(20)] == [{}] * 20
    assert kernel.ran == 20


def test_memory_that_is_freed_after_the_repetitions_is_not_a_leak(kernel, monkeypatch):
    monkeypatch.setattr(module_memory, "FREED_S", 9.0)
    monkeypatch.setattr(module_memory, "POLL_S", 0.0)
    numbers = iter(range(100))

    def free() -> None:
        if next(numbers) > REPETITIONS + 3:  # as a work queue of the kernel does after a delay
            kernel.runs({"rxe_odp_work": -kernel.held["rxe_odp_work"]})

    memory = ModuleMemory(kernel.proc, free)
    assert leaks(memory, lambda: kernel.runs({"rxe_odp_work": 1})) == {}
    assert kernel.held["rxe_odp_work"] == 0


def test_a_leak_in_a_function_whose_objects_are_freed_late_is_detected(kernel):
    memory = kernel.memory()
    for _ in range(3):
        assert leaks(memory, lambda: kernel.runs({}, ["alloc_uobj"])) == {}
    leaks_seen = [leaks(memory, lambda: kernel.runs({"alloc_uobj": 1})) for _ in range(8)]
    assert any(leaks_seen)


@pytest.mark.parametrize("lack", ["sys/vm/mem_profiling", "allocinfo", "0"])
def test_a_kernel_without_memory_profiling_is_not_watched(kernel, lack):
    assert ModuleMemory.of_kernel(kernel.proc)
    if lack == "0":
        (kernel.proc / "sys/vm/mem_profiling").write_text("0\n")
    else:
        (kernel.proc / lack).unlink()
    assert ModuleMemory.of_kernel(kernel.proc) is None


class Driver(ReferenceBench):
    kernel: Kernel

    def entry(self, name: str) -> Entry:
        self.kernel.runs({"rxe_mr_init_user": 1})
        return super().entry(name)


@pytest.mark.parametrize("row", [ROW, SPACE], ids=["row", "sweep"])
def test_a_leak_fails_its_case_and_is_a_separate_defect(kernel, row):
    with closing(Driver()) as bench:
        bench.kernel = kernel
        run = replace(on_the_reference(bench), memory=kernel.memory())
        record = case_record(run_case(samples.case(row), run), samples.registry())
    assert record["verdict"] == Verdict.FAIL
    assert record["fault"]["kind"] == FaultKind.MEMORY_LEAKED
    assert " x) allocated by rxe_mr_init_user [rdma_rxe] in rxe_mr.c:16" in record["reason"]
    (defect,) = defects_of([record])
    assert defect.title == "memory is never freed, allocated in rxe_mr_init_user (rdma_rxe)"
    assert defect.severity is Severity.VALID_REFUSED
