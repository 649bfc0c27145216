"""Asynchronous events of a context: ibv_get_async_event(3).

They come some time after their cause, or not at all. Not for completions.
"""

import ctypes
import functools
import select
from typing import Any

# enum ibv_event_type of <infiniband/verbs.h>, from 0 upwards.
_NAMES = tuple(
    """
    CQ_ERR QP_FATAL QP_REQ_ERR QP_ACCESS_ERR COMM_EST SQ_DRAINED PATH_MIG PATH_MIG_ERR DEVICE_FATAL PORT_ACTIVE
    PORT_ERR LID_CHANGE PKEY_CHANGE SM_CHANGE SRQ_ERR SRQ_LIMIT_REACHED QP_LAST_WQE_REACHED CLIENT_REREGISTER
    GID_CHANGE WQ_FATAL
    """.split()
)
# struct ibv_context: the device, 32 functions of the provider, and then cmd_fd and async_fd.
_ASYNC_FD = 33 * ctypes.sizeof(ctypes.c_void_p) + ctypes.sizeof(ctypes.c_int)


class _Event(ctypes.Structure):
    """struct ibv_async_event."""

    _fields_ = (("element", ctypes.c_void_p), ("type", ctypes.c_int))


@functools.cache
def _library() -> Any:
    library = ctypes.CDLL("libibverbs.so.1")
    library.ibv_get_async_event.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    library.ibv_ack_async_event.argtypes = (ctypes.c_void_p,)
    return library


def events_of(qp: int, context: int, deadline_s: float = 0) -> list[str]:
    """The names of the events of struct ibv_qp * that have come, without prefix: `QP_ACCESS_ERR`.

    `context` is struct ibv_context *. Events of other objects that have come are dropped. If there is none
    yet, waits at most `deadline_s` seconds.
    """
    found: list[str] = []
    event = _Event()
    address = ctypes.addressof(event)
    descriptor = ctypes.c_int.from_address(context + _ASYNC_FD).value
    while select.select([descriptor], [], [], 0 if found else deadline_s)[0] and not _library().ibv_get_async_event(
        context, address
    ):
        if event.element == qp:
            found.append(_NAMES[event.type] if 0 <= event.type < len(_NAMES) else f"event {event.type}")
        _library().ibv_ack_async_event(address)
    return found
