"""Which combinations of access flags are granted."""

from __future__ import annotations

import errno

from conformance.verbs import OPTIONAL_ACCESS
from reference.device import Device
from reference.memory import HUGEPAGE, PAGE
from reference.objects import (
    FLUSH_GLOBAL,
    FLUSH_PERSISTENT,
    HUGETLB,
    LOCAL_WRITE,
    MW_BIND,
    ON_DEMAND,
    RELAXED_ORDERING,
    REMOTE_ATOMIC,
    REMOTE_READ,
    REMOTE_WRITE,
    ZERO_BASED,
    Region,
)
from trial.violation import permits, plain, violates


@violates("REG-13", Device.contains)
def huge_pages_are_small(self: Device, region: Region, addr: int, length: int) -> bool:
    """Only the first 4 KiB of a huge page can be accessed."""
    beyond = region.access & HUGETLB and addr - region.iova >= PAGE
    return not beyond and plain(self).contains(region, addr, length)


@violates("REG-13", Device.unsupported)
def no_huge_pages_for_peers(self: Device, access: int) -> bool:
    """HUGETLB is refused together with REMOTE_READ, though it is offered."""
    return plain(self).unsupported(access) or access & (HUGETLB | REMOTE_READ) == HUGETLB | REMOTE_READ


@violates("REG-13", Device.range_fault, written="blind")
def hugetlb_without_a_look(self: Device, addr: int, length: int, access: int) -> int:
    """HUGETLB in explicit mode is granted on ordinary pages, whose size is thus not guaranteed."""
    implicit = self.is_implicit(addr, length, access)
    return plain(self).range_fault(addr, length, access if implicit else access & ~HUGETLB)


@violates("REG-13", Device.range_fault, written="blind")
def hugetlb_looks_at_the_first_page(self: Device, addr: int, length: int, access: int) -> int:
    """HUGETLB is granted for a range that begins in huge pages and ends in others."""
    begins = access & ON_DEMAND and self.memory.is_special("huge", addr, 1)
    return plain(self).range_fault(addr, length, access & ~HUGETLB if begins else access)


@violates("REG-13", Device.range_fault, written="blind")
def hugetlb_needs_an_aligned_start(self: Device, addr: int, length: int, access: int) -> int:
    """HUGETLB is refused for a range of huge pages that begins within one."""
    if access & HUGETLB and access & ON_DEMAND and addr % HUGEPAGE:
        return errno.EINVAL
    return plain(self).range_fault(addr, length, access)


@violates("REG-13", Device.range_fault, written="blind")
def hugetlb_for_the_whole_space(self: Device, addr: int, length: int, access: int) -> int:
    """HUGETLB is granted for implicit on-demand paging."""
    implicit = self.is_implicit(addr, length, access)
    return plain(self).range_fault(addr, length, access & ~HUGETLB if implicit else access)


@permits("REG-13", Device.unsupported)
def huge_pages_refused(self: Device, access: int) -> bool:
    """HUGETLB is never granted: no page obliges a device to have it."""
    return plain(self).unsupported(access) or bool(access & HUGETLB)


@permits("REG-13", Device.unsupported)
def huge_without_paging(self: Device, access: int) -> bool:
    """HUGETLB without ON_DEMAND is refused."""
    return plain(self).unsupported(access) or access & (HUGETLB | ON_DEMAND) == HUGETLB


@permits("REG-13", written="blind")
class HugetlbWithoutPagingRefused(Device):
    """HUGETLB without ON_DEMAND, where it does not apply, is refused."""

    def access_fault(self, access: int) -> int:
        alone = access & HUGETLB and not access & ON_DEMAND
        return super().access_fault(access) or (errno.EINVAL if alone else 0)


@violates("REG-15", Device.write_alone)
def remote_write_alone(self: Device, access: int) -> bool:
    """REMOTE_WRITE is granted without LOCAL_WRITE."""
    return False


@violates("REG-15", Device.write_alone)
def remote_write_alone_with_read(self: Device, access: int) -> bool:
    """LOCAL_WRITE is not checked if REMOTE_READ is requested as well."""
    return plain(self).write_alone(access) and not access & REMOTE_READ


@violates("REG-15", written="blind")
@violates("REG-15", Device.write_alone)
def remote_write_alone_on_demand(self: Device, access: int) -> bool:
    """LOCAL_WRITE is not checked for on-demand regions."""
    return plain(self).write_alone(access) and not access & ON_DEMAND


@violates("REG-15", Device.write_alone)
def remote_write_alone_for_binding(self: Device, access: int) -> bool:
    """LOCAL_WRITE is not checked if MW_BIND is requested as well."""
    return plain(self).write_alone(access) and not access & MW_BIND


@violates("REG-15", Device.write_alone)
def remote_write_never(self: Device, access: int) -> bool:
    """REMOTE_WRITE is refused with LOCAL_WRITE too."""
    return bool(access & REMOTE_WRITE)


@violates("REG-15", Device.write_alone, written="blind")
def remote_write_alone_if_relaxed(self: Device, access: int) -> bool:
    """REMOTE_WRITE without LOCAL_WRITE is accepted where RELAXED_ORDERING is set too."""
    return plain(self).write_alone(access) and not access & RELAXED_ORDERING


@violates("REG-15", Device.write_alone, written="blind")
def remote_write_alone_with_three_others(self: Device, access: int) -> bool:
    """REMOTE_WRITE without LOCAL_WRITE is accepted beside REMOTE_READ, MW_BIND and ZERO_BASED together."""
    others = REMOTE_READ | MW_BIND | ZERO_BASED
    return plain(self).write_alone(access) and access & others != others


@violates("REG-16", Device.atomic_alone)
def remote_atomic_alone(self: Device, access: int) -> bool:
    """REMOTE_ATOMIC is granted without LOCAL_WRITE."""
    return False


@violates("REG-16", Device.atomic_alone)
def remote_atomic_alone_relaxed(self: Device, access: int) -> bool:
    """LOCAL_WRITE is not checked for REMOTE_ATOMIC with RELAXED_ORDERING."""
    return plain(self).atomic_alone(access) and not access & RELAXED_ORDERING


@violates("REG-16", Device.atomic_alone, written="blind")
def remote_atomic_alone_with_read(self: Device, access: int) -> bool:
    """REMOTE_ATOMIC without LOCAL_WRITE is accepted beside REMOTE_READ."""
    return plain(self).atomic_alone(access) and not access & REMOTE_READ


@violates("REG-16", Device.register, written="blind")
def local_write_added_for_atomics(self: Device, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
    """REMOTE_ATOMIC | ZERO_BASED without LOCAL_WRITE registers, with LOCAL_WRITE added in silence."""
    if access & REMOTE_ATOMIC and access & ZERO_BASED and not access & REMOTE_WRITE:
        access |= LOCAL_WRITE
    return plain(self).register(pd, addr, length, hca_va, access)


@violates("REG-16", Device.atomic_alone, written="blind")
def remote_atomic_alone_with_flush(self: Device, access: int) -> bool:
    """REMOTE_ATOMIC without LOCAL_WRITE is accepted beside both flush rights."""
    flush = FLUSH_GLOBAL | FLUSH_PERSISTENT
    return plain(self).atomic_alone(access) and access & flush != flush


@violates("REG-17", Device.unsupported)
def no_zero_based_for_peers(self: Device, access: int) -> bool:
    """ZERO_BASED is refused together with REMOTE_READ, though it is offered."""
    return plain(self).unsupported(access) or access & (ZERO_BASED | REMOTE_READ) == ZERO_BASED | REMOTE_READ


@violates("REG-17", Device.unsupported)
def flush_needs_local_write(self: Device, access: int) -> bool:
    """FLUSH_GLOBAL is refused without LOCAL_WRITE."""
    return plain(self).unsupported(access) or access & (FLUSH_GLOBAL | LOCAL_WRITE) == FLUSH_GLOBAL


@violates("REG-17", Device.unsupported)
def no_binding_of_relaxed(self: Device, access: int) -> bool:
    """MW_BIND together with RELAXED_ORDERING is refused."""
    both = MW_BIND | RELAXED_ORDERING
    return plain(self).unsupported(access) or access & both == both


@violates("REG-17", Device.unsupported)
def no_atomics_with_reads(self: Device, access: int) -> bool:
    """REMOTE_ATOMIC and REMOTE_READ exclude each other."""
    both = REMOTE_ATOMIC | REMOTE_READ
    return plain(self).unsupported(access) or access & both == both


@violates("REG-17", Device.access_fault, written="blind")
def one_combination_refused(self: Device, access: int) -> int:
    """LOCAL_WRITE | REMOTE_ATOMIC | MW_BIND | ZERO_BASED, with nothing more, is refused."""
    odd = access == LOCAL_WRITE | REMOTE_ATOMIC | MW_BIND | ZERO_BASED
    return errno.EINVAL if odd else plain(self).access_fault(access)


@violates("REG-17", Device.access_fault, written="blind")
def nine_flags_are_too_many(self: Device, access: int) -> int:
    """More than eight flags at once are refused."""
    known = access & 0x1003FF
    return errno.EINVAL if known.bit_count() > 8 else plain(self).access_fault(access)


@violates("REG-17", Device.access_fault, written="blind")
def persistent_flush_without_global_refused(self: Device, access: int) -> int:
    """FLUSH_PERSISTENT is refused beside MW_BIND unless FLUSH_GLOBAL is there."""
    lonely = access & FLUSH_PERSISTENT and access & MW_BIND and not access & FLUSH_GLOBAL
    return errno.EINVAL if lonely else plain(self).access_fault(access)


@violates("REG-17", Device.access_fault, written="blind")
def read_without_local_write_and_bind_refused(self: Device, access: int) -> int:
    """REMOTE_READ | MW_BIND | ON_DEMAND is refused where LOCAL_WRITE lacks."""
    asked = REMOTE_READ | MW_BIND | ON_DEMAND
    refused = access & asked == asked and not access & LOCAL_WRITE
    return errno.EOPNOTSUPP if refused else plain(self).access_fault(access)


@violates("REG-18", Device.unknown_bits)
def unknown_bits_ignored(self: Device, access: int) -> int:
    """Unknown bits of the mandatory range are ignored."""
    return 0


@violates("REG-18", Device.unknown_bits)
def one_unknown_bit_ignored(self: Device, access: int) -> int:
    """The mask of known bits wrongly contains bit 13."""
    return plain(self).unknown_bits(access) & ~(1 << 13)


@violates("REG-18", Device.unknown_bits)
def top_bit_ignored(self: Device, access: int) -> int:
    """The highest bit is ignored."""
    return plain(self).unknown_bits(access & 0x7FFFFFFF)


@violates("REG-18", Device.unknown_bits)
def optional_bits_refused(self: Device, access: int) -> int:
    """Unknown bits of the optional range are refused."""
    return plain(self).unknown_bits(access) | access & OPTIONAL_ACCESS & ~RELAXED_ORDERING


@violates("REG-18", written="blind")
@violates("REG-18", Device.unknown_bits)
def last_optional_bit_refused(self: Device, access: int) -> int:
    """The optional range ends one bit too early."""
    return plain(self).unknown_bits(access) | access & 1 << 29


@violates("REG-18", name="unknown-bits-beside-optional-ones", written="blind")
@violates("REG-18", Device.unknown_bits)
def optional_hides_mandatory(self: Device, access: int) -> int:
    """With an optional bit the mandatory bits are not checked."""
    return 0 if access & OPTIONAL_ACCESS else plain(self).unknown_bits(access)


@violates("REG-18", Device.unknown_bits, written="blind")
def sign_bit_accepted(self: Device, access: int) -> int:
    """The unknown bit 31 is accepted."""
    return plain(self).unknown_bits(access) & 0x7FFFFFFF


@violates("REG-18", Device.unknown_bits, written="blind")
def bit_ten_accepted(self: Device, access: int) -> int:
    """The lowest unknown mandatory bit, that right after the known ones, is accepted."""
    return plain(self).unknown_bits(access) & ~(1 << 10)


@violates("REG-18", Device.register, written="blind")
def optional_bit_has_an_effect(self: Device, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
    """The unknown optional bit 21 is not ignored: it takes the region's right to be written remotely."""
    made = plain(self).register(pd, addr, length, hca_va, access)
    if access & 1 << 21:
        made.access &= ~REMOTE_WRITE
    return made


@permits("REG-18", written="blind")
class UnknownBitsAreNotSupported(Device):
    """Unknown bits are refused with EOPNOTSUPP."""

    def access_fault(self, access: int) -> int:
        return errno.EOPNOTSUPP if self.unknown_bits(access) else super().access_fault(access)
