"""Memory that modules of the kernel never free: what counts as a leak, and the fault of its case."""

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import samples
from conformance.bench.interface import Entry
from conformance.defects import Severity, defects_of
from conformance.execution.runner import run_case
from conformance.kernel import module_memory
from conformance.kernel.module_memory import REPETITIONS, ModuleMemory
from conformance.model.fault import FaultKind
from conformance.model.verdict import Verdict
from conformance.results.case_record import case_record
from kinds import Patch
from reference.bench import ReferenceBench
from samples import ROW, SPACE
from trial.running import on_the_reference

HEAD = """\
allocinfo - version: 2.0
#     <size>  <calls> <tag info>
       40960        {0} mm/filemap.c:2001 func:__filemap_get_folio
           0        0 net/core/skbuff.c:656 func:__alloc_skb
"""


class Kernel:
    """A kernel that counts its memory. Objects that wait are freed only when the kernel is asked to free them."""

    def __init__(self, proc: Path) -> None:
        self.proc = proc
        self.held, self.waiting = Counter[str](), Counter[str]()
        (proc / "sys/vm").mkdir(parents=True)
        (proc / "sys/vm/mem_profiling").write_text("1\n")
        self.allocate("rxe_alloc_ucontext")

    def allocate(self, function: str, objects: int = 1) -> None:
        self.held[function] += objects
        lines = [
            f"{96 * number:12} {number:8} rxe_mr.c:{len(function)} [rdma_rxe] func:{function} \n"
            for function, number in (self.held + self.waiting).items()
        ]
        (self.proc / "allocinfo").write_text(HEAD.format(sum(self.held.values())) + "".join(lines))

    def put(self, function: str) -> None:
        self.waiting[function] += 1
        self.allocate(function, 0)

    def free(self) -> None:
        self.waiting.clear()
        self.allocate("rxe_alloc_ucontext", 0)

    def memory(self) -> ModuleMemory:
        return ModuleMemory(self.proc, self.free)


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: Patch) -> Kernel:
    monkeypatch.setattr(module_memory, "FREED_S", 0.0)
    return Kernel(tmp_path)


def leaks(memory: ModuleMemory, case: Callable[[], object]) -> dict[str, list[int]]:
    case()
    return {each["function"]: each["objects"] for each in memory.leaked_by(lambda number: case())}


def test_memory_is_leaked_if_each_repetition_keeps_more(kernel: Kernel) -> None:
    memory = kernel.memory()

    def case() -> None:
        kernel.allocate("rxe_mr_init_user", 2)
        kernel.put("alloc_uobj")

    assert leaks(memory, case) == {"rxe_mr_init_user": [2] * (1 + REPETITIONS)}
    assert leaks(memory, lambda: kernel.put("alloc_uobj")) == {}, "the next case leaks nothing"


def test_memory_that_is_kept_once_or_freed_late_is_no_leak(kernel: Kernel) -> None:
    memory = kernel.memory()
    first = iter([1])
    ran: list[int] = []

    def case() -> None:
        ran.append(1)
        kernel.allocate("pool_grow", next(first, 0))

    assert leaks(memory, case) == {}
    assert len(ran) == 2, "the first repetition has shown it"
    assert leaks(memory, case) == {}
    assert len(ran) == 3


def test_a_case_is_not_repeated_for_objects_that_wait_to_be_freed(kernel: Kernel) -> None:
    memory = kernel.memory()
    ran: list[int] = []

    def case() -> None:
        ran.append(1)
        kernel.put("alloc_uobj")

    assert [leaks(memory, case) for _ in range(20)] == [{}] * 20
    assert len(ran) == 20


def test_memory_that_is_freed_after_the_repetitions_is_no_leak(kernel: Kernel, monkeypatch: Patch) -> None:
    monkeypatch.setattr(module_memory, "FREED_S", 9.0)
    monkeypatch.setattr(module_memory, "POLL_S", 0.0)
    asked = iter(range(100))

    def free() -> None:
        if next(asked) > REPETITIONS + 3:  # as a worker of the kernel does after a delay
            kernel.allocate("rxe_odp_work", -kernel.held["rxe_odp_work"])

    memory = ModuleMemory(kernel.proc, free)
    assert leaks(memory, lambda: kernel.allocate("rxe_odp_work")) == {}
    assert kernel.held["rxe_odp_work"] == 0


def test_a_leak_in_a_place_whose_objects_are_freed_late_is_found(kernel: Kernel) -> None:
    memory = kernel.memory()
    for _ in range(3):
        assert leaks(memory, lambda: kernel.put("alloc_uobj")) == {}
    found = [leaks(memory, lambda: kernel.allocate("alloc_uobj")) for _ in range(8)]
    assert any(found)


@pytest.mark.parametrize("lack", ["sys/vm/mem_profiling", "allocinfo", "0"])
def test_another_kernel_is_not_watched(kernel: Kernel, lack: str) -> None:
    assert ModuleMemory.of_kernel(kernel.proc)
    if lack == "0":
        (kernel.proc / "sys/vm/mem_profiling").write_text("0\n")
    else:
        (kernel.proc / lack).unlink()
    assert ModuleMemory.of_kernel(kernel.proc) is None


class Driver(ReferenceBench):
    """A bench whose driver allocates an object for each call, and never frees it."""

    kernel: Kernel

    def entry(self, name: str) -> Entry:
        self.kernel.allocate("rxe_mr_init_user")
        return super().entry(name)


@pytest.mark.parametrize("row", [ROW, SPACE], ids=["row", "sweep"])
def test_a_leak_fails_its_case_and_is_a_defect_of_its_own(kernel: Kernel, row: str) -> None:
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
