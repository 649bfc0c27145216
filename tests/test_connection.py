"""Tests of exchanges: the memory of an exchange is examined before the next exchange is executed, late data are
detected, and a pair that has failed is not used for the next exchange."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from conformance.bench.calls import Return
from conformance.bench.lingering import SHORT_S, Lingering
from conformance.bench.memory_areas import BEFORE, Area, pattern, repeated
from conformance.bench.work_requests import (
    BEHIND,
    Completion,
    Exchange,
    SendRequest,
)
from conformance.device import native_exchange
from conformance.errors import LoopbackLost
from conformance.execution import connection
from conformance.execution.connection import ExchangeSpec, LoopbackConnection, exchanges
from conformance.execution.context import CaseContext
from conformance.model.deadline import TAUGHT_S, TURNS_PER_S, Wait
from conformance.model.transport import INFINIBAND, IWARP
from kinds import Patch, rows

SIZE = 64


@pytest.mark.parametrize(
    "in_c, executed",
    [
        (lambda some: [], [[0], [0, 1], [0, 1, 2]]),
        (lambda some: some[:2], [[0, 1], [0, 1], [0, 1, 2]]),
        (lambda some: some[: some[0].request.wr_id % 2], [[0], [0, 1], [0, 1, 2]]),
    ],
)
def test_all_results_of_a_batch_are_yielded_before_the_next_is_executed(
    in_c, executed, monkeypatch
):
    """Python executes the exchanges that C does not execute."""
    began: list[int] = []

    def execute(spec: ExchangeSpec) -> Exchange:
        began.append(spec.request.wr_id)
        return Exchange(Return(0, 0))

    stub = Mock(execute=execute, native=lambda: None)
    monkeypatch.setattr(
        connection,
        "_native_exchanges",
        lambda some: [execute(spec) for spec in in_c(some)],
    )
    specs = [
        ExchangeSpec(stub, SendRequest("RDMA_WRITE", number), cast(Any, ())) for number in range(3)
    ]
    assert [[*began] for _ in exchanges(specs)] == executed


def area(expected: bytes) -> Area:
    """Returns a range that must have the contents `expected` after the exchange."""
    buffer = ctypes.create_string_buffer(SIZE)
    memory = SimpleNamespace(size=SIZE, addr=ctypes.addressof(buffer), kept=buffer)
    return Area(
        cast(Any, memory),
        memory.addr,
        len(expected),
        BEFORE,
        repeated(BEFORE, len(expected)),
        expected,
    )


def two_areas() -> tuple[Area, Area]:
    return area(pattern(8)), area(pattern(8))


def done(opcode: str) -> list[Completion]:
    return [Completion(1, "SUCCESS", opcode)]


def idle(polls: int) -> None:
    """Does nothing."""


class Side:
    """One end of a pair. A poll calls `polled` with the number of polls, and returns the next completions. `waited` has
    the deadlines of the polls, `asked` is the number of queries of the state, and `sent` has the posted requests."""

    number, sq_sig_all = 1, False

    def __init__(
        self,
        completions: Iterable[list[Completion]] = (),
        polled: Callable[[int], object] = idle,
        kind: str = "RC",
        state: str = "RTS",
    ) -> None:
        self._completions, self._polled, self.kind, self.state = (
            iter(completions),
            polled,
            kind,
            state,
        )
        self.waited, self.sent, self.asked = list[float](), list[SendRequest](), 0

    def post_send(self, request: SendRequest) -> Return:
        self.sent.append(request)
        return Return(0, 0)

    def post_receive(self, sges: Sequence[Any], wr_id: int) -> Return:
        return Return(0, 0)

    def completions(self, count: int = 1, deadline_s: float = 0.0) -> list[Completion]:
        self.waited.append(deadline_s)
        self._polled(len(self.waited))
        return next(self._completions, [])

    def query_state(self) -> str:
        self.asked += 1
        return self.state


class Pair:
    """A pair of two ends; `more` has other attributes of the pair."""

    renews_by_reset = tells_state = True
    transport = INFINIBAND

    def __init__(self, requester: Side, responder: Side, **more: object) -> None:
        self.requester, self.responder, self.renewals = requester, responder, 0
        self.lingering = Lingering()
        vars(self).update(more)

    def renew(self) -> None:
        self.renewals += 1


def over(pair: Pair, **more: Any) -> LoopbackConnection:
    return LoopbackConnection(cast(Any, pair), itertools.count(2).__next__, **more)


def spec(
    of: LoopbackConnection,
    opcode: str,
    areas: tuple[Area, Area] | None = None,
    **more: bool,
) -> ExchangeSpec:
    return ExchangeSpec(of, SendRequest(opcode, 1), areas or two_areas(), **more)


@pytest.mark.parametrize("with_completion, late", [(True, False), (False, True)])
def test_data_of_a_read_must_be_in_memory_when_the_read_completes(with_completion, late):
    remote, local = area(repeated(BEFORE, 8)), area(pattern(8))

    def write(_: int) -> None:
        ctypes.memmove(local.start, pattern(8), 8)

    first, second = (write, idle) if with_completion else (idle, write)
    loopback = over(Pair(Side([done("RDMA_READ")], first), Side([done("RECV")], second)))
    (exchange,) = exchanges([spec(loopback, "RDMA_READ", (remote, local))])
    assert exchange.late is late
    assert local.moved() == "all"
    assert not loopback.stale


@pytest.mark.parametrize("failed, waited, state", [(False, 0.0, "ERR"), (True, 0.001, "RTS")])
def test_the_error_state_is_not_awaited_on_a_pair_that_has_failed(failed, waited, state):
    """The pair is in ERR, or an earlier exchange failed: then the completion is awaited only briefly, too."""
    silent = Side(state=state)
    loopback = over(Pair(silent, Side()))
    exchange = loopback.execute(spec(loopback, "RDMA_WRITE", failed=failed))
    assert (silent.waited, exchange.completions, silent.asked) == ([waited], [], int(not failed))
    assert loopback.stale


@pytest.mark.parametrize("poll, late", [(1, False), (2, True)])
def test_data_of_a_write_must_be_in_memory_when_its_immediate_data_is_received(poll, late):
    remote, local = area(pattern(8)), area(repeated(BEFORE, 8))

    def write(polls: int) -> None:
        if polls == poll:
            ctypes.memmove(remote.start, pattern(8), 8)

    receiver = Side([done("RECV_RDMA_WITH_IMM"), done("RECV")], write)
    loopback = over(Pair(Side([done("RDMA_WRITE")]), receiver))
    (exchange,) = exchanges([spec(loopback, "RDMA_WRITE_WITH_IMM", (remote, local))])
    assert exchange.late is late
    assert remote.moved() == "all"


@pytest.fixture
def slow_clock(monkeypatch: Patch) -> None:
    """Replaces the clock: SILENCE_S passes in twenty queries."""
    clock = itertools.count(step=connection.SILENCE_S / 20)
    monkeypatch.setattr("time.monotonic", lambda: next(clock))


def times_asked(side: Side, loopback: LoopbackConnection, opcode: str, status: str) -> int:
    """Returns how often the state of this end is queried after a refusal; the state is never ERR."""
    before = side.asked
    loopback.mark_failed(opcode, [Completion(1, status)], cast(Any, side))
    return side.asked - before


@pytest.mark.usefixtures("slow_clock")
def test_after_a_missing_error_state_the_same_connection_awaits_the_state_only_briefly():
    pair = Pair(side := Side(), Side())
    first, second = over(pair), over(pair)
    assert times_asked(side, first, "SEND", "LOC_PROT_ERR") > 10
    assert times_asked(side, first, "RDMA_WRITE", "LOC_PROT_ERR") < 3
    assert times_asked(side, second, "SEND", "LOC_PROT_ERR") > 10


@pytest.mark.usefixtures("slow_clock")
def test_error_states_that_no_document_requires_are_awaited_once_for_each_kind_of_refusal():
    pair = Pair(side := Side(), Side(), transport=IWARP)
    first, second = over(pair), over(pair)
    assert times_asked(side, first, "SEND", "LOC_QP_OP_ERR") > 10
    assert times_asked(side, first, "RDMA_WRITE", "LOC_QP_OP_ERR") > 10
    assert times_asked(side, first, "SEND", "LOC_PROT_ERR") > 10
    for opcode in ("SEND", "RDMA_WRITE"):
        assert times_asked(side, second, opcode, "LOC_QP_OP_ERR") < 3


def test_one_missing_flush_teaches_all_connections_of_the_device():
    """After a refusal of another kind the wait is longer than after the same kind. A flush that is not missing teaches
    nothing."""
    full = connection.SILENCE_S
    waits: list[float] = []
    lingering = Lingering()
    refused, flushed = ([Completion(1, status)] for status in ("REM_ACCESS_ERR", "WR_FLUSH_ERR"))
    for opcode in ("RDMA_WRITE", "RDMA_WRITE", "RDMA_READ"):
        pair = Pair(
            Side(itertools.repeat(refused)),
            peer := Side(),
            tells_state=False,
            lingering=lingering,
        )
        loopback = over(pair)
        loopback.execute(spec(loopback, opcode))
        waits += peer.waited
    assert waits == [full, SHORT_S, TAUGHT_S]
    flushing = Pair(Side(itertools.repeat(refused)), Side(itertools.repeat(flushed)))
    loopback = over(flushing)
    loopback.execute(spec(loopback, "SEND"))
    assert flushing.lingering.flush_s(full) == full


@pytest.mark.parametrize("losses, wait", [(2, connection.SILENCE_S), (3, TAUGHT_S)])
def test_a_refusal_that_ends_an_unreliable_connection_is_soon_known(losses, wait, monkeypatch):
    """The SEND behind the refused request never arrives. One or two messages may have been lost by chance."""
    monkeypatch.setattr(LoopbackConnection, "check_alive", lambda self: None)
    pair = Pair(
        Side(itertools.repeat(done("RDMA_WRITE")), kind="UC"),
        peer := Side(kind="UC"),
    )
    loopback = over(pair)
    for _ in range(losses + 1):
        list(exchanges([spec(loopback, "RDMA_WRITE")]))
    assert peer.waited == [*[connection.SILENCE_S] * min(losses, 3), wait]


def test_c_learns_from_a_missing_flush_and_teaches_python(monkeypatch):
    loopback = over(pair := Pair(Side(), Side()))
    refused = Exchange(Return(0, 0), [Completion(1, "REM_ACCESS_ERR")])
    patient = Mock()
    monkeypatch.setattr(native_exchange, "native_connection", lambda *_: patient)
    monkeypatch.setattr(native_exchange, "exchanges", lambda batch: [refused] * len(batch))
    patient.uses, patient.state = lambda _: True, (False, [0, 0])
    list(exchanges([spec(loopback, "RDMA_WRITE")]))
    list(exchanges([spec(loopback, "RDMA_READ")]))
    flushes = [call.args[1] for call in patient.be_patient.call_args_list]
    assert flushes == [connection.SILENCE_S, TAUGHT_S]
    assert pair.lingering.flush_s(1.0) == TAUGHT_S


def test_a_stale_pair_is_renewed_before_c_uses_it(monkeypatch):
    pair = Pair(Side(), Side(), renews_by_reset=False)
    loopback = over(pair)
    seen: list[int] = []
    monkeypatch.setattr(native_exchange, "native_connection", lambda *_: seen.append(pair.renewals))
    loopback.native()
    loopback.stale = True
    loopback.native()
    assert (seen, loopback.stale) == ([0, 1], False)


@pytest.mark.parametrize("request_, answered", rows("answered_requests"))
def test_after_a_request_without_a_response_another_pair_must_transfer_a_message(
    monkeypatch, request_, answered
):
    kind, transport, opcode, *statuses = request_.split()
    side = Side(kind=kind)
    pair = Pair(side, side, transport={"INFINIBAND": INFINIBAND, "IWARP": IWARP}[transport])
    control = over(pair)
    connections: list[LoopbackConnection] = []
    monkeypatch.setattr(LoopbackConnection, "check_alive", lambda self: connections.append(self))
    of_a_case = over(pair, renewable=False, control=lambda: control)
    completions = [[Completion(1, status)] if status != "-" else [] for status in statuses]
    of_a_case.check_response(completions[0], completions[1], opcode)
    assert connections == ([] if answered else [control])


@pytest.mark.parametrize(
    "kind, losses, lost",
    [("RC", 0, False), ("RC", 1, True), ("UC", 2, False), ("UC", 3, True)],
)
def test_a_message_that_must_arrive_may_be_lost_only_by_an_unreliable_transport(kind, losses, lost):
    sender = Side(itertools.repeat(done("SEND")), kind=kind)
    arrived = (done("RECV") if len(sender.sent) > losses else [] for _ in itertools.count())
    loopback = over(Pair(sender, Side(arrived, kind=kind)))
    message = f"a queue pair of type {kind} no longer delivers messages to its peer"
    with pytest.raises(LoopbackLost, match=message) if lost else nullcontext():
        loopback.check_alive()
    assert loopback.stale is lost


def test_all_branches_of_a_set_up_share_the_ids_of_requests():
    """A completion on a shared queue pair may belong to a request of an earlier branch."""
    case = cast(Any, SimpleNamespace(entry="libibverbs"))
    trunk = CaseContext(case, cast(Any, SimpleNamespace(entry=lambda _: None)))
    ids = [
        context.next_wr_id() for context in (trunk, trunk.branch(case), trunk.branch(case), trunk)
    ]
    assert len(set(ids)) == 4
    assert not any(branch_id & BEHIND for branch_id in ids)


def test_python_awaits_the_final_state_if_c_does_not(monkeypatch):
    pair = Pair(Side(), Side(), renews_by_reset=False)
    loopback = over(pair)
    in_c: Any = Mock(state=(True, [0, 0]), uses=lambda _: True)
    monkeypatch.setattr(native_exchange, "native_connection", lambda *_: in_c)
    failed = Exchange(Return(0, 0), [Completion(1, "LOC_PROT_ERR")])
    monkeypatch.setattr(native_exchange, "exchanges", lambda _: [failed])
    waited: list[tuple[object, ...]] = []
    monkeypatch.setattr(loopback, "mark_failed", lambda *about: waited.append(about))
    (exchange,) = exchanges([spec(loopback, "RDMA_WRITE")])
    assert waited == [("RDMA_WRITE", failed.completions, pair.requester)]
    assert exchange.responder_state == "RTS"


def test_a_wait_yields_the_processor_a_fixed_number_of_times_even_if_the_clock_jumps(monkeypatch):
    turns: list[None] = []
    monkeypatch.setattr("time.monotonic", itertools.count(step=60.0).__next__)
    monkeypatch.setattr("os.sched_yield", lambda: turns.append(None))
    wait = Wait(0.2)
    while not wait.over():
        assert len(turns) < TURNS_PER_S
    assert len(turns) + 1 == 0.2 * TURNS_PER_S
