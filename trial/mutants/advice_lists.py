"""Advice: keys, and lists of several elements."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from conformance.bench.calls import Sge
from reference.advice import FLUSH
from reference.device import Device
from reference.objects import LOCAL_WRITE, ON_DEMAND, Domain, Region
from trial.violation import permits, plain, violates


class _Asynchronous(Device):
    """A device that knows whether advice has FLUSH."""

    flushed = True

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        """Follows advice."""
        self.flushed = bool(flags & FLUSH)
        super().advise(pd, advice, flags, sg_list)


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


@violates("ADV-11", Device.advised, written="blind")
def any_tag_advised(self: Device, lkey: int) -> Region:
    """An lkey with the index of a region and another tag is accepted."""
    for key, found in self.keys.items():
        if key >> 8 == lkey >> 8 and isinstance(found, Region):
            return found
    return plain(self).advised(lkey)


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
