"""Tests of the connection to the host of a peer."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from conformance.device.queue_kinds import XrcPair
from conformance.device.remote_peer import RemoteQueue
from conformance.errors import LoopbackLost, PeerLost
from conformance.model.transport import ROCE
from conformance.tables.suite import ROOT
from far_host import host
from fixtures.hosts import link, peer
from fixtures.hosts.ssh import PARTS, PEER_PARTS
from patience import PATIENCE_S
from samples import user_error

__all__ = ["host"]  # a fixture


def test_calls_are_sent_over_ssh(host):
    channel, device = peer.open_remote("root@node2:fake0", PATIENCE_S)
    with closing(channel):
        assert (device.name, device.transport, device.lid, device.active_mtu) == (
            "root@node2:fake0",
            ROCE,
            7,
            4,
        )
        assert channel.call("create", one=1) == ["create", {"one": 1}]
        assert host.left()
    assert not host.left()


def test_a_peer_without_the_device_is_reported_in_one_line(host):
    with user_error(r"^node2: no RDMA device 'rxe9'; this host has none$", status=4):
        peer.open_remote("node2:rxe9", PATIENCE_S)


def test_a_host_reaches_its_peer_and_leaves_nothing_there(host):
    peer.reach("--peer", "root@node2:fake0")
    peer.reach("--wire-peer", "root@node2:eth1")
    peer.reach("--peer", "rxe1")  # a device of the same host
    assert not host.left()


def test_the_hosts_client_of_ssh_is_needed_for_a_peer(host, monkeypatch):
    monkeypatch.setattr(link, "find_program", lambda name: None)
    with user_error("^--peer node2:fake0: the program ssh is not installed", status=3):
        peer.reach("--peer", "node2:fake0")


def test_a_lost_peer_is_a_failure_of_the_loopback_and_not_of_the_device(host):
    channel, _ = peer.open_remote("node2:fake0", PATIENCE_S)
    host.cut()
    for _ in range(2):  # the second call fails without waiting
        with pytest.raises(PeerLost, match=r"^the peer is lost: node2") as caught:
            channel.call("create")
        # recorded as BROKEN, never as a verdict on the device
        assert isinstance(caught.value, LoopbackLost)
    channel.close()


def test_a_peer_that_does_not_respond_is_lost(host, monkeypatch):
    monkeypatch.setattr(link, "_ENDING_S", 0.1)  # ssh still runs
    channel, _ = peer.open_remote("node2:fake0", 1.0)
    with pytest.raises(PeerLost, match="the peer is lost: node2 did not respond in time"):
        channel.call("hang")
    (host.tmp / "answer").touch()
    channel.close()


def test_the_host_of_the_device_has_what_the_peers_host_gets():
    """A worker on the host of the device sends the peer's part of the suite to the host of the peer."""
    names = {
        path.relative_to(ROOT)
        for part in PARTS
        for path in (ROOT / part, *(ROOT / part).rglob("*"))
    }
    assert names.issuperset(map(Path, PEER_PARTS))


def test_each_end_of_xrc_gets_the_numbers_of_the_other_end():
    """Each end gets the numbers of the other end's queue pairs and shared receive queue."""
    connected: list[Any] = []

    def end(name: str, number: int) -> Any:
        queue = RemoteQueue.__new__(RemoteQueue)
        queue.number, queue.receiver, queue.shared = number, number + 1, number + 2
        queue.__dict__["connect"] = lambda *numbers: connected.append((name, numbers))
        return queue

    pair = XrcPair.__new__(XrcPair)
    pair.requester, pair.responder = end("requester", 10), end("responder", 20)
    pair._connect()
    assert connected == [("requester", (20, 21, 22)), ("responder", (10, 11, 12))]
