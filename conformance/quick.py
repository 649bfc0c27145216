"""A request and what comes of it in one call of C: what lines.py does in steps, on the device's own queue pairs.

Between two calls Python takes longer than a device. For a stand-in (a reference, an altered call), for what only
extended queue pairs post, and without a compiler, there is none. Not for judging what came.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from struct import Struct

from conformance.bench import Queue
from conformance.calls import Return
from conformance.compiled import library
from conformance.posting import WC, completion
from conformance.queues import DEADLINE_S, DeviceQueue
from conformance.requests import WR_OPCODES, Exchange, SendRequest
from conformance.targets import Area

SOURCE = Path(__file__).with_name("exchange.c")
# Compiling takes about as long as so many exchanges lose without it.
WORTH = 500
_KINDS = ("RC", "UC")
_NS = 1_000_000_000
_AREAS, _COMPLETIONS = 2, 3
_POSTED = Return(0, 0)
_asked = 0
# struct exchange of exchange.c: what it is told, an area of it, what it answers, the completions.
_TOLD, _AREA, _ANSWER = Struct("QQQQQQI4x"), Struct("QQQQQQII"), Struct("iIIII4x")
_AT_ANSWER = _TOLD.size + _AREAS * _AREA.size
_AT_COMPLETIONS = _AT_ANSWER + _ANSWER.size
_SIZE = _AT_COMPLETIONS + _COMPLETIONS * WC.size


class Quick:
    """Exchanges between two queue pairs of the device. Raises OSError where polling fails."""

    def __init__(self, asker: DeviceQueue, other: DeviceQueue, silence_s: float, compiled: ctypes.CDLL) -> None:
        """`silence_s` is how long to wait for a side that may have nothing to say."""
        hearing_s = DEADLINE_S if other.kind == "RC" else silence_s
        self._poster, self._make = asker.poster, compiled.rdma_cts_exchange
        times = (int(seconds * _NS) for seconds in (DEADLINE_S, hearing_s, silence_s))
        self._told = (asker.poster.qp, other.poster.qp, *times)
        self._room = ctypes.create_string_buffer(_SIZE)

    def takes(self, request: SendRequest) -> bool:
        """Whether this can post it."""
        return request.opcode in WR_OPCODES

    def exchange(self, request: SendRequest, receives: int, areas: tuple[Area, Area]) -> Exchange:
        """Fills the areas, posts as many receives of no bytes, the request and a SEND behind it.

        Gives what came at both sides; what was seen of the areas stands in them.
        """
        room, told = self._room, self._told
        _TOLD.pack_into(room, 0, *told, self._poster.prepared(request), receives)
        at = _TOLD.size
        for area in areas:
            addr, size = area.memory.addr, area.memory.size
            before, wanted = _address(area.before), _address(area.wanted)
            _AREA.pack_into(room, at, addr, area.place, size, area.length, before, wanted, area.around, area.made)
            at += _AREA.size
        failed = self._make(room)
        if failed:
            raise OSError(-failed, "ibv_poll_cq")
        returned, found, heard, areas[0].seen, areas[1].seen = _ANSWER.unpack_from(room, _AT_ANSWER)
        if returned:
            return Exchange(Return(returned, max(returned, 0)))
        come = [completion(room, 1 + place, _AT_COMPLETIONS) for place in range(heard)]
        return Exchange(_POSTED, [completion(room, 0, _AT_COMPLETIONS)] if found else [], come)


@functools.lru_cache(maxsize=16)
def _address(content: bytes) -> int:
    """Where the bytes stand; those of the cache stay there, and equal ones do as well."""
    return ctypes.cast(ctypes.c_char_p(content), ctypes.c_void_p).value or 0


def quick(asker: Queue, other: Queue, silence_s: float) -> Quick | None:
    """What makes exchanges between these quickly, once this process has made enough of them to be worth it."""
    global _asked
    if type(asker) is not DeviceQueue or type(other) is not DeviceQueue:
        return None
    if asker.kind not in _KINDS or asker.sq_sig_all:
        return None
    _asked += 1
    compiled = library(SOURCE, "-libverbs") if _asked > WORTH else None
    return Quick(asker, other, silence_s, compiled) if compiled else None
