"""Violations of what a region's access flags allow."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from conformance.bench.calls import Sge
from conformance.bench.work_requests import SendRequest
from reference.device import Device
from reference.objects import (
    FLUSH_GLOBAL,
    FLUSH_PERSISTENT,
    LOCAL_WRITE,
    REMOTE_ATOMIC,
    REMOTE_READ,
    REMOTE_WRITE,
    Domain,
    Region,
)
from reference.queues import Queue
from trial.violation import violates

_RIGHTS = REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | FLUSH_GLOBAL | FLUSH_PERSISTENT


def _granted(region: Region, right: int, wrongly: int, by: int) -> bool:
    """Whether a right is there, or another one stands in for it."""
    return region.access & right == right or (right == wrongly and region.access & by == by)


@violates("REG-03")
class LocalReadNeedsAFlag(Device):
    """Local reads are refused for a region with access 0."""

    def local(self, lkey: int, domain: Domain, addr: int, length: int, write: bool) -> int | None:
        found = self.keys.get(lkey)
        deaf = isinstance(found, Region) and not found.access and not write
        return None if deaf else super().local(lkey, domain, addr, length, write)


@violates("REG-04")
class LocalWriteUnchecked(Device):
    """LOCAL_WRITE is not checked."""

    def allows_local_write(self, region: Region) -> bool:
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


@violates("REG-04")
class LocalWriteNeedsRemoteWrite(Device):
    """LOCAL_WRITE without REMOTE_WRITE does not allow local writes."""

    def allows_local_write(self, region: Region) -> bool:
        return region.access & (LOCAL_WRITE | REMOTE_WRITE) == LOCAL_WRITE | REMOTE_WRITE


@violates("REG-04")
class WrittenThoughRefused(Device):
    """Data is written locally without permission, and then the error is reported."""

    def scatter(self, queue: Queue, sges: Sequence[Sge], content: bytes) -> bool:
        done = super().scatter(queue, sges, content)
        if not done and sges and self.memory.fault_in(sges[0].addr, 1, write=True):
            ctypes.memmove(sges[0].addr, content, 1)
        return done


@violates("REG-05")
class RemoteWriteUnchecked(Device):
    """REMOTE_WRITE is not checked."""

    def allows(self, region: Region, right: int) -> bool:
        return right == REMOTE_WRITE or super().allows(region, right)


@violates("REG-05")
class RemoteWriteByLocalWrite(Device):
    """LOCAL_WRITE grants remote writes."""

    def allows(self, region: Region, right: int) -> bool:
        return _granted(region, right, REMOTE_WRITE, LOCAL_WRITE)


@violates("REG-05")
class RemoteWriteByRemoteRead(Device):
    """REMOTE_READ grants remote writes."""

    def allows(self, region: Region, right: int) -> bool:
        return _granted(region, right, REMOTE_WRITE, REMOTE_READ)


@violates("REG-05")
class RemoteWriteDenied(Device):
    """Remote writes are refused although they are granted."""

    def allows(self, region: Region, right: int) -> bool:
        return right != REMOTE_WRITE and super().allows(region, right)


@violates("REG-05")
class RemoteWriteLost(Device):
    """A remote write completes, but writes nothing."""

    def put(self, addr: int, content: bytes) -> bool:
        return True


@violates("REG-05")
class RemoteWriteFirst(Device):
    """A remote write is executed first, and its right is checked afterwards."""

    def target(self, queue: Queue, request: SendRequest, length: int) -> int | None:
        found = super().target(queue, request, length)
        if found is None and request.opcode == "RDMA_WRITE":
            region = self.keys.get(request.rkey)
            if isinstance(region, Region) and self.contains(region, request.remote_addr, length):
                self.put(self.translate(region, request.remote_addr), self.gather(queue, request.sges) or b"")
        return found


@violates("REG-05")
class RemoteWriteCutShort(Device):
    """The last byte of a longer remote write is not written."""

    def put(self, addr: int, content: bytes) -> bool:
        return super().put(addr, content[:-1] if len(content) > 16 else content)


@violates("REG-06")
class RemoteReadUnchecked(Device):
    """REMOTE_READ is not checked."""

    def allows(self, region: Region, right: int) -> bool:
        return right == REMOTE_READ or super().allows(region, right)


@violates("REG-06")
class RemoteReadByRemoteWrite(Device):
    """REMOTE_WRITE grants remote reads."""

    def allows(self, region: Region, right: int) -> bool:
        return _granted(region, right, REMOTE_READ, REMOTE_WRITE)


@violates("REG-06")
class RemoteReadByLocalRead(Device):
    """A region with access 0 can be read remotely."""

    def allows(self, region: Region, right: int) -> bool:
        return _granted(region, right, REMOTE_READ, 0) if not region.access else super().allows(region, right)


@violates("REG-06")
class RemoteReadLeaks(Device):
    """A refused read delivers its data to the requester before the error."""

    def read(self, queue: Queue, request: SendRequest) -> str:
        status = super().read(queue, request)
        region = self.keys.get(request.rkey)
        if status == "REM_ACCESS_ERR" and isinstance(region, Region):
            size = sum(sge.length for sge in request.sges)
            leaked = self.memory.read(self.translate(region, request.remote_addr), size)
            self.scatter(queue, request.sges, leaked or b"")
        return status


@violates("REG-06")
class RemoteReadDenied(Device):
    """Remote reads are refused although they are granted."""

    def allows(self, region: Region, right: int) -> bool:
        return right != REMOTE_READ and super().allows(region, right)


@violates("REG-06")
class RemoteReadOfNothing(Device):
    """A remote read completes and delivers zeros."""

    def read(self, queue: Queue, request: SendRequest) -> str:
        status = super().read(queue, request)
        for sge in request.sges if status == "SUCCESS" else ():
            self.memory.write(sge.addr, bytes(sge.length))
        return status


@violates("REG-07")
class AtomicsUnchecked(Device):
    """REMOTE_ATOMIC is not checked."""

    def allows(self, region: Region, right: int) -> bool:
        return right == REMOTE_ATOMIC or super().allows(region, right)


@violates("REG-07")
class AtomicsByReadAndWrite(Device):
    """REMOTE_WRITE and REMOTE_READ together grant atomics."""

    def allows(self, region: Region, right: int) -> bool:
        return _granted(region, right, REMOTE_ATOMIC, REMOTE_WRITE | REMOTE_READ)


@violates("REG-07")
class AtomicsGrantWrites(Device):
    """REMOTE_ATOMIC grants remote writes."""

    def allows(self, region: Region, right: int) -> bool:
        return _granted(region, right, REMOTE_WRITE, REMOTE_ATOMIC)


@violates("REG-07")
class AtomicsGiveBackTheNewValue(Device):
    """An atomic returns the new value instead of the old one."""

    def atomic(self, queue: Queue, request: SendRequest) -> str:
        status = super().atomic(queue, request)
        found = self.target(queue, request, 8)
        if status == "SUCCESS" and found is not None:
            self.scatter(queue, request.sges, self.memory.read(found, 8) or b"")
        return status


@violates("REG-07")
class FetchAndAddOfHalf(Device):
    """FETCH_AND_ADD adds only the lower 32 bits."""

    def atomic_result(self, request: SendRequest, before: int) -> int:
        after = super().atomic_result(request, before)
        return after if request.opcode != "ATOMIC_FETCH_AND_ADD" else before & ~0xFFFFFFFF | after & 0xFFFFFFFF


@violates("REG-07")
class CompareAndSwapAlways(Device):
    """COMPARE_AND_SWAP swaps whatever the value in memory."""

    def atomic_result(self, request: SendRequest, before: int) -> int:
        return request.swap if request.opcode == "ATOMIC_CMP_AND_SWP" else super().atomic_result(request, before)


@violates("REG-07")
class CompareAndSwapNever(Device):
    """COMPARE_AND_SWAP completes and swaps nothing."""

    def atomic_result(self, request: SendRequest, before: int) -> int:
        return before if request.opcode == "ATOMIC_CMP_AND_SWP" else super().atomic_result(request, before)


@violates("REG-07")
class AtomicsDeclaredAndMissing(Device):
    """Atomics are declared, but REMOTE_ATOMIC is refused."""

    def allows(self, region: Region, right: int) -> bool:
        return right != REMOTE_ATOMIC and super().allows(region, right)


@violates("REG-08")
class FlushUnchecked(Device):
    """FLUSH_GLOBAL is not checked."""

    def allows(self, region: Region, right: int) -> bool:
        return right == FLUSH_GLOBAL or super().allows(region, right)


@violates("REG-08")
class FlushByRemoteWrite(Device):
    """REMOTE_WRITE grants flushes."""

    def allows(self, region: Region, right: int) -> bool:
        return _granted(region, right, FLUSH_GLOBAL, REMOTE_WRITE)


@violates("REG-08")
class FlushDenied(Device):
    """Flushes for visibility are refused although they are granted."""

    def allows(self, region: Region, right: int) -> bool:
        return right != FLUSH_GLOBAL and super().allows(region, right)


@violates("REG-08")
class FlushAnywhere(Device):
    """The range of a flush is not checked."""

    def target(self, queue: Queue, request: SendRequest, length: int) -> int | None:
        found = super().target(queue, request, length)
        region = self.keys.get(request.rkey)
        allowed = isinstance(region, Region) and self.allows(region, FLUSH_GLOBAL)
        return 0 if found is None and request.opcode == "FLUSH_GLOBAL" and allowed else found


@violates("REG-09")
class PersistenceUnchecked(Device):
    """FLUSH_PERSISTENT is not checked."""

    def allows(self, region: Region, right: int) -> bool:
        return right == FLUSH_PERSISTENT or super().allows(region, right)


@violates("REG-09")
class PersistenceByVisibility(Device):
    """FLUSH_GLOBAL grants flushes for persistence."""

    def allows(self, region: Region, right: int) -> bool:
        return _granted(region, right, FLUSH_PERSISTENT, FLUSH_GLOBAL)


@violates("REG-05")
class ExtendedConnectionsUnchecked(Device):
    """Access rights are not checked on extended reliable connections."""

    def target(self, queue: Queue, request: SendRequest, length: int) -> int | None:
        found = super().target(queue, request, length)
        region = self.keys.get(request.rkey)
        if found is None and queue.kind == "XRC" and isinstance(region, Region):
            return self.place(region, request.remote_addr, length)
        return found


@violates("REG-09")
class PersistenceDenied(Device):
    """Flushes for persistence are refused although they are granted."""

    def allows(self, region: Region, right: int) -> bool:
        return right != FLUSH_PERSISTENT and super().allows(region, right)


@violates("REG-09")
class PersistenceAnywhere(Device):
    """The range of a flush for persistence is not checked."""

    def target(self, queue: Queue, request: SendRequest, length: int) -> int | None:
        found = super().target(queue, request, length)
        region = self.keys.get(request.rkey)
        allowed = isinstance(region, Region) and self.allows(region, FLUSH_PERSISTENT)
        return 0 if found is None and request.opcode == "FLUSH_PERSISTENT" and allowed else found


@violates("REG-06")
class RemoteReadBesideAtomics(Device):
    """REMOTE_READ has no effect together with REMOTE_WRITE and REMOTE_ATOMIC."""

    def allows(self, region: Region, right: int) -> bool:
        both = REMOTE_WRITE | REMOTE_ATOMIC
        lost = right == REMOTE_READ and region.access & both == both
        return not lost and super().allows(region, right)


@violates("REG-28")
class QueuePairsAllowEverything(Device):
    """What a queue pair enables is not looked at: the region decides."""

    def allows_operation(self, queue: Queue, request: SendRequest) -> bool:
        return queue.peer.state in ("RTR", "RTS")


@violates("REG-28")
class UnreliableQueuePairsAllowEverything(Device):
    """What a queue pair of type UC enables is not looked at."""

    def allows_operation(self, queue: Queue, request: SendRequest) -> bool:
        return (queue.kind == "UC" and queue.peer.state in ("RTR", "RTS")) or super().allows_operation(queue, request)


@violates("REG-28")
class OneRightOfAQueuePairIsAll(Device):
    """A queue pair that enables any operation allows all of them."""

    def allows_operation(self, queue: Queue, request: SendRequest) -> bool:
        return (queue.peer.access != 0 and queue.peer.state in ("RTR", "RTS")) or super().allows_operation(
            queue, request
        )


@violates("REG-28")
class QueuePairsEnableAtomicsWithWriting(Device):
    """The right of a queue pair to atomics is that to be written to."""

    def allows_operation(self, queue: Queue, request: SendRequest) -> bool:
        if request.opcode.startswith("ATOMIC_") and request.opcode != "ATOMIC_WRITE":
            return queue.peer.state in ("RTR", "RTS") and bool(queue.peer.access & REMOTE_WRITE)
        return super().allows_operation(queue, request)
