"""The statuses and opcodes of completions."""

from conformance.bench.work_requests import SendRequest
from reference.device import Device
from reference.queues import Queue
from trial.violation import permits, plain, violates

_SENDERS = ("SEND", "SEND_WITH_IMM", "RDMA_WRITE", "RDMA_WRITE_WITH_IMM")


@permits("REG-05", departs_from=("STAT-01",), name="refusals-name-another-error", written="blind")
@violates("STAT-01", Device.refuse)
def access_error_told_as_invalid_request(self: Device, queue: Queue, status: str) -> str:
    """A request that the responder's memory refuses completes with a remote invalid request error."""
    return plain(self).refuse(queue, "REM_INV_REQ_ERR" if status == "REM_ACCESS_ERR" else status)


@permits("BIND-12", departs_from=("STAT-06",), name="failed-binds-are-protection-errors", written="blind")
@violates("STAT-06", Device.complete)
def failed_bind_is_a_protection_error(self: Device, queue: Queue, request: SendRequest, status: str) -> None:
    """A bind that fails completes with a local protection error."""
    plain(self).complete(queue, request, "LOC_PROT_ERR" if status == "MW_BIND_ERR" else status)
