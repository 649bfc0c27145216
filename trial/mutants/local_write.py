"""LOCAL_WRITE, MW_BIND, and what a queue pair enables."""

from __future__ import annotations

from conformance.bench.work_requests import SendRequest
from reference.device import Device
from reference.objects import Region
from reference.queues import Queue
from trial.violation import permits, plain, violates


@violates("REG-04")
class ReceivesWriteAnything(Device):
    """Received messages are written without LOCAL_WRITE."""

    lenient = False

    def allows_local_write(self, region: Region) -> bool:
        return self.lenient or super().allows_local_write(region)

    def deliver(self, queue: Queue, content: bytes | None, imm: int | None, length: int) -> str:
        self.lenient = True
        status = super().deliver(queue, content, imm, length)
        self.lenient = False
        return status


@violates("REG-04")
class ReadsWriteAnything(Device):
    """Responses to a requester's own reads are written without LOCAL_WRITE."""

    lenient = False

    def allows_local_write(self, region: Region) -> bool:
        return self.lenient or super().allows_local_write(region)

    def read(self, queue: Queue, request: SendRequest) -> str:
        self.lenient = True
        status = super().read(queue, request)
        self.lenient = False
        return status


@permits("REG-04", Device.complete, departs_from=("STAT-03", "STAT-04"), written="blind")
def local_errors_are_queue_errors(self: Device, queue: Queue, request: SendRequest, status: str) -> None:
    """An element that is refused locally completes with LOC_ACCESS_ERR instead of LOC_PROT_ERR."""
    plain(self).complete(queue, request, "LOC_ACCESS_ERR" if status == "LOC_PROT_ERR" else status)
