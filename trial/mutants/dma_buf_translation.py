"""dma-bufs: which bytes a region has and which address reaches them."""

from __future__ import annotations

import errno

from conformance.bench.calls import IbvMr, Pd
from reference.device import Device
from reference.memory import PAGE
from reference.objects import Domain, Refused, Region
from trial.mutants.bases import Knowing
from trial.violation import plain, violates


@violates("DMA-01", Device.dmabuf_range_fault)
def dmabuf_whole_only(self: Device, offset: int, length: int, size: int) -> int:
    """Only a whole dma-buf can be registered."""
    return plain(self).dmabuf_range_fault(offset, length, size) or (errno.EINVAL if length != size else 0)


@violates("DMA-01")
class DmabufRefused(Device):
    """Every second dma-buf is refused."""

    def dmabuf(self, fd: int) -> tuple[int, int]:
        self._asked = not getattr(self, "_asked", False)
        if self._asked:
            return super().dmabuf(fd)
        raise Refused(errno.ENOMEM)


@violates("DMA-01", Knowing.contains, written="blind")
def buffer_open_to_its_end(self: Knowing, region: Region, addr: int, length: int) -> bool:
    """A region of part of a dma-buf is open for one page beyond its length."""
    more = PAGE if region.handle in self.of_buffers else 0
    return addr >= region.iova and addr + length <= region.iova + region.length + more


@violates("DMA-01", Knowing.contains, written="blind")
def buffer_in_whole_pages(self: Knowing, region: Region, addr: int, length: int) -> bool:
    """Of a dma-buf region only whole pages are registered: the bytes of a last part of a page are refused."""
    size = region.length // PAGE * PAGE or region.length
    short = region.handle in self.of_buffers and addr + length > region.iova + size
    return plain(self).contains(region, addr, length) and not short


@violates("DMA-01", written="blind")
class BufferOfAnEarlierDescriptor(Knowing):
    """A file descriptor's number is remembered: a later dma-buf of the same number is taken for the earlier one."""

    def setup(self) -> None:
        super().setup()
        self._known: dict[int, tuple[int, int]] = {}

    def dmabuf(self, fd: int) -> tuple[int, int]:
        found = super().dmabuf(fd)
        return self._known.setdefault(fd, found)


@violates("DMA-01", Knowing.structure, written="blind")
def buffer_length_told(self: Knowing, region: Region, pd: Pd, addr: int, length: int) -> IbvMr:
    """The structure tells the length of a dma-buf region up to the end of its last page."""
    text = -(-length // PAGE) * PAGE if region.handle in self.of_buffers else length
    return plain(self).structure(region, pd, addr, text)


@violates("DMA-02", Device.dmabuf_offset_fault)
def dmabuf_offset_unchecked(self: Device, offset: int, iova: int) -> int:
    """The offsets of iova and offset within a page are not compared."""
    return 0


@violates("DMA-02", Device.dmabuf_offset_fault)
def dmabuf_offsets_of_both_zero(self: Device, offset: int, iova: int) -> int:
    """offset and iova must both be multiples of the page size."""
    return errno.EINVAL if offset % PAGE or iova % PAGE else 0


@violates("DMA-02", Device.dmabuf_offset_fault, written="blind")
def aligned_iova_for_any_offset(self: Device, offset: int, iova: int) -> int:
    """An iova at the beginning of a page is accepted for an offset within one."""
    return plain(self).dmabuf_offset_fault(offset, iova) if iova % PAGE else 0


@violates("DMA-02", Device.dmabuf_offset_fault, written="blind")
def any_iova_for_aligned_offset(self: Device, offset: int, iova: int) -> int:
    """For an offset at the beginning of a page any iova is accepted."""
    return plain(self).dmabuf_offset_fault(offset, iova) if offset % PAGE else 0


@violates("DMA-02", Device.dmabuf_offset_fault, written="blind")
def page_offset_of_two_thousand(self: Device, offset: int, iova: int) -> int:
    """The page offsets of iova and offset are compared in their lower eleven bits only."""
    return plain(self).dmabuf_offset_fault(offset % 2048, iova % 2048)


@violates("DMA-02", Device.register_dmabuf, written="blind")
def offset_is_the_iova(self: Device, pd: int, offset: int, length: int, iova: int, fd: int, access: int) -> Region:
    """Keys address a dma-buf region from its offset on, whatever iova was given."""
    made = plain(self).register_dmabuf(pd, offset, length, iova, fd, access)
    made.iova = offset
    return made


@violates("DMA-02", Device.register_dmabuf, written="blind")
def buffer_iova_of_thirty_two_bits(
    self: Device, pd: int, offset: int, length: int, iova: int, fd: int, access: int
) -> Region:
    """Of the iova of a dma-buf region only the lower 32 bits are kept."""
    return plain(self).register_dmabuf(pd, offset, length, iova & 0xFFFFFFFF, fd, access)


@violates("DMA-06", Device.register_dmabuf)
def dmabuf_from_its_beginning(
    self: Device, pd: int, offset: int, length: int, iova: int, fd: int, access: int
) -> Region:
    """Traffic is addressed from the beginning of the dma-buf, not from the offset."""
    region = plain(self).register_dmabuf(pd, offset, length, iova, fd, access)
    region.addr -= offset
    return region


@violates("DMA-06", Device.put)
def dmabuf_not_written(self: Device, addr: int, content: bytes) -> bool:
    """Data written to a dma-buf stays in a cache."""
    return self.memory.in_dmabuf(addr) or plain(self).put(addr, content)


@violates("DMA-06", Device.local)
def dmabuf_by_lkey_from_its_beginning(
    self: Device, lkey: int, domain: Domain, addr: int, length: int, write: bool
) -> int | None:
    """Through its lkey, a dma-buf region begins at the beginning of the dma-buf."""
    at, found = plain(self).local(lkey, domain, addr, length, write), self.found(lkey)
    if at is None or not isinstance(found, Region) or not self.memory.in_dmabuf(found.addr):
        return at
    before = found.addr
    while self.memory.in_dmabuf(before - PAGE):
        before -= PAGE
    return at - (found.addr - before)


@violates("DMA-06", Knowing.translate, written="blind")
def buffer_offset_in_whole_pages(self: Knowing, region: Region, addr: int) -> int:
    """An offset within a page is rounded down: traffic lands at the beginning of that page."""
    place = plain(self).translate(region, addr)
    return place - region.iova % PAGE if region.handle in self.of_buffers else place


@violates("DMA-06", Knowing.register_dmabuf, written="blind")
def buffer_offset_of_the_second_page_on(
    self: Knowing, pd: int, offset: int, length: int, iova: int, fd: int, access: int
) -> Region:
    """An offset of two pages or more is taken for one of one page."""
    made = plain(self).register_dmabuf(pd, offset, length, iova, fd, access)
    if offset >= 2 * PAGE:
        made.addr -= offset // PAGE * PAGE - PAGE
    return made


@violates("DMA-06", written="blind")
class BufferLocallyFromItsBeginning(Knowing):
    """What an lkey addresses in a dma-buf region is found without its offset."""

    def local(self, lkey: int, domain: Domain, addr: int, length: int, write: bool) -> int | None:
        place = super().local(lkey, domain, addr, length, write)
        found = self.found(lkey)
        if place is not None and isinstance(found, Region) and found.handle in self.of_buffers:
            start, _ = self._buffers_of[found.handle]
            return place - (found.addr - start)
        return place

    def setup(self) -> None:
        super().setup()
        self._buffers_of: dict[int, tuple[int, int]] = {}

    def register_dmabuf(self, pd: int, offset: int, length: int, iova: int, fd: int, access: int) -> Region:
        made = super().register_dmabuf(pd, offset, length, iova, fd, access)
        self._buffers_of[made.handle] = (made.addr - offset, offset)
        return made
