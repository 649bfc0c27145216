"""Executes operations that use a range as local memory, with an lkey: SEND and RDMA WRITE read the range, the other
operations write to it. The peer of the range's owner is the other side. traffic.py has the operations with an rkey."""

from __future__ import annotations

from collections.abc import Sequence

from conformance.bench.calls import Sge, errno_name
from conformance.bench.memory_areas import EMPTY, Area, pattern, repeated
from conformance.bench.work_requests import SIGNALED, Completion, Exchange, SendRequest
from conformance.errors import SetupRefused
from conformance.execution.connection import (
    RESPONDER,
    SILENCE_S,
    ExchangeSpec,
    LoopbackConnection,
    post_receives,
    state_of,
)
from conformance.execution.context import CaseContext
from conformance.execution.operation import (
    IMMEDIATE,
    RIGHTS,
    LocalBuffer,
    Probe,
    connection_of,
    moved_of,
    named,
    observed_exchange,
    observed_of,
    range_of,
    received_of,
    target_of,
)
from conformance.model.case import Step
from conformance.model.expected_errors import DATAGRAM_HEADER, RELIABLE
from conformance.model.observation import Observation

# The access flag that the peer's memory needs for an operation whose local memory is the range under test.
_GRANTED = {"WRITE": "REMOTE_WRITE", "READ": "REMOTE_READ", "FETCH_AND_ADD": "REMOTE_ATOMIC"}

# The data that show whether the peer has responded to a request: the request's completions, the peer's completions, and
# the request's opcode.
_Completed = tuple[Sequence[Completion], Sequence[Completion], str]


def local_traffic(context: CaseContext, step: Step) -> Probe:
    """Executes an operation that uses a range as local memory, with an lkey. SEND and RDMA WRITE read the range; the
    other operations write to the range."""
    operation, kind = str(step.arguments["op"]), str(step.arguments["qp_type"])
    lkey, addr, at, length = range_of(context, step, operation, "lkey")
    connection = connection_of(context, step)
    gathers, receives = operation in ("SEND", "WRITE"), operation.startswith("RECV")
    content = pattern(length)
    target = target_of(
        context,
        at,
        length,
        str(step.arguments["contents"]),
        content if gathers else None,
        not gathers,
    )
    # The region is in the responder's PD, so the responder posts the request and the requester is the peer.
    if operation in _GRANTED:
        access = RIGHTS.value_of(_GRANTED[operation])
    else:
        access = 0
    if kind == "UD":
        skipped = DATAGRAM_HEADER
    else:
        skipped = 0
    if receives:
        size = max(0, length - skipped)
    else:
        size = length
    before, expected = (
        (repeated(EMPTY, size), target.before[:size]) if gathers else (content[:size],) * 2
    )
    other = LocalBuffer(
        context,
        connection,
        size,
        before,
        expected,
        access,
        skipped if gathers else 0,
    )
    region, final_state, late = Sge(addr, length, lkey), "", False
    flags = SIGNALED | context.number(step.arguments["with_flags"])
    completed = None
    if receives:
        observation, completed = _receive(
            context,
            connection,
            operation,
            region,
            (target, other),
            kind,
        )
    elif operation == "SEND":
        observation, completed = _send(context, connection, region, (target, other), kind, flags)
    else:
        opcode = {
            "WRITE": "RDMA_WRITE",
            "READ": "RDMA_READ",
            "FETCH_AND_ADD": "ATOMIC_FETCH_AND_ADD",
        }[operation]
        request = SendRequest(
            opcode,
            context.next_wr_id(),
            (region,),
            flags,
            other.sge.addr,
            other.sge.rkey,
        )
        exchange = yield ExchangeSpec(connection, request, (target, other.area), RESPONDER)
        if gathers:
            side = "gather"
        else:
            side = "answer"
        observation = observed_exchange(connection, opcode, exchange, kind, side)
        final_state, late = exchange.responder_state, exchange.late
    if gathers:
        moved = other.area.moved()
    else:
        moved = target.moved(length - size)
    done = observation["wc"] == ["SUCCESS"]
    if moved != "all" or not done:
        connection.stale = connection.stale or not final_state
        state = final_state or state_of(connection.pair, connection.pair.responder)
        observation |= {"state": state} if state else {}
        if completed and observation["returned"] == "0":
            connection.check_response(*completed)
    return observation | moved_of(moved, length, done, target, other, late)


def _send(
    context: CaseContext,
    connection: LoopbackConnection,
    region: Sge,
    sides: tuple[Area, LocalBuffer],
    kind: str,
    flags: int,
) -> tuple[Observation, _Completed | None]:
    target, other = sides
    connection.renew_if_stale()
    initiator, peer = connection.pair.responder, connection.pair.requester
    target.fill()
    other.area.fill()
    post_receives(peer, [context.next_wr_id()], (other.sink,))
    returned = initiator.post_send(SendRequest("SEND", context.next_wr_id(), (region,), flags))
    if returned.value == 0:
        completions = initiator.completions(1)
    else:
        completions = []
    done = Exchange(returned, completions).succeeded
    if done:
        received = peer.completions(1)
    else:
        received = []
    if not received:
        connection.mark_failed(
            "SEND", completions, *(() if done or returned.value else (initiator,))
        )
    observation = observed_of(returned, completions, [], kind, "gather") | named(
        "SEND", completions, received
    )
    return observation, (completions, received, "SEND")


def _receive(
    context: CaseContext,
    connection: LoopbackConnection,
    operation: str,
    region: Sge,
    sides: tuple[Area, LocalBuffer],
    kind: str,
) -> tuple[Observation, _Completed | None]:
    """Executes a SEND from the peer into the region. Returns the observation of the receiver's completion."""
    target, source = sides
    connection.renew_if_stale()
    target.fill()
    source.area.fill()
    receiver, sender = connection.pair.responder, connection.pair.requester
    wr_id = context.next_wr_id()
    returned = receiver.post_receive((region,), wr_id)
    if returned.value:
        return observed_of(returned, [], [], kind, "receive"), None
    # A second SEND follows, which consumes the region's receive if the first SEND is lost.
    if kind not in RELIABLE:
        post_receives(receiver, [context.next_wr_id()])
    if operation == "RECV_WITH_IMM":
        opcode = "SEND_WITH_IMM"
    else:
        opcode = "SEND"
    posted = sender.post_send(
        SendRequest(opcode, context.next_wr_id(), (source.sge,), imm=IMMEDIATE),
    )
    if posted.value:
        connection.stale = True  # the receive is still posted
        raise SetupRefused("posting a send", errno_name(posted.value))
    if kind not in RELIABLE:
        sender.post_send(SendRequest("SEND", context.next_wr_id(), flags=0))
    sender_completions = sender.completions(1)
    if kind in RELIABLE:
        completions = receiver.completions(1)
    else:
        completions = receiver.completions(1, SILENCE_S)
    connection.stale = connection.stale or kind not in RELIABLE
    if kind in RELIABLE and not Exchange(returned, completions).succeeded:
        connection.mark_failed("RECV", completions, sender, receiver)
    observation = observed_of(returned, completions, sender_completions, kind, "receive")
    observation |= named(opcode, sender_completions, completions)
    if Exchange(returned, completions).succeeded:
        observation |= received_of(completions, region.length, operation == "RECV_WITH_IMM")
    return observation, (sender_completions, completions, opcode)
