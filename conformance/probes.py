"""What the device really enforces: operations on a region or window, and where their bytes went.

Each operation starts from known contents, with canaries in the whole of the memory around the range,
and records every byte that differs afterwards. A fresh pair of queue pairs is used for each, since a
refusal leaves one in the error state. Not for judging.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from dataclasses import replace

from conformance.bench import Pair
from conformance.calls import Return, Sge, errno_name
from conformance.case import QpSpec, Step
from conformance.language import FLUSHES, NULL
from conformance.requests import Completion, SendRequest
from conformance.scene import Observation, Scene, SetupRefused, answer

# Contents: of what is sent, of the range before, and of all around it.
_SENT, _BEFORE, _CANARY = 0xA5, 0x3C, 0x77
_STRETCH = 4096
_SHOWN = 64  # bytes of a torn transfer, or differing stretches, that a result shows
_ATOMICS = ("ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD")

_libc = ctypes.CDLL(None, use_errno=True)


def traffic(scene: Scene, step: Step) -> Observation:
    """A remote operation on a range by an rkey: RDMA WRITE and READ, the two atomics."""
    if step.arguments["op"] in FLUSHES:
        return _flush(scene, step)
    via = str(step.arguments["via"])
    pair: Pair = scene.pair(QpSpec("RC", str(step.arguments["pd"]))) if via == NULL else scene.pairs[via]
    rkey, addr, length = scene.numbers(step.arguments, "rkey", "addr", "length")
    at = scene.number(step.arguments["at"]) if step.arguments["at"] else addr
    operation = str(step.arguments["op"])
    target = _Target(scene, at, length)
    local = scene.scratch(pair.requester.pd, max(1, length))
    ctypes.memset(local.addr, _SENT, length)
    returned = pair.requester.post_send(_request(scene, operation, local, rkey, addr))
    found = pair.requester.completions(1) if returned.value == 0 else []
    here = ctypes.string_at(local.addr, length)
    moved = _moved(here, _BEFORE, _SENT) if operation == "RDMA_READ" else target.moved()
    if operation in _ATOMICS and moved == "all" and here != bytes([_BEFORE]) * length:
        moved = "part"  # the operation is done and the value before it was not given back
    return {**_observation(returned, found), "moved": moved, "changed": target.changed(), **_torn(moved, here, target)}


def _request(scene: Scene, operation: str, local: Sge, rkey: int = 0, remote_addr: int = 0) -> SendRequest:
    """The operation between the element and the remote range; an atomic makes _SENT of what was _BEFORE."""
    before, after = _word(_BEFORE), _word(_SENT)
    request = SendRequest(operation, scene.next_wr_id(), (local,), rkey=rkey % (1 << 32), remote_addr=remote_addr)
    if operation == "ATOMIC_CMP_AND_SWP":
        return replace(request, compare_add=before, swap=after)
    if operation == "ATOMIC_FETCH_AND_ADD":
        return replace(request, compare_add=(after - before) % (1 << 64))
    return request


def _flush(scene: Scene, step: Step) -> Observation:
    """FLUSH moves no bytes: it completes, or it is refused."""
    pair = scene.pair(QpSpec("RC", str(step.arguments["pd"]), extended="FLUSH"))
    rkey, addr, length = scene.numbers(step.arguments, "rkey", "addr", "length")
    request = SendRequest(
        str(step.arguments["op"]), scene.next_wr_id(), remote_addr=addr, rkey=rkey % (1 << 32), length=length
    )
    returned = pair.requester.post_send(request)
    return _observation(returned, pair.requester.completions(1) if returned.value == 0 else [])


def local_traffic(scene: Scene, step: Step) -> Observation:
    """A local access to a range by an lkey: SEND gathers from it, RECV and READ scatter into it."""
    pd = str(step.arguments["pd"])
    pair = scene.pair(QpSpec("RC", pd))
    lkey, addr, length = scene.numbers(step.arguments, "lkey", "addr", "length")
    at = scene.number(step.arguments["at"]) if step.arguments["at"] else addr
    operation = str(step.arguments["op"])
    target = _Target(scene, at, length)
    region = Sge(addr, length, lkey % (1 << 32))
    # The responder is of the case's PD, so that is whose local side is looked at.
    other = scene.scratch(pair.requester.pd, length, remote=operation == "READ")
    ctypes.memset(other.addr, _SENT, length)
    if operation == "SEND":
        returned, found = _send(scene, pair, region, other)
        here = ctypes.string_at(other.addr, length)
        moved = _moved(here, _BEFORE, _SENT)
    elif operation == "RECV":
        returned, found = _receive(scene, pair, region, other)
        moved, here = target.moved(), b""
    else:
        returned = pair.responder.post_send(_request(scene, "RDMA_READ", region, other.rkey, other.addr))
        found = pair.responder.completions(1) if returned.value == 0 else []
        moved, here = target.moved(), b""
    return {**_observation(returned, found), "moved": moved, "changed": target.changed(), **_torn(moved, here, target)}


def _send(scene: Scene, pair: Pair, source: Sge, sink: Sge) -> tuple[Return, list[Completion]]:
    """A SEND from the responder's region into the requester's buffer; the sender's completion counts."""
    posted = pair.requester.post_receive((sink,), scene.next_wr_id())
    if posted.value:
        raise SetupRefused("posting a receive", errno_name(posted.value))
    returned = pair.responder.post_send(_request(scene, "SEND", source))
    found = pair.responder.completions(1) if returned.value == 0 else []
    if [each.status for each in found] == ["SUCCESS"]:
        pair.requester.completions(1)  # the data is there when the receiver's completion is
    return returned, found


def _receive(scene: Scene, pair: Pair, sink: Sge, source: Sge) -> tuple[Return, list[Completion]]:
    """A SEND into the responder's region; the receiver's completion counts."""
    returned = pair.responder.post_receive((sink,), scene.next_wr_id())
    if returned.value:
        return returned, []
    posted = pair.requester.post_send(_request(scene, "SEND", source))
    if posted.value:
        raise SetupRefused("posting a send", errno_name(posted.value))
    return returned, pair.responder.completions(1)


def bind_and_send(scene: Scene, step: Step) -> Observation:
    """A bind that nobody waits for, and right behind it on the same queue pair a SEND.

    When the peer has received, the window must be there: a send after a bind is ordered after it.
    """
    name = str(step.arguments["qp"])
    pair = scene.pairs[name]
    window = scene.windows[str(step.arguments["mw"])]
    info = scene.bind_info(step.arguments)
    sink, source = scene.scratch(pair.requester.pd, 4), scene.scratch(pair.responder.pd, 4)
    posted = pair.requester.post_receive((sink,), scene.next_wr_id())
    window.old_rkey = window.rkey
    bound = pair.responder.bind_mw(window, info, 0, scene.next_wr_id())
    ctypes.memmove(source.addr, window.rkey.to_bytes(4, "little"), 4)
    sent = pair.responder.post_send(_request(scene, "SEND", source))
    for returned in (posted, bound, sent):
        if returned.value:
            return {**_observation(returned, []), "moved": "nothing", "changed": []}
    received = pair.requester.completions(1)
    key = int.from_bytes(ctypes.string_at(sink.addr, 4), "little")
    target = _Target(scene, info.addr, 8)
    local = scene.scratch(pair.requester.pd, 8)
    ctypes.memset(local.addr, _SENT, 8)
    returned = pair.requester.post_send(_request(scene, "RDMA_WRITE", local, key, info.addr))
    found = pair.requester.completions(1) if [each.status for each in received] == ["SUCCESS"] else received
    return {**_observation(returned, found), "moved": target.moved(), "changed": target.changed()}


def resident(scene: Scene, step: Step) -> Observation:
    """Whether the memory's pages are in core (mincore): `returned` is 0 for all, `none` or `some`."""
    memory = scene.memory[str(step.arguments["memory"])]
    pages = -(-memory.size // mmap.PAGESIZE)
    vector = (ctypes.c_ubyte * pages)()
    if _libc.mincore(ctypes.c_void_p(memory.addr), ctypes.c_size_t(memory.size), vector) != 0:
        raise OSError(ctypes.get_errno(), "mincore")
    count = sum(page & 1 for page in vector)
    returned = "0" if count == pages else "none" if count == 0 else "some"
    return {"rc": 0, "returned": returned, "errno": "", "layer": "kernel", "pages": [count, pages]}


class _Target:
    """A range with canaries around it, in whichever memory of the case it lies."""

    def __init__(self, scene: Scene, at: int, length: int) -> None:
        self.at, self.length = at, length
        self._memory = scene.memory_around(at, length)
        ctypes.memset(self._memory.addr, _CANARY, self._memory.size)
        ctypes.memset(at, _BEFORE, length)
        self._contents = self._read()

    def _read(self) -> bytes:
        return ctypes.string_at(self._memory.addr, self._memory.size)

    def bytes(self) -> bytes:
        """What stands in the range now."""
        return ctypes.string_at(self.at, self.length)

    def moved(self) -> str:
        """How much of what was sent stands in the range."""
        return _moved(self.bytes(), _SENT, _BEFORE)

    def changed(self) -> list[list[int]]:
        """Where the memory differs from before, as [offset from the intended place, bytes]."""
        start = self.at - self._memory.addr
        return [[offset - start, size] for offset, size in _differences(self._contents, self._read())]


def _observation(returned: Return, found: Sequence[Completion]) -> Observation:
    return {**answer(returned), "layer": "device", "wc": [each.status for each in found]}


def _torn(moved: str, here: bytes, target: _Target) -> Observation:
    if moved != "part":
        return {}
    return {"bytes": {"here": here[:_SHOWN].hex(), "there": target.bytes()[:_SHOWN].hex()}}


def _word(byte: int) -> int:
    return int.from_bytes(bytes([byte]) * 8, "little")


def _moved(content: bytes, sent: int, before: int) -> str:
    """How much of what was sent has arrived where `before` stood: all, nothing or part."""
    if not content.strip(bytes([sent])):
        return "all"
    return "nothing" if not content.strip(bytes([before])) else "part"


def _differences(before: bytes, after: bytes) -> list[tuple[int, int]]:
    """The stretches in which two equally long contents differ, as (offset, bytes)."""
    found: list[tuple[int, int]] = []
    for start in range(0, len(before), _STRETCH):
        if before[start : start + _STRETCH] == after[start : start + _STRETCH]:
            continue
        for offset in range(start, min(start + _STRETCH, len(before))):
            if before[offset] == after[offset]:
                continue
            if found and sum(found[-1]) == offset:
                found[-1] = (found[-1][0], found[-1][1] + 1)
            else:
                found.append((offset, 1))
    return found[:_SHOWN]
