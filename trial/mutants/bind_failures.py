"""Binds that fail, and binds without a region."""

from conformance.bench.work_requests import Completion, SendRequest
from reference.device import Device
from reference.queues import SUCCESS, Queue
from trial.violation import permits


@permits("BIND-22", written="blind")
class FailuresCarryVendorErrors(Device):
    """A completion with an error has a vendor's number, and an opcode and a length that mean nothing."""

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        super().complete(queue, request, status)
        if status != SUCCESS and queue.polled:
            last = queue.polled.pop()
            queue.polled.append(Completion(last.wr_id, last.status, "SEND", 17, None, 0x81))
