"""A peer that is no RDMA device for iWARP: a program that connects a TCP stream to the device's listener, negotiates MPA,
and sends and receives segments in it. On the device's side the connection manager accepts the stream with a queue pair.
wire_sockets.py has the sockets."""

from __future__ import annotations

import ctypes
from collections import deque
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from conformance.bench.calls import Pd
from conformance.bench.interface import Queue
from conformance.bench.memory_areas import pattern
from conformance.device.connection_manager import CmError, ConnectionManager
from conformance.device.device import Device, ProtectionDomain
from conformance.device.libibverbs import Libibverbs
from conformance.device.memory import PAGE, Memory, allocate
from conformance.device.queue_pairs import DeviceQueue
from conformance.device.wire_sockets import Datagram
from conformance.errors import DeviceSilent, HostLacks, NotConnected, PeerLost, SetupRefused
from conformance.model.case import QpSpec
from conformance.model.deadline import Wait
from conformance.model.transport import IWARP, Transport
from conformance.verbs import ENUMS
from conformance.wire import mpa
from conformance.wire.segments import (
    VERSION,
    ParsedSegment,
    Segment,
    fields_of_terminate,
    kind_of,
    parse_segment,
)

# How long the device may take to answer a READ on a stream that works, in seconds.
_PROBE_S = 20.0
_PROBE_SINK = 0x0B5E55ED  # the STag of the peer's own READs, which no row uses
_BYTES = 8
_RIGHTS = ENUMS["ibv_access_flags"].mask_of("LOCAL_WRITE", "REMOTE_WRITE", "REMOTE_READ")
_HINT = "see docs/wire.md: route, firewall, MPA"


class Stream(Protocol):
    """See wire_sockets.TcpStream."""

    def send(self, data: bytes) -> None: ...
    def receive(self, deadline_s: float) -> bytes | None: ...
    def arrived(self) -> bool: ...
    def close(self) -> None: ...


class SocketsOfPeer(Protocol):
    """The sockets of a peer that sends packets or connects streams; see wire_sockets.Sockets."""

    @property
    def addresses(self) -> dict[str, str]: ...
    @property
    def sees_headers(self) -> bool: ...
    @property
    def lossless(self) -> bool: ...
    def send(self, payload: bytes, destination: str) -> None: ...
    def received(self, deadline_s: float) -> list[Datagram]: ...
    def connect(self, address: str, port: int) -> Stream: ...
    def close(self) -> None: ...


class UsedOnce:
    """A pair for one row: it begins connected, and is never renewed."""

    renews_by_reset = False

    def connect(self) -> None:
        """Is not needed."""

    def renew(self) -> None:
        """Is not needed."""


class Probe:
    """A region of the device in the domain `pd` from which the peer may read, to see whether a stream works."""

    def __init__(self, pd: Pd) -> None:
        """Raises SetupRefused."""
        self._library = Libibverbs()
        self.memory: Memory = allocate("anonymous", PAGE)
        self._mr = self._library.reg_mr(pd, self.memory.addr, PAGE, _RIGHTS).mr
        if self._mr is None:
            self.memory.close()
            raise SetupRefused("the region of the wire peer", "")
        self.rkey = int(self._mr.struct.rkey)

    def close(self) -> None:
        self._library.dereg_mr(self._mr)
        self.memory.close()


class StreamEnd:
    """The peer's end of a stream; see bench.interface.StreamEnd."""

    def __init__(self, stream: Stream, probe: Probe, mirrored: bool = False) -> None:
        self._stream, self._probe, self.mirrored = stream, probe, mirrored
        self._reader = mpa.Reader()
        self._inbox: deque[ParsedSegment] = deque()
        self._numbers = {0: 1, 1: 1, 2: 1}  # of the next message of each queue (RFC 5041, 5.1.2)
        self._offset = 0  # in the message that is not complete
        self._probes = 0
        self.incomplete = self.closed = False

    def negotiate(self) -> None:
        """Sends the MPA request with which a connection begins."""
        self._stream.send(mpa.request())

    def agree(self) -> None:
        """Receives the reply. Raises PeerLost if the device does not accept."""
        received = b""
        while len(received) < mpa.FRAME_SIZE:
            more = self._stream.receive(_PROBE_S)
            if not more:
                raise PeerLost("the device sends no MPA reply")
            received += more
        flags = mpa.reply_flags(received[: mpa.FRAME_SIZE])
        if flags is None or flags & (mpa.REJECTED | mpa.MARKERS) or not flags & mpa.CRC:
            raise PeerLost(f"the device's MPA reply is {received[: mpa.FRAME_SIZE].hex()}")
        begun = mpa.FRAME_SIZE + mpa.private_bytes(received[: mpa.FRAME_SIZE])
        if received[begun:]:
            self._take(received[begun:])

    def numbered(self, operation: str, fields: dict[str, int], size: int) -> dict[str, int]:
        """Adds the message number and the offset to the fields of a segment of `size` bytes, if it has none."""
        queue = kind_of(operation).queue
        last = fields.get("last", 1)
        if queue is not None:
            fields = {"msn": self._numbers[queue], "mo": self._offset, **fields}
            self._numbers[queue] += last
        self._offset = 0 if last else self._offset + size
        self.incomplete = not last
        return fields

    def send(self, segment: Segment, **wrong: Any) -> None:
        """Sends a segment; `wrong` are arguments of mpa.frame. A stream that the device has closed takes nothing."""
        packed = segment.packed()
        if wrong.get("cut") is not None or wrong.get("length", 0) > len(packed):
            self.incomplete = True
        try:
            self._stream.send(mpa.frame(packed, **wrong))
        except OSError:
            self.closed = True

    def receive(self, deadline_s: float) -> ParsedSegment | None:
        wait = Wait(deadline_s)
        while not self._inbox and not self.closed:
            received = self._stream.receive(deadline_s)
            if received is not None:
                self._take(received)
            if not self._inbox and (not deadline_s or wait.over()):
                return None
        return self._inbox.popleft() if self._inbox else None

    def _take(self, received: bytes) -> None:
        """Takes bytes of the stream; none means that it has ended."""
        self.closed = self.closed or not received
        for packed, mistakes in self._reader.take(received):
            segment = parse_segment(packed, self.mirrored)
            self._inbox.append(replace(segment, wrong=(*segment.wrong, *mistakes)))

    def probe(self) -> bool:
        """Reads from the device's memory. Returns whether the data came; if not, the stream has ended."""
        self._probes += 1
        sink = {"sinkstag": _PROBE_SINK, "sinkto": self._probes * _BYTES, "length": _BYTES}
        fields = {**sink, "rkey": self._probe.rkey, "va": self._probe.memory.addr}
        operation = "RDMA_READ_REQUEST"
        self.send(Segment(operation, self.numbered(operation, fields, 0)))
        earlier: list[ParsedSegment] = []
        answered = False
        while not answered:
            segment = self.receive(_PROBE_S)
            if segment is None:
                break
            answered = segment.fields.get("rkey") == _PROBE_SINK
            if not answered:
                earlier.append(segment)
        self._inbox.extendleft(reversed(earlier))
        if not answered and not self.closed:
            raise PeerLost("the device neither answers the wire peer's READ nor ends the stream")
        return answered

    def settle(self) -> None:
        if self.closed:
            return
        if not self.incomplete:
            self.probe()
            return
        # The rest of a message is missing, so that a READ would belong to it.
        wait = Wait(_PROBE_S)
        while not self._stream.arrived() and not wait.over():
            self._take_what_is_there()
        self._take_what_is_there()

    def _take_what_is_there(self) -> None:
        received = self._stream.receive(0.001)
        if received is not None:
            self._take(received)

    def close(self) -> None:
        self._stream.close()


class StreamPair(UsedOnce):
    """A queue pair of an iWARP device, and a peer that is no RDMA device."""

    transport: Transport = IWARP

    def __init__(self, link: StreamLink, spec: QpSpec, pd: Pd, deadline_s: float) -> None:
        """`pd` is the domain of the device's queue pair. Raises PyverbsRDMAError, NotConnected and PeerLost."""
        device = link.device
        self.lingering, self.tells_state = device.lingering, device.findings.tells_state
        self._manager, self._accepted = link.manager, 0
        self._probe = Probe(pd)
        self.responder = DeviceQueue(device, pd, spec, deadline_s)
        self.requester: Queue = self.responder
        stream = link.sockets.connect(link.manager.address, link.manager.port)
        self.end = StreamEnd(stream, self._probe, link.mirrors)
        try:
            self.responder.move_to("INIT", 0)
            self.end.negotiate()
            self._accepted = self._manager.accept(self.responder.number)
            self.end.agree()
        except CmError as error:
            self.close()
            raise NotConnected(error.error_code, str(error)) from error
        except BaseException:
            self.close()
            raise
        self.responder.state = "RTS"

    def close(self) -> None:
        self.end.close()
        self.responder.close()
        if self._accepted:
            self._manager.destroy(self._accepted)
        self._probe.close()


class StreamLink:
    """The peer of all streams of an iWARP device."""

    def __init__(self, device: Device, sockets: SocketsOfPeer, deadline_s: float) -> None:
        """Raises HostLacks if the peer's WRITE does not arrive; DeviceSilent if only the device can be the reason."""
        assert device.connection_manager is not None
        self.device, self.sockets = device, sockets
        self.manager: ConnectionManager = device.connection_manager
        self.mirrors = False
        pd = ProtectionDomain(device)
        try:
            self._check(StreamPair(self, QpSpec("RC", "pd"), pd, deadline_s), pd)
            self.mirrors = self._mirrors(StreamPair(self, QpSpec("RC", "pd"), pd, deadline_s))
        finally:
            with suppress(Exception):
                pd.close()

    def _check(self, pair: StreamPair, pd: Pd) -> None:
        target = Probe(pd)
        try:
            fields = {"rkey": target.rkey, "va": target.memory.addr}
            pair.end.send(Segment("RDMA_WRITE", fields, pattern(_BYTES)))
            answered = pair.end.probe()
            arrived = ctypes.string_at(target.memory.addr, _BYTES) == pattern(_BYTES)
        finally:
            pair.close()
            target.close()
        if answered and arrived:
            return
        lack = "the wire peer's WRITE did not arrive"
        if self.sockets.lossless:
            raise DeviceSilent(lack, _HINT)
        raise HostLacks(lack, _HINT)

    def _mirrors(self, pair: StreamPair) -> bool:
        """Returns whether the device counts the bits of a Terminate message from the wrong end. One row reports this; the
        others read what the device means."""
        pair.end.send(Segment("RDMA_WRITE", {"rv": VERSION + 1}))
        terminate = pair.end.receive(_PROBE_S)
        pair.close()
        if terminate is None:
            return False
        sent = fields_of_terminate("RDMAP_VERSION")
        mirrored = {**sent, "layer": sent["etype"], "etype": sent["layer"]}
        return mirrored.items() <= terminate.fields.items()

    def close(self) -> None:
        self.sockets.close()
