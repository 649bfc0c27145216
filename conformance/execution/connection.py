"""A connection: a pair of queue pairs in use, for one request after the other, and renewed after a refusal.

A SEND of no bytes is posted behind each request. Once it has been received, the request has been processed, on
unreliable queue pairs too, and what it wrote is visible to the receiver. Not for the memory of requests (traffic.py).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from conformance.bench.calls import Return
from conformance.bench.interface import Pair, Queue
from conformance.bench.memory_areas import Area
from conformance.bench.work_requests import Completion, Exchange, SendRequest
from conformance.device import native_exchange
from conformance.model.expected_errors import RELIABLE

# How long to wait for a completion that may not come, in seconds; both ends are in this machine.
SILENCE_S = 1.0
# Prefix of the statuses of errors that the other side has detected, which put its queue pair into the error state.
_FOUND_THERE = "REM_"
FAILED = "ERR"
# The type whose receives are in a shared receive queue, where they remain after an error of the queue pair.
_SHARED = "XRC"
_WITH_IMM = "RDMA_WRITE_WITH_IMM"
_RECEIVED_WITH_IMM = "RECV_RDMA_WITH_IMM"
REQUESTER, RESPONDER = range(2)


class Ask(NamedTuple):
    """A request by one end of a connection (REQUESTER or RESPONDER), and the memory of both sides.

    `areas` are filled before the request and compared afterwards.
    """

    connection: LoopbackConnection
    request: SendRequest
    areas: tuple[Area, Area]
    by: int = REQUESTER


class LoopbackConnection:
    """A pair that is renewed before it is used again after a refused request."""

    def __init__(self, pair: Pair, next_wr_id: Callable[[], int], renewable: bool = True) -> None:
        self.pair = pair
        self.stale = False
        self._next_wr_id, self._renewable = next_wr_id, renewable
        self._receives = [0, 0]  # posted and not yet used, at the requester and at the responder
        self._native: native_exchange.NativeConnection | None = None

    def ready(self) -> None:
        """Renews the pair if its last request was refused."""
        if self.stale and self._renewable:
            self.pair.renew()
            self.stale = False
            self._receives = [0, 0]

    def has_failed(self) -> bool:
        """Whether an end of the pair is in the error state, as after a request that was refused before."""
        return FAILED in (self.pair.requester.query_state(), self.pair.responder.query_state())

    def failed(self, *queues: Queue) -> None:
        """Marks the pair stale and waits until these queues, whose requests have failed, are in the error state.

        A queue pair that is reset while it changes to the error state may enter that state after the reset.
        """
        self.stale = True
        for queue in queues:
            until = time.monotonic() + SILENCE_S
            while queue.query_state() != FAILED and time.monotonic() < until:
                os.sched_yield()

    def ask(self, ask: Ask) -> Exchange:
        """Posts a request and a SEND of no bytes behind it, with the receives that they need at the other side.

        The connection is made ready before. If anything failed, its queues are in their final state afterwards.
        """
        self.ready()
        asker, other = self._ends(ask.by)
        for area in ask.areas:
            area.fill()
        exchange = self._exchange(ask, asker, other, _receives(ask.request) - self._receives[not ask.by])
        standing = max(_receives(ask.request), self._receives[not ask.by])
        self._receives[not ask.by] = standing - len(exchange.heard)
        if not exchange.done and not exchange.returned.value:
            self.failed(asker, *((other,) if _found_there(exchange.found) else ()))
        wanted = 2 if exchange.heard and exchange.heard[0].opcode == _RECEIVED_WITH_IMM else 1
        moved = all(area.moved() == "all" for area in ask.areas)
        received = len(exchange.heard) >= wanted and all(each.status == "SUCCESS" for each in exchange.heard)
        if exchange.done and moved and received:
            return exchange
        self.stale = True
        return exchange._replace(rested=self.pair.responder.query_state())

    def _ends(self, by: int) -> tuple[Queue, Queue]:
        pair = self.pair
        return (pair.requester, pair.responder) if by == REQUESTER else (pair.responder, pair.requester)

    def _exchange(self, ask: Ask, asker: Queue, other: Queue, receives: int) -> Exchange:
        """The request, the SEND behind it, and the completions of both sides."""
        returned = Return(0, 0)
        while receives > 0 and returned.value == 0:
            returned = other.post_receive((), self._next_wr_id())
            receives -= 1
        returned = returned if returned.value else asker.post_send(ask.request)
        if returned.value:
            return Exchange(returned)
        asker.post_send(SendRequest("SEND", self._next_wr_id(), flags=0))
        found = asker.completions(1)
        if [each.status for each in found] != ["SUCCESS"]:
            flushed = _found_there(found) and other.kind != _SHARED
            return Exchange(returned, found, other.completions(1, SILENCE_S) if flushed else [])
        # A completion makes the asker's own memory visible to it; one with immediate data, the other side's.
        late = ask.areas[not ask.by].moved() != "all"
        if asker.sq_sig_all:
            asker.completions(1)
        heard = self._hear(other)
        if heard and heard[0].opcode == _RECEIVED_WITH_IMM:
            late = late or ask.areas[ask.by].moved() != "all"
            heard += self._hear(other)
        return Exchange(returned, found, heard, late=late)

    def _hear(self, queue: Queue) -> list[Completion]:
        return queue.completions(1) if queue.kind in RELIABLE else queue.completions(1, SILENCE_S)

    def native(self) -> native_exchange.NativeConnection | None:
        """This connection for exchanges in C, in its present state; None where C cannot make them."""
        if self._native is None or not self._native.stands_for(self.pair):
            self._native = native_exchange.native_connection(self.pair, SILENCE_S, self._renewable)
        if self._native is not None:
            self._native.state = self.stale, self._receives
        return self._native

    def learn(self) -> None:
        """Takes over the state that the connection has after exchanges in C."""
        if self._native is not None:
            self.stale, self._receives = self._native.state


def exchanges(asks: Sequence[Ask]) -> Iterator[Exchange]:
    """The exchange of each request, in their order.

    Where C makes them, several are made before the first is yielded. The memory of an exchange that must be compared
    stays as it is until the next exchange is taken.
    """
    done = 0
    while done < len(asks):
        made = _in_c(asks[done : done + native_exchange.MOST]) or [asks[done].connection.ask(asks[done])]
        yield from made
        done += len(made)


def _in_c(asks: Sequence[Ask]) -> list[Exchange]:
    """The exchanges of the first of these, as many as C makes in one call; none where C cannot make the first."""
    connections: dict[LoopbackConnection, native_exchange.NativeConnection] = {}
    asked: list[native_exchange.Asked] = []
    for connection, request, areas, by in asks:
        if not native_exchange.takes(request):
            break
        known = connections.get(connection) or connection.native()
        if known is None:
            break
        connections[connection] = known
        asked.append((known, by, _receives(request), request, areas))
    if not asked:
        return []
    made = native_exchange.exchanges(asked)
    for connection in connections:
        connection.learn()
    return made


def _receives(request: SendRequest) -> int:
    """How many receives a request and the SEND behind it use."""
    return 2 if request.opcode == _WITH_IMM else 1


def _found_there(found: Sequence[Completion]) -> bool:
    """Whether the other side has detected the error."""
    return bool(found) and found[0].status.startswith(_FOUND_THERE)
