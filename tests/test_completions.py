"""The opcodes of completions: which one belongs to which request, by ibv_poll_cq(3)."""

from __future__ import annotations

import pytest

from conformance.bench.work_requests import EXTENDED_OPCODES, WR_OPCODES, Completion, other_opcode

# enum ibv_wc_opcode of <infiniband/verbs.h>, a second time, by the request.
COMPLETED = {
    "RDMA_WRITE": "RDMA_WRITE",
    "RDMA_WRITE_WITH_IMM": "RDMA_WRITE",
    "SEND": "SEND",
    "SEND_WITH_IMM": "SEND",
    "RDMA_READ": "RDMA_READ",
    "ATOMIC_CMP_AND_SWP": "COMP_SWAP",
    "ATOMIC_FETCH_AND_ADD": "FETCH_ADD",
    "LOCAL_INV": "LOCAL_INV",
    "BIND_MW": "BIND_MW",
    "SEND_WITH_INV": "SEND",
    "FLUSH_GLOBAL": "FLUSH",
    "FLUSH_PERSISTENT": "FLUSH",
    "FLUSH_BOTH": "FLUSH",
    "ATOMIC_WRITE": "ATOMIC_WRITE",
}


def completed(opcode: str, status: str = "SUCCESS") -> list[Completion]:
    return [Completion(1, status, opcode if status == "SUCCESS" else "")]


@pytest.mark.parametrize("request_", [*WR_OPCODES, *EXTENDED_OPCODES])
def test_a_completion_names_the_operation_of_its_request(request_: str) -> None:
    assert other_opcode(request_, completed(COMPLETED[request_])) == []
    assert other_opcode(request_, completed("TSO")) == ["TSO", COMPLETED[request_]]


def test_a_receive_tells_a_message_from_a_write() -> None:
    message, write = completed("RECV"), completed("RECV_RDMA_WITH_IMM")
    assert other_opcode("SEND", completed("SEND"), message) == []
    assert other_opcode("SEND", completed("SEND"), write) == ["RECV_RDMA_WITH_IMM", "RECV"]
    assert other_opcode("RDMA_WRITE_WITH_IMM", completed("RDMA_WRITE"), write) == []
    assert other_opcode("RDMA_WRITE_WITH_IMM", completed("RDMA_WRITE"), message) == ["RECV", "RECV_RDMA_WITH_IMM"]


def test_the_opcode_of_a_failure_is_not_valid() -> None:
    assert other_opcode("RDMA_READ", completed("", "REM_ACCESS_ERR"), completed("", "WR_FLUSH_ERR")) == []
    assert other_opcode("RDMA_READ", []) == []
