"""Executes requests on a loopback connection: one request at a time, on two queue pairs that are renewed after errors.

A SEND of zero bytes follows each request. When the peer has received the SEND, the request has been executed (on
unreliable queue pairs too), and the data that the request wrote are in memory. If neither end has responded to a
request, a further message tests whether the connection works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from conformance.bench.calls import ABSENT, Sge, errno_name
from conformance.bench.interface import Pair, Queue
from conformance.bench.lingering import FLUSH, MESSAGE, SHORT_S, Refusal
from conformance.bench.memory_areas import Area
from conformance.bench.work_requests import BEHIND, NO_BYTES, Completion, Exchange, SendRequest
from conformance.device import native_exchange
from conformance.errors import HarnessFailure, LoopbackLost
from conformance.model.deadline import Wait
from conformance.model.expected_errors import RELIABLE
from conformance.older_python import zip

# Seconds to wait for a completion that may be missing. One second suffices, because both ends are usually on this host.
SILENCE_S = 1.0
# Completion statuses with this prefix report an error that the peer has detected: the peer's queue pair is then in the
# error state, too.
_REMOTE_ERROR = "REM_"
# The prefixes of other statuses that prove a response: LOC_ and MW_ of the initiator's device, and RNR_ of a peer that
# is not ready to receive.
_OTHER_RESPONSES = ("LOC_", "MW_", "RNR_")
# The maximum number of times that a message is sent if an unreliable transport loses it.
MOST_TRIES = 3
ERROR_STATE = "ERR"
# The types of queue pairs with a shared receive queue. An error of the queue pair does not flush shared receives.
_SHARED_RECEIVES = ("XRC", "RC_SRQ")
_WITH_IMM = "RDMA_WRITE_WITH_IMM"
_RECEIVED_WITH_IMM = "RECV_RDMA_WITH_IMM"
REQUESTER, RESPONDER = range(2)


class ExchangeSpec(NamedTuple):
    """An exchange to execute: the request, the end that posts the request (REQUESTER or RESPONDER), and the areas of
    the responder and of the requester. Both areas are filled before the request is posted and compared afterwards. If
    `failed`, waits are short, because an end is in the error state already."""

    connection: LoopbackConnection
    request: SendRequest
    areas: tuple[Area, Area]
    initiator: int = REQUESTER
    failed: bool = False


def state_of(pair: Pair, queue: Queue) -> str:
    """Returns the state that ibv_query_qp reports for an end, or "" if the device reports no states. Raises OSError."""
    if not pair.tells_state:
        return ""
    try:
        return queue.query_state()
    except OSError as error:
        if error.errno in ABSENT:
            return ""
        raise


def post_receives(queue: Queue, wr_ids: Sequence[int], sges: Sequence[Sge] = NO_BYTES) -> None:
    """Posts receives that the harness needs, by default of zero bytes. Raises HarnessFailure if the device refuses
    them."""
    for wr_id in wr_ids:
        refused = queue.post_receive(sges, wr_id).value
        if refused:
            raise HarnessFailure(
                f"a receive of the harness on a queue pair of type {queue.kind} was refused with {errno_name(refused)}",
            )


class LoopbackConnection:
    """A pair of queue pairs. If a request fails, the pair is `stale`, and is renewed before the next request."""

    def __init__(
        self,
        pair: Pair,
        next_wr_id: Callable[[], int],
        renewable: bool = True,
        control: Callable[[], LoopbackConnection] | None = None,
    ) -> None:
        """`renewable` is false if a case depends on the state of the pair. `check_response` then tests `control`, a
        separate connection of the same type."""
        self.pair = pair
        # the responder's memory for receiving a message of zero bytes
        self.sink: Sequence[Sge] = NO_BYTES
        self.stale = False
        self._next_wr_id, self._renewable = next_wr_id, renewable
        self._control = control or (lambda: self)
        # receives that are posted but not consumed, at the requester and at the responder
        self._receives = [0, 0]
        self._native: native_exchange.NativeConnection | None = None
        self._renewal: native_exchange.NativeConnection | None = None
        self._error_s = SILENCE_S  # seconds to wait for the error state and for flushed receives

    def renew_if_stale(self) -> None:
        """Renews the pair if it is stale and `renewable`."""
        if self.stale and self._renewable:
            if not self._renewed_by_c():
                self.pair.renew()
            self.stale = False
            self._receives = [0, 0]

    def _renewed_by_c(self) -> bool:
        """Renews the pair by exchange.c. Returns whether it could."""
        if not self.pair.renews_by_reset:
            return False
        if self._renewal is None or not self._renewal.uses(self.pair):
            self._renewal = native_exchange.native_renewal(self.pair, SILENCE_S)
        return self._renewal is not None and self._renewal.renew()

    def has_failed(self) -> bool:
        """Whether an end of the pair is in the error state, for example after a refused request."""
        return ERROR_STATE in (
            state_of(self.pair, end) for end in (self.pair.requester, self.pair.responder)
        )

    def mark_failed(self, opcode: str, completions: Sequence[Completion], *queues: Queue) -> None:
        """Marks the pair stale after a failed request, and waits until `queues` are in the error state. `opcode` is the
        opcode of the failed request, and `completions` are its completions. The wait is needed because a queue pair that is
        reset during its transition to the error state may enter the error state after the reset."""
        self.stale = True
        for number, queue in enumerate(queues):
            self._await_error(queue, (opcode, completions[0].status if completions else "", number))

    def _await_error(self, queue: Queue, refusal: Refusal) -> None:
        """Waits for the error state of a queue pair. Waits only briefly if the state was missing after an earlier
        refusal.

        The InfiniBand specification requires the error state after every refusal. If one error state is missing, others
        are probably missing too, so the connection makes all further waits short. On other transports, the state
        depends on the driver and on the kind of refusal, so only waits after refusals of the same kind become short.
        """
        lingering = self.pair.lingering
        wait = Wait(lingering.wait_s(refusal, self._error_s))
        while state_of(self.pair, queue) not in (ERROR_STATE, ""):
            if wait.over():
                if self.pair.transport.iba:
                    self._error_s = SHORT_S
                else:
                    lingering.missed(refusal)
                return

    def execute(self, spec: ExchangeSpec) -> Exchange:
        """Renews the connection if it is stale, posts the peer's receives, the request and the SEND after the request,
        and returns the results (see `settled`)."""
        self.renew_if_stale()
        initiator, peer = self._ends(spec.initiator)
        for area in spec.areas:
            area.fill()
        needed, posted = _receives(spec.request), self._receives[not spec.initiator]
        exchange = self._post_and_wait(spec, initiator, peer, needed - posted)
        self._receives[not spec.initiator] = max(needed, posted) - len(exchange.peer_completions)
        return self.settled(spec, exchange)

    def settled(self, spec: ExchangeSpec, exchange: Exchange) -> Exchange:
        """Returns the exchange. If the request failed, first waits for the error state of the initiator, and of the
        peer if the peer has detected the error. If anything failed, adds the responder's state."""
        initiator, peer = self._ends(spec.initiator)
        completions = exchange.completions
        if not exchange.succeeded and not exchange.returned.value:
            ends = [] if spec.failed else [initiator]
            if ends and _detected_by_peer(completions):
                ends.append(peer)
            self.mark_failed(spec.request.opcode, completions, *ends)
        received = exchange.peer_completions
        if received and received[0].opcode == _RECEIVED_WITH_IMM:
            expected = 2
        else:
            expected = 1
        moved = all(area.moved() == "all" for area in spec.areas)
        all_received = len(received) >= expected and all(
            completion.status == "SUCCESS" for completion in received
        )
        if exchange.succeeded and moved and all_received:
            return exchange
        self.stale = True
        return exchange._replace(responder_state=state_of(self.pair, self.pair.responder))

    def check_response(
        self,
        completions: Sequence[Completion],
        received: Sequence[Completion],
        opcode: str,
    ) -> None:
        """Checks that an end has responded to a request, or else that the connection still delivers a message. `completions`
        are the request's completions, and `received` are the peer's. Raises LoopbackLost if neither end has responded
        and the message is lost."""
        if not _has_response(completions, received, self.pair, opcode):
            self._control().check_alive()
            self.pair.lingering.missed(self._silent())

    def check_alive(self) -> None:
        """Renews the pair if it is stale, and sends a message of zero bytes. Raises LoopbackLost if the message is
        lost."""
        self.renew_if_stale()
        requester, responder = self.pair.requester, self.pair.responder
        completions: list[Completion] = []
        for _ in range(1 if requester.kind in RELIABLE else MOST_TRIES):
            if not self._receives[RESPONDER]:
                post_receives(responder, [self._next_wr_id()], self.sink)
                self._receives[RESPONDER] += 1
            sent = requester.post_send(SendRequest("SEND", self._next_wr_id()))
            if not sent.value:
                completions = requester.completions(1)
            else:
                completions = []
            if _succeeded(completions):
                received = self._await_receive(responder)
            else:
                received = []
            self._receives[RESPONDER] -= len(received)
            if _succeeded(received):
                return
        self.stale = True
        if completions:
            seen = f" and completed with {completions[0].status}"
        else:
            seen = ""
        raise LoopbackLost(
            f"a queue pair of type {requester.kind} no longer delivers messages to its peer: a SEND that must"
            f" arrive was posted{seen}, but did not arrive",
        )

    def _ends(self, initiator: int) -> tuple[Queue, Queue]:
        """Returns the queue that posts the request, and the peer's queue."""
        pair = self.pair
        if initiator == REQUESTER:
            return (pair.requester, pair.responder)
        return (pair.responder, pair.requester)

    def _post_and_wait(
        self,
        spec: ExchangeSpec,
        initiator: Queue,
        peer: Queue,
        receives: int,
    ) -> Exchange:
        """Posts `receives` receives, the request and the SEND after the request. Waits for the completions of both
        ends."""
        post_receives(peer, [self._next_wr_id() for _ in range(receives)])
        returned = initiator.post_send(spec.request)
        if returned.value:
            return Exchange(returned)
        if initiator.sq_sig_all:
            behind = self._next_wr_id()
        else:
            behind = spec.request.wr_id | BEHIND
        initiator.post_send(SendRequest("SEND", behind, flags=0))
        # If the SEND after the request completes first, the request has no completion.
        if spec.failed:
            completions = initiator.completions(1, SHORT_S)
        else:
            completions = initiator.completions(1)
        completions = [completion for completion in completions if completion.wr_id != behind]
        if [completion.status for completion in completions] != ["SUCCESS"]:
            flushed = _detected_by_peer(completions) and peer.kind not in _SHARED_RECEIVES
            if flushed:
                refusal = (spec.request.opcode, completions[0].status, FLUSH)
            else:
                refusal = None
            return Exchange(
                returned, completions, self._await_flush(peer, refusal) if refusal else []
            )
        # After a send completion, the initiator's memory must be up to date. After a receive completion with immediate
        # data, the peer's memory must be up to date.
        late = spec.areas[not spec.initiator].moved() != "all"
        if initiator.sq_sig_all:
            initiator.completions(1)
        # If the transport does not acknowledge a request, its success does not mean that the peer has taken it, and a
        # shared receive queue keeps its receives when the peer refuses it.
        acknowledged = self.pair.transport.acknowledges(spec.request.opcode)
        certain = acknowledged or peer.kind not in _SHARED_RECEIVES
        received = self._await_receive(peer, self._message_s(), certain)
        if received and received[0].opcode == _RECEIVED_WITH_IMM:
            late = late or spec.areas[spec.initiator].moved() != "all"
            received += self._await_receive(peer, certain=certain)
        return Exchange(returned, completions, received, late=late)

    def _await_flush(self, peer: Queue, refusal: Refusal) -> list[Completion]:
        """Returns the completion of the receive that the peer's error state flushes. Waits only briefly if no receive
        was flushed after an earlier refusal."""
        lingering = self.pair.lingering
        flushed = peer.completions(1, lingering.wait_s(refusal, self._error_s))
        if not flushed:
            lingering.missed(refusal)
        return flushed

    def _await_receive(
        self,
        queue: Queue,
        silence_s: float = SILENCE_S,
        certain: bool = True,
    ) -> list[Completion]:
        if certain and queue.kind in RELIABLE:
            return queue.completions(1)
        return queue.completions(1, silence_s)

    def _message_s(self) -> float:
        """Returns how long to wait for the SEND behind a request, in seconds. On an unreliable connection, a refused
        request may end the connection in silence."""
        return self.pair.lingering.wait_s(self._silent(), SILENCE_S)

    def _silent(self) -> Refusal:
        return (self.pair.responder.kind, "", MESSAGE)

    def native(self) -> native_exchange.NativeConnection | None:
        """Returns this connection for exchanges in C, or None if exchange.c cannot use this connection."""
        if not self.pair.renews_by_reset:
            self.renew_if_stale()  # exchange.c renews a pair only by RESET
        if self._native is None or not self._native.uses(self.pair):
            self._native = native_exchange.native_connection(self.pair, SILENCE_S, self._renewable)
        if self._native is not None:
            self._native.state = self.stale, self._receives
            flush_s = self.pair.lingering.flush_s(SILENCE_S)
            self._native.be_patient(self._message_s(), flush_s)
        return self._native

    def leaves_settling(self, exchange: Exchange) -> bool:
        """Whether `settled` has to wait for the final states after the last exchange of exchange.c."""
        return (
            not self.pair.renews_by_reset and not exchange.succeeded and not exchange.returned.value
        )

    def learn(self, spec: ExchangeSpec, exchange: Exchange) -> None:
        """Remembers that the peer's receive was not flushed in time after an exchange in C."""
        completions = exchange.completions
        if _detected_by_peer(completions) and not exchange.peer_completions:
            self.pair.lingering.missed((spec.request.opcode, completions[0].status, FLUSH))

    def update_from_native(self) -> None:
        """Copies the state of the connection after exchanges in C."""
        if self._native is not None:
            self.stale, self._receives = self._native.state


def exchanges(specs: Sequence[ExchangeSpec]) -> Iterator[Exchange]:
    """Executes the exchanges in their order and yields their results. exchange.c may execute several exchanges before
    the first result is yielded. exchange.c stops after an exchange whose memory Python has to examine, so this memory
    does not change until the caller requests the next result. Raises HarnessFailure."""
    done = 0
    while done < len(specs):
        batch = _native_exchanges(specs[done : done + native_exchange.MAX_BATCH])
        batch = batch or [specs[done].connection.execute(specs[done])]
        for spec, exchange in zip(specs[done:], batch, strict=False):
            if not exchange.returned.value:
                spec.connection.check_response(
                    exchange.completions,
                    exchange.peer_completions,
                    spec.request.opcode,
                )
            yield exchange
        done += len(batch)


def _native_exchanges(specs: Sequence[ExchangeSpec]) -> list[Exchange]:
    """Executes exchanges in C, up to the first exchange that exchange.c cannot execute. Returns the results."""
    connections: dict[LoopbackConnection, native_exchange.NativeConnection] = {}
    batch: list[native_exchange.NativeSpec] = []
    for connection, request, areas, initiator, failed in specs:
        if failed or not native_exchange.can_post(request):
            break
        native = connections.get(connection) or connection.native()
        if native is None:
            break
        connections[connection] = native
        batch.append((native, initiator, _receives(request), request, areas))
    if not batch:
        return []
    results = native_exchange.exchanges(batch)
    for connection in connections:
        connection.update_from_native()
    for spec, result in zip(specs, results, strict=False):
        spec.connection.learn(spec, result)
    if results and (last := specs[len(results) - 1]).connection.leaves_settling(results[-1]):
        results[-1] = last.connection.settled(last, results[-1])
    return results


def _receives(request: SendRequest) -> int:
    """Returns the number of receives that a request and the SEND after the request consume."""
    if request.opcode == _WITH_IMM:
        return 2
    return 1


def _succeeded(completions: Sequence[Completion]) -> bool:
    return bool(completions) and completions[0].status == "SUCCESS"


def _has_response(
    completions: Sequence[Completion],
    received: Sequence[Completion],
    pair: Pair,
    opcode: str,
) -> bool:
    """Whether the completions show that the initiator's device or the peer has responded to a request."""
    if _succeeded(received):  # the SEND after the request was delivered
        return True
    if _succeeded(completions):
        return pair.requester.kind in RELIABLE and pair.transport.acknowledges(opcode)
    return bool(completions) and completions[0].status.startswith(
        (_REMOTE_ERROR, *_OTHER_RESPONSES)
    )


def _detected_by_peer(completions: Sequence[Completion]) -> bool:
    """Whether the first completion reports an error that the peer has detected."""
    return bool(completions) and completions[0].status.startswith(_REMOTE_ERROR)
