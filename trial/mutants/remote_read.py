"""REMOTE_READ: what it grants, and what is refused without it."""

from conformance.bench.work_requests import SendRequest
from reference.device import Device
from reference.objects import REMOTE_READ, Region
from reference.queues import SUCCESS, Queue
from trial.violation import plain, violates


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


@violates("REG-06", Device.read)
def remote_read_of_nothing(self: Device, queue: Queue, request: SendRequest) -> str:
    """A remote read completes and delivers zeros."""
    status = plain(self).read(queue, request)
    for sge in request.sges if status == "SUCCESS" else ():
        self.memory.write(sge.addr, bytes(sge.length))
    return status


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
