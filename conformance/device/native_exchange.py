"""Requests and what comes of them, many in one call of C, on the queue pairs of the device itself.

execution/connection.py does the same step by step; this saves the time that Python takes between two calls, which is
longer than the device's own. Not available for a stand-in (a reference, an altered call), for what only extended queue
pairs can post, and without a compiler. Not for judging what came.
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
from conformance.device.posting import SEND_SIZE, SGE, WC, completion, pack_send
from conformance.device.queue_pairs import DeviceQueue, moves
from conformance.verbs import ENUMS

SOURCE = Path(__file__).with_name("exchange.c")
# Compiling takes about as long as so many exchanges lose without it.
WORTH = 500
# How many exchanges one call of `exchanges` takes at most: its callers make batches of this size.
MOST = 64
_KINDS = ("RC", "UC")
_NS = 1_000_000_000
_NUMBER = ctypes.c_uint32
_MOVE_SIZE = 2 * ctypes.sizeof(_NUMBER)  # struct move: state and mask
_AREAS, _COMPLETIONS = 2, 3
_STATES = ENUMS["ibv_qp_state"]
_POSTED = Return(0, 0)
_NOT_ASKED = -1  # the responder's state
# struct exchange of exchange.c: connection, asker and receives; the request, its element and the areas; the answer; the
# completions.
_HEAD, _AREA, _ANSWER = Struct("QII"), Struct("QQQQQQII"), Struct("iIIiIII4x")
_AT_SGE = _HEAD.size + SEND_SIZE
_AT_AREAS = _AT_SGE + SGE.size
_AT_ANSWER = _AT_AREAS + _AREAS * _AREA.size
_AT_COMPLETIONS = _AT_ANSWER + _ANSWER.size
_SIZE = _AT_COMPLETIONS + _COMPLETIONS * WC.size


class _End(ctypes.Structure):
    _fields_ = (("qp", ctypes.c_uint64), ("attributes", ctypes.c_uint64), ("receives", ctypes.c_uint64))


class _Connection(ctypes.Structure):
    _fields_ = (
        ("ends", _End * 2), ("moves", ctypes.c_void_p), ("number_of_moves", ctypes.c_uint32),
        ("stale", ctypes.c_uint32), ("patience", ctypes.c_uint64), ("hearing", ctypes.c_uint64),
        ("silence", ctypes.c_uint64),
    )  # fmt: skip


# In the order of rdma_cts_layout of exchange.c.
_LAYOUT = (
    ("sizeof(struct exchange)", _SIZE), ("offset of request", _HEAD.size), ("offset of sge", _AT_SGE),
    ("offset of areas", _AT_AREAS), ("offset of returned", _AT_ANSWER), ("offset of wc", _AT_COMPLETIONS),
    ("sizeof(struct area)", _AREA.size), ("sizeof(struct ibv_wc)", WC.size), ("number of areas", _AREAS),
    ("number of completions", _COMPLETIONS), ("sizeof(struct connection)", ctypes.sizeof(_Connection)),
    ("sizeof(struct end)", ctypes.sizeof(_End)), ("sizeof(struct move)", _MOVE_SIZE),
)  # fmt: skip


class NativeConnection:
    """A pair as C knows it: its requester and its responder, and how it is renewed."""

    def __init__(self, requester: DeviceQueue, responder: DeviceQueue, silence_s: float, renewable: bool) -> None:
        """`silence_s` is how long to wait for a side that may have nothing to say, else the queues' deadlines hold."""
        self._queues = requester, responder
        steps = [number for step in moves(responder.kind) for number in step] if renewable else []
        self._moves = (_NUMBER * len(steps))(*steps)
        attributes = requester.device.pointers.attributes
        ends = (_End(queue.poster.qp, attributes(queue.attributes), 0) for queue in self._queues)
        hearing_s = responder.deadline_s if responder.kind == "RC" else silence_s
        times = (int(seconds * _NS) for seconds in (requester.deadline_s, hearing_s, silence_s))
        self._struct = _Connection((_End * 2)(*ends), ctypes.addressof(self._moves), len(steps) // 2, 0, *times)
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
    """Makes these exchanges, MOST at most, up to and including the first that has to be looked at.

    None is made if the first one's connection cannot be renewed. Each fills its areas, posts the request and a SEND
    behind it, and gives what came at both sides and the state of the responder; what was seen of the areas is put into
    them. Raises OSError where ibv_poll_cq or ibv_query_qp fails.
    """
    compiled = _library()
    assert compiled is not None
    room, start = _room()
    for number, (line, asker, receives, request, areas) in enumerate(asked):
        at = number * _SIZE
        _HEAD.pack_into(room, at, line.address, asker, receives)
        pack_send(room, at + _HEAD.size, (room, at + _AT_SGE, start + at + _AT_SGE), request)
        at_area = at + _AT_AREAS
        for area in areas:
            addr, size = area.memory.addr, area.memory.size
            before, wanted = _address(area.before), _address(area.wanted)
            _AREA.pack_into(room, at_area, addr, area.start, size, area.length, before, wanted, area.around, area.made)
            at_area += _AREA.size
        _ANSWER.pack_into(room, at + _AT_ANSWER, 0, 0, 0, _NOT_ASKED, 0, 0, 0)
    made = compiled.rdma_cts_exchanges(room, len(asked))
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


def available() -> bool:
    """Whether exchanges can be made in C; compiles them the first time. Raises UserError where the layouts differ."""
    return _library() is not None


def _library() -> ctypes.CDLL | None:
    return library(SOURCE, _LAYOUT, "-libverbs")


@functools.cache
def _room() -> tuple[ctypes.Array[ctypes.c_char], int]:
    room = ctypes.create_string_buffer(MOST * _SIZE)
    return room, ctypes.addressof(room)


@functools.lru_cache(maxsize=2 * _AREAS * MOST)
def _address(content: bytes) -> int:
    """Where the bytes stand; those of the cache stay there, and equal ones do as well."""
    return ctypes.cast(ctypes.c_char_p(content), ctypes.c_void_p).value or 0


def native_connection(pair: Pair, silence_s: float, renewable: bool) -> NativeConnection | None:
    """What makes exchanges on this pair in C, once enough were asked for on its device to be worth compiling.

    None until then, for pairs that C cannot take, and without a compiler. Raises UserError where exchange.c does not
    have the layout that this module assumes.
    """
    requester, responder = pair.requester, pair.responder
    if type(requester) is not DeviceQueue or type(responder) is not DeviceQueue:
        return None
    if responder.kind not in _KINDS or responder.sq_sig_all or {requester.state, responder.state} != {"RTS"}:
        return None
    responder.device.exchanges_asked += 1
    if responder.device.exchanges_asked <= WORTH or not available():
        return None
    return NativeConnection(requester, responder, silence_s, renewable)
