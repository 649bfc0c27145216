"""The sockets of a peer that speaks RoCEv2 or iWARP itself. They need the standard library only, because they also run
on hosts of others: an unprivileged UDP socket sends and receives, and if the process may have a raw socket (CAP_NET_RAW), that
one receives, because the ICRC of an answer covers its IP header."""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from conformance.errors import UserError
from conformance.wire.icrc import UDP_PORT

_CLONE_NEWNET = 0x40000000  # <linux/sched.h>
NAMESPACES = Path("/run/netns")
# <linux/in.h>: packets have DF and, on an unconnected socket, the id 0
_IP_MTU_DISCOVER, _DO = (10, 2)
_NO_CHECK6_RX = 102  # UDP_NO_CHECK6_RX of <linux/udp.h>: RoCEv2 has no UDP checksum over IPv6
_SIOCGIFADDR = 0x8915  # <linux/sockios.h>
_IFREQ = struct.Struct("=16sHH4s16x")  # struct ifreq with a struct sockaddr_in
_IPV4_SIZE, _UDP_SIZE = 20, 8
_BUFFER = 1 << 22  # bytes: the responses to a long READ arrive at once
_LARGEST = 1 << 16
_ANCILLARY = socket.CMSG_SPACE(4)
_SIOCOUTQ = 0x5411  # <linux/sockios.h>, TIOCOUTQ
_INT = struct.Struct("=i")
_CONNECT_S = 10.0
V4, V6 = "v4", "v6"


class Datagram(NamedTuple):
    """A received UDP datagram: its payload, addresses, source port, the identification and fragment fields of its IPv4
    header, and its traffic class; `identification` is None if the header was not received."""

    payload: bytes
    source: str
    destination: str
    source_port: int
    identification: int | None
    fragment: int
    traffic_class: int = 0


@contextmanager
def namespace(name: str) -> Iterator[None]:
    """Runs the block in a network namespace of `ip netns`; an empty name is this process's own. Raises UserError."""
    if not name:
        yield
        return
    before = os.open("/proc/self/ns/net", os.O_RDONLY)
    try:
        with open(NAMESPACES / name) as other:
            _enter(other.fileno())
        yield
    except OSError as error:
        message = f"the network namespace {name} cannot be entered: {error.strerror}"
        raise UserError(message, hint="run as root", status=3) from error
    finally:
        _enter(before)
        os.close(before)


def _enter(descriptor: int) -> None:
    """Calls setns(2) for a network namespace; os.setns is younger than Python 3.11. Raises OSError."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.setns(descriptor, _CLONE_NEWNET):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


class TcpStream:
    """A TCP stream to the device."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes) -> None:
        """Raises OSError if the device has closed the stream."""
        self._stream.sendall(data)

    def receive(self, deadline_s: float) -> bytes | None:
        """Returns the bytes that have arrived, none if the stream has ended, or None at the deadline."""
        if not select.select([self._stream], [], [], deadline_s)[0]:
            return None
        try:
            return self._stream.recv(_LARGEST)
        except OSError:  # the device has reset the stream
            return b""

    def arrived(self) -> bool:
        """Whether the device's host has acknowledged all bytes."""
        unsent = bytearray(_INT.size)
        fcntl.ioctl(self._stream, _SIOCOUTQ, unsent)
        return not any(unsent)

    def close(self) -> None:
        self._stream.close()


class Sockets:
    """The sockets of a peer on one network interface. `lossless` says that nothing on the way to the device loses packets."""

    lossless = False

    def __init__(self, interface: str = "", inside: str = "") -> None:
        """`interface` is the name of a network interface, by default the only one besides lo, of this process or of the
        network namespace `inside`. Raises UserError."""
        self.addresses: dict[str, str] = {}
        self._inside = inside
        self._udp: dict[str, socket.socket] = {}
        self._raw: socket.socket | None = None
        with namespace(inside):
            self._interface = interface or _only_interface()
            self._open_v4(_address_v4(self._interface))
            self._open_v6(_address_v6(self._interface))
        if not self.addresses:
            message = f"{self._interface} has no IP address for the wire peer"
            raise UserError(message, hint="ip address add ADDRESS dev INTERFACE", status=3)

    def _open_v4(self, address: str) -> None:
        if not address:
            return
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        udp.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _DO)
        udp.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        _bind(udp, (address, UDP_PORT))
        self.addresses[V4], self._udp[V4] = address, udp
        with suppress(PermissionError):
            raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
            raw.bind((address, 0))
            self._raw = raw

    def _open_v6(self, address: str) -> None:
        if not address:
            return
        udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        udp.setsockopt(socket.IPPROTO_UDP, _NO_CHECK6_RX, 1)
        udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        self._scope = socket.if_nametoindex(self._interface)
        try:
            _bind(udp, (address, UDP_PORT, 0, self._scope))
        except UserError:  # such as an address that is still checked for duplicates
            if not self.addresses:
                raise
            return
        self.addresses[V6], self._udp[V6] = address, udp

    def connect(self, address: str, port: int) -> TcpStream:
        """Connects a TCP stream to a listener. Raises UserError."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with namespace(self._inside):
            stream = socket.socket(family, socket.SOCK_STREAM)
        stream.settimeout(_CONNECT_S)
        try:
            stream.connect((address, port))
        except OSError as error:
            stream.close()
            reason = error.strerror or "no answer"
            message = f"the wire peer cannot connect to port {port} of {address}: {reason}"
            raise UserError(message, hint="does a firewall refuse it?", status=3) from error
        return TcpStream(stream)

    @property
    def sees_headers(self) -> bool:
        """Whether IPv4 headers are received, so that the ICRC of every answer can be checked."""
        return self._raw is not None

    def send(self, payload: bytes, destination: str) -> None:
        """Sends a datagram to port 4791 of an address. Raises OSError if there is no route."""
        if ":" in destination:
            self._udp[V6].sendto(payload, (destination, UDP_PORT, 0, self._scope))
        else:
            self._udp[V4].sendto(payload, (destination, UDP_PORT))

    def received(self, deadline_s: float) -> list[Datagram]:
        """Returns the datagrams that have arrived from port 4791 or to it; waits at most `deadline_s` seconds for the
        first."""
        datagrams: list[Datagram] = []
        sockets = [*self._udp.values()]
        if self._raw:
            sockets.append(self._raw)
        ready, _, _ = select.select(sockets, [], [], deadline_s)
        while ready:
            for socket_ready in ready:
                datagram = self._read(socket_ready)
                if datagram:
                    datagrams.append(datagram)
            ready, _, _ = select.select(sockets, [], [], 0)
        return datagrams

    def _read(self, ready: socket.socket) -> Datagram | None:
        try:
            data, ancillary, _, sender = ready.recvmsg(_LARGEST, _ANCILLARY)
        except OSError:  # an ICMP error of an earlier packet
            return None
        if ready is self._raw:
            return _of_raw(data)
        if ready is self._udp.get(V4):
            if self._raw:
                return None  # the raw socket has the same datagram with its header
            destination, identification = self.addresses[V4], None
        else:
            destination, identification = self.addresses[V6], 0
        source, traffic_class = sender[0].partition("%")[0], _traffic_class(ancillary)
        return Datagram(data, source, destination, sender[1], identification, 0, traffic_class)

    def close(self) -> None:
        for udp in self._udp.values():
            udp.close()
        if self._raw:
            self._raw.close()


def _of_raw(packet: bytes) -> Datagram | None:
    """Returns the datagram in an IPv4 packet to port 4791; None for any other packet."""
    start = (packet[0] & 0x0F) * 4
    if start != _IPV4_SIZE or len(packet) < start + _UDP_SIZE:
        return None
    identification, fragment = struct.unpack_from(">HH", packet, 4)
    source, destination = map(socket.inet_ntoa, (packet[12:16], packet[16:20]))
    source_port, port = struct.unpack_from(">HH", packet, start)
    if port != UDP_PORT:
        return None
    payload = packet[start + _UDP_SIZE :]
    return Datagram(
        payload,
        source,
        destination,
        source_port,
        identification,
        fragment,
        traffic_class=packet[1],
    )


def _traffic_class(ancillary: Sequence[tuple[int, int, bytes]]) -> int:
    """Returns the traffic class in the ancillary data of a datagram: a byte of IPv4, or an int of IPv6."""
    for _, _, data in ancillary:
        return int.from_bytes(data, sys.byteorder)
    return 0


def _bind(udp: socket.socket, address: tuple[object, ...]) -> None:
    try:
        udp.bind(address)
    except OSError as error:
        udp.close()
        message = f"the wire peer cannot have UDP port {UDP_PORT} of {address[0]}: {error.strerror}"
        hint = "a RoCE device of that machine, or another program, has it: use another machine"
        raise UserError(message, hint=hint, status=3) from error


def _only_interface() -> str:
    names = [name for _, name in socket.if_nameindex() if name != "lo"]
    if len(names) != 1:
        listed = ", ".join(names) or "none"
        message = f"the wire peer's network interface must be named: there are {listed}"
        raise UserError(message, hint="--wire-peer root@HOST:INTERFACE")
    return names[0]


def _address_v4(interface: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = _IFREQ.pack(interface.encode(), 0, 0, b"")
        try:
            answer = fcntl.ioctl(any_socket, _SIOCGIFADDR, request)
        except OSError:
            return ""
    return socket.inet_ntoa(_IFREQ.unpack_from(answer)[3])


def _address_v6(interface: str) -> str:
    """Returns the IPv6 address of an interface, from the thread's own /proc entry, which a namespace changes."""
    table = Path("/proc/thread-self/net/if_inet6")
    if not table.exists():  # a kernel without IPv6
        return ""
    for line in table.read_text().splitlines():
        digits, _, _, _, _, name = line.split()
        if name == interface:
            return socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))
    return ""
