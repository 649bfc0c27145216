"""Where a region begins and ends, of any length."""

from __future__ import annotations

import errno

from conformance.bench.calls import Sge
from conformance.bench.work_requests import SendRequest
from reference.device import Device
from reference.memory import PAGE
from reference.objects import HUGETLB, LOCAL_WRITE, ON_DEMAND, REMOTE_WRITE, Domain, Region
from reference.queues import Queue
from trial.mutants.bases import ATOMICS, SENDS, WORD_LENGTH, SharedReceives, Watching
from trial.violation import permits, plain, violates

GIB = 1 << 30
_GIB = 1 << 30


@violates("REG-20", Device.contains)
def one_byte_too_long(self: Device, region: Region, addr: int, length: int) -> bool:
    """A region ends one byte too late."""
    return addr >= region.iova and addr + length <= region.iova + region.length + 1


@violates("REG-20", Device.contains)
def one_byte_too_early(self: Device, region: Region, addr: int, length: int) -> bool:
    """A region begins one byte too early."""
    return addr >= region.iova - 1 and addr + length <= region.iova + region.length


@violates("REG-20", Device.contains)
def one_byte_too_short(self: Device, region: Region, addr: int, length: int) -> bool:
    """A region's last byte cannot be accessed."""
    return addr >= region.iova and addr + length < region.iova + region.length


@violates("REG-20", Device.contains)
def whole_pages(self: Device, region: Region, addr: int, length: int) -> bool:
    """A region extends to the ends of its pages."""
    start = region.iova // PAGE * PAGE
    return addr >= start and addr + length <= -(-(region.iova + region.length) // PAGE) * PAGE


@violates("REG-20", Device.contains)
def only_the_start_is_checked(self: Device, region: Region, addr: int, length: int) -> bool:
    """The end of an operation is not checked."""
    return region.iova <= addr < region.iova + region.length


@violates("REG-20", Device.local)
def local_bounds_unchecked(self: Device, lkey: int, domain: Domain, addr: int, length: int, write: bool) -> int | None:
    """The bounds of local elements are not checked."""
    found = self.keys.get(lkey)
    inside = isinstance(found, Region) and self.opens_locally(found, domain)
    if isinstance(found, Region) and inside and (not write or self.allows_local_write(found)):
        return self.translate(found, addr)
    return None


@violates("REG-20", SharedReceives.unchecked)
def shared_receives_have_no_end(self: SharedReceives, queue: Queue, region: Region, sge: Sge) -> int | None:
    """A message into a shared receive queue may end behind its region."""
    fits = region.access & LOCAL_WRITE and region.domain is queue.domain
    return self.translate(region, sge.addr) if fits and sge.addr >= region.iova else None


@violates("REG-20", Device.contains, written="blind")
def last_byte_of_whole_pages_closed(self: Device, region: Region, addr: int, length: int) -> bool:
    """The last byte of a region that ends with a page cannot be reached."""
    end = region.iova + region.length
    return plain(self).contains(region, addr, length) and not (end % PAGE == 0 and addr + length == end)


@violates("REG-20", Device.contains, written="blind")
def rest_of_the_last_page_open(self: Device, region: Region, addr: int, length: int) -> bool:
    """A region that does not end with a page is open up to the end of its last page."""
    end = -(-(region.iova + region.length) // PAGE) * PAGE
    return addr >= region.iova and addr + length <= end


@violates("REG-20", Watching.contains, written="blind")
def beginning_of_the_first_page_readable(self: Watching, region: Region, addr: int, length: int) -> bool:
    """What lies before a region within its first page can be read remotely."""
    start = region.iova // PAGE * PAGE if self.opcode == "RDMA_READ" else region.iova
    return addr >= start and addr + length <= region.iova + region.length


@violates("REG-20", Device.contains, written="blind")
def long_operations_checked_at_their_start(self: Device, region: Region, addr: int, length: int) -> bool:
    """Of an operation of more than a page only the first page's range is checked."""
    return plain(self).contains(region, addr, min(length, PAGE))


@violates("REG-20", written="blind")
class FlushesOfAnyRange(Device):
    """A flush is not held to the region's end."""

    def contains(self, region: Region, addr: int, length: int) -> bool:
        return super().contains(region, addr, 1 if self._flushes else length)

    _flushes = False

    def target(self, queue: Queue, request: SendRequest, length: int) -> int | None:
        self._flushes = request.opcode.startswith("FLUSH")
        try:
            return super().target(queue, request, length)
        finally:
            self._flushes = False


@violates("REG-20", Watching.contains, written="blind")
def atomics_not_on_the_last_word(self: Watching, region: Region, addr: int, length: int) -> bool:
    """An atomic on a region's last eight bytes is refused."""
    last = self.opcode in ATOMICS and addr + length == region.iova + region.length and region.length > WORD_LENGTH
    return plain(self).contains(region, addr, length) and not last


@violates("REG-20", Watching.contains, written="blind")
def one_byte_behind_for_receives(self: Watching, region: Region, addr: int, length: int) -> bool:
    """A receive may end one byte behind its region."""
    return plain(self).contains(region, addr, length - (self.opcode in SENDS and length > 1))


@violates("REG-20", Watching.contains, written="blind")
def atomics_half_behind_the_end(self: Watching, region: Region, addr: int, length: int) -> bool:
    """An atomic is checked as if it had four bytes: it may reach four bytes beyond the region's end."""
    return plain(self).contains(region, addr, 4 if self.opcode in ATOMICS and length == WORD_LENGTH else length)


@violates("REG-20", Device.contains, written="blind")
def region_of_one_byte_closed(self: Device, region: Region, addr: int, length: int) -> bool:
    """A region of one byte cannot be reached at all."""
    return plain(self).contains(region, addr, length) and region.length != 1


@violates("REG-20", Device.put, written="blind")
def data_shifted_behind_a_page(self: Device, addr: int, content: bytes) -> bool:
    """Of a remote write that crosses into another page, the part in the second page lands one byte too far."""
    here = PAGE - addr % PAGE
    if len(content) > here + 1:
        done = plain(self).put(addr, content[:here])
        return done and plain(self).put(addr + here + 1, content[here:-1])
    return plain(self).put(addr, content)


@permits("REG-20", written="blind")
class HandlesAreReused(Device):
    """The handle of a deregistered region is given to the next one."""

    def setup(self) -> None:
        self._free: list[int] = []

    def keep(self, region: Region) -> Region:
        if self._free:
            region.handle = self._free.pop()
        return super().keep(region)

    def deregister(self, handle: int) -> None:
        super().deregister(handle)
        self._free.append(handle)


@permits("REG-20", Device.put, written="blind")
def writes_stop_at_a_bad_page(self: Device, addr: int, content: bytes) -> bool:
    """Of a write into an on-demand region of which a page is gone, the pages before that one are written."""
    while content:
        here = PAGE - addr % PAGE
        if not plain(self).put(addr, content[:here]):
            return False
        addr, content = addr + here, content[here:]
    return True


@violates("REG-24")
class NoBytesOpenAWord(Device):
    """A region of no bytes is granted and opens the eight bytes at its address."""

    def range_fault(self, addr: int, length: int, access: int) -> int:
        return super().range_fault(addr, length or 8, access)

    def contains(self, region: Region, addr: int, length: int) -> bool:
        return super().contains(region, addr, length) or (
            not region.length and region.iova <= addr and addr + length <= region.iova + 8
        )


@violates("REG-24")
class NoBytesOpenEverything(Device):
    """A region of no bytes is granted and has no end."""

    def range_fault(self, addr: int, length: int, access: int) -> int:
        return super().range_fault(addr, length or 1, access)

    def contains(self, region: Region, addr: int, length: int) -> bool:
        return not region.length or super().contains(region, addr, length)


@violates("REG-24", written="blind")
class ZeroLengthRegionOpensItsPage(Device):
    """A region of no bytes is granted and opens the page in which it lies."""

    def range_fault(self, addr: int, length: int, access: int) -> int:
        return super().range_fault(addr, length or 1, access)

    def contains(self, region: Region, addr: int, length: int) -> bool:
        if region.length:
            return super().contains(region, addr, length)
        return addr // PAGE == region.iova // PAGE and addr % PAGE + length <= PAGE


@violates("REG-24", written="blind")
class UnalignedZeroLengthOpensOneByte(Device):
    """A region of no bytes that begins within a page is granted and opens one byte."""

    def range_fault(self, addr: int, length: int, access: int) -> int:
        return super().range_fault(addr, length or int(addr % PAGE > 0), access)

    def contains(self, region: Region, addr: int, length: int) -> bool:
        inside = addr >= region.iova and addr + length <= region.iova + max(1, region.length)
        return super().contains(region, addr, length) or (not region.length and inside)


@permits("REG-24", Device.range_fault, written="blind")
def zero_length_granted(self: Device, addr: int, length: int, access: int) -> int:
    """A region of no bytes is granted and opens nothing."""
    if length == 0 and not access & HUGETLB:
        return 0
    return plain(self).range_fault(addr, length, access)


@violates("REG-24a", Device.target)
def reads_of_no_bytes_are_checked(self: Device, queue: Queue, request: SendRequest, length: int) -> int | None:
    """A read of no bytes beyond the region is refused."""
    if length or request.opcode != "RDMA_READ":
        return plain(self).target(queue, request, length)
    found = self.keys.get(request.rkey)
    return self.place(found, request.remote_addr, 1) if isinstance(found, Region) else 0


@violates("REG-24a", Device.target, written="blind")
def no_bytes_need_a_range(self: Device, queue: Queue, request: SendRequest, length: int) -> int | None:
    """A write of no bytes is refused where its address is not the region's."""
    if length or request.opcode != "RDMA_WRITE":
        return plain(self).target(queue, request, length)
    peer = queue.peer
    return self.remote(request.rkey, peer.domain, peer.number, request.remote_addr, 0, REMOTE_WRITE)


@violates("REG-24a", Device.write, written="blind")
def write_of_no_bytes_writes_one(self: Device, queue: Queue, request: SendRequest) -> str:
    """A write of no bytes to a good key clears the byte at its address."""
    if request.opcode == "RDMA_WRITE" and not sum(sge.length for sge in request.sges):
        peer = queue.peer
        place = self.remote(request.rkey, peer.domain, peer.number, request.remote_addr, 1, REMOTE_WRITE)
        if place:
            self.memory.write(place, b"\0")
    return plain(self).write(queue, request)


@violates("REG-25", Device.keep)
def lengths_of_thirty_two_bits(self: Device, region: Region) -> Region:
    """Of a length only the lower 32 bits are kept."""
    if region.length < 1 << 40:
        region.length &= 0xFFFFFFFF
    return plain(self).keep(region)


@violates("REG-25", Device.translate)
def offsets_of_thirty_two_bits(self: Device, region: Region, addr: int) -> int:
    """In a region of more than 4 GiB the offset of an access is computed in 32 bits."""
    if region.length > 1 << 40:
        return plain(self).translate(region, addr)
    return region.addr + (addr - region.iova & 0xFFFFFFFF)


@violates("REG-25", Device.range_fault)
def huge_regions_are_refused(self: Device, addr: int, length: int, access: int) -> int:
    """More than 4 GiB cannot be registered."""
    huge = 4 * _GIB < length < 1 << 40
    return errno.ENOMEM if huge else plain(self).range_fault(addr, length, access)


@violates("REG-25", Device.contains, written="blind")
def four_gib_are_nothing(self: Device, region: Region, addr: int, length: int) -> bool:
    """The device keeps 32 bits of a length: beyond 4 GiB only the remainder is open."""
    return addr >= region.iova and addr + length <= region.iova + (region.length & 0xFFFFFFFF)


@violates("REG-25", Device.range_fault, written="blind")
def two_gib_are_negative(self: Device, addr: int, length: int, access: int) -> int:
    """A length of 2 GiB or more is refused."""
    if length >= 2 * GIB and not self.is_implicit(addr, length, access):
        return errno.EINVAL
    return plain(self).range_fault(addr, length, access)


@violates("REG-25", Device.translate, written="blind")
def offset_of_thirty_one_bits(self: Device, region: Region, addr: int) -> int:
    """Beyond 2 GiB into a region the wrong bytes are served: bit 31 of the offset is lost."""
    if region.length > 1 << 40:
        return plain(self).translate(region, addr)
    return region.addr + (addr - region.iova & ~(1 << 31))


@violates("REG-25", Device.range_fault, written="blind")
def on_demand_ends_at_four_gib(self: Device, addr: int, length: int, access: int) -> int:
    """An on-demand region, other than the implicit one, may not exceed 4 GiB."""
    if access & ON_DEMAND and length > 4 * GIB and not self.is_implicit(addr, length, access):
        return errno.ENOMEM
    return plain(self).range_fault(addr, length, access)
