"""Violations of the statuses of refused requests; what is read and written is correct."""

from __future__ import annotations

from conformance.bench.work_requests import Completion, SendRequest
from reference.device import Device
from reference.queues import FLUSHED, Queue
from trial.violation import violates

_SENDERS = ("SEND", "SEND_WITH_IMM", "RDMA_WRITE", "RDMA_WRITE_WITH_IMM")


@violates("STAT-01")
class AccessErrorToldAsInvalidRequest(Device):
    """A request that the responder's memory refuses completes with a remote invalid request error."""

    def refuse(self, queue: Queue, status: str) -> str:
        return super().refuse(queue, "REM_INV_REQ_ERR" if status == "REM_ACCESS_ERR" else status)


@violates("STAT-01")
class ResponderGoesOn(Device):
    """The responder's queue pair stays in RTS after it refused a request because of its memory."""

    def refuse(self, queue: Queue, status: str) -> str:
        reliable = queue.kind in ("RC", "XRC", "XRC_SEND")
        return status if reliable and status == "REM_ACCESS_ERR" else super().refuse(queue, status)


@violates("STAT-01")
class RefusedFlushIsFlushed(Device):
    """A FLUSH that the responder refuses completes with the status of a request flushed after an error."""

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        if request.opcode.startswith("FLUSH") and status == "REM_ACCESS_ERR":
            self.fail(queue)
            status = FLUSHED
        super().complete(queue, request, status)


@violates("STAT-02")
class InvalidRequestToldAsAccessError(Device):
    """A request that the responder's queue pair does not allow completes with a remote access error."""

    def refuse(self, queue: Queue, status: str) -> str:
        return super().refuse(queue, "REM_ACCESS_ERR" if status == "REM_INV_REQ_ERR" else status)


@violates("STAT-03")
class OwnErrorIsFlushed(Device):
    """A SEND or WRITE whose local buffer cannot be read completes as flushed."""

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        if request.opcode in _SENDERS and status == "LOC_PROT_ERR":
            self.fail(queue)
            status = FLUSHED
        super().complete(queue, request, status)


@violates("STAT-03")
class OwnErrorIsAnAccessError(Device):
    """A SEND whose local buffer cannot be read completes with a remote access error."""

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        wrong = request.opcode == "SEND" and status == "LOC_PROT_ERR"
        super().complete(queue, request, "REM_ACCESS_ERR" if wrong else status)


@violates("STAT-04")
class AnswerIsALengthError(Device):
    """An RDMA READ or atomic whose response cannot be written completes with a local length error."""

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        wrong = request.opcode not in _SENDERS and status == "LOC_PROT_ERR"
        super().complete(queue, request, "LOC_LEN_ERR" if wrong else status)


@violates("STAT-05")
class ReceiverErrorIsAnAccessError(Device):
    """A SEND that the receiver could not write completes with a remote access error."""

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        super().complete(queue, request, "REM_ACCESS_ERR" if status == "REM_OP_ERR" else status)


class _ReceiverStatus(Device):
    """A receive whose memory refuses the message completes with another status."""

    status = ""

    def complete_receive(self, peer: Queue, done: Completion) -> None:
        wrong = done.status == "LOC_PROT_ERR"
        super().complete_receive(peer, done._replace(status=self.status) if wrong else done)


@violates("STAT-05")
class RefusedReceiveIsFlushed(_ReceiverStatus):
    """A receive whose memory refuses the message is reported as flushed."""

    status = "WR_FLUSH_ERR"


@violates("STAT-05")
class RefusedReceiveIsALengthError(_ReceiverStatus):
    """A receive whose memory refuses the message is reported as too short."""

    status = "LOC_LEN_ERR"


@violates("STAT-06")
class FailedBindIsFlushed(Device):
    """A bind that fails completes as flushed."""

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        if status == "MW_BIND_ERR":
            self.fail(queue)
            status = FLUSHED
        super().complete(queue, request, status)


@violates("STAT-06")
class FailedBindIsAProtectionError(Device):
    """A bind that fails completes with a local protection error."""

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        super().complete(queue, request, "LOC_PROT_ERR" if status == "MW_BIND_ERR" else status)
