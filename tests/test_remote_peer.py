"""Tests of a requester on another host, or on another device of this host: its memory, its calls and its errors."""

import ctypes
import json
import multiprocessing
import os
from contextlib import closing
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any, cast

import pytest

from conformance.bench.calls import Return, Sge
from conformance.bench.work_requests import Completion, SendRequest
from conformance.device import memory
from conformance.device.queue_pairs import DevicePair
from conformance.device.remote_peer import Endpoint, Mirror, RemoteDevice, RemoteDomain, RemoteQueue
from conformance.errors import HarnessFailure, PeerRefused
from conformance.model.case import QpSpec
from conformance.model.preflight import Findings
from conformance.model.transport import INFINIBAND, IWARP, ROCE, Transport
from conformance.pytest_plugin.options import check_peer
from fixtures.hosts import peer, requester
from fixtures.hosts.address import Address, peer_of
from fixtures.system import usable
from kinds import Patch
from samples import user_error

SIZE = 3 * memory.PAGE - 100

# The name of a peer


@pytest.mark.parametrize(
    "text, host, device",
    [
        ("mlx5_1", None, "mlx5_1"),
        ("node2:mlx5_1", Address("node2"), "mlx5_1"),
        ("root@node2:2222:rxe0", Address("node2", "root", "2222"), "rxe0"),
        ("[fd00::1]:rxe0", Address("fd00::1"), "rxe0"),
    ],
)
def test_a_peer_is_named_with_or_without_its_host(text, host, device):
    assert peer_of(text) == (host, device)
    assert usable.on_another_host(text) is bool(host)


# Memory


def other_end(pipe: Connection, addr: int) -> None:
    """Runs as the other host: a process with separate memory at the same address."""
    mirror = Mirror()
    mirror.add(addr, SIZE)
    mirror.apply(pipe.recv())
    seen = ctypes.string_at(addr, SIZE)
    ctypes.memset(addr + memory.PAGE + 5, 0xEE, 7)
    pipe.send((seen, mirror.changes(), mirror.changes()))


def test_both_ends_have_the_same_memory():
    place = memory.allocate("anonymous", SIZE)
    here, (near, far) = Mirror(), multiprocessing.Pipe()
    here.add(place.addr, SIZE)
    assert here.changes() == []
    process = multiprocessing.get_context("fork").Process(target=other_end, args=(far, place.addr))
    process.start()
    content = os.urandom(SIZE)
    ctypes.memmove(place.addr, content, SIZE)
    near.send(here.changes())
    seen, changed, again = near.recv()
    process.join()
    assert seen == content
    assert len(changed) == 1  # the change is one piece
    assert again == []
    here.apply(changed)
    at = memory.PAGE + 5
    assert ctypes.string_at(place.addr, SIZE) == content[:at] + b"\xee" * 7 + content[at + 7 :]
    assert here.changes() == []  # the other end already has the change
    here.drop(place.addr)
    with pytest.raises(ValueError, match="are outside the memory of both ends"):
        here.apply(changed)
    place.close()


def test_memory_at_an_address_that_is_in_use_is_refused():
    with (
        closing(memory.allocate("anonymous", memory.PAGE)) as place,
        pytest.raises(FileExistsError),
    ):
        memory.allocate_at(place.addr, memory.PAGE)
    with closing(memory.allocate_at(place.addr, 1)) as again:
        assert (again.addr, ctypes.string_at(again.addr, memory.PAGE)) == (
            place.addr,
            bytes(memory.PAGE),
        )


# Calls


class FakeQueue:
    """A queue pair that records its calls."""

    def __init__(self, device: Any, pd: Any, spec: QpSpec, deadline_s: float) -> None:
        if spec.inline:
            raise RefusedByDevice
        self.pd, self.spec, self.deadline_s, self.number, self.remote = (
            pd,
            spec,
            deadline_s,
            77,
            None,
        )
        self.device = device
        self.did: list[Any] = []

    def move_to(self, state: str, peer: int) -> None:
        self.did.append((state, peer, self.remote))

    def reset(self) -> None:
        self.did.append("reset")

    def query_state(self) -> str:
        raise OSError(95, "ibv_query_qp")

    def events(self) -> list[str]:
        return ["COMM_EST"]

    def post_send(self, request: SendRequest) -> Return:
        self.did.append((request, [ctypes.string_at(sge.addr, sge.length) for sge in request.sges]))
        return Return(0, 0)

    def post_receive(self, sges: Any, wr_id: int) -> Return:
        self.did.append((sges, wr_id))
        return Return(12, 12)

    def completions(self, count: int, deadline_s: float) -> list[Completion]:
        return [Completion(count, "REM_ACCESS_ERR", vendor_err=int(deadline_s))]

    def close(self) -> None:
        self.did.append("close")


class RefusedByDevice(Exception):
    """An exception with the attributes of PyverbsRDMAError."""

    error_code = 12


@pytest.fixture
def far(monkeypatch: Patch) -> requester.Requesters:
    device = SimpleNamespace(
        check_port=lambda: None,
        transport=ROCE,
        capabilities={"rc": True},
        gid="g",
        lid=1,
        active_mtu=3,
    )
    monkeypatch.setattr(requester, "Device", lambda name: device)
    monkeypatch.setattr(requester, "ProtectionDomain", lambda device: "pd")
    monkeypatch.setattr(requester, "Libibverbs", FakeLibrary)
    monkeypatch.setattr(DevicePair, "kind", FakeQueue)
    monkeypatch.setattr(memory, "allocate_at", lambda addr, size: memory.Memory(addr, size, None))
    return requester.Requesters("fake0")


class FakeLibrary:
    def reg_mr(self, pd: Any, addr: int, length: int, access: int) -> Return:
        struct = SimpleNamespace(lkey=5, rkey=6)
        if access == 99:
            return Return(0, 22)
        return Return(1, 0, cast(Any, SimpleNamespace(struct=struct)))

    def dereg_mr(self, mr: Any) -> Return:
        return Return(0, 0)


@pytest.fixture
def domain(far: requester.Requesters) -> RemoteDomain:
    """A domain whose peer is in this process; calls and results are converted to text, as between hosts."""

    def call(name: str, **arguments: Any) -> Any:
        return peer.value_of(
            json.loads(json.dumps(far.answer(name, json.loads(json.dumps(arguments))))),
        )

    channel, facts = cast(Any, SimpleNamespace(call=call)), json.loads(json.dumps(far.facts()))
    return RemoteDomain(RemoteDevice("node2:fake0", channel, facts))


def made(
    domain: RemoteDomain,
    far: requester.Requesters,
    **spec: Any,
) -> tuple[RemoteQueue, FakeQueue]:
    local = cast(Any, SimpleNamespace(gid="h", lid=2, active_mtu=4))
    queue = RemoteQueue(domain, QpSpec("RC", "pd", **spec), 1.5, local)
    return queue, cast(Any, far._queues[queue._id])


def test_calls_of_a_queue_pair_are_executed_at_the_peer(domain, far):
    queue, there = made(domain, far, access=3)
    assert (queue.number, queue.kind, queue.sq_sig_all, queue.state) == (77, "RC", False, "RESET")
    assert (there.spec, there.deadline_s, there.pd) == (QpSpec("RC", "pd", access=3), 1.5, "pd")
    queue.move_to("RTS", 12)
    assert queue.state == "RTS"
    assert there.did.pop() == ("RTS", 12, Endpoint("h", 2, 4))
    assert queue.post_receive((Sge(1, 2, 3),), 9) == Return(12, 12)
    assert there.did.pop() == ([Sge(1, 2, 3)], 9)
    assert queue.completions(3, 20.0) == [Completion(3, "REM_ACCESS_ERR", vendor_err=20)]
    assert queue.completions()[0].vendor_err == 1  # the deadline of the requester's queue pair
    assert queue.events() == ["COMM_EST"]
    queue.reset()
    assert (queue.state, there.did.pop()) == ("RESET", "reset")
    queue.close()
    assert there.did.pop() == "close"


def test_a_request_has_its_memory_and_region_at_the_peer(domain, far):
    place = memory.allocate("anonymous", memory.PAGE)
    registered = domain.device.reg_mr(domain, place.addr, memory.PAGE, 1)
    assert registered.mr is not None
    assert (registered.mr.struct.lkey, registered.mr.struct.rkey) == (5, 6)
    queue, there = made(domain, far)
    ctypes.memmove(place.addr, b"content", 7)
    request = SendRequest(
        "RDMA_WRITE",
        1,
        (Sge(place.addr, 7, 5),),
        remote_addr=1 << 63,
        rkey=8,
        imm=3,
        compare_add=4,
    )
    assert queue.post_send(request) == Return(0, 0)
    assert there.did == [(request, [b"content"])]
    assert domain.device.dereg_mr(registered.mr) == Return(0, 0)
    assert domain.device.reg_mr(domain, place.addr, memory.PAGE, 99) == Return(0, 22)
    place.close()


def test_a_region_that_the_peer_did_not_deregister_can_be_deregistered_later(
    domain, far, monkeypatch
):
    place = memory.allocate("anonymous", memory.PAGE)
    registered = domain.device.reg_mr(domain, place.addr, memory.PAGE, 1)
    answers = iter([Return(16, 16), Return(0, 0)])
    monkeypatch.setattr(far._library, "dereg_mr", lambda mr: next(answers))
    assert domain.device.dereg_mr(registered.mr) == Return(16, 16)
    ctypes.memmove(place.addr, b"content", 7)
    domain.device.push()  # the memory, which may be released here, is no longer read
    assert domain.device.dereg_mr(registered.mr) == Return(0, 0)
    assert far._regions == {}


def test_errors_at_the_peer_are_reported_locally(domain, far):
    with pytest.raises(PeerRefused, match="at the peer: ") as refused:
        made(domain, far, inline=64)
    assert refused.value.error_code == 12
    queue, _ = made(domain, far)
    with pytest.raises(OSError, match="at the peer: ") as failed:
        queue.query_state()
    assert failed.value.errno == 95
    with pytest.raises(HarnessFailure, match="at the peer: KeyError: 55"):
        domain.device.channel.call("close", queue=55)
    with pytest.raises(HarnessFailure, match="windows can be bound only at the responder"):
        queue.post_send(SendRequest("BIND_MW", 1, window=cast(Any, object())))


class LocalPair(DevicePair):
    kind = cast(Any, FakeQueue)


@pytest.mark.parametrize("renewed", [False, True])
def test_a_pair_has_its_requester_at_the_peer(domain, far, renewed):
    device = SimpleNamespace(
        gid="h",
        lid=2,
        active_mtu=4,
        transport=ROCE,
        connection_manager=None,
        findings=Findings(),
    )
    pair = LocalPair(cast(Any, device), QpSpec("RC", "pd"), domain, cast(Any, "own pd"), 1.0)
    responder = cast(Any, pair.responder)
    assert isinstance(pair.requester, RemoteQueue)
    there = cast(Any, far._queues[pair.requester._id])
    if renewed:
        pair.renew()
        assert there.did.pop(-2) == "reset"
    assert there.did[-1] == ("RTS", 77, Endpoint("h", 2, 4))
    assert responder.did[-1] == ("RTS", 77, domain.device)
    assert (domain.device.lid, domain.device.active_mtu) == (1, 3)
    pair.close()
    assert far._queues == {}


# A peer on this host


def device(name: str, transport: Transport = ROCE, **declared: bool) -> Any:
    return SimpleNamespace(
        name=name,
        transport=transport,
        capabilities=declared,
        connection_manager=None,
    )


@pytest.mark.parametrize("peer", ["loopback", "another"])
def test_the_requester_is_on_the_device_of_its_protection_domain(peer):
    under_test = device("dut")
    if peer == "another":
        other = device("peer")
    else:
        other = under_test
    requester_pd, responder_pd = SimpleNamespace(device=other), SimpleNamespace(device=under_test)
    pair = LocalPair(
        under_test,
        QpSpec("RC", "pd"),
        cast(Any, requester_pd),
        cast(Any, responder_pd),
        1.0,
    )
    requester, responder = cast(Any, pair.requester), cast(Any, pair.responder)
    assert (requester.device, requester.pd, requester.remote) == (other, requester_pd, under_test)
    assert (responder.device, responder.pd, responder.remote) == (under_test, responder_pd, other)


def test_a_peer_needs_the_capabilities_that_both_ends_of_a_request_need():
    check_peer(device("a", atomics=True, odp=True), device("b", atomics=True, odp=False))
    check_peer(device("a", atomics=False), device("b", atomics=True))
    for other, output in (
        (
            device("b", atomics=False),
            "the peer b does not declare these capabilities of a: atomics",
        ),
        (device("b", INFINIBAND, atomics=True), "b is InfiniBand, a is RoCE"),
        (device("b", IWARP, atomics=True), "--peer is not for iWARP"),
    ):
        with user_error(output, status=3):
            check_peer(device("a", atomics=True), other)


def test_the_peer_is_another_device_of_the_host(monkeypatch):
    monkeypatch.setattr(usable, "device_names", lambda: ["a", "b"])
    usable.check_peer("b", "a")
    for other, output in (
        ("a", "--peer a is a device under test; without --peer"),
        ("c", "no RDMA device 'c'"),
    ):
        with user_error(output, status=2):
            usable.check_peer(other, "a")
