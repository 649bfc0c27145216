"""Loses, repeats and reorders packets of reliable connections between the wire peer and the device, in both directions,
in place of a bad network. The choices depend only on a seed, so that a run can be repeated. On a host,
`tc qdisc add dev INTERFACE root netem` does the same in the kernel."""

from __future__ import annotations

import random

from conformance.device.stream_peer import SocketsOfPeer
from conformance.device.wire_sockets import Datagram
from conformance.wire.opcodes import is_reliable


class LossySockets:
    """The sockets of a wire peer behind a network of which `percent` % of the packets are lost, as many arrive twice, and
    as many arrive after the next packet."""

    def __init__(self, sockets: SocketsOfPeer, percent: float, seed: int = 0) -> None:
        self._sockets, self._share = sockets, percent / 100
        self._random = random.Random(seed)
        self._kept_back: list[tuple[bytes, str]] = []
        self._late: list[Datagram] = []
        self.addresses, self.sees_headers = sockets.addresses, sockets.sees_headers
        self.lossless = False
        self.connect = sockets.connect  # TCP itself repeats what is lost

    def _happens(self) -> bool:
        return self._random.random() < self._share

    def send(self, payload: bytes, destination: str) -> None:
        """See Sockets.send. A packet that is kept back is sent after the next one, or when answers are awaited. Packets of
        unreliable connections are not repeated by anyone, and none is lost."""
        if payload[:1] and not is_reliable(payload[0]):
            self._sockets.send(payload, destination)
            return
        if self._happens():
            return
        if self._happens():
            self._kept_back.append((payload, destination))
            return
        self._sockets.send(payload, destination)
        if self._happens():
            self._sockets.send(payload, destination)
        self._send_kept_back()

    def _send_kept_back(self) -> None:
        while self._kept_back:
            self._sockets.send(*self._kept_back.pop(0))

    def received(self, deadline_s: float) -> list[Datagram]:
        """See Sockets.received. A datagram that is late comes with the next call."""
        self._send_kept_back()
        arrived: list[Datagram] = []
        late, self._late = self._late, []
        for datagram in self._sockets.received(deadline_s):
            if self._happens():
                continue
            if self._happens():
                self._late.append(datagram)
                continue
            arrived.append(datagram)
            if self._happens():
                arrived.append(datagram)
        return [*arrived, *late]

    def close(self) -> None:
        self._sockets.close()
