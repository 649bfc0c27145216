"""A pair of queue pairs in use: requests on it one after the other, and a new beginning after a refusal.

Behind each request goes a SEND of no bytes. When that has been received the request has had its chance, on
unreliable queue pairs too, and what it wrote is visible to the receiver. Not for memory (probes.py).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from conformance.bench import Pair, Queue
from conformance.calls import Return
from conformance.requests import Completion, SendRequest

# How long to wait for a peer that may have nothing to say, in seconds; both are in this machine.
SILENCE_S = 1.0
# The beginning of the statuses of errors that the other side has found, and that end its queue pair.
_FOUND_THERE = "REM_"
_FAILED = "ERR"
_RECEIVED_WITH_IMM = "RECV_RDMA_WITH_IMM"


@dataclass(frozen=True)
class Exchange:
    """What came of a request: of its posting, of itself, and at the other side."""

    returned: Return
    found: list[Completion] = field(default_factory=list)
    heard: list[Completion] = field(default_factory=list)

    @property
    def done(self) -> bool:
        """Whether the request completed with success."""
        return [each.status for each in self.found] == ["SUCCESS"]


class Line:
    """A pair that can be used again and again: renewed when the last request on it was refused."""

    def __init__(self, pair: Pair, next_wr_id: Callable[[], int], renewable: bool = True) -> None:
        self.pair = pair
        self.stale = False
        self._next_wr_id, self._renewable = next_wr_id, renewable
        self._receives: dict[int, int] = {}

    def ready(self) -> None:
        """Makes the pair new if it has to be."""
        if self.stale and self._renewable:
            self.pair.renew()
            self.stale = False
            self._receives.clear()

    def failed(self, *queues: Queue) -> None:
        """Requests of these have failed: the pair is used again only when they have come to rest.

        A queue pair that is still on its way to the error state when it is reset may arrive there afterwards.
        """
        self.stale = True
        for queue in queues:
            until = time.monotonic() + SILENCE_S
            while queue.query_state() != _FAILED and time.monotonic() < until:
                os.sched_yield()

    def ask(self, request: SendRequest, asker: Queue, other: Queue) -> Exchange:
        """Posts a request with a SEND of no bytes behind it, for which the other side has posted receives."""
        returned = self._post_receives(other, 2 if request.opcode == "RDMA_WRITE_WITH_IMM" else 1)
        returned = returned if returned.value else asker.post_send(request)
        if returned.value:
            return Exchange(returned)
        asker.post_send(SendRequest("SEND", self._next_wr_id(), flags=0))
        found = asker.completions(1)
        if [each.status for each in found] != ["SUCCESS"]:
            refused = bool(found) and found[0].status.startswith(_FOUND_THERE)
            heard = other.completions(1, SILENCE_S) if refused else []
            self.failed(asker, *((other,) if refused else ()))
            return Exchange(returned, found, heard)
        if asker.sq_sig_all:
            asker.completions(1)
        heard = self._hear(other)
        if heard and heard[0].opcode == _RECEIVED_WITH_IMM:
            heard += self._hear(other)
        return Exchange(returned, found, heard)

    def _post_receives(self, queue: Queue, count: int) -> Return:
        returned = Return(0, 0)
        while self._receives.get(queue.number, 0) < count and returned.value == 0:
            returned = queue.post_receive((), self._next_wr_id())
            self._receives[queue.number] = self._receives.get(queue.number, 0) + 1
        return returned

    def _hear(self, queue: Queue) -> list[Completion]:
        heard = queue.completions(1) if queue.kind == "RC" else queue.completions(1, SILENCE_S)
        self._receives[queue.number] -= len(heard)
        self.stale = self.stale or not heard
        return heard
