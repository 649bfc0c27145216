"""Defines what must follow a refused operation: the status of its completion, and the states of the queue pairs.

The source is the InfiniBand Architecture Specification, volume 1: the completion statuses, and the errors that the
responder and the requester detect. enum ibv_wc_status has the statuses of the specification; no manual page assigns
statuses to refusals. Only the rules STAT-… are about statuses. judging/ applies these data.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

# The values of `because` in a row: the reason of the refusal.
REASONS = {
    "memory": "the key, its rights, its range or its protection domain",
    "queue_pair": "the queue pair's qp_access_flags",
    "length": "the message is longer than its receive",
}
DATAGRAM_HEADER = 40  # bytes in front of a datagram in the memory that receives it: the GRH
RELIABLE = ("RC", "XRC", "RC_SRQ")


@dataclass(frozen=True)
class Refusal:
    """The expected result of a refused operation."""

    # the permitted statuses at the end that posted the operation; empty: left open
    wc: tuple[str, ...]
    peer: tuple[str, ...] = ()  # the permitted statuses at the other end; empty: not judged
    state: str = "ERR"  # the state of the queue pair that detected the error; empty: not judged


# The expected result by the side and the reason of a refusal, with the error in the specification.
REFUSALS: dict[tuple[str, str], Refusal] = {
    # RDMA WRITE and READ, atomics, ATOMIC WRITE, FLUSH.
    # NAK, remote access error, class C: a protection error on a remote buffer.
    ("remote", "memory"): Refusal(("REM_ACCESS_ERR",)),
    # NAK, invalid request, class C: the operation is not supported by this receive queue.
    ("remote", "queue_pair"): Refusal(("REM_INV_REQ_ERR",)),
    # SEND and RDMA WRITE with data from the region; responses of RDMA READ and atomics, written to the region.
    # Local memory protection error of the requester: a local protection error.
    ("gather", "memory"): Refusal(("LOC_PROT_ERR",)),
    ("answer", "memory"): Refusal(("LOC_PROT_ERR",)),
    # A SEND to a receive request that was posted with the region.
    # NAK, remote operational error, class A: an error of the responder's queue pair.
    ("receive", "memory"): Refusal(("LOC_PROT_ERR", "LOC_QP_OP_ERR"), ("REM_OP_ERR",)),
    # A SEND that is longer than its receive: NAK, invalid request, and a local length error.
    ("receive", "length"): Refusal(("LOC_LEN_ERR",), ("REM_INV_REQ_ERR",)),
    # A posted bind of a window of either type.
    # Memory management operation error: the requester's own request cannot be executed.
    ("bind", "memory"): Refusal(("MW_BIND_ERR",), state=""),
}


def refusal(side: str, reason: str, qp_type: str) -> Refusal | None:
    """Returns the expected result of a refused operation, or None if no document defines it."""
    expected = REFUSALS.get((side, reason))
    # The requester detects the error, whatever the type of the queue pair.
    if expected and side == "gather" and qp_type not in RELIABLE:
        return replace(expected, state="")
    if side == "bind" or qp_type in RELIABLE:
        return expected
    return None
