"""Defines work requests, completions, and the results of exchanges as data. execution/ exchanges these data with a
bench, which is the device under test or the reference implementation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from conformance.bench.calls import Mr, Return, Sge, Window
from conformance.model.operations import FLUSHES
from conformance.verbs import ENUMS

SIGNALED = ENUMS["ibv_send_flags"].value_of("SIGNALED")

# This bit is set only in the id of the SEND that the harness posts after a request. If the next request fails before
# the SEND is acknowledged, the SEND is flushed and completes first.
BEHIND = 1 << 63
# The SGEs of a receive for a message without data. Some providers refuse a receive without SGEs.
NO_BYTES = (Sge(0, 0, 0),)
# The values of enum ibv_wr_opcode (<infiniband/verbs.h>) that are posted with ibv_post_send.
_IN_ORDER = """
RDMA_WRITE RDMA_WRITE_WITH_IMM SEND SEND_WITH_IMM RDMA_READ ATOMIC_CMP_AND_SWP ATOMIC_FETCH_AND_ADD LOCAL_INV BIND_MW
SEND_WITH_INV
""".split()
WR_OPCODES = {opcode: number for number, opcode in enumerate(_IN_ORDER)}
# Operations that only the ibv_wr_* calls of an extended queue pair can post.
EXTENDED_OPCODES = (*FLUSHES, "ATOMIC_WRITE")
# The opcode of a request's completion (enum ibv_wc_opcode), if its name differs from the name of the request's opcode.
COMPLETED_AS = {
    "RDMA_WRITE_WITH_IMM": "RDMA_WRITE",
    "SEND_WITH_IMM": "SEND",
    "SEND_WITH_INV": "SEND",
    "ATOMIC_CMP_AND_SWP": "COMP_SWAP",
    "ATOMIC_FETCH_AND_ADD": "FETCH_ADD",
    **dict.fromkeys(FLUSHES, "FLUSH"),
}
# The opcode of a receive's completion, by the opcode of the request that consumed the receive. The default is RECV.
_RECEIVED_AS = {"RDMA_WRITE_WITH_IMM": "RECV_RDMA_WITH_IMM"}


@dataclass(frozen=True)
class BindInfo:
    """struct ibv_mw_bind_info: the region (None is NULL), the address, the length in bytes, the access flags."""

    mr: Mr | None
    addr: int
    length: int
    access: int


class SendRequest(NamedTuple):
    """A request for a send queue: struct ibv_send_wr, or the equivalent ibv_wr_* call.

    `opcode` is in WR_OPCODES or EXTENDED_OPCODES. `imm` is in host byte order. `length` is the size of the range of a
    FLUSH, in bytes. `swap` is also the value of the 8 bytes that ATOMIC_WRITE writes. A BIND_MW binds `window` to
    `bind`, with the new key `rkey`.
    """

    opcode: str
    wr_id: int
    sges: tuple[Sge, ...] = ()
    flags: int = SIGNALED
    remote_addr: int = 0
    rkey: int = 0
    imm: int = 0
    invalidate_rkey: int = 0
    compare_add: int = 0
    swap: int = 0
    length: int = 0
    window: Window | None = None
    bind: BindInfo | None = None


class Completion(NamedTuple):
    """One work completion. Names are without the prefix of their enumeration.

    If `status` is not SUCCESS, the verbs do not define opcode and length: `opcode` is "" and `byte_len` is 0. `imm` is
    in host byte order, or None if the completion has no immediate data. `invalidated_rkey` is the key that a SEND with
    invalidation has invalidated (IBV_WC_WITH_INV), else None. `wc_flags` has all flags that the provider returned.
    `qp_num` is None if the number was not read.
    """

    wr_id: int
    status: str
    opcode: str = ""
    byte_len: int = 0
    imm: int | None = None
    vendor_err: int = 0
    invalidated_rkey: int | None = None
    wc_flags: int = 0
    qp_num: int | None = None


class Exchange(NamedTuple):
    """The result of an exchange: the result of posting the request, the request's completion, and the peer's
    completions. `responder_state` is the final state of the responder if the exchange was not a full success, else
    empty. `late` is whether a completion was reported before the data were in memory."""

    returned: Return
    completions: Sequence[Completion] = ()
    peer_completions: Sequence[Completion] = ()
    responder_state: str = ""
    late: bool = False

    @property
    def succeeded(self) -> bool:
        return len(self.completions) == 1 and self.completions[0].status == "SUCCESS"


def other_opcode(
    opcode: str,
    completions_here: Sequence[Completion],
    received: Sequence[Completion] = (),
) -> list[str]:
    """Returns the opcodes [reported, specified] of a completion that reports a different operation than the posted
    operation, or []. `completions_here` begins with the request's completion, and `received` begins with the completion of the
    receive that the request consumed, if any. The opcode of a completion in error is not valid, and is not compared."""
    specified = (
        (completions_here, COMPLETED_AS.get(opcode, opcode)),
        (received, _RECEIVED_AS.get(opcode, "RECV")),
    )
    for completions, expected in specified:
        if completions and completions[0].status == "SUCCESS" and completions[0].opcode != expected:
            return [completions[0].opcode, expected]
    return []


def key32(number: int) -> int:
    """Returns the 32 bits of a number that is used as a key."""
    return number % (1 << 32)


def next_rkey(rkey: int) -> int:
    """Returns the key for the next bind: the eight variable bits are incremented, like in ibv_inc_rkey."""
    return (rkey & ~0xFF) | ((rkey + 1) & 0xFF)


def wc_status(status: int) -> str:
    """Returns the name of a value of enum ibv_wc_status without the prefix: `REM_ACCESS_ERR` for 10."""
    if 0 <= status < len(WC_STATUS):
        return WC_STATUS[status]
    return f"status {status}"


def wc_opcode(opcode: int) -> str:
    """Returns the name of a value of enum ibv_wc_opcode without the prefix: `RECV` for 128."""
    return _WC_OPCODES.get(opcode, f"opcode {opcode}")


# enum ibv_wc_status of <infiniband/verbs.h>, from 0 upwards.
WC_STATUS = tuple(
    """
    SUCCESS LOC_LEN_ERR LOC_QP_OP_ERR LOC_EEC_OP_ERR LOC_PROT_ERR WR_FLUSH_ERR MW_BIND_ERR BAD_RESP_ERR LOC_ACCESS_ERR
    REM_INV_REQ_ERR REM_ACCESS_ERR REM_OP_ERR RETRY_EXC_ERR RNR_RETRY_EXC_ERR LOC_RDD_VIOL_ERR REM_INV_RD_REQ_ERR
    REM_ABORT_ERR INV_EECN_ERR INV_EEC_STATE_ERR FATAL_ERR RESP_TIMEOUT_ERR GENERAL_ERR TM_ERR TM_RNDV_INCOMPLETE
    """.split(),
)
# The values of enum ibv_wc_opcode (<infiniband/verbs.h>) of the requests that the suite posts.
_REQUESTS = (
    "SEND RDMA_WRITE RDMA_READ COMP_SWAP FETCH_ADD BIND_MW LOCAL_INV TSO FLUSH ATOMIC_WRITE".split()
)
_WC_OPCODES = {**dict(enumerate(_REQUESTS)), 128: "RECV", 129: "RECV_RDMA_WITH_IMM"}
