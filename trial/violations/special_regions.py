"""Violations of the rules about regions that are more than pinned memory: on demand, huge pages, read-only memory.

IOVA-05 and 06, ADV-02 and 15, REG-09, REREG-16 and 17.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
from collections.abc import Sequence

from conformance.bench.calls import Sge
from reference.access import RIGHTS
from reference.advice import FLUSH, PREFETCH, PREFETCH_WRITE
from reference.device import Device
from reference.memory import HUGEPAGE, PAGE
from reference.objects import ON_DEMAND, REMOTE_READ, Domain, Refused, Region
from reference.reregistration import CHANGE_PD, CHANGE_TRANSLATION, Change
from trial.violation import violates

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


@violates("IOVA-05")
class OnDemandPagesBeginAtPages(Device):
    """Keys of an on-demand region count from the beginning of the page in which it begins."""

    def translate(self, region: Region, addr: int) -> int:
        place = super().translate(region, addr)
        return place - region.addr % PAGE if region.access & ON_DEMAND else place


@violates("IOVA-05")
class OnDemandDoesNotAdvance(Device):
    """In an on-demand region with another hca_va every page is the first one."""

    def translate(self, region: Region, addr: int) -> int:
        place = super().translate(region, addr)
        if region.access & ON_DEMAND and region.iova != region.addr:
            return region.addr + (place - region.addr) % PAGE
        return place


@violates("IOVA-05")
class OnDemandEndIsTheProcessAddress(Device):
    """The end of an on-demand region is compared with its address in the process."""

    def contains(self, region: Region, addr: int, length: int) -> bool:
        if region.access & ON_DEMAND and region.iova > region.addr:
            return addr >= region.iova
        return super().contains(region, addr, length)


@violates("IOVA-06")
class HugeOffsetsOfSmallPages(Device):
    """In huge pages only the offset within a small page is taken from an hca_va that is not aligned."""

    def translate(self, region: Region, addr: int) -> int:
        place = super().translate(region, addr)
        if region.iova % HUGEPAGE and self.memory.is_special("huge", region.addr, region.length):
            return region.addr + (place - region.addr) % HUGEPAGE
        return place


@violates("IOVA-06")
class HugeRegionsEndAtAnAlignedAddress(Device):
    """A region of huge pages ends at the last multiple of a huge page in its addresses."""

    def contains(self, region: Region, addr: int, length: int) -> bool:
        if region.iova % HUGEPAGE and self.memory.is_special("huge", region.addr, region.length):
            end = (region.iova + region.length) // HUGEPAGE * HUGEPAGE
            return addr + length <= end and super().contains(region, addr, length)
        return super().contains(region, addr, length)


@violates("IOVA-06")
class HugeRegionsNeedAFittingAddress(Device):
    """A region of huge pages is refused if its hca_va has another offset within a huge page than its memory."""

    def reg_mr_iova(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        if (hca_va - addr) % HUGEPAGE and self.memory.is_special("huge", addr, length):
            raise Refused(errno.EINVAL)
        return super().reg_mr_iova(pd, addr, length, hca_va, access)


class _Asynchronous(Device):
    """A device that knows whether advice has FLUSH."""

    flushed = True

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        """Follows advice."""
        self.flushed = bool(flags & FLUSH)
        super().advise(pd, advice, flags, sg_list)


@violates("ADV-15")
class AsynchronousAdviceForEveryDomain(_Asynchronous):
    """Without FLUSH advice on a region of another PD is followed."""

    def foreign(self, domain: Domain, region: Region) -> bool:
        return self.flushed and super().foreign(domain, region)


@violates("ADV-15")
class AsynchronousAdviceUnmapsForeignRegions(_Asynchronous):
    """Without FLUSH a region of another PD cannot be used any more."""

    def foreign(self, domain: Domain, region: Region) -> bool:
        found = super().foreign(domain, region)
        if found and not self.flushed:
            region.usable = False
        return found


@violates("ADV-15")
class AsynchronousAdviceOnPinnedRegions(_Asynchronous):
    """Without FLUSH advice on a pinned region takes the right to be read from it."""

    def not_on_demand(self, region: Region) -> bool:
        found = super().not_on_demand(region)
        if found and not self.flushed:
            region.access &= ~REMOTE_READ
        return found


@violates("ADV-15")
class ElementsBeforeABadOneAreFollowedForOthers(_Asynchronous):
    """Without FLUSH PREFETCH_WRITE brings the pages of every region in before it looks at the domain."""

    def element_fault(self, domain: Domain, advice: int, region: Region, sge: Sge) -> int:
        if not self.flushed and advice == PREFETCH_WRITE:
            self.memory.fault_in(region.addr + sge.addr - region.iova, sge.length, write=True)
        return super().element_fault(domain, advice, region, sge)


@violates("ADV-02")
class PrefetchWriteOnlyReads(Device):
    """PREFETCH_WRITE brings pages in as PREFETCH does, to be read."""

    def follow(self, addr: int, length: int, advice: int, flags: int) -> bool:
        return super().follow(addr, length, PREFETCH if advice == PREFETCH_WRITE else advice, flags)


@violates("REG-09a")
class OrdinaryMemoryIsPersistent(Device):
    """A flush reports ordinary memory as persistent."""

    def is_persistent(self, addr: int, length: int) -> bool:
        return True


@violates("REG-09a")
class ShortFlushesArePersistent(Device):
    """A flush of at most 64 bytes reports ordinary memory as persistent."""

    def is_persistent(self, addr: int, length: int) -> bool:
        return length <= 64 or super().is_persistent(addr, length)


@violates("REG-09a")
class PagesArePersistent(Device):
    """A flush from the beginning of a page reports ordinary memory as persistent."""

    def is_persistent(self, addr: int, length: int) -> bool:
        return addr % PAGE == 0 or super().is_persistent(addr, length)


class _RightsUnchecked(Device):
    """A device that grants rights to write over read-only memory by a change of access, and writes by force."""

    def change_fault(self, addr: int, length: int, access: int, flags: int) -> int:
        """Looks at the memory only for a new translation."""
        if flags & CHANGE_TRANSLATION:
            return super().change_fault(addr, length, access, flags)
        return self.access_fault(access)

    def make_writable(self, addr: int, length: int) -> None:
        """Removes the protection of the pages of a range."""
        start = addr // PAGE * PAGE
        _libc.mprotect(start, addr + length - start, mmap.PROT_READ | mmap.PROT_WRITE)


@violates("REREG-16")
class ReadOnlyMemoryOpensToWrites(_RightsUnchecked):
    """After a change of access a peer's write arrives in read-only memory."""

    def put(self, addr: int, content: bytes) -> bool:
        self.make_writable(addr, len(content))
        return super().put(addr, content)


@violates("REREG-16")
class ReadOnlyMemoryOpensToReceives(_RightsUnchecked):
    """After a change of access a message is received into read-only memory."""

    def allows_local_write(self, region: Region) -> bool:
        allowed = super().allows_local_write(region)
        if allowed:
            self.make_writable(region.addr, region.length)
        return allowed


@violates("REREG-16")
class ReadOnlyMemoryOpensToAtomics(_RightsUnchecked):
    """After a change of access an atomic changes read-only memory."""

    def remote(self, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int) -> int | None:
        found = super().remote(rkey, domain, queue, addr, length, right)
        if found is not None and right == RIGHTS["ATOMIC_FETCH_AND_ADD"]:
            self.make_writable(found, length)
        return found


@violates("REREG-17")
class OnDemandRegionsKeepTheirDomain(Device):
    """CHANGE_PD of an on-demand region succeeds, and the region stays in its domain."""

    def move(self, region: Region, domain: Domain) -> None:
        if not region.access & ON_DEMAND:
            super().move(region, domain)


@violates("REREG-17")
class OwnAddressesAreLostWithTheDomain(Device):
    """After a change of PD a region has the addresses of the process."""

    def wanted(self, region: Region, change: Change) -> tuple[Domain, int, int, int, int]:
        domain, addr, length, iova, access = super().wanted(region, change)
        return domain, addr, length, addr if change.flags & CHANGE_PD else iova, access


@violates("REREG-17")
class RefusedChangesMoveTheRegion(Device):
    """A change that is refused because of a bound window has moved the region to the new domain, with its rights."""

    def change(self, handle: int, change: Change) -> Region:
        region = self.regions.get(handle)
        if region is not None and region.windows and change.flags & CHANGE_PD and change.pd in self.domains:
            self.move(region, self.domain_of(change.pd))
            region.access |= change.access
        return super().change(handle, change)


@violates("REREG-17")
class RefusedChangesHoldTheNewDomain(Device):
    """A refused change of PD counts the region in both domains."""

    def apply(self, region: Region, change: Change) -> None:
        try:
            super().apply(region, change)
        except Refused:
            if change.flags & CHANGE_PD:
                self.domain_of(change.pd or 0).users += 1
            raise
