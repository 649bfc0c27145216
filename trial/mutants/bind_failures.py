"""Binds that fail, and binds without a region."""

from conformance.bench.work_requests import BindInfo, Completion, SendRequest
from reference.device import Device
from reference.objects import Region, Window
from reference.queues import FLUSHED, SUCCESS, Queue
from trial.violation import permits, violates


@violates("BIND-12", written="blind")
class FailedBindCompletesNever(Device):
    """A signaled bind that fails for want of MW_BIND has no completion."""

    _silent = False

    def forbids_binding(self, region: Region) -> bool:
        self._silent = super().forbids_binding(region)
        return self._silent

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        silent, self._silent = self._silent, False
        if silent and request.opcode == "BIND_MW":
            self.fail(queue)
        else:
            super().complete(queue, request, status)


@violates("BIND-22", written="blind")
class FlushedBindEndsTheOldOne(Device):
    """A bind that is flushed on a queue pair in ERR takes the window off its region."""

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        super().complete(queue, request, status)
        if status == FLUSHED and self._binding:
            self.unbind(self._binding)

    _binding: Window | None = None

    def ibv_bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> tuple[int, int]:
        self._binding = window
        try:
            return super().ibv_bind_mw(queue, window, info, flags, wr_id)
        finally:
            self._binding = None


@permits("BIND-22", written="blind")
class FailuresCarryVendorErrors(Device):
    """A completion with an error has a vendor's number, and an opcode and a length that mean nothing."""

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        super().complete(queue, request, status)
        if status != SUCCESS and queue.polled:
            last = queue.polled.pop()
            queue.polled.append(Completion(last.wr_id, last.status, "SEND", 17, None, 0x81))
