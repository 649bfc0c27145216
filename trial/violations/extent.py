"""Violations of the bounds of a region, its keys and its PD."""

from __future__ import annotations

from reference.device import Device
from reference.memory import PAGE
from reference.objects import (
    FLUSH_GLOBAL,
    FLUSH_PERSISTENT,
    HUGETLB,
    ON_DEMAND,
    RELAXED_ORDERING,
    REMOTE_ATOMIC,
    REMOTE_READ,
    REMOTE_WRITE,
    ZERO_BASED,
    Domain,
    Region,
    Window,
)
from reference.stack import WHOLE, Stack
from trial.violation import violates

_RIGHTS = REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | FLUSH_GLOBAL | FLUSH_PERSISTENT


def _granted(region: Region, right: int, wrongly: int, by: int) -> bool:
    """Whether a right is there, or another one stands in for it."""
    return region.access & right == right or (right == wrongly and region.access & by == by)


@violates("REG-11")
class ZeroBasedIgnored(Device):
    """ZERO_BASED regions are addressed by pointers."""

    def base(self, hca_va: int, access: int) -> int:
        return hca_va


@violates("REG-11")
class ZeroBasedFromThePage(Device):
    """ZERO_BASED addresses start at the beginning of the region's first page."""

    def reg_mr(self, pd: int, addr: int, length: int, access: int) -> Region:
        region = super().reg_mr(pd, addr, length, access)
        region.iova = region.iova or addr % PAGE
        return region


@violates("REG-11")
class ZeroBasedAndPointers(Device):
    """ZERO_BASED regions can be addressed by pointers too."""

    def place(self, region: Region, addr: int, length: int) -> int | None:
        if region.access & ZERO_BASED and addr >= region.addr:
            addr -= region.addr
        return super().place(region, addr, length)


@violates("REG-12")
class OffsetWithinThePageLost(Device):
    """On-demand regions lose the offset within the page."""

    def translate(self, region: Region, addr: int) -> int:
        found = super().translate(region, addr)
        return found // PAGE * PAGE if region.access & ON_DEMAND else found


@violates("REG-12")
class OnlyTheFirstPageIsFound(Device):
    """Only the first page of an on-demand region can be accessed."""

    def contains(self, region: Region, addr: int, length: int) -> bool:
        beyond = region.access & ON_DEMAND and addr - region.iova >= PAGE
        return not beyond and super().contains(region, addr, length)


@violates("REG-13")
class HugePagesAreSmall(Device):
    """Only the first 4 KiB of a huge page can be accessed."""

    def contains(self, region: Region, addr: int, length: int) -> bool:
        beyond = region.access & HUGETLB and addr - region.iova >= PAGE
        return not beyond and super().contains(region, addr, length)


@violates("REG-14")
class RelaxedNotVisible(Device):
    """With RELAXED_ORDERING the last page arrives after the completion."""

    def put(self, addr: int, content: bytes) -> bool:
        relaxed = any(
            isinstance(each, Region) and each.access & RELAXED_ORDERING and each.addr <= addr < each.addr + each.length
            for each in self.keys.values()
        )
        return super().put(addr, content[:-PAGE] if relaxed and len(content) > PAGE else content)


@violates("REG-14")
class RelaxedAtomicsRefused(Device):
    """With RELAXED_ORDERING atomics are refused."""

    def allows(self, region: Region, right: int) -> bool:
        relaxed = right == REMOTE_ATOMIC and region.access & RELAXED_ORDERING
        return not relaxed and super().allows(region, right)


@violates("REG-19")
class ImplicitEndsEarly(Device):
    """An implicit region ends after 4 GiB."""

    def contains(self, region: Region, addr: int, length: int) -> bool:
        implicit = region.length == (1 << 64) - 1
        return not (implicit and addr >= 1 << 32) and super().contains(region, addr, length)


@violates("REG-20")
class OneByteTooLong(Device):
    """A region ends one byte too late."""

    def contains(self, region: Region, addr: int, length: int) -> bool:
        return addr >= region.iova and addr + length <= region.iova + region.length + 1


@violates("REG-20")
class OneByteTooEarly(Device):
    """A region begins one byte too early."""

    def contains(self, region: Region, addr: int, length: int) -> bool:
        return addr >= region.iova - 1 and addr + length <= region.iova + region.length


@violates("REG-20")
class OneByteTooShort(Device):
    """A region's last byte cannot be accessed."""

    def contains(self, region: Region, addr: int, length: int) -> bool:
        return addr >= region.iova and addr + length < region.iova + region.length


@violates("REG-20")
class WholePages(Device):
    """A region extends to the ends of its pages."""

    def contains(self, region: Region, addr: int, length: int) -> bool:
        start = region.iova // PAGE * PAGE
        return addr >= start and addr + length <= -(-(region.iova + region.length) // PAGE) * PAGE


@violates("REG-20")
class OnlyTheStartIsChecked(Device):
    """The end of an operation is not checked."""

    def contains(self, region: Region, addr: int, length: int) -> bool:
        return region.iova <= addr < region.iova + region.length


@violates("REG-20")
class LocalBoundsUnchecked(Device):
    """The bounds of local elements are not checked."""

    def local(self, lkey: int, domain: Domain, addr: int, length: int, write: bool) -> int | None:
        found = self.keys.get(lkey)
        inside = isinstance(found, Region) and self.opens_locally(found, domain)
        if isinstance(found, Region) and inside and (not write or self.allows_local_write(found)):
            return self.translate(found, addr)
        return None


@violates("REG-21")
class AnyTag(Device):
    """Only the index of a key is checked."""

    def found(self, key: int) -> Region | Window | None:
        return next((each for own, each in self.keys.items() if own >> 8 == key >> 8), None)


@violates("REG-21")
class StaleKeysFound(Device):
    """Keys of a deregistered region give access to a new region of the same memory."""

    def __init__(self, stack: Stack = WHOLE) -> None:
        super().__init__(stack)
        self._gone: dict[int, int] = {}

    def forget_key(self, region: Region) -> None:
        super().forget_key(region)
        self._gone[region.key] = region.addr

    def found(self, key: int) -> Region | Window | None:
        own = (each for each in self.regions.values() if each.addr == self._gone.get(key))
        return self.keys.get(key) or next(own, None)


@violates("REG-22")
class DomainUnchecked(Device):
    """The PD of an rkey is not checked."""

    def opens(self, region: Region, domain: Domain) -> bool:
        return region.usable


@violates("REG-22")
class LocalDomainUnchecked(Device):
    """The PD of an lkey is not checked."""

    def opens_locally(self, region: Region, domain: Domain) -> bool:
        return region.usable


@violates("REG-22")
class FirstDomainOnly(Device):
    """Only regions of the first PD can be accessed."""

    def opens(self, region: Region, domain: Domain) -> bool:
        return region.domain is next(iter(self.domains.values())) and super().opens(region, domain)
