"""A pair of queue pairs in use: requests on it one after the other, and a new beginning after a refusal.

Behind each request goes a SEND of no bytes. When that has been received the request has had its chance, on
unreliable queue pairs too, and what it wrote is visible to the receiver. Not for memory (probes.py).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from conformance.bench import Pair, Queue
from conformance.calls import Return
from conformance.quick import Quick, quick
from conformance.refusals import RELIABLE
from conformance.requests import Completion, Exchange, SendRequest
from conformance.targets import Area

# How long to wait for a peer that may have nothing to say, in seconds; both are in this machine.
SILENCE_S = 1.0
# The beginning of the statuses of errors that the other side has found, and that end its queue pair.
_FOUND_THERE = "REM_"
_FAILED = "ERR"
# Whose receives are in a shared queue, where an error of the queue pair leaves them.
_SHARED = "XRC"
_RECEIVED_WITH_IMM = "RECV_RDMA_WITH_IMM"


class Line:
    """A pair that can be used again and again: renewed when the last request on it was refused."""

    def __init__(self, pair: Pair, next_wr_id: Callable[[], int], renewable: bool = True) -> None:
        self.pair = pair
        self.stale = False
        self._next_wr_id, self._renewable = next_wr_id, renewable
        self._receives: dict[int, int] = {}
        self._quick: dict[Queue, Quick] = {}

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

    def ask(self, request: SendRequest, asker: Queue, other: Queue, areas: tuple[Area, Area]) -> Exchange:
        """Posts a request with a SEND of no bytes behind it, for which the other side has posted receives.

        The areas are filled before.
        """
        exchange = self._exchange(request, asker, other, areas)
        if exchange.returned.value:
            return exchange
        if not exchange.done:
            self.failed(asker, *((other,) if _found_there(exchange.found) else ()))
            return exchange
        wanted = 2 if exchange.heard and exchange.heard[0].opcode == _RECEIVED_WITH_IMM else 1
        self.stale = self.stale or len(exchange.heard) < wanted
        return exchange

    def _exchange(self, request: SendRequest, asker: Queue, other: Queue, areas: tuple[Area, Area]) -> Exchange:
        """The request, the SEND behind it, and the completions of both sides."""
        receives = 2 if request.opcode == "RDMA_WRITE_WITH_IMM" else 1
        posted = self._receives.get(other.number, 0)
        quicker = self._quick.get(asker) or quick(asker, other, SILENCE_S)
        if quicker and quicker.takes(request):
            self._quick[asker] = quicker
            exchange = quicker.exchange(request, max(0, receives - posted), areas)
        else:
            for area in areas:
                area.fill()
            exchange = self._in_steps(request, asker, other, max(0, receives - posted))
        self._receives[other.number] = max(receives, posted) - len(exchange.heard)
        return exchange

    def _in_steps(self, request: SendRequest, asker: Queue, other: Queue, receives: int) -> Exchange:
        returned = Return(0, 0)
        while receives and returned.value == 0:
            returned = other.post_receive((), self._next_wr_id())
            receives -= 1
        returned = returned if returned.value else asker.post_send(request)
        if returned.value:
            return Exchange(returned)
        asker.post_send(SendRequest("SEND", self._next_wr_id(), flags=0))
        found = asker.completions(1)
        if [each.status for each in found] != ["SUCCESS"]:
            tells = _found_there(found) and other.kind != _SHARED
            return Exchange(returned, found, other.completions(1, SILENCE_S) if tells else [])
        if asker.sq_sig_all:
            asker.completions(1)
        heard = self._hear(other)
        if heard and heard[0].opcode == _RECEIVED_WITH_IMM:
            heard += self._hear(other)
        return Exchange(returned, found, heard)

    def _hear(self, queue: Queue) -> list[Completion]:
        return queue.completions(1) if queue.kind in RELIABLE else queue.completions(1, SILENCE_S)


def _found_there(found: Sequence[Completion]) -> bool:
    """Whether the other side has found the error."""
    return bool(found) and found[0].status.startswith(_FOUND_THERE)
