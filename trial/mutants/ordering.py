"""Flushes, persistence and relaxed ordering."""

from __future__ import annotations

import errno

from conformance.bench.calls import Sge
from conformance.bench.work_requests import Completion, SendRequest
from reference.device import Device
from reference.memory import PAGE
from reference.objects import (
    FLUSH_GLOBAL,
    FLUSH_PERSISTENT,
    RELAXED_ORDERING,
    REMOTE_ATOMIC,
    REMOTE_READ,
    REMOTE_WRITE,
    Domain,
    Region,
)
from reference.queues import SUCCESS, Queue
from trial.mutants.bases import ATOMICS, granted
from trial.violation import permits, plain, violates


@violates("REG-08", Device.allows)
def flush_unchecked(self: Device, region: Region, right: int) -> bool:
    """FLUSH_GLOBAL is not checked."""
    return right == FLUSH_GLOBAL or plain(self).allows(region, right)


@violates("REG-08", Device.allows)
def flush_by_remote_write(self: Device, region: Region, right: int) -> bool:
    """REMOTE_WRITE grants flushes."""
    return granted(region, right, FLUSH_GLOBAL, REMOTE_WRITE)


@violates("REG-08", Device.allows)
def flush_denied(self: Device, region: Region, right: int) -> bool:
    """Flushes for visibility are refused although they are granted."""
    return right != FLUSH_GLOBAL and plain(self).allows(region, right)


@violates("REG-08", Device.target)
def flush_anywhere(self: Device, queue: Queue, request: SendRequest, length: int) -> int | None:
    """The range of a flush is not checked."""
    found = plain(self).target(queue, request, length)
    region = self.keys.get(request.rkey)
    allowed = isinstance(region, Region) and self.allows(region, FLUSH_GLOBAL)
    return 0 if found is None and request.opcode == "FLUSH_GLOBAL" and allowed else found


@violates("REG-08", Device.allows, written="blind")
def global_flush_needs_no_right(self: Device, region: Region, right: int) -> bool:
    """A flush to global visibility needs no right where the region has REMOTE_WRITE."""
    return plain(self).allows(region, right) or (right == FLUSH_GLOBAL and bool(region.access & REMOTE_WRITE))


@violates("REG-08", Device.allows, written="blind")
def persistent_right_flushes_globally(self: Device, region: Region, right: int) -> bool:
    """FLUSH_PERSISTENT allows a flush to global visibility too."""
    return plain(self).allows(region, right) or (right == FLUSH_GLOBAL and bool(region.access & FLUSH_PERSISTENT))


@violates("REG-08", Device.allows, written="blind")
def global_flush_needs_remote_write(self: Device, region: Region, right: int) -> bool:
    """FLUSH_GLOBAL does not work on a region without REMOTE_WRITE."""
    return plain(self).allows(region, right) and (right != FLUSH_GLOBAL or bool(region.access & REMOTE_WRITE))


@violates("REG-09", Device.allows)
def persistence_unchecked(self: Device, region: Region, right: int) -> bool:
    """FLUSH_PERSISTENT is not checked."""
    return right == FLUSH_PERSISTENT or plain(self).allows(region, right)


@violates("REG-09", Device.allows)
def persistence_by_visibility(self: Device, region: Region, right: int) -> bool:
    """FLUSH_GLOBAL grants flushes for persistence."""
    return granted(region, right, FLUSH_PERSISTENT, FLUSH_GLOBAL)


@violates("REG-09", Device.allows)
def persistence_denied(self: Device, region: Region, right: int) -> bool:
    """Flushes for persistence are refused although they are granted."""
    return right != FLUSH_PERSISTENT and plain(self).allows(region, right)


@violates("REG-09", Device.target)
def persistence_anywhere(self: Device, queue: Queue, request: SendRequest, length: int) -> int | None:
    """The range of a flush for persistence is not checked."""
    found = plain(self).target(queue, request, length)
    region = self.keys.get(request.rkey)
    allowed = isinstance(region, Region) and self.allows(region, FLUSH_PERSISTENT)
    return 0 if found is None and request.opcode == "FLUSH_PERSISTENT" and allowed else found


@violates("REG-09", Device.allows, written="blind")
def global_right_flushes_persistently(self: Device, region: Region, right: int) -> bool:
    """FLUSH_GLOBAL allows a flush with persistence too."""
    return plain(self).allows(region, right) or (right == FLUSH_PERSISTENT and bool(region.access & FLUSH_GLOBAL))


@violates("REG-09", Device.remote, written="blind")
def persistent_flush_of_one_page_only(
    self: Device, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int
) -> int | None:
    """A flush with persistence that crosses into another page is refused."""
    if right == FLUSH_PERSISTENT and addr // PAGE != (addr + length - 1) // PAGE:
        return None
    return plain(self).remote(rkey, domain, queue, addr, length, right)


@violates("REG-09", Device.allows, written="blind")
def persistent_flush_needs_both_rights(self: Device, region: Region, right: int) -> bool:
    """A flush with persistence is refused where the region has not FLUSH_GLOBAL as well."""
    return plain(self).allows(region, right) and (right != FLUSH_PERSISTENT or bool(region.access & FLUSH_GLOBAL))


@violates("REG-09a", Device.is_persistent)
def ordinary_memory_is_persistent(self: Device, addr: int, length: int) -> bool:
    """A flush reports ordinary memory as persistent."""
    return True


@violates("REG-09a", Device.is_persistent)
def short_flushes_are_persistent(self: Device, addr: int, length: int) -> bool:
    """A flush of at most 64 bytes reports ordinary memory as persistent."""
    return length <= 64 or plain(self).is_persistent(addr, length)


@violates("REG-09a", Device.is_persistent)
def pages_are_persistent(self: Device, addr: int, length: int) -> bool:
    """A flush from the beginning of a page reports ordinary memory as persistent."""
    return addr % PAGE == 0 or plain(self).is_persistent(addr, length)


@violates("REG-14", Device.put)
def relaxed_not_visible(self: Device, addr: int, content: bytes) -> bool:
    """With RELAXED_ORDERING the last page arrives after the completion."""
    relaxed = any(
        isinstance(each, Region) and each.access & RELAXED_ORDERING and each.addr <= addr < each.addr + each.length
        for each in self.keys.values()
    )
    return plain(self).put(addr, content[:-PAGE] if relaxed and len(content) > PAGE else content)


@violates("REG-14", Device.allows)
def relaxed_atomics_refused(self: Device, region: Region, right: int) -> bool:
    """With RELAXED_ORDERING atomics are refused."""
    relaxed = right == REMOTE_ATOMIC and region.access & RELAXED_ORDERING
    return not relaxed and plain(self).allows(region, right)


@violates("REG-14", Device.unsupported)
def relaxed_refused(self: Device, access: int) -> bool:
    """RELAXED_ORDERING makes a registration fail."""
    return plain(self).unsupported(access) or bool(access & RELAXED_ORDERING)


@violates("REG-14", Device.access_fault, written="blind")
def relaxed_ordering_needs_remote_write(self: Device, access: int) -> int:
    """RELAXED_ORDERING makes a registration without REMOTE_WRITE but with REMOTE_READ fail."""
    useless = access & RELAXED_ORDERING and access & REMOTE_READ and not access & REMOTE_WRITE
    return errno.EINVAL if useless else plain(self).access_fault(access)


@violates("REG-14", written="blind")
class RelaxedWritesCompleteTooEarly(Device):
    """The last byte of a write to a relaxed region comes only after its completion, with the next request."""

    def setup(self) -> None:
        self._late: list[tuple[int, bytes]] = []
        self._relaxed = False

    def post_send(self, queue: Queue, request: SendRequest) -> int:
        for addr, content in self._late:
            self.memory.write(addr, content)
        self._late.clear()
        return super().post_send(queue, request)

    def target(self, queue: Queue, request: SendRequest, length: int) -> int | None:
        found = self.found(request.rkey)
        self._relaxed = isinstance(found, Region) and bool(found.access & RELAXED_ORDERING)
        return super().target(queue, request, length)

    def put(self, addr: int, content: bytes) -> bool:
        if self._relaxed and len(content) > 1:
            self._late.append((addr + len(content) - 1, content[-1:]))
            content = content[:-1]
        return super().put(addr, content)


@violates("REG-14", Device.next_receive, written="blind")
def relaxed_receives_match_backwards(self: Device, queue: Queue) -> tuple[int, tuple[Sge, ...]]:
    """A message takes the newest receive instead of the oldest where both are in relaxed regions."""
    newest = queue.receives[-1][1]
    found = self.found(newest[0].lkey) if newest else None
    if isinstance(found, Region) and found.access & RELAXED_ORDERING:
        return queue.receives.pop()
    return plain(self).next_receive(queue)


@violates("REG-14", written="blind")
class AtomicsOvertakeRelaxedWrites(Device):
    """An unsignaled write to a relaxed region is carried out after the atomic that follows it."""

    def setup(self) -> None:
        self._held: list[tuple[Queue, SendRequest]] = []

    def carry_out(self, queue: Queue, request: SendRequest) -> str:
        found = self.found(request.rkey)
        relaxed = isinstance(found, Region) and found.access & RELAXED_ORDERING
        if request.opcode == "RDMA_WRITE" and relaxed and not self.asks_completion(queue, request.flags):
            self._held.append((queue, request))
            return SUCCESS
        held, self._held = self._held, []
        if request.opcode in ATOMICS:
            status = super().carry_out(queue, request)
            held, late = [], held
        else:
            late = []
            status = ""
        for each in held or late:
            super().carry_out(*each)
        return status or super().carry_out(queue, request)


@violates("REG-14", written="blind")
class ImmediateComesBeforeItsData(Device):
    """A write with immediate data completes at the receiver although the second half of long data is not there."""

    def put(self, addr: int, content: bytes) -> bool:
        return super().put(addr, content[: len(content) // 2] if self._immediate and len(content) > 64 else content)

    _immediate = False

    def write(self, queue: Queue, request: SendRequest) -> str:
        self._immediate = request.opcode == "RDMA_WRITE_WITH_IMM"
        return super().write(queue, request)


@violates("REG-14", written="blind")
class FifthSendIsLost(Device):
    """Every fifth SEND on a relaxed region completes at both sides, but its data is not in memory."""

    _sends = 0

    def deliver(self, queue: Queue, content: bytes | None, imm: int | None, length: int) -> str:
        peer = queue.peer
        if content and peer.receives and peer.kind != "UD":
            sges = peer.receives[0][1]
            found = self.found(sges[0].lkey) if sges else None
            if isinstance(found, Region) and found.access & 1 << 20:
                self._sends += 1
                if self._sends % 5 == 0 and self.memory_of_sge(peer, sges[0], write=True) is not None:
                    wr_id, _ = self.next_receive(peer)
                    peer.polled.append(Completion(wr_id, SUCCESS, "RECV", length, imm))
                    return SUCCESS
        return super().deliver(queue, content, imm, length)


@permits("REG-14", written="blind")
class RelaxedOrderingIgnored(Device):
    """RELAXED_ORDERING is dropped without a word."""

    def register(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        return super().register(pd, addr, length, hca_va, access & ~RELAXED_ORDERING)


@permits("REG-14", Device.put, written="blind")
def writes_come_in_two_parts(self: Device, addr: int, content: bytes) -> bool:
    """A write to memory is carried out from its end to its beginning."""
    half = len(content) // 2
    if half and self.memory.fault_in(addr, len(content), write=True):
        return plain(self).put(addr + half, content[half:]) and plain(self).put(addr, content[:half])
    return plain(self).put(addr, content)


_BOTH = FLUSH_GLOBAL | FLUSH_PERSISTENT


@violates("REG-09", Device.allows)
def one_right_for_both_flushes(self: Device, region: Region, right: int) -> bool:
    """A request for both placements needs one of the two rights."""
    return plain(self).allows(region, right) or (right == _BOTH and bool(region.access & _BOTH))


@violates("REG-09", Device.allows)
def no_right_for_both_flushes(self: Device, region: Region, right: int) -> bool:
    """A request for both placements needs no right."""
    return right == _BOTH or plain(self).allows(region, right)


@violates("REG-09a", Device.write)
def both_flushes_persist_ordinary_memory(self: Device, queue: Queue, request: SendRequest) -> str:
    """A request for both placements does not look whether the memory is persistent."""
    if request.opcode != "FLUSH_BOTH" or not self.allows_operation(queue, request):
        return plain(self).write(queue, request)
    return SUCCESS if self.target(queue, request, request.length) else self.refuse(queue, "REM_ACCESS_ERR")
