"""What is tried before any case, on pairs of the device itself, and what is found there.

SEND, RDMA WRITE and RDMA READ must work: the positive control of all refusals. Where nothing arrives anyway, as on a
device without loopback, every operation that must not be done would seem to be refused. What fails of that ends the
run. Of the rest (how a refusal shows, whether a pair works again after RESET, ibv_query_qp, further types of pairs) it
is found out what the device does, and the suite adapts. Not for judging the device.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace

from conformance.bench.calls import Pd, Sge, errno_name
from conformance.bench.interface import Bench
from conformance.bench.memory_areas import BEFORE, EMPTY, Area, Part, pattern, repeated
from conformance.bench.work_requests import NO_BYTES, Completion, Exchange, SendRequest
from conformance.errors import HarnessFailure, SetupRefused, UserError
from conformance.execution.connection import ERROR_STATE, SILENCE_S, ExchangeSpec, LoopbackConnection, state_of
from conformance.execution.harness_resources import HarnessResources
from conformance.model.expected_errors import DATAGRAM_HEADER
from conformance.model.preflight import NOT_OFFERED, WORKS, Findings
from conformance.verbs import ENUMS

_BYTES = 64
_RIGHTS = ENUMS["ibv_access_flags"].mask_of("REMOTE_WRITE", "REMOTE_READ")
_HINT = (
    "connect the port to itself or to a switch that returns its packets, name another GID with --gid-index, or another"
    " device with --peer"
)
_PEER_HINT = "connect both ports, or name another GID with --gid-index, or another --peer"
_PATH_HINT = "give the port's network interface an address, or name another GID with --gid-index"
# Types of pairs that a device may have beside RC, or instead of it.
_OTHERS = ("UC", "UD", "RC_SRQ")
_TRIES = 3  # of a message over an unreliable transport


def preflight(bench: Bench) -> Findings:
    """Returns what was found. Raises UserError (status 3) if what has to work does not.

    Of a device without reliable connections a message over another type has to work, if it has one.
    """
    pd = bench.alloc_pd()
    try:
        with ExitStack() as cleanup:
            return _Preflight(bench, HarnessResources(bench, {"pd": pd}, cleanup, []), pd).findings()
    finally:
        with suppress(Exception):  # the cases report what a device does not release
            pd.close()


class _Preflight:
    def __init__(self, bench: Bench, resources: HarnessResources, pd: Pd) -> None:
        self._bench, self._resources = bench, resources
        self._other = resources.scratch(pd, _BYTES, "other", _RIGHTS)
        self._closed = resources.scratch(pd, _BYTES, "closed")

    def findings(self) -> Findings:
        try:
            found = self._of_reliable(self._resources.connection("RC", "pd"))
        except SetupRefused as refused:
            if not refused.not_offered:
                raise UserError(f"the device cannot be tested: {refused}", hint=_PATH_HINT, status=3) from refused
            found = Findings({"RC": NOT_OFFERED})
        others = {kind: self._of_type(kind) for kind in _OTHERS}
        if NOT_OFFERED in found.pairs.values() and others["UD"] not in (WORKS, NOT_OFFERED):
            raise UserError(f"loopback does not work on this device: {others['UD']}", hint=_HINT, status=3)
        found = replace(found, pairs={**found.pairs, **others})
        self._bench.adapt(found)
        return found

    def _of_reliable(self, connection: LoopbackConnection) -> Findings:
        """What is found on a pair of type RC. Raises UserError."""
        failed = self._basics(connection)
        if failed and _has_peer(connection):
            raise UserError(f"nothing arrives from the peer: {failed}", hint=_PEER_HINT, status=3)
        if failed:
            raise UserError(f"loopback does not work on this device: {failed}", hint=_HINT, status=3)
        refused = self._refused_write(connection)
        tells_state = _tells_state(connection)
        found = Findings({"RC": WORKS}, refused, tells_state, tells_state)
        if connection.pair.renews_by_reset and tells_state:
            connection.renew_if_stale()
            if self._one_sided(connection, "RDMA_WRITE"):
                found = replace(found, renews_by_reset=False)
        self._bench.adapt(found)
        if not connection.pair.renews_by_reset:
            connection.stale = True
            failed = self._basics(connection)
            if failed:
                message = f"a pair that was made anew after a refusal does not work on this device: {failed}"
                raise UserError(message, hint="report this to the makers of the driver", status=3)
        return found

    def _basics(self, connection: LoopbackConnection) -> str:
        """Why a pair of type RC does not do what has to work; empty if it does."""
        connection.renew_if_stale()
        return (
            self._one_sided(connection, "RDMA_WRITE")
            or self._one_sided(connection, "RDMA_READ")
            or _sent(connection, self._own(connection), self._other)
        )

    def _own(self, connection: LoopbackConnection) -> Sge:
        """The requester's memory, which is on its device."""
        return self._resources.scratch(connection.pair.requester.pd, _BYTES, "own", _RIGHTS)

    def _of_type(self, kind: str) -> str:
        """Whether a message arrives over a pair of this type."""
        try:
            connection = self._resources.connection(kind, "pd")
        except SetupRefused as refused:
            return NOT_OFFERED if refused.not_offered else str(refused)
        failed = ""
        for _ in range(_TRIES):
            failed = _sent(connection, self._own(connection), self._other)
            if not failed:
                return WORKS
        return failed

    def _one_sided(self, connection: LoopbackConnection, opcode: str) -> str:
        """Why an operation of the requester on the responder's memory did not do all it should; empty if it did."""
        content, reads = pattern(_BYTES), opcode == "RDMA_READ"
        before = (content, repeated(EMPTY, _BYTES)) if reads else (repeated(BEFORE, _BYTES), content)
        exchange, target, local = self._exchange(connection, opcode, self._other, before)
        if exchange.returned.value:
            return f"an {opcode} could not be posted: {errno_name(abs(exchange.returned.value))}"
        arrived = (local if reads else target).content() == content
        return "" if exchange.succeeded and arrived else _described(opcode, exchange.completions)

    def _refused_write(self, connection: LoopbackConnection) -> str:
        """What becomes of an RDMA WRITE to memory that peers must not write."""
        before = (repeated(BEFORE, _BYTES), pattern(_BYTES))
        exchange, target, _ = self._exchange(connection, "RDMA_WRITE", self._closed, before)
        connection.stale = True
        if exchange.returned.value:
            return f"refused when posted, with {errno_name(abs(exchange.returned.value))}"
        statuses = " ".join(each.status for each in exchange.completions) or "no completion"
        return statuses if target.moved() == "nothing" else f"{statuses}, and its data arrived"

    def _exchange(
        self, connection: LoopbackConnection, opcode: str, other: Sge, before: tuple[bytes, bytes]
    ) -> tuple[Exchange, Area, Area]:
        """Executes a request on the memory `other`; `before` are the contents of it and of the requester's memory."""
        own = self._own(connection)
        target, local = (
            Area(Part(sge.addr, _BYTES), sge.addr, _BYTES, EMPTY, contents, pattern(_BYTES))
            for sge, contents in zip((other, own), before, strict=True)
        )
        request = SendRequest(opcode, 1, (own,), rkey=other.rkey, remote_addr=other.addr)
        try:
            return connection.execute(ExchangeSpec(connection, request, (target, local))), target, local
        except HarnessFailure as failure:
            raise UserError(f"the device cannot be tested: {failure}", hint=_HINT, status=3) from failure


def _has_peer(connection: LoopbackConnection) -> bool:
    """Whether the requester is on another device."""
    pair = connection.pair
    return pair.requester.pd.context_pointer != pair.responder.pd.context_pointer


def _sent(connection: LoopbackConnection, own: Sge, other: Sge) -> str:
    """Why a SEND to the responder did not arrive; empty if it did."""
    requester, responder = connection.pair.requester, connection.pair.responder
    header = DATAGRAM_HEADER if requester.kind == "UD" else 0
    content = pattern(_BYTES - header)
    ctypes.memmove(own.addr, content, len(content))
    ctypes.memset(other.addr, BEFORE, _BYTES)
    part = own._replace(length=len(content))
    for returned in (responder.post_receive((other,), 1), requester.post_send(SendRequest("SEND", 2, (part,)))):
        if returned.value:
            return f"a SEND or its receive could not be posted: {errno_name(abs(returned.value))}"
    found, received = requester.completions(1), responder.completions(1)
    arrived = ctypes.string_at(other.addr + header, len(content)) == content
    succeeded = [each.status for each in (*found, *received)] == ["SUCCESS", "SUCCESS"]
    return "" if succeeded and arrived else _described("SEND", [*found, *received])


def _tells_state(connection: LoopbackConnection) -> bool:
    """Whether ibv_query_qp tells the state of a responder that has refused a request.

    It is in the error state if a receive that is posted now is flushed or not taken: one was taken before.
    """
    pair = connection.pair
    told = state_of(pair, pair.responder)
    if told in (ERROR_STATE, ""):
        return bool(told)
    posted = pair.responder.post_receive(NO_BYTES, 3)
    failed = posted.value or [each.status for each in pair.responder.completions(1, SILENCE_S)] == ["WR_FLUSH_ERR"]
    return not failed


def _described(opcode: str, found: Sequence[Completion]) -> str:
    statuses = " and ".join(each.status for each in found)
    return f"{opcode} {f'completed with {statuses}' if found else 'gave no completion'}, and its data did not arrive"
