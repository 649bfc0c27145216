"""Traffic: operations on a region or window, which show what the device really enforces and where bytes went.

Each operation starts from known contents, with canaries in the whole of the memory around the range and beside the
harness's own buffer, and records every byte that differs afterwards. A queue pair is renewed after a refusal. Not for
judging what was recorded.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator, Sequence

from conformance.bench.calls import Return, Sge, errno_name
from conformance.bench.memory_areas import AROUND, BEFORE, EMPTY, SHOWN, Area, of_one, sent
from conformance.bench.work_requests import Completion, Exchange, SendRequest
from conformance.errors import SetupRefused
from conformance.execution.connection import FAILED, RESPONDER, SILENCE_S, Ask, LoopbackConnection, exchanges
from conformance.execution.context import CaseContext, answer
from conformance.execution.local_buffer import LocalBuffer
from conformance.model.case import Flags, Step
from conformance.model.expected_errors import RELIABLE
from conformance.model.observation import Observation
from conformance.model.positions import WORD_OPERATIONS, locate
from conformance.model.vocabulary import FLUSHES, NULL
from conformance.verbs import ENUMS

# How often something is sent that has to arrive over an unreliable transport.
MOST_TRIES = 3
_IMMEDIATE = 0xC0FFEE01
_UNEQUAL = "UNEQUAL_CMP_AND_SWP"
_GRH = 40  # bytes of header in front of a datagram in the memory that receives it
_RIGHTS = ENUMS["ibv_access_flags"]


# A probe yields the request that it needs, if it needs one, is sent the exchange, and returns its observation.
Probe = Generator[Ask, Exchange, Observation]


def probe(context: CaseContext, step: Step) -> Observation:
    """One operation on a range, by a peer or by the range's owner. Raises SetupRefused.

    What has to arrive over an unreliable transport is sent again if it was lost, up to MOST_TRIES times.
    """
    seen = _once(context, step)
    return again_if_lost(seen, lambda: _once(context, step)) if step.then.outcome == "success" else seen


def again_if_lost(seen: Observation, once_more: Callable[[], Observation]) -> Observation:
    """The observation, or that of the first further try in which nothing was lost; `tries` counts them."""
    tries = 1
    while is_lost(seen) and tries < MOST_TRIES:
        tries += 1
        seen = {**once_more(), "tries": tries}
    return seen


def is_lost(seen: Observation) -> bool:
    """Whether an unreliable transport delivered nothing, which it may do without telling anybody."""
    unreliable = seen.get("qp_type", "RC") not in RELIABLE
    return unreliable and seen["returned"] == "0" and seen["wc"] in ([], ["SUCCESS"]) and seen["moved"] == "nothing"


def _once(context: CaseContext, step: Step) -> Observation:
    (seen,) = together([(context, step)])
    if isinstance(seen, SetupRefused):
        raise seen
    return seen


def together(probes: Sequence[tuple[CaseContext, Step]]) -> list[Observation | SetupRefused]:
    """The observation of each, or why it could not be made. Those that need no exchange are done first."""
    seen: dict[int, Observation | SetupRefused] = {}
    asking: list[tuple[int, Probe, Ask]] = []
    for number, (context, step) in enumerate(probes):
        begun = _PROBES[step.call](context, step)
        try:
            asking.append((number, begun, next(begun)))
        except StopIteration as end:
            seen[number] = end.value
        except SetupRefused as refusal:
            seen[number] = refusal
    came = exchanges([ask for _, _, ask in asking])
    for (number, begun, _), exchange in zip(asking, came, strict=True):
        try:
            begun.send(exchange)
        except StopIteration as end:
            seen[number] = end.value
    return [seen[number] for number in range(len(probes))]


def _traffic(context: CaseContext, step: Step) -> Probe:
    """A peer's operation on a range by an rkey: RDMA, the atomics, FLUSH."""
    operation, kind = str(step.arguments["op"]), str(step.arguments["qp_type"])
    rkey, addr, at, length = _range(context, step, operation, "rkey")
    connection = _connection(context, step, operation, kind)
    reads, words = operation == "RDMA_READ", operation in WORD_OPERATIONS
    content = sent(length)
    stays = reads or operation == _UNEQUAL or operation in FLUSHES
    target = _target(context, at, length, str(step.arguments["contents"]), content if reads else None, not stays)
    before = of_one(EMPTY, length) if reads or words else content
    comes = reads or (words and operation != "ATOMIC_WRITE")
    local = LocalBuffer(context, connection, length, before, target.before if comes else before)
    request = _request(context, operation, local.sge, rkey, addr, length, (target.before, content))
    failed = step.arguments["via"] != NULL and connection.has_failed()
    exchange = yield Ask(connection, request, (target, local.area))
    observation = _answered(exchange.returned, exchange.found, exchange.heard, kind, "remote")
    if failed:
        observation["state_before"] = FAILED
    late = exchange.late
    if operation in FLUSHES:
        moved = "all" if exchange.done else "nothing"
    elif reads or operation == _UNEQUAL:
        moved = local.area.received(target)
    else:
        moved = target.moved()
    if comes and not reads and operation != _UNEQUAL:  # the value before it has to come back, or nothing at all
        back = local.area.received(target)
        moved = moved if back == moved else "other" if (moved, back) == ("nothing", "other") else "part"
    if moved != "all" or not exchange.done:
        observation["state"] = exchange.rested
    if operation == "RDMA_WRITE_WITH_IMM":
        observation |= _received(exchange.heard, length)
    return observation | _moved(moved, length, exchange.done, target, local, late)


def _local_traffic(context: CaseContext, step: Step) -> Probe:
    """An access to a range by an lkey: gathered from by SEND and WRITE, scattered into by the others."""
    operation, kind = str(step.arguments["op"]), str(step.arguments["qp_type"])
    lkey, addr, at, length = _range(context, step, operation, "lkey")
    connection = context.harness.connection(kind, str(step.arguments["pd"]))
    gathers, receives = operation in ("SEND", "WRITE"), operation.startswith("RECV")
    content = sent(length)
    target = _target(context, at, length, str(step.arguments["contents"]), content if gathers else None, not gathers)
    # Whoever owns the region is the responder, whichever side asks.
    access = _RIGHTS.value_of(_GRANTED[operation]) if operation in _GRANTED else 0
    skipped = _GRH if kind == "UD" else 0
    size = max(0, length - skipped) if receives else length
    before, wanted = (of_one(EMPTY, size), target.before[:size]) if gathers else (content[:size],) * 2
    other = LocalBuffer(context, connection, size, before, wanted, access, skipped if gathers else 0)
    region, rested, late = Sge(addr, length, lkey), "", False
    if receives:
        observation = _receive(context, connection, operation, region, (target, other), kind)
    elif operation == "SEND":
        observation = _send(context, connection, region, (target, other), kind)
    else:
        opcode = {"WRITE": "RDMA_WRITE", "READ": "RDMA_READ", "FETCH_AND_ADD": "ATOMIC_FETCH_AND_ADD"}[operation]
        request = SendRequest(opcode, context.next_wr_id(), (region,), rkey=other.sge.rkey, remote_addr=other.sge.addr)
        exchange = yield Ask(connection, request, (target, other.area), RESPONDER)
        side = "gather" if gathers else "answer"
        observation = _answered(exchange.returned, exchange.found, exchange.heard, kind, side)
        rested, late = exchange.rested, exchange.late
    moved = other.area.moved() if gathers else target.moved(length - size)
    done = observation["wc"] == ["SUCCESS"]
    if moved != "all" or not done:
        connection.stale = connection.stale or not rested
        observation["state"] = rested or connection.pair.responder.query_state()
    return observation | _moved(moved, length, done, target, other, late)


_PROBES: dict[str, Callable[[CaseContext, Step], Probe]] = {"traffic": _traffic, "local_traffic": _local_traffic}
# What a peer's memory has to allow for an operation that takes a range of ours for its local side.
_GRANTED = {"WRITE": "REMOTE_WRITE", "READ": "REMOTE_READ", "FETCH_AND_ADD": "REMOTE_ATOMIC"}


def _send(
    context: CaseContext, connection: LoopbackConnection, region: Sge, sides: tuple[Area, LocalBuffer], kind: str
) -> Observation:
    """A SEND from the region to the peer."""
    target, other = sides
    connection.ready()
    asker, peer = connection.pair.responder, connection.pair.requester
    target.fill()
    other.area.fill()
    posted = peer.post_receive((other.sink,), context.next_wr_id())
    if posted.value:
        raise SetupRefused("posting a receive", errno_name(posted.value))
    returned = asker.post_send(SendRequest("SEND", context.next_wr_id(), (region,)))
    found = asker.completions(1) if returned.value == 0 else []
    done = Exchange(returned, found).done
    heard = peer.completions(1) if done else []
    if not heard:
        connection.failed(*(() if done or returned.value else (asker,)))
    return _answered(returned, found, [], kind, "gather")


def _receive(
    context: CaseContext,
    connection: LoopbackConnection,
    operation: str,
    region: Sge,
    sides: tuple[Area, LocalBuffer],
    kind: str,
) -> Observation:
    """A SEND into the region; the receiver's completion counts."""
    target, source = sides
    connection.ready()
    target.fill()
    source.area.fill()
    receiver, sender = connection.pair.responder, connection.pair.requester
    wr_id = context.next_wr_id()
    returned = receiver.post_receive((region,), wr_id)
    if returned.value:
        return _answered(returned, [], [], kind, "receive")
    if kind not in RELIABLE:  # a message that is dropped leaves its receive to the next one
        receiver.post_receive((), context.next_wr_id())
    opcode = "SEND_WITH_IMM" if operation == "RECV_WITH_IMM" else "SEND"
    posted = sender.post_send(SendRequest(opcode, context.next_wr_id(), (source.sge,), imm=_IMMEDIATE))
    if posted.value:
        raise SetupRefused("posting a send", errno_name(posted.value))
    if kind not in RELIABLE:
        sender.post_send(SendRequest("SEND", context.next_wr_id(), flags=0))
    sent_off = sender.completions(1)
    found = receiver.completions(1) if kind in RELIABLE else receiver.completions(1, SILENCE_S)
    connection.stale = connection.stale or kind not in RELIABLE
    if kind in RELIABLE and not Exchange(returned, found).done:
        connection.failed(sender, receiver)
    observation = _answered(returned, found, sent_off, kind, "receive")
    if Exchange(returned, found).done:
        observation |= _received(found, region.length, operation == "RECV_WITH_IMM")
    return observation


def bind_and_send(context: CaseContext, step: Step) -> Observation:
    """A bind whose completion is not awaited, and behind it on the same queue pair a SEND.

    Once the peer has received, the window must be bound: a SEND is ordered after the bind before it.
    """
    pair = context.pairs[str(step.arguments["qp"])]
    window = context.windows[str(step.arguments["mw"])]
    info = context.bind_info(step.arguments)
    scratch = context.harness.scratch
    sink, source = scratch(pair.requester.pd, 4, "sink"), scratch(pair.responder.pd, 4, "source")
    posted = pair.requester.post_receive((sink,), context.next_wr_id())
    window.old_rkey = window.rkey
    bound = pair.responder.bind_mw(window, info, 0, context.next_wr_id())
    ctypes.memmove(source.addr, window.rkey.to_bytes(4, "little"), 4)
    posted_send = pair.responder.post_send(SendRequest("SEND", context.next_wr_id(), (source,)))
    for returned in (posted, bound, posted_send):
        if returned.value:
            return {**_answered(returned, [], [], "RC", "remote"), "moved": "nothing", "changed": []}
    received = pair.requester.completions(1)
    key = int.from_bytes(ctypes.string_at(sink.addr, 4), "little")
    target = _target(context, info.addr, 8, "made", None, True)
    target.fill()
    local = scratch(pair.requester.pd, 8, "local")
    ctypes.memmove(local.addr, sent(8), 8)
    request = SendRequest("RDMA_WRITE", context.next_wr_id(), (local,), rkey=key, remote_addr=info.addr)
    returned = pair.requester.post_send(request)
    found = pair.requester.completions(1) if [each.status for each in received] == ["SUCCESS"] else received
    changed = target.changed()
    return {**_answered(returned, found, [], "RC", "remote"), "moved": target.moved(), "changed": changed}


def _target(context: CaseContext, at: int, length: int, contents: str, content: bytes | None, replaced: bool) -> Area:
    """A range of the case's memory. `content` is its content before the operation, if the operation reads it.

    `replaced`: whether the operation is to write there what it sends.
    """
    around, made = AROUND[contents], contents == "made"
    before = (content if content is not None else of_one(BEFORE, length)) if made else of_one(around, length)
    wanted = sent(length) if replaced else before
    return Area(context.memory_around(at, length), at, length, around, before, wanted, made)


def _range(context: CaseContext, step: Step, operation: str, key: str) -> tuple[int, int, int, int]:
    """Key, address, address in this process, and length in bytes of the operation."""
    number, addr, length = context.numbers(step.arguments, key, "addr", "length")
    at = context.number(step.arguments["at"]) if step.arguments["at"] else addr
    offset, size = locate(str(step.arguments["position"]), operation, addr, length)
    return number % (1 << 32), (addr + offset) % (1 << 64), at + offset, size


def _connection(context: CaseContext, step: Step, operation: str, kind: str) -> LoopbackConnection:
    """The connection of a remote operation: that of a named pair, or one of the harness in the case's PD."""
    via = str(step.arguments["via"])
    if via != NULL:
        return context.connection(via)
    access = step.arguments["qp_access"]
    assert isinstance(access, Flags)
    extended = "FLUSH" if operation in FLUSHES else "ATOMIC_WRITE" if operation == "ATOMIC_WRITE" else ""
    return context.harness.connection(kind, str(step.arguments["pd"]), access.mask, extended)


def _request(
    context: CaseContext, operation: str, local: Sge, rkey: int, addr: int, length: int, contents: tuple[bytes, bytes]
) -> SendRequest:
    """The operation on the range by the key; a word operation replaces the first of `contents` by the second."""
    wr_id = context.next_wr_id()
    if operation in FLUSHES:
        return SendRequest(operation, wr_id, rkey=rkey, remote_addr=addr, length=length)
    if operation not in WORD_OPERATIONS:
        return SendRequest(operation, wr_id, (local,), rkey=rkey, remote_addr=addr, imm=_IMMEDIATE)
    before, after = (int.from_bytes(content, "little") for content in contents)
    if operation == _UNEQUAL:
        operation, before = "ATOMIC_CMP_AND_SWP", before ^ 1
    compare_add = {"ATOMIC_CMP_AND_SWP": before, "ATOMIC_FETCH_AND_ADD": (after - before) % (1 << 64)}
    return SendRequest(
        operation, wr_id, (local,), rkey=rkey, remote_addr=addr, compare_add=compare_add.get(operation, 0), swap=after
    )


def _answered(
    returned: Return, found: Sequence[Completion], peer: Sequence[Completion], kind: str, side: str
) -> Observation:
    """The completions of the request, and those at the other side unless all succeeded."""
    statuses = [each.status for each in found]
    observation = answer(returned)
    observation |= {"layer": "device", "wc": statuses, "qp_type": kind, "side": side}
    others = [each.status for each in peer]
    if statuses != ["SUCCESS"] or set(others) - {"SUCCESS"}:
        observation["peer_wc"] = others
    return observation


def _received(heard: Sequence[Completion], length: int, with_imm: bool = True) -> Observation:
    """What the receiver's completion contains beside its status, as [what came, what was sent]."""
    if not heard or heard[0].status != "SUCCESS":
        return {}
    received: Observation = {"byte_len": [heard[0].byte_len, length]}
    if with_imm:
        received["imm"] = [heard[0].imm, _IMMEDIATE]
    return received


def _moved(moved: str, length: int, done: bool, target: Area, local: LocalBuffer, late: bool) -> Observation:
    """What the operation has changed in the range, and beside the harness's own buffer.

    An operation of no bytes counts as moved if it is done. `late`: a completion came before the last byte.
    """
    if length == 0:
        moved = "all" if done else "nothing"
    seen: Observation = {"moved": moved, "changed": target.changed()}
    if local.guards_changed():
        seen["guards"] = "changed"
    if late and moved == "all":
        seen["late"] = True
    if moved in ("part", "other"):
        here, there = (area.content()[:SHOWN].hex() for area in (local.area, target))
        seen["bytes"] = {"here": here, "there": there}
    return seen
