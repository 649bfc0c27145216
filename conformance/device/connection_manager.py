"""Connects queue pairs through the RDMA connection manager (librdmacm), in loopback on one device, and accepts strangers.
iWARP needs the connection manager, because only the connection manager can create the TCP connection of two queue pairs.
rdma_connect(3) and rdma_accept(3) identify the queue pairs by their numbers."""

import ctypes
import errno
import os
import select
import socket
import sys
import time
from typing import Any

from conformance.bench.calls import members
from conformance.errors import UserError

_LIBRARY = "librdmacm.so.1"
_PS_TCP = 0x0106  # RDMA_PS_TCP of <rdma/rdma_cma.h>
# enum rdma_cm_event_type, from 0 upwards.
_EVENTS = tuple(
    """
    ADDR_RESOLVED ADDR_ERROR ROUTE_RESOLVED ROUTE_ERROR CONNECT_REQUEST CONNECT_RESPONSE CONNECT_ERROR UNREACHABLE
    REJECTED ESTABLISHED DISCONNECTED DEVICE_REMOVAL MULTICAST_JOIN MULTICAST_ERROR ADDR_CHANGE TIMEWAIT_EXIT
    """.split(),
)
# Events of earlier connections, which are ignored.
_PAST = ("DISCONNECTED", "TIMEWAIT_EXIT")
_RESOURCES = 1  # outstanding RDMA READs and atomics at each end, like on pairs without the connection manager
_BACKLOG = 16
_Pointer = ctypes.c_void_p


class _ConnParam(ctypes.Structure):
    _fields_ = members(
        "void *private_data; uint8_t private_data_len, responder_resources, initiator_depth, flow_control, retry_count,"
        "rnr_retry_count, srq; uint32_t qp_num",
    )


class _Event(ctypes.Structure):
    """The beginning of struct rdma_cm_event."""

    _fields_ = members("void *id, *listen_id; int event, status")


class _Channel(ctypes.Structure):
    _fields_ = members("int fd")


class CmError(OSError):
    """A failure of a function of the connection manager. `error_code` is the errno."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(code, f"{what}: {os.strerror(code)}")
        self.error_code = code


class ConnectionManager:
    """An event channel with a listener on one address of this host."""

    def __init__(self, address: str, deadline_s: float) -> None:
        """`address` is the address of the device's network interface. `deadline_s` is the deadline for an event. Raises
        UserError if the library or the kernel's connection manager is missing."""
        try:
            self._library = ctypes.CDLL(_LIBRARY, use_errno=True)
        except OSError as error:
            message = f"{_LIBRARY} cannot be loaded; iWARP needs it to connect queue pairs"
            raise UserError(message, hint="install librdmacm", status=3) from error
        self._deadline_s = deadline_s
        create = self._library.rdma_create_event_channel
        create.restype = _Pointer
        self._channel = create()
        if not self._channel:
            message = (
                f"the RDMA connection manager cannot be used: {os.strerror(ctypes.get_errno())}"
            )
            hint = (
                "modprobe rdma_ucm, and check that /dev/infiniband/rdma_cm can be read and written"
            )
            raise UserError(message, hint=hint, status=3)
        self._events = select.poll()
        self._events.register(_Channel.from_address(self._channel).fd, select.POLLIN)
        self._listener = self._create_id()
        try:
            self._call("rdma_bind_addr", self._listener, _socket_address(address, 0))
            self._call("rdma_listen", self._listener, _BACKLOG)
        except CmError as error:
            raise UserError(
                f"the RDMA connection manager cannot listen on {address}: {error.strerror}",
                status=3,
            ) from error
        port = self._library.rdma_get_src_port
        port.restype, port.argtypes = ctypes.c_uint16, (_Pointer,)
        self.address, self.port = address, socket.ntohs(port(self._listener))
        self._address = _socket_address(address, self.port)

    def connect(self, active: int, passive: int) -> tuple[int, int]:
        """Connects two queue pairs, given by their numbers; `active` calls rdma_connect. Returns both ends of the
        connection. The caller destroys the queue pairs, and then both ends by `destroy`. Raises CmError."""
        asking, accepting = self._create_id(), 0
        try:
            wait_ms = int(self._deadline_s * 1000)
            self._call("rdma_resolve_addr", asking, None, self._address, wait_ms)
            self._await("ADDR_RESOLVED", asking)
            self._call("rdma_resolve_route", asking, wait_ms)
            self._await("ROUTE_RESOLVED", asking)
            self._call("rdma_connect", asking, _parameters(active))
            accepting = self._await("CONNECT_REQUEST")
            self._call("rdma_accept", accepting, _parameters(passive))
            for _ in (asking, accepting):
                self._await("ESTABLISHED", asking, accepting)
        except BaseException:
            for side in filter(None, (asking, accepting)):
                self.destroy(side)
            raise
        return asking, accepting

    def accept(self, passive: int) -> int:
        """Accepts the next connection of a stranger with a queue pair, given by its number. Returns the end of the
        connection. Raises CmError."""
        accepting = self._await("CONNECT_REQUEST")
        try:
            self._call("rdma_accept", accepting, _parameters(passive))
            self._await("ESTABLISHED", accepting)
        except BaseException:
            self.destroy(accepting)
            raise
        return accepting

    def close(self) -> None:
        """Closes the listener. All connections must be closed first."""
        self.destroy(self._listener)
        destroy = self._library.rdma_destroy_event_channel
        destroy.restype, destroy.argtypes = None, (_Pointer,)
        destroy(self._channel)

    def destroy(self, id_: int) -> None:
        """Releases one end of a connection, and thereby closes the connection."""
        self._call("rdma_destroy_id", id_)

    def _create_id(self) -> int:
        created = _Pointer()
        self._call("rdma_create_id", self._channel, ctypes.byref(created), None, _PS_TCP)
        return created.value or 0

    def _call(self, name: str, first: int, *others: Any) -> None:
        """Calls a function of the library that returns 0, or -1 with errno. Raises CmError."""
        if getattr(self._library, name)(_Pointer(first), *others):
            raise CmError(ctypes.get_errno(), name)

    def _await(self, awaited: str, *ids: int) -> int:
        """Waits for an event at one of the ends `ids`, or without `ids` at any end. Returns the end. Raises CmError."""
        until = time.monotonic() + self._deadline_s
        while self._events.poll(max(0.0, until - time.monotonic()) * 1000):
            pointer = _Pointer()
            self._call("rdma_get_cm_event", self._channel, ctypes.byref(pointer))
            event = _Event.from_address(pointer.value or 0)
            if event.event < len(_EVENTS):
                name = _EVENTS[event.event]
            else:
                name = f"event {event.event}"
            end, status = event.id or 0, event.status
            self._call("rdma_ack_cm_event", pointer.value or 0)
            if name == awaited and (not ids or end in ids):
                return end
            if name not in _PAST:
                if status < 0:
                    code = -status
                else:
                    code = errno.ECONNREFUSED
                raise CmError(code, f"the connection manager reported {name} instead of {awaited}")
        raise CmError(errno.ETIMEDOUT, f"the connection manager did not report {awaited}")


def _parameters(number: int) -> Any:
    return ctypes.byref(
        _ConnParam(responder_resources=_RESOURCES, initiator_depth=_RESOURCES, qp_num=number),
    )


def _socket_address(address: str, port: int) -> Any:
    """Returns struct sockaddr_in or sockaddr_in6. A link-local address ends with % and its interface."""
    host, _, interface = address.partition("%")
    if ":" in host:
        family = socket.AF_INET6
    else:
        family = socket.AF_INET
    head = int(family).to_bytes(2, sys.byteorder) + port.to_bytes(2, "big")
    packed = socket.inet_pton(family, host)
    if family == socket.AF_INET:
        return ctypes.create_string_buffer(head + packed + bytes(8), 16)
    if interface:
        scope = socket.if_nametoindex(interface)
    else:
        scope = 0
    return ctypes.create_string_buffer(
        head + bytes(4) + packed + scope.to_bytes(4, sys.byteorder),
        28,
    )
