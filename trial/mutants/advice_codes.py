"""The codes with which advice is refused."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from conformance.bench.calls import Sge
from reference.advice import FLUSH, PREFETCH, PREFETCH_NO_FAULT, PREFETCH_WRITE
from reference.device import Device
from reference.memory import PAGE
from reference.objects import Domain, Refused, Region, Window
from trial.violation import permits, plain, violates


@violates("ADV-06", Device.advise)
def no_advice_is_fine(self: Device, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
    """If the verb is not supported, it returns 0."""
    if self.stack.has("advise_mr"):
        plain(self).advise(pd, advice, flags, sg_list)


@violates("ADV-06", Device.advise)
def no_advice_is_wrong_input(self: Device, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
    """If the verb is not supported, it returns EINVAL."""
    if not self.stack.has("advise_mr") and sg_list:
        raise Refused(errno.EINVAL)
    plain(self).advise(pd, advice, flags, sg_list)


@violates("ADV-06", Device.advise, written="blind")
def absent_verb_answers_einval(self: Device, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
    """A stack without the verb answers EINVAL."""
    if not self.stack.has("advise_mr"):
        raise Refused(errno.EINVAL)
    plain(self).advise(pd, advice, flags, sg_list)


@violates("ADV-06", Device.advise, written="blind")
def absent_verb_answers_zero(self: Device, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
    """A stack without the verb answers 0 to PREFETCH_NO_FAULT."""
    if self.stack.has("advise_mr") or advice != PREFETCH_NO_FAULT:
        plain(self).advise(pd, advice, flags, sg_list)


@violates("ADV-07", Device.advise)
def unknown_advice_is_input(self: Device, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
    """Unknown advice returns EINVAL."""
    if self.unknown_advice(advice):
        raise Refused(errno.EINVAL)
    plain(self).advise(pd, advice, flags, sg_list)


@violates("ADV-07", name="unknown-advice-is-prefetch", written="blind")
@violates("ADV-07", Device.unknown_advice)
def unknown_advice_followed(self: Device, advice: int) -> bool:
    """Unknown advice is accepted."""
    return False


@violates("ADV-07", Device.advise, written="blind")
def unknown_advice_answers_efault(self: Device, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
    """An advice that does not exist is answered with EFAULT."""
    if self.stack.has("advise_mr") and self.unknown_advice(advice):
        raise Refused(errno.EFAULT)
    plain(self).advise(pd, advice, flags, sg_list)


@violates("ADV-07", Device.unknown_advice, written="blind")
def next_advice_accepted(self: Device, advice: int) -> bool:
    """The first number behind the known advice is accepted."""
    return plain(self).unknown_advice(advice) and advice != PREFETCH_NO_FAULT + 1


@violates("ADV-08", Device.advice_out_of_bounds)
def bounds_of_advice_unchecked(self: Device, region: Region, sge: Sge) -> bool:
    """The range is not checked against the region."""
    return False


@violates("ADV-08", Device.advice_out_of_bounds)
def one_byte_of_advice_too_much(self: Device, region: Region, sge: Sge) -> bool:
    """A range may end one byte beyond the region."""
    return plain(self).advice_out_of_bounds(region, Sge(sge.addr, max(0, sge.length - 1), sge.lkey))


@violates("ADV-08", name="out-of-bounds-answers-einval", written="blind")
@violates("ADV-08", Device.element_fault)
def out_of_bounds_is_input(self: Device, domain: Domain, advice: int, region: Region, sge: Sge) -> int:
    """A range out of bounds returns EINVAL."""
    fault = plain(self).element_fault(domain, advice, region, sge)
    return errno.EINVAL if fault == errno.EFAULT else fault


@violates("ADV-08", Device.follow)
def absent_pages_not_told(self: Device, addr: int, length: int, advice: int, flags: int) -> bool:
    """Pages that are not mapped are skipped, with and without FLUSH."""
    plain(self).follow(addr, length, advice, flags)
    return True


@violates("ADV-08", name="nobodys-lkey-answers-einval", written="blind")
@violates("ADV-08", Device.no_such_lkey)
def invented_key_is_input(self: Device) -> int:
    """An invalid lkey returns EINVAL."""
    return errno.EINVAL


@violates("ADV-02", name="prefetch-write-only-reads")
@violates("ADV-04", name="write-prefetch-brings-for-reading", written="blind")
@violates("ADV-08", Device.follow)
def read_only_prefetched_for_writing(self: Device, addr: int, length: int, advice: int, flags: int) -> bool:
    """PREFETCH_WRITE makes memory resident only for reading."""
    return plain(self).follow(addr, length, PREFETCH if advice == PREFETCH_WRITE else advice, flags)


@violates("ADV-08", Device.advice_out_of_bounds, written="blind")
def one_byte_beyond_advised(self: Device, region: Region, sge: Sge) -> bool:
    """A range that ends one byte behind its region is accepted."""
    return plain(self).advice_out_of_bounds(region, sge._replace(length=max(0, sge.length - 1)))


@violates("ADV-08", Device.advice_out_of_bounds, written="blind")
def beginning_before_the_region_advised(self: Device, region: Region, sge: Sge) -> bool:
    """A range that begins before its region within the same page is accepted."""
    return sge.addr // PAGE < region.iova // PAGE or sge.addr + sge.length > region.iova + region.length


@violates("ADV-08", Device.follow, written="blind")
def unmapped_part_unnoticed(self: Device, addr: int, length: int, advice: int, flags: int) -> bool:
    """With FLUSH a range of which the last page is not mapped is answered with 0."""
    return plain(self).follow(addr, length, advice, flags) or plain(self).follow(addr, min(length, 1), advice, flags)


@permits("ADV-08", Device.element_fault, written="blind")
def no_permission_to_write_is_efault(self: Device, domain: Domain, advice: int, region: Region, sge: Sge) -> int:
    """PREFETCH_WRITE of a region that cannot be written is EFAULT: the page has wrong write access there too."""
    fault = plain(self).element_fault(domain, advice, region, sge)
    unwritable = advice == PREFETCH_WRITE and region.domain is domain and self.not_writable(region)
    return errno.EFAULT if fault == errno.EPERM and unwritable else fault


@permits("ADV-08", Device.no_such_lkey, written="blind")
def nobodys_lkey_is_enoent(self: Device) -> int:
    """An lkey that is nobody's is ENOENT, as one that is not consistent with the region's."""
    return errno.ENOENT


@violates("ADV-09", Device.advise)
def domain_of_advice_unchecked(self: Device, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
    """The PD is not checked."""
    plain(self).advise(pd if pd in self.domains else next(iter(self.domains)), advice, flags, sg_list)


@violates("ADV-09", Device.unknown_advice_flags)
def advice_flags_unchecked(self: Device, flags: int) -> bool:
    """The flags are not checked."""
    return False


@violates("ADV-09", Device.unknown_advice_flags)
def flush_hides_other_flags(self: Device, flags: int) -> bool:
    """Together with FLUSH every flag is accepted."""
    return not flags & FLUSH and plain(self).unknown_advice_flags(flags)


@violates("ADV-09", Device.advised)
def windows_are_not_found(self: Device, lkey: int) -> Region:
    """The key of a window returns ENOENT."""
    if isinstance(self.keys.get(lkey), Window):
        raise Refused(errno.ENOENT)
    return plain(self).advised(lkey)


@violates("ADV-09", Device.unknown_advice_flags, written="blind")
def unknown_flags_beside_flush(self: Device, flags: int) -> bool:
    """Unknown flags are accepted beside FLUSH."""
    return plain(self).unknown_advice_flags(flags) and not flags & FLUSH


@violates("ADV-09", Device.unknown_advice_flags, written="blind")
def top_flag_accepted(self: Device, flags: int) -> bool:
    """The highest flag bit is accepted."""
    return plain(self).unknown_advice_flags(flags & 0x7FFFFFFF)


@violates("ADV-09", Device.advised, written="blind")
def windows_key_answers_efault(self: Device, lkey: int) -> Region:
    """A window's key is answered with EFAULT instead of EINVAL."""
    if self.keys.get(lkey) in self.windows:
        raise Refused(errno.EFAULT)
    return plain(self).advised(lkey)


@violates("ADV-09", Device.advise, written="blind")
def invalid_domain_answers_eperm(self: Device, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
    """An invalid PD is answered with EPERM."""
    if self.stack.has("advise_mr") and pd not in self.domains:
        raise Refused(errno.EPERM)
    plain(self).advise(pd, advice, flags, sg_list)


@violates("ADV-12", Device.advise)
def no_memory_not_told(self: Device, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
    """Advice returns 0 although memory is exhausted."""
    try:
        plain(self).advise(pd, advice, flags, sg_list)
    except Refused as refused:
        if refused.errno != errno.ENOMEM:
            raise


@violates("ADV-12", name="no-memory-answers-eagain", written="blind")
@violates("ADV-12", Device.advise)
def no_memory_is_again(self: Device, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
    """Advice returns EAGAIN if memory is exhausted."""
    try:
        plain(self).advise(pd, advice, flags, sg_list)
    except Refused as refused:
        raise Refused(errno.EAGAIN if refused.errno == errno.ENOMEM else refused.errno) from refused


@violates("ADV-12", Device.advise, written="blind")
def no_memory_answers_efault(self: Device, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
    """Where memory does not suffice the answer is EFAULT."""
    try:
        plain(self).advise(pd, advice, flags, sg_list)
    except Refused as refused:
        raise Refused(errno.EFAULT if refused.errno == errno.ENOMEM else refused.errno) from refused
