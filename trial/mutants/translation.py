"""hca_va: which byte an address by key reaches."""

from __future__ import annotations

import errno

from reference.device import Device
from reference.memory import HUGEPAGE, PAGE
from reference.objects import (
    HUGETLB,
    LOCAL_WRITE,
    MW_BIND,
    ON_DEMAND,
    REMOTE_ATOMIC,
    REMOTE_READ,
    REMOTE_WRITE,
    ZERO_BASED,
    Domain,
    Refused,
    Region,
)
from trial.mutants.bases import ATOMICS, Watching
from trial.violation import plain, violates


def _moved(region: Region) -> bool:
    """Whether keys have other addresses than this process."""
    return region.iova != region.addr


@violates("IOVA-01", Device.reg_mr_iova)
def same_address_is_zero_based(self: Device, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
    """If hca_va equals addr, the region is addressed from 0."""
    return plain(self).reg_mr_iova(pd, addr, length, 0 if hca_va == addr else hca_va, access)


@violates("IOVA-01", Device.reg_mr_iova)
def same_address_refused(self: Device, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
    """hca_va equal to addr is refused."""
    if hca_va == addr:
        raise Refused(errno.EINVAL)
    return plain(self).reg_mr_iova(pd, addr, length, hca_va, access)


@violates("IOVA-01", Device.reg_mr_iova, written="blind")
def same_address_loses_atomics(self: Device, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
    """With hca_va equal to addr the region has no REMOTE_ATOMIC."""
    made = plain(self).reg_mr_iova(pd, addr, length, hca_va, access)
    if hca_va == addr:
        made.access &= ~REMOTE_ATOMIC
    return made


@violates("IOVA-01", Device.reg_mr_iova, written="blind")
def same_address_needs_whole_pages(self: Device, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
    """With hca_va equal to addr a length that is not one of whole pages is refused."""
    if hca_va == addr and length % PAGE:
        raise Refused(errno.EINVAL)
    return plain(self).reg_mr_iova(pd, addr, length, hca_va, access)


@violates("IOVA-01", Device.reg_mr_iova, written="blind")
def same_address_forgets_zero_based(self: Device, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
    """With hca_va equal to addr ZERO_BASED has no effect."""
    made = plain(self).reg_mr_iova(pd, addr, length, hca_va, access)
    if hca_va == addr:
        made.iova = addr
    return made


@violates("IOVA-02", Device.reg_mr_iova)
def iova_ignored(self: Device, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
    """hca_va is ignored."""
    return plain(self).reg_mr_iova(pd, addr, length, addr if hca_va else 0, access)


@violates("IOVA-02", Device.reg_mr_iova)
def iova_of_the_page(self: Device, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
    """hca_va loses its offset within the page."""
    return plain(self).reg_mr_iova(pd, addr, length, hca_va // PAGE * PAGE if hca_va != addr else addr, access)


@violates("IOVA-02", Device.place)
def iova_and_pointers(self: Device, region: Region, addr: int, length: int) -> int | None:
    """A region with another hca_va than addr can be accessed by pointers too."""
    found = plain(self).place(region, addr, length)
    inside = region.addr <= addr and addr + length <= region.addr + region.length
    return addr if found is None and inside and region.iova >= 1 << 32 else found


@violates("IOVA-02", Device.reg_mr_iova)
def iova_cut_off(self: Device, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
    """Addresses of requests are cut off at 32 bits."""
    return plain(self).reg_mr_iova(pd, addr, length, hca_va & 0xFFFFFFFF if hca_va != addr else addr, access)


@violates("IOVA-02", Device.contains)
def iova_bounds_of_memory(self: Device, region: Region, addr: int, length: int) -> bool:
    """A region with another hca_va than addr ends one byte too late."""
    more = region.iova not in (0, region.addr)
    return addr >= region.iova and addr + length <= region.iova + region.length + more


@violates("IOVA-02", Device.translate, written="blind")
def place_within_the_page_is_taken_from_the_key(self: Device, region: Region, addr: int) -> int:
    """Where addr and hca_va have other offsets within a page, bytes are found by the offset of hca_va."""
    if not _moved(region) or not region.iova:
        return plain(self).translate(region, addr)
    return region.addr // PAGE * PAGE + addr - region.iova // PAGE * PAGE


@violates("IOVA-02", Device.translate, written="blind")
def second_page_of_moved_region_wrong(self: Device, region: Region, addr: int) -> int:
    """In a region moved by part of a page everything behind its first page is found eight bytes too low."""
    place = plain(self).translate(region, addr)
    shifted = region.iova and (region.iova - region.addr) % PAGE and addr - region.iova >= PAGE
    return place - 8 if shifted else place


@violates("IOVA-02", Device.reg_mr_iova, written="blind")
def key_addresses_of_thirty_two_bits(self: Device, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
    """Of an hca_va beyond 4 GiB only the lower 32 bits are kept."""
    return plain(self).reg_mr_iova(pd, addr, length, hca_va if hca_va == addr else hca_va & 0xFFFFFFFF, access)


@violates("IOVA-02", Device.local, written="blind")
def elements_by_pointer_in_moved_regions(
    self: Device, lkey: int, domain: Domain, addr: int, length: int, write: bool
) -> int | None:
    """hca_va is heeded for rkeys only: elements of lists take this process's addresses."""
    found = self.found(lkey)
    if isinstance(found, Region) and _moved(found) and not found.access & ZERO_BASED and found.iova:
        addr = addr - found.addr + found.iova if addr >= found.addr else 0
    return plain(self).local(lkey, domain, addr, length, write)


@violates("IOVA-02", Device.contains, written="blind")
def last_byte_of_moved_regions_closed(self: Device, region: Region, addr: int, length: int) -> bool:
    """The last byte of a region with another hca_va cannot be reached."""
    last = region.iova and _moved(region) and addr + length == region.iova + region.length
    return plain(self).contains(region, addr, length) and not last


@violates("IOVA-02", Watching.translate, written="blind")
def atomics_by_pointer_in_moved_regions(self: Watching, region: Region, addr: int) -> int:
    """Atomics on a region with another hca_va are put where the key's address would lie without its page offset."""
    place = plain(self).translate(region, addr)
    return place // PAGE * PAGE + addr % PAGE if self.opcode in ATOMICS and region.iova else place


@violates("IOVA-02a", Device.reg_mr_iova)
def iova_must_fit_the_page(self: Device, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
    """hca_va with another offset within the page than addr is refused."""
    if hca_va and hca_va % PAGE != addr % PAGE:
        raise Refused(errno.EINVAL)
    return plain(self).reg_mr_iova(pd, addr, length, hca_va, access)


@violates("IOVA-02a", Device.reg_mr_iova)
def on_demand_iova_must_fit_the_page(self: Device, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
    """Of an on-demand region, hca_va with another offset within the page than addr is refused."""
    if access & ON_DEMAND and hca_va % PAGE != addr % PAGE:
        raise Refused(errno.EINVAL)
    return plain(self).reg_mr_iova(pd, addr, length, hca_va, access)


@violates("IOVA-02a", Device.reg_mr_iova)
def iova_below_the_kernel(self: Device, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
    """hca_va has to be an address that a process of this machine can have."""
    if hca_va >= 1 << 47:
        raise Refused(errno.EFAULT)
    return plain(self).reg_mr_iova(pd, addr, length, hca_va, access)


@violates("IOVA-02a", Device.reg_mr_iova, written="blind")
def key_addresses_are_signed(self: Device, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
    """An hca_va with its highest bit set is refused."""
    if hca_va >> 63:
        raise Refused(errno.EINVAL)
    return plain(self).reg_mr_iova(pd, addr, length, hca_va, access)


@violates("IOVA-04", Device.reg_mr_iova)
def iova_write_alone(self: Device, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
    """REMOTE_WRITE is granted without LOCAL_WRITE."""
    region = plain(self).reg_mr_iova(pd, addr, length, hca_va, access | LOCAL_WRITE)
    region.access = access
    return region


@violates("IOVA-04", Device.reg_mr_iova)
def iova_unknown_bits(self: Device, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
    """Unknown bits are ignored."""
    return plain(self).reg_mr_iova(pd, addr, length, hca_va, access & ~self.unknown_bits(access))


@violates("IOVA-04", Device.reg_mr_iova)
def iova_no_reads(self: Device, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
    """REMOTE_READ is refused."""
    if access == REMOTE_READ:
        raise Refused(errno.EINVAL)
    return plain(self).reg_mr_iova(pd, addr, length, hca_va, access)


@violates("IOVA-04", written="blind")
class MovedRemoteWriteAlone(Device):
    """With another hca_va REMOTE_WRITE needs no LOCAL_WRITE."""

    _moves = False

    def reg_mr_iova(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        self._moves = hca_va != addr
        try:
            return super().reg_mr_iova(pd, addr, length, hca_va, access)
        finally:
            self._moves = False

    def write_alone(self, access: int) -> bool:
        return not self._moves and super().write_alone(access)


@violates("IOVA-04", Device.reg_mr_iova, written="blind")
def moved_unknown_bits_accepted(self: Device, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
    """ibv_reg_mr_iova accepts unknown mandatory bits above the ninth."""
    return plain(self).reg_mr_iova(pd, addr, length, hca_va, access & ~0xC00)


@violates("IOVA-04", Device.reg_mr_iova, written="blind")
def moved_regions_cannot_be_bound(self: Device, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
    """ibv_reg_mr_iova drops MW_BIND where hca_va is not addr."""
    made = plain(self).reg_mr_iova(pd, addr, length, hca_va, access)
    if hca_va != addr:
        made.access &= ~MW_BIND
    return made


@violates("IOVA-04", Device.allows, written="blind")
def moved_regions_readable_as_writable(self: Device, region: Region, right: int) -> bool:
    """A region with another hca_va and REMOTE_WRITE can be read remotely too."""
    reads = right == REMOTE_READ and _moved(region) and region.access & REMOTE_WRITE
    return plain(self).allows(region, right) or bool(reads and not region.access & ZERO_BASED)


@violates("IOVA-06", Device.translate)
def huge_offsets_of_small_pages(self: Device, region: Region, addr: int) -> int:
    """In huge pages only the offset within a small page is taken from an hca_va that is not aligned."""
    place = plain(self).translate(region, addr)
    if region.iova % HUGEPAGE and self.memory.is_special("huge", region.addr, region.length):
        return region.addr + (place - region.addr) % HUGEPAGE
    return place


@violates("IOVA-06", Device.contains)
def huge_regions_end_at_an_aligned_address(self: Device, region: Region, addr: int, length: int) -> bool:
    """A region of huge pages ends at the last multiple of a huge page in its addresses."""
    if region.iova % HUGEPAGE and self.memory.is_special("huge", region.addr, region.length):
        end = (region.iova + region.length) // HUGEPAGE * HUGEPAGE
        return addr + length <= end and plain(self).contains(region, addr, length)
    return plain(self).contains(region, addr, length)


@violates("IOVA-06", Device.reg_mr_iova)
def huge_regions_need_a_fitting_address(
    self: Device, pd: int, addr: int, length: int, hca_va: int, access: int
) -> Region:
    """A region of huge pages is refused if its hca_va has another offset within a huge page than its memory."""
    if (hca_va - addr) % HUGEPAGE and self.memory.is_special("huge", addr, length):
        raise Refused(errno.EINVAL)
    return plain(self).reg_mr_iova(pd, addr, length, hca_va, access)


@violates("IOVA-06", Device.reg_mr_iova, written="blind")
def huge_needs_aligned_hca_va(self: Device, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
    """A region of huge pages whose hca_va is not aligned to them is refused."""
    if self.memory.is_special("huge", addr, length) and (hca_va - addr) % HUGEPAGE:
        raise Refused(errno.EINVAL)
    return plain(self).reg_mr_iova(pd, addr, length, hca_va, access)


@violates("IOVA-06", Device.translate, written="blind")
def huge_pages_found_by_key_address(self: Device, region: Region, addr: int) -> int:
    """In huge pages what lies beyond a multiple of the huge page in key addresses is found a huge page too low."""
    place = plain(self).translate(region, addr)
    huge = self.memory.is_special("huge", region.addr, region.length) and region.length > HUGEPAGE
    beyond = addr // HUGEPAGE > region.iova // HUGEPAGE and (region.iova - region.addr) % HUGEPAGE
    return place - HUGEPAGE if huge and beyond and place - HUGEPAGE >= region.addr else place


@violates("IOVA-06", Device.translate, written="blind")
def huge_offset_within_the_page_from_the_key(self: Device, region: Region, addr: int) -> int:
    """A region registered with HUGETLB takes the offset within a huge page from the key's address."""
    place = plain(self).translate(region, addr)
    if region.access & HUGETLB and region.access & ON_DEMAND and region.iova:
        return place // HUGEPAGE * HUGEPAGE + addr % HUGEPAGE
    return place
