"""The statuses and opcodes of completions."""

from __future__ import annotations

from collections.abc import Sequence

from conformance.bench.calls import Sge
from conformance.bench.work_requests import Completion, SendRequest
from reference.device import Device
from reference.queues import FLUSHED, Queue
from trial.violation import permits, plain, violates

_SENDERS = ("SEND", "SEND_WITH_IMM", "RDMA_WRITE", "RDMA_WRITE_WITH_IMM")


@permits("REG-05", departs_from=("STAT-01",), name="refusals-name-another-error", written="blind")
@violates("STAT-01", Device.refuse)
def access_error_told_as_invalid_request(self: Device, queue: Queue, status: str) -> str:
    """A request that the responder's memory refuses completes with a remote invalid request error."""
    return plain(self).refuse(queue, "REM_INV_REQ_ERR" if status == "REM_ACCESS_ERR" else status)


@violates("STAT-01", Device.refuse)
def responder_goes_on(self: Device, queue: Queue, status: str) -> str:
    """The responder's queue pair stays in RTS after it refused a request because of its memory."""
    reliable = queue.kind in ("RC", "XRC", "XRC_SEND")
    return status if reliable and status == "REM_ACCESS_ERR" else plain(self).refuse(queue, status)


@violates("STAT-01", Device.complete)
def refused_flush_is_flushed(self: Device, queue: Queue, request: SendRequest, status: str) -> None:
    """A FLUSH that the responder refuses completes with the status of a request flushed after an error."""
    if request.opcode.startswith("FLUSH") and status == "REM_ACCESS_ERR":
        self.fail(queue)
        status = FLUSHED
    plain(self).complete(queue, request, status)


@violates("STAT-02", Device.refuse)
def invalid_request_told_as_access_error(self: Device, queue: Queue, status: str) -> str:
    """A request that the responder's queue pair does not allow completes with a remote access error."""
    return plain(self).refuse(queue, "REM_ACCESS_ERR" if status == "REM_INV_REQ_ERR" else status)


@violates("STAT-03", Device.complete)
def own_error_is_flushed(self: Device, queue: Queue, request: SendRequest, status: str) -> None:
    """A SEND or WRITE whose local buffer cannot be read completes as flushed."""
    if request.opcode in _SENDERS and status == "LOC_PROT_ERR":
        self.fail(queue)
        status = FLUSHED
    plain(self).complete(queue, request, status)


@violates("STAT-03", Device.complete)
def own_error_is_an_access_error(self: Device, queue: Queue, request: SendRequest, status: str) -> None:
    """A SEND whose local buffer cannot be read completes with a remote access error."""
    wrong = request.opcode == "SEND" and status == "LOC_PROT_ERR"
    plain(self).complete(queue, request, "REM_ACCESS_ERR" if wrong else status)


@violates("STAT-04", Device.complete)
def answer_is_a_length_error(self: Device, queue: Queue, request: SendRequest, status: str) -> None:
    """An RDMA READ or atomic whose response cannot be written completes with a local length error."""
    wrong = request.opcode not in _SENDERS and status == "LOC_PROT_ERR"
    plain(self).complete(queue, request, "LOC_LEN_ERR" if wrong else status)


@violates("STAT-05", Device.complete)
def receiver_error_is_an_access_error(self: Device, queue: Queue, request: SendRequest, status: str) -> None:
    """A SEND that the receiver could not write completes with a remote access error."""
    plain(self).complete(queue, request, "REM_ACCESS_ERR" if status == "REM_OP_ERR" else status)


@violates("STAT-05", Device.complete_receive)
def refused_receive_is_flushed(self: Device, peer: Queue, done: Completion) -> None:
    """A receive whose memory refuses the message is reported as flushed."""
    refused = done.status == "LOC_PROT_ERR"
    plain(self).complete_receive(peer, done._replace(status=FLUSHED) if refused else done)


@violates("STAT-05", Device.complete_receive)
def refused_receive_is_a_length_error(self: Device, peer: Queue, done: Completion) -> None:
    """A receive whose memory refuses the message is reported as too short."""
    refused = done.status == "LOC_PROT_ERR"
    plain(self).complete_receive(peer, done._replace(status="LOC_LEN_ERR") if refused else done)


@violates("STAT-06", Device.complete)
def failed_bind_is_flushed(self: Device, queue: Queue, request: SendRequest, status: str) -> None:
    """A bind that fails completes as flushed."""
    if status == "MW_BIND_ERR":
        self.fail(queue)
        status = FLUSHED
    plain(self).complete(queue, request, status)


@permits("BIND-12", departs_from=("STAT-06",), name="failed-binds-are-protection-errors", written="blind")
@violates("STAT-06", Device.complete)
def failed_bind_is_a_protection_error(self: Device, queue: Queue, request: SendRequest, status: str) -> None:
    """A bind that fails completes with a local protection error."""
    plain(self).complete(queue, request, "LOC_PROT_ERR" if status == "MW_BIND_ERR" else status)


@violates("WC-01", Device.completed_opcode)
def reads_told_as_writes(self: Device, opcode: str) -> str:
    """The completion of a READ names a WRITE."""
    return plain(self).completed_opcode("RDMA_WRITE" if opcode == "RDMA_READ" else opcode)


@violates("WC-01", Device.completed_opcode)
def swaps_told_as_adds(self: Device, opcode: str) -> str:
    """The completion of a compare-and-swap names a fetch-and-add."""
    return plain(self).completed_opcode(opcode.replace("CMP_AND_SWP", "FETCH_AND_ADD"))


@violates("WC-01", Device.completed_opcode)
def binds_told_as_writes(self: Device, opcode: str) -> str:
    """The completion of a bind names a WRITE."""
    return plain(self).completed_opcode("RDMA_WRITE" if opcode == "BIND_MW" else opcode)


@violates("WC-01", Device.received_opcode)
def immediates_told_as_messages(self: Device, message: bool) -> str:
    """The completion of a receive that a WRITE with immediate data consumed names a message."""
    return plain(self).received_opcode(True)


@violates("WC-01", Device.received_length)
def room_told_as_length(self: Device, length: int, sges: Sequence[Sge]) -> int:
    """The completion of a receive has the length of its elements, not that of the message."""
    return sum(sge.length for sge in sges) or length
