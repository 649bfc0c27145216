"""Executes operations on a region or window. The results show which rights the device enforces and which bytes it
writes. Before each operation, the range, the case's memory around the range, and the guards around the harness's own
buffer have known contents. After the operation, all changed bytes are recorded."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Generator, Sequence

from conformance.bench.calls import Return, Sge, errno_name
from conformance.bench.memory_areas import (
    AROUND,
    BEFORE,
    EMPTY,
    SHOWN,
    Area,
    Part,
    pattern,
    repeated,
)
from conformance.bench.work_requests import (
    SIGNALED,
    Completion,
    Exchange,
    SendRequest,
    other_opcode,
)
from conformance.errors import SetupRefused
from conformance.execution.connection import (
    ERROR_STATE,
    MOST_TRIES,
    RESPONDER,
    SILENCE_S,
    ExchangeSpec,
    LoopbackConnection,
    exchanges,
    post_receives,
    state_of,
)
from conformance.execution.context import CaseContext, result_of
from conformance.model.case import Flags, Step
from conformance.model.expected_errors import DATAGRAM_HEADER, RELIABLE
from conformance.model.observation import Observation, reports_arrival
from conformance.model.positions import WORD_OPERATIONS, locate
from conformance.model.vocabulary import FLUSHES, NULL, WIRE, carries
from conformance.older_python import zip
from conformance.verbs import ENUMS

_IMMEDIATE = 0xC0FFEE01
# The bit in which the compared value differs from the value in memory.
_UNEQUAL = {"UNEQUAL_CMP_AND_SWP": 1, "UPPER_UNEQUAL_CMP_AND_SWP": 1 << 63}
_ZERO_ADD = "ZERO_FETCH_AND_ADD"
_INEFFECTIVE = (*_UNEQUAL, _ZERO_ADD)  # atomics that do not change the value
_INLINE = ENUMS["ibv_send_flags"].value_of("INLINE")
_RIGHTS = ENUMS["ibv_access_flags"]
_GUARD = 64  # guard bytes on each side


class LocalBuffer:
    """A buffer with guards on both sides, registered at the requester of a connection."""

    def __init__(
        self,
        context: CaseContext,
        connection: LoopbackConnection,
        length: int,
        before: bytes,
        expected: bytes,
        access: int = 0,
        skipped: int = 0,
    ) -> None:
        """`before` and `expected` are the contents for Area. `access` is the mask of the peer's access flags. `skipped`
        is the size of the header that a receive writes in front of the data. Raises SetupRefused."""
        size = length + skipped + 2 * _GUARD
        scratch = context.harness.scratch(connection.pair.requester.pd, size, "local", access)
        start = scratch.addr + _GUARD
        self.sink = Sge(start, length + skipped, scratch.lkey, scratch.rkey)
        self.sge = (
            Sge(start + skipped, length, scratch.lkey, scratch.rkey) if skipped else self.sink
        )
        self.area = Area(Part(scratch.addr, size), start + skipped, length, EMPTY, before, expected)
        self._skipped = skipped

    def guards_changed(self) -> bool:
        """Whether a guard byte has changed. A change of a datagram's header does not count."""
        if not self._skipped:
            return self.area.changed_outside()
        ends = (self.area.memory.addr, self.area.start + self.area.length)
        return any(ctypes.string_at(end, _GUARD) != repeated(EMPTY, _GUARD) for end in ends)


# A generator for one operation. Yields the ExchangeSpec if the operation needs an exchange, receives the result by
# send(), and returns the observation.
Probe = Generator[ExchangeSpec, Exchange, Observation]


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
    connection = _connection(context, step)
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
    rkey, addr, at, length = _range(context, step, operation, "rkey")
    connection = _connection(context, step)
    reads, words = operation == "RDMA_READ", operation in WORD_OPERATIONS
    content = pattern(length)
    unchanged = reads or operation in _INEFFECTIVE or operation in FLUSHES
    target = _target(
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
        access = _RIGHTS.mask_of(*connection.pair.transport.read_sink)
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
    request = _request(context, operation, local.sge, rkey, addr, length, (target.before, content))
    request = request._replace(flags=SIGNALED | context.number(step.arguments["with_flags"]))
    failed = step.arguments["via"] != NULL and connection.has_failed()
    hopeless = failed and step.then.outcome == "success"
    exchange = yield ExchangeSpec(connection, request, (target, local.area), failed=hopeless)
    observation = _observed(
        exchange.returned,
        exchange.completions,
        exchange.peer_completions,
        kind,
        "remote",
    )
    observation |= named(request.opcode, exchange.completions, exchange.peer_completions)
    if failed:
        observation["state_before"] = ERROR_STATE
    if not connection.pair.transport.acknowledges(request.opcode):
        observation["unacknowledged"] = True
    moved = _moved_by(operation, exchange.succeeded, target, local)
    if exchange.responder_state and (moved != "all" or not exchange.succeeded):
        observation["state"] = exchange.responder_state
    if operation == "RDMA_WRITE_WITH_IMM":
        observation |= _received(exchange.peer_completions, length)
    return observation | _moved(moved, length, exchange.succeeded, target, local, exchange.late)


def _moved_by(operation: str, succeeded: bool, target: Area, local: LocalBuffer) -> str:
    """Returns which bytes an operation has moved. An atomic must return the old value if and only if it has written
    the new value."""
    if operation in FLUSHES:
        return "all" if succeeded else "nothing"
    if operation == "RDMA_READ" or operation in _INEFFECTIVE:
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


def _local_traffic(context: CaseContext, step: Step) -> Probe:
    """Executes an operation that uses a range as local memory, with an lkey. SEND and RDMA WRITE read the range; the
    other operations write to the range."""
    operation, kind = str(step.arguments["op"]), str(step.arguments["qp_type"])
    lkey, addr, at, length = _range(context, step, operation, "lkey")
    connection = _connection(context, step)
    gathers, receives = operation in ("SEND", "WRITE"), operation.startswith("RECV")
    content = pattern(length)
    target = _target(
        context,
        at,
        length,
        str(step.arguments["contents"]),
        content if gathers else None,
        not gathers,
    )
    # The region is in the responder's PD, so the responder posts the request and the requester is the peer.
    if operation in _GRANTED:
        access = _RIGHTS.value_of(_GRANTED[operation])
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
        observation = _observed(
            exchange.returned,
            exchange.completions,
            exchange.peer_completions,
            kind,
            side,
        )
        observation |= named(opcode, exchange.completions, exchange.peer_completions)
        if not connection.pair.transport.acknowledges(opcode):
            observation["unacknowledged"] = True
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
    return observation | _moved(moved, length, done, target, other, late)


_PROBES: dict[str, Callable[[CaseContext, Step], Probe]] = {
    "traffic": _traffic,
    "local_traffic": _local_traffic,
}
# The access flag that the peer's memory needs for an operation whose local memory is the range under test.
_GRANTED = {"WRITE": "REMOTE_WRITE", "READ": "REMOTE_READ", "FETCH_AND_ADD": "REMOTE_ATOMIC"}


# The data that show whether the peer has responded to a request: the request's completions, the peer's completions, and
# the request's opcode.
_Completed = tuple[Sequence[Completion], Sequence[Completion], str]


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
    observation = _observed(returned, completions, [], kind, "gather") | named(
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
        return _observed(returned, [], [], kind, "receive"), None
    if (
        kind not in RELIABLE
    ):  # a second SEND follows, which consumes the region's receive if the first SEND is lost
        post_receives(receiver, [context.next_wr_id()])
    if operation == "RECV_WITH_IMM":
        opcode = "SEND_WITH_IMM"
    else:
        opcode = "SEND"
    posted = sender.post_send(
        SendRequest(opcode, context.next_wr_id(), (source.sge,), imm=_IMMEDIATE),
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
    observation = _observed(returned, completions, sender_completions, kind, "receive")
    observation |= named(opcode, sender_completions, completions)
    if Exchange(returned, completions).succeeded:
        observation |= _received(completions, region.length, operation == "RECV_WITH_IMM")
    return observation, (sender_completions, completions, opcode)


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
    bound = pair.responder.bind_mw(window, info, 0, context.next_wr_id())
    ctypes.memmove(source.addr, window.rkey.to_bytes(4, sys.byteorder), 4)
    posted_send = pair.responder.post_send(SendRequest("SEND", context.next_wr_id(), (source,)))
    for returned in (bound, posted_send):
        if returned.value:
            return {
                **_observed(returned, [], [], "RC", "remote"),
                "moved": "nothing",
                "changed": [],
            }
    received = pair.requester.completions(1)
    key = int.from_bytes(ctypes.string_at(sink.addr, 4), sys.byteorder)
    target = _target(context, info.addr, 8, "made", None, True)
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
        **_observed(returned, completions, [], "RC", "remote"),
        "moved": target.moved(),
        "changed": changed,
    }


def _target(
    context: CaseContext,
    at: int,
    length: int,
    contents: str,
    content: bytes | None,
    replaced: bool,
) -> Area:
    """Returns a range of the case's memory. `content` is the initial content of the range if the operation reads the
    range. If `replaced`, the operation writes the transferred bytes to the range."""
    around, prefill = AROUND[contents], contents == "made"
    if prefill:
        if content is not None:
            before = content
        else:
            before = repeated(BEFORE, length)
    else:
        before = repeated(around, length)
    if replaced:
        expected = pattern(length)
    else:
        expected = before
    return Area(context.memory_around(at, length), at, length, around, before, expected, prefill)


def _range(context: CaseContext, step: Step, operation: str, key: str) -> tuple[int, int, int, int]:
    """Returns the key and the address in the request, the address in this process, and the length in bytes."""
    number, addr, length = context.numbers(step.arguments, key, "addr", "length")
    if step.arguments["at"]:
        at = context.number(step.arguments["at"])
    else:
        at = addr
    offset, size = locate(str(step.arguments["position"]), operation, addr, length)
    return number % (1 << 32), (addr + offset) % (1 << 64), at + offset, size


def _connection(context: CaseContext, step: Step) -> LoopbackConnection:
    """Returns the connection over the pair that the case names, or else a connection of the harness."""
    kind, pd = str(step.arguments["qp_type"]), str(step.arguments["pd"])
    posted = str(step.arguments["poster"]).removeprefix("post_send")
    flags, length = context.numbers(step.arguments, "with_flags", "length")
    if flags & _INLINE:
        inline = length
    else:
        inline = 0
    if step.call == "local_traffic":
        shared = str(step.arguments["srq_pd"])
        return context.harness.connection(kind, pd, extended=posted, inline=inline, shared=shared)
    via, operation, access = (
        str(step.arguments["via"]),
        str(step.arguments["op"]),
        step.arguments["qp_access"],
    )
    if via != NULL:
        return context.connection(via)
    assert isinstance(access, Flags)
    if context.bench.carries and not posted and carries(kind, operation):
        posted = WIRE
    if posted == WIRE:
        return context.harness.connection(kind, pd, access.mask, WIRE)
    if operation in FLUSHES:
        extended = "FLUSH"
    else:
        if operation == "ATOMIC_WRITE":
            extended = "ATOMIC_WRITE"
        else:
            extended = posted
    return context.harness.connection(kind, pd, access.mask, extended, inline)


def _request(
    context: CaseContext,
    operation: str,
    local: Sge,
    rkey: int,
    addr: int,
    length: int,
    contents: tuple[bytes, bytes],
) -> SendRequest:
    """Returns the request. An atomic replaces the first value of `contents` with the second value."""
    wr_id = context.next_wr_id()
    if operation in FLUSHES:
        return SendRequest(operation, wr_id, rkey=rkey, remote_addr=addr, length=length)
    if operation not in WORD_OPERATIONS:
        return SendRequest(operation, wr_id, (local,), rkey=rkey, remote_addr=addr, imm=_IMMEDIATE)
    before, after = (int.from_bytes(content, sys.byteorder) for content in contents)
    if operation in _UNEQUAL:
        operation, before = "ATOMIC_CMP_AND_SWP", before ^ _UNEQUAL[operation]
    if operation == _ZERO_ADD:
        operation, after = "ATOMIC_FETCH_AND_ADD", before
    compare_add = {
        "ATOMIC_CMP_AND_SWP": before,
        "ATOMIC_FETCH_AND_ADD": (after - before) % (1 << 64),
    }
    return SendRequest(
        operation,
        wr_id,
        (local,),
        rkey=rkey,
        remote_addr=addr,
        compare_add=compare_add.get(operation, 0),
        swap=after,
    )


def _observed(
    returned: Return,
    completions: Sequence[Completion],
    peer: Sequence[Completion],
    kind: str,
    side: str,
) -> Observation:
    """Returns the observation of a request's completions. If a completion is missing or failed, adds the peer's
    completions."""
    statuses = [completion.status for completion in completions]
    observation = result_of(returned)
    observation |= {"layer": "device", "wc": statuses, "qp_type": kind, "side": side}
    peer_statuses = [completion.status for completion in peer]
    if statuses != ["SUCCESS"] or set(peer_statuses) - {"SUCCESS"}:
        observation["peer_wc"] = peer_statuses
    return observation


def named(
    opcode: str,
    completions: Sequence[Completion],
    received: Sequence[Completion] = (),
) -> Observation:
    """Returns [reported, specified] as `opcode` if the opcode of a completion is not the specified opcode."""
    differing = other_opcode(opcode, completions, received)
    if differing:
        return {"opcode": differing}
    return {}


def _received(completions: Sequence[Completion], length: int, with_imm: bool = True) -> Observation:
    """Returns further fields of the receiver's completion, each as [reported, expected]."""
    if not completions or completions[0].status != "SUCCESS":
        return {}
    received: Observation = {"byte_len": [completions[0].byte_len, length]}
    if with_imm:
        received["imm"] = [completions[0].imm, _IMMEDIATE]
    return received


def _moved(
    moved: str,
    length: int,
    done: bool,
    target: Area,
    local: LocalBuffer,
    late: bool,
) -> Observation:
    """Returns the observation of the operation's changes in the range and around the harness's own buffer. An operation
    of zero bytes counts as moved if it succeeded (`done`) and nothing changed. If `late`, the completion was observed
    before the last byte."""
    changed = target.changed()
    if length == 0:
        if changed:
            moved = "part"
        else:
            if done:
                moved = "all"
            else:
                moved = "nothing"
    seen: Observation = {"moved": moved, "changed": changed}
    if local.guards_changed():
        seen["guards"] = "changed"
    if late and moved == "all":
        seen["late"] = True
    if moved in ("part", "other"):
        local_hex, remote = (area.content()[:SHOWN].hex() for area in (local.area, target))
        seen["bytes"] = {"here": local_hex, "there": remote}
    return seen
