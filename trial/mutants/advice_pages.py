"""Advice that is followed: which pages are present afterwards."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from conformance.bench.calls import Sge
from reference.advice import FLUSH, PREFETCH, PREFETCH_NO_FAULT, PREFETCH_WRITE
from reference.device import Device
from reference.memory import PAGE
from reference.objects import LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, Domain, Refused, Region
from trial.violation import permits, plain, violates


@violates("ADV-01", Device.element_fault)
def prefetch_needs_write_access(self: Device, domain: Domain, advice: int, region: Region, sge: Sge) -> int:
    """PREFETCH of a region that is not writable is refused."""
    wrong = advice == PREFETCH and not region.access & LOCAL_WRITE
    return errno.EPERM if wrong else plain(self).element_fault(domain, advice, region, sge)


@violates("ADV-01", Device.element_fault)
def prefetch_is_input(self: Device, domain: Domain, advice: int, region: Region, sge: Sge) -> int:
    """PREFETCH is refused with EINVAL."""
    return errno.EINVAL if advice == PREFETCH else plain(self).element_fault(domain, advice, region, sge)


@violates("ADV-01", Device.element_fault, written="blind")
def prefetch_of_whole_pages_only(self: Device, domain: Domain, advice: int, region: Region, sge: Sge) -> int:
    """PREFETCH of a range that does not begin with a page fails."""
    if advice == PREFETCH and sge.addr % PAGE:
        return errno.EINVAL
    return plain(self).element_fault(domain, advice, region, sge)


@violates("ADV-01", Device.element_fault, written="blind")
def prefetch_needs_a_right(self: Device, domain: Domain, advice: int, region: Region, sge: Sge) -> int:
    """PREFETCH of an on-demand region without any remote right and without LOCAL_WRITE fails."""
    if advice == PREFETCH and not region.access & (LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE):
        return errno.EFAULT
    return plain(self).element_fault(domain, advice, region, sge)


@violates("ADV-01", Device.follow, written="blind")
def prefetch_of_several_pages_fails(self: Device, addr: int, length: int, advice: int, flags: int) -> bool:
    """PREFETCH with FLUSH of more than one page returns EFAULT though all is well."""
    done = plain(self).follow(addr, length, advice, flags)
    return done and not (advice == PREFETCH and flags & FLUSH and length > PAGE)


@permits("ADV-01", Device.advise)
def advice_on_nothing_refused(self: Device, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
    """Advice on an empty list is refused."""
    if not sg_list:
        self.domain_of(-1)
    plain(self).advise(pd, advice, flags, sg_list)


@violates("ADV-02", Device.element_fault)
def prefetch_write_is_input(self: Device, domain: Domain, advice: int, region: Region, sge: Sge) -> int:
    """PREFETCH_WRITE is refused with EINVAL."""
    return errno.EINVAL if advice == PREFETCH_WRITE else plain(self).element_fault(domain, advice, region, sge)


@violates("ADV-02", Device.not_writable)
def prefetch_write_never(self: Device, region: Region) -> bool:
    """PREFETCH_WRITE is refused for writable regions too."""
    return True


@violates("ADV-02", Device.not_writable, written="blind")
def write_prefetch_needs_remote_write(self: Device, region: Region) -> bool:
    """PREFETCH_WRITE on an on-demand region with LOCAL_WRITE and without REMOTE_WRITE is refused."""
    return not region.access & REMOTE_WRITE


@violates("ADV-02", Device.advise, written="blind")
def write_prefetch_needs_flush(self: Device, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
    """PREFETCH_WRITE without FLUSH is refused."""
    if advice == PREFETCH_WRITE and not flags & FLUSH:
        raise Refused(errno.EINVAL)
    plain(self).advise(pd, advice, flags, sg_list)


@violates("ADV-03", Device.follow)
def no_fault_faults(self: Device, addr: int, length: int, advice: int, flags: int) -> bool:
    """PREFETCH_NO_FAULT faults pages in like PREFETCH."""
    return plain(self).follow(addr, length, PREFETCH if advice == PREFETCH_NO_FAULT else advice, flags)


@violates("ADV-03", Device.element_fault)
def no_fault_is_input(self: Device, domain: Domain, advice: int, region: Region, sge: Sge) -> int:
    """PREFETCH_NO_FAULT is refused with EINVAL."""
    return errno.EINVAL if advice == PREFETCH_NO_FAULT else plain(self).element_fault(domain, advice, region, sge)


@violates("ADV-03", Device.follow, name="no-fault-faults", written="blind")
def no_fault_faults_for_writing(self: Device, addr: int, length: int, advice: int, flags: int) -> bool:
    """PREFETCH_NO_FAULT brings in the pages of its range."""
    if advice == PREFETCH_NO_FAULT:
        self.memory.fault_in(addr, length, write=True)
    return plain(self).follow(addr, length, advice, flags)


@violates("ADV-03", Device.follow, written="blind")
def no_fault_needs_flush(self: Device, addr: int, length: int, advice: int, flags: int) -> bool:
    """PREFETCH_NO_FAULT fails with FLUSH."""
    return plain(self).follow(addr, length, advice, flags) and not (advice == PREFETCH_NO_FAULT and flags & FLUSH)


@violates("ADV-03", Device.element_fault, written="blind")
def no_fault_unknown(self: Device, domain: Domain, advice: int, region: Region, sge: Sge) -> int:
    """PREFETCH_NO_FAULT is refused with EINVAL where the region cannot be written."""
    if advice == PREFETCH_NO_FAULT and self.not_writable(region):
        return errno.EINVAL
    return plain(self).element_fault(domain, advice, region, sge)


@violates("ADV-04", name="flush-is-ignored", written="blind")
@violates("ADV-04", Device.follow)
def flush_does_nothing(self: Device, addr: int, length: int, advice: int, flags: int) -> bool:
    """Prefetching with FLUSH returns 0 and makes no page resident."""
    return True


@violates("ADV-04", Device.follow)
def flush_of_the_first_page(self: Device, addr: int, length: int, advice: int, flags: int) -> bool:
    """Prefetching with FLUSH makes only the first page resident."""
    return plain(self).follow(addr, min(length, PAGE), advice, flags)


@violates("ADV-04", Device.follow, written="blind")
def flush_brings_the_first_page(self: Device, addr: int, length: int, advice: int, flags: int) -> bool:
    """With FLUSH only the first page of a range is there when the call returns."""
    return plain(self).follow(addr, min(length, PAGE - addr % PAGE), advice, flags)


@permits("ADV-04", Device.follow, written="blind")
def flush_brings_whole_pages_in(self: Device, addr: int, length: int, advice: int, flags: int) -> bool:
    """Advice brings in the whole pages around its range."""
    done = plain(self).follow(addr, length, advice, flags)
    if done and advice != PREFETCH_NO_FAULT:
        self.memory.fault_in(addr // PAGE * PAGE, -(-(addr % PAGE + length) // PAGE) * PAGE, write=False)
    return done


@violates("ADV-14", Device.follow)
def advice_clears_pages(self: Device, addr: int, length: int, advice: int, flags: int) -> bool:
    """Prefetching for writing clears the pages."""
    there = plain(self).follow(addr, length, advice, flags)
    if there and advice == PREFETCH_WRITE:
        self.memory.write(addr, bytes(length))
    return there


@violates("ADV-14", Device.element_fault)
def advice_of_whole_pages(self: Device, domain: Domain, advice: int, region: Region, sge: Sge) -> int:
    """Advice on a range that does not consist of whole pages is refused."""
    odd = sge.addr % PAGE or sge.length % PAGE
    return plain(self).element_fault(domain, advice, region, sge) or (errno.EINVAL if odd else 0)


@violates("ADV-14", Device.element)
def advised_regions_are_closed(self: Device, domain: Domain, advice: int, sge: Sge) -> tuple[int, int]:
    """After advice the region can no longer be accessed."""
    found = plain(self).element(domain, advice, sge)
    self.advised(sge.lkey).usable = False
    return found


@violates("ADV-14", Device.follow, written="blind")
def write_prefetch_clears_the_last_page(self: Device, addr: int, length: int, advice: int, flags: int) -> bool:
    """PREFETCH_WRITE of several pages clears the last byte of the range."""
    done = plain(self).follow(addr, length, advice, flags)
    if done and advice == PREFETCH_WRITE and length > PAGE:
        self.memory.write(addr + length - 1, b"\0")
    return done


@violates("ADV-14", Device.element, written="blind")
def prefetched_for_reading_stays_so(self: Device, domain: Domain, advice: int, sge: Sge) -> tuple[int, int]:
    """After PREFETCH with FLUSH peers can no longer write the region."""
    found = plain(self).element(domain, advice, sge)
    if advice == PREFETCH:
        self.advised(sge.lkey).access &= ~REMOTE_WRITE
    return found


@violates("ADV-14", Device.advice_out_of_bounds, written="blind")
def last_bytes_cannot_be_advised(self: Device, region: Region, sge: Sge) -> bool:
    """A range that ends with a region not ending with a page is refused."""
    end = region.iova + region.length
    return plain(self).advice_out_of_bounds(region, sge) or (end % PAGE > 0 and sge.addr + sge.length == end)


@violates("ADV-14", Device.element_fault, written="blind")
def odd_lengths_cannot_be_advised(self: Device, domain: Domain, advice: int, region: Region, sge: Sge) -> int:
    """A range of an odd number of bytes within the region is refused."""
    return plain(self).element_fault(domain, advice, region, sge) or (errno.EINVAL if sge.length % 2 else 0)


@permits("ADV-14", Device.follow, name="advice-of-whole-pages")
def advice_made_of_whole_pages(self: Device, addr: int, length: int, advice: int, flags: int) -> bool:
    """Advice makes all pages of its range resident as a whole, also without FLUSH and also for writing."""
    start = addr // PAGE * PAGE
    return plain(self).follow(start, -(-(addr + length) // PAGE) * PAGE - start, advice, flags)


@permits("ADV-14", written="blind")
class OnlyFlushedAdviceIsFollowed(Device):
    """PREFETCH_NO_FAULT and advice without FLUSH do nothing at all."""

    def follow(self, addr: int, length: int, advice: int, flags: int) -> bool:
        return True if not flags & FLUSH or advice == PREFETCH_NO_FAULT else super().follow(addr, length, advice, flags)


@permits("ADV-14", Device.advise, written="blind")
def advice_without_elements_refused(self: Device, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
    """Advice on no element at all is refused."""
    if not sg_list and self.stack.has("advise_mr"):
        raise Refused(errno.EINVAL)
    plain(self).advise(pd, advice, flags, sg_list)
