"""Regions whose keys have addresses of their own."""

from __future__ import annotations

import errno

from reference.device import Device
from reference.memory import HUGEPAGE, PAGE
from reference.objects import (
    HUGETLB,
    MW_BIND,
    ON_DEMAND,
    REMOTE_ATOMIC,
    REMOTE_READ,
    REMOTE_WRITE,
    ZERO_BASED,
    Domain,
    Refused,
    Region,
)
from trial.blind.watching import ATOMICS, Watching
from trial.violation import violates


def _moved(region: Region) -> bool:
    """Whether keys have other addresses than this process."""
    return region.iova != region.addr


@violates("IOVA-01")
class SameAddressLosesAtomics(Device):
    """With hca_va equal to addr the region has no REMOTE_ATOMIC."""

    def reg_mr_iova(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        made = super().reg_mr_iova(pd, addr, length, hca_va, access)
        if hca_va == addr:
            made.access &= ~REMOTE_ATOMIC
        return made


@violates("IOVA-01")
class SameAddressNeedsWholePages(Device):
    """With hca_va equal to addr a length that is not one of whole pages is refused."""

    def reg_mr_iova(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        if hca_va == addr and length % PAGE:
            raise Refused(errno.EINVAL)
        return super().reg_mr_iova(pd, addr, length, hca_va, access)


@violates("IOVA-01")
class SameAddressForgetsZeroBased(Device):
    """With hca_va equal to addr ZERO_BASED has no effect."""

    def reg_mr_iova(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        made = super().reg_mr_iova(pd, addr, length, hca_va, access)
        if hca_va == addr:
            made.iova = addr
        return made


@violates("IOVA-02")
class PlaceWithinThePageIsTakenFromTheKey(Device):
    """Where addr and hca_va have other offsets within a page, bytes are found by the offset of hca_va."""

    def translate(self, region: Region, addr: int) -> int:
        if not _moved(region) or not region.iova:
            return super().translate(region, addr)
        return region.addr // PAGE * PAGE + addr - region.iova // PAGE * PAGE


@violates("IOVA-02")
class SecondPageOfMovedRegionWrong(Device):
    """In a region moved by part of a page everything behind its first page is found eight bytes too low."""

    def translate(self, region: Region, addr: int) -> int:
        place = super().translate(region, addr)
        shifted = region.iova and (region.iova - region.addr) % PAGE and addr - region.iova >= PAGE
        return place - 8 if shifted else place


@violates("IOVA-02")
class KeyAddressesOfThirtyTwoBits(Device):
    """Of an hca_va beyond 4 GiB only the lower 32 bits are kept."""

    def reg_mr_iova(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        return super().reg_mr_iova(pd, addr, length, hca_va if hca_va == addr else hca_va & 0xFFFFFFFF, access)


@violates("IOVA-02a")
class KeyAddressesAreSigned(Device):
    """An hca_va with its highest bit set is refused."""

    def reg_mr_iova(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        if hca_va >> 63:
            raise Refused(errno.EINVAL)
        return super().reg_mr_iova(pd, addr, length, hca_va, access)


@violates("IOVA-02")
class ElementsByPointerInMovedRegions(Device):
    """hca_va is heeded for rkeys only: elements of lists take this process's addresses."""

    def local(self, lkey: int, domain: Domain, addr: int, length: int, write: bool) -> int | None:
        found = self.found(lkey)
        if isinstance(found, Region) and _moved(found) and not found.access & ZERO_BASED and found.iova:
            addr = addr - found.addr + found.iova if addr >= found.addr else 0
        return super().local(lkey, domain, addr, length, write)


@violates("IOVA-02")
class LastByteOfMovedRegionsClosed(Device):
    """The last byte of a region with another hca_va cannot be reached."""

    def contains(self, region: Region, addr: int, length: int) -> bool:
        last = region.iova and _moved(region) and addr + length == region.iova + region.length
        return super().contains(region, addr, length) and not last


@violates("IOVA-02")
class AtomicsByPointerInMovedRegions(Watching):
    """Atomics on a region with another hca_va are put where the key's address would lie without its page offset."""

    def translate(self, region: Region, addr: int) -> int:
        place = super().translate(region, addr)
        return place // PAGE * PAGE + addr % PAGE if self.opcode in ATOMICS and region.iova else place


@violates("IOVA-03")
class HcaVaZeroMeansAddr(Device):
    """An hca_va of 0 is taken for one that was not given: keys use the address."""

    def reg_mr_iova(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        return super().reg_mr_iova(pd, addr, length, hca_va or addr, access)


@violates("IOVA-03")
class HcaVaZeroBeginsWithThePage(Device):
    """With hca_va 0 the first byte has the offset that addr has within its page."""

    def reg_mr_iova(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        return super().reg_mr_iova(pd, addr, length, hca_va or addr % PAGE, access)


@violates("IOVA-03")
class HcaVaZeroReadsByAddress(Device):
    """With hca_va 0 remote reads take addresses, other operations offsets."""

    def remote(self, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int) -> int | None:
        found = self.found(rkey)
        if isinstance(found, Region) and not found.access & ZERO_BASED and not found.iova and right == REMOTE_READ:
            addr = addr - found.addr if addr >= found.addr > 0 else found.length + 1
        return super().remote(rkey, domain, queue, addr, length, right)


@violates("IOVA-04")
class MovedRemoteWriteAlone(Device):
    """With another hca_va REMOTE_WRITE needs no LOCAL_WRITE."""

    _moves = False

    def reg_mr_iova(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        self._moves = hca_va != addr
        try:
            return super().reg_mr_iova(pd, addr, length, hca_va, access)
        finally:
            self._moves = False

    def write_alone(self, access: int) -> bool:
        return not self._moves and super().write_alone(access)


@violates("IOVA-04")
class MovedUnknownBitsAccepted(Device):
    """ibv_reg_mr_iova accepts unknown mandatory bits above the ninth."""

    def reg_mr_iova(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        return super().reg_mr_iova(pd, addr, length, hca_va, access & ~0xC00)


@violates("IOVA-04")
class MovedRegionsCannotBeBound(Device):
    """ibv_reg_mr_iova drops MW_BIND where hca_va is not addr."""

    def reg_mr_iova(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        made = super().reg_mr_iova(pd, addr, length, hca_va, access)
        if hca_va != addr:
            made.access &= ~MW_BIND
        return made


@violates("IOVA-04")
class MovedRegionsReadableAsWritable(Device):
    """A region with another hca_va and REMOTE_WRITE can be read remotely too."""

    def allows(self, region: Region, right: int) -> bool:
        reads = right == REMOTE_READ and _moved(region) and region.access & REMOTE_WRITE
        return super().allows(region, right) or bool(reads and not region.access & ZERO_BASED)


@violates("IOVA-05")
class OnDemandIgnoresHcaVa(Device):
    """The keys of an on-demand region take its addresses whatever hca_va was asked for."""

    def reg_mr_iova(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        return super().reg_mr_iova(pd, addr, length, addr if access & ON_DEMAND and hca_va else hca_va, access)


@violates("IOVA-05")
class OnDemandPagesByKeyAddress(Device):
    """An on-demand region finds pages by whole pages of hca_va and loses a differing offset within the page."""

    def translate(self, region: Region, addr: int) -> int:
        place = super().translate(region, addr)
        if region.access & ON_DEMAND and region.iova:
            place -= (region.addr - region.iova) % PAGE
        return place


@violates("IOVA-05")
class OnDemandFarHcaVaRefused(Device):
    """An on-demand region whose hca_va is more than 2^47 away from addr is refused."""

    def reg_mr_iova(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        if access & ON_DEMAND and abs(hca_va - addr) >> 47:
            raise Refused(errno.EINVAL)
        return super().reg_mr_iova(pd, addr, length, hca_va, access)


@violates("IOVA-06")
class HugeNeedsAlignedHcaVa(Device):
    """A region of huge pages whose hca_va is not aligned to them is refused."""

    def reg_mr_iova(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        if self.memory.is_special("huge", addr, length) and (hca_va - addr) % HUGEPAGE:
            raise Refused(errno.EINVAL)
        return super().reg_mr_iova(pd, addr, length, hca_va, access)


@violates("IOVA-06")
class HugePagesFoundByKeyAddress(Device):
    """In huge pages what lies beyond a multiple of the huge page in key addresses is found a huge page too low."""

    def translate(self, region: Region, addr: int) -> int:
        place = super().translate(region, addr)
        huge = self.memory.is_special("huge", region.addr, region.length) and region.length > HUGEPAGE
        beyond = addr // HUGEPAGE > region.iova // HUGEPAGE and (region.iova - region.addr) % HUGEPAGE
        return place - HUGEPAGE if huge and beyond and place - HUGEPAGE >= region.addr else place


@violates("IOVA-06")
class HugeOffsetWithinThePageFromTheKey(Device):
    """A region registered with HUGETLB takes the offset within a huge page from the key's address."""

    def translate(self, region: Region, addr: int) -> int:
        place = super().translate(region, addr)
        if region.access & HUGETLB and region.access & ON_DEMAND and region.iova:
            return place // HUGEPAGE * HUGEPAGE + addr % HUGEPAGE
        return place
