"""Registration: what a region is, what a refusal leaves behind, and access 0."""

from __future__ import annotations

import errno

from conformance.bench.calls import IbvMr, Pd
from reference.device import Device
from reference.extended import BUF, Attributes
from reference.memory import PAGE
from reference.objects import LOCAL_WRITE, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE, ZERO_BASED, Domain, Refused, Region
from trial.mutants.bases import Watching
from trial.violation import permits, plain, violates


@violates("REG-01", Device.structure)
def addr_of_the_page(self: Device, region: Region, pd: Pd, addr: int, length: int) -> IbvMr:
    """The structure has the address of the region's first page."""
    return plain(self).structure(region, pd, addr // PAGE * PAGE, length)


@violates("REG-01", Device.structure)
def length_of_the_pages(self: Device, region: Region, pd: Pd, addr: int, length: int) -> IbvMr:
    """The structure has a length rounded up to whole pages."""
    return plain(self).structure(region, pd, addr, -(-length // PAGE) * PAGE if length < 1 << 40 else length)


@violates("REG-01", Device.structure)
def pd_of_the_first(self: Device, region: Region, pd: Pd, addr: int, length: int) -> IbvMr:
    """The structure has the PD that was allocated first."""
    return plain(self).structure(region, next(iter(self.domains.values())), addr, length)


@violates("REG-01", Device.structure)
def no_context(self: Device, region: Region, pd: Pd, addr: int, length: int) -> IbvMr:
    """The structure has no context."""
    struct = plain(self).structure(region, pd, addr, length)
    struct.context = None
    return struct


@violates("REG-01", Device.structure)
def structure_not_filled_in(self: Device, region: Region, pd: Pd, addr: int, length: int) -> IbvMr:
    """The structure has neither keys nor a handle."""
    struct = plain(self).structure(region, pd, addr, length)
    struct.lkey = struct.rkey = struct.handle = 0
    return struct


@violates("REG-01", Device.range_fault)
def once_per_memory(self: Device, addr: int, length: int, access: int) -> int:
    """Registered memory cannot be registered a second time."""
    taken = any(each.addr == addr for each in self.regions.values())
    return errno.EEXIST if taken else plain(self).range_fault(addr, length, access)


@violates("REG-01", Device.range_fault)
def aligned_only(self: Device, addr: int, length: int, access: int) -> int:
    """A range that does not begin at a multiple of four bytes is refused."""
    return errno.EINVAL if addr % 4 else plain(self).range_fault(addr, length, access)


@violates("REG-01", Device.structure, written="blind")
def structure_length_in_whole_pages(self: Device, region: Region, pd: Pd, addr: int, length: int) -> IbvMr:
    """The structure of a region of more than a page tells its length rounded up to whole pages."""
    return plain(self).structure(region, pd, addr, -(-length // PAGE) * PAGE if length > PAGE else length)


@violates("REG-01", Device.structure, written="blind")
def structure_address_on_eight_bytes(self: Device, region: Region, pd: Pd, addr: int, length: int) -> IbvMr:
    """The structure tells an odd start rounded down to a multiple of eight."""
    return plain(self).structure(region, pd, addr & ~7, length)


@violates("REG-01", Device.structure, written="blind")
def structure_without_domain_for_atomics(self: Device, region: Region, pd: Pd, addr: int, length: int) -> IbvMr:
    """The structure of a region with REMOTE_ATOMIC has no PD in it."""
    made = plain(self).structure(region, pd, addr, length)
    if region.access & REMOTE_ATOMIC:
        made.pd = None
    return made


@violates("REG-01", Device.structure, written="blind")
def handle_of_zero_based_region_lost(self: Device, region: Region, pd: Pd, addr: int, length: int) -> IbvMr:
    """The structure of a ZERO_BASED region with remote rights has handle 0."""
    made = plain(self).structure(region, pd, addr, length)
    if region.access & ZERO_BASED and region.access & (REMOTE_WRITE | REMOTE_READ):
        made.handle = 0
    return made


@violates("REG-01", Device.structure, written="blind")
def structure_length_of_thirty_two_bits(self: Device, region: Region, pd: Pd, addr: int, length: int) -> IbvMr:
    """The structure tells only the lower 32 bits of a length."""
    return plain(self).structure(region, pd, addr, length & 0xFFFFFFFF)


@permits("REG-01", Device.new_handle, written="blind")
def regions_are_counted_by_the_device(self: Device) -> int:
    """Handles are those of the kernel's own counting and have gaps."""
    self._next += 6
    return plain(self).new_handle()


@violates("REG-02", Device.register)
def refused_and_kept(self: Device, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
    """A registration that is refused because of its memory stays registered."""
    try:
        return plain(self).register(pd, addr, length, hca_va, access)
    except Refused:
        self.keep(Region(self.new_handle(), self.new_key(), self.domain_of(pd), addr, length, addr, access))
        raise


@permits("REG-02")
class OtherErrnos(Device):
    """Every refusal of a registration has another errno, but for those of buffers, whose page says EINVAL."""

    _named = False  # whether the page names the errno

    def buffer_fault(self, pd: int, asked: Attributes) -> int:
        fault = super().buffer_fault(pd, asked)
        self._named = bool(fault)
        return fault

    def mask_fault(self, asked: Attributes) -> int:
        fault = super().mask_fault(asked)
        self._named = bool(fault and asked.comp_mask & BUF)
        return fault

    def reported_errno(self, errno: int) -> int:
        named, self._named = self._named, False
        return errno if named else errno + 1


@violates("REG-02a", Device.reported_errno)
def null_without_reason(self: Device, errno: int) -> int:
    """A refused registration does not set errno."""
    return 0


@violates("REG-02a", Device.reported_errno, written="blind")
def errno_is_negative(self: Device, errno: int) -> int:
    """A failed registration leaves the negative of its reason in errno."""
    return -errno


@violates("REG-02a", Device.reported_errno, written="blind")
def no_errno_for_unmapped_memory(self: Device, errno: int) -> int:
    """A registration of memory that is not there gives NULL and leaves errno 0."""
    return 0 if errno == 14 else errno


@violates("REG-02a", written="blind")
class ErrnoOfTheFailureBefore(Device):
    """A failed registration leaves the reason of the one that had failed before it in errno."""

    _before = 0

    def reported_errno(self, errno: int) -> int:
        text, self._before = self._before or errno, errno
        return text


@permits("REG-02a", Device.reported_errno, written="blind")
def every_refusal_is_einval(self: Device, errno: int) -> int:
    """Every refused registration has EINVAL for its reason."""
    return 22


@violates("REG-03", Device.access_fault)
def access_zero_refused(self: Device, access: int) -> int:
    """Access 0 is refused."""
    return plain(self).access_fault(access) if access else errno.EINVAL


@violates("REG-03", Device.local)
def local_read_needs_a_flag(self: Device, lkey: int, domain: Domain, addr: int, length: int, write: bool) -> int | None:
    """Local reads are refused for a region with access 0."""
    found = self.keys.get(lkey)
    deaf = isinstance(found, Region) and not found.access and not write
    return None if deaf else plain(self).local(lkey, domain, addr, length, write)


@violates("REG-03", Device.range_fault, written="blind")
def access_zero_needs_whole_pages(self: Device, addr: int, length: int, access: int) -> int:
    """Access 0 is refused where the length is not one of whole pages."""
    return errno.EINVAL if not access and length % PAGE else plain(self).range_fault(addr, length, access)


@violates("REG-03", Device.local, written="blind")
def local_read_lost_beside_remote_read(
    self: Device, lkey: int, domain: Domain, addr: int, length: int, write: bool
) -> int | None:
    """A region with REMOTE_READ as its only right cannot be read locally."""
    found = self.found(lkey)
    if isinstance(found, Region) and found.access == REMOTE_READ and not write:
        return None
    return plain(self).local(lkey, domain, addr, length, write)


@violates("REG-03", Watching.local, written="blind")
def local_read_lost_for_sends(
    self: Watching, lkey: int, domain: Domain, addr: int, length: int, write: bool
) -> int | None:
    """What has no LOCAL_WRITE can be the source of a write, but not that of a SEND."""
    found = self.found(lkey)
    if isinstance(found, Region) and not write and self.opcode == "SEND" and not found.access & LOCAL_WRITE:
        return None
    return plain(self).local(lkey, domain, addr, length, write)


@violates("REG-02a", Device.access_fault)
def failures_have_a_number_without_a_name(self: Device, access: int) -> int:
    """Access flags that no region can have are refused with the kernel's own 524."""
    return 524 if plain(self).access_fault(access) else 0


@violates("REG-02a", Device.range_fault)
def ranges_have_a_number_without_a_name(self: Device, addr: int, length: int, access: int) -> int:
    """Memory that cannot be registered is refused with the kernel's own 524."""
    return 524 if plain(self).range_fault(addr, length, access) else 0


@violates("DMA-04", Device.register_dmabuf)
def the_probe_is_granted(self: Device, pd: int, offset: int, length: int, iova: int, fd: int, access: int) -> Region:
    """A region of no bytes of no descriptor is granted."""
    if fd >= 0 or length:
        return plain(self).register_dmabuf(pd, offset, length, iova, fd, access)
    return self.keep(Region(self.new_handle(), self.new_key(), self.domain_of(pd), 0, 0, iova, access))
