"""A peer: the devices that can be the peer, and the requester and its memory on the peer."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from conformance.device.queue_pairs import DevicePair
from conformance.model.case import QpSpec
from conformance.model.transport import INFINIBAND, IWARP, ROCE, Transport
from conformance.pytest_plugin.options import check_peer
from fixtures.system import usable
from samples import user_error


def device(name: str, transport: Transport = ROCE, **declared: bool) -> Any:
    return SimpleNamespace(name=name, transport=transport, capabilities=declared, connection_manager=None)


class FakeQueue:
    """A queue pair that only has a device."""

    number = 1

    def __init__(self, device: Any, pd: Any, spec: QpSpec, deadline_s: float) -> None:
        self.device, self.pd, self.remote = device, pd, None

    def move_to(self, state: str, peer: int) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""


class FakePair(DevicePair):
    kind = cast(Any, FakeQueue)


@pytest.mark.parametrize("peer", ["loopback", "another"])
def test_the_requester_is_on_the_device_of_its_protection_domain(peer: str) -> None:
    under_test = device("dut")
    other = device("peer") if peer == "another" else under_test
    requester_pd, responder_pd = SimpleNamespace(device=other), SimpleNamespace(device=under_test)
    pair = FakePair(under_test, QpSpec("RC", "pd"), cast(Any, requester_pd), cast(Any, responder_pd), 1.0)
    requester, responder = cast(Any, pair.requester), cast(Any, pair.responder)
    assert (requester.device, requester.pd, requester.remote) == (other, requester_pd, under_test)
    assert (responder.device, responder.pd, responder.remote) == (under_test, responder_pd, other)


def test_a_peer_needs_what_both_ends_of_a_request_need() -> None:
    check_peer(device("a", atomics=True, odp=True), device("b", atomics=True, odp=False))
    check_peer(device("a", atomics=False), device("b", atomics=True))
    for peer, output in (
        (device("b", atomics=False), "the peer b does not declare what a does: atomics"),
        (device("b", INFINIBAND, atomics=True), "b is InfiniBand, a is RoCE"),
        (device("b", IWARP, atomics=True), "--peer is not for iWARP"),
    ):
        with user_error(output, status=3):
            check_peer(device("a", atomics=True), peer)


def test_the_peer_is_another_device_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usable, "device_names", lambda: ["a", "b"])
    usable.check_peer("b", "a")
    for peer, output in (("a", "--peer a is a device under test; without --peer"), ("c", "no RDMA device 'c'")):
        with user_error(output, status=2):
            usable.check_peer(peer, "a")
