"""Tests the device before the first case, on queue pairs in loopback or between the device and its peer.

A message of zero bytes must arrive: this is the positive control of all refusals. On a device without loopback, for
example, nothing would arrive, and every operation that must not be executed would seem to be refused. The run stops if
this message fails, if neither end responds to a later request, or if a new pair fails after a refusal. All else is only
recorded: the outcomes of SEND, RDMA WRITE and RDMA READ, the status of a refused RDMA WRITE, whether a pair works after
RESET, the results of ibv_query_qp, and the types of queue pairs. The suite adapts to them, and cases judge failures.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import NamedTuple

from conformance.bench.calls import Sge, errno_name
from conformance.bench.interface import Bench
from conformance.bench.memory_areas import BEFORE, EMPTY, Area, Part, pattern, repeated
from conformance.bench.work_requests import NO_BYTES, Completion, Exchange, SendRequest
from conformance.device.limits import LIMIT_HINT, lockable
from conformance.device.queue_pairs import QUEUE_DEPTH
from conformance.errors import HarnessFailure, SetupRefused, UserError
from conformance.execution.connection import (
    ERROR_STATE,
    SILENCE_S,
    ExchangeSpec,
    LoopbackConnection,
    state_of,
)
from conformance.execution.context import HarnessResources
from conformance.execution.offered import domain
from conformance.model.expected_errors import DATAGRAM_HEADER
from conformance.model.preflight import NOT_OFFERED, WORKS, Findings
from conformance.older_python import zip
from conformance.verbs import ENUMS

_BYTES = 64
_RIGHTS = ENUMS["ibv_access_flags"].mask_of("REMOTE_WRITE", "REMOTE_READ")
_HINT = (
    "connect the port to itself or to a switch that returns its packets, select another GID with --gid-index, or"
    " select another device with --peer"
)
_PEER_HINT = (
    "connect both ports, select another GID with --gid-index, or select another device with --peer"
)
_MEMORY_HINT = "free memory, or stop other programs that use the device: a limit on locked memory is not the reason"
_PATH_HINT = (
    "add an address to the port's network interface, or select another GID with --gid-index"
)
# Types of pairs that a device may have besides RC, or instead of RC.
_OTHERS = ("UC", "UD", "RC_SRQ")
_RESETS = 3  # how often a pair is reset, with as many messages between as its queues hold
_TRIES = 3  # how often a message is sent at most over an unreliable transport
# The operations that must work on a pair of type RC.
_OPERATIONS = ("RDMA_WRITE", "RDMA_READ", "SEND")
_NO_RESPONSE = ("RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR")


class _Outcome(NamedTuple):
    """The outcome of an operation. `failed` describes the error; it is empty after a success. If `responded`, an end
    has responded, so the cause of an error is the device, not the path. If `lost`, only one end has a completion, with
    SUCCESS: the message was probably lost, and a repetition may succeed."""

    failed: str = ""
    responded: bool = True
    lost: bool = False


_DONE = _Outcome()


def preflight(bench: Bench) -> Findings:
    """Returns the findings. Raises UserError (status 3) if the device cannot be tested. If it does not offer RC, a
    message of 24 bytes over UD must get a response; if it does not offer UD either, no message is required."""
    with domain(bench) as pd, ExitStack() as cleanup:
        return _Preflight(bench, {"pd": pd}, cleanup, []).findings()


class _Preflight(HarnessResources):
    def findings(self) -> Findings:
        # the weakest assumption, until RESET is tested
        self.bench.adapt(Findings(renews_by_reset=False))
        try:
            findings = self._of_reliable(self.connection("RC", "pd"))
        except SetupRefused as refused:
            _check_limit(refused)
            if not refused.not_offered:
                if refused.code == "ENOMEM":
                    hint = _MEMORY_HINT
                else:
                    hint = _PATH_HINT
                raise UserError(
                    f"the device cannot be tested: {refused}",
                    hint=hint,
                    status=3,
                ) from refused
            findings = Findings({"RC": NOT_OFFERED})
        by_type = {kind: self._of_type(kind) for kind in _OTHERS}
        if NOT_OFFERED in findings.pairs.values() and not by_type["UD"].responded:
            raise UserError(
                f"loopback does not work on this device: {by_type['UD'].failed}",
                hint=_HINT,
                status=3,
            )
        findings = replace(
            findings,
            pairs={
                **findings.pairs,
                **{kind: finding.failed or WORKS for kind, finding in by_type.items()},
            },
        )
        self.bench.adapt(findings)
        return findings

    def _of_reliable(self, connection: LoopbackConnection) -> Findings:
        """Returns the findings on a pair of type RC. Raises UserError."""
        _check(connection, _sent(connection))
        operations = {opcode: self._operation(connection, opcode) for opcode in _OPERATIONS}
        refused = self._refused_write(connection)
        tells_state = _tells_state(connection)
        findings = Findings({"RC": WORKS}, operations, refused, tells_state, tells_state)
        self.bench.adapt(findings)
        if connection.pair.renews_by_reset and not self._works_after_reset(connection, operations):
            findings = replace(findings, renews_by_reset=False)
            self.bench.adapt(findings)
        if not connection.pair.renews_by_reset and (
            failed := self._fails_after_renewal(connection, operations)
        ):
            message = f"a new pair after a refused request does not work on this device: {failed}"
            raise UserError(message, hint="report this to the developers of the driver", status=3)
        return findings

    def _works_after_reset(
        self,
        connection: LoopbackConnection,
        operations: Mapping[str, str],
    ) -> bool:
        """Whether a pair can be used again after RESET: also if its queues have wrapped between, which changes a bit of
        the doorbells of some devices, and if the event of an error before RESET is read after it, at which some
        libraries flush the queue pair. A pair that had to be created again was not reset."""
        for _ in range(_RESETS):
            for _ in range(QUEUE_DEPTH):
                if not connection.stale and _sent(connection).failed:
                    return False
            before = connection.pair.responder
            if self._fails_after_renewal(connection, operations):
                return False
            if connection.pair.responder is not before:
                return False
            for queue in (connection.pair.responder, connection.pair.requester):
                queue.events()
            if _sent(connection).failed:
                return False
        return True

    def _fails_after_renewal(
        self,
        connection: LoopbackConnection,
        operations: Mapping[str, str],
    ) -> str:
        """Renews the pair. Returns why the pair no longer works as before, or an empty text."""
        connection.stale = True
        connection.renew_if_stale()
        failed = _sent(connection).failed
        for opcode, before in operations.items():
            if not failed and before == WORKS:
                failed = self._tried(connection, opcode).failed
        return failed

    def _operation(self, connection: LoopbackConnection, opcode: str) -> str:
        """Returns WORKS, or the failure of an operation that must work. Raises UserError if neither end responds."""
        connection.renew_if_stale()
        try:
            outcome = self._tried(connection, opcode)
        except SetupRefused as refused:
            _check_limit(refused)
            return str(refused)
        _check(connection, outcome)
        connection.stale = connection.stale or bool(outcome.failed)
        return outcome.failed or WORKS

    def _tried(self, connection: LoopbackConnection, opcode: str) -> _Outcome:
        if opcode == "SEND":
            return _sent(connection, self._own(connection), self._other())
        return self._one_sided(connection, opcode)

    def _other(self) -> Sge:
        """Returns registered memory of the responder. Raises SetupRefused."""
        return self.scratch(self.pds["pd"], _BYTES, "other", _RIGHTS)

    def _own(self, connection: LoopbackConnection) -> Sge:
        """Returns registered memory of the requester. Raises SetupRefused."""
        return self.scratch(connection.pair.requester.pd, _BYTES, "own", _RIGHTS)

    def _of_type(self, kind: str) -> _Outcome:
        """Returns the outcome of a message over a pair of this type."""
        try:
            connection = self.connection(kind, "pd")
            element, other = self._own(connection), self._other()
        except SetupRefused as refused:
            _check_limit(refused)
            return _Outcome(NOT_OFFERED if refused.not_offered else str(refused))
        outcome = _DONE
        for _ in range(_TRIES):
            outcome = _sent(connection, element, other)
            if not outcome.lost:
                break
        return outcome

    def _one_sided(self, connection: LoopbackConnection, opcode: str) -> _Outcome:
        """Returns the outcome of an operation of the requester on the responder's memory."""
        content, reads = pattern(_BYTES), opcode == "RDMA_READ"
        if reads:
            before = (content, repeated(EMPTY, _BYTES))
        else:
            before = (repeated(BEFORE, _BYTES), content)
        exchange, target, local = self._exchange(connection, opcode, self._other(), before)
        if exchange.returned.value:
            return _Outcome(
                f"an {opcode} could not be posted: {errno_name(abs(exchange.returned.value))}",
            )
        arrived = (local if reads else target).content() == content
        if exchange.succeeded and arrived:
            return _DONE
        return _Outcome(_described(opcode, exchange.completions), _responded(exchange.completions))

    def _refused_write(self, connection: LoopbackConnection) -> str:
        """Returns the outcome of an RDMA WRITE to memory without REMOTE_WRITE."""
        before = (repeated(BEFORE, _BYTES), pattern(_BYTES))
        try:
            closed = self.scratch(self.pds["pd"], _BYTES, "closed")
            exchange, target, _ = self._exchange(connection, "RDMA_WRITE", closed, before)
        except SetupRefused as refused:
            return str(refused)
        connection.stale = True
        if exchange.returned.value:
            return f"refused when posted, with {errno_name(abs(exchange.returned.value))}"
        statuses = (
            " ".join(completion.status for completion in exchange.completions) or "no completion"
        )
        if target.moved() == "nothing":
            return statuses
        return f"{statuses}, and its data arrived"

    def _exchange(
        self,
        connection: LoopbackConnection,
        opcode: str,
        other: Sge,
        before: tuple[bytes, bytes],
    ) -> tuple[Exchange, Area, Area]:
        """Executes a request on `other`. `before` has the initial contents of `other` and of the requester's memory."""
        element = self._own(connection)
        target, local = (
            Area(Part(sge.addr, _BYTES), sge.addr, _BYTES, EMPTY, contents, pattern(_BYTES))
            for sge, contents in zip((other, element), before, strict=True)
        )
        request = SendRequest(opcode, 1, (element,), rkey=other.rkey, remote_addr=other.addr)
        try:
            return (
                connection.execute(ExchangeSpec(connection, request, (target, local))),
                target,
                local,
            )
        except HarnessFailure as failure:
            raise UserError(
                f"the device cannot be tested: {failure}",
                hint=_HINT,
                status=3,
            ) from failure


def _check_limit(refused: SetupRefused) -> None:
    """Raises UserError if the reason for a refusal is this process's limit of locked memory."""
    limit = lockable()
    if refused.code == "ENOMEM" and limit is not None:
        raise UserError(
            f"{refused}; this process may lock {limit >> 10} KiB of memory",
            hint=LIMIT_HINT,
            status=3,
        )


def _check(connection: LoopbackConnection, outcome: _Outcome) -> None:
    """Raises UserError if neither end has responded."""
    if outcome.responded:
        return
    if connection.pair.requester.pd.context_pointer != connection.pair.responder.pd.context_pointer:
        raise UserError(
            f"nothing arrives from the peer: {outcome.failed}",
            hint=_PEER_HINT,
            status=3,
        )
    raise UserError(
        f"loopback does not work on this device: {outcome.failed}",
        hint=_HINT,
        status=3,
    )


def _sent(
    connection: LoopbackConnection,
    own: Sge | None = None,
    other: Sge | None = None,
) -> _Outcome:
    """Returns the outcome of a SEND to the responder's memory, by default of zero bytes. A message of zero bytes needs
    no region, so only an error of the path or of the queue pairs can prevent its delivery."""
    requester, responder = connection.pair.requester, connection.pair.responder
    if requester.kind == "UD":
        header = DATAGRAM_HEADER
    else:
        header = 0
    if own and other:
        content = pattern(_BYTES - header)
    else:
        content = b""
    if own and other:
        ctypes.memmove(own.addr, content, len(content))
        ctypes.memset(other.addr, BEFORE, _BYTES)
    sinks, sources = (
        ((other,) if other else NO_BYTES),
        ((own._replace(length=len(content)),) if own else ()),
    )
    for returned in (
        responder.post_receive(sinks, 1),
        requester.post_send(SendRequest("SEND", 2, sources)),
    ):
        if returned.value:
            refused = (
                f"a SEND or its receive could not be posted: {errno_name(abs(returned.value))}"
            )
            return _Outcome(refused, responded=bool(own))
    completions = requester.completions(1)
    delivered = [completion.status for completion in completions] == ["SUCCESS"]
    if delivered:
        received = responder.completions(1)
    else:  # a message that has failed is not received; on some devices, all fail after RESET
        received = responder.completions(1, SILENCE_S)
    arrived = not other or ctypes.string_at(other.addr + header, len(content)) == content
    statuses = [completion.status for completion in (*completions, *received)]
    if statuses == ["SUCCESS", "SUCCESS"] and arrived:
        return _DONE
    responded = bool(own) and (
        bool(received) or (_responded(completions) and statuses != ["SUCCESS"])
    )
    return _Outcome(
        _described("SEND", [*completions, *received]), responded, statuses == ["SUCCESS"]
    )


def _responded(completions: Sequence[Completion]) -> bool:
    """Whether an end has responded. Without a response, the request exhausts its retries, or does not complete."""
    return bool(completions) and completions[0].status not in _NO_RESPONSE


def _tells_state(connection: LoopbackConnection) -> bool:
    """Whether ibv_query_qp reports the state of a responder that has refused a request. If it reports a state other
    than ERR, a receive is posted to check it: if the receive is flushed or refused, the report was wrong."""
    pair = connection.pair
    reported = state_of(pair, pair.responder)
    if reported in (ERROR_STATE, ""):
        return bool(reported)
    posted = pair.responder.post_receive(NO_BYTES, 3)
    failed = posted.value or [
        completion.status for completion in pair.responder.completions(1, SILENCE_S)
    ] == [
        "WR_FLUSH_ERR",
    ]
    return not failed


def _described(opcode: str, completions: Sequence[Completion]) -> str:
    statuses = " and ".join(completion.status for completion in completions)
    return f"{opcode} {f'completed with {statuses}' if completions else 'produced no completion'}, and its data did not arrive"
