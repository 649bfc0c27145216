"""Tests the sockets of the wire peer on the loopback interface, and the same sockets behind a connection to a host."""

import ctypes
import itertools
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from conformance.device import wire_peer
from conformance.device.bench import DeviceBench
from conformance.device.wire_sockets import V4, Datagram, Sockets
from conformance.errors import HostLacks, PeerLost, UserError
from conformance.model.case import PATH_MTUS, QpSpec
from conformance.model.operations import BOTH_POSTERS, WINDOWS_POSTER, WR_POST
from conformance.model.preflight import Findings, format_findings
from conformance.model.transport import ROCE
from conformance.model.vocabulary import WIRE
from conformance.wire.icrc import RIGHT_ORDER, Order, Path
from conformance.wire.packet import Packet, build, parse
from fixtures.hosts.peer import open_wire, value_of
from fixtures.hosts.wire import RemoteSockets, WirePeer

_HERE = "127.0.0.1"
_PATH = Path(_HERE, _HERE)
_SENT = build(Packet("RC", "SEND_ONLY", {"qpn": 7, "psn": 9}, b"data"), _PATH)
_DEADLINE_S = 5.0


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    opened = Sockets("lo")
    yield opened
    opened.close()


def test_a_packet_arrives_with_the_ip_header_that_its_icrc_assumes(sockets):
    assert sockets.addresses[V4] == _HERE
    sockets.send(_SENT, _HERE)
    (datagram,) = sockets.received(_DEADLINE_S)
    assert datagram.payload == _SENT
    assert datagram.source == datagram.destination == _HERE
    checks = sockets.sees_headers
    path = Path(_HERE, _HERE, datagram.source_port, identification=datagram.identification or 0)
    parsed = parse(datagram.payload, path, checks)
    assert (parsed.name, parsed.wrong, parsed.data) == ("SEND_ONLY", (), b"data")


def test_nothing_is_received_at_the_deadline(sockets):
    assert sockets.received(0) == []


def test_a_taken_port_is_one_line_with_the_cause(sockets):
    with pytest.raises(UserError, match=r"the wire peer cannot have UDP port 4791 of 127.0.0.1"):
        Sockets("lo")


def test_an_unknown_namespace_is_one_line_with_the_cause():
    with pytest.raises(UserError, match="network namespace there-is-none cannot be entered"):
        Sockets("lo", "there-is-none")


class _Channel:
    """Calls a WirePeer of this process in place of one on another host."""

    def __init__(self, peer: WirePeer) -> None:
        self._peer = peer

    def call(self, name: str, **arguments: Any) -> Any:
        return value_of(self._peer.answer(name, arguments))

    def close(self) -> None:
        """Does nothing."""


def test_the_sockets_of_another_host_send_and_receive_the_same_packets():
    peer = WirePeer("lo")
    remote = RemoteSockets(_Channel(peer), peer.facts())
    assert remote.addresses[V4] == _HERE
    remote.send(_SENT, _HERE)
    (datagram,) = remote.received(_DEADLINE_S)
    assert isinstance(datagram, Datagram)
    assert (datagram.payload, datagram.source) == (_SENT, _HERE)
    peer.close()


def test_a_stream_of_another_host_carries_the_same_bytes():
    with socket.create_server((_HERE, 0)) as listener:
        peer = WirePeer("lo")
        remote = RemoteSockets(_Channel(peer), peer.facts())
        stream = remote.connect(_HERE, listener.getsockname()[1])
        device, _ = listener.accept()
        with device:
            stream.send(_SENT)
            assert device.recv(len(_SENT)) == _SENT
            assert stream.receive(0) is None
            device.sendall(_SENT)
            assert stream.receive(_DEADLINE_S) == _SENT
            assert stream.arrived()
        assert stream.receive(_DEADLINE_S) == b""
        stream.close()
        peer.close()


def test_a_stream_that_is_refused_is_one_line():
    with socket.create_server((_HERE, 0)) as listener:
        port = listener.getsockname()[1]
    sockets = Sockets("lo")
    with pytest.raises(UserError, match=f"cannot connect to port {port} of {_HERE}: .* refused"):
        sockets.connect(_HERE, port)
    sockets.close()


def test_a_wrong_name_of_the_peers_host_is_one_line():
    with pytest.raises(UserError, match=r"^--wire-peer -x: .* is not of the form"):
        open_wire("-x", 1.0)


class _Lost:
    """Sockets without a route to the device."""

    addresses: ClassVar[dict[str, str]] = {V4: "10.77.0.2"}
    sees_headers = True
    closed = False

    def close(self) -> None:
        self.closed = True


def test_a_peer_that_cannot_reach_the_device_is_the_reason_of_its_cases(monkeypatch):
    def refused(*_: object) -> None:
        raise PeerLost("the wire peer cannot send: Network is unreachable")

    monkeypatch.setattr(wire_peer, "WireLink", refused)
    sockets = _Lost()
    with pytest.raises(HostLacks, match=r"^there is no wire peer: .* unreachable") as raised:
        wire_peer.opened(SimpleNamespace(transport=ROCE), sockets, 1.0)  # type: ignore[arg-type]
    assert sockets.closed
    assert "docs/wire.md" in raised.value.hint


class _Kept(Sockets):
    """Sockets whose datagrams arrive at once."""

    def __init__(self) -> None:
        self.addresses, self._raw = {V4: _HERE}, None
        self._arrived: list[Datagram] = []

    def send(self, payload: bytes, destination: str) -> None:
        self._arrived.append(Datagram(payload, _HERE, destination, 1, 0, 0))

    def received(self, deadline_s: float) -> list[Datagram]:
        arrived, self._arrived = self._arrived, []
        return arrived


class _OfOneOrder(_Kept):
    """A device that takes and sends ICRCs in one byte order, and writes what a WRITE has."""

    lossless = True

    def __init__(self, order: Order) -> None:
        super().__init__()
        self._order = order

    def send(self, payload: bytes, destination: str) -> None:
        path = Path(_HERE, destination, order=self._order)
        packet = parse(payload, path)
        if packet.wrong:
            return
        ctypes.memmove(packet.fields["va"], packet.data, len(packet.data))
        fields = {"qpn": packet.fields["qpn"], "psn": packet.fields["psn"], "syndrome": 0}
        super().send(build(Packet("RC", "ACKNOWLEDGE", fields), path.back()), _HERE)


@pytest.mark.parametrize("order", ["little", "big"])
def test_the_byte_order_of_the_icrc_is_that_of_the_device(order, monkeypatch):
    monkeypatch.setattr(wire_peer, "_SENTINEL_S", 0.0)
    link = wire_peer.WireLink.__new__(wire_peer.WireLink)
    link.sockets, link.order, link.gids = _OfOneOrder(order), RIGHT_ORDER, {V4: (0, _HERE)}
    link._inboxes, link._numbers = {}, itertools.count(7)
    sentinel = wire_peer._Sentinel.__new__(wire_peer._Sentinel)
    sentinel._link, sentinel._psn = link, 1
    end = wire_peer.WireEnd(link, QpSpec("RC", "pd", ip=V4))
    end.destination = end.number
    sentinel._pair = SimpleNamespace(end=end)  # type: ignore[assignment]
    memory = ctypes.create_string_buffer(128)
    assert sentinel._write(ctypes.addressof(memory), 5)
    assert sentinel._arrived(ctypes.addressof(memory))
    assert link.order == end.path.order == order


def test_a_row_that_judges_each_packet_is_not_run_with_losses():
    bench = DeviceBench.__new__(DeviceBench)
    bench._completion_deadline_s = 1.0
    bench._wire = HostLacks("none", "")
    bench.expect_losses()
    with pytest.raises(HostLacks, match=r"^--wire-losses loses packets on purpose"):
        bench.pair(QpSpec("RC", "pd", wire=True), None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "arrived, acknowledged, words",
    [
        (True, True, ()),
        (True, False, ("arrived, but no acknowledgement", "firewall of that machine")),
        (False, False, ("from 127.0.0.1 to 127.0.0.1 did not arrive", "VLAN", "MTU", "ip neigh")),
        (False, True, ("acknowledged but did not arrive", "docs/wire.md")),
    ],
)
def test_a_write_of_the_preflight_tells_where_packets_are_lost(arrived, acknowledged, words):
    lack = wire_peer.lack_of(_PATH, arrived, acknowledged)
    assert (lack is None) == (not words)
    text = " ".join(lack or ())
    assert all(word in text for word in words)


def test_the_run_says_that_icrcs_are_not_checked_without_a_raw_socket():
    remark = "it has no raw socket (CAP_NET_RAW)"
    (line,) = format_findings(Findings(wire_peer=remark).as_data())
    assert remark in line


class _Ends:
    """Sockets of a peer that goes away."""

    addresses: ClassVar[dict[str, str]] = {V4: _HERE}
    sees_headers = True

    def send(self, payload: bytes, destination: str) -> None:
        raise OSError(101, "Network is unreachable")


def test_a_peer_that_goes_away_is_no_failure_of_the_case():
    end = wire_peer.WireEnd.__new__(wire_peer.WireEnd)
    end.path = _PATH
    end._link = SimpleNamespace(sockets=_Ends())  # type: ignore[assignment]
    with pytest.raises(PeerLost, match="the wire peer cannot send: Network is unreachable"):
        end.send(Packet("RC", "SEND_ONLY"))


def test_a_path_mtu_beyond_that_of_the_port_makes_a_case_unreachable():
    link = SimpleNamespace(
        gids={"v4": (0, _HERE)},
        device=SimpleNamespace(active_mtu=PATH_MTUS[512]),
    )
    spec = QpSpec("RC", "pd", wire="wire", path_mtu=PATH_MTUS[1024])
    with pytest.raises(HostLacks, match=r"^the MTU of the port is 512, not 1024 bytes; raise"):
        wire_peer.WirePair(link, spec, None, 1.0)  # type: ignore[arg-type]


def test_a_queue_pair_whose_requests_the_peer_sends_has_no_builders():
    uses = ("", WIRE, WR_POST, WINDOWS_POSTER, BOTH_POSTERS)
    types = [wire_peer.wire_queue_type(QpSpec("RC", "pd", extended=use)) for use in uses]
    assert types == [wire_peer.WireQueue] * 2 + [wire_peer.BuildingWireQueue] * 3
