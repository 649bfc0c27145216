"""Binds that fail, and binds without a region."""

from conformance.bench.work_requests import BindInfo, Completion, SendRequest
from reference.device import Device
from reference.objects import REMOTE_READ, Region, Window
from reference.queues import FLUSHED, SUCCESS, Queue
from trial.violation import permits, plain, violates


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


@violates("BIND-21", Device.bind, written="blind")
def unbind_without_region_leaves_it_open(
    self: Device, window: Window, region: Region | None, addr: int, length: int, access: int, key: int, queue: int
) -> None:
    """An unbind without a region completes with success, but the window's new key opens the old range."""
    if region is None and window.region is not None:
        self.replace_key(window, key)
    else:
        plain(self).bind(window, region, addr, length, access, key, queue)


@violates("BIND-22", Device.complete)
def silent_failures(self: Device, queue: Queue, request: SendRequest, status: str) -> None:
    """A request that was not signaled has no completion, whatever became of it."""
    if self.asks_completion(queue, request.flags):
        plain(self).complete(queue, request, status)
    elif status not in (SUCCESS, FLUSHED):
        self.fail(queue)


@violates("BIND-22", Device.complete)
def failed_queue_pairs_bind_for_reading(self: Device, queue: Queue, request: SendRequest, status: str) -> None:
    """A bind on a queue pair in the error state is flushed, and a window for reading is bound nevertheless."""
    plain(self).complete(queue, request, status)
    info = request.bind
    if request.opcode == "BIND_MW" and status == FLUSHED and info is not None:
        window, region = self.window_behind(request.window), self.bound_region(info)
        if window.region is None:
            self.bind(window, region, info.addr, info.length, REMOTE_READ, request.rkey, queue.number)


@violates("BIND-22", Device.ibv_bind_mw)
def failed_queue_pairs_still_bind(
    self: Device, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int
) -> tuple[int, int]:
    """A window of type 1 is bound over a queue pair in the error state, with success."""
    failed, queue.state = queue.state == "ERR", "RTS" if queue.state == "ERR" else queue.state
    try:
        return plain(self).ibv_bind_mw(queue, window, info, flags, wr_id)
    finally:
        queue.state = "ERR" if failed else queue.state


@violates("BIND-22", Device.complete, written="blind")
def unsignaled_failure_is_silent(self: Device, queue: Queue, request: SendRequest, status: str) -> None:
    """A bind that fails and was not SIGNALED has no completion."""
    if request.opcode == "BIND_MW" and status == "MW_BIND_ERR" and not self.asks_completion(queue, request.flags):
        self.fail(queue)
    else:
        plain(self).complete(queue, request, status)


@violates("BIND-22", Device.ibv_bind_mw, written="blind")
def flushed_bind_grants(
    self: Device, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int
) -> tuple[int, int]:
    """On a queue pair in ERR ibv_bind_mw completes as flushed and binds the window all the same."""
    fault, key = plain(self).ibv_bind_mw(queue, window, info, flags, wr_id)
    region = self.bound_region(info)
    flushed = not fault and queue.state == "ERR" and region and info.length
    if flushed and not self.bind_refused(window, region, info.addr, info.length, info.access):
        self.bind(window, region, info.addr, info.length, info.access, key, queue.number)
    return fault, key


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
