"""Moves queue pairs through their states, with the attributes that each type needs, and connects the two queue pairs of
a pair. Also receives the asynchronous events of queue pairs.

On InfiniBand and RoCE, a pair is connected by state transitions with ibv_modify_qp(3). On iWARP, ibv_modify_qp moves a
queue pair from RESET to INIT, and the queue pair enters RTS when its TCP connection is established. After an error, an
iWARP queue pair cannot be reused, because RFC 5040 requires that an error terminates the connection.
"""

import ctypes
import functools
import select
from collections.abc import Mapping
from enum import IntFlag
from typing import Any, Protocol

from conformance.bench.calls import members
from conformance.bench.interface import Queue
from conformance.device.connection_manager import ConnectionManager
from conformance.verbs import ENUMS

_STATES = ENUMS["ibv_qp_state"]


class Attr(IntFlag):
    """The bits of enum ibv_qp_attr_mask (<infiniband/verbs.h>) that the suite uses."""

    STATE = 1 << 0
    ACCESS_FLAGS = 1 << 3
    PKEY_INDEX = 1 << 4
    PORT = 1 << 5
    QKEY = 1 << 6
    AV = 1 << 7
    PATH_MTU = 1 << 8
    TIMEOUT = 1 << 9
    RETRY_CNT = 1 << 10
    RNR_RETRY = 1 << 11
    RQ_PSN = 1 << 12
    MAX_QP_RD_ATOMIC = 1 << 13
    MIN_RNR_TIMER = 1 << 15
    SQ_PSN = 1 << 16
    MAX_DEST_RD_ATOMIC = 1 << 17
    DEST_QPN = 1 << 20


_INIT = Attr.STATE | Attr.PKEY_INDEX | Attr.PORT
_RTR = Attr.STATE | Attr.AV | Attr.PATH_MTU | Attr.DEST_QPN | Attr.RQ_PSN
_RTR_RESPONDER = _RTR | Attr.MAX_DEST_RD_ATOMIC | Attr.MIN_RNR_TIMER
_RTS = Attr.STATE | Attr.SQ_PSN
_RTS_REQUESTER = _RTS | Attr.TIMEOUT | Attr.RETRY_CNT | Attr.RNR_RETRY | Attr.MAX_QP_RD_ATOMIC
_MASKS: Mapping[str, Mapping[str, Attr]] = {
    "RC": {"INIT": _INIT | Attr.ACCESS_FLAGS, "RTR": _RTR_RESPONDER, "RTS": _RTS_REQUESTER},
    "XRC_SEND": {"INIT": _INIT | Attr.ACCESS_FLAGS, "RTR": _RTR, "RTS": _RTS_REQUESTER},
    "XRC_RECV": {"INIT": _INIT | Attr.ACCESS_FLAGS, "RTR": _RTR_RESPONDER},
    "UC": {"INIT": _INIT | Attr.ACCESS_FLAGS, "RTR": _RTR, "RTS": _RTS},
    "iWARP": {"INIT": Attr.STATE | Attr.ACCESS_FLAGS},
    "UD": {"INIT": _INIT | Attr.QKEY, "RTR": Attr.STATE, "RTS": _RTS},
}


# The distance between the first PSNs of a connection before and after its renewal. The queue pairs keep their numbers, so
# a packet that is late would else be taken for one of the new connection.
RENEWAL_PSNS = 1 << 16


def renewed_psn(psn: int) -> int:
    """Returns the first PSN of a renewed connection."""
    return (psn + RENEWAL_PSNS) % (1 << 24)


def transitions(kind: str) -> list[tuple[int, int]]:
    """Returns the transitions of a queue pair of type `kind`, each as (value of enum ibv_qp_state, attribute mask)."""
    return [(_STATES.value_of(state), int(mask)) for state, mask in _MASKS[kind].items()]


def modify_to(qp: Any, kind: str, attributes: Any, state: str, since: str = "RESET") -> None:
    """Moves a pyverbs queue pair from the state `since` to `state`, through the states between them. On the way
    to ERR, the queue pair enters every state of its type, as if it were connected. Raises PyverbsRDMAError."""
    steps = list(_MASKS[kind])
    for step in steps[steps.index(since) + 1 if since in steps else 0 :]:
        mask = _MASKS[kind][step]
        attributes.qp_state = _STATES.value_of(step)
        qp.modify(attributes, mask)
        if step == state:
            return
    if state == "ERR":
        attributes.qp_state = _STATES.value_of(state)
        qp.modify(attributes, Attr.STATE)


def query_state(qp: Any) -> str:
    attributes, _ = qp.query(Attr.STATE)
    return _STATES.name_of(int(attributes.qp_state))


# The enumerators of enum ibv_event_type (<infiniband/verbs.h>), from 0 upwards.
_NAMES = tuple(
    """
    CQ_ERR QP_FATAL QP_REQ_ERR QP_ACCESS_ERR COMM_EST SQ_DRAINED PATH_MIG PATH_MIG_ERR DEVICE_FATAL PORT_ACTIVE
    PORT_ERR LID_CHANGE PKEY_CHANGE SM_CHANGE SRQ_ERR SRQ_LIMIT_REACHED QP_LAST_WQE_REACHED CLIENT_REREGISTER
    GID_CHANGE WQ_FATAL
    """.split(),
)
# struct ibv_context begins with 33 pointers (the device, and 32 functions), and the integers cmd_fd and async_fd.
_ASYNC_FD = 33 * ctypes.sizeof(ctypes.c_void_p) + ctypes.sizeof(ctypes.c_int)


class _Event(ctypes.Structure):
    """struct ibv_async_event."""

    _fields_ = members("void *element; int type")


@functools.cache
def _library() -> Any:
    library = ctypes.CDLL("libibverbs.so.1")
    library.ibv_get_async_event.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    library.ibv_ack_async_event.argtypes = (ctypes.c_void_p,)
    return library


def events_of(qp: int, context: int, deadline_s: float = 0) -> list[str]:
    """Returns the names of a queue pair's events, without prefix, such as `QP_ACCESS_ERR`. `qp` is a struct ibv_qp *,
    and `context` is a struct ibv_context *. Drops events of other objects. Waits at most `deadline_s` seconds for the
    first event."""
    events: list[str] = []
    event = _Event()
    address = ctypes.addressof(event)
    descriptor = ctypes.c_int.from_address(context + _ASYNC_FD).value
    while select.select([descriptor], [], [], 0 if events else deadline_s)[
        0
    ] and not _library().ibv_get_async_event(context, address):
        if event.element == qp:
            events.append(
                _NAMES[event.type] if 0 <= event.type < len(_NAMES) else f"event {event.type}",
            )
        _library().ibv_ack_async_event(address)
    return events


CONNECTED = ("RTS", "ERR")  # states in which a queue pair has, or had, a peer


class End(Queue, Protocol):
    state: str

    def move_to(self, state: str, peer: int) -> None: ...
    def fail(self) -> None: ...


class ByStates:
    """Connects a pair by state transitions. The transition to RTR specifies the number of the peer's queue pair."""

    by_reset = True  # whether the queue pairs can be connected again after RESET

    def connect(self, requester: End, responder: End, state: str) -> None:
        """Moves the requester to RTS or INIT, and then the responder to `state`. A queue pair without a peer is both
        requester and responder, and is only moved to `state`."""
        if requester is not responder:
            # If the responder does not enter RTS, no messages are exchanged, so the requester needs only INIT.
            requester.move_to("RTS" if state in CONNECTED else "INIT", responder.number)
        responder.move_to(state, requester.number)

    def close(self) -> None:
        """Releases the connection's own objects after the queue pairs are destroyed."""


class ByManager(ByStates):
    by_reset = False

    def __init__(self, manager: ConnectionManager) -> None:
        self._manager = manager
        self._ends: tuple[int, ...] = ()

    def connect(self, requester: End, responder: End, state: str) -> None:
        """Moves the queue pairs to INIT and, if `state` requires it, connects them with the connection manager: the
        requester calls rdma_connect. Raises CmError, or PyverbsRDMAError if the device refuses a transition."""
        if state not in CONNECTED:
            super().connect(requester, responder, state)
            return
        for queue in (requester, responder):
            queue.move_to("INIT", 0)
        self._ends = self._manager.connect(requester.number, responder.number)
        for queue in (requester, responder):
            queue.state = "RTS"
        if state == "ERR":
            responder.fail()

    def close(self) -> None:
        for end in self._ends:
            self._manager.destroy(end)
        self._ends = ()
