"""Executes ibv_advise_mr as ibv_advise_mr(3) defines it."""

import errno
from collections.abc import Sequence

from conformance.bench.calls import Sge
from conformance.verbs import ENUMS
from trial.reference.objects import (
    LOCAL_WRITE,
    ON_DEMAND,
    REMOTE_ATOMIC,
    REMOTE_WRITE,
    Domain,
    Refused,
    Region,
    Window,
    check,
    refuse_if,
)
from trial.reference.regions import Regions

_ADVICE = ENUMS["ibv_advise_mr_advice"]
PREFETCH, PREFETCH_WRITE, PREFETCH_NO_FAULT = (
    _ADVICE.value_of(name) for name in ("PREFETCH", "PREFETCH_WRITE", "PREFETCH_NO_FAULT")
)
FLUSH = ENUMS["ibv_advise_mr_flag"].value_of("FLUSH")


class Advice(Regions):
    """The checks of the arguments, and the prefetch of pages."""

    # the errno for an lkey with the index of a region, but with a different tag
    other_tag = errno.ENOENT
    no_such_lkey = errno.EFAULT

    def advise_mr(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        """Checks every element, then executes the advice. Raises Refused."""
        self.has("advise_mr")
        domain = self.domain_of(pd)
        refuse_if(self.unknown_advice_flags(flags), errno.EINVAL)
        refuse_if(self.unknown_advice(advice), errno.EOPNOTSUPP)  # the same number as ENOTSUP
        ranges = [self.element(domain, advice, sge) for sge in sg_list]
        if ranges:
            self.allocate()
        for addr, length in ranges:
            refuse_if(not self.follow(addr, length, advice, flags), errno.EFAULT)

    def unknown_advice_flags(self, flags: int) -> bool:
        return bool(flags & ~FLUSH)

    def unknown_advice(self, advice: int) -> bool:
        return advice not in (PREFETCH, PREFETCH_WRITE, PREFETCH_NO_FAULT)

    def element(self, domain: Domain, advice: int, sge: Sge) -> tuple[int, int]:
        """Returns address and length of an element's memory. Raises Refused."""
        region = self.advised(sge.lkey)
        check(self.element_fault(domain, advice, region, sge))
        return region.addr + sge.addr - region.iova, sge.length

    def advised(self, lkey: int) -> Region:
        """Returns the region with an lkey. Raises Refused: EINVAL for a window, ENOENT for a wrong tag, else EFAULT."""
        named = self.keys.get(lkey)
        if isinstance(named, Window):
            raise Refused(errno.EINVAL)
        if named is None:
            same_index = any(key >> 8 == lkey >> 8 for key in self.keys)
            raise Refused(self.other_tag if same_index else self.no_such_lkey)
        return named

    def element_fault(self, domain: Domain, advice: int, region: Region, sge: Sge) -> int:
        """Returns the errno for an element of a known region, or 0."""
        if self.foreign(domain, region):
            return errno.EPERM
        if self.not_on_demand(region):
            return errno.EINVAL
        if advice == PREFETCH_WRITE and self.not_writable(region):
            return errno.EPERM
        if self.advice_out_of_bounds(region, sge):
            return errno.EFAULT
        return 0

    def foreign(self, domain: Domain, region: Region) -> bool:
        return region.domain is not domain

    def not_on_demand(self, region: Region) -> bool:
        return not region.access & ON_DEMAND

    def not_writable(self, region: Region) -> bool:
        return not region.access & (LOCAL_WRITE | REMOTE_WRITE | REMOTE_ATOMIC)

    def advice_out_of_bounds(self, region: Region, sge: Sge) -> bool:
        return sge.addr < region.iova or sge.addr + sge.length > region.iova + region.length

    def follow(self, addr: int, length: int, advice: int, flags: int) -> bool:
        """Faults pages in. Returns False if this fails and `flags` has FLUSH. Without FLUSH, failures are ignored."""
        if advice == PREFETCH_NO_FAULT:
            return True
        present = self.memory.fault_in(addr, length, advice == PREFETCH_WRITE)
        return present or not flags & FLUSH
