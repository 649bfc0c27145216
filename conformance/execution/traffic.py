"""Executes operations on a region or window. The results show which rights the device enforces and which bytes it
writes. Before each operation, the range, the case's memory around the range, and the guards around the harness's own
buffer have known contents. After the operation, all changed bytes are recorded."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence

from conformance.bench.memory_areas import EMPTY, Area, pattern, repeated
from conformance.bench.work_requests import SIGNALED, SendRequest, next_rkey
from conformance.errors import SetupRefused
from conformance.execution.connection import (
    ERROR_STATE,
    MOST_TRIES,
    SILENCE_S,
    ExchangeSpec,
    exchanges,
    post_receives,
)
from conformance.execution.context import CaseContext
from conformance.execution.local_traffic import local_traffic
from conformance.execution.operation import (
    INEFFECTIVE,
    RIGHTS,
    LocalBuffer,
    Probe,
    connection_of,
    moved_of,
    observed_exchange,
    observed_of,
    range_of,
    received_of,
    request_of,
    target_of,
)
from conformance.model.case import Step
from conformance.model.expected_errors import RELIABLE
from conformance.model.observation import Observation, reports_arrival
from conformance.model.operations import FLUSHES
from conformance.model.positions import WORD_OPERATIONS
from conformance.model.vocabulary import NULL
from conformance.older_python import zip


def probe(context: CaseContext, step: Step) -> Observation:
    """Executes one operation of a peer or of the range's owner on a range. Raises SetupRefused. If an unreliable
    transport loses data that must be delivered, repeats the operation, up to MOST_TRIES executions."""
    seen = _with_events(context, step)
    if step.then.outcome == "success":
        return again_if_lost(seen, lambda: _once(context, step))
    return seen


def _with_events(context: CaseContext, step: Step) -> Observation:
    """Executes one operation. If the operation must be refused, adds the asynchronous events of the responder."""
    if step.then.outcome != "refused":
        return _once(context, step)
    connection = connection_of(context, step)
    connection.pair.responder.events()
    seen = _once(context, step)
    events = connection.pair.responder.events(SILENCE_S if step.then.event else 0)
    if events:
        return {**seen, "events": events}
    return seen


def again_if_lost(seen: Observation, once_more: Callable[[], Observation]) -> Observation:
    """Repeats an operation while its message is lost. Returns the last observation; `tries` is the number of
    executions."""
    tries = 1
    while is_lost(seen) and tries < MOST_TRIES:
        tries += 1
        seen = {**once_more(), "tries": tries}
    return seen


def is_lost(seen: Observation) -> bool:
    """Whether an unreliable transport lost the message. Such a transport may lose a message without an error."""
    unreliable = seen.get("qp_type", "RC") not in RELIABLE and not reports_arrival(seen)
    return (
        unreliable
        and seen["returned"] == "0"
        and seen["wc"] in ([], ["SUCCESS"])
        and seen["moved"] == "nothing"
    )


def _once(context: CaseContext, step: Step) -> Observation:
    (seen,) = run_probes([(context, step)])
    if isinstance(seen, SetupRefused):
        raise seen
    return seen


def run_probes(probes: Sequence[tuple[CaseContext, Step]]) -> list[Observation | SetupRefused]:
    """Executes several operations. Returns the observation of each operation, or the refusal of its set-up. Operations
    without an exchange are executed first."""
    seen: dict[int, Observation | SetupRefused] = {}
    waiting: list[tuple[int, Probe, ExchangeSpec]] = []
    for number, (context, step) in enumerate(probes):
        running = _PROBES[step.call](context, step)
        try:
            waiting.append((number, running, next(running)))
        except StopIteration as end:
            seen[number] = end.value
        except SetupRefused as refusal:
            seen[number] = refusal
    results = exchanges([spec for _, _, spec in waiting])
    for (number, running, _), exchange in zip(waiting, results, strict=True):
        try:
            running.send(exchange)
        except StopIteration as end:
            seen[number] = end.value
    return [seen[number] for number in range(len(probes))]


def _traffic(context: CaseContext, step: Step) -> Probe:
    """Executes a peer's operation on a range with an rkey: RDMA READ, RDMA WRITE, an atomic or FLUSH."""
    operation, kind = str(step.arguments["op"]), str(step.arguments["qp_type"])
    rkey, addr, at, length = range_of(context, step, operation, "rkey")
    connection = connection_of(context, step)
    reads, words = operation == "RDMA_READ", operation in WORD_OPERATIONS
    content = pattern(length)
    unchanged = reads or operation in INEFFECTIVE or operation in FLUSHES
    target = target_of(
        context,
        at,
        length,
        str(step.arguments["contents"]),
        content if reads else None,
        not unchanged,
    )
    if reads or words:
        before = repeated(EMPTY, length)
    else:
        before = content
    returns_value = reads or (words and operation != "ATOMIC_WRITE")
    if reads:
        access = RIGHTS.mask_of(*connection.pair.transport.read_sink)
    else:
        access = 0
    local = LocalBuffer(
        context,
        connection,
        length,
        before,
        target.before if returns_value else before,
        access,
    )
    request = request_of(
        context, operation, local.sge, rkey, addr, length, (target.before, content)
    )
    request = request._replace(flags=SIGNALED | context.number(step.arguments["with_flags"]))
    failed = step.arguments["via"] != NULL and connection.has_failed()
    hopeless = failed and step.then.outcome == "success"
    exchange = yield ExchangeSpec(connection, request, (target, local.area), failed=hopeless)
    observation = observed_exchange(connection, request.opcode, exchange, kind, "remote")
    if failed:
        observation["state_before"] = ERROR_STATE
    moved = _moved_by(operation, exchange.succeeded, target, local)
    if exchange.responder_state and (moved != "all" or not exchange.succeeded):
        observation["state"] = exchange.responder_state
    if operation == "RDMA_WRITE_WITH_IMM":
        observation |= received_of(exchange.peer_completions, length)
    return observation | moved_of(moved, length, exchange.succeeded, target, local, exchange.late)


def _moved_by(operation: str, succeeded: bool, target: Area, local: LocalBuffer) -> str:
    """Returns which bytes an operation has moved. An atomic must return the old value if and only if it has written
    the new value."""
    if operation in FLUSHES:
        return "all" if succeeded else "nothing"
    if operation == "RDMA_READ" or operation in INEFFECTIVE:
        return local.area.received(target)
    moved = target.moved()
    if operation not in WORD_OPERATIONS or operation == "ATOMIC_WRITE":
        return moved
    returned = local.area.received(target)
    if returned == moved:
        return moved
    if (moved, returned) == ("nothing", "other"):
        return "other"
    return "part"


_PROBES: dict[str, Callable[[CaseContext, Step], Probe]] = {
    "traffic": _traffic,
    "local_traffic": local_traffic,
}


def bind_and_send(context: CaseContext, step: Step) -> Observation:
    """Posts a bind and then a SEND on the same queue pair. After the peer has received the SEND, the peer writes
    through the window, which must be bound because a SEND is ordered after earlier binds."""
    pair = context.pair_of(step)
    window = context.window_of(step)
    info = context.bind_info(step.arguments)
    scratch = context.harness.scratch
    sink, source = scratch(pair.requester.pd, 4, "sink"), scratch(pair.responder.pd, 4, "source")
    post_receives(pair.requester, [context.next_wr_id()], (sink,))
    window.old_rkey = window.rkey
    if context.case.given.windows[str(step.arguments["mw"])].type == 2:
        key = next_rkey(window.rkey)
        bind = SendRequest(
            "BIND_MW", context.next_wr_id(), flags=0, rkey=key, window=window, bind=info
        )
        bound = pair.responder.post_send(bind)
        window.rkey = key
    else:
        bound = pair.responder.bind_mw(window, info, 0, context.next_wr_id())
    ctypes.memmove(source.addr, window.rkey.to_bytes(4, sys.byteorder), 4)
    posted_send = pair.responder.post_send(SendRequest("SEND", context.next_wr_id(), (source,)))
    for returned in (bound, posted_send):
        if returned.value:
            return {
                **observed_of(returned, [], [], "RC", "remote"),
                "moved": "nothing",
                "changed": [],
            }
    received = pair.requester.completions(1)
    key = int.from_bytes(ctypes.string_at(sink.addr, 4), sys.byteorder)
    target = target_of(context, info.addr, 8, "made", None, True)
    target.fill()
    local = scratch(pair.requester.pd, 8, "local")
    ctypes.memmove(local.addr, pattern(8), 8)
    request = SendRequest(
        "RDMA_WRITE",
        context.next_wr_id(),
        (local,),
        rkey=key,
        remote_addr=info.addr,
    )
    returned = pair.requester.post_send(request)
    if [completion.status for completion in received] == ["SUCCESS"]:
        completions = pair.requester.completions(1)
    else:
        completions = received
    changed = target.changed()
    return {
        **observed_of(returned, completions, [], "RC", "remote"),
        "moved": target.moved(),
        "changed": changed,
    }
