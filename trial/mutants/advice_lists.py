"""Advice: keys, and lists of several elements."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from conformance.bench.calls import Sge
from reference.advice import FLUSH, PREFETCH, PREFETCH_WRITE
from reference.device import Device
from reference.objects import LOCAL_WRITE, ON_DEMAND, REMOTE_READ, Domain, Refused, Region
from trial.violation import permits, plain, violates


class _Asynchronous(Device):
    """A device that knows whether advice has FLUSH."""

    flushed = True

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        """Follows advice."""
        self.flushed = bool(flags & FLUSH)
        super().advise(pd, advice, flags, sg_list)


@violates("ADV-05", name="pinned-regions-accepted", written="blind")
@violates("ADV-05", Device.not_on_demand)
def plain_regions_advised(self: Device, region: Region) -> bool:
    """Advice on regions that are not on demand is accepted."""
    return False


@violates("ADV-05", Device.element_fault, written="blind")
def pinned_regions_accepted_for_writing(self: Device, domain: Domain, advice: int, region: Region, sge: Sge) -> int:
    """PREFETCH_WRITE of a region with LOCAL_WRITE that is none of on-demand paging returns 0."""
    if advice == PREFETCH_WRITE and region.domain is domain and region.access & LOCAL_WRITE:
        return errno.EFAULT if self.advice_out_of_bounds(region, sge) else 0
    return plain(self).element_fault(domain, advice, region, sge)


@violates("ADV-05", written="blind")
class PinnedRegionInASecondElement(Device):
    """Only the first element's lkey has to be of an on-demand region."""

    _later = False

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        self._later = False
        super().advise(pd, advice, flags, sg_list)

    def not_on_demand(self, region: Region) -> bool:
        later, self._later = self._later, True
        return not later and super().not_on_demand(region)


@permits("ADV-05")
class PlainAdviceNotFound(Device):
    """Advice on a region that is not on demand returns ENOENT."""

    def element_fault(self, domain: Domain, advice: int, region: Region, sge: Sge) -> int:
        ordinary = not self.foreign(domain, region) and self.not_on_demand(region)
        return errno.ENOENT if ordinary else super().element_fault(domain, advice, region, sge)


@violates("ADV-10", Device.foreign)
def foreign_advised(self: Device, domain: Domain, region: Region) -> bool:
    """It is not checked whether a region belongs to the given PD."""
    return False


@violates("ADV-10", Device.element)
def foreign_is_input(self: Device, domain: Domain, advice: int, sge: Sge) -> tuple[int, int]:
    """A region of another PD returns EINVAL."""
    if self.foreign(domain, self.advised(sge.lkey)):
        raise Refused(errno.EINVAL)
    return plain(self).element(domain, advice, sge)


@violates("ADV-10", Device.not_writable)
def any_region_prefetched_for_writing(self: Device, region: Region) -> bool:
    """It is not checked whether a region is writable."""
    return False


@violates("ADV-10", Device.element_fault, written="blind")
def foreign_region_advised(self: Device, domain: Domain, advice: int, region: Region, sge: Sge) -> int:
    """A region of another PD is advised for reading."""
    return plain(self).element_fault(region.domain if advice == PREFETCH else domain, advice, region, sge)


@violates("ADV-10", Device.element_fault, written="blind")
def foreign_region_answers_einval(self: Device, domain: Domain, advice: int, region: Region, sge: Sge) -> int:
    """A region of another PD is answered with EINVAL instead of EPERM."""
    if self.foreign(domain, region):
        return errno.EINVAL
    return plain(self).element_fault(domain, advice, region, sge)


@violates("ADV-10", Device.not_writable, written="blind")
def write_prefetch_of_readable_region(self: Device, region: Region) -> bool:
    """PREFETCH_WRITE of a region with REMOTE_READ and no right that writes returns 0."""
    return plain(self).not_writable(region) and not region.access & REMOTE_READ


@permits("ADV-10", Device.element_fault, written="blind")
def bounds_are_checked_before_the_domain(self: Device, domain: Domain, advice: int, region: Region, sge: Sge) -> int:
    """Of several faults of one element the range is found before the domain."""
    if self.advice_out_of_bounds(region, sge) and not self.not_on_demand(region):
        return errno.EFAULT
    return plain(self).element_fault(domain, advice, region, sge)


@violates("ADV-11", name="other-tag-answers-eperm", written="blind")
@violates("ADV-11", Device.other_tag)
def other_tag_is_permission(self: Device) -> int:
    """An lkey with another tag returns EPERM."""
    return errno.EPERM


@violates("ADV-11", Device.advised)
def other_tag_advised(self: Device, lkey: int) -> Region:
    """Only the index of an lkey is checked."""
    near = next((each for key, each in self.keys.items() if key >> 8 == lkey >> 8), None)
    return near if isinstance(near, Region) else plain(self).advised(lkey)


@violates("ADV-11", Device.advised, written="blind")
def any_tag_advised(self: Device, lkey: int) -> Region:
    """An lkey with the index of a region and another tag is accepted."""
    for key, found in self.keys.items():
        if key >> 8 == lkey >> 8 and isinstance(found, Region):
            return found
    return plain(self).advised(lkey)


@violates("ADV-11", Device.other_tag, written="blind")
def other_tag_answers_einval(self: Device) -> int:
    """An lkey with the index of a region and another tag is answered with EINVAL."""
    return errno.EINVAL


@permits("ADV-11", Device.other_tag, written="blind")
def other_tag_is_efault(self: Device) -> int:
    """An lkey with another tag is EFAULT, as one that is invalid."""
    return errno.EFAULT


@violates("ADV-13", Device.advise)
def first_element_only(self: Device, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
    """Only the first element of the list is checked."""
    plain(self).advise(pd, advice, flags, sg_list[:1])


@violates("ADV-13", Device.advise)
def last_element_only(self: Device, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
    """Only the last element of the list is checked."""
    plain(self).advise(pd, advice, flags, sg_list[-1:])


@violates("ADV-13", Device.advise)
def one_element_only(self: Device, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
    """A list of more than one element is refused."""
    if len(sg_list) > 1:
        raise Refused(errno.EINVAL)
    plain(self).advise(pd, advice, flags, sg_list)


@violates("ADV-13", Device.advise, written="blind")
def last_element_unchecked(self: Device, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
    """The last of several elements is not looked at."""
    plain(self).advise(pd, advice, flags, sg_list[:-1] if len(sg_list) > 1 else sg_list)


@violates("ADV-13", Device.advise, written="blind")
def two_elements_at_most(self: Device, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
    """More than two elements are refused."""
    if len(sg_list) > 2:
        raise Refused(errno.EINVAL)
    plain(self).advise(pd, advice, flags, sg_list)


@violates("ADV-13", Device.advise, written="blind")
def middle_elements_unchecked(self: Device, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
    """Of three or more elements only the first and the last are looked at."""
    plain(self).advise(pd, advice, flags, [sg_list[0], sg_list[-1]] if len(sg_list) > 2 else sg_list)


@violates("ADV-13", Device.advise, written="blind")
def elements_of_two_regions_refused(self: Device, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
    """Elements of two regions are refused."""
    if len({each.lkey for each in sg_list} & set(self.keys)) > 1:
        raise Refused(errno.EINVAL)
    plain(self).advise(pd, advice, flags, sg_list)


@violates("ADV-15", _Asynchronous.foreign)
def asynchronous_advice_for_every_domain(self: _Asynchronous, domain: Domain, region: Region) -> bool:
    """Without FLUSH advice on a region of another PD is followed."""
    return self.flushed and plain(self).foreign(domain, region)


@violates("ADV-15", _Asynchronous.foreign)
def asynchronous_advice_unmaps_foreign_regions(self: _Asynchronous, domain: Domain, region: Region) -> bool:
    """Without FLUSH a region of another PD cannot be used any more."""
    found = plain(self).foreign(domain, region)
    if found and not self.flushed:
        region.usable = False
    return found


@violates("ADV-15", _Asynchronous.not_on_demand)
def asynchronous_advice_on_pinned_regions(self: _Asynchronous, region: Region) -> bool:
    """Without FLUSH advice on a pinned region takes the right to be read from it."""
    found = plain(self).not_on_demand(region)
    if found and not self.flushed:
        region.access &= ~REMOTE_READ
    return found


@violates("ADV-15", _Asynchronous.element_fault)
def elements_before_a_bad_one_are_followed_for_others(
    self: _Asynchronous, domain: Domain, advice: int, region: Region, sge: Sge
) -> int:
    """Without FLUSH PREFETCH_WRITE brings the pages of every region in before it looks at the domain."""
    if not self.flushed and advice == PREFETCH_WRITE:
        self.memory.fault_in(region.addr + sge.addr - region.iova, sge.length, write=True)
    return plain(self).element_fault(domain, advice, region, sge)


@violates("ADV-15", Device.advise, written="blind")
def unflushed_advice_brings_foreign_pages_in(
    self: Device, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]
) -> None:
    """Without FLUSH the pages of another PD's on-demand region are brought in to be written."""
    if not flags & FLUSH:
        for sge in sg_list:
            found = self.keys.get(sge.lkey)
            if not isinstance(found, Region) or not found.access & ON_DEMAND or found.domain.handle == pd:
                continue
            if self.contains(found, sge.addr, sge.length):
                self.memory.fault_in(self.translate(found, sge.addr), sge.length, not self.not_writable(found))
    plain(self).advise(pd, advice, flags, sg_list)


@violates("ADV-15", written="blind")
class UnflushedAdviceTakesTheRegionOver(Device):
    """Without FLUSH advice on another PD's region returns 0, and the region belongs to the caller's PD from then on."""

    def element_fault(self, domain: Domain, advice: int, region: Region, sge: Sge) -> int:
        if not self._flushed and region.domain is not domain:
            region.domain.users -= 1
            region.domain = domain
            domain.users += 1
        return super().element_fault(domain, advice, region, sge)

    _flushed = False

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        self._flushed = bool(flags & FLUSH)
        super().advise(pd, advice, flags, sg_list)


@violates("ADV-15", written="blind")
class UnflushedAdviceOnPinnedRegionMakesItOnDemand(Device):
    """Without FLUSH advice on a pinned region returns 0 and ends the region's use by peers."""

    _flushed = False

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        self._flushed = bool(flags & FLUSH)
        super().advise(pd, advice, flags, sg_list)

    def not_on_demand(self, region: Region) -> bool:
        pinned = super().not_on_demand(region)
        if pinned and not self._flushed:
            region.access &= LOCAL_WRITE
            return False
        return pinned


@permits("ADV-15", Device.advise, written="blind")
def unflushed_advice_is_not_checked(self: Device, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
    """Without FLUSH an advice on a region of another PD is taken and nothing is done."""
    if not flags & FLUSH and self.stack.has("advise_mr") and pd in self.domains and not flags:
        regions = [self.keys.get(each.lkey) for each in sg_list]
        if regions and all(isinstance(each, Region) and each.domain.handle != pd for each in regions):
            return
    plain(self).advise(pd, advice, flags, sg_list)
