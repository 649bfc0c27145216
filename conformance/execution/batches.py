"""Tests postings: work requests between ibv_wr_start and either ibv_wr_complete or ibv_wr_abort. ibv_wr_post(3)
specifies that no request is executed before ibv_wr_complete returns 0, and that all requests are executed afterwards.
traffic.py posts single requests with `poster: wr_post`."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from conformance.bench.calls import Sge, errno_name
from conformance.bench.interface import BuildingQueue
from conformance.bench.memory_areas import EMPTY, numbered, repeated
from conformance.bench.work_requests import SIGNALED, SendRequest, key32
from conformance.execution.connection import MOST_TRIES, LoopbackConnection
from conformance.execution.context import CaseContext, told
from conformance.model.case import Step
from conformance.model.expected_errors import RELIABLE
from conformance.model.observation import Observation
from conformance.model.operations import BOTH_POSTERS
from conformance.older_python import pairwise
from conformance.verbs import ENUMS

_REQUESTS = 8  # the number of requests in a posting that fits into the send queue
_ROUNDS = 4  # how often postings and calls of ibv_post_send alternate
# the bytes of inline data that are requested (max_inline_data) when a queue pair is created
_INLINE_SIZE = 64
_INLINE = ENUMS["ibv_send_flags"].value_of("INLINE")


@dataclass
class _Posting:
    """Executes the batches of operations.BATCHES. Each is a method that returns a description of the first error, or an
    empty text."""

    context: CaseContext
    connection: LoopbackConnection
    rkey: int
    # The requests write to consecutive ranges of `length` bytes, which begin at `addr`.
    addr: int
    length: int
    source: Sge
    layer: str = "provider"  # that returned the result: the device if a request had a completion
    lost: bool = False  # whether an unreliable transport may have lost a request

    @property
    def queue(self) -> BuildingQueue:
        return cast(BuildingQueue, self.connection.pair.requester)

    def _write(self, number: int, flags: int = SIGNALED) -> SendRequest:
        """Returns an RDMA WRITE of the message `number` to the range of this number."""
        at = number * self.length
        ctypes.memmove(self.source.addr + at, numbered(number, self.length), self.length)
        part = Sge(self.source.addr + at, self.length, self.source.lkey)
        request = SendRequest("RDMA_WRITE", self.context.next_wr_id(), (part,), rkey=self.rkey)
        return request._replace(remote_addr=self.addr + at, flags=flags)

    def _writes(self, numbers: Sequence[int]) -> list[SendRequest]:
        return [self._write(number) for number in numbers]

    def _arrived(self, numbers: Sequence[int]) -> list[int]:
        return [
            number for number in numbers if self._content(number) != repeated(EMPTY, self.length)
        ]

    def _content(self, number: int) -> bytes:
        return ctypes.string_at(self.addr + number * self.length, self.length)

    def _first_not_executed(self, requests: Sequence[SendRequest], numbers: Sequence[int]) -> str:
        """Waits for the completions. Describes the first request that was not executed, if any."""
        completed_requests = [
            (completion.wr_id, completion.status)
            for completion in self.queue.completions(len(requests))
        ]
        self.layer = "device" if completed_requests else self.layer
        self.lost = False
        if completed_requests != [(request.wr_id, "SUCCESS") for request in requests]:
            statuses = " ".join(status for _, status in completed_requests)
            return (
                f"{len(requests)} requests of a posting have the completions {statuses or '(none)'}"
            )
        unreliable = self.queue.kind not in RELIABLE
        if unreliable:  # a completion does not show that the message has arrived
            self.connection.check_alive()
        wrong = [
            number for number in numbers if self._content(number) != numbered(number, self.length)
        ]
        if wrong:
            self.lost = unreliable
            return f"request {wrong[0]} completed and its bytes are not there"
        return ""

    def _wrongly_executed(self, numbers: Sequence[int], allowed: int) -> str:
        """Posts a further request, to the range `allowed`. Describes an error if an earlier request was executed."""
        marker = self._write(allowed)
        returned = self.queue.post_batch((marker,))
        if returned.value:
            return f"the next posting was refused with {errno_name(returned.value)}"
        ids = [completion.wr_id for completion in self.queue.completions(1)]
        if ids != [marker.wr_id]:
            if ids:
                return "an aborted or refused request completed"
            return "the next posting did not complete"
        moved = self._arrived(numbers)
        if moved:
            return f"request {moved[0]} was carried out although it was aborted or refused"
        return ""

    def completed(self) -> str:
        numbers = range(_REQUESTS)
        early: list[object] = []

        def built() -> bool:
            early.extend(self._arrived(numbers) or self.queue.completions(1, 0.0))
            return True

        requests = self._writes(numbers)
        returned = self.queue.post_batch(requests, built)
        if returned.value:
            return f"ibv_wr_complete returned {errno_name(returned.value)}"
        if early:
            return "a request was carried out before ibv_wr_complete"
        return self._first_not_executed(requests, numbers)

    def aborted(self) -> str:
        numbers = range(_REQUESTS - 1)
        self.queue.post_batch(self._writes(numbers), lambda: False)
        return self._wrongly_executed(numbers, _REQUESTS - 1)

    def alternating(self) -> str:
        for _ in range(_ROUNDS):
            numbers = range(_REQUESTS // 2)
            requests = self._writes(numbers)
            for first in (0, 2):
                returned = self.queue.post_batch(requests[first : first + 1])
                if not returned.value:
                    returned = self.queue.post_send(requests[first + 1])
                if returned.value:
                    return f"a request was refused with {errno_name(returned.value)}"
            wrong = self._first_not_executed(requests, numbers)
            if wrong:
                return wrong
            ctypes.memset(self.addr, EMPTY, self.length * len(numbers))
        return ""

    def reused(self) -> str:
        return self._overwrite_inline()

    def reused_list(self) -> str:
        return self._overwrite_inline(self.length // 2)

    def reused_parts(self) -> str:
        return self._overwrite_inline(1, 4)

    def _overwrite_inline(self, *splits: int) -> str:
        """Posts an RDMA WRITE whose inline data are in buffers that are divided at these offsets, and that are
        overwritten before the completion of the posting. Inline data need no key."""
        request = _split(self._write(0, SIGNALED | _INLINE), *splits)
        request = request._replace(sges=tuple(sge._replace(lkey=0) for sge in request.sges))

        def built() -> bool:
            ctypes.memset(self.source.addr, EMPTY, self.length)
            return True

        returned = self.queue.post_batch((request,), built)
        if returned.value:
            return f"ibv_wr_complete returned {errno_name(returned.value)}"
        return self._first_not_executed((request,), (0,))

    def _whole_or_nothing(self, requests: Sequence[SendRequest], numbers: Sequence[int]) -> str:
        """Posts requests that may be refused. Describes the error if only some of the requests are executed."""
        returned = self.queue.post_batch(requests)
        if returned.value:
            return self._wrongly_executed(numbers, _REQUESTS - 1)
        return self._first_not_executed(requests, numbers)

    def too_many(self) -> str:
        count = self.queue.capacity.requests + 1
        requests = [self._write(index % (_REQUESTS - 1)) for index in range(count)]
        return self._whole_or_nothing(requests, range(_REQUESTS - 1))

    def too_many_elements(self) -> str:
        first, second = self._writes((0, 1))
        return self._whole_or_nothing(
            (first, _split(second, *range(1, self.queue.capacity.sges + 1))),
            (0, 1),
        )

    def after_failures(self) -> str:
        (request,) = self._writes((0,))
        bad = _split(request, *range(1, self.queue.capacity.sges + 1))
        if not self.queue.post_batch((bad,)).value:  # a device may take more elements
            self.queue.completions(1)
        self.queue.post_batch((bad,), lambda: False)
        requests = self._writes((0, 1))
        returned = self.queue.post_batch(requests)
        if returned.value:
            return f"the next posting was refused with {errno_name(returned.value)}"
        return self._first_not_executed(requests, (0, 1))

    def empty_element(self) -> str:
        requests = [_split(write, 8, 8) for write in self._writes((0, 1))]
        returned = self.queue.post_batch(requests)
        if returned.value:
            return errno_name(returned.value)
        return self._first_not_executed(requests, (0, 1))

    def too_long_inline(self) -> str:
        self.length = self.queue.capacity.inline_bytes + 1
        return self._too_long()

    def too_long_inline_list(self) -> str:
        self.length = self.queue.capacity.inline_bytes + 1
        return self._too_long(self.length // 2)

    def _too_long(self, *at: int) -> str:
        """Posts an RDMA WRITE, and another whose inline data are in buffers that are divided at these offsets."""
        inline = _split(self._write(1, SIGNALED | _INLINE), *at)
        return self._whole_or_nothing((self._write(0), inline), (0, 1))


def _split(request: SendRequest, *at: int) -> SendRequest:
    """Returns the request with its only SGE divided at these offsets."""
    (element,) = request.sges
    parts = pairwise((0, *at, element.length))
    return request._replace(
        sges=tuple(element._replace(addr=element.addr + a, length=b - a) for a, b in parts),
    )


def ibv_wr_post(context: CaseContext, step: Step) -> Observation:
    """Executes a batch of operations.BATCHES. `returned` is 0, or describes the first error."""
    rkey, addr, length = context.numbers(step.arguments, "rkey", "addr", "length")
    kind, pd = str(step.arguments["qp_type"]), str(step.arguments["pd"])
    connection = context.harness.connection(kind, pd, extended=BOTH_POSTERS, inline=_INLINE_SIZE)
    connection.renew_if_stale()
    queue = cast(BuildingQueue, connection.pair.requester)
    longest = max(length, queue.capacity.inline_bytes + 1)
    source = context.harness.scratch(queue.pd, longest * _REQUESTS, "posting")
    memory = context.memory_around(addr, longest * _REQUESTS)
    posting = _Posting(context, connection, key32(rkey), addr, length, source)
    what = ""
    for _ in range(MOST_TRIES):
        ctypes.memset(memory.addr, EMPTY, memory.size)
        what = getattr(posting, str(step.arguments["batch"]))()
        if not posting.lost:
            break
    if what:  # requests or completions may be left
        connection.stale = True
    return told(what or "0", posting.layer)


def create_qp_ex(context: CaseContext, step: Step) -> Observation:
    pd = context.pd_of(step)
    returned = context.bench.create_qp_ex(
        pd,
        str(step.arguments["type"]),
        context.number(step.arguments["operations"]),
    )
    name = errno_name(returned.errno)
    if returned.value:
        said = name or "NULL"
    else:
        said = "0"
    return {"rc": returned.value, "returned": said, "errno": name, "layer": "provider"}
