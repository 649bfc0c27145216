"""REMOTE_READ: what it grants, and what is refused without it."""

from __future__ import annotations

from conformance.bench.work_requests import SendRequest
from reference.device import Device
from reference.objects import FLUSH_PERSISTENT, LOCAL_WRITE, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE, Region
from reference.queues import SUCCESS, Queue
from trial.mutants.bases import granted
from trial.violation import plain, violates


@violates("REG-06", Device.allows)
def remote_read_unchecked(self: Device, region: Region, right: int) -> bool:
    """REMOTE_READ is not checked."""
    return right == REMOTE_READ or plain(self).allows(region, right)


@violates("REG-06", Device.allows)
def remote_read_by_remote_write(self: Device, region: Region, right: int) -> bool:
    """REMOTE_WRITE grants remote reads."""
    return granted(region, right, REMOTE_READ, REMOTE_WRITE)


@violates("REG-06", Device.allows)
def remote_read_by_local_read(self: Device, region: Region, right: int) -> bool:
    """A region with access 0 can be read remotely."""
    return granted(region, right, REMOTE_READ, 0) if not region.access else plain(self).allows(region, right)


@violates("REG-06", Device.read)
def remote_read_leaks(self: Device, queue: Queue, request: SendRequest) -> str:
    """A refused read delivers its data to the requester before the error."""
    status = plain(self).read(queue, request)
    region = self.keys.get(request.rkey)
    if status == "REM_ACCESS_ERR" and isinstance(region, Region):
        size = sum(sge.length for sge in request.sges)
        leaked = self.memory.read(self.translate(region, request.remote_addr), size)
        self.scatter(queue, request.sges, leaked or b"")
    return status


@violates("REG-06", Device.allows)
def remote_read_denied(self: Device, region: Region, right: int) -> bool:
    """Remote reads are refused although they are granted."""
    return right != REMOTE_READ and plain(self).allows(region, right)


@violates("REG-06", Device.read)
def remote_read_of_nothing(self: Device, queue: Queue, request: SendRequest) -> str:
    """A remote read completes and delivers zeros."""
    status = plain(self).read(queue, request)
    for sge in request.sges if status == "SUCCESS" else ():
        self.memory.write(sge.addr, bytes(sge.length))
    return status


@violates("REG-06", Device.allows)
def remote_read_beside_atomics(self: Device, region: Region, right: int) -> bool:
    """REMOTE_READ has no effect together with REMOTE_WRITE and REMOTE_ATOMIC."""
    both = REMOTE_WRITE | REMOTE_ATOMIC
    lost = right == REMOTE_READ and region.access & both == both
    return not lost and plain(self).allows(region, right)


@violates("REG-06", Device.allows, written="blind")
def write_right_reads(self: Device, region: Region, right: int) -> bool:
    """REMOTE_WRITE lets peers read as well."""
    return plain(self).allows(region, right) or (right == REMOTE_READ and bool(region.access & REMOTE_WRITE))


@violates("REG-06", Device.read, written="blind")
def refused_read_leaks(self: Device, queue: Queue, request: SendRequest) -> str:
    """A read that is refused for want of REMOTE_READ brings the first four bytes all the same."""
    status = plain(self).read(queue, request)
    region = self.found(request.rkey)
    if status == SUCCESS or not isinstance(region, Region) or not region.usable or not request.sges:
        return status
    if self.contains(region, request.remote_addr, 4) and not self.allows(region, REMOTE_READ):
        leaked = self.memory.read(self.translate(region, request.remote_addr), 4)
        self.scatter(queue, [request.sges[0]._replace(length=4)], leaked or b"")
    return status


@violates("REG-06", Device.allows, written="blind")
def remote_read_needs_local_write(self: Device, region: Region, right: int) -> bool:
    """REMOTE_READ does not work on a region without LOCAL_WRITE."""
    return plain(self).allows(region, right) and (right != REMOTE_READ or bool(region.access & LOCAL_WRITE))


@violates("REG-06", Device.allows, written="blind")
def persistent_flush_takes_read(self: Device, region: Region, right: int) -> bool:
    """FLUSH_PERSISTENT takes the place of REMOTE_READ: beside it nothing can be read remotely."""
    return plain(self).allows(region, right) and not (right == REMOTE_READ and region.access & FLUSH_PERSISTENT)
