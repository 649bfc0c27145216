"""A request and what comes of it in one call of C: what lines.py does in steps, on the device's own queue pairs.

Between two calls Python takes longer than a device. For a stand-in (a reference, an altered call), for what only
extended queue pairs post, and without a compiler, there is none. Not for judging what came.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

from conformance.bench import Queue
from conformance.calls import Return
from conformance.compiled import library
from conformance.posting import WC, completion
from conformance.queues import DEADLINE_S, DeviceQueue
from conformance.requests import WR_OPCODES, Exchange, SendRequest

SOURCE = Path(__file__).with_name("exchange.c")
# Compiling takes about as long as so many exchanges lose without it.
WORTH = 500
_KINDS = ("RC", "UC")
_NS = 1_000_000_000
_COMPLETIONS = 3
_POSTED = Return(0, 0)
_asked = 0


class _Exchange(ctypes.Structure):
    """struct exchange of exchange.c up to its completions."""

    _fields_ = (
        ("asker", ctypes.c_void_p), ("other", ctypes.c_void_p), ("request", ctypes.c_void_p),
        ("patience", ctypes.c_uint64), ("hearing", ctypes.c_uint64), ("silence", ctypes.c_uint64),
        ("receives", ctypes.c_uint32), ("returned", ctypes.c_int32), ("found", ctypes.c_uint32),
        ("heard", ctypes.c_uint32), ("wc", ctypes.c_char * (_COMPLETIONS * WC.size)),
    )  # fmt: skip


class Quick:
    """Exchanges between two queue pairs of the device. Raises OSError where polling fails."""

    def __init__(self, asker: DeviceQueue, other: DeviceQueue, silence_s: float, compiled: ctypes.CDLL) -> None:
        """`silence_s` is how long to wait for a side that may have nothing to say."""
        self._poster, self._make = asker.poster, compiled.rdma_cts_exchange
        hearing_s = DEADLINE_S if other.kind == "RC" else silence_s
        times = (int(seconds * _NS) for seconds in (DEADLINE_S, hearing_s, silence_s))
        self._exchange = _Exchange(asker.poster.qp, other.poster.qp, 0, *times)
        self._at = ctypes.c_void_p(ctypes.addressof(self._exchange))

    def takes(self, request: SendRequest) -> bool:
        """Whether this can post it."""
        return request.opcode in WR_OPCODES

    def exchange(self, request: SendRequest, receives: int) -> Exchange:
        """Posts as many receives of no bytes, the request and a SEND behind it; what came at both sides."""
        exchange = self._exchange
        exchange.request, exchange.receives = self._poster.prepared(request), receives
        failed = self._make(self._at)
        if failed:
            raise OSError(-failed, "ibv_poll_cq")
        returned = exchange.returned
        if returned:
            return Exchange(Return(returned, max(returned, 0)))
        found = [completion(exchange, place, _Exchange.wc.offset) for place in range(exchange.found)]
        heard = [completion(exchange, 1 + place, _Exchange.wc.offset) for place in range(exchange.heard)]
        return Exchange(_POSTED, found, heard)


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
