"""ZERO_BASED, and hca_va 0: addresses that are offsets."""

from __future__ import annotations

from reference.device import Device
from reference.memory import PAGE
from reference.objects import ON_DEMAND, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE, ZERO_BASED, Domain, Region
from trial.violation import plain, violates


@violates("REG-11", Device.base)
def zero_based_ignored(self: Device, hca_va: int, access: int) -> int:
    """ZERO_BASED regions are addressed by pointers."""
    return hca_va


@violates("REG-11", Device.reg_mr)
def zero_based_from_the_page(self: Device, pd: int, addr: int, length: int, access: int) -> Region:
    """ZERO_BASED addresses start at the beginning of the region's first page."""
    region = plain(self).reg_mr(pd, addr, length, access)
    region.iova = region.iova or addr % PAGE
    return region


@violates("REG-11", Device.place)
def zero_based_and_pointers(self: Device, region: Region, addr: int, length: int) -> int | None:
    """ZERO_BASED regions can be addressed by pointers too."""
    if region.access & ZERO_BASED and addr >= region.addr:
        addr -= region.addr
    return plain(self).place(region, addr, length)


@violates("REG-11", Device.contains)
def zero_based_to_the_pages_end(self: Device, region: Region, addr: int, length: int) -> bool:
    """A region with ZERO_BASED extends to the end of its last page."""
    within = region.addr % PAGE
    size = -(-(within + region.length) // PAGE) * PAGE - within if region.access & ZERO_BASED else region.length
    return addr >= region.iova and addr + length <= region.iova + size


@violates("REG-11", Device.register, name="zero-based-from-the-page", written="blind")
def zero_based_is_offset_in_the_page(self: Device, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
    """ZERO_BASED counts from the beginning of the region's first page instead of its first byte."""
    made = plain(self).register(pd, addr, length, hca_va, access)
    if access & ZERO_BASED:
        made.iova = addr % PAGE
    return made


@violates("REG-11", Device.local, written="blind")
def zero_based_for_peers_only(
    self: Device, lkey: int, domain: Domain, addr: int, length: int, write: bool
) -> int | None:
    """ZERO_BASED is heeded for rkeys; elements of lists still take addresses."""
    found = self.found(lkey)
    if isinstance(found, Region) and found.access & ZERO_BASED:
        addr = addr - found.addr if addr >= found.addr else found.length + 1
    return plain(self).local(lkey, domain, addr, length, write)


@violates("REG-11", Device.remote, written="blind")
def zero_based_or_by_address(
    self: Device, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int
) -> int | None:
    """A ZERO_BASED region can be reached by its addresses as well, for remote writes."""
    found = self.found(rkey)
    if isinstance(found, Region) and found.access & ZERO_BASED and right == REMOTE_WRITE and addr >= found.addr:
        addr -= found.addr
    return plain(self).remote(rkey, domain, queue, addr, length, right)


@violates("REG-11", Device.base, written="blind")
def zero_based_forgotten_on_demand(self: Device, hca_va: int, access: int) -> int:
    """ZERO_BASED is ignored beside ON_DEMAND."""
    return hca_va if access & ON_DEMAND else plain(self).base(hca_va, access)


@violates("REG-11", Device.remote, written="blind")
def zero_based_atomics_by_address(
    self: Device, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int
) -> int | None:
    """Atomics on a ZERO_BASED region take addresses instead of offsets."""
    found = self.found(rkey)
    if isinstance(found, Region) and found.access & ZERO_BASED and right == REMOTE_ATOMIC:
        addr = addr - found.addr if addr >= found.addr else found.length
    return plain(self).remote(rkey, domain, queue, addr, length, right)


@violates("IOVA-03", name="hca-va-zero-means-addr", written="blind")
@violates("IOVA-03", Device.reg_mr_iova)
def iova_zero_is_none(self: Device, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
    """hca_va 0 counts as no hca_va, and addr is used."""
    return plain(self).reg_mr_iova(pd, addr, length, hca_va or addr, access)


@violates("IOVA-03", name="hca-va-zero-begins-with-the-page", written="blind")
@violates("IOVA-03", Device.reg_mr_iova)
def iova_zero_of_the_page(self: Device, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
    """hca_va 0 denotes the beginning of the region's first page."""
    return plain(self).reg_mr_iova(pd, addr, length, hca_va or addr % PAGE, access)


@violates("IOVA-03", Device.remote, written="blind")
def hca_va_zero_reads_by_address(
    self: Device, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int
) -> int | None:
    """With hca_va 0 remote reads take addresses, other operations offsets."""
    found = self.found(rkey)
    if isinstance(found, Region) and not found.access & ZERO_BASED and not found.iova and right == REMOTE_READ:
        addr = addr - found.addr if addr >= found.addr > 0 else found.length + 1
    return plain(self).remote(rkey, domain, queue, addr, length, right)
