"""Requests and what comes of them, many in one call of C, on the queue pairs of the device itself.

execution/connection.py does the same step by step.
Between two calls Python takes longer than a device. For a stand-in (a reference, an altered call), for what only
extended queue pairs post, and without a compiler, there is none. Not for judging what came.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path
from struct import Struct

from conformance.bench.calls import Return
from conformance.bench.interface import Pair
from conformance.bench.memory_areas import Area
from conformance.bench.work_requests import WR_OPCODES, Exchange, SendRequest
from conformance.device.compiled import library
from conformance.device.pointers import attributes_pointer
from conformance.device.posting import SEND_SIZE, SGE, WC, completion, pack_send
from conformance.device.queue_pairs import DeviceQueue, moves
from conformance.verbs import ENUMS

SOURCE = Path(__file__).with_name("exchange.c")
# Compiling takes about as long as so many exchanges lose without it.
WORTH = 500
# How many are made in one call, at most.
MOST = 64
_KINDS = ("RC", "UC")
_NS = 1_000_000_000
_AREAS, _COMPLETIONS = 2, 3
_STATES = ENUMS["ibv_qp_state"]
_POSTED = Return(0, 0)
_NOT_ASKED = -1  # the responder's state
_asked = 0
# struct exchange of exchange.c: what it is told, of which the request and its element and the areas, what it answers,
# the completions.
_TOLD, _AREA, _ANSWER = Struct("QII"), Struct("QQQQQQII"), Struct("iIIiIII4x")
_AT_SGE = _TOLD.size + SEND_SIZE
_AT_AREAS = _AT_SGE + SGE.size
_AT_ANSWER = _AT_AREAS + _AREAS * _AREA.size
_AT_COMPLETIONS = _AT_ANSWER + _ANSWER.size
_SIZE = _AT_COMPLETIONS + _COMPLETIONS * WC.size


class _End(ctypes.Structure):
    _fields_ = (("qp", ctypes.c_uint64), ("attributes", ctypes.c_uint64), ("receives", ctypes.c_uint64))


class _Line(ctypes.Structure):
    _fields_ = (
        ("ends", _End * 2), ("moves", ctypes.c_void_p), ("number_of_moves", ctypes.c_uint32),
        ("stale", ctypes.c_uint32), ("patience", ctypes.c_uint64), ("hearing", ctypes.c_uint64),
        ("silence", ctypes.c_uint64),
    )  # fmt: skip


class NativeConnection:
    """A pair as C knows it: its requester and its responder, and how it is made new."""

    def __init__(self, requester: DeviceQueue, responder: DeviceQueue, silence_s: float, renewable: bool) -> None:
        """`silence_s` is how long to wait for a side that may have nothing to say, else the queues' deadlines hold."""
        self._queues = requester, responder
        steps = [number for step in moves(responder.kind) for number in step] if renewable else []
        self._moves = (ctypes.c_uint32 * len(steps))(*steps)
        ends = (_End(queue.poster.qp, attributes_pointer(queue.attributes), 0) for queue in self._queues)
        hearing_s = responder.deadline_s if responder.kind == "RC" else silence_s
        times = (int(seconds * _NS) for seconds in (requester.deadline_s, hearing_s, silence_s))
        self._struct = _Line((_End * 2)(*ends), ctypes.addressof(self._moves), len(steps) // 2, 0, *times)
        self.address = ctypes.addressof(self._struct)

    def stands_for(self, pair: Pair) -> bool:
        """Whether the pair still has the queue pairs that it had."""
        return pair.requester is self._queues[0] and pair.responder is self._queues[1]

    @property
    def state(self) -> tuple[bool, list[int]]:
        """Whether it has to be made new, and the receives that stand at its requester and its responder."""
        return bool(self._struct.stale), [int(end.receives) for end in self._struct.ends]

    @state.setter
    def state(self, state: tuple[bool, Sequence[int]]) -> None:
        stale, receives = state
        self._struct.stale = stale
        for end, number in zip(self._struct.ends, receives, strict=True):
            end.receives = number


# What is asked: on which pair, by which of its ends (0 is the requester), for which the other has so many receives.
Asked = tuple[NativeConnection, int, int, SendRequest, tuple[Area, Area]]


def takes(request: SendRequest) -> bool:
    """Whether this can post it."""
    return request.opcode in WR_OPCODES and len(request.sges) <= 1


def exchanges(asked: Sequence[Asked]) -> list[Exchange]:
    """Makes the exchanges up to the first that has to be looked at, that one among them; MOST at most.

    None is made if the first one's line cannot be made new. Each fills its areas, posts the request and a SEND behind
    it, and tells what came at both sides and how the responder rests; what was seen of the areas stands in them.
    Raises OSError where ibv_poll_cq or ibv_query_qp fails.
    """
    compiled = library(SOURCE, "-libverbs")
    assert compiled is not None
    room, start = _room()
    for at, (line, asker, receives, request, areas) in zip(range(0, MOST * _SIZE, _SIZE), asked, strict=False):
        _TOLD.pack_into(room, at, line.address, asker, receives)
        pack_send(room, at + _TOLD.size, (room, at + _AT_SGE, start + at + _AT_SGE), request)
        at_area = at + _AT_AREAS
        for area in areas:
            addr, size = area.memory.addr, area.memory.size
            before, wanted = _address(area.before), _address(area.wanted)
            _AREA.pack_into(room, at_area, addr, area.start, size, area.length, before, wanted, area.around, area.made)
            at_area += _AREA.size
        _ANSWER.pack_into(room, at + _AT_ANSWER, 0, 0, 0, _NOT_ASKED, 0, 0, 0)
    made = compiled.rdma_cts_exchanges(room, min(len(asked), MOST))
    if made < 0:
        raise OSError(-made, "ibv_poll_cq or ibv_query_qp")
    return [_answer(room, number * _SIZE, each[4]) for number, each in enumerate(asked[:made])]


def _answer(room: ctypes.Array[ctypes.c_char], at: int, areas: tuple[Area, Area]) -> Exchange:
    returned, found, heard, rested, *seen, late = _ANSWER.unpack_from(room, at + _AT_ANSWER)
    areas[0].seen, areas[1].seen = seen
    come = [completion(room, place, at + _AT_COMPLETIONS) for place in range(found + heard)]
    answered = Return(returned, max(returned, 0)) if returned else _POSTED
    state = _STATES.name_of(rested) if rested != _NOT_ASKED else ""
    return Exchange(answered, come[:found], come[found:], state, bool(late))


@functools.cache
def _room() -> tuple[ctypes.Array[ctypes.c_char], int]:
    room = ctypes.create_string_buffer(MOST * _SIZE)
    return room, ctypes.addressof(room)


@functools.lru_cache(maxsize=2 * _AREAS * MOST)
def _address(content: bytes) -> int:
    """Where the bytes stand; those of the cache stay there, and equal ones do as well."""
    return ctypes.cast(ctypes.c_char_p(content), ctypes.c_void_p).value or 0


def native_connection(pair: Pair, silence_s: float, renewable: bool) -> NativeConnection | None:
    """What makes exchanges on this pair quickly, once this process has made enough of them to be worth it."""
    global _asked
    requester, responder = pair.requester, pair.responder
    if type(requester) is not DeviceQueue or type(responder) is not DeviceQueue:
        return None
    if responder.kind not in _KINDS or responder.sq_sig_all or {requester.state, responder.state} != {"RTS"}:
        return None
    _asked += 1
    if _asked <= WORTH or library(SOURCE, "-libverbs") is None:
        return None
    return NativeConnection(requester, responder, silence_s, renewable)
