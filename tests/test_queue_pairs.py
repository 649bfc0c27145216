"""Tests of queue pairs without a device, with objects in place of those of pyverbs: attributes, deadlines and asynchronous
events."""

import ctypes
import os
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.device import bench, qp_states
from conformance.device.native_exchange import NativeConnection
from conformance.device.qp_states import events_of, modify_to, transitions
from conformance.device.queue_kinds import pair_type
from conformance.device.queue_pairs import DATAGRAM_QKEY, DevicePair, DeviceQueue
from conformance.model.case import QpSpec
from conformance.model.deadline import CASE_DEADLINE_S, COMPLETION_DEADLINE_S, completion_deadline_s
from conformance.model.transport import ROCE
from conformance.older_python import zip

PEER, AH = 17, 0x5000


@pytest.fixture
def bindings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, classes in {
        "pyverbs": (),
        "pyverbs.qp": ("QPAttr",),
        "pyverbs.addr": ("AH", "AHAttr", "GlobalRoute"),
    }.items():
        module = ModuleType(name)
        for class_ in classes:
            setattr(module, class_, lambda *_, **attributes: SimpleNamespace(**attributes))
        monkeypatch.setitem(sys.modules, name, module)


def queue(kind: str = "RC", deadline_s: float = 1.0) -> Any:
    """Returns a queue pair of this type without a device. Its `awaited` has the deadlines of waits for completions."""
    device_queue: Any = object.__new__(DeviceQueue)
    device_queue.kind, device_queue.spec, device_queue.deadline_s = (
        kind,
        QpSpec(kind, "pd"),
        deadline_s,
    )
    device_queue.pd = SimpleNamespace(pyverbs=None, pointer=0x4000)
    device_queue.attributes, device_queue.awaited = None, []
    device_queue.poster = SimpleNamespace(
        qp=0,
        completions=lambda count, deadline_s: device_queue.awaited.append(deadline_s) or [],
    )
    pointers = SimpleNamespace(of=lambda *_, **attributes: AH, attributes=lambda attributes: 0)
    device_queue.device = SimpleNamespace(
        pointers=pointers,
        port=1,
        active_mtu=3,
        gid="gid",
        source_gid_index=0,
        lid=0,
        uses_grh=True,
        pkey_index=0,
        capabilities={"atomics": True},
        transport=ROCE,
    )
    return device_queue


@pytest.mark.usefixtures("bindings")
def test_datagrams_have_the_queue_key_of_their_receiver():
    datagrams = queue("UD")
    datagrams._create_address_handle(PEER)
    assert datagrams.connection_attributes(PEER).qkey == DATAGRAM_QKEY
    assert datagrams._destination == (AH, PEER, DATAGRAM_QKEY)
    assert DATAGRAM_QKEY == 0x11111111
    assert not DATAGRAM_QKEY >> 31, "a key that needs privileges"


@pytest.mark.usefixtures("bindings")
def test_the_path_leads_to_the_device_of_the_peer():
    device_queue = queue("RC")
    attributes = device_queue.connection_attributes(PEER)
    assert (attributes.path_mtu, attributes.ah_attr.gr.dgid, attributes.ah_attr.gr.sgid_index) == (
        3,
        "gid",
        0,
    )
    device_queue.remote = SimpleNamespace(active_mtu=1, gid="other gid", source_gid_index=5, lid=9)
    across = device_queue.connection_attributes(PEER)
    assert (across.path_mtu, across.ah_attr.gr.dgid, across.ah_attr.gr.sgid_index) == (
        1,
        "other gid",
        0,
    )
    assert (across.ah_attr.dlid, across.ah_attr.port_num) == (9, 1)


@pytest.mark.usefixtures("bindings")
@pytest.mark.parametrize("used", [False, True])
def test_the_path_has_a_global_route_or_none(used):
    device_queue = queue("RC")
    vars(device_queue.device)["uses_grh"] = used
    path = device_queue.connection_attributes(PEER).ah_attr
    assert (path.is_global, hasattr(path, "gr")) == (int(used), used)


@pytest.mark.parametrize(
    "kind, masks",
    [
        # The bits of enum ibv_qp_attr_mask that ibv_modify_qp(3) requires for INIT, RTR and RTS.
        ("RC", ((0, 3, 4, 5), (0, 7, 8, 12, 15, 17, 20), (0, 9, 10, 11, 13, 16))),
        ("UC", ((0, 3, 4, 5), (0, 7, 8, 12, 20), (0, 16))),
        ("UD", ((0, 4, 5, 6), (0,), (0, 16))),
        ("XRC_SEND", ((0, 3, 4, 5), (0, 7, 8, 12, 20), (0, 9, 10, 11, 13, 16))),
        ("XRC_RECV", ((0, 3, 4, 5), (0, 7, 8, 12, 15, 17, 20))),
    ],
)
def test_each_transition_sets_the_attributes_that_the_manual_page_requires(kind, masks):
    expected = []
    for state, bits in zip((1, 2, 3), masks, strict=False):
        expected.append((state, sum(1 << bit for bit in bits)))
    assert transitions(kind) == expected
    assert all(type(mask) is int for _, mask in transitions(kind)), "the masks are passed to C"


@pytest.mark.parametrize(
    "since, to, expected",
    [
        ("RESET", "RTS", [1, 2, 3]),
        ("INIT", "RTS", [2, 3]),
        ("RTR", "RTS", [3]),
        ("RTS", "RTS", []),
        ("RTS", "ERR", [6]),
        ("RESET", "INIT", [1]),
    ],
)
def test_a_queue_pair_is_moved_from_its_current_state(since, to, expected):
    taken: list[int] = []
    attributes = SimpleNamespace(qp_state=0)
    qp = SimpleNamespace(modify=lambda attributes, mask: taken.append(attributes.qp_state))
    modify_to(qp, "RC", attributes, to, since)
    assert taken == expected


QP, OTHER = 0x1000, 0x2000


class Events:
    """ibv_get_async_event and ibv_ack_async_event on a struct ibv_context with the read end of a pipe."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        self._context = ctypes.create_string_buffer(512)
        self.context = ctypes.addressof(self._context)
        # cmd_fd and async_fd follow the device and the 32 functions of the provider.
        (ctypes.c_int * 2).from_address(self.context + 33 * 8)[:] = [-1, self.reader]
        self.acknowledged: list[tuple[int, int]] = []

    def write(self, qp: int, kind: int) -> None:
        os.write(self.writer, bytes([qp >> 8, kind]))

    def ibv_get_async_event(self, context: int, address: int) -> int:
        assert context == self.context
        high, kind = os.read(self.reader, 2)
        event = qp_states._Event.from_address(address)
        event.element, event.type = high << 8, kind
        return 0

    def ibv_ack_async_event(self, address: int) -> None:
        event = qp_states._Event.from_address(address)
        self.acknowledged.append((event.element, event.type))


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Iterator[Events]:
    stand_in = Events()
    monkeypatch.setattr(qp_states, "_library", lambda: stand_in)
    yield stand_in
    os.close(stand_in.reader)
    os.close(stand_in.writer)


def test_each_event_is_acknowledged_and_the_events_of_the_queue_pair_are_named(events):
    assert events_of(QP, events.context) == [], "the call does not wait"
    for qp, kind in ((QP, 3), (OTHER, 1), (QP, 16), (QP, 99)):
        events.write(qp, kind)
    assert events_of(QP, events.context) == ["QP_ACCESS_ERR", "QP_LAST_WQE_REACHED", "event 99"]
    assert events.acknowledged == [(QP, 3), (OTHER, 1), (QP, 16), (QP, 99)]
    assert events_of(QP, events.context) == [], "each event is reported once"


# The deadline of a completion


@given(st.floats(1e-6, 1e9))
def test_a_case_deadline_is_longer_than_the_waits_for_several_missing_completions(deadline):
    assert 0 < completion_deadline_s(deadline) <= COMPLETION_DEADLINE_S
    assert 5 * completion_deadline_s(deadline) < deadline


def test_a_queue_waits_for_a_completion_until_its_deadline_or_a_given_deadline():
    device_queue = queue(deadline_s=1.5)
    assert (
        device_queue.completions()
        == device_queue.completions(1, 0.25)
        == device_queue.completions(1, 0.0)
        == []
    )
    assert device_queue.awaited == [1.5, 0.25, 0.0]


def test_exchanges_in_c_wait_for_a_completion_as_long_as_the_queues():
    struct = NativeConnection(
        queue(deadline_s=1.5),
        queue(deadline_s=2.5),
        0.5,
        renewable=False,
        by_reset=True,
    )._struct
    assert (struct.send_timeout, struct.receive_timeout, struct.silence) == (
        1_500_000_000,
        2_500_000_000,
        500_000_000,
    )


@pytest.mark.parametrize(
    "kind, extended, pair",
    [
        ("RC", "", "DevicePair"),
        ("UD", "", "DevicePair"),
        ("XRC", "", "XrcPair"),
        ("RC_SRQ", "", "SharedReceivesPair"),
        ("RC", "FLUSH", "ExtendedPair"),
        ("UC", "wr_post", "ExtendedPair"),
    ],
)
def test_the_bench_passes_the_deadline_to_each_pair(kind, extended, pair, monkeypatch):
    pairs: list[Any] = []

    def recording(spec: Any) -> Any:
        return lambda *arguments: pairs.append((pair_type(spec).__name__, *arguments))

    monkeypatch.setattr(bench, "pair_type", recording)
    some: Any = object.__new__(bench.DeviceBench)
    some.device, some._completion_deadline_s = "device", 1.5
    spec = SimpleNamespace(kind=kind, extended=extended, wire="")
    some.pair(spec, "requester", "responder")
    assert pairs == [(pair, "device", spec, "requester", "responder", 1.5)]


@pytest.mark.parametrize("begun_at", [0, 0xFF_0000])
def test_a_renewed_pair_has_other_psns_so_that_late_packets_are_not_of_it(begun_at):
    ends = [queue(), queue()]
    connected: list[list[tuple[int, int]]] = []

    def psns() -> list[tuple[int, int]]:
        return [(end.attributes.sq_psn, end.attributes.rq_psn) for end in ends]

    for end in ends:
        end.state = "RESET"
        end.attributes = SimpleNamespace(sq_psn=begun_at, rq_psn=begun_at)
    pair: Any = object.__new__(DevicePair)
    pair.responder, pair.requester = ends
    pair._spec = (SimpleNamespace(findings=SimpleNamespace(renews_by_reset=True)),)
    pair._state = "RTS"
    pair._strategy = SimpleNamespace(by_reset=True, connect=lambda *_: connected.append(psns()))
    pair.renew()
    pair.renew()
    assert connected[0][0] == connected[0][1]
    assert len({begun_at, *(number for ends in connected for end in ends for number in end)}) == 3
    assert all(number < 1 << 24 for ends in connected for end in ends for number in end)


def test_the_default_deadline_of_a_completion_is_the_longest():
    assert completion_deadline_s(CASE_DEADLINE_S) == COMPLETION_DEADLINE_S
