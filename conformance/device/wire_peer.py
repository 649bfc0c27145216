"""A peer that is no RDMA device: a program that sends RoCEv2 packets to queue pairs of the device under test, and reads
what they send. ibv_modify_qp takes any number and any PSNs as those of the other end, so no connection manager is
needed. wire_sockets.py has the sockets; for a peer on another host, fixtures/hosts/ has the same interface."""

from __future__ import annotations

import ctypes
import ipaddress
import itertools
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from conformance.bench.calls import Pd
from conformance.bench.interface import Queue
from conformance.bench.memory_areas import pattern
from conformance.device.device import Device, ProtectionDomain
from conformance.device.memory import allocate
from conformance.device.queue_kinds import ExtendedQueue
from conformance.device.queue_pairs import DATAGRAM_QKEY, DeviceQueue
from conformance.device.remote_peer import Endpoint
from conformance.device.stream_peer import SocketsOfPeer, StreamLink, UsedOnce
from conformance.device.wire_sockets import V4, V6, Datagram
from conformance.errors import DeviceSilent, HostLacks, PeerLost, UserError
from conformance.model.case import SMALLEST_MTU, SMALLEST_MTU_BYTES, QpSpec, mtu_bytes
from conformance.model.deadline import Wait
from conformance.model.transport import IWARP, ROCE, Transport
from conformance.model.vocabulary import WIRE
from conformance.verbs import ENUMS
from conformance.wire.icrc import RIGHT_ORDER, UDP_PORT, Order, Path
from conformance.wire.packet import Packet, Parsed, build, parse

PSN_BITS = 24
# The IP header of IPv6, UDP, BTH, the largest extended headers, the data, and the ICRC.
_SMALLEST_MTU = 40 + 8 + 12 + 28 + SMALLEST_MTU_BYTES + 4
_FIRST_QPN = 0x100001
# The bits of a traffic class that a device and switches may use (RFC 3168).
_CONGESTION = 0x03
_MAPPED = "0000:0000:0000:0000:0000:ffff:"
# How long the sentinel's acknowledgement may take, in seconds: the peer is lost then.
_SENTINEL_S = 20.0
_SENTINELS = 3
_TURN_S = 0.001  # one turn of a Wait
_PREFLIGHT_S = 2.0
_TRIES, _TRIES_OF_SENTINEL = 3, 10
# Where the preflight's WRITE goes whose ICRC has this byte order, in bytes from the beginning of its region.
_PLACES: Mapping[Order, int] = {RIGHT_ORDER: 0, "big": 64}
_ACCESS = ENUMS["ibv_access_flags"]
_RIGHTS = _ACCESS.mask_of("LOCAL_WRITE", "REMOTE_WRITE")
# The capability that a device needs for a right of a queue pair.
_FLUSH_RIGHTS = {
    _ACCESS.value_of("FLUSH_GLOBAL"): "flush_global",
    _ACCESS.value_of("FLUSH_PERSISTENT"): "flush_persistent",
}
_BYTES = 8
_HINT = "see docs/wire.md: route, neighbour entry, port 4791, firewall"
_HINT_OF_MTU = "raise the MTU of the interfaces on the way"


class WireLink:
    """The peer of all wire connections of a device. `order` is the byte order of the ICRCs that the device takes and
    sends; a row of WIRE-07 judges it."""

    def __init__(self, device: Device, sockets: SocketsOfPeer, deadline_s: float) -> None:
        """Raises HostLacks if the peer's WRITE does not arrive, or is not acknowledged; DeviceSilent if only the device
        can be the reason."""
        self.device, self.sockets = device, sockets
        self._deadline_s = deadline_s
        self.gids = _gids(device, sockets.addresses)
        self.order: Order = RIGHT_ORDER
        self._inboxes: dict[int, deque[Parsed]] = {}
        self._numbers = itertools.count(_FIRST_QPN)
        self._sentinel = _Sentinel(self)
        try:
            self._sentinel.check()
            self.flush_icrc = self._flush_icrc()
        except BaseException:
            self._sentinel.close()
            raise

    def _flush_icrc(self) -> str:
        """Returns the ICRC with which the device takes a FLUSH. A FLUSH with an invented key must be refused; an answer
        shows that its ICRC is that of the device."""
        if not self.device.capabilities.get("flush_global"):
            return ""
        return self._sentinel.taken_flush()

    def number(self) -> int:
        """Returns a new queue pair number of the peer, which has an inbox."""
        number = next(self._numbers)
        self._inboxes[number] = deque()
        return number

    def forget(self, number: int) -> None:
        del self._inboxes[number]

    def path(self, version: str) -> Path:
        """Returns the path from the peer to the device."""
        return Path(self.sockets.addresses[version], self.gids[version][1], order=self.order)

    def next_packet(self, number: int, deadline_s: float) -> Parsed | None:
        """Returns the oldest packet to a queue pair of the peer, or None at the deadline."""
        inbox = self._inboxes[number]
        wait = Wait(deadline_s)
        while not inbox:
            # Without a deadline, what has arrived is read once.
            for datagram in self.sockets.received(min(deadline_s, _TURN_S)):
                self._sort(datagram)
            if not inbox and (not deadline_s or wait.over()):
                return None
        return inbox.popleft()

    def _sort(self, datagram: Datagram) -> None:
        checks = datagram.identification is not None
        path = Path(
            datagram.source,
            datagram.destination,
            datagram.source_port,
            identification=datagram.identification or 0,
            fragment=datagram.fragment,
            order=self.order,
        )
        packet = parse(datagram.payload, path, checks)
        inbox = self._inboxes.get(packet.fields.get("qpn", 0))
        if inbox is not None:
            fields = {**packet.fields, "tclass": datagram.traffic_class & ~_CONGESTION}
            inbox.append(replace(packet, fields=fields))

    def settle(self) -> None:
        """Waits until the device has processed the packets that were sent before: messages on another connection are
        acknowledged one after the other. Raises PeerLost."""
        for _ in range(_SENTINELS):
            self._sentinel.exchange(_SENTINEL_S)

    def close(self) -> None:
        self._sentinel.close()
        self.sockets.close()


def _gids(device: Device, addresses: dict[str, str]) -> dict[str, tuple[int, str]]:
    """Returns the GID index and the IP address of the device for each IP version of the peer. Raises HostLacks."""
    gids: dict[str, tuple[int, str]] = {}
    for gid in device.roce_gids():
        if gid.address.startswith(_MAPPED):
            version = V4
        else:
            version = V6
        text = gid.address
        if version == V4:
            digits = bytes.fromhex(text.removeprefix(_MAPPED).replace(":", ""))
            text = ".".join(map(str, digits))
        if version in addresses:
            gids.setdefault(version, (gid.index, text))
    if not gids:
        raise HostLacks("no GID of RoCE v2 has an IP address of the peer's kind", _HINT)
    return gids


class WireQueue(DeviceQueue):
    """A queue pair of the device whose other end is a wire peer. `link` and `remote` are set before it is moved."""

    link: WireLink
    peer_number = 0

    def connection_attributes(self, peer: int) -> Any:
        """Returns the attributes of the connection to the peer's queue pair number `peer`."""
        attributes = super().connection_attributes(peer)
        attributes.rq_psn, attributes.sq_psn = self.spec.first_psns
        attributes.max_dest_rd_atomic = self.spec.max_dest_rd_atomic
        attributes.max_rd_atomic = self.spec.max_rd_atomic
        attributes.timeout, attributes.retry_cnt = self.spec.timeout, self.spec.retry_cnt
        attributes.rnr_retry = self.spec.rnr_retry
        return attributes

    def _path(self) -> Any:
        from pyverbs.addr import AHAttr, GlobalRoute

        assert self.remote is not None
        index, _ = self.link.gids[self.spec.ip]
        route = GlobalRoute(
            dgid=self.remote.gid,
            sgid_index=index,
            traffic_class=self.spec.traffic_class,
        )
        return AHAttr(gr=route, is_global=1, port_num=self.device.port, dlid=0)

    def _access(self) -> int:
        """The rights of the queue pair, those of FLUSH and ATOMIC WRITE too."""
        if self.kind == "UD":
            return 0
        available = super()._access()
        if self.spec.access is None:
            return available
        for right, capability in _FLUSH_RIGHTS.items():
            if self.device.capabilities.get(capability):
                available |= right
        return self.spec.access & available


class WireEnd:
    """The peer's end of a connection; see bench.interface.WireEnd."""

    def __init__(self, link: WireLink, spec: QpSpec, mtu: int = SMALLEST_MTU_BYTES) -> None:
        self._link, self.path, self.mtu = link, link.path(spec.ip), mtu
        self.first_psn, self.device_psn = spec.first_psns
        self.number = link.number()
        self.destination = 0
        self.qkey = DATAGRAM_QKEY

    def send(self, packet: Packet, **wrong: Any) -> None:
        """Sends a packet; `wrong` are arguments of wire.packet.build. Raises PeerLost."""
        payload = build(packet, self.path, **wrong)
        try:
            self._link.sockets.send(payload, self.path.destination)
        except OSError as error:
            raise PeerLost(f"the wire peer cannot send: {error.strerror}") from error

    @property
    def flush_icrc(self) -> str:
        return self._link.flush_icrc

    def receive(self, deadline_s: float) -> Parsed | None:
        return self._link.next_packet(self.number, deadline_s)

    def settle(self) -> None:
        self._link.settle()

    def time_s(self) -> float:
        return time.monotonic()

    def close(self) -> None:
        self._link.forget(self.number)


class BuildingWireQueue(WireQueue, ExtendedQueue):
    """The same for a queue pair that posts with the builders of ibv_wr_post(3)."""


def wire_queue_type(spec: QpSpec) -> type[WireQueue]:
    """Returns the class of the device's queue pair. One whose requests the peer sends (WIRE) has no builders."""
    return WireQueue if spec.extended in ("", WIRE) else BuildingWireQueue


class WirePair(UsedOnce):
    """A queue pair of the device, and a peer that is no RDMA device."""

    transport: Transport = ROCE
    mtu_code = SMALLEST_MTU  # of enum ibv_mtu: the path MTU of a connection that names none

    def __init__(self, link: WireLink, spec: QpSpec, pd: Pd, deadline_s: float) -> None:
        """`pd` is the domain of the device's queue pair. Raises PyverbsRDMAError."""
        if spec.ip not in link.gids:
            raise HostLacks(f"device and wire peer share no IP address of version {spec.ip}", _HINT)
        active = link.device.active_mtu
        if spec.path_mtu > active:
            here, needed = mtu_bytes(active), mtu_bytes(spec.path_mtu)
            raise HostLacks(f"the MTU of the port is {here}, not {needed} bytes", _HINT_OF_MTU)
        code = spec.mtu(min(self.mtu_code, active))
        self.end = WireEnd(link, spec, mtu_bytes(code))
        self.lingering = link.device.lingering
        self.tells_state = link.device.findings.tells_state
        self.responder = wire_queue_type(spec)(link.device, pd, spec, deadline_s)
        self.requester: Queue = self.responder
        self.responder.link = link
        self.responder.remote = Endpoint(_gid(self.end), 0, code)
        self.end.destination = self.responder.number
        try:
            self.responder.move_to(spec.state, self.end.number)
        except BaseException:
            self.close()
            raise

    def connect(self) -> None:
        self.responder.move_to("RTS", self.end.number)

    def reset(self) -> None:
        self.responder.reset()
        self.connect()

    def close(self) -> None:
        self.responder.close()
        self.end.close()


def _gid(end: WireEnd) -> str:
    packed = ipaddress.ip_address(end.path.source).packed
    digits = packed.hex()
    if len(packed) == 4:
        return f"{_MAPPED}{digits[:4]}:{digits[4:]}"
    return ":".join(digits[start : start + 4] for start in range(0, len(digits), 4))


def lack_of(path: Path, arrived: bool, acknowledged: bool) -> tuple[str, str] | None:
    """Returns what the preflight's WRITE over a path lacks, with the way to provide it; None for nothing."""
    port, way = f"UDP port {UDP_PORT}", f"from {path.source} to {path.destination}"
    if arrived and acknowledged:
        return None
    if arrived:
        lack = f"the wire peer's WRITE arrived, but no acknowledgement came back to {path.source}"
        return lack, f"does a firewall of that machine drop {port}? does another program have it?"
    if acknowledged:
        return "the wire peer's WRITE was acknowledged but did not arrive", _HINT
    lack = f"the wire peer's WRITE {way} did not arrive"
    hint = (
        f"are both in one VLAN and subnet (ip neigh shows FAILED if not)? does a firewall drop {port}?"
        f" is the MTU of each interface on the way at least {_SMALLEST_MTU}?"
    )
    return lack, hint


class _Sentinel:
    """A connection for messages of no bytes, whose acknowledgement shows that earlier packets have been processed."""

    def __init__(self, link: WireLink) -> None:
        self._pd = ProtectionDomain(link.device)
        if V4 in link.gids:
            version = V4
        else:
            version = V6
        try:
            self._pair = WirePair(link, QpSpec("RC", "pd", ip=version), self._pd, _PREFLIGHT_S)
        except BaseException:
            self._pd.close()
            raise
        self._psn = self._pair.end.first_psn
        self._link = link

    def check(self) -> None:
        """Checks that a WRITE of the peer arrives and is acknowledged. Raises HostLacks and DeviceSilent."""
        from conformance.device.libibverbs import Libibverbs

        library = Libibverbs()
        memory = allocate("anonymous", 4096)
        returned = library.reg_mr(self._pd, memory.addr, 4096, _RIGHTS)
        try:
            if returned.mr is None:
                raise HostLacks("the region of the wire peer's preflight was refused", _HINT)
            acknowledged = self._write(memory.addr, int(returned.mr.struct.rkey))
            arrived = self._arrived(memory.addr)
        finally:
            if returned.mr:
                library.dereg_mr(returned.mr)
            memory.close()
        lack = lack_of(self._pair.end.path, arrived, acknowledged)
        if lack and self._link.sockets.lossless:
            raise DeviceSilent(*lack)
        if lack:
            raise HostLacks(*lack)

    def _write(self, addr: int, rkey: int) -> bool:
        """Sends a WRITE, and returns whether it was acknowledged. If the way to the device is lossless and nothing comes
        back, the ICRC may have another byte order for the device; a WRITE with this ICRC goes to an address of its own."""
        orders: Sequence[Order] = (RIGHT_ORDER,) * _TRIES
        deadline_s = _PREFLIGHT_S
        if self._link.sockets.lossless:
            orders, deadline_s = tuple(_PLACES), _SENTINEL_S
        for order in orders:
            self._take(order)
            fields = {"va": addr + _PLACES[order], "rkey": rkey, "length": _BYTES}
            if self._acknowledged(fields, pattern(_BYTES), deadline_s):
                self._psn += 1
                return True
        return False

    def _arrived(self, addr: int) -> bool:
        """Whether a WRITE has arrived. Its place tells the byte order of the ICRCs of the device."""
        for order, place in _PLACES.items():
            if ctypes.string_at(addr + place, _BYTES) == pattern(_BYTES):
                self._take(order)
                return True
        self._take(RIGHT_ORDER)
        return False

    def _take(self, order: Order) -> None:
        self._link.order = order
        self._pair.end.path = replace(self._pair.end.path, order=order)

    def _acknowledged(self, fields: dict[str, int], data: bytes, deadline_s: float) -> bool:
        end = self._pair.end
        numbers = {"qpn": end.destination, "psn": self._psn, "ackreq": 1, **fields}
        end.send(Packet("RC", "RDMA_WRITE_ONLY", numbers, data))
        answer = end.receive(deadline_s)
        while answer and answer.fields.get("psn") != self._psn % (1 << PSN_BITS):
            answer = end.receive(deadline_s)
        return answer is not None and answer.name == "ACK"

    def taken_flush(self) -> str:
        """Returns the wrong ICRC with which the device answers a FLUSH that must be refused, or an empty text."""
        for crc in ("", "twice"):
            pair = WirePair(self._link, self._pair.responder.spec, self._pd, _PREFLIGHT_S)
            fields = {"qpn": pair.end.destination, "psn": pair.end.first_psn, "ackreq": 1, "plt": 1}
            pair.end.send(Packet("RC", "FLUSH", {**fields, "length": _BYTES}), crc=crc)
            self.exchange(_PREFLIGHT_S)
            answer = pair.end.receive(0)
            pair.close()
            if answer:
                return crc
        return ""

    def exchange(self, deadline_s: float) -> None:
        """Sends a message of no bytes, and awaits its acknowledgement. Raises PeerLost."""
        for _ in range(_TRIES_OF_SENTINEL):
            if self._acknowledged({}, b"", deadline_s / _TRIES_OF_SENTINEL):
                self._psn += 1
                return
        raise PeerLost("the wire peer's connection to the device no longer works")

    def close(self) -> None:
        self._pair.close()
        with suppress(Exception):
            self._pd.close()


def opened(device: Device, sockets: SocketsOfPeer, deadline_s: float) -> WireLink | StreamLink:
    """Returns the link to a peer. Raises HostLacks with the reason why there is none, and DeviceSilent."""
    try:
        if device.transport is IWARP:
            return StreamLink(device, sockets, deadline_s)
        return WireLink(device, sockets, deadline_s)
    except DeviceSilent:
        sockets.close()
        raise
    except UserError as error:
        sockets.close()
        raise HostLacks(f"there is no wire peer: {error.message}", error.hint or _HINT) from error
    except (
        Exception
    ) as error:  # PeerLost, or one of pyverbs, whose exceptions differ between versions
        sockets.close()
        reason = str(error).splitlines()[0]
        raise HostLacks(f"there is no wire peer: {reason}", _HINT) from error
