"""What a refused operation must cause: the status of its completion and the states of the queue pairs.

From the InfiniBand Architecture Specification, volume 1 (IBA below): its chapters 9.7.5 (errors found by
the responder), 9.7.6 (by the requester), 9.8 (unreliable connections) and 11.6.2 (completion statuses), and
ibv_modify_qp(3) and ibv_poll_cq(3), which have the same statuses and states. Data only; judging/ applies it.
"""

from __future__ import annotations

from dataclasses import dataclass

# The values of `because` in a row: what makes the operation be refused.
REASONS = {
    "memory": "the key, its rights, its range or its protection domain",
    "queue_pair": "the queue pair's qp_access_flags",
}
RELIABLE = ("RC", "XRC")


@dataclass(frozen=True)
class Refusal:
    """The expected result of a refused operation.

    `wc` are the allowed statuses of the completion at the side that posted the operation. `peer` are those at the
    other side, if the operation consumed a request there. Empty means that the documents leave the status open.
    `state` is the state of the queue pair that detected the error.
    """

    operations: str
    wc: tuple[str, ...]
    peer: tuple[str, ...]
    state: str
    source: str


REFUSALS: dict[tuple[str, str], Refusal] = {
    ("remote", "memory"): Refusal(
        "RDMA WRITE and READ, atomics, ATOMIC WRITE, FLUSH", ("REM_ACCESS_ERR",), (), "ERR",
        "IBA 9.7.5.2 (NAK, remote access error, class C), 11.6.2: a protection error on a remote buffer",
    ),
    ("remote", "queue_pair"): Refusal(
        "RDMA WRITE and READ, atomics, ATOMIC WRITE, FLUSH", ("REM_INV_REQ_ERR",), (), "ERR",
        "IBA 9.7.5.2 (NAK, invalid request, class C), 11.6.2: the operation is not supported by this receive queue",
    ),
    ("gather", "memory"): Refusal(
        "SEND and RDMA WRITE out of the region", ("LOC_PROT_ERR",), (), "ERR",
        "IBA 9.7.6 (local memory protection error of the requester), 11.6.2: a local protection error",
    ),
    ("answer", "memory"): Refusal(
        "the answer of an RDMA READ or an atomic into the region", ("LOC_PROT_ERR",), (), "ERR",
        "IBA 9.7.6 (local memory protection error of the requester), 11.6.2: a local protection error",
    ),
    ("receive", "memory"): Refusal(
        "a SEND into the region of a posted receive", (), ("REM_OP_ERR",), "ERR",
        "IBA 9.7.5.2 (NAK, remote operational error, class A), 11.6.2: an error of the responder's queue pair",
    ),
}  # fmt: skip


def refusal(side: str, reason: str, qp_type: str) -> Refusal | None:
    """Returns the expected result of a refused operation, or None if no document defines it."""
    return REFUSALS.get((side, reason)) if qp_type in RELIABLE else None
