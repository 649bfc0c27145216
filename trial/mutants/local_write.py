"""LOCAL_WRITE, MW_BIND, and what a queue pair enables."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from conformance.bench.calls import Sge
from conformance.bench.work_requests import SendRequest
from reference.device import Device
from reference.objects import LOCAL_WRITE, MW_BIND, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE, Domain, Region, Window
from reference.queues import Queue
from trial.mutants.bases import ATOMICS, SENDS, SharedReceives, Watching
from trial.violation import permits, plain, violates


@violates("REG-04", SharedReceives.unchecked)
def shared_receives_need_no_local_write(self: SharedReceives, queue: Queue, region: Region, sge: Sge) -> int | None:
    """A message into a shared receive queue is written to a region without LOCAL_WRITE."""
    return self.place(region, sge.addr, sge.length) if region.domain is queue.domain else None


@violates("REG-04", Device.allows_local_write)
def local_write_unchecked(self: Device, region: Region) -> bool:
    """LOCAL_WRITE is not checked."""
    return True


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


@violates("REG-04", Device.allows_local_write)
def local_write_needs_remote_write(self: Device, region: Region) -> bool:
    """LOCAL_WRITE without REMOTE_WRITE does not allow local writes."""
    return region.access & (LOCAL_WRITE | REMOTE_WRITE) == LOCAL_WRITE | REMOTE_WRITE


@violates("REG-04", Device.scatter)
def written_though_refused(self: Device, queue: Queue, sges: Sequence[Sge], content: bytes) -> bool:
    """Data is written locally without permission, and then the error is reported."""
    done = plain(self).scatter(queue, sges, content)
    if not done and sges and self.memory.fault_in(sges[0].addr, 1, write=True):
        ctypes.memmove(sges[0].addr, content, 1)
    return done


@violates("REG-04", Watching.allows_local_write, written="blind")
def reads_land_without_local_write(self: Watching, region: Region) -> bool:
    """An RDMA READ puts what it fetched into a region without LOCAL_WRITE."""
    return self.opcode == "RDMA_READ" or plain(self).allows_local_write(region)


@violates("REG-04", Watching.allows_local_write, written="blind")
def atomics_land_without_local_write(self: Watching, region: Region) -> bool:
    """The eight bytes that come back from an atomic are put into a region without LOCAL_WRITE."""
    return self.opcode in ATOMICS or plain(self).allows_local_write(region)


@violates("REG-04", Watching.local, written="blind")
def small_messages_land_without_local_write(
    self: Watching, lkey: int, domain: Domain, addr: int, length: int, write: bool
) -> int | None:
    """A message of up to 32 bytes comes with its completion and is put into a region without LOCAL_WRITE."""
    return plain(self).local(lkey, domain, addr, length, write and not (self.opcode in SENDS and length <= 32))


@violates("REG-04", Watching.allows_local_write, written="blind")
def immediate_sends_land_without_local_write(self: Watching, region: Region) -> bool:
    """A SEND with immediate data is put into a region without LOCAL_WRITE."""
    return self.opcode == "SEND_WITH_IMM" or plain(self).allows_local_write(region)


@violates("REG-04", Device.allows_local_write, written="blind")
def local_write_lost_beside_binding(self: Device, region: Region) -> bool:
    """LOCAL_WRITE | MW_BIND without any remote right gives no local write."""
    return region.access != LOCAL_WRITE | MW_BIND and plain(self).allows_local_write(region)


@permits("REG-04", Device.complete, departs_from=("STAT-03", "STAT-04"), written="blind")
def local_errors_are_queue_errors(self: Device, queue: Queue, request: SendRequest, status: str) -> None:
    """An element that is refused locally completes with LOC_ACCESS_ERR instead of LOC_PROT_ERR."""
    plain(self).complete(queue, request, "LOC_ACCESS_ERR" if status == "LOC_PROT_ERR" else status)


@violates("REG-10", Device.forbids_binding)
def binding_unchecked(self: Device, region: Region) -> bool:
    """MW_BIND is not checked."""
    return False


@violates("REG-10", Device.forbids_binding)
def binding_denied(self: Device, region: Region) -> bool:
    """A window cannot be bound although the region has MW_BIND."""
    return True


@violates("REG-10", Device.bind_refused, written="blind")
def posted_binds_need_no_right(
    self: Device, window: Window, region: Region | None, addr: int, length: int, access: int
) -> bool:
    """A bind of a type 2 window needs no MW_BIND."""
    if region is None or window.kind == 1 or not length or not region.usable:
        return plain(self).bind_refused(window, region, addr, length, access)
    return self.lacks_local_write(region, access) or self.beyond(region, addr, length)


@violates("REG-10", Device.bind_refused, written="blind")
def read_windows_need_no_right(
    self: Device, window: Window, region: Region | None, addr: int, length: int, access: int
) -> bool:
    """A window that only reads needs no MW_BIND."""
    if region is None or access != REMOTE_READ or not length or not region.usable:
        return plain(self).bind_refused(window, region, addr, length, access)
    return self.beyond(region, addr, length)


@violates("REG-10", Device.forbids_binding, written="blind")
def binding_needs_local_write_always(self: Device, region: Region) -> bool:
    """MW_BIND without LOCAL_WRITE allows no bind, not even one that only reads."""
    return plain(self).forbids_binding(region) or not region.access & LOCAL_WRITE


@violates("REG-10", Device.forbids_binding, written="blind")
def remote_rights_allow_binding(self: Device, region: Region) -> bool:
    """A region with LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ and REMOTE_ATOMIC needs no MW_BIND."""
    whole = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC
    return plain(self).forbids_binding(region) and region.access & whole != whole


@violates("REG-28", Device.allows_operation)
def queue_pairs_allow_everything(self: Device, queue: Queue, request: SendRequest) -> bool:
    """What a queue pair enables is not looked at: the region decides."""
    return queue.peer.state in ("RTR", "RTS")


@violates("REG-28", Device.allows_operation)
def unreliable_queue_pairs_allow_everything(self: Device, queue: Queue, request: SendRequest) -> bool:
    """What a queue pair of type UC enables is not looked at."""
    return (queue.kind == "UC" and queue.peer.state in ("RTR", "RTS")) or plain(self).allows_operation(queue, request)


@violates("REG-28", Device.allows_operation)
def one_right_of_a_queue_pair_is_all(self: Device, queue: Queue, request: SendRequest) -> bool:
    """A queue pair that enables any operation allows all of them."""
    return (queue.peer.access != 0 and queue.peer.state in ("RTR", "RTS")) or plain(self).allows_operation(
        queue, request
    )


@violates("REG-28", Device.allows_operation)
def queue_pairs_enable_atomics_with_writing(self: Device, queue: Queue, request: SendRequest) -> bool:
    """The right of a queue pair to atomics is that to be written to."""
    if request.opcode.startswith("ATOMIC_") and request.opcode != "ATOMIC_WRITE":
        return queue.peer.state in ("RTR", "RTS") and bool(queue.peer.access & REMOTE_WRITE)
    return plain(self).allows_operation(queue, request)
