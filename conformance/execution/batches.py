"""Postings: several work requests between ibv_wr_start and ibv_wr_complete or ibv_wr_abort.

The rules are those of ibv_wr_post(3): no request is carried out before ibv_wr_complete returns 0, and every request is
carried out afterwards. traffic.py makes single requests with `poster: wr_post`.
"""

import ctypes
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from conformance.bench.calls import Sge, errno_name
from conformance.bench.interface import BuildingQueue
from conformance.bench.memory_areas import EMPTY, repeated
from conformance.bench.work_requests import SIGNALED, SendRequest
from conformance.execution.connection import LoopbackConnection
from conformance.execution.context import CaseContext, told
from conformance.model.case import Step
from conformance.model.observation import Observation
from conformance.model.vocabulary import BOTH_POSTERS
from conformance.verbs import ENUMS

_REQUESTS = 8  # the number of requests of a posting whose requests fit into the send queue
_ROUNDS = 4  # how often postings and calls of ibv_post_send alternate
_INLINE_SIZE = 64  # bytes of inline data for which the queue pairs are made
_INLINE = ENUMS["ibv_send_flags"].value_of("INLINE")
_FILLED = 0x80  # the byte of the first message; the next message has the next byte


@dataclass
class _Posting:
    """A connection, and numbered ranges of `length` bytes from `addr` on, to which the requests of a posting write.

    `layer` is the layer that answered: the device once a request had a completion.
    """

    context: CaseContext
    connection: LoopbackConnection
    rkey: int
    addr: int
    length: int
    source: Sge
    layer: str = "provider"

    @property
    def queue(self) -> BuildingQueue:
        return cast(BuildingQueue, self.connection.pair.requester)

    def write(self, number: int, flags: int = SIGNALED) -> SendRequest:
        """Returns an RDMA WRITE that fills the range `number` with a byte that no other range gets."""
        at = number * self.length
        ctypes.memset(self.source.addr + at, _FILLED + number, self.length)
        part = Sge(self.source.addr + at, self.length, self.source.lkey)
        request = SendRequest("RDMA_WRITE", self.context.next_wr_id(), (part,), rkey=self.rkey)
        return request._replace(remote_addr=self.addr + at, flags=flags)

    def writes(self, numbers: Sequence[int]) -> list[SendRequest]:
        return [self.write(number) for number in numbers]

    def arrived(self, numbers: Sequence[int]) -> list[int]:
        """Returns the numbers of the ranges that have changed."""
        return [each for each in numbers if self._content(each) != repeated(EMPTY, self.length)]

    def _content(self, number: int) -> bytes:
        return ctypes.string_at(self.addr + number * self.length, self.length)

    def missing(self, requests: Sequence[SendRequest], numbers: Sequence[int]) -> str:
        """Waits for the completions, and describes the first request that was not carried out; returns "" if all
        were."""
        found = [(each.wr_id, each.status) for each in self.queue.completions(len(requests))]
        self.layer = "device" if found else self.layer
        if found != [(each.wr_id, "SUCCESS") for each in requests]:
            self.connection.stale = True
            statuses = " ".join(status for _, status in found)
            return f"{len(requests)} requests of a posting have the completions {statuses or '(none)'}"
        wrong = [each for each in numbers if self._content(each) != repeated(_FILLED + each, self.length)]
        return f"request {wrong[0]} completed and its bytes are not there" if wrong else ""

    def executed(self, numbers: Sequence[int], allowed: int) -> str:
        """Posts one more request, which writes into the range `allowed`, and reports an earlier request that was
        carried out although it was aborted or refused."""
        marker = self.write(allowed)
        returned = self.queue.post_batch((marker,))
        if returned.value:
            return f"the next posting was refused with {errno_name(returned.value)}"
        found = [each.wr_id for each in self.queue.completions(1)]
        if found != [marker.wr_id]:
            self.connection.stale = True
            return "an aborted or refused request completed" if found else "the next posting did not complete"
        moved = self.arrived(numbers)
        return f"request {moved[0]} was carried out although it was aborted or refused" if moved else ""


def ibv_wr_post(context: CaseContext, step: Step) -> Observation:
    """Makes a posting of vocabulary.BATCHES. `returned` is 0, or describes the first error."""
    rkey, addr, length = context.numbers(step.arguments, "rkey", "addr", "length")
    kind, pd = str(step.arguments["qp_type"]), str(step.arguments["pd"])
    connection = context.harness.connection(kind, pd, extended=BOTH_POSTERS, inline=_INLINE_SIZE)
    connection.renew_if_stale()
    queue = cast(BuildingQueue, connection.pair.requester)
    longest = max(length, queue.capacity[2] + 1)
    source = context.harness.scratch(queue.pd, longest * _REQUESTS, "posting")
    memory = context.memory_around(addr, longest * _REQUESTS)
    ctypes.memset(memory.addr, EMPTY, memory.size)
    posting = _Posting(context, connection, rkey % (1 << 32), addr, length, source)
    what = _BATCHES[str(step.arguments["batch"])](posting)
    return told(what or "0", posting.layer)


def _completed(posting: _Posting) -> str:
    numbers = range(_REQUESTS)
    early: list[object] = []

    def built() -> bool:
        early.extend(posting.arrived(numbers) or posting.queue.completions(1, 0.0))
        return True

    requests = posting.writes(numbers)
    returned = posting.queue.post_batch(requests, built)
    if returned.value:
        return f"ibv_wr_complete returned {errno_name(returned.value)}"
    return "a request was carried out before ibv_wr_complete" if early else posting.missing(requests, numbers)


def _aborted(posting: _Posting) -> str:
    numbers = range(_REQUESTS - 1)
    posting.queue.post_batch(posting.writes(numbers), lambda: False)
    return posting.executed(numbers, _REQUESTS - 1)


def _alternating(posting: _Posting) -> str:
    for _ in range(_ROUNDS):
        numbers = range(_REQUESTS // 2)
        requests = posting.writes(numbers)
        for first in (0, 2):
            returned = posting.queue.post_batch(requests[first : first + 1])
            returned = returned if returned.value else posting.queue.post_send(requests[first + 1])
            if returned.value:
                return f"a request was refused with {errno_name(returned.value)}"
        wrong = posting.missing(requests, numbers)
        if wrong:
            return wrong
        ctypes.memset(posting.addr, EMPTY, posting.length * len(numbers))
    return ""


def _reused(posting: _Posting) -> str:
    request = posting.write(0, SIGNALED | _INLINE)
    request = request._replace(sges=(request.sges[0]._replace(lkey=0),))

    def built() -> bool:
        ctypes.memset(posting.source.addr, EMPTY, posting.length)
        return True

    returned = posting.queue.post_batch((request,), built)
    if returned.value:
        return f"ibv_wr_complete returned {errno_name(returned.value)}"
    return posting.missing((request,), (0,))


def _whole_or_nothing(posting: _Posting, requests: Sequence[SendRequest], numbers: Sequence[int]) -> str:
    """Waits for a posting that may be refused, and describes the error unless all or none of its requests were carried
    out."""
    returned = posting.queue.post_batch(requests)
    return posting.executed(numbers, _REQUESTS - 1) if returned.value else posting.missing(requests, numbers)


def _too_many(posting: _Posting) -> str:
    count = posting.queue.capacity[0] + 1
    requests = [posting.write(each % (_REQUESTS - 1)) for each in range(count)]
    return _whole_or_nothing(posting, requests, range(_REQUESTS - 1))


def _too_many_elements(posting: _Posting) -> str:
    first, second = posting.writes((0, 1))
    return _whole_or_nothing(posting, (first, _split(second, *range(1, posting.queue.capacity[1] + 1))), (0, 1))


def _split(request: SendRequest, *at: int) -> SendRequest:
    """The request with its only SGE divided at these offsets."""
    (whole,) = request.sges
    parts = itertools.pairwise((0, *at, whole.length))
    return request._replace(sges=tuple(whole._replace(addr=whole.addr + a, length=b - a) for a, b in parts))


def _empty_element(posting: _Posting) -> str:
    requests = [_split(each, 8, 8) for each in posting.writes((0, 1))]
    returned = posting.queue.post_batch(requests)
    return errno_name(returned.value) if returned.value else posting.missing(requests, (0, 1))


def _too_long_inline(posting: _Posting) -> str:
    posting.length = posting.queue.capacity[2] + 1
    first = posting.write(0)
    return _whole_or_nothing(posting, (first, posting.write(1, SIGNALED | _INLINE)), (0, 1))


_BATCHES: dict[str, Callable[[_Posting], str]] = {
    "completed": _completed,
    "aborted": _aborted,
    "alternating": _alternating,
    "reused": _reused,
    "too_many": _too_many,
    "too_many_elements": _too_many_elements,
    "empty_element": _empty_element,
    "too_long_inline": _too_long_inline,
}


def create_qp_ex(context: CaseContext, step: Step) -> Observation:
    pd = context.pds[str(step.arguments["pd"])]
    returned = context.bench.create_qp_ex(pd, str(step.arguments["type"]), context.number(step.arguments["operations"]))
    name = errno_name(returned.value) if returned.value else ""
    return {"rc": returned.value, "returned": name or "0", "errno": name, "layer": "provider"}
