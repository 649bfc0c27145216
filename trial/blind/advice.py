"""Advice."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from conformance.bench.calls import Sge
from reference.advice import FLUSH, PREFETCH, PREFETCH_NO_FAULT, PREFETCH_WRITE
from reference.device import Device
from reference.memory import PAGE
from reference.objects import LOCAL_WRITE, ON_DEMAND, REMOTE_READ, REMOTE_WRITE, Domain, Refused, Region
from trial.violation import violates


@violates("ADV-01")
class PrefetchOfWholePagesOnly(Device):
    """PREFETCH of a range that does not begin with a page fails."""

    def element_fault(self, domain: Domain, advice: int, region: Region, sge: Sge) -> int:
        if advice == PREFETCH and sge.addr % PAGE:
            return errno.EINVAL
        return super().element_fault(domain, advice, region, sge)


@violates("ADV-01")
class PrefetchNeedsARight(Device):
    """PREFETCH of an on-demand region without any remote right and without LOCAL_WRITE fails."""

    def element_fault(self, domain: Domain, advice: int, region: Region, sge: Sge) -> int:
        if advice == PREFETCH and not region.access & (LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE):
            return errno.EFAULT
        return super().element_fault(domain, advice, region, sge)


@violates("ADV-01")
class PrefetchOfSeveralPagesFails(Device):
    """PREFETCH with FLUSH of more than one page returns EFAULT though all is well."""

    def follow(self, addr: int, length: int, advice: int, flags: int) -> bool:
        done = super().follow(addr, length, advice, flags)
        return done and not (advice == PREFETCH and flags & FLUSH and length > PAGE)


@violates("ADV-02")
class WritePrefetchNeedsRemoteWrite(Device):
    """PREFETCH_WRITE on an on-demand region with LOCAL_WRITE and without REMOTE_WRITE is refused."""

    def not_writable(self, region: Region) -> bool:
        return not region.access & REMOTE_WRITE


@violates("ADV-02")
class WritePrefetchNeedsFlush(Device):
    """PREFETCH_WRITE without FLUSH is refused."""

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        if advice == PREFETCH_WRITE and not flags & FLUSH:
            raise Refused(errno.EINVAL)
        super().advise(pd, advice, flags, sg_list)


@violates("ADV-03")
class NoFaultFaults(Device):
    """PREFETCH_NO_FAULT brings in the pages of its range."""

    def follow(self, addr: int, length: int, advice: int, flags: int) -> bool:
        if advice == PREFETCH_NO_FAULT:
            self.memory.fault_in(addr, length, write=True)
        return super().follow(addr, length, advice, flags)


@violates("ADV-03")
class NoFaultNeedsFlush(Device):
    """PREFETCH_NO_FAULT fails with FLUSH."""

    def follow(self, addr: int, length: int, advice: int, flags: int) -> bool:
        return super().follow(addr, length, advice, flags) and not (advice == PREFETCH_NO_FAULT and flags & FLUSH)


@violates("ADV-03")
class NoFaultUnknown(Device):
    """PREFETCH_NO_FAULT is refused with EINVAL where the region cannot be written."""

    def element_fault(self, domain: Domain, advice: int, region: Region, sge: Sge) -> int:
        if advice == PREFETCH_NO_FAULT and self.not_writable(region):
            return errno.EINVAL
        return super().element_fault(domain, advice, region, sge)


@violates("ADV-04")
class FlushBringsTheFirstPage(Device):
    """With FLUSH only the first page of a range is there when the call returns."""

    def follow(self, addr: int, length: int, advice: int, flags: int) -> bool:
        return super().follow(addr, min(length, PAGE - addr % PAGE), advice, flags)


@violates("ADV-04")
class FlushIsIgnored(Device):
    """FLUSH is ignored: no page is brought in, whatever the range is."""

    def follow(self, addr: int, length: int, advice: int, flags: int) -> bool:
        return True


@violates("ADV-04")
class WritePrefetchBringsForReading(Device):
    """PREFETCH_WRITE with FLUSH returns 0 over memory that is mapped read-only: pages are brought in to be read."""

    def follow(self, addr: int, length: int, advice: int, flags: int) -> bool:
        return super().follow(addr, length, PREFETCH if advice == PREFETCH_WRITE else advice, flags)


@violates("ADV-05")
class PinnedRegionsAccepted(Device):
    """PREFETCH of a region that is none of on-demand paging returns 0."""

    def not_on_demand(self, region: Region) -> bool:
        return False


@violates("ADV-05")
class PinnedRegionsAcceptedForWriting(Device):
    """PREFETCH_WRITE of a region with LOCAL_WRITE that is none of on-demand paging returns 0."""

    def element_fault(self, domain: Domain, advice: int, region: Region, sge: Sge) -> int:
        if advice == PREFETCH_WRITE and region.domain is domain and region.access & LOCAL_WRITE:
            return errno.EFAULT if self.advice_out_of_bounds(region, sge) else 0
        return super().element_fault(domain, advice, region, sge)


@violates("ADV-05")
class PinnedRegionInASecondElement(Device):
    """Only the first element's lkey has to be of an on-demand region."""

    _later = False

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        self._later = False
        super().advise(pd, advice, flags, sg_list)

    def not_on_demand(self, region: Region) -> bool:
        later, self._later = self._later, True
        return not later and super().not_on_demand(region)


@violates("ADV-06")
class AbsentVerbAnswersEinval(Device):
    """A stack without the verb answers EINVAL."""

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        if not self.stack.has("advise_mr"):
            raise Refused(errno.EINVAL)
        super().advise(pd, advice, flags, sg_list)


@violates("ADV-06")
class AbsentVerbAnswersZero(Device):
    """A stack without the verb answers 0 to PREFETCH_NO_FAULT."""

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        if self.stack.has("advise_mr") or advice != PREFETCH_NO_FAULT:
            super().advise(pd, advice, flags, sg_list)


@violates("ADV-07")
class UnknownAdviceIsPrefetch(Device):
    """An advice that does not exist is taken for PREFETCH."""

    def unknown_advice(self, advice: int) -> bool:
        return False


@violates("ADV-07")
class UnknownAdviceAnswersEfault(Device):
    """An advice that does not exist is answered with EFAULT."""

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        if self.stack.has("advise_mr") and self.unknown_advice(advice):
            raise Refused(errno.EFAULT)
        super().advise(pd, advice, flags, sg_list)


@violates("ADV-07")
class NextAdviceAccepted(Device):
    """The first number behind the known advice is accepted."""

    def unknown_advice(self, advice: int) -> bool:
        return super().unknown_advice(advice) and advice != PREFETCH_NO_FAULT + 1


@violates("ADV-08")
class OneByteBeyondAdvised(Device):
    """A range that ends one byte behind its region is accepted."""

    def advice_out_of_bounds(self, region: Region, sge: Sge) -> bool:
        return super().advice_out_of_bounds(region, sge._replace(length=max(0, sge.length - 1)))


@violates("ADV-08")
class BeginningBeforeTheRegionAdvised(Device):
    """A range that begins before its region within the same page is accepted."""

    def advice_out_of_bounds(self, region: Region, sge: Sge) -> bool:
        return sge.addr // PAGE < region.iova // PAGE or sge.addr + sge.length > region.iova + region.length


@violates("ADV-08")
class NobodysLkeyAnswersEinval(Device):
    """An lkey that is nobody's is answered with EINVAL."""

    def no_such_lkey(self) -> int:
        return errno.EINVAL


@violates("ADV-08")
class UnmappedPartUnnoticed(Device):
    """With FLUSH a range of which the last page is not mapped is answered with 0."""

    def follow(self, addr: int, length: int, advice: int, flags: int) -> bool:
        return super().follow(addr, length, advice, flags) or super().follow(addr, min(length, 1), advice, flags)


@violates("ADV-08")
class OutOfBoundsAnswersEinval(Device):
    """A range beyond its region is answered with EINVAL."""

    def element_fault(self, domain: Domain, advice: int, region: Region, sge: Sge) -> int:
        fault = super().element_fault(domain, advice, region, sge)
        return errno.EINVAL if fault == errno.EFAULT else fault


@violates("ADV-09")
class UnknownFlagsBesideFlush(Device):
    """Unknown flags are accepted beside FLUSH."""

    def unknown_advice_flags(self, flags: int) -> bool:
        return super().unknown_advice_flags(flags) and not flags & FLUSH


@violates("ADV-09")
class TopFlagAccepted(Device):
    """The highest flag bit is accepted."""

    def unknown_advice_flags(self, flags: int) -> bool:
        return super().unknown_advice_flags(flags & 0x7FFFFFFF)


@violates("ADV-09")
class WindowsKeyAnswersEfault(Device):
    """A window's key is answered with EFAULT instead of EINVAL."""

    def advised(self, lkey: int) -> Region:
        if self.keys.get(lkey) in self.windows:
            raise Refused(errno.EFAULT)
        return super().advised(lkey)


@violates("ADV-09")
class InvalidDomainAnswersEperm(Device):
    """An invalid PD is answered with EPERM."""

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        if self.stack.has("advise_mr") and pd not in self.domains:
            raise Refused(errno.EPERM)
        super().advise(pd, advice, flags, sg_list)


@violates("ADV-10")
class ForeignRegionAdvised(Device):
    """A region of another PD is advised for reading."""

    def element_fault(self, domain: Domain, advice: int, region: Region, sge: Sge) -> int:
        return super().element_fault(region.domain if advice == PREFETCH else domain, advice, region, sge)


@violates("ADV-10")
class ForeignRegionAnswersEinval(Device):
    """A region of another PD is answered with EINVAL instead of EPERM."""

    def element_fault(self, domain: Domain, advice: int, region: Region, sge: Sge) -> int:
        if self.foreign(domain, region):
            return errno.EINVAL
        return super().element_fault(domain, advice, region, sge)


@violates("ADV-10")
class WritePrefetchOfReadableRegion(Device):
    """PREFETCH_WRITE of a region with REMOTE_READ and no right that writes returns 0."""

    def not_writable(self, region: Region) -> bool:
        return super().not_writable(region) and not region.access & REMOTE_READ


@violates("ADV-11")
class AnyTagAdvised(Device):
    """An lkey with the index of a region and another tag is accepted."""

    def advised(self, lkey: int) -> Region:
        for key, found in self.keys.items():
            if key >> 8 == lkey >> 8 and isinstance(found, Region):
                return found
        return super().advised(lkey)


@violates("ADV-11")
class OtherTagAnswersEinval(Device):
    """An lkey with the index of a region and another tag is answered with EINVAL."""

    def other_tag(self) -> int:
        return errno.EINVAL


@violates("ADV-11")
class OtherTagAnswersEperm(Device):
    """An lkey with the index of a region and another tag is answered with EPERM."""

    def other_tag(self) -> int:
        return errno.EPERM


@violates("ADV-12")
class NoMemoryAnswersEagain(Device):
    """Where memory does not suffice the answer is EAGAIN."""

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        try:
            super().advise(pd, advice, flags, sg_list)
        except Refused as refused:
            raise Refused(errno.EAGAIN if refused.errno == errno.ENOMEM else refused.errno) from refused


@violates("ADV-12")
class NoMemoryAnswersEfault(Device):
    """Where memory does not suffice the answer is EFAULT."""

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        try:
            super().advise(pd, advice, flags, sg_list)
        except Refused as refused:
            raise Refused(errno.EFAULT if refused.errno == errno.ENOMEM else refused.errno) from refused


@violates("ADV-13")
class LastElementUnchecked(Device):
    """The last of several elements is not looked at."""

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        super().advise(pd, advice, flags, sg_list[:-1] if len(sg_list) > 1 else sg_list)


@violates("ADV-13")
class TwoElementsAtMost(Device):
    """More than two elements are refused."""

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        if len(sg_list) > 2:
            raise Refused(errno.EINVAL)
        super().advise(pd, advice, flags, sg_list)


@violates("ADV-13")
class MiddleElementsUnchecked(Device):
    """Of three or more elements only the first and the last are looked at."""

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        super().advise(pd, advice, flags, [sg_list[0], sg_list[-1]] if len(sg_list) > 2 else sg_list)


@violates("ADV-13")
class ElementsOfTwoRegionsRefused(Device):
    """Elements of two regions are refused."""

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        if len({each.lkey for each in sg_list} & set(self.keys)) > 1:
            raise Refused(errno.EINVAL)
        super().advise(pd, advice, flags, sg_list)


@violates("ADV-14")
class WritePrefetchClearsTheLastPage(Device):
    """PREFETCH_WRITE of several pages clears the last byte of the range."""

    def follow(self, addr: int, length: int, advice: int, flags: int) -> bool:
        done = super().follow(addr, length, advice, flags)
        if done and advice == PREFETCH_WRITE and length > PAGE:
            self.memory.write(addr + length - 1, b"\0")
        return done


@violates("ADV-14")
class PrefetchedForReadingStaysSo(Device):
    """After PREFETCH with FLUSH peers can no longer write the region."""

    def element(self, domain: Domain, advice: int, sge: Sge) -> tuple[int, int]:
        found = super().element(domain, advice, sge)
        if advice == PREFETCH:
            self.advised(sge.lkey).access &= ~REMOTE_WRITE
        return found


@violates("ADV-14")
class LastBytesCannotBeAdvised(Device):
    """A range that ends with a region not ending with a page is refused."""

    def advice_out_of_bounds(self, region: Region, sge: Sge) -> bool:
        end = region.iova + region.length
        return super().advice_out_of_bounds(region, sge) or (end % PAGE > 0 and sge.addr + sge.length == end)


@violates("ADV-14")
class OddLengthsCannotBeAdvised(Device):
    """A range of an odd number of bytes within the region is refused."""

    def element_fault(self, domain: Domain, advice: int, region: Region, sge: Sge) -> int:
        return super().element_fault(domain, advice, region, sge) or (errno.EINVAL if sge.length % 2 else 0)


@violates("ADV-15")
class UnflushedAdviceBringsForeignPagesIn(Device):
    """Without FLUSH the pages of another PD's on-demand region are brought in to be written."""

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        if not flags & FLUSH:
            for sge in sg_list:
                found = self.keys.get(sge.lkey)
                if not isinstance(found, Region) or not found.access & ON_DEMAND or found.domain.handle == pd:
                    continue
                if self.contains(found, sge.addr, sge.length):
                    self.memory.fault_in(self.translate(found, sge.addr), sge.length, not self.not_writable(found))
        super().advise(pd, advice, flags, sg_list)


@violates("ADV-15")
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


@violates("ADV-15")
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
