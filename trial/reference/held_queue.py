"""The windows and queues of the reference, as the interface `conformance.bench` has them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from typing import cast

from conformance.bench.calls import Pd, Return, Sge
from conformance.bench.calls import Window as AnyWindow
from conformance.bench.interface import QueueCapacity
from conformance.bench.work_requests import BindInfo, Completion, SendRequest
from conformance.model.case import QpSpec
from conformance.model.deadline import COMPLETION_DEADLINE_S
from conformance.model.operations import BUILDERS
from conformance.wire.packet import Packet, Parsed
from conformance.wire.segments import ParsedSegment, Segment
from trial.reference.device import Device
from trial.reference.objects import ACCESS, Domain, Refused, Window, answered
from trial.reference.queues import Queue
from trial.reference.segments import StreamState
from trial.reference.sent_packets import Local, Outgoing
from trial.reference.served_packets import Answer, Incoming
from trial.reference.stream_end import ReferenceStream
from trial.reference.wire_end import ReferenceEnd

_ALL_RIGHTS = ACCESS.mask_of(
    "REMOTE_WRITE",
    "REMOTE_READ",
    "REMOTE_ATOMIC",
    "FLUSH_GLOBAL",
    "FLUSH_PERSISTENT",
)
MAX_ELEMENTS = 3


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

    def timed_out(self, outgoing: Outgoing) -> list[Packet]:
        """Returns the packets that are sent again because the wire peer is silent."""
        with self._device.turn:
            return self._device.timed_out(self.queue, outgoing)

    def traffic_class(self, asked: int, answers: bool) -> int:
        return self._device.traffic_class(self.queue, asked, answers)

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
            return value(fault)
        if isinstance(self.wire, ReferenceEnd):
            fault = self._device.send_fault(self.queue, request)
            if not fault:
                self.wire.execute(
                    Local(request, lambda: self._device.execute(self.queue, request)),
                )
            return value(fault)
        if self.queue.extended in BUILDERS:
            return self.post_batch((request,))
        with self._device.turn:
            return value(self._device.post_send(self.queue, request))

    def post_batch(
        self,
        requests: Sequence[SendRequest],
        built: Callable[[], bool] = lambda: True,
    ) -> Return:
        """Posts a batch of requests. Returns the result of ibv_wr_complete or ibv_wr_abort."""
        return value(self._device.post_batch(self.queue, requests, built))

    def post_receive(self, sges: Sequence[Sge], wr_id: int) -> Return:
        return value(self._device.post_receive(self.queue, sges, wr_id))

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
        return value(self._device.resize_receives(self.queue, count))

    def post_sends(self, requests: Sequence[SendRequest]) -> tuple[Return, int]:
        fault, index = self._device.post_sends(self.queue, requests)
        return value(fault), index

    def post_receives(
        self,
        receives: Sequence[tuple[Sequence[Sge], int]],
    ) -> tuple[Return, int]:
        fault, index = self._device.post_receives(self.queue, receives)
        return value(fault), index

    def bind_mw(self, window: AnyWindow, info: BindInfo, flags: int, wr_id: int) -> Return:
        held = cast(HeldWindow, window)
        if self._device.misnamed(held.window, held.rkey):
            return value(errno.EINVAL)
        arguments = self.queue, held.window, info, flags, wr_id
        if isinstance(self.wire, ReferenceEnd):
            fault, window.rkey = self._device.begun_bind(*arguments)
            if not fault:
                request = SendRequest("BIND_MW", wr_id, flags=flags)
                self.wire.execute(Local(request, lambda: self._device.ibv_bind_mw(*arguments)))
            return value(fault)
        with self._device.turn:
            fault, window.rkey = self._device.ibv_bind_mw(*arguments)
        return value(fault)

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


def new_queue(spec: QpSpec, pd: Pd) -> Queue:
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


def value(number: int) -> Return:
    return Return(number, number)
