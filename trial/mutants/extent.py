"""Where a region begins and ends, of any length."""

from conformance.bench.work_requests import SendRequest
from reference.device import Device
from reference.objects import Region
from reference.queues import Queue
from trial.violation import permits, violates

GIB = 1 << 30


@violates("REG-20", written="blind")
class FlushesOfAnyRange(Device):
    """A flush is not held to the region's end."""

    def contains(self, region: Region, addr: int, length: int) -> bool:
        return super().contains(region, addr, 1 if self._flushes else length)

    _flushes = False

    def target(self, queue: Queue, request: SendRequest, length: int) -> int | None:
        self._flushes = request.opcode.startswith("FLUSH")
        try:
            return super().target(queue, request, length)
        finally:
            self._flushes = False


@permits("REG-20", written="blind")
class HandlesAreReused(Device):
    """The handle of a deregistered region is given to the next one."""

    def setup(self) -> None:
        self._free: list[int] = []

    def keep(self, region: Region) -> Region:
        if self._free:
            region.handle = self._free.pop()
        return super().keep(region)

    def deregister(self, handle: int) -> None:
        super().deregister(handle)
        self._free.append(handle)
