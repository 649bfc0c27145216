"""On-demand regions, and implicit ones."""

from __future__ import annotations

import ctypes
import errno

from conformance.bench.calls import IbvMr, Pd
from reference.device import Device
from reference.memory import PAGE, Memory
from reference.objects import HUGETLB, ON_DEMAND, REMOTE_ATOMIC, REMOTE_READ, Domain, Refused, Region
from trial.violation import permits, plain, violates


class _RememberingMemory(Memory):
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


@violates("REG-12", Device.translate)
def offset_within_the_page_lost(self: Device, region: Region, addr: int) -> int:
    """On-demand regions lose the offset within the page."""
    found = plain(self).translate(region, addr)
    return found // PAGE * PAGE if region.access & ON_DEMAND else found


@violates("REG-12", Device.contains)
def only_the_first_page_is_found(self: Device, region: Region, addr: int, length: int) -> bool:
    """Only the first page of an on-demand region can be accessed."""
    beyond = region.access & ON_DEMAND and addr - region.iova >= PAGE
    return not beyond and plain(self).contains(region, addr, length)


@violates("REG-12", Device.contains)
def on_demand_by_pages(self: Device, region: Region, addr: int, length: int) -> bool:
    """An on-demand region extends to the ends of its pages."""
    if not region.access & ON_DEMAND:
        return plain(self).contains(region, addr, length)
    start, end = region.iova // PAGE * PAGE, -(-(region.iova + region.length) // PAGE) * PAGE
    return start <= addr and addr + length <= end


@violates("REG-12", Device.range_fault)
def on_demand_pinned(self: Device, addr: int, length: int, access: int) -> int:
    """An on-demand region is pinned, so its memory must be mapped when it is registered."""
    implicit = self.is_implicit(addr, length, access)
    return plain(self).range_fault(addr, length, access if implicit else access & ~ON_DEMAND & ~HUGETLB)


@violates("REG-12", Device.range_fault, written="blind")
def on_demand_counts_as_pinned(self: Device, addr: int, length: int, access: int) -> int:
    """On-demand regions count against the limit of locked memory."""
    fault = plain(self).range_fault(addr, length, access)
    implicit = self.is_implicit(addr, length, access)
    if not fault and access & ON_DEMAND and not implicit and self.over_limit(addr, length):
        return errno.ENOMEM
    return fault


@violates("REG-12", Device.range_fault, written="blind")
def on_demand_memory_has_to_be_there_at_once(self: Device, addr: int, length: int, access: int) -> int:
    """An on-demand registration fails unless every page is mapped already."""
    fault = plain(self).range_fault(addr, length, access)
    implicit = self.is_implicit(addr, length, access)
    if not fault and access & ON_DEMAND and not implicit and self.not_there(addr, length, access):
        return errno.EFAULT
    return fault


@violates("REG-12", written="blind")
class OnDemandReadsTheOldPage(Device):
    """What the processor writes into an on-demand region after a first read is not seen by a second one."""

    def setup(self) -> None:
        self.memory.close()
        self.memory = self._remembering = _RememberingMemory()

    def translate(self, region: Region, addr: int) -> int:
        self._remembering.region = region.handle if region.access & ON_DEMAND else 0
        return super().translate(region, addr)


@violates("REG-12", written="blind")
class OnDemandServesNoAtomicsOnFreshPages(Device):
    """An atomic on an on-demand region fails when it is the first operation on the region."""

    def setup(self) -> None:
        self._seen: set[int] = set()

    def remote(self, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int) -> int | None:
        found = self.found(rkey)
        if isinstance(found, Region) and found.access & ON_DEMAND and found.handle not in self._seen:
            self._seen.add(found.handle)
            if right == REMOTE_ATOMIC:
                return None
        return super().remote(rkey, domain, queue, addr, length, right)


@permits("REG-12", written="blind")
class OnDemandPagesAreBroughtInAtOnce(Device):
    """An on-demand registration brings in at once what is mapped, and is content with what is not."""

    def range_fault(self, addr: int, length: int, access: int) -> int:
        fault = super().range_fault(addr, length, access)
        small = access & ON_DEMAND and not self.is_implicit(addr, length, access) and length <= 1 << 20
        if not fault and small:
            self.memory.fault_in(addr, length, write=False)
        return fault


@violates("REG-19", Device.contains)
def implicit_ends_early(self: Device, region: Region, addr: int, length: int) -> bool:
    """An implicit region ends after 4 GiB."""
    implicit = region.length == (1 << 64) - 1
    return not (implicit and addr >= 1 << 32) and plain(self).contains(region, addr, length)


@violates("REG-19", Device.structure)
def implicit_has_no_end(self: Device, region: Region, pd: Pd, addr: int, length: int) -> IbvMr:
    """The structure of an implicit region has no length."""
    return plain(self).structure(region, pd, addr, length if length != ctypes.c_size_t(-1).value else 0)


@violates("REG-19", Device.range_fault, written="blind")
def implicit_needs_remote_read(self: Device, addr: int, length: int, access: int) -> int:
    """Implicit on-demand paging is refused without REMOTE_READ."""
    if self.is_implicit(addr, length, access) and not access & REMOTE_READ:
        return errno.EINVAL
    return plain(self).range_fault(addr, length, access)


@violates("REG-19", Device.allows, written="blind")
def implicit_serves_no_atomics(self: Device, region: Region, right: int) -> bool:
    """An implicit region with REMOTE_ATOMIC refuses atomics."""
    if right == REMOTE_ATOMIC and region.addr == 0 and region.length == (1 << 64) - 1:
        return False
    return plain(self).allows(region, right)


@violates("REG-19", Device.range_fault, written="blind")
def second_implicit_region_refused(self: Device, addr: int, length: int, access: int) -> int:
    """While one implicit region exists, a second one is refused."""
    others = [each for each in self.regions.values() if self.is_implicit(each.addr, each.length, each.access)]
    if others and self.is_implicit(addr, length, access):
        return errno.EBUSY
    return plain(self).range_fault(addr, length, access)


@permits("REG-19", Device.remote, written="blind")
def implicit_regions_look_at_memory_first(
    self: Device, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int
) -> int | None:
    """An implicit region refuses memory that is not mapped when it is asked for, as an access error."""
    place = plain(self).remote(rkey, domain, queue, addr, length, right)
    found = self.found(rkey)
    if place is not None and isinstance(found, Region) and found.length == (1 << 64) - 1:
        return place if self.memory.fault_in(place, length, write=False) else None
    return place


@violates("IOVA-05", Device.translate)
def on_demand_pages_begin_at_pages(self: Device, region: Region, addr: int) -> int:
    """Keys of an on-demand region count from the beginning of the page in which it begins."""
    place = plain(self).translate(region, addr)
    return place - region.addr % PAGE if region.access & ON_DEMAND else place


@violates("IOVA-05", Device.translate)
def on_demand_does_not_advance(self: Device, region: Region, addr: int) -> int:
    """In an on-demand region with another hca_va every page is the first one."""
    place = plain(self).translate(region, addr)
    if region.access & ON_DEMAND and region.iova != region.addr:
        return region.addr + (place - region.addr) % PAGE
    return place


@violates("IOVA-05", Device.contains)
def on_demand_end_is_the_process_address(self: Device, region: Region, addr: int, length: int) -> bool:
    """The end of an on-demand region is compared with its address in the process."""
    if region.access & ON_DEMAND and region.iova > region.addr:
        return addr >= region.iova
    return plain(self).contains(region, addr, length)


@violates("IOVA-05", Device.reg_mr_iova, written="blind")
def on_demand_ignores_hca_va(self: Device, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
    """The keys of an on-demand region take its addresses whatever hca_va was asked for."""
    return plain(self).reg_mr_iova(pd, addr, length, addr if access & ON_DEMAND and hca_va else hca_va, access)


@violates("IOVA-05", Device.translate, written="blind")
def on_demand_pages_by_key_address(self: Device, region: Region, addr: int) -> int:
    """An on-demand region finds pages by whole pages of hca_va and loses a differing offset within the page."""
    place = plain(self).translate(region, addr)
    if region.access & ON_DEMAND and region.iova:
        place -= (region.addr - region.iova) % PAGE
    return place


@violates("IOVA-05", Device.reg_mr_iova, written="blind")
def on_demand_far_hca_va_refused(self: Device, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
    """An on-demand region whose hca_va is more than 2^47 away from addr is refused."""
    if access & ON_DEMAND and abs(hca_va - addr) >> 47:
        raise Refused(errno.EINVAL)
    return plain(self).reg_mr_iova(pd, addr, length, hca_va, access)
