"""The connection manager, with a stand-in for its library that records the calls and reports events."""

import ctypes
import errno
import itertools
import os
from collections import deque
from collections.abc import Iterator
from typing import Any, cast

import pytest

from conformance.device import connection_manager
from conformance.device.connection_manager import (
    CmError,
    ConnectionManager,
    _Channel,
    _ConnParam,
    _Event,
)
from conformance.device.qp_states import ByManager, ByStates
from conformance.errors import UserError
from kinds import Patch
from samples import user_error

ACTIVE, PASSIVE = 17, 42
ADDRESS_RESOLVED, ROUTE_RESOLVED, REQUEST, REJECTED, ESTABLISHED, DISCONNECTED = 0, 2, 4, 8, 9, 10
# The events of the real manager after each call, as (event, id): the call's own id, a new id, or that of rdma_connect.
REPORTS = {
    "rdma_resolve_addr": [(ADDRESS_RESOLVED, "own")],
    "rdma_resolve_route": [(ROUTE_RESOLVED, "own")],
    "rdma_connect": [(REQUEST, "new")],
    "rdma_accept": [(ESTABLISHED, "own"), (ESTABLISHED, "asking")],
}


class Library:
    """A librdmacm without a device. `alive` has the existing ids. `connected` has, for each call, the number of the
    queue pair and the depths for RDMA READs."""

    def __init__(self) -> None:
        self.read, self.write = os.pipe()
        self.channel = _Channel(self.read)
        self.numbers = itertools.count(1)
        self.alive: set[int] = set()
        self.connected: dict[str, tuple[int, int, int]] = {}
        self.reports = {name: list(reports) for name, reports in REPORTS.items()}
        self.failing = ""
        self.status = 0
        self.events: deque[_Event] = deque()
        self.asking = 0
        self.rdma_create_event_channel: Any = lambda: ctypes.addressof(self.channel)
        self.rdma_get_src_port: Any = lambda _: 0x3412

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.call(name, *arguments)

    def call(self, name: str, first: Any, *others: Any) -> int:
        if name == self.failing:
            ctypes.set_errno(errno.ENODEV)
            return -1
        value = first.value
        if name == "rdma_create_id":
            others[0]._obj.value = self.new()
        elif name == "rdma_destroy_id":
            self.alive.remove(value)
        elif name == "rdma_get_cm_event":
            os.read(self.read, 1)
            self.told = self.events.popleft()
            others[0]._obj.value = ctypes.addressof(self.told)
        if name in ("rdma_connect", "rdma_accept"):
            parameters: _ConnParam = others[0]._obj
            self.connected[name] = (
                parameters.qp_num,
                parameters.initiator_depth,
                parameters.responder_resources,
            )
        if name == "rdma_connect":
            self.asking = value
        for event, end in self.reports.get(name, ()):
            self.report(event, {"own": value, "asking": self.asking}.get(end) or self.new())
        return 0

    def new(self) -> int:
        number = next(self.numbers)
        self.alive.add(number)
        return number

    def report(self, event: int, end: int) -> None:
        self.events.append(_Event(end, None, event, self.status))
        os.write(self.write, b".")


@pytest.fixture
def library(monkeypatch: Patch) -> Iterator[Library]:
    stand_in = Library()
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: stand_in)
    yield stand_in
    os.close(stand_in.read)
    os.close(stand_in.write)


def test_two_queue_pairs_are_connected_by_their_numbers_and_released_with_the_connection(library):
    manager = ConnectionManager("10.77.0.1", 5.0)
    listener = set(library.alive)
    ends = manager.connect(ACTIVE, PASSIVE)
    assert library.connected == {"rdma_connect": (ACTIVE, 1, 1), "rdma_accept": (PASSIVE, 1, 1)}
    assert len(library.alive - listener) == 2
    for end in ends:
        manager.destroy(end)
    assert library.alive == listener


def test_events_of_earlier_connections_are_ignored(library):
    manager = ConnectionManager("10.77.0.1", 5.0)
    library.report(DISCONNECTED, 99)
    library.reports["rdma_accept"].insert(1, (DISCONNECTED, "new"))
    manager.connect(ACTIVE, PASSIVE)


def test_a_refused_connection_has_the_status_of_the_event_and_leaves_no_id(library):
    manager = ConnectionManager("10.77.0.1", 5.0)
    listener = set(library.alive)
    library.reports["rdma_connect"], library.status = [(REJECTED, "own")], -errno.ECONNRESET
    with pytest.raises(CmError, match="reported REJECTED instead of CONNECT_REQUEST") as caught:
        manager.connect(ACTIVE, PASSIVE)
    assert caught.value.error_code == errno.ECONNRESET
    assert library.alive == listener


def test_a_missing_event_ends_the_wait_with_a_time_out(library):
    manager = ConnectionManager("10.77.0.1", 0.01)
    listener = set(library.alive)
    library.reports["rdma_accept"] = [(ESTABLISHED, "own")]
    with pytest.raises(CmError, match="did not report ESTABLISHED") as caught:
        manager.connect(ACTIVE, PASSIVE)
    assert caught.value.error_code == errno.ETIMEDOUT
    assert library.alive == listener


def test_an_address_that_cannot_be_bound_is_named(library):
    library.failing = "rdma_bind_addr"
    with user_error(r"cannot listen on 10\.77\.0\.1: rdma_bind_addr: No such device", status=3):
        ConnectionManager("10.77.0.1", 5.0)


def test_a_kernel_without_the_connection_manager_is_reported(library):
    library.rdma_create_event_channel = lambda: None
    with pytest.raises(UserError, match="modprobe rdma_ucm"):
        ConnectionManager("10.77.0.1", 5.0)


def test_a_host_without_the_library_is_reported(monkeypatch):
    def absent(*_: object, **__: object) -> None:
        raise OSError("no such file")

    monkeypatch.setattr(ctypes, "CDLL", absent)
    with pytest.raises(UserError, match=r"librdmacm\.so\.1 cannot be loaded"):
        ConnectionManager("10.77.0.1", 5.0)


@pytest.mark.parametrize(
    "address, packed",
    [
        ("10.77.0.1", "0200 1234 0a4d0001 0000000000000000"),
        ("fd00::1", "0a00 1234 00000000 fd000000000000000000000000000001 00000000"),
        ("fe80::1%lo", "0a00 1234 00000000 fe800000000000000000000000000001 01000000"),
    ],
)
def test_an_address_has_the_layout_of_a_sockaddr(address, packed):
    assert connection_manager._socket_address(address, 0x1234).raw == bytes.fromhex(
        packed.replace(" ", ""),
    )


class End:
    """A queue pair without a device, which records its calls."""

    def __init__(self, number: int) -> None:
        self.number, self.state, self.moves = number, "RESET", list[str]()

    def move_to(self, state: str, peer: int) -> None:
        self.state = state
        self.moves.append(f"{state} {peer}")

    def fail(self) -> None:
        self.state = "ERR"


@pytest.mark.parametrize("state", ["RTS", "ERR"])
def test_the_manager_connects_queue_pairs_that_are_in_init(library, state):
    way = ByManager(ConnectionManager("10.77.0.1", 5.0))
    listener = set(library.alive)
    requester, responder = End(ACTIVE), End(PASSIVE)
    way.connect(cast(Any, requester), cast(Any, responder), state)
    assert (requester.moves, responder.moves) == (["INIT 0"], ["INIT 0"])
    assert (requester.state, responder.state) == ("RTS", state)
    assert library.connected == {"rdma_connect": (ACTIVE, 1, 1), "rdma_accept": (PASSIVE, 1, 1)}
    way.close()
    way.close()
    assert library.alive == listener


def test_queue_pairs_that_stay_in_init_are_not_connected(library):
    way = ByManager(ConnectionManager("10.77.0.1", 5.0))
    requester, responder = End(ACTIVE), End(PASSIVE)
    way.connect(cast(Any, requester), cast(Any, responder), "INIT")
    assert (requester.state, responder.state, library.connected) == ("INIT", "INIT", {})


def test_by_states_each_queue_pair_gets_the_number_of_its_peer():
    requester, responder = End(ACTIVE), End(PASSIVE)
    ByStates().connect(cast(Any, requester), cast(Any, responder), "RTR")
    assert (requester.moves, responder.moves) == ([f"INIT {PASSIVE}"], [f"RTR {ACTIVE}"])
    alone = End(ACTIVE)
    ByStates().connect(cast(Any, alone), cast(Any, alone), "RTS")
    assert alone.moves == [f"RTS {ACTIVE}"]
