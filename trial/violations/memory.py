"""Violations of the memory that can be registered, and how."""

from __future__ import annotations

import ctypes
import errno

from conformance.bench.calls import IbvMr, Pd
from reference.device import Device
from reference.memory import PAGE
from reference.objects import HUGETLB, ON_DEMAND, RELAXED_ORDERING, Region
from trial.violation import violates


@violates("REG-23")
class UnmappedAccepted(Device):
    """It is not checked whether the memory is mapped."""

    def not_there(self, addr: int, length: int, access: int) -> bool:
        return False


@violates("REG-23")
class FirstPageOnly(Device):
    """Only the first page of the memory is checked."""

    def not_there(self, addr: int, length: int, access: int) -> bool:
        return super().not_there(addr, min(length, PAGE - addr % PAGE), access)


@violates("REG-23")
class WholePagesOnly(Device):
    """Whole pages are checked, including those beside the range."""

    def not_there(self, addr: int, length: int, access: int) -> bool:
        return super().not_there(addr - 1, length + 2, access)


@violates("REG-23")
class ReadOnlyMadeWritable(Device):
    """Read-only memory is registered for writing."""

    def writes(self, access: int) -> bool:
        return False


@violates("REG-23")
class ReadOnlyRefused(Device):
    """Read-only memory is refused without write access too."""

    def writes(self, access: int) -> bool:
        return True


@violates("REG-23")
class RangeWraps(Device):
    """A range that ends beyond the last address is cut off there."""

    def wraps(self, addr: int, length: int) -> bool:
        return False

    def not_there(self, addr: int, length: int, access: int) -> bool:
        return addr + length <= 1 << 64 and super().not_there(addr, length, access)


@violates("REG-23")
class NoLimit(Device):
    """The locked-memory limit is not enforced."""

    def over_limit(self, addr: int, length: int) -> bool:
        return False


@violates("REG-23")
class QuarterOfTheLimit(Device):
    """Only a quarter of the locked-memory limit can be used."""

    def over_limit(self, addr: int, length: int) -> bool:
        return self.locked_limit is not None and length > self.locked_limit // 4


@violates("REG-13")
class HugePagesRefused(Device):
    """HUGETLB is refused with ON_DEMAND too."""

    def unsupported(self, access: int) -> bool:
        return super().unsupported(access) or access & (HUGETLB | ON_DEMAND) == HUGETLB | ON_DEMAND


@violates("CAP-06")
class ImplicitRefused(Device):
    """Implicit regions are declared, but refused."""

    def range_fault(self, addr: int, length: int, access: int) -> int:
        implicit = self.is_implicit(addr, length, access)
        return errno.EINVAL if implicit else super().range_fault(addr, length, access)


@violates("REG-19")
class ImplicitHasNoEnd(Device):
    """The structure of an implicit region has no length."""

    def structure(self, region: Region, pd: Pd, addr: int, length: int) -> IbvMr:
        return super().structure(region, pd, addr, length if length != ctypes.c_size_t(-1).value else 0)


@violates("CAP-05")
class OnDemandMissing(Device):
    """ON_DEMAND is declared, but refused."""

    def unsupported(self, access: int) -> bool:
        return super().unsupported(access) or bool(access & ON_DEMAND)


@violates("REG-12")
class OnDemandPinned(Device):
    """An on-demand region is pinned, so its memory must be mapped when it is registered."""

    def range_fault(self, addr: int, length: int, access: int) -> int:
        implicit = self.is_implicit(addr, length, access)
        return super().range_fault(addr, length, access if implicit else access & ~ON_DEMAND & ~HUGETLB)


@violates("REG-14")
class RelaxedRefused(Device):
    """RELAXED_ORDERING makes a registration fail."""

    def unsupported(self, access: int) -> bool:
        return super().unsupported(access) or bool(access & RELAXED_ORDERING)
