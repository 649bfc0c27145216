"""LOCAL_WRITE, MW_BIND, and what a queue pair enables."""

from conformance.bench.work_requests import SendRequest
from reference.device import Device
from reference.queues import Queue
from trial.violation import permits, plain


@permits("REG-04", Device.complete, departs_from=("STAT-03", "STAT-04"), written="blind")
def local_errors_are_queue_errors(self: Device, queue: Queue, request: SendRequest, status: str) -> None:
    """An element that is refused locally completes with LOC_ACCESS_ERR instead of LOC_PROT_ERR."""
    plain(self).complete(queue, request, "LOC_ACCESS_ERR" if status == "LOC_PROT_ERR" else status)
