"""Posts lists of requests of which one cannot be posted, and compares which of them are executed."""

from __future__ import annotations

import ctypes
from typing import cast

from conformance.bench.calls import Pd, Return, Sge, errno_name
from conformance.bench.interface import ListQueue, Queue
from conformance.bench.memory_areas import EMPTY, numbered, repeated
from conformance.bench.work_requests import SIGNALED, SendRequest
from conformance.execution.connection import post_receives
from conformance.execution.context import CaseContext, told
from conformance.model.case import Step
from conformance.model.observation import Observation
from conformance.model.operations import FULL, TOO_LONG_INLINE
from conformance.older_python import zip
from conformance.verbs import ENUMS

_LENGTH = 8  # the fewest bytes of a message
_INLINE_LENGTH = 24  # the bytes of inline data for which a queue pair is created
_BEHIND = 2  # requests behind the one that cannot be posted
_AT = 2  # the index of a request with too many SGEs, or with too much inline data
_WRITABLE = ENUMS["ibv_access_flags"].value_of("REMOTE_WRITE")
_INLINE = ENUMS["ibv_send_flags"].value_of("INLINE")
_MOST_SIGNALED = 32  # for so many completions every completion queue has room


class _List:
    """A list of RDMA WRITEs of the responder, or of its receives. `failing` is the index of the request that cannot be
    posted. The others are as large as the capacities that the device returns permit."""

    def __init__(self, context: CaseContext, step: Step) -> None:
        kind, pd = str(step.arguments["qp_type"]), str(step.arguments["pd"])
        self.is_inline = step.arguments["fails"] == TOO_LONG_INLINE
        inline = _INLINE_LENGTH if self.is_inline else 0
        connection = context.harness.connection(kind, pd, inline=inline)
        connection.renew_if_stale()
        connection.stale = True
        self._context = context
        self.queue = cast(ListQueue, connection.pair.responder)
        self.refusal = ""  # why the shared receive queue does not have the size that the list needs
        if size := context.number(step.arguments["resized"]):
            self.refusal = self._resized(size)
        self.peer: Queue = connection.pair.requester
        sends = step.arguments["op"] == "RDMA_WRITE"
        self.limit, most = self.queue.sends_limit if sends else self.queue.receives_limit
        self.is_full = step.arguments["fails"] == FULL
        self.failing = self.limit if self.is_full else _AT
        self.count = self.failing + 1 + _BEHIND
        self.length = max(_LENGTH, most)
        if self.is_inline:
            self.length = self.queue.inline_limit
        self.own = self._places(self.queue.pd, "a list")
        self.far = self._places(self.peer.pd, "the peer's messages")
        source, sink = (self.own, self.far) if sends else (self.far, self.own)
        for number in range(self.count + 1):
            ctypes.memmove(source[number].addr, numbered(number, self.length), self.length)
            ctypes.memset(sink[number].addr, EMPTY, self.length)
        self.elements: list[tuple[Sge, ...]] = [(place,) for place in self.own[: self.count]]
        if self.is_inline:
            self.elements[_AT] = (self.own[_AT]._replace(length=self.length + 1),)
        elif not self.is_full:
            self.elements = [_in_parts(place, most) for place in self.own[: self.count]]
            self.elements[_AT] = (self.own[_AT],) * (most + 1)
        self.ids = [context.next_wr_id() for _ in self.own]

    def _places(self, pd: Pd, use: str) -> list[Sge]:
        """Returns the memory of each message of the list, and of one behind them."""
        area = self._context.harness.scratch(pd, self.length * (self.count + 1), use, _WRITABLE)
        starts = range(area.addr, area.addr + area.length, self.length)
        return [area._replace(addr=start, length=self.length) for start in starts]

    def _resized(self, size: int) -> str:
        refused = self.queue.resize_receives(size).value
        if not refused:
            return ""
        return f"ibv_modify_srq returned {errno_name(refused)}; not every device resizes a queue"

    def wrong_result(self, returned: Return, index: int) -> str:
        """Describes what is wrong with the result of the call; empty for nothing."""
        if not returned.value:
            return ""
        if returned.value < 0:
            return f"the call returned {returned.value}, which is no errno"
        if index < 0:
            return "bad_wr is no request of the list"
        if index < self.failing:
            name = errno_name(returned.value)
            return f"request {index} was refused with {name}, in a queue for {self.limit}"
        if index > self.failing and not self.is_full:
            return f"bad_wr is request {index}, not {self.failing}"
        return ""

    def sent(self) -> str:
        """Posts RDMA WRITEs. When a SEND behind them has arrived, those that were posted have been executed."""
        interval = self.limit // _MOST_SIGNALED + 1
        requests = [
            SendRequest(
                "RDMA_WRITE",
                self.ids[number],
                sges,
                (0 if number % interval else SIGNALED) | (_INLINE if self.is_inline else 0),
                self.far[number].addr,
                self.far[number].rkey,
            )
            for number, sges in enumerate(self.elements)
        ]
        returned, index = self.queue.post_sends(requests)
        wrong = self.wrong_result(returned, index)
        if wrong or not (returned.value or self.is_full):
            return wrong
        signaled = [(request.wr_id, "SUCCESS") for request in requests[:index:interval]]
        completions = self.queue.completions(len(signaled))
        if [(done.wr_id, done.status) for done in completions] != signaled:
            return f"the first {index} WRITEs of a list have not completed in their order"
        post_receives(self.peer, self.ids[-1:])
        if refused := self.queue.post_send(SendRequest("SEND", self.ids[-1])).value:
            return f"a SEND behind the list was refused with {errno_name(refused)}"
        if [done.status for done in self.peer.completions(1)] != ["SUCCESS"]:
            return "a SEND behind the list has not arrived"
        for number, place in enumerate(self.far):
            is_executed = number < index
            if is_executed:
                expected = numbered(number, self.length)
            else:
                expected = repeated(EMPTY, self.length)
            if ctypes.string_at(place.addr, self.length) != expected:
                done = "was not executed" if is_executed else "was executed"
                return f"WRITE {number} {done}, and {index} were posted"
        return ""

    def received(self) -> str:
        """Posts receives. Behind those that were posted, a further receive must get the next message."""
        receives = list(zip(self.elements, self.ids[:-1], strict=True))
        returned, index = self.queue.post_receives(receives)
        wrong = self.wrong_result(returned, index)
        if wrong or not (returned.value or self.is_full):
            return wrong
        for number in (*range(index), self.count):
            if number == self.count:
                refused = self.queue.post_receive((self.own[-1],), self.ids[-1]).value
                if refused:
                    return f"a receive behind the list was refused with {errno_name(refused)}"
            request = SendRequest("SEND", self._context.next_wr_id(), (self.far[number],))
            if self.peer.post_send(request).value:
                return f"the SEND of message {number} was refused"
            if wrong := _missing(self.queue, self.own[number], number, self.ids[number]):
                return wrong
            self.peer.completions(1)
        return ""


def _in_parts(place: Sge, count: int) -> tuple[Sge, ...]:
    """Divides the memory of a message into so many SGEs. The last one has what is left."""
    size = place.length // count
    starts = range(place.addr, place.addr + size * count, size)
    parts = [place._replace(addr=start, length=size) for start in starts]
    rest = place.length - size * (count - 1)
    return (*parts[:-1], parts[-1]._replace(length=rest))


def _missing(receiver: Queue, place: Sge, number: int, wr_id: int) -> str:
    """Awaits the next receive. Describes what is wrong if it is not that of the message `number`; empty for nothing."""
    completions = receiver.completions(1)
    if not completions:
        return f"message {number} has not arrived"
    if [(done.wr_id, done.status) for done in completions] != [(wr_id, "SUCCESS")]:
        return f"message {number} completed another receive, or with {completions[0].status}"
    if ctypes.string_at(place.addr, place.length) != numbered(number, place.length):
        return f"in place of message {number} another one arrived"
    return ""


def list_posted(context: CaseContext, step: Step) -> Observation:
    """Posts a list of RDMA WRITEs or receives with one that cannot be posted: one more than the queue takes, or one with
    too many SGEs or too much inline data. Those before it must be executed in their order, and none of the others.
    `returned` is 0, or describes the first error."""
    posted = _List(context, step)
    if posted.refusal:
        return {**told("0", "provider"), "unreachable": posted.refusal}
    wrong = posted.sent() if step.arguments["op"] == "RDMA_WRITE" else posted.received()
    return told(wrong or "0", "provider")
