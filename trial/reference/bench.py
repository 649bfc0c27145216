"""Implements the interface `conformance.bench` by the reference device."""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from typing import cast

from conformance.bench.calls import Injected, Mr, Pd, Return, Sge
from conformance.bench.calls import Window as AnyWindow
from conformance.bench.doors import RegMrEx
from conformance.bench.interface import Bench, DmaBuf, Entry, Memory, QueueCapacity
from conformance.bench.lingering import Lingering
from conformance.bench.work_requests import BindInfo, Completion, SendRequest
from conformance.execution.offered import absent_on, offered_by, with_immediates
from conformance.header import Check
from conformance.model.capability import Capabilities
from conformance.model.case import QpSpec
from conformance.model.deadline import COMPLETION_DEADLINE_S
from conformance.model.preflight import Findings
from conformance.model.transport import IWARP
from conformance.model.vocabulary import BUILDERS, DOORS, ENTRIES, STREAM, WIRE
from conformance.wire.packet import Packet, Parsed
from conformance.wire.segments import ParsedSegment, Segment
from trial.reference import header
from trial.reference.device import Device
from trial.reference.entries import KernelEntry, LibraryEntry
from trial.reference.made_otherwise import MAX_DM_SIZE
from trial.reference.memory import HUGEPAGE, PAGE, Range
from trial.reference.objects import ACCESS, Domain, Refused, Window, answered
from trial.reference.queues import Queue
from trial.reference.segments import StreamState
from trial.reference.sent_packets import Local, Outgoing
from trial.reference.served_packets import Answer, Incoming
from trial.reference.stream_end import ReferenceStream, ReferenceStreamPair
from trial.reference.wire_end import ReferenceEnd, ReferencePair

_ALL_RIGHTS = ACCESS.mask_of(
    "REMOTE_WRITE",
    "REMOTE_READ",
    "REMOTE_ATOMIC",
    "FLUSH_GLOBAL",
    "FLUSH_PERSISTENT",
)


class HeldWindow:
    """A window of a program: the struct ibv_mw with its rkey."""

    def __init__(self, device: Device, window: Window) -> None:
        self._device = device
        self.window = window
        self.rkey = self.old_rkey = window.key
        self.pointer = 0  # the reference has no structure of a library

    @property
    def handle(self) -> int:
        """The rkey, which is used in place of a handle."""
        return self.window.key

    def dealloc(self) -> Return:
        return answered(lambda: self._device.dealloc_mw(self.window))


class HeldQueue:
    def __init__(self, device: Device, pd: Pd, queue: Queue) -> None:
        self._device = device
        self.pd = pd
        self.queue = queue
        self.number = self.handle = queue.number
        self.kind, self.sq_sig_all = queue.kind, queue.sq_sig_all
        # the wire peer at the other end
        self.wire: ReferenceEnd | ReferenceStream | None = None
        self.state = "RESET"  # the state to which the program has moved the queue pair; an error does not change it

    def take(self, incoming: Incoming, packet: Parsed, distance: int) -> list[Answer]:
        """Executes a packet of the wire peer."""
        with self._device.turn:
            return self._device.take(self.queue, incoming, packet, distance)

    def take_answer(self, outgoing: Outgoing, packet: Parsed, distance: int) -> list[Packet]:
        """Takes an answer of the wire peer. Returns the packets that are sent again."""
        with self._device.turn:
            return self._device.take_answer(self.queue, outgoing, packet, distance)

    def send_packets(self, outgoing: Outgoing, request: SendRequest) -> list[Packet]:
        """Returns the packets of a request to the wire peer."""
        with self._device.turn:
            return self._device.send_packets(self.queue, outgoing, request)

    def released(self, outgoing: Outgoing) -> list[Packet]:
        """Returns the packets of requests that had to wait for an answer of the wire peer."""
        with self._device.turn:
            return self._device.released(outgoing)

    def traffic_class(self, asked: int) -> int:
        return self._device.traffic_class(self.queue, asked)

    def take_segment(
        self,
        stream: StreamState,
        segment: ParsedSegment,
        mistakes: tuple[str, ...],
    ) -> list[Segment]:
        """Executes a segment of the wire peer."""
        with self._device.turn:
            return self._device.take_segment(self.queue, stream, segment, mistakes)

    def send_segments(self, stream: StreamState, request: SendRequest) -> list[Segment]:
        """Returns the segments of a request to the wire peer."""
        with self._device.turn:
            return self._device.send_segments(self.queue, stream, request)

    def move_to(self, state: str) -> None:
        self.state = state
        self._device.move_qp(self.queue, state)

    def set_access(self, access: int) -> Return:
        self._device.set_access(self.queue, access)
        return Return(0, 0)

    def query_state(self) -> str:
        """Returns the current state. Raises OSError if the device does not support ibv_query_qp."""
        try:
            return self._device.query_qp(self.queue)
        except Refused as refused:
            raise OSError(refused.errno, os.strerror(refused.errno)) from refused

    def events(self, deadline_s: float = 0) -> list[str]:
        events, self.queue.events = self.queue.events, []
        return events

    def request_event(self, solicited_only: int) -> None:
        self._device.request_event(self.queue, bool(solicited_only))

    def took_event(self, deadline_s: float) -> bool:
        """Removes a completion event. Returns False if there is no event. This method does not wait."""
        taken, self.queue.notified = self.queue.notified, False
        return taken

    @property
    def capacity(self) -> QueueCapacity:
        return QueueCapacity(*self._device.capacity(self.queue))

    def post_send(self, request: SendRequest) -> Return:
        """Posts a request with ibv_post_send, or as a batch. Returns 0, or the value of errno."""
        if self.wire and request.opcode not in ("BIND_MW", "LOCAL_INV"):
            fault = self._device.send_fault(self.queue, request)
            if not fault:
                self.wire.post(request)
            return _value(fault)
        if isinstance(self.wire, ReferenceEnd):
            fault = self._device.send_fault(self.queue, request)
            if not fault:
                self.wire.execute(
                    Local(request, lambda: self._device.execute(self.queue, request)),
                )
            return _value(fault)
        if self.queue.extended in BUILDERS:
            return self.post_batch((request,))
        with self._device.turn:
            return _value(self._device.post_send(self.queue, request))

    def post_batch(
        self,
        requests: Sequence[SendRequest],
        built: Callable[[], bool] = lambda: True,
    ) -> Return:
        """Posts a batch of requests. Returns the result of ibv_wr_complete or ibv_wr_abort."""
        return _value(self._device.post_batch(self.queue, requests, built))

    def post_receive(self, sges: Sequence[Sge], wr_id: int) -> Return:
        return _value(self._device.post_receive(self.queue, sges, wr_id))

    @property
    def sends_limit(self) -> tuple[int, int]:
        return self._device.capacity(self.queue)[:2]

    @property
    def receives_limit(self) -> tuple[int, int]:
        return self._device.depth(self.queue), self.sends_limit[1]

    @property
    def inline_limit(self) -> int:
        return self._device.capacity(self.queue)[2]

    def resize_receives(self, count: int) -> Return:
        return _value(self._device.resize_receives(self.queue, count))

    def post_sends(self, requests: Sequence[SendRequest]) -> tuple[Return, int]:
        fault, index = self._device.post_sends(self.queue, requests)
        return _value(fault), index

    def post_receives(
        self,
        receives: Sequence[tuple[Sequence[Sge], int]],
    ) -> tuple[Return, int]:
        fault, index = self._device.post_receives(self.queue, receives)
        return _value(fault), index

    def bind_mw(self, window: AnyWindow, info: BindInfo, flags: int, wr_id: int) -> Return:
        held = cast(HeldWindow, window)
        if self._device.misnamed(held.window, held.rkey):
            return _value(errno.EINVAL)
        arguments = self.queue, held.window, info, flags, wr_id
        if isinstance(self.wire, ReferenceEnd):
            fault, window.rkey = self._device.begun_bind(*arguments)
            if not fault:
                request = SendRequest("BIND_MW", wr_id, flags=flags)
                self.wire.execute(Local(request, lambda: self._device.ibv_bind_mw(*arguments)))
            return _value(fault)
        with self._device.turn:
            fault, window.rkey = self._device.ibv_bind_mw(*arguments)
        return _value(fault)

    def completions(self, count: int = 1, deadline_s: float | None = None) -> list[Completion]:
        """Returns the next completions. This method does not wait, because requests complete when they are posted. A
        program that does not wait at all does not see the last completion yet."""
        polled = self.queue.polled
        hidden = deadline_s == 0 and not self._device.completes_at_once()
        found = [polled.popleft() for _ in range(min(count, len(polled) - hidden))]
        if len(found) < count:
            self._device.waits(COMPLETION_DEADLINE_S if deadline_s is None else deadline_s)
        own = self.number
        named = [done._replace(qp_num=own) if done.qp_num is None else done for done in found]
        return self._device.polled_together(named)


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
        self.responder = HeldQueue(device, responder, device.create_qp(_new(spec, responder)))
        self.requester = self.responder
        if spec.kind != "XRC_SEND":
            self.requester = HeldQueue(
                device,
                requester,
                device.create_qp(_new(spec.peer, requester)),
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
            return _ELEMENTS
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
        """Returns `size` bytes of memory of a kind in vocabulary.MEMORY_KINDS."""
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
        queue = self.device.create_qp(_new(replace(spec, extended=""), pd))
        return HeldQueue(self.device, pd, queue)

    def create_qp_ex(self, pd: Pd, kind: str, operations: int) -> Return:
        return _value(self.device.create_qp_ex_fault(kind, operations))

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


_ELEMENTS = 3


def _new(spec: QpSpec, pd: Pd) -> Queue:
    assert isinstance(pd, Domain)
    if spec.access is None:
        access = _ALL_RIGHTS
    else:
        access = spec.access
    return Queue(
        0,
        spec.kind,
        pd,
        spec.sq_sig_all,
        access,
        inline=spec.inline,
        extended=spec.extended,
    )


def _value(number: int) -> Return:
    return Return(number, number)
