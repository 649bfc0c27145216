"""Queue pairs without a device: their attributes, and asynchronous events from a context that consists of a pipe."""

import ctypes
import os
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from conformance.device import qp_states
from conformance.device.qp_states import events_of, modify_to, transitions
from conformance.device.queue_pairs import DATAGRAM_QKEY, DeviceQueue
from conformance.model.case import QpSpec
from conformance.model.transport import ROCE

PEER, AH = 17, 0x5000


@pytest.fixture
def bindings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces the classes of pyverbs for the attributes of a connection."""
    for name, classes in {
        "pyverbs": (),
        "pyverbs.qp": ("QPAttr",),
        "pyverbs.addr": ("AH", "AHAttr", "GlobalRoute"),
    }.items():
        module = ModuleType(name)
        for each in classes:
            setattr(module, each, lambda *_, **given: SimpleNamespace(**given))
        monkeypatch.setitem(sys.modules, name, module)


def queue(kind: str) -> DeviceQueue:
    """A queue pair of the type, without a device."""
    made = DeviceQueue.__new__(DeviceQueue)
    made.kind, made.spec = kind, QpSpec(kind, "pd")
    made.pd = cast(Any, SimpleNamespace(pyverbs=None, pointer=0x4000))
    pointers = SimpleNamespace(ah=lambda *_: AH)
    device = SimpleNamespace(
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
    made.device = cast(Any, device)
    return made


@pytest.mark.usefixtures("bindings")
def test_datagrams_name_the_queue_key_that_their_receiver_holds() -> None:
    datagrams = queue("UD")
    datagrams._create_address_handle(PEER)
    assert datagrams.connection_attributes(PEER).qkey == DATAGRAM_QKEY
    assert datagrams._destination == (AH, PEER, DATAGRAM_QKEY)
    assert DATAGRAM_QKEY == 0x11111111
    assert not DATAGRAM_QKEY >> 31, "a key that needs privileges"


@pytest.mark.usefixtures("bindings")
def test_the_path_leads_to_the_device_of_the_peer() -> None:
    made = queue("RC")
    own = made.connection_attributes(PEER)
    assert (own.path_mtu, own.ah_attr.gr.dgid, own.ah_attr.gr.sgid_index) == (3, "gid", 0)
    made.remote = cast(Any, SimpleNamespace(active_mtu=1, gid="other gid", source_gid_index=5, lid=9))
    across = made.connection_attributes(PEER)
    assert (across.path_mtu, across.ah_attr.gr.dgid, across.ah_attr.gr.sgid_index) == (1, "other gid", 0)
    assert (across.ah_attr.dlid, across.ah_attr.port_num) == (9, 1)


@pytest.mark.usefixtures("bindings")
@pytest.mark.parametrize("used", [False, True])
def test_the_path_has_a_global_route_or_none(used: bool) -> None:
    made = queue("RC")
    vars(made.device)["uses_grh"] = used
    path = made.connection_attributes(PEER).ah_attr
    assert (path.is_global, hasattr(path, "gr")) == (int(used), used)


@pytest.mark.parametrize(
    ("kind", "masks"),
    [
        # The bits of enum ibv_qp_attr_mask that ibv_modify_qp(3) requires for INIT, RTR and RTS.
        ("RC", ((0, 3, 4, 5), (0, 7, 8, 12, 15, 17, 20), (0, 9, 10, 11, 13, 16))),
        ("UC", ((0, 3, 4, 5), (0, 7, 8, 12, 20), (0, 16))),
        ("UD", ((0, 4, 5, 6), (0,), (0, 16))),
        ("XRC_SEND", ((0, 3, 4, 5), (0, 7, 8, 12, 20), (0, 9, 10, 11, 13, 16))),
        ("XRC_RECV", ((0, 3, 4, 5), (0, 7, 8, 12, 15, 17, 20))),
    ],
)
def test_each_transition_sets_the_attributes_that_the_manual_page_requires(
    kind: str, masks: tuple[tuple[int, ...], ...]
) -> None:
    expected = [(state, sum(1 << bit for bit in bits)) for state, bits in zip((1, 2, 3), masks, strict=False)]
    assert transitions(kind) == expected
    assert all(type(mask) is int for _, mask in transitions(kind)), "C gets these numbers"


@pytest.mark.parametrize(
    ("since", "to", "expected"),
    [
        ("RESET", "RTS", [1, 2, 3]),
        ("INIT", "RTS", [2, 3]),
        ("RTR", "RTS", [3]),
        ("RTS", "RTS", []),
        ("RTS", "ERR", [6]),
        ("RESET", "INIT", [1]),
    ],
)
def test_a_queue_pair_moves_on_from_where_it_is(since: str, to: str, expected: list[int]) -> None:
    taken: list[int] = []
    attributes = SimpleNamespace(qp_state=0)
    qp = SimpleNamespace(modify=lambda given, mask: taken.append(given.qp_state))
    modify_to(qp, "RC", attributes, to, since)
    assert taken == expected


QP, OTHER = 0x1000, 0x2000


class Library:
    """ibv_get_async_event and ibv_ack_async_event on a struct ibv_context with the read end of a pipe."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        self._context = ctypes.create_string_buffer(512)
        self.context = ctypes.addressof(self._context)
        # cmd_fd and async_fd follow the device and the 32 functions of the provider.
        (ctypes.c_int * 2).from_address(self.context + 33 * 8)[:] = [-1, self.reader]
        self.acknowledged: list[tuple[int, int]] = []

    def comes(self, qp: int, kind: int) -> None:
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
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    made = Library()
    monkeypatch.setattr(qp_states, "_library", lambda: made)
    yield made
    os.close(made.reader)
    os.close(made.writer)


def test_nothing_is_waited_for(library: Library) -> None:
    assert events_of(QP, library.context) == []


def test_each_event_is_acknowledged_and_those_of_the_queue_pair_are_named(library: Library) -> None:
    for qp, kind in ((QP, 3), (OTHER, 1), (QP, 16), (QP, 99)):
        library.comes(qp, kind)
    assert events_of(QP, library.context) == ["QP_ACCESS_ERR", "QP_LAST_WQE_REACHED", "event 99"]
    assert library.acknowledged == [(QP, 3), (OTHER, 1), (QP, 16), (QP, 99)]
    assert events_of(QP, library.context) == [], "each is reported once"
