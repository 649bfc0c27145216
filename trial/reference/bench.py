"""Implements the interface `conformance.bench` by the reference device."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from typing import cast

from conformance.bench.calls import Injected, Mr, Pd, Return
from conformance.bench.doors import RegMrEx
from conformance.bench.interface import Bench, DmaBuf, Entry, Memory
from conformance.bench.lingering import Lingering
from conformance.execution.offered import absent_on, offered_by, with_immediates
from conformance.header import Check
from conformance.model.case import QpSpec
from conformance.model.declared import Capabilities
from conformance.model.preflight import Findings
from conformance.model.transport import IWARP
from conformance.model.vocabulary import DOORS, ENTRIES, STREAM, WIRE
from trial.reference import header
from trial.reference.device import Device
from trial.reference.entries import KernelEntry, LibraryEntry
from trial.reference.held_queue import MAX_ELEMENTS, HeldQueue, HeldWindow, new_queue, value
from trial.reference.made_otherwise import MAX_DM_SIZE
from trial.reference.memory import HUGEPAGE, PAGE, Range
from trial.reference.objects import Domain, Refused, answered
from trial.reference.stream_end import ReferenceStreamPair
from trial.reference.wire_end import ReferencePair


class HeldPair:
    def __init__(self, bench: ReferenceBench, spec: QpSpec, requester: Pd, responder: Pd) -> None:
        self._bench, self._device = bench, bench.device
        self._spec, self._pds = spec, (requester, responder)
        self.transport = self._device.stack.transport
        self._create()

    @property
    def renews_by_reset(self) -> bool:
        """Whether `renew` resets the queue pairs. If False, as on iWARP, `renew` creates new queue pairs."""
        return self.transport is not IWARP and self._bench.findings.renews_by_reset

    @property
    def tells_state(self) -> bool:
        return self._bench.findings.tells_state

    @property
    def lingering(self) -> Lingering:
        return self._bench.lingering

    def _create(self) -> None:
        device, spec, (requester, responder) = self._device, self._spec, self._pds
        self.responder = HeldQueue(device, responder, device.create_qp(new_queue(spec, responder)))
        self.requester = self.responder
        if spec.kind != "XRC_SEND":
            self.requester = HeldQueue(
                device,
                requester,
                device.create_qp(new_queue(spec.peer, requester)),
            )
        self.responder.queue.peer, self.requester.queue.peer = (
            self.requester.queue,
            self.responder.queue,
        )
        if spec.one_queue:
            self.requester.queue.polled = self.responder.queue.polled
        self._connect()

    def _connect(self) -> None:
        self.requester.move_to("RTS" if self._spec.state in ("RTS", "ERR") else "INIT")
        self.responder.move_to(self._spec.state)

    def connect(self) -> None:
        for held in (self.requester, self.responder):
            held.move_to("RTS")

    def renew(self) -> None:
        """Resets both queue pairs and connects them again, or creates new queue pairs."""
        if self.renews_by_reset:
            for held in (self.responder, self.requester):
                self._device.reset_qp(held.queue)
            with suppress(Refused):
                return self._connect()
        self.close()
        self._create()

    def close(self) -> None:
        for held in {self.responder, self.requester}:
            self._device.destroy_qp(held.queue)


class ReferenceBench:
    """The bench of one reference device and the memory of this process."""

    page = PAGE
    hugepage = HUGEPAGE
    packet = 1024
    ack_timeout_s = not_ready_s = 0.0
    max_dm_size = MAX_DM_SIZE
    carries = False

    @property
    def in_flight_bytes(self) -> int:
        return self.findings.in_flight_bytes

    @property
    def max_read_elements(self) -> int:
        if self.device.stack.has("read_lists"):
            return MAX_ELEMENTS
        return 1

    def __init__(self, device: Device | None = None) -> None:
        self.device = device or Device()
        self.findings = Findings()
        self.lingering = Lingering()
        self.library = LibraryEntry(self.device)
        entries: tuple[Entry, ...] = (self.library, KernelEntry(self.device), RegMrEx(self.library))
        self._entries = {entry.name: entry for entry in entries}

    def entry(self, name: str) -> Entry:
        return self._entries[name]

    def alloc_pd(self) -> Domain:
        return self.device.alloc_pd()

    def allocate(self, kind: str, size: int) -> Range:
        """Returns `size` bytes of memory of a kind in memory_kinds.MEMORY_KINDS."""
        return self.device.memory.allocate(kind, size)

    def page_out(self, memory: Memory) -> bool:
        """Returns True without paging out, because the reference can access pages that are swapped out."""
        return True

    def dereg_import(self, pd: Pd, mr: Mr, elsewhere: bool) -> Return:
        return answered(lambda: self.device.dereg_import(mr.handle, elsewhere))

    @contextmanager
    def other_process(
        self,
        work: Callable[[Bench], Iterator[bytes]],
    ) -> Iterator[Callable[[], bytes]]:
        with closing(cast(Generator[bytes], work(OtherProcess(self.device)))) as reports:
            yield lambda: next(reports, b"")

    def killed(self, prepare: Callable[[Bench], Callable[[], bool]]) -> Mapping[str, int]:
        """Returns the numbers of objects, by kind, that remain if a process is killed after it has called `prepare`,
        and at most twice what it returned."""
        other = ReferenceBench(type(self.device)(self.device.stack))
        with closing(other):
            go_on = prepare(other)
            any(go_on() for _ in range(2))
            return other.device.left_by_a_killed_process()

    def fork_setting(self, setting: str, kernel: str) -> tuple[int, Mapping[str, str]]:
        return self.device.fork_setting(setting, kernel)

    def dmabuf(self, kind: str, size: int) -> Range:
        return self.device.memory.dmabuf(size)

    def exporter(self, request: str, dmabuf: DmaBuf) -> int:
        cast(Range, dmabuf).revoked |= request == "revoke"
        return self.device.exporter(request, dmabuf.addr, dmabuf.size)

    def pair(
        self,
        spec: QpSpec,
        requester: Pd,
        responder: Pd,
    ) -> HeldPair | ReferencePair | ReferenceStreamPair:
        """Returns a new pair of queue pairs. Raises Refused if the device does not have the type."""
        if spec.wire == STREAM:
            return ReferenceStreamPair(self, spec, responder)
        if spec.wire or spec.extended == WIRE:
            return ReferencePair(self, spec, requester, responder)
        return HeldPair(self, spec, requester, responder)

    def held(self, spec: QpSpec, pd: Pd) -> HeldQueue:
        """Returns a new queue pair without a peer. Raises Refused."""
        queue = self.device.create_qp(new_queue(replace(spec, extended=""), pd))
        return HeldQueue(self.device, pd, queue)

    def create_qp_ex(self, pd: Pd, kind: str, operations: int) -> Return:
        return value(self.device.create_qp_ex_fault(kind, operations))

    def adapt(self, findings: Findings) -> None:
        self.findings = findings

    def alloc_mw(self, pd: Pd, kind: int) -> tuple[HeldWindow | None, Return]:
        try:
            return HeldWindow(self.device, self.device.alloc_mw(pd.handle, kind)), Return(1, 0)
        except Refused as refused:
            return None, Return(0, refused.errno)

    @contextmanager
    def locked_memory_limit(self, size: int) -> Iterator[None]:
        old, self.device.locked_limit = self.device.locked_limit, size
        try:
            yield
        finally:
            self.device.locked_limit = old

    @contextmanager
    def failing_allocation(self, number: int) -> Iterator[Injected]:
        self.device.allocations_left = number
        injected = Injected()
        yield injected
        injected.reached, self.device.allocations_left = self.device.allocations_left == 0, None

    def resources(self) -> dict[str, int]:
        return self.device.counts()

    def api_checks(self, waiting: Callable[[], None]) -> Sequence[Check]:
        """Returns the checks of rule API-01 for the reference's own header and bindings."""
        return _checked(self.device.header(), self.device.bindings_fault)

    def close(self) -> None:
        self.device.memory.close()

    def capabilities(self) -> Capabilities:
        """Returns the capabilities of this stack. Like those of a real stack, they are determined before any case."""
        stack = self.device.stack
        offered = {name: offered_by(self, name) for name in (*ENTRIES, *DOORS)}
        declared = with_immediates(self, stack.declared)
        return Capabilities(declared, offered, stack.reachable, absent_on(self, declared))


class OtherProcess(ReferenceBench):
    """The bench of another process on the same device. Its PDs belong to another context."""

    def alloc_pd(self) -> Domain:
        return self.device.alloc_pd(self.device.context + 1)


@functools.cache
def _checked(text: str, fault: tuple[str, str, int]) -> Sequence[Check]:
    """Returns the checks of a header. Cached, because compilation is slow and most references have the same header."""
    bindings = header.own_bindings()
    if fault[0]:
        bindings = header.with_value(bindings, *fault)
    return header.checks(text, bindings)
