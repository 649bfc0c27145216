"""Permitted behaviours of drivers for queue pairs, posting, and completions. table.py combines them to personas."""

import errno
from collections.abc import Sequence

from conformance.bench.calls import Sge
from conformance.bench.work_requests import SIGNALED, SendRequest
from conformance.verbs import ENUMS
from reference.access import RIGHTS
from reference.device import Device
from reference.objects import ON_DEMAND, REMOTE_READ, REMOTE_WRITE, Refused, Region
from reference.queues import FLUSHED, SUCCESS, Queue

_FLAGS = ENUMS["ibv_send_flags"]
_SIGNALED_OR_INLINE = _FLAGS.mask_of("SIGNALED", "INLINE")
_SENDS = ("SEND", "SEND_WITH_IMM", "SEND_WITH_INV")


# Queue pairs


class AbsentTypesAreInvalid(Device):
    """A queue pair of a type that the device does not have is refused with EINVAL."""

    def create_qp(self, queue: Queue) -> Queue:
        try:
            return super().create_qp(queue)
        except Refused as refused:
            raise Refused(errno.EINVAL) from refused


class NoQueryOfQueuePairs(Device):
    """There is no ibv_query_qp."""

    def query_qp(self, queue: Queue) -> str:
        raise Refused(errno.EOPNOTSUPP)


class TerminatedIsAnotherState(Device):
    """A queue pair that fails without ibv_modify_qp is terminated; ibv_query_qp reports this as the state SQE."""

    def query_qp(self, queue: Queue) -> str:
        state = super().query_qp(queue)
        return "SQE" if state == "ERR" != queue.asked_state else state


class ReadsAndWritesNeedNoRight(Device):
    """A peer can read and write without rights of the queue pair; atomics need their right."""

    free = REMOTE_READ | REMOTE_WRITE

    def allows_operation(self, queue: Queue, request: SendRequest) -> bool:
        needed = RIGHTS[request.opcode] & ~self.free
        return queue.peer.state in ("RTR", "RTS") and queue.peer.access & needed == needed


class QueuePairsHaveAllRights(ReadsAndWritesNeedNoRight):
    """The rights of a queue pair are not checked for requests of its peer."""

    free = ~0


class OperationsAreNotCompared(Device):
    """A queue pair is created for any requested operations, even without builders for them."""

    def create_qp_ex_fault(self, kind: str, operations: int) -> int:
        return 0 if self.stack.has(kind.lower()) else super().create_qp_ex_fault(kind, operations)


class DeadAfterReset(Device):
    """A queue pair can be connected again after RESET, but nothing that it sends arrives any more."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._reset: set[int] = set()

    def reset_qp(self, queue: Queue) -> None:
        super().reset_qp(queue)
        self._reset.add(queue.number)

    def carry_out(self, queue: Queue, request: SendRequest) -> str:
        if queue.number in self._reset or queue.peer.number in self._reset:
            return "RETRY_EXC_ERR"
        return super().carry_out(queue, request)


class NoInitAfterReset(Device):
    """A queue pair that was moved to RESET cannot leave this state."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._ended: set[int] = set()

    def reset_qp(self, queue: Queue) -> None:
        super().reset_qp(queue)
        self._ended.add(queue.number)

    def move_qp(self, queue: Queue, state: str) -> None:
        if queue.number in self._ended and state != "RESET":
            raise Refused(errno.EINVAL)
        super().move_qp(queue, state)


# Posting


class NoPostingInError(Device):
    """A queue pair in the error state accepts neither requests nor receives."""

    refused_in_error = errno.EINVAL

    def in_error(self, queue: Queue) -> bool:
        return queue.state == "ERR"

    def post_fault(self, queue: Queue, opcode: str) -> int:
        return self.refused_in_error if self.in_error(queue) else super().post_fault(queue, opcode)

    def post_receive(self, queue: Queue, sges: Sequence[Sge], wr_id: int) -> int:
        return self.refused_in_error if self.in_error(queue) else super().post_receive(queue, sges, wr_id)


class NegativeErrnoInError(NoPostingInError):
    """A queue pair in the error state refuses requests and receives with the return value -EINVAL."""

    refused_in_error = -errno.EINVAL


class NoPostingInKnownError(NoPostingInError):
    """Requests and receives are not accepted if the library knows of the error state: by ibv_modify_qp or
    ibv_query_qp."""

    def query_qp(self, queue: Queue) -> str:
        queue.asked_state = super().query_qp(queue)
        return queue.asked_state

    def in_error(self, queue: Queue) -> bool:
        return queue.asked_state == "ERR"


class NegativeIoErrorInKnownError(NoPostingInKnownError):
    """Requests and receives are refused with -EIO if the library knows of the error state."""

    refused_in_error = -errno.EIO


class NegativeErrnoWhenPosted(Device):
    """Requests that cannot be posted are refused with a negative errno."""

    def post_fault(self, queue: Queue, opcode: str) -> int:
        return -abs(super().post_fault(queue, opcode))


class EverySendIsSignaled(Device):
    """A request without SIGNALED, or with another flag than SIGNALED and INLINE, is not accepted."""

    def post_send(self, queue: Queue, request: SendRequest) -> int:
        signaled = request.flags & SIGNALED or queue.sq_sig_all
        if not signaled or request.flags & ~_SIGNALED_OR_INLINE:
            return errno.EINVAL
        return super().post_send(queue, request)


class ReceivesNeedAnElement(Device):
    """A receive without elements is not accepted."""

    def post_receive(self, queue: Queue, sges: Sequence[Sge], wr_id: int) -> int:
        return super().post_receive(queue, sges, wr_id) if sges else -errno.EINVAL


class ReceivesHaveOneElement(Device):
    """A receive with two elements is not accepted."""

    def post_receive(self, queue: Queue, sges: Sequence[Sge], wr_id: int) -> int:
        return super().post_receive(queue, sges, wr_id) if len(sges) < 2 else -errno.EINVAL


class ReadsHaveOneElement(Device):
    """An RDMA READ with more than one element is not accepted."""

    def post_send(self, queue: Queue, request: SendRequest) -> int:
        if request.opcode == "RDMA_READ" and len(request.sges) > 1:
            return errno.EINVAL
        return super().post_send(queue, request)


class UnreliableWritesOnDemandAreLost(Device):
    """An RDMA WRITE over UC to on-demand memory is lost, because the device does not fault the pages in."""

    def target(self, queue: Queue, request: SendRequest, length: int) -> int | None:
        region = self.found(request.rkey)
        if queue.kind == "UC" and isinstance(region, Region) and region.access & ON_DEMAND:
            return None
        return super().target(queue, request, length)


# Completions


class ReadSinksNeedRemoteWrite(Device):
    """The memory that receives the response of an RDMA READ must have REMOTE_WRITE: the response is a tagged
    message."""

    def read(self, queue: Queue, request: SendRequest) -> str:
        for sge in request.sges:
            found = self.found(sge.lkey)
            if sge.length and isinstance(found, Region) and not found.access & REMOTE_WRITE:
                return "LOC_PROT_ERR"
        return super().read(queue, request)


class OwnErrorsAreAccessErrors(Device):
    """Requests that the requester's side refuses complete with LOC_ACCESS_ERR."""

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        super().complete(queue, request, "LOC_ACCESS_ERR" if status == "LOC_PROT_ERR" else status)


class InvalidRequestsAreOperationErrors(Device):
    """A request that the peer reports as invalid completes as if the peer could not carry it out."""

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        super().complete(queue, request, "REM_OP_ERR" if status == "REM_INV_REQ_ERR" else status)


class ErrorsAreGeneral(Device):
    """An error for which the device has no specific status completes with GENERAL_ERR."""

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        plain = status in (SUCCESS, FLUSHED)
        super().complete(queue, request, status if plain else "GENERAL_ERR")


class NoAsynchronousEvents(Device):
    """A queue pair that goes to the error state causes no asynchronous event."""

    def fail(self, queue: Queue) -> None:
        super().fail(queue)
        queue.events.clear()
        queue.peer.events.clear()
