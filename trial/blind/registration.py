"""Registration: what is granted, what is refused, and what the program is told of it."""

from __future__ import annotations

import errno

from conformance.bench.calls import IbvMr, Pd, Sge
from conformance.bench.work_requests import SendRequest
from conformance.verbs import OPTIONAL_ACCESS
from reference.device import Device
from reference.memory import HUGEPAGE, PAGE, Memory
from reference.objects import (
    FLUSH_GLOBAL,
    FLUSH_PERSISTENT,
    HUGETLB,
    LOCAL_WRITE,
    MW_BIND,
    ON_DEMAND,
    RELAXED_ORDERING,
    REMOTE_ATOMIC,
    REMOTE_READ,
    REMOTE_WRITE,
    ZERO_BASED,
    Domain,
    Refused,
    Region,
)
from reference.queues import SUCCESS, Queue
from reference.stack import WHOLE, Stack
from trial.blind.watching import ATOMICS, GIB, Watching
from trial.violation import violates

# What the structure tells


@violates("REG-01")
class StructureLengthInWholePages(Device):
    """The structure of a region of more than a page tells its length rounded up to whole pages."""

    def structure(self, region: Region, pd: Pd, addr: int, length: int) -> IbvMr:
        return super().structure(region, pd, addr, -(-length // PAGE) * PAGE if length > PAGE else length)


@violates("REG-01")
class StructureAddressOnEightBytes(Device):
    """The structure tells an odd start rounded down to a multiple of eight."""

    def structure(self, region: Region, pd: Pd, addr: int, length: int) -> IbvMr:
        return super().structure(region, pd, addr & ~7, length)


@violates("REG-01")
class StructureWithoutDomainForAtomics(Device):
    """The structure of a region with REMOTE_ATOMIC has no PD in it."""

    def structure(self, region: Region, pd: Pd, addr: int, length: int) -> IbvMr:
        made = super().structure(region, pd, addr, length)
        if region.access & REMOTE_ATOMIC:
            made.pd = None
        return made


@violates("REG-01")
class HandleOfZeroBasedRegionLost(Device):
    """The structure of a ZERO_BASED region with remote rights has handle 0."""

    def structure(self, region: Region, pd: Pd, addr: int, length: int) -> IbvMr:
        made = super().structure(region, pd, addr, length)
        if region.access & ZERO_BASED and region.access & (REMOTE_WRITE | REMOTE_READ):
            made.handle = 0
        return made


@violates("REG-01")
class StructureLengthOfThirtyTwoBits(Device):
    """The structure tells only the lower 32 bits of a length."""

    def structure(self, region: Region, pd: Pd, addr: int, length: int) -> IbvMr:
        return super().structure(region, pd, addr, length & 0xFFFFFFFF)


@violates("REG-02a")
class ErrnoIsNegative(Device):
    """A failed registration leaves the negative of its reason in errno."""

    def reported_errno(self, errno: int) -> int:
        return -errno


@violates("REG-02a")
class NoErrnoForUnmappedMemory(Device):
    """A registration of memory that is not there gives NULL and leaves errno 0."""

    def reported_errno(self, errno: int) -> int:
        return 0 if errno == 14 else errno


@violates("REG-02a")
class ErrnoOfTheFailureBefore(Device):
    """A failed registration leaves the reason of the one that had failed before it in errno."""

    _before = 0

    def reported_errno(self, errno: int) -> int:
        told, self._before = self._before or errno, errno
        return told


# Local reading


@violates("REG-03")
class AccessZeroNeedsWholePages(Device):
    """Access 0 is refused where the length is not one of whole pages."""

    def range_fault(self, addr: int, length: int, access: int) -> int:
        return errno.EINVAL if not access and length % PAGE else super().range_fault(addr, length, access)


@violates("REG-03")
class LocalReadLostBesideRemoteRead(Device):
    """A region with REMOTE_READ as its only right cannot be read locally."""

    def local(self, lkey: int, domain: Domain, addr: int, length: int, write: bool) -> int | None:
        found = self.found(lkey)
        if isinstance(found, Region) and found.access == REMOTE_READ and not write:
            return None
        return super().local(lkey, domain, addr, length, write)


@violates("REG-03")
class LocalReadLostForSends(Watching):
    """What has no LOCAL_WRITE can be the source of a write, but not that of a SEND."""

    def local(self, lkey: int, domain: Domain, addr: int, length: int, write: bool) -> int | None:
        found = self.found(lkey)
        if isinstance(found, Region) and not write and self.opcode == "SEND" and not found.access & LOCAL_WRITE:
            return None
        return super().local(lkey, domain, addr, length, write)


# On-demand paging and huge pages


@violates("REG-12")
class OnDemandCountsAsPinned(Device):
    """On-demand regions count against the limit of locked memory."""

    def range_fault(self, addr: int, length: int, access: int) -> int:
        fault = super().range_fault(addr, length, access)
        implicit = self.is_implicit(addr, length, access)
        if not fault and access & ON_DEMAND and not implicit and self.over_limit(addr, length):
            return errno.ENOMEM
        return fault


@violates("REG-12")
class OnDemandMemoryHasToBeThereAtOnce(Device):
    """An on-demand registration fails unless every page is mapped already."""

    def range_fault(self, addr: int, length: int, access: int) -> int:
        fault = super().range_fault(addr, length, access)
        implicit = self.is_implicit(addr, length, access)
        if not fault and access & ON_DEMAND and not implicit and self.not_there(addr, length, access):
            return errno.EFAULT
        return fault


class _Remembering(Memory):
    """Memory that answers with what it had been when it was first read, for the regions of `region`."""

    region = 0

    def __init__(self) -> None:
        super().__init__()
        self._read: dict[tuple[int, int, int], bytes] = {}

    def read(self, addr: int, length: int) -> bytes | None:
        name = (self.region, addr, length)
        if self.region and name in self._read:
            return self._read[name]
        content = super().read(addr, length)
        if content is not None and self.region:
            self._read[name] = content
        return content

    def write(self, addr: int, content: bytes) -> bool:
        self._read.clear()
        return super().write(addr, content)


@violates("REG-12")
class OnDemandReadsTheOldPage(Device):
    """What the processor writes into an on-demand region after a first read is not seen by a second one."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
        self.memory.close()
        self.memory = self._remembering = _Remembering()

    def translate(self, region: Region, addr: int) -> int:
        self._remembering.region = region.handle if region.access & ON_DEMAND else 0
        return super().translate(region, addr)


@violates("REG-12")
class OnDemandServesNoAtomicsOnFreshPages(Device):
    """An atomic on an on-demand region fails when it is the first operation on the region."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
        self._seen: set[int] = set()

    def remote(self, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int) -> int | None:
        found = self.found(rkey)
        if isinstance(found, Region) and found.access & ON_DEMAND and found.handle not in self._seen:
            self._seen.add(found.handle)
            if right == REMOTE_ATOMIC:
                return None
        return super().remote(rkey, domain, queue, addr, length, right)


@violates("REG-13")
class HugetlbWithoutALook(Device):
    """HUGETLB in explicit mode is granted on ordinary pages, whose size is thus not guaranteed."""

    def range_fault(self, addr: int, length: int, access: int) -> int:
        implicit = self.is_implicit(addr, length, access)
        return super().range_fault(addr, length, access if implicit else access & ~HUGETLB)


@violates("REG-13")
class HugetlbLooksAtTheFirstPage(Device):
    """HUGETLB is granted for a range that begins in huge pages and ends in others."""

    def range_fault(self, addr: int, length: int, access: int) -> int:
        begins = access & ON_DEMAND and self.memory.is_special("huge", addr, 1)
        return super().range_fault(addr, length, access & ~HUGETLB if begins else access)


@violates("REG-13")
class HugetlbNeedsAnAlignedStart(Device):
    """HUGETLB is refused for a range of huge pages that begins within one."""

    def range_fault(self, addr: int, length: int, access: int) -> int:
        if access & HUGETLB and access & ON_DEMAND and addr % HUGEPAGE:
            return errno.EINVAL
        return super().range_fault(addr, length, access)


@violates("REG-13")
class HugetlbForTheWholeSpace(Device):
    """HUGETLB is granted for implicit on-demand paging."""

    def range_fault(self, addr: int, length: int, access: int) -> int:
        implicit = self.is_implicit(addr, length, access)
        return super().range_fault(addr, length, access & ~HUGETLB if implicit else access)


# Relaxed ordering


@violates("REG-14")
class RelaxedOrderingNeedsRemoteWrite(Device):
    """RELAXED_ORDERING makes a registration without REMOTE_WRITE but with REMOTE_READ fail."""

    def access_fault(self, access: int) -> int:
        useless = access & RELAXED_ORDERING and access & REMOTE_READ and not access & REMOTE_WRITE
        return errno.EINVAL if useless else super().access_fault(access)


@violates("REG-14")
class RelaxedWritesCompleteTooEarly(Device):
    """The last byte of a write to a relaxed region comes only after its completion, with the next request."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
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


@violates("REG-14")
class RelaxedReceivesMatchBackwards(Device):
    """A message takes the newest receive instead of the oldest where both are in relaxed regions."""

    def next_receive(self, queue: Queue) -> tuple[int, tuple[Sge, ...]]:
        newest = queue.receives[-1][1]
        found = self.found(newest[0].lkey) if newest else None
        if isinstance(found, Region) and found.access & RELAXED_ORDERING:
            return queue.receives.pop()
        return super().next_receive(queue)


@violates("REG-14")
class AtomicsOvertakeRelaxedWrites(Device):
    """An unsignaled write to a relaxed region is carried out after the atomic that follows it."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
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


# Flags that need each other


@violates("REG-15")
class RemoteWriteAloneIfRelaxed(Device):
    """REMOTE_WRITE without LOCAL_WRITE is accepted where RELAXED_ORDERING is set too."""

    def write_alone(self, access: int) -> bool:
        return super().write_alone(access) and not access & RELAXED_ORDERING


@violates("REG-15")
class RemoteWriteAloneOnDemand(Device):
    """REMOTE_WRITE without LOCAL_WRITE is accepted for on-demand regions."""

    def write_alone(self, access: int) -> bool:
        return super().write_alone(access) and not access & ON_DEMAND


@violates("REG-15")
class RemoteWriteAloneWithThreeOthers(Device):
    """REMOTE_WRITE without LOCAL_WRITE is accepted beside REMOTE_READ, MW_BIND and ZERO_BASED together."""

    def write_alone(self, access: int) -> bool:
        others = REMOTE_READ | MW_BIND | ZERO_BASED
        return super().write_alone(access) and access & others != others


@violates("REG-16")
class RemoteAtomicAloneWithRead(Device):
    """REMOTE_ATOMIC without LOCAL_WRITE is accepted beside REMOTE_READ."""

    def atomic_alone(self, access: int) -> bool:
        return super().atomic_alone(access) and not access & REMOTE_READ


@violates("REG-16")
class LocalWriteAddedForAtomics(Device):
    """REMOTE_ATOMIC | ZERO_BASED without LOCAL_WRITE registers, with LOCAL_WRITE added in silence."""

    def register(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        if access & REMOTE_ATOMIC and access & ZERO_BASED and not access & REMOTE_WRITE:
            access |= LOCAL_WRITE
        return super().register(pd, addr, length, hca_va, access)


@violates("REG-16")
class RemoteAtomicAloneWithFlush(Device):
    """REMOTE_ATOMIC without LOCAL_WRITE is accepted beside both flush rights."""

    def atomic_alone(self, access: int) -> bool:
        flush = FLUSH_GLOBAL | FLUSH_PERSISTENT
        return super().atomic_alone(access) and access & flush != flush


@violates("REG-17")
class OneCombinationRefused(Device):
    """LOCAL_WRITE | REMOTE_ATOMIC | MW_BIND | ZERO_BASED, with nothing more, is refused."""

    def access_fault(self, access: int) -> int:
        odd = access == LOCAL_WRITE | REMOTE_ATOMIC | MW_BIND | ZERO_BASED
        return errno.EINVAL if odd else super().access_fault(access)


@violates("REG-17")
class NineFlagsAreTooMany(Device):
    """More than eight flags at once are refused."""

    def access_fault(self, access: int) -> int:
        known = access & 0x1003FF
        return errno.EINVAL if known.bit_count() > 8 else super().access_fault(access)


@violates("REG-17")
class PersistentFlushWithoutGlobalRefused(Device):
    """FLUSH_PERSISTENT is refused beside MW_BIND unless FLUSH_GLOBAL is there."""

    def access_fault(self, access: int) -> int:
        lonely = access & FLUSH_PERSISTENT and access & MW_BIND and not access & FLUSH_GLOBAL
        return errno.EINVAL if lonely else super().access_fault(access)


@violates("REG-17")
class ReadWithoutLocalWriteAndBindRefused(Device):
    """REMOTE_READ | MW_BIND | ON_DEMAND is refused where LOCAL_WRITE lacks."""

    def access_fault(self, access: int) -> int:
        asked = REMOTE_READ | MW_BIND | ON_DEMAND
        refused = access & asked == asked and not access & LOCAL_WRITE
        return errno.EOPNOTSUPP if refused else super().access_fault(access)


# Unknown bits


@violates("REG-18")
class SignBitAccepted(Device):
    """The unknown bit 31 is accepted."""

    def unknown_bits(self, access: int) -> int:
        return super().unknown_bits(access) & 0x7FFFFFFF


@violates("REG-18")
class LastOptionalBitRefused(Device):
    """The optional range is taken to end one bit early: bit 29 is refused."""

    def unknown_bits(self, access: int) -> int:
        return super().unknown_bits(access) | access & 1 << 29


@violates("REG-18")
class UnknownBitsBesideOptionalOnes(Device):
    """An unknown mandatory bit is accepted as soon as an optional bit is set."""

    def unknown_bits(self, access: int) -> int:
        return 0 if access & OPTIONAL_ACCESS else super().unknown_bits(access)


@violates("REG-18")
class BitTenAccepted(Device):
    """The lowest unknown mandatory bit, that right after the known ones, is accepted."""

    def unknown_bits(self, access: int) -> int:
        return super().unknown_bits(access) & ~(1 << 10)


@violates("REG-18")
class OptionalBitHasAnEffect(Device):
    """The unknown optional bit 21 is not ignored: it takes the region's right to be written remotely."""

    def register(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        made = super().register(pd, addr, length, hca_va, access)
        if access & 1 << 21:
            made.access &= ~REMOTE_WRITE
        return made


@violates("REG-19")
class ImplicitNeedsRemoteRead(Device):
    """Implicit on-demand paging is refused without REMOTE_READ."""

    def range_fault(self, addr: int, length: int, access: int) -> int:
        if self.is_implicit(addr, length, access) and not access & REMOTE_READ:
            return errno.EINVAL
        return super().range_fault(addr, length, access)


@violates("REG-19")
class ImplicitServesNoAtomics(Device):
    """An implicit region with REMOTE_ATOMIC refuses atomics."""

    def allows(self, region: Region, right: int) -> bool:
        if right == REMOTE_ATOMIC and region.addr == 0 and region.length == (1 << 64) - 1:
            return False
        return super().allows(region, right)


@violates("REG-19")
class SecondImplicitRegionRefused(Device):
    """While one implicit region exists, a second one is refused."""

    def range_fault(self, addr: int, length: int, access: int) -> int:
        others = [each for each in self.regions.values() if self.is_implicit(each.addr, each.length, each.access)]
        if others and self.is_implicit(addr, length, access):
            return errno.EBUSY
        return super().range_fault(addr, length, access)


# Memory that cannot be registered


@violates("REG-23")
class OnlyTheFirstPageIsLookedAt(Device):
    """A range registers whose first page is mapped, whatever lies behind it."""

    def not_there(self, addr: int, length: int, access: int) -> bool:
        return super().not_there(addr, min(length, PAGE - addr % PAGE), access)


@violates("REG-23")
class HolesInTheMiddleOverlooked(Device):
    """Only the first and the last page of a range are looked at."""

    def not_there(self, addr: int, length: int, access: int) -> bool:
        last = (addr + length - 1) // PAGE * PAGE
        first = super().not_there(addr, min(length, PAGE - addr % PAGE), access)
        return first or super().not_there(max(addr, last), addr + length - max(addr, last), access)


@violates("REG-23")
class ReadOnlyMemoryForLocalWrite(Device):
    """Memory mapped read-only registers with LOCAL_WRITE as long as no remote right writes."""

    def writes(self, access: int) -> bool:
        return bool(access & (REMOTE_WRITE | REMOTE_ATOMIC))


@violates("REG-23")
class ReadOnlyMemoryRefusedForRemoteRead(Device):
    """Memory mapped read-only is refused for a region with REMOTE_READ and no right that writes."""

    def writes(self, access: int) -> bool:
        return super().writes(access) or bool(access & REMOTE_READ)


@violates("REG-23")
class LockedMemoryOfThisCallOnly(Device):
    """The limit of locked memory is held against each registration alone, not against their sum."""

    def over_limit(self, addr: int, length: int) -> bool:
        return self.locked_limit is not None and self.pages(addr, length) > self.locked_limit


@violates("REG-23")
class LockedMemoryCountedInBytes(Device):
    """The limit of locked memory counts bytes instead of the pages that are pinned."""

    def pages(self, addr: int, length: int) -> int:
        return length


@violates("REG-23")
class WrappingOnDemand(Device):
    """An on-demand range that wraps around the end of the address space registers."""

    def range_fault(self, addr: int, length: int, access: int) -> int:
        wrapping = access & ON_DEMAND and not self.is_implicit(addr, length, access) and self.wraps(addr, length)
        return 0 if wrapping else super().range_fault(addr, length, access)


@violates("REG-23")
class RefusedMemoryKeepsTheDomain(Device):
    """A registration that is refused for its memory leaves the PD in use for ever."""

    def register(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        try:
            return super().register(pd, addr, length, hca_va, access)
        except Refused as refused:
            if refused.errno == errno.EFAULT:
                self.domains[pd].users += 1
            raise


@violates("REG-23")
class RefusedMemoryStaysRegistered(Device):
    """A registration over the locked-memory limit is told to have failed, but the region stays in the account."""

    def register(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        try:
            return super().register(pd, addr, length, hca_va, access)
        except Refused as refused:
            if refused.errno == errno.ENOMEM:
                handle = self.new_handle()
                self.regions[handle] = Region(handle, self.new_key(), self.domains[pd], addr, length, addr, access)
            raise


# No bytes, and very many


@violates("REG-24")
class ZeroLengthRegionOpensItsPage(Device):
    """A region of no bytes is granted and opens the page in which it lies."""

    def range_fault(self, addr: int, length: int, access: int) -> int:
        return super().range_fault(addr, length or 1, access)

    def contains(self, region: Region, addr: int, length: int) -> bool:
        if region.length:
            return super().contains(region, addr, length)
        return addr // PAGE == region.iova // PAGE and addr % PAGE + length <= PAGE


@violates("REG-24")
class UnalignedZeroLengthOpensOneByte(Device):
    """A region of no bytes that begins within a page is granted and opens one byte."""

    def range_fault(self, addr: int, length: int, access: int) -> int:
        return super().range_fault(addr, length or int(addr % PAGE > 0), access)

    def contains(self, region: Region, addr: int, length: int) -> bool:
        inside = addr >= region.iova and addr + length <= region.iova + max(1, region.length)
        return super().contains(region, addr, length) or (not region.length and inside)


@violates("REG-24a")
class NoBytesNeedARange(Device):
    """A write of no bytes is refused where its address is not the region's."""

    def target(self, queue: Queue, request: SendRequest, length: int) -> int | None:
        if length or request.opcode != "RDMA_WRITE":
            return super().target(queue, request, length)
        peer = queue.peer
        return self.remote(request.rkey, peer.domain, peer.number, request.remote_addr, 0, REMOTE_WRITE)


@violates("REG-24a")
class WriteOfNoBytesWritesOne(Device):
    """A write of no bytes to a good key clears the byte at its address."""

    def write(self, queue: Queue, request: SendRequest) -> str:
        if request.opcode == "RDMA_WRITE" and not sum(sge.length for sge in request.sges):
            peer = queue.peer
            place = self.remote(request.rkey, peer.domain, peer.number, request.remote_addr, 1, REMOTE_WRITE)
            if place:
                self.memory.write(place, b"\0")
        return super().write(queue, request)


@violates("REG-25")
class FourGibAreNothing(Device):
    """The device keeps 32 bits of a length: beyond 4 GiB only the remainder is open."""

    def contains(self, region: Region, addr: int, length: int) -> bool:
        return addr >= region.iova and addr + length <= region.iova + (region.length & 0xFFFFFFFF)


@violates("REG-25")
class TwoGibAreNegative(Device):
    """A length of 2 GiB or more is refused."""

    def range_fault(self, addr: int, length: int, access: int) -> int:
        if length >= 2 * GIB and not self.is_implicit(addr, length, access):
            return errno.EINVAL
        return super().range_fault(addr, length, access)


@violates("REG-25")
class OffsetOfThirtyOneBits(Device):
    """Beyond 2 GiB into a region the wrong bytes are served: bit 31 of the offset is lost."""

    def translate(self, region: Region, addr: int) -> int:
        if region.length > 1 << 40:
            return super().translate(region, addr)
        return region.addr + (addr - region.iova & ~(1 << 31))


@violates("REG-25")
class OnDemandEndsAtFourGib(Device):
    """An on-demand region, other than the implicit one, may not exceed 4 GiB."""

    def range_fault(self, addr: int, length: int, access: int) -> int:
        if access & ON_DEMAND and length > 4 * GIB and not self.is_implicit(addr, length, access):
            return errno.ENOMEM
        return super().range_fault(addr, length, access)


# What a program is compiled against


@violates("API-01")
class LengthOfRegionIsAnInt(Device):
    """The header's struct ibv_mr has an int for the length."""

    def header(self) -> str:
        before, found, after = super().header().partition("struct ibv_mr {")
        return before + found + after.replace("size_t length;", "int length;", 1)


@violates("API-01")
class KeysChangePlaces(Device):
    """The header's struct ibv_mr has rkey before lkey."""

    def header(self) -> str:
        before, found, after = super().header().partition("struct ibv_mr {")
        swapped = after.replace("\tuint32_t lkey;\n\tuint32_t rkey;", "\tuint32_t rkey;\n\tuint32_t lkey;", 1)
        return before + found + swapped


@violates("API-01")
class BindingsNumberZeroBasedWrong(Device):
    """The bindings have ZERO_BASED with the value of ON_DEMAND."""

    bindings_fault = ("ibv_access_flags", "IBV_ACCESS_ZERO_BASED", ON_DEMAND)


@violates("API-01")
class CommandErrorNumberedOtherwise(Device):
    """The header has IBV_REREG_MR_ERR_CMD as -6."""

    def header(self) -> str:
        return super().header().replace("IBV_REREG_MR_ERR_CMD = -4", "IBV_REREG_MR_ERR_CMD = -6")


@violates("API-01")
class AdviceTakesLongFlags(Device):
    """The header's ibv_advise_mr takes its flags as uint64_t."""

    def header(self) -> str:
        return super().header().replace("uint32_t flags", "uint64_t flags")
