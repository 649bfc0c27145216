"""Executes many exchanges in one call of exchange.c, on the queue pairs of the device.

execution/connection.py does the same in Python. Between two calls, Python needs more time than the device needs for a
call. Python executes the exchanges without a compiler, on benches other than the device's (such as the reference
implementation), and if `can_post` or `native_connection` excludes them, such as requests of extended queue pairs.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path
from struct import Struct

from conformance.bench.calls import Return, members
from conformance.bench.interface import Pair
from conformance.bench.memory_areas import Area
from conformance.bench.work_requests import WR_OPCODES, Exchange, SendRequest
from conformance.device.compiled import library
from conformance.device.posting import SEND_SIZE, SGE, WC, completion, pack_send
from conformance.device.qp_states import RENEWAL_PSNS, transitions
from conformance.device.queue_pairs import DeviceQueue
from conformance.model.deadline import TURNS_PER_S
from conformance.older_python import zip
from conformance.verbs import ENUMS

SOURCE = Path(__file__).with_name("exchange.c")
# After this many exchanges in Python on one device, exchange.c is compiled, unless this process has already loaded it,
# for example in a resumed guest. Compiling takes about as long as exchange.c would have saved in these exchanges.
COMPILE_THRESHOLD = 500
# The maximum number of exchanges in one call of `exchanges`.
MAX_BATCH = 64
_KINDS = ("RC", "UC")
_NS = 1_000_000_000
_NUMBER = ctypes.c_uint32
_TRANSITION_SIZE = 2 * ctypes.sizeof(_NUMBER)  # struct transition: state and mask
_AREAS, _COMPLETIONS = 2, 3
_STATES = ENUMS["ibv_qp_state"]
_POSTED = Return(0, 0)
_NOT_QUERIED = -1  # the responder's state if the state was not queried
# struct exchange of exchange.c in parts: connection, initiator and receives; the request, its SGE and the areas; the
# result; the completions.
_HEAD, _AREA, _RESULT = Struct("QII"), Struct("QQQQQQII"), Struct("iIIiIII4x")
_AT_SGE = _HEAD.size + SEND_SIZE
_AT_AREAS = _AT_SGE + SGE.size
_AT_RESULT = _AT_AREAS + _AREAS * _AREA.size
_AT_COMPLETIONS = _AT_RESULT + _RESULT.size
_SIZE = _AT_COMPLETIONS + _COMPLETIONS * WC.size


class _End(ctypes.Structure):
    _fields_ = members("uint64_t qp, attributes, receives")


class _Connection(ctypes.Structure):
    _fields_ = (
        ("ends", _End * 2),
        *members("void *transitions; uint32_t transition_count, stale, renewable, by_reset"),
        *members("uint64_t send_timeout, receive_timeout, silence, flush"),
    )


# The names of the values, in the order of rdma_cts_layout of exchange.c.
_LAYOUT = (
    ("sizeof(struct exchange)", _SIZE),
    ("offset of request", _HEAD.size),
    ("offset of sge", _AT_SGE),
    ("offset of areas", _AT_AREAS),
    ("offset of returned", _AT_RESULT),
    ("offset of wc", _AT_COMPLETIONS),
    ("sizeof(struct area)", _AREA.size),
    ("sizeof(struct ibv_wc)", WC.size),
    ("number of areas", _AREAS),
    ("number of completions", _COMPLETIONS),
    ("sizeof(struct connection)", ctypes.sizeof(_Connection)),
    ("sizeof(struct end)", ctypes.sizeof(_End)),
    ("sizeof(struct transition)", _TRANSITION_SIZE),
)


class NativeConnection:
    """A pair of queue pairs for exchange.c: requester, responder, and the state transitions that renew the pair."""

    def __init__(
        self,
        requester: DeviceQueue,
        responder: DeviceQueue,
        silence_s: float,
        renewable: bool,
        by_reset: bool,
    ) -> None:
        """exchange.c waits `silence_s` seconds for a completion that may be missing, and until the deadlines of the
        queues for other completions. If a `renewable` pair is stale, exchange.c renews the pair by RESET; without
        `by_reset`, exchange.c returns before the next exchange of the pair."""
        self._queues = requester, responder
        renewing = renewable and by_reset
        if renewing:
            flat = [number for step in transitions(responder.kind) for number in step]
        else:
            flat = []
        self._transitions = (_NUMBER * len(flat))(*flat)
        attributes = requester.device.pointers.attributes
        ends = (_End(queue.poster.qp, attributes(queue.attributes), 0) for queue in self._queues)
        if responder.kind == "RC":
            receive_s = responder.deadline_s
        else:
            receive_s = silence_s
        waits = requester.deadline_s, receive_s, silence_s, silence_s
        times = (int(seconds * _NS) for seconds in waits)
        self._struct = _Connection(
            (_End * 2)(*ends),
            ctypes.addressof(self._transitions),
            len(flat) // 2,
            0,
            renewable,
            by_reset,
            *times,
        )
        self.address = ctypes.addressof(self._struct)

    def renew(self) -> bool:
        """Moves both queue pairs through RESET to RTS. Returns whether this succeeded."""
        native = compiled()
        return native is not None and native.rdma_cts_renew(ctypes.c_void_p(self.address)) == 0

    def uses(self, pair: Pair) -> bool:
        """Whether the pair still consists of these queue pairs. A renewal may have replaced the queue pairs."""
        return pair.requester is self._queues[0] and pair.responder is self._queues[1]

    def be_patient(self, message_s: float, flush_s: float) -> None:
        """Sets how long exchange.c waits for a message over an unreliable connection, and for flushed receives, in
        seconds."""
        if self._queues[1].kind != "RC":
            self._struct.receive_timeout = int(message_s * _NS)
        self._struct.flush = int(flush_s * _NS)

    @property
    def flush_s(self) -> float:
        """How long exchange.c waits for flushed receives; short after a flush was missing."""
        return float(self._struct.flush) / _NS

    @property
    def state(self) -> tuple[bool, list[int]]:
        """Whether the pair must be renewed, and the numbers of posted receives at the requester and the responder."""
        return bool(self._struct.stale), [int(end.receives) for end in self._struct.ends]

    @state.setter
    def state(self, state: tuple[bool, Sequence[int]]) -> None:
        stale, receives = state
        self._struct.stale = stale
        for end, number in zip(self._struct.ends, receives, strict=True):
            end.receives = number


# An exchange to execute, like connection.ExchangeSpec: connection, initiator, the number of receives that the peer must
# have posted, the request, and the areas.
NativeSpec = tuple[NativeConnection, int, int, SendRequest, tuple[Area, Area]]


def can_post(request: SendRequest) -> bool:
    return request.opcode in WR_OPCODES and len(request.sges) <= 1


def exchanges(specs: Sequence[NativeSpec]) -> list[Exchange]:
    """Executes at most MAX_BATCH exchanges, up to and including the first exchange that Python has to examine.

    Returns the results of the executed exchanges. The list is empty if the first connection cannot be renewed or
    prepared. For each exchange, exchange.c fills the areas, posts the request and a SEND after the request, and waits
    for the completions; `native_state` of each area is set. Raises OSError if ibv_poll_cq or ibv_query_qp fails.
    """
    native = compiled()
    assert native is not None
    buffer, start = _buffer()
    for number, (connection, initiator, receives, request, areas) in enumerate(specs):
        at = number * _SIZE
        _HEAD.pack_into(buffer, at, connection.address, initiator, receives)
        pack_send(buffer, at + _HEAD.size, (buffer, at + _AT_SGE, start + at + _AT_SGE), request)
        at_area = at + _AT_AREAS
        for area in areas:
            where = area.memory.addr, area.start, area.memory.size, area.length
            contents = _address(area.before), _address(area.wanted)
            _AREA.pack_into(buffer, at_area, *where, *contents, area.around, area.prefill)
            at_area += _AREA.size
        _RESULT.pack_into(buffer, at + _AT_RESULT, 0, 0, 0, _NOT_QUERIED, 0, 0, 0)
    count = native.rdma_cts_exchanges(buffer, len(specs))
    if count < 0:
        raise OSError(-count, "ibv_poll_cq or ibv_query_qp")
    return [
        _result(buffer, number * _SIZE, areas) for number, (*_, areas) in enumerate(specs[:count])
    ]


def _result(buffer: ctypes.Array[ctypes.c_char], at: int, areas: tuple[Area, Area]) -> Exchange:
    returned, completed, received, responder_state, *states, late = _RESULT.unpack_from(
        buffer,
        at + _AT_RESULT,
    )
    areas[0].native_state, areas[1].native_state = states
    completions = [
        completion(buffer, index, at + _AT_COMPLETIONS) for index in range(completed + received)
    ]
    if returned:
        posted = Return(returned, max(returned, 0))
    else:
        posted = _POSTED
    if responder_state != _NOT_QUERIED:
        state = _STATES.name_of(responder_state)
    else:
        state = ""
    return Exchange(posted, completions[:completed], completions[completed:], state, bool(late))


@functools.cache
def compiled() -> ctypes.CDLL | None:
    """Returns exchange.c, compiled by the first call; None without a compiler. Raises UserError if layouts differ."""
    constants = f"-DTURNS_PER_S={TURNS_PER_S}", f"-DRENEWAL_PSNS={RENEWAL_PSNS}"
    return library(SOURCE, _LAYOUT, "-libverbs", *constants)


@functools.cache
def _buffer() -> tuple[ctypes.Array[ctypes.c_char], int]:
    buffer = ctypes.create_string_buffer(MAX_BATCH * _SIZE)
    return buffer, ctypes.addressof(buffer)


@functools.lru_cache(maxsize=2 * _AREAS * MAX_BATCH)
def _address(content: bytes) -> int:
    """Returns the address of the bytes. The cache references the bytes, so equal bytes have the same address."""
    return ctypes.cast(ctypes.c_char_p(content), ctypes.c_void_p).value or 0


def native_connection(pair: Pair, silence_s: float, renewable: bool) -> NativeConnection | None:
    """Returns the pair for exchange.c. Returns None if exchange.c cannot use the pair, if there is no compiler, or if
    this device has not yet executed enough exchanges to compile exchange.c. Raises UserError if exchange.c does not
    have the layout that this module assumes."""
    requester, responder = pair.requester, pair.responder
    if type(requester) is not DeviceQueue or type(responder) is not DeviceQueue:
        return None
    if responder.sq_sig_all or not responder.device.findings.tells_state:
        return None
    return _native(requester, responder, silence_s, renewable, pair.renews_by_reset)


def native_renewal(pair: Pair, silence_s: float) -> NativeConnection | None:
    """Returns the pair for renewals by exchange.c, or None as native_connection. The way of posting does not matter."""
    requester, responder = pair.requester, pair.responder
    if isinstance(requester, DeviceQueue) and isinstance(responder, DeviceQueue):
        return _native(requester, responder, silence_s, True, True)
    return None


def _native(
    requester: DeviceQueue,
    responder: DeviceQueue,
    silence_s: float,
    renewable: bool,
    by_reset: bool,
) -> NativeConnection | None:
    if responder.kind not in _KINDS or {requester.state, responder.state} != {"RTS"}:
        return None
    responder.device.exchanges_requested += 1
    is_loaded = compiled.cache_info().currsize
    if (
        not is_loaded and responder.device.exchanges_requested <= COMPILE_THRESHOLD
    ) or not compiled():
        return None
    return NativeConnection(requester, responder, silence_s, renewable, by_reset)
