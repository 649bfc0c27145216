"""The queue pairs of the reference and their completions."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from conformance.bench.calls import Sge
from conformance.bench.work_requests import COMPLETED_AS, SIGNALED, Completion, SendRequest
from conformance.model.operations import BOTH_POSTERS, WINDOWS_POSTER, WR_POST
from trial.reference.access import Access
from trial.reference.objects import Domain, Refused

SUCCESS, FLUSHED = "SUCCESS", "WR_FLUSH_ERR"
ATOMICS = ("ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD")
_KINDS = ("RC", "UC", "UD", "XRC", "XRC_SEND", "RC_SRQ")
# The capability that each way of posting with builders needs.
_BUILT = {WR_POST: WR_POST, BOTH_POSTERS: WR_POST, WINDOWS_POSTER: WINDOWS_POSTER}
# types whose receives are in a shared receive queue, which has no states
_SHARED_RECEIVES = ("XRC", "RC_SRQ")


@dataclass(eq=False)
class Queue:
    """A queue pair. `access` has the access flags for its peer, and `receives` the posted receives as (wr_id, SGEs).
    `asked_state` is the state to which the program has moved the queue pair. `inline` is the most bytes of inline data
    in a request. `extended` is as in QpSpec."""

    number: int
    kind: str
    domain: Domain
    sq_sig_all: bool
    access: int
    state: str = "RESET"
    asked_state: str = "RESET"
    inline: int = 0
    extended: str = ""
    receives: deque[tuple[int, tuple[Sge, ...]]] = field(default_factory=deque)
    polled: deque[Completion] = field(default_factory=deque)
    # A SEND that finds no receive and the requests behind it, each with its inline data.
    waiting: deque[tuple[SendRequest, bytes | None]] = field(default_factory=deque)
    patient: bool = False  # each waiting request waits for its receive
    events: list[str] = field(default_factory=list)
    requested: str = ""  # the completions for which an event is requested: `any`, or only `solicited` completions
    notified: bool = False
    resized: int = 0  # the size that ibv_modify_srq gave the shared receive queue; 0: none

    def __post_init__(self) -> None:
        self.peer: Queue = self

    def reset(self) -> None:
        """Moves the queue pair to RESET, and removes its posted receives and completions."""
        self.state = self.asked_state = "RESET"
        for queue in (self.receives, self.polled, self.waiting):
            queue.clear()


class Queues(Access):
    """The queue pairs of a device: creation, destruction, posted receives and completions."""

    queues = 0

    def create_qp(self, queue: Queue) -> Queue:
        """Creates a queue pair and assigns its number. Raises Refused if the device lacks the type or the poster."""
        if queue.kind.startswith("XRC"):
            needs = "xrc"
        else:
            needs = queue.kind.lower()
        if (
            queue.kind not in _KINDS
            or not self.stack.has(needs)
            or not self.stack.has(_BUILT.get(queue.extended, needs))
        ):
            raise Refused(errno.EOPNOTSUPP)
        queue.number = self.new_handle()
        queue.domain.users += 1
        self.queues += 1
        return queue

    def move_qp(self, queue: Queue, state: str) -> None:
        queue.state = queue.asked_state = state

    def query_qp(self, queue: Queue) -> str:
        return queue.state

    def reset_qp(self, queue: Queue) -> None:
        queue.reset()

    def forgets_messages(self, queue: Queue) -> bool:
        """Returns whether RESET ends the messages and requests of a connection whose packets are under way."""
        return True

    def destroy_qp(self, queue: Queue) -> None:
        queue.domain.users -= 1
        self.queues -= 1

    def counts(self) -> dict[str, int]:
        """Returns the number of objects by kind, without windows, as the kernel counts them."""
        return {**super().counts(), "qp": self.queues, "cq": self.queues}

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        """Adds a completion if the request is signaled or failed. After a failure the queue pair is in state ERR."""
        if status != SUCCESS or self.asks_completion(queue, request.flags):
            if status == SUCCESS:
                opcode = self.completed_opcode(request.opcode)
            else:
                opcode = ""
            done = Completion(self.reported_wr_id(request.wr_id), status, opcode)
            if status == SUCCESS:
                length = self.sent_length(request)
            else:
                length = 0
            number, flags = self.reported_number(queue), self.sent_flags(queue)
            queue.polled.append(done._replace(byte_len=length, qp_num=number, wc_flags=flags))
            if self.gives_event(queue, request, status):
                self.notify(queue)
        if status not in (SUCCESS, FLUSHED):
            self.fail(queue)

    def polled_together(self, completions: list[Completion]) -> list[Completion]:
        """Returns what a program sees of completions that it reads in one round of a poll."""
        return completions

    def request_event(self, queue: Queue, solicited_only: bool) -> None:
        """Executes ibv_req_notify_cq. A request for an event of any completion is not taken back by a later one."""
        if not solicited_only:
            queue.requested = "any"
        elif not queue.requested:
            queue.requested = "solicited"

    def notify(self, queue: Queue) -> None:
        """Puts an event into the completion channel."""
        queue.requested, queue.notified = "", True

    def receive_gives_event(self, queue: Queue, solicited: bool, done: Completion) -> bool:
        """Returns whether the completion of a receive puts an event into the completion channel."""
        wanted = solicited or done.status != SUCCESS
        return queue.requested == "any" or (queue.requested == "solicited" and wanted)

    def set_access(self, queue: Queue, access: int) -> None:
        """Changes the rights of the queue pair's peer."""
        queue.access = access

    def gives_event(self, queue: Queue, request: SendRequest, status: str) -> bool:
        """Returns whether a completion puts an event into the completion channel."""
        return queue.requested == "any" or (queue.requested == "solicited" and status != SUCCESS)

    def asks_completion(self, queue: Queue, flags: int) -> bool:
        return bool(flags & SIGNALED) or queue.sq_sig_all

    def completed_opcode(self, opcode: str) -> str:
        """Returns the opcode of the completion of a request with this opcode, as in ibv_poll_cq(3)."""
        return COMPLETED_AS.get(opcode, opcode)

    def received_opcode(self, message: bool) -> str:
        """Returns the opcode of a receive's completion, for a message or an RDMA WRITE with immediate data."""
        if message:
            return "RECV"
        return "RECV_RDMA_WITH_IMM"

    def sent_flags(self, queue: Queue) -> int:
        """Returns the wc_flags of a requester's completion."""
        return 0

    def received_flags(self, queue: Queue) -> int:
        """Returns the wc_flags of a receive's completion."""
        return int(queue.kind == "UD")

    def reported_number(self, queue: Queue) -> int:
        return queue.number

    def sent_length(self, request: SendRequest) -> int:
        """Returns the byte_len of a requester's completion: the bytes that a READ or an atomic has returned."""
        returns = request.opcode == "RDMA_READ" or request.opcode in ATOMICS
        if returns:
            return sum(sge.length for sge in request.sges)
        return 0

    def reported_wr_id(self, wr_id: int) -> int:
        return wr_id

    def fail(self, queue: Queue) -> None:
        """Moves a queue pair to the error state and flushes its receives, except those in a shared receive queue."""
        if queue.state != "ERR":
            queue.state = "ERR"
            if queue.kind in _SHARED_RECEIVES:
                return
            for wr_id, _ in queue.receives:
                self.flush_receive(queue, wr_id)
            queue.receives.clear()

    def flush_receive(self, queue: Queue, wr_id: int) -> None:
        done = Completion(wr_id, FLUSHED, qp_num=self.flushed_number(queue))
        queue.polled.append(done)
        if self.receive_gives_event(queue, solicited=False, done=done):
            self.notify(queue)

    def flushed_number(self, queue: Queue) -> int:
        """Returns the qp_num of a flushed receive's completion."""
        return queue.number

    def post_receive(self, queue: Queue, sges: Sequence[Sge], wr_id: int) -> int:
        if queue.state == "RESET" and queue.kind not in _SHARED_RECEIVES:
            return errno.EINVAL
        if queue.state == "ERR" and queue.kind not in _SHARED_RECEIVES:
            self.flush_receive(queue, wr_id)
        else:
            queue.receives.append((wr_id, tuple(sges)))
        return 0
