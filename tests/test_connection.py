"""Exchanges: what is to be looked at is not overtaken by the next, and data is there when it is told of."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from conformance.bench.calls import Return
from conformance.bench.memory_areas import BEFORE, Area, of_one, sent
from conformance.bench.work_requests import Completion, Exchange, SendRequest
from conformance.execution import connection
from conformance.execution.connection import Ask, LoopbackConnection, exchanges

Made = list[int]
SIZE = 64


class Stub:
    """A line that says which requests have been made."""

    def __init__(self) -> None:
        self.made: Made = []

    def ask(self, ask: Ask) -> Exchange:
        """Makes one."""
        self.made.append(ask.request.wr_id)
        return Exchange(Return(0, 0))

    def native(self) -> None:
        """None: nothing is made in C."""


def asks(line: Stub, number: int) -> list[Ask]:
    """So many, numbered from 0."""
    areas = cast(Any, ())
    return [Ask(cast(LoopbackConnection, line), SendRequest("RDMA_WRITE", wr_id), areas) for wr_id in range(number)]


def test_in_steps_each_is_given_before_the_next_is_made() -> None:
    line = Stub()
    for number, _ in enumerate(exchanges(asks(line, 3))):
        assert line.made == list(range(number + 1))
    assert line.made == [0, 1, 2]


def test_where_c_has_stopped_all_that_it_made_is_given_before_the_next_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Stub()

    def two_at_a_time(some: Sequence[Ask]) -> list[Exchange]:
        return [line.ask(ask) for ask in some[:2]]

    monkeypatch.setattr(connection, "_in_c", two_at_a_time)
    seen = [list(line.made) for _ in exchanges(asks(line, 5))]
    assert seen == [[0, 1], [0, 1], [0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3, 4]]


def test_what_c_cannot_make_is_made_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Stub()

    def not_the_odd_ones(some: Sequence[Ask]) -> list[Exchange]:
        return [line.ask(some[0])] if some[0].request.wr_id % 2 == 0 else []

    monkeypatch.setattr(connection, "_in_c", not_the_odd_ones)
    assert len(list(exchanges(asks(line, 4)))) == 4
    assert line.made == [0, 1, 2, 3]


class Memory:
    """Memory of this process."""

    size = SIZE

    def __init__(self) -> None:
        self._room = ctypes.create_string_buffer(SIZE)
        self.addr = ctypes.addressof(self._room)


class Side:
    """One end of a pair. Whenever something is polled, `polled` is told how often that has been."""

    number, kind, sq_sig_all, state = 1, "RC", False, "RTS"

    def __init__(self, comes: Sequence[str], polled: Callable[[int], None]) -> None:
        self._comes, self._polled, self._times = list(comes), polled, 0

    def post_send(self, request: SendRequest) -> Return:
        """Posted."""
        return Return(0, 0)

    def post_receive(self, sges: Sequence[Any], wr_id: int) -> Return:
        """Posted."""
        return Return(0, 0)

    def completions(self, count: int = 1, deadline_s: float = 0.0) -> list[Completion]:
        """The next that comes."""
        self._times += 1
        self._polled(self._times)
        return [Completion(1, "SUCCESS", self._comes.pop(0))]

    def query_state(self) -> str:
        """As it is."""
        return "RTS"


class Pair:
    """A requester whose answer, and a responder whose receive, come with or before the data."""

    def __init__(self, requester: Side, responder: Side) -> None:
        self.requester, self.responder = requester, responder


def area(wanted: bytes) -> Area:
    """A range whose contents are to become `wanted`."""
    memory = Memory()
    return Area(cast(Any, memory), memory.addr, len(wanted), BEFORE, of_one(BEFORE, len(wanted)), wanted)


@pytest.mark.parametrize(("with_answer", "late"), [(True, False), (False, True)])
def test_what_is_read_has_to_be_there_when_the_read_completes(with_answer: bool, late: bool) -> None:
    there, here = area(of_one(BEFORE, 8)), area(sent(8))

    def bring(_: int) -> None:
        ctypes.memmove(here.start, sent(8), 8)

    def nothing(_: int) -> None:
        pass

    sides = (bring, nothing) if with_answer else (nothing, bring)
    pair = Pair(Side(["RDMA_READ"], sides[0]), Side(["RECV"], sides[1]))
    line = LoopbackConnection(cast(Any, pair), lambda: 1)
    (exchange,) = exchanges([Ask(line, SendRequest("RDMA_READ", 1), (there, here))])
    assert exchange.late is late
    assert here.moved() == "all"
    assert not line.stale


@pytest.mark.parametrize(("poll", "late"), [(1, False), (2, True)])
def test_what_immediate_data_speaks_of_has_to_be_there_when_it_is_received(poll: int, late: bool) -> None:
    there, here = area(sent(8)), area(of_one(BEFORE, 8))

    def bring(times: int) -> None:
        if times == poll:
            ctypes.memmove(there.start, sent(8), 8)

    pair = Pair(Side(["RDMA_WRITE"], lambda _: None), Side(["RECV_RDMA_WITH_IMM", "RECV"], bring))
    line = LoopbackConnection(cast(Any, pair), lambda: 1)
    (exchange,) = exchanges([Ask(line, SendRequest("RDMA_WRITE_WITH_IMM", 1), (there, here))])
    assert exchange.late is late
    assert there.moved() == "all"
