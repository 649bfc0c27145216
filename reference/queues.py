"""Queue pairs of the reference and their completions; what is posted is carried out in work.py and binding.py."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from conformance.bench.calls import Sge
from conformance.bench.work_requests import SIGNALED, Completion, SendRequest
from reference.access import Access
from reference.objects import Domain, Refused

SUCCESS, FLUSHED = "SUCCESS", "WR_FLUSH_ERR"
_KINDS = ("RC", "UC", "UD", "XRC", "XRC_SEND")
# What a completion calls an operation, by enum ibv_wc_opcode.
_COMPLETED = {
    "RDMA_WRITE_WITH_IMM": "RDMA_WRITE", "SEND_WITH_IMM": "SEND", "SEND_WITH_INV": "SEND",
    "ATOMIC_CMP_AND_SWP": "COMP_SWAP", "ATOMIC_FETCH_AND_ADD": "FETCH_ADD",
    "FLUSH_GLOBAL": "FLUSH", "FLUSH_PERSISTENT": "FLUSH",
}  # fmt: skip


@dataclass(eq=False)
class Queue:
    """One queue pair. `access` are the rights it lets its peer have, `receives` what is posted as (wr_id, elements)."""

    number: int
    kind: str
    domain: Domain
    sq_sig_all: bool
    access: int
    state: str = "RESET"
    receives: deque[tuple[int, tuple[Sge, ...]]] = field(default_factory=deque)
    polled: deque[Completion] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.peer: Queue = self

    def reset(self) -> None:
        """Back to RESET, with nothing posted and nothing to poll."""
        self.state = "RESET"
        self.receives.clear()
        self.polled.clear()


class Queues(Access):
    """Queue pairs of a device, from their making to their completions."""

    queues = 0

    def create_qp(self, queue: Queue) -> Queue:
        """A queue pair with a number. Raises Refused for a type that the device has not."""
        needs = "xrc" if queue.kind.startswith("XRC") else queue.kind.lower()
        if queue.kind not in _KINDS or not self.stack.has(needs):
            raise Refused(errno.EOPNOTSUPP)
        queue.number = self.new_handle()
        queue.domain.users += 1
        self.queues += 1
        return queue

    def destroy_qp(self, queue: Queue) -> None:
        """Gives a queue pair back, and the completion queue with it."""
        queue.domain.users -= 1
        self.queues -= 1

    def counts(self) -> dict[str, int]:
        """What is held; windows are not told of, as in a kernel's account."""
        return {**super().counts(), "qp": self.queues, "cq": self.queues}

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        """A completion where one was asked for or something failed; a failure ends the queue pair."""
        if status != SUCCESS or self.asks_completion(queue, request.flags):
            opcode = _COMPLETED.get(request.opcode, request.opcode) if status == SUCCESS else ""
            queue.polled.append(Completion(self.told_wr_id(request.wr_id), status, opcode))
        if status not in (SUCCESS, FLUSHED):
            self.fail(queue)

    def asks_completion(self, queue: Queue, flags: int) -> bool:
        """Whether a request that succeeds completes visibly."""
        return bool(flags & SIGNALED) or queue.sq_sig_all

    def told_wr_id(self, wr_id: int) -> int:
        """The number that a completion carries."""
        return wr_id

    def fail(self, queue: Queue) -> None:
        """To the error state; what is posted is flushed."""
        if queue.state != "ERR":
            queue.state = "ERR"
            for wr_id, _ in queue.receives:
                queue.polled.append(Completion(wr_id, FLUSHED))
            queue.receives.clear()

    def post_receive(self, queue: Queue, sges: Sequence[Sge], wr_id: int) -> int:
        """Takes a receive; 0, or errno."""
        if queue.state == "RESET":
            return errno.EINVAL
        if queue.state == "ERR":
            queue.polled.append(Completion(wr_id, FLUSHED))
        else:
            queue.receives.append((wr_id, tuple(sges)))
        return 0
