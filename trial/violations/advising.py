"""Violations of ibv_advise_mr."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from conformance.bench.calls import Sge
from reference.advice import FLUSH, PREFETCH, PREFETCH_NO_FAULT, PREFETCH_WRITE
from reference.device import Device
from reference.memory import PAGE
from reference.objects import LOCAL_WRITE, Domain, Refused, Region, Window
from trial.violation import violates


@violates("ADV-01")
class PrefetchNeedsWriteAccess(Device):
    """PREFETCH of a region that is not writable is refused."""

    def element_fault(self, domain: Domain, advice: int, region: Region, sge: Sge) -> int:
        wrong = advice == PREFETCH and not region.access & LOCAL_WRITE
        return errno.EPERM if wrong else super().element_fault(domain, advice, region, sge)


@violates("ADV-01")
class PrefetchIsInput(Device):
    """PREFETCH is refused with EINVAL."""

    def element_fault(self, domain: Domain, advice: int, region: Region, sge: Sge) -> int:
        return errno.EINVAL if advice == PREFETCH else super().element_fault(domain, advice, region, sge)


@violates("ADV-02")
class PrefetchWriteIsInput(Device):
    """PREFETCH_WRITE is refused with EINVAL."""

    def element_fault(self, domain: Domain, advice: int, region: Region, sge: Sge) -> int:
        return errno.EINVAL if advice == PREFETCH_WRITE else super().element_fault(domain, advice, region, sge)


@violates("ADV-02")
class PrefetchWriteNever(Device):
    """PREFETCH_WRITE is refused for writable regions too."""

    def not_writable(self, region: Region) -> bool:
        return True


@violates("ADV-03")
class NoFaultFaults(Device):
    """PREFETCH_NO_FAULT faults pages in like PREFETCH."""

    def follow(self, addr: int, length: int, advice: int, flags: int) -> bool:
        return super().follow(addr, length, PREFETCH if advice == PREFETCH_NO_FAULT else advice, flags)


@violates("ADV-03")
class NoFaultIsInput(Device):
    """PREFETCH_NO_FAULT is refused with EINVAL."""

    def element_fault(self, domain: Domain, advice: int, region: Region, sge: Sge) -> int:
        return errno.EINVAL if advice == PREFETCH_NO_FAULT else super().element_fault(domain, advice, region, sge)


@violates("ADV-04")
class FlushDoesNothing(Device):
    """Prefetching with FLUSH returns 0 and makes no page resident."""

    def follow(self, addr: int, length: int, advice: int, flags: int) -> bool:
        return True


@violates("ADV-04")
class FlushOfTheFirstPage(Device):
    """Prefetching with FLUSH makes only the first page resident."""

    def follow(self, addr: int, length: int, advice: int, flags: int) -> bool:
        return super().follow(addr, min(length, PAGE), advice, flags)


@violates("ADV-05")
class PlainRegionsAdvised(Device):
    """Advice on regions that are not on demand is accepted."""

    def not_on_demand(self, region: Region) -> bool:
        return False


@violates("ADV-06")
class NoAdviceIsFine(Device):
    """If the verb is not supported, it returns 0."""

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        if self.stack.has("advise_mr"):
            super().advise(pd, advice, flags, sg_list)


@violates("ADV-06")
class NoAdviceIsWrongInput(Device):
    """If the verb is not supported, it returns EINVAL."""

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        if not self.stack.has("advise_mr") and sg_list:
            raise Refused(errno.EINVAL)
        super().advise(pd, advice, flags, sg_list)


@violates("ADV-07")
class UnknownAdviceIsInput(Device):
    """Unknown advice returns EINVAL."""

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        if self.unknown_advice(advice):
            raise Refused(errno.EINVAL)
        super().advise(pd, advice, flags, sg_list)


@violates("ADV-07")
class UnknownAdviceFollowed(Device):
    """Unknown advice is accepted."""

    def unknown_advice(self, advice: int) -> bool:
        return False


@violates("ADV-08")
class BoundsOfAdviceUnchecked(Device):
    """The range is not checked against the region."""

    def advice_out_of_bounds(self, region: Region, sge: Sge) -> bool:
        return False


@violates("ADV-08")
class OneByteOfAdviceTooMuch(Device):
    """A range may end one byte beyond the region."""

    def advice_out_of_bounds(self, region: Region, sge: Sge) -> bool:
        return super().advice_out_of_bounds(region, Sge(sge.addr, max(0, sge.length - 1), sge.lkey))


@violates("ADV-08")
class OutOfBoundsIsInput(Device):
    """A range out of bounds returns EINVAL."""

    def element_fault(self, domain: Domain, advice: int, region: Region, sge: Sge) -> int:
        fault = super().element_fault(domain, advice, region, sge)
        return errno.EINVAL if fault == errno.EFAULT else fault


@violates("ADV-08")
class AbsentPagesNotTold(Device):
    """Pages that are not mapped are skipped, with and without FLUSH."""

    def follow(self, addr: int, length: int, advice: int, flags: int) -> bool:
        super().follow(addr, length, advice, flags)
        return True


@violates("ADV-08")
class InventedKeyIsInput(Device):
    """An invalid lkey returns EINVAL."""

    def no_such_lkey(self) -> int:
        return errno.EINVAL


@violates("ADV-08")
class ReadOnlyPrefetchedForWriting(Device):
    """PREFETCH_WRITE makes memory resident only for reading."""

    def follow(self, addr: int, length: int, advice: int, flags: int) -> bool:
        return super().follow(addr, length, PREFETCH if advice == PREFETCH_WRITE else advice, flags)


@violates("ADV-09")
class DomainOfAdviceUnchecked(Device):
    """The PD is not checked."""

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        super().advise(pd if pd in self.domains else next(iter(self.domains)), advice, flags, sg_list)


@violates("ADV-09")
class AdviceFlagsUnchecked(Device):
    """The flags are not checked."""

    def unknown_advice_flags(self, flags: int) -> bool:
        return False


@violates("ADV-09")
class FlushHidesOtherFlags(Device):
    """Together with FLUSH every flag is accepted."""

    def unknown_advice_flags(self, flags: int) -> bool:
        return not flags & FLUSH and super().unknown_advice_flags(flags)


@violates("ADV-09")
class WindowsAreNotFound(Device):
    """The key of a window returns ENOENT."""

    def advised(self, lkey: int) -> Region:
        if isinstance(self.keys.get(lkey), Window):
            raise Refused(errno.ENOENT)
        return super().advised(lkey)


@violates("ADV-10")
class ForeignAdvised(Device):
    """It is not checked whether a region belongs to the given PD."""

    def foreign(self, domain: Domain, region: Region) -> bool:
        return False


@violates("ADV-10")
class ForeignIsInput(Device):
    """A region of another PD returns EINVAL."""

    def element(self, domain: Domain, advice: int, sge: Sge) -> tuple[int, int]:
        if self.foreign(domain, self.advised(sge.lkey)):
            raise Refused(errno.EINVAL)
        return super().element(domain, advice, sge)


@violates("ADV-10")
class AnyRegionPrefetchedForWriting(Device):
    """It is not checked whether a region is writable."""

    def not_writable(self, region: Region) -> bool:
        return False


@violates("ADV-11")
class OtherTagIsPermission(Device):
    """An lkey with another tag returns EPERM."""

    def other_tag(self) -> int:
        return errno.EPERM


@violates("ADV-11")
class OtherTagAdvised(Device):
    """Only the index of an lkey is checked."""

    def advised(self, lkey: int) -> Region:
        near = next((each for key, each in self.keys.items() if key >> 8 == lkey >> 8), None)
        return near if isinstance(near, Region) else super().advised(lkey)


@violates("ADV-12")
class NoMemoryNotTold(Device):
    """Advice returns 0 although memory is exhausted."""

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        try:
            super().advise(pd, advice, flags, sg_list)
        except Refused as refused:
            if refused.errno != errno.ENOMEM:
                raise


@violates("ADV-12")
class NoMemoryIsAgain(Device):
    """Advice returns EAGAIN if memory is exhausted."""

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        try:
            super().advise(pd, advice, flags, sg_list)
        except Refused as refused:
            raise Refused(errno.EAGAIN if refused.errno == errno.ENOMEM else refused.errno) from refused


@violates("ADV-13")
class FirstElementOnly(Device):
    """Only the first element of the list is checked."""

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        super().advise(pd, advice, flags, sg_list[:1])


@violates("ADV-13")
class LastElementOnly(Device):
    """Only the last element of the list is checked."""

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        super().advise(pd, advice, flags, sg_list[-1:])


@violates("ADV-13")
class OneElementOnly(Device):
    """A list of more than one element is refused."""

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        if len(sg_list) > 1:
            raise Refused(errno.EINVAL)
        super().advise(pd, advice, flags, sg_list)


@violates("ADV-14")
class AdviceClearsPages(Device):
    """Prefetching for writing clears the pages."""

    def follow(self, addr: int, length: int, advice: int, flags: int) -> bool:
        there = super().follow(addr, length, advice, flags)
        if there and advice == PREFETCH_WRITE:
            self.memory.write(addr, bytes(length))
        return there


@violates("ADV-14")
class AdviceOfWholePages(Device):
    """Advice on a range that does not consist of whole pages is refused."""

    def element_fault(self, domain: Domain, advice: int, region: Region, sge: Sge) -> int:
        odd = sge.addr % PAGE or sge.length % PAGE
        return super().element_fault(domain, advice, region, sge) or (errno.EINVAL if odd else 0)


@violates("ADV-14")
class AdvisedRegionsAreClosed(Device):
    """After advice the region can no longer be accessed."""

    def element(self, domain: Domain, advice: int, sge: Sge) -> tuple[int, int]:
        found = super().element(domain, advice, sge)
        self.advised(sge.lkey).usable = False
        return found


class _SomeElementsServed(Device):
    """All elements of a list are checked, and only some are followed."""

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        self.__dict__["_served"] = [(sge.addr, sge.length) for sge in self.served(sg_list)]
        super().advise(pd, advice, flags, sg_list)

    def served(self, sg_list: Sequence[Sge]) -> Sequence[Sge]:
        """The elements that are followed."""
        raise NotImplementedError

    def follow(self, addr: int, length: int, advice: int, flags: int) -> bool:
        return (addr, length) not in self.__dict__["_served"] or super().follow(addr, length, advice, flags)


@violates("ADV-13")
class FirstElementServed(_SomeElementsServed):
    """Only the pages of the first element of a list are brought in."""

    def served(self, sg_list: Sequence[Sge]) -> Sequence[Sge]:
        return sg_list[:1]


@violates("ADV-04")
class LastElementServed(_SomeElementsServed):
    """Only the pages of the last element of a list are brought in."""

    def served(self, sg_list: Sequence[Sge]) -> Sequence[Sge]:
        return sg_list[-1:]


@violates("ADV-13")
class FirstRegionServed(_SomeElementsServed):
    """Only the pages of the first region of a list are brought in."""

    def served(self, sg_list: Sequence[Sge]) -> Sequence[Sge]:
        return [sge for sge in sg_list if sge.lkey == sg_list[0].lkey]


@violates("ADV-13")
class LaterElementsOnlyToRead(Device):
    """PREFETCH_WRITE brings in the pages of later elements for reading only."""

    first = True

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        self.first = True
        super().advise(pd, advice, flags, sg_list)

    def follow(self, addr: int, length: int, advice: int, flags: int) -> bool:
        for_this = advice if self.first else PREFETCH
        self.first = False
        return super().follow(addr, length, for_this, flags)


@violates("ADV-10")
class RightsOfTheFirstTwoElements(Device):
    """PREFETCH_WRITE looks at the rights of the first two elements only."""

    looked_at = 0

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        self.looked_at = 0
        super().advise(pd, advice, flags, sg_list)

    def not_writable(self, region: Region) -> bool:
        self.looked_at += 1
        return self.looked_at <= 2 and super().not_writable(region)
