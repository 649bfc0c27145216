"""The parts of one operation on a range: the range, the connection, the request, the harness's own buffer, and the
observation of completions and moved bytes. traffic.py and local_traffic.py execute operations."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Generator, Sequence

from conformance.bench.calls import Return, Sge
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
from conformance.bench.work_requests import Completion, Exchange, SendRequest, key32, other_opcode
from conformance.execution.connection import ExchangeSpec, LoopbackConnection
from conformance.execution.context import CaseContext, result_of
from conformance.model.case import Flags, Step
from conformance.model.observation import Observation
from conformance.model.operations import FLUSHES, carries
from conformance.model.positions import WORD_OPERATIONS, locate
from conformance.model.vocabulary import NULL, WIRE
from conformance.verbs import ENUMS

IMMEDIATE = 0xC0FFEE01
# The bit in which the compared value differs from the value in memory.
_UNEQUAL = {"UNEQUAL_CMP_AND_SWP": 1, "UPPER_UNEQUAL_CMP_AND_SWP": 1 << 63}
_ZERO_ADD = "ZERO_FETCH_AND_ADD"
INEFFECTIVE = (*_UNEQUAL, _ZERO_ADD)  # atomics that do not change the value
_INLINE = ENUMS["ibv_send_flags"].value_of("INLINE")
RIGHTS = ENUMS["ibv_access_flags"]
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


def target_of(
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


def range_of(
    context: CaseContext, step: Step, operation: str, key: str
) -> tuple[int, int, int, int]:
    """Returns the key and the address in the request, the address in this process, and the length in bytes."""
    number, addr, length = context.numbers(step.arguments, key, "addr", "length")
    if step.arguments["at"]:
        at = context.number(step.arguments["at"])
    else:
        at = addr
    offset, size = locate(str(step.arguments["position"]), operation, addr, length)
    return key32(number), (addr + offset) % (1 << 64), at + offset, size


def connection_of(context: CaseContext, step: Step) -> LoopbackConnection:
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
    elif operation == "ATOMIC_WRITE":
        extended = "ATOMIC_WRITE"
    else:
        extended = posted
    return context.harness.connection(kind, pd, access.mask, extended, inline)


def request_of(
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
        return SendRequest(operation, wr_id, (local,), rkey=rkey, remote_addr=addr, imm=IMMEDIATE)
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


def observed_of(
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


def observed_exchange(
    connection: LoopbackConnection,
    opcode: str,
    exchange: Exchange,
    kind: str,
    side: str,
) -> Observation:
    """Returns the observation of an exchange of a request and its completions, whose opcode is compared."""
    completions, peer = exchange.completions, exchange.peer_completions
    observation = observed_of(exchange.returned, completions, peer, kind, side)
    observation |= named(opcode, completions, peer)
    if not connection.pair.transport.acknowledges(opcode):
        observation["unacknowledged"] = True
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


def received_of(
    completions: Sequence[Completion], length: int, with_imm: bool = True
) -> Observation:
    """Returns further fields of the receiver's completion, each as [reported, expected]."""
    if not completions or completions[0].status != "SUCCESS":
        return {}
    received: Observation = {"byte_len": [completions[0].byte_len, length]}
    if with_imm:
        received["imm"] = [completions[0].imm, IMMEDIATE]
    return received


def moved_of(
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
        elif done:
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
