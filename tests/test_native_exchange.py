"""Tests of exchanges in C, and of the completions from which the operation of a request is known. Python's exchanges are
tested in test_connection.py."""

import ctypes
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.bench.lingering import SHORT_S
from conformance.bench.memory_areas import BEFORE, Area, pattern, repeated
from conformance.bench.work_requests import (
    BEHIND,
    EXTENDED_OPCODES,
    WR_OPCODES,
    Completion,
    SendRequest,
    other_opcode,
)
from conformance.device import native_exchange
from conformance.device.posting import WC, Poster
from test_connection import area, two_areas

# Values of enum ibv_wc_status and ibv_wc_opcode.
LOC_QP_OP_ERR, WR_FLUSH_ERR, REM_ACCESS_ERR, RECV = 2, 5, 10, 128
NOTHING = (0, 0, 0)  # in place of a completion


@pytest.fixture
def provided() -> Callable[..., tuple[native_exchange.NativeConnection, int]]:
    """Returns a function that makes a connection over one queue pair of a made-up provider, and returns the connection
    and the queue pair's address. Polls return the completions in `polled` in turn, each a wr_id, a status and an opcode
    of <infiniband/verbs.h>; the last completion is repeated. `before_last` is called before the last completion.
    Posting a receive returns `receives`."""
    assert native_exchange.compiled(), "the project's tests need gcc"
    post = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    poll = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    provided_calls: list[Any] = []

    def make(
        *polled: tuple[int, int, int],
        before_last: Callable[[], object] = lambda: None,
        receives: int = 0,
        renewable: bool = False,
    ) -> tuple[native_exchange.NativeConnection, int]:
        remaining = list(polled)

        def complete(_: int, __: int, completion: int) -> int:
            if len(remaining) == 1:
                before_last()
            if remaining[0] == NOTHING:
                return 0
            WC.pack_into(
                (ctypes.c_char * WC.size).from_address(completion), 0, *remaining[0], *[0] * 10
            )
            del remaining[: len(remaining) > 1]
            return 1

        functions, polls = (ctypes.c_uint64 * 64)(), poll(complete)
        send, receive = post(lambda *_: 0), post(lambda *_: receives)
        for index, function in (
            (11, polls),
            (25, send),
            (26, receive),
        ):  # poll_cq, post_send, post_recv
            functions[1 + index] = ctypes.cast(function, ctypes.c_void_p).value or 0
        context = ctypes.addressof(functions)
        cq = (ctypes.c_uint64 * 4)(context)
        queue = (ctypes.c_uint64 * 32)(context, 0, 0, ctypes.addressof(cq), ctypes.addressof(cq))
        device, at = (
            SimpleNamespace(pointers=SimpleNamespace(attributes=lambda _: 0)),
            ctypes.addressof(queue),
        )
        end: Any = SimpleNamespace(
            kind="RC",
            device=device,
            deadline_s=1.0,
            attributes=None,
            poster=SimpleNamespace(qp=at),
        )
        connection = native_exchange.NativeConnection(
            end, end, 0.5, renewable=renewable, by_reset=False
        )
        connection.state = renewable, (0, 0)
        provided_calls.extend((functions, polls, send, receive, cq, queue, connection))
        return connection, at

    return make


def native(
    connection: native_exchange.NativeConnection,
    opcode: str,
    areas: tuple[Area, Area],
    wr_id: int = 1,
) -> Any:
    return connection, 0, 1, SendRequest(opcode, wr_id), areas


@pytest.mark.parametrize(
    "cannot",
    [{"receives": 12}, {"renewable": True}],
    ids=["receive refused", "stale"],
)
def test_c_does_not_execute_an_exchange_that_only_python_can_execute(provided, cannot):
    """The provider refuses receives, or the pair is stale and only Python can renew it."""
    connection, _ = provided((1, 0, 0), (0, 0, RECV), **cannot)
    assert native_exchange.exchanges([native(connection, "RDMA_WRITE", two_areas())]) == []


def test_c_does_not_await_the_final_state_of_a_pair_that_reset_does_not_renew(provided):
    """Requests complete with an error, and neither end reports a state."""
    connection, _ = provided((1, LOC_QP_OP_ERR, 0))
    two = [native(connection, "RDMA_WRITE", two_areas()) for _ in range(2)]
    (failed,) = native_exchange.exchanges(two)
    assert [completion.status for completion in failed.completions] == ["LOC_QP_OP_ERR"]
    assert (failed.responder_state, connection.state[0]) == ("", True)
    assert [status.moved() for status in two[0][-1]] == ["nothing", "nothing"]


def test_c_waits_for_the_first_missing_flush_only(provided):
    """No receive is flushed after the refused request."""
    waited_s = []
    for flush_s in (0.2, 0.0):
        connection, _ = provided((1, REM_ACCESS_ERR, 0), NOTHING)
        connection.be_patient(0.5, flush_s)
        began = time.monotonic()
        (refused,) = native_exchange.exchanges([native(connection, "RDMA_WRITE", two_areas())])
        waited_s.append(time.monotonic() - began)
        assert refused.peer_completions == []
        assert connection.flush_s == SHORT_S
    assert waited_s[0] >= 0.2


def test_a_flushed_send_is_not_taken_for_a_completion_of_the_next_request(provided):
    """The first exchange succeeds. The second fails before the SEND that follows the first request is acknowledged, so
    that this SEND is flushed."""
    flushed, failed = (1 | BEHIND, WR_FLUSH_ERR, 0), (2, LOC_QP_OP_ERR, 0)
    connection, _ = provided((1, 0, 1), (0, 0, RECV), flushed, failed)
    still = repeated(BEFORE, 8)
    first, second = native_exchange.exchanges(
        [native(connection, "SEND", (area(still), area(still)), number) for number in (1, 2)],
    )
    assert [completion.status for completion in first.completions] == ["SUCCESS"]
    assert [completion.status for completion in second.completions] == ["LOC_QP_OP_ERR"]
    _, qp = provided(flushed, failed)
    assert [
        (completion.wr_id, completion.status) for completion in Poster(qp).completions(1, 1.0)
    ] == [
        (2, "LOC_QP_OP_ERR"),
    ]


def test_c_reports_data_of_a_read_that_arrives_after_its_completion(provided):
    remote, local = area(repeated(BEFORE, 8)), area(pattern(8))

    def arrive() -> None:
        ctypes.memmove(local.start, pattern(8), 8)

    connection, _ = provided((1, 0, 2), (0, 0, RECV), before_last=arrive)
    (exchange,) = native_exchange.exchanges([native(connection, "RDMA_READ", (remote, local))])
    assert exchange.late


# The opcode of <infiniband/verbs.h>'s enum ibv_wc_opcode for each request, stated independently of the code.
COMPLETED = {
    opcode: opcode
    for opcode in ("RDMA_WRITE", "SEND", "RDMA_READ", "LOCAL_INV", "BIND_MW", "ATOMIC_WRITE")
} | {
    "RDMA_WRITE_WITH_IMM": "RDMA_WRITE",
    "SEND_WITH_IMM": "SEND",
    "SEND_WITH_INV": "SEND",
    "ATOMIC_CMP_AND_SWP": "COMP_SWAP",
    "ATOMIC_FETCH_AND_ADD": "FETCH_ADD",
    **dict.fromkeys(
        (
            "FLUSH_GLOBAL",
            "FLUSH_PERSISTENT",
            "FLUSH_BOTH",
            "FLUSH_GLOBAL_MR",
            "FLUSH_PERSISTENT_MR",
        ),
        "FLUSH",
    ),
}


def completed(opcode: str, status: str = "SUCCESS") -> list[Completion]:
    return [Completion(1, status, opcode if status == "SUCCESS" else "")]


@pytest.mark.parametrize("request_", [*WR_OPCODES, *EXTENDED_OPCODES])
def test_a_completion_names_the_operation_of_its_request(request_):
    assert other_opcode(request_, completed(COMPLETED[request_])) == []
    assert other_opcode(request_, completed("TSO")) == ["TSO", COMPLETED[request_]]


def test_the_completion_of_a_receive_distinguishes_a_message_from_a_write():
    message, write = completed("RECV"), completed("RECV_RDMA_WITH_IMM")
    assert other_opcode("SEND", completed("SEND"), message) == []
    assert other_opcode("SEND", completed("SEND"), write) == ["RECV_RDMA_WITH_IMM", "RECV"]
    assert other_opcode("RDMA_WRITE_WITH_IMM", completed("RDMA_WRITE"), write) == []
    assert other_opcode("RDMA_WRITE_WITH_IMM", completed("RDMA_WRITE"), message) == [
        "RECV",
        "RECV_RDMA_WITH_IMM",
    ]


def test_the_opcode_of_a_failed_completion_is_ignored():
    assert (
        other_opcode("RDMA_READ", completed("", "REM_ACCESS_ERR"), completed("", "WR_FLUSH_ERR"))
        == []
    )
    assert other_opcode("RDMA_READ", []) == []
