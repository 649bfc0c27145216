"""Where a region begins and ends, of any length."""

from conformance.bench.work_requests import SendRequest
from reference.device import Device
from reference.memory import PAGE
from reference.objects import REMOTE_WRITE, Domain, Region
from reference.queues import Queue
from trial.violation import permits, plain, violates

GIB = 1 << 30


@violates("REG-20", Device.local)
def local_bounds_unchecked(self: Device, lkey: int, domain: Domain, addr: int, length: int, write: bool) -> int | None:
    """The bounds of local elements are not checked."""
    found = self.keys.get(lkey)
    inside = isinstance(found, Region) and self.opens_locally(found, domain)
    if isinstance(found, Region) and inside and (not write or self.allows_local_write(found)):
        return self.translate(found, addr)
    return None


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


@violates("REG-20", Device.put, written="blind")
def data_shifted_behind_a_page(self: Device, addr: int, content: bytes) -> bool:
    """Of a remote write that crosses into another page, the part in the second page lands one byte too far."""
    here = PAGE - addr % PAGE
    if len(content) > here + 1:
        done = plain(self).put(addr, content[:here])
        return done and plain(self).put(addr + here + 1, content[here:-1])
    return plain(self).put(addr, content)


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


@permits("REG-20", Device.put, written="blind")
def writes_stop_at_a_bad_page(self: Device, addr: int, content: bytes) -> bool:
    """Of a write into an on-demand region of which a page is gone, the pages before that one are written."""
    while content:
        here = PAGE - addr % PAGE
        if not plain(self).put(addr, content[:here]):
            return False
        addr, content = addr + here, content[here:]
    return True


@violates("REG-24a", Device.write, written="blind")
def write_of_no_bytes_writes_one(self: Device, queue: Queue, request: SendRequest) -> str:
    """A write of zero bytes to a good key clears the byte at its address."""
    if request.opcode == "RDMA_WRITE" and not sum(sge.length for sge in request.sges):
        peer = queue.peer
        place = self.remote(request.rkey, peer.domain, peer.number, request.remote_addr, 1, REMOTE_WRITE)
        if place:
            self.memory.write(place, b"\0")
    return plain(self).write(queue, request)
