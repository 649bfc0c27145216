"""Executes operations with a list of several SGEs, and sends messages into receives that an earlier step posted. The
SGEs can be in several regions. Before an operation, the memory in and around the SGEs is filled with known contents.
After the operation, this memory is examined for changes. traffic.py executes operations on one range."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from conformance.bench.calls import Return, Sge
from conformance.bench.interface import Memory
from conformance.bench.memory_areas import BEFORE, CANARY, EMPTY, pattern
from conformance.bench.work_requests import Completion, Exchange, SendRequest
from conformance.errors import SetupRefused
from conformance.execution.connection import SILENCE_S, LoopbackConnection, post_receives
from conformance.execution.context import CaseContext, result_of
from conformance.model.case import Step
from conformance.model.observation import Observation
from conformance.older_python import zip
from conformance.verbs import ENUMS

_RIGHTS = ENUMS["ibv_access_flags"].mask_of("REMOTE_WRITE", "REMOTE_READ")
_GATHERS = ("SEND", "WRITE")


def _slices(sges: Sequence[Sge]) -> list[bytes]:
    """Returns the part of a message for each SGE. An SGE with address 0 is in a null region, and its part is zeros."""
    content, slices = pattern(sum(sge.length for sge in sges)), []
    for sge in sges:
        slices.append(content[: sge.length] if sge.addr else bytes(sge.length))
        content = content[sge.length :]
    return slices


def _fill(memory: Sequence[Memory], sges: Sequence[Sge], contents: Sequence[bytes]) -> list[bytes]:
    """Fills all memory, and writes `contents` to the ranges of the SGEs. Returns the memory's new contents."""
    for item in memory:
        ctypes.memset(item.addr, CANARY, item.size)
    for sge, content in zip(sges, contents, strict=True):
        ctypes.memmove(sge.addr, content, sge.length if sge.addr else 0)
    return [_content(content) for content in memory]


def _content(memory: Memory) -> bytes:
    return ctypes.string_at(memory.addr, memory.size)


def list_traffic(context: CaseContext, step: Step) -> Observation:
    """Executes an operation whose local memory is a list of SGEs, `rounds` times or until it is refused. Raises
    SetupRefused. `moved` is `all` if the expected bytes were read from or written to each SGE and nothing else changed.
    After a refused operation, `moved` covers only the memory `guarded`, because the device may access other memory
    before the refusal."""
    operation, sges = str(step.arguments["op"]), context.sges(step.arguments["sg_list"])
    if operation == "READ" and len(sges) > context.bench.max_read_elements:
        most = context.bench.max_read_elements
        raise SetupRefused(
            f"an RDMA READ with {len(sges)} elements (the device accepts at most {most})",
            "",
        )
    kind = str(step.arguments["qp_type"])
    connection = context.harness.connection(kind, str(step.arguments["pd"]))
    connection.renew_if_stale()
    for _ in range(context.number(step.arguments["rounds"])):
        seen = _round(context, step, connection, sges)
        if seen["wc"] != ["SUCCESS"] or seen["moved"] != "all":
            break
    return seen


def _round(
    context: CaseContext,
    step: Step,
    connection: LoopbackConnection,
    sges: tuple[Sge, ...],
) -> Observation:
    operation, kind = str(step.arguments["op"]), str(step.arguments["qp_type"])
    owner, peer = connection.pair.responder, connection.pair.requester
    places = (context.memory_around(sge.addr, sge.length) for sge in sges if sge.addr)
    memory = list({id(place): place for place in places}.values())
    parts, size = _slices(sges), sum(sge.length for sge in sges)
    gathers = operation in _GATHERS
    opcode = {"WRITE": "RDMA_WRITE", "READ": "RDMA_READ"}.get(operation, "SEND")
    before = _fill(
        memory,
        sges,
        parts if gathers else [bytes([BEFORE]) * sge.length for sge in sges],
    )
    other = context.harness.scratch(peer.pd, max(size, 1), "list", _RIGHTS)
    ctypes.memmove(other.addr, bytes([EMPTY]) * size if gathers else b"".join(parts), size)
    returned, completions_here, received = Return(0, 0), list[Completion](), list[Completion]()
    wr_id = context.next_wr_id()
    if operation == "RECV":
        returned = owner.post_receive(sges, wr_id)
        if returned.value == 0:
            peer.post_send(SendRequest("SEND", context.next_wr_id(), (other,)))
            received = peer.completions(1)
            if received:
                completions_here = owner.completions(1, SILENCE_S)
            else:
                completions_here = []
    else:
        if operation == "SEND":
            post_receives(peer, [context.next_wr_id()], (other,))
        request = SendRequest(opcode, wr_id, sges, rkey=other.rkey, remote_addr=other.addr)
        returned = owner.post_send(request)
        if returned.value == 0:
            completions_here = owner.completions(1)
        else:
            completions_here = []
    done = Exchange(returned, completions_here).succeeded
    if done and operation == "SEND":
        peer.completions(1)
    if not done and returned.value == 0:
        connection.mark_failed(operation, completions_here, owner)
        if operation == "RECV":
            completions = (received, completions_here)
        else:
            completions = (completions_here, received)
        connection.check_response(*completions, opcode)
    connection.stale = connection.stale or returned.value != 0 or operation == "SEND"
    if gathers:
        arrived = ctypes.string_at(other.addr, size)
    else:
        arrived = b""
    guarded = context.memory.get(str(step.arguments["guarded"]))
    of_guarded = next(
        (old for content, old in zip(memory, before, strict=True) if content is guarded),
        b"",
    )
    return {
        **result_of(returned),
        "wc": [completion.status for completion in completions_here],
        "qp_type": kind,
        "side": "gather" if gathers else "answer",
        "moved": _moved(memory, before, sges, parts, arrived)
        if done
        else _harmed(guarded, of_guarded, sges, arrived),
        "changed": [],
        "peer_wc": [],
    }


def _moved(
    memory: Sequence[Memory],
    before: Sequence[bytes],
    sges: Sequence[Sge],
    parts: Sequence[bytes],
    arrived: bytes,
) -> str:
    """Returns how much a successful operation has moved. `arrived` are the bytes that the peer received, if any."""
    expected = list(before)
    for sge, part in (pair for pair in zip(sges, parts, strict=True) if pair[0].addr):
        number = next(
            n
            for n, content in enumerate(memory)
            if content.addr <= sge.addr < content.addr + content.size
        )
        at = sge.addr - memory[number].addr
        expected[number] = expected[number][:at] + part + expected[number][at + sge.length :]
    right = [_content(content) for content in memory] == expected and arrived in (
        b"",
        b"".join(parts),
    )
    if right:
        return "all"
    return "part"


def _harmed(guarded: Memory | None, before: bytes, sges: Sequence[Sge], arrived: bytes) -> str:
    """Returns how much a refused operation has read from or written to the memory `guarded`."""
    if guarded is None:
        return "nothing"
    at = 0
    for sge in sges:
        inside = guarded.addr <= sge.addr < guarded.addr + guarded.size
        if inside and arrived[at : at + sge.length].strip(bytes([EMPTY])):
            return "part"
        at += sge.length
    if before and _content(guarded) != before:
        return "part"
    return "nothing"


def post_receive(context: CaseContext, step: Step) -> Observation:
    """Posts a receive with a list of SGEs at the end that owns the regions. Does not wait for the completion."""
    queue = context.pair_of(step).responder
    return result_of(
        queue.post_receive(context.sges(step.arguments["sg_list"]), context.next_wr_id()),
    )


def send_to_receive(context: CaseContext, step: Step) -> Observation:
    """Sends `length` bytes into a receive that an earlier step posted, and records the changed bytes of `memory` from
    the offset `behind` on. The SGEs of the receive must be in the order of their addresses."""
    pair, memory = (
        context.pair_of(step),
        context.memory_of(step),
    )
    length = context.number(step.arguments["length"])
    source = context.harness.scratch(pair.requester.pd, length, "source")
    ctypes.memmove(source.addr, pattern(length), length)
    (before,) = _fill([memory], (), ())
    returned = pair.requester.post_send(SendRequest("SEND", context.next_wr_id(), (source,)))
    if returned.value == 0:
        sent = pair.requester.completions(1)
    else:
        sent = []
    completions = pair.responder.completions(1, SILENCE_S)
    if not returned.value:
        context.connection(str(step.arguments["qp"])).check_response(sent, completions, "SEND")
    after = _content(memory)
    compared = range(context.number(step.arguments["behind"]), memory.size)
    changed = [number for number in compared if before[number] != after[number]]
    arrived = bytes(after[number] for number in changed) == pattern(length)
    observation: Observation = {
        **result_of(returned),
        "wc": [completion.status for completion in completions],
        "qp_type": pair.responder.kind,
        "side": "receive",
        "moved": "nothing" if not changed else "all" if arrived else "part",
        "changed": [[changed[0], changed[-1] + 1 - changed[0]]] if changed else [],
        "peer_wc": [completion.status for completion in sent if completion.status != "SUCCESS"],
    }
    if completions and completions[0].status == "SUCCESS":
        observation["byte_len"] = [completions[0].byte_len, length]
    return observation
