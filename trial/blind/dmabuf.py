"""Regions of dma-bufs."""

from __future__ import annotations

from conformance.bench.calls import IbvMr, Pd
from reference.device import Device
from reference.memory import PAGE
from reference.objects import (
    FLUSH_GLOBAL,
    LOCAL_WRITE,
    MW_BIND,
    ON_DEMAND,
    RELAXED_ORDERING,
    REMOTE_ATOMIC,
    REMOTE_READ,
    REMOTE_WRITE,
    ZERO_BASED,
    Domain,
    Refused,
    Region,
)
from reference.stack import WHOLE, Stack
from trial.violation import violates


class _Knowing(Device):
    """A device that knows which regions are of dma-bufs, and when it registers one."""

    registering = False

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
        self.of_buffers: set[int] = set()

    def register_dmabuf(self, pd: int, offset: int, length: int, iova: int, fd: int, access: int) -> Region:
        """A region of a dma-buf. Raises Refused."""
        self.registering = True
        try:
            made = super().register_dmabuf(pd, offset, length, iova, fd, access)
        finally:
            self.registering = False
        self.of_buffers.add(made.handle)
        return made


@violates("DMA-01")
class BufferOpenToItsEnd(_Knowing):
    """A region of part of a dma-buf is open for one page beyond its length."""

    def contains(self, region: Region, addr: int, length: int) -> bool:
        more = PAGE if region.handle in self.of_buffers else 0
        return addr >= region.iova and addr + length <= region.iova + region.length + more


@violates("DMA-01")
class BufferInWholePages(_Knowing):
    """Of a dma-buf region only whole pages are registered: the bytes of a last part of a page are refused."""

    def contains(self, region: Region, addr: int, length: int) -> bool:
        size = region.length // PAGE * PAGE or region.length
        short = region.handle in self.of_buffers and addr + length > region.iova + size
        return super().contains(region, addr, length) and not short


@violates("DMA-01")
class BufferOfAnEarlierDescriptor(_Knowing):
    """A file descriptor's number is remembered: a later dma-buf of the same number is taken for the earlier one."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
        self._known: dict[int, tuple[int, int]] = {}

    def dmabuf(self, fd: int) -> tuple[int, int]:
        found = super().dmabuf(fd)
        return self._known.setdefault(fd, found)


@violates("DMA-01")
class BufferLengthTold(_Knowing):
    """The structure tells the length of a dma-buf region up to the end of its last page."""

    def structure(self, region: Region, pd: Pd, addr: int, length: int) -> IbvMr:
        told = -(-length // PAGE) * PAGE if region.handle in self.of_buffers else length
        return super().structure(region, pd, addr, told)


@violates("DMA-02")
class AlignedIovaForAnyOffset(Device):
    """An iova at the beginning of a page is accepted for an offset within one."""

    def dmabuf_offset_fault(self, offset: int, iova: int) -> int:
        return super().dmabuf_offset_fault(offset, iova) if iova % PAGE else 0


@violates("DMA-02")
class AnyIovaForAlignedOffset(Device):
    """For an offset at the beginning of a page any iova is accepted."""

    def dmabuf_offset_fault(self, offset: int, iova: int) -> int:
        return super().dmabuf_offset_fault(offset, iova) if offset % PAGE else 0


@violates("DMA-02")
class PageOffsetOfTwoThousand(Device):
    """The page offsets of iova and offset are compared in their lower eleven bits only."""

    def dmabuf_offset_fault(self, offset: int, iova: int) -> int:
        return super().dmabuf_offset_fault(offset % 2048, iova % 2048)


@violates("DMA-02")
class OffsetIsTheIova(Device):
    """Keys address a dma-buf region from its offset on, whatever iova was given."""

    def register_dmabuf(self, pd: int, offset: int, length: int, iova: int, fd: int, access: int) -> Region:
        made = super().register_dmabuf(pd, offset, length, iova, fd, access)
        made.iova = offset
        return made


@violates("DMA-02")
class BufferIovaOfThirtyTwoBits(Device):
    """Of the iova of a dma-buf region only the lower 32 bits are kept."""

    def register_dmabuf(self, pd: int, offset: int, length: int, iova: int, fd: int, access: int) -> Region:
        return super().register_dmabuf(pd, offset, length, iova & 0xFFFFFFFF, fd, access)


@violates("DMA-03")
class BindingOfBuffers(Device):
    """MW_BIND is accepted for dma-bufs."""

    def dmabuf_unsupported(self, access: int) -> bool:
        return super().dmabuf_unsupported(access & ~MW_BIND)


@violates("DMA-03")
class PagingOfBuffersBesideRead(Device):
    """ON_DEMAND is accepted for dma-bufs beside REMOTE_READ."""

    def dmabuf_unsupported(self, access: int) -> bool:
        return super().dmabuf_unsupported(access & ~ON_DEMAND if access & REMOTE_READ else access)


@violates("DMA-03")
class ZeroBasedBuffers(Device):
    """ZERO_BASED is accepted for dma-bufs."""

    def dmabuf_unsupported(self, access: int) -> bool:
        return super().dmabuf_unsupported(access & ~ZERO_BASED)


@violates("DMA-03")
class RelaxedBuffersRefused(Device):
    """RELAXED_ORDERING is refused for dma-bufs."""

    def dmabuf_unsupported(self, access: int) -> bool:
        return super().dmabuf_unsupported(access) or bool(access & RELAXED_ORDERING)


@violates("DMA-03")
class NoAtomicsInBuffers(_Knowing):
    """REMOTE_ATOMIC is accepted for dma-bufs, but atomics are refused there."""

    def allows(self, region: Region, right: int) -> bool:
        lost = right == REMOTE_ATOMIC and region.handle in self.of_buffers
        return super().allows(region, right) and not lost


@violates("DMA-03")
class FlushOfBuffers(Device):
    """FLUSH_GLOBAL is accepted for dma-bufs that have REMOTE_WRITE."""

    def dmabuf_unsupported(self, access: int) -> bool:
        return super().dmabuf_unsupported(access & ~FLUSH_GLOBAL if access & REMOTE_WRITE else access)


@violates("DMA-04")
class OneByteBeyondTheBuffer(Device):
    """A range that ends one byte beyond the buffer is accepted."""

    def dmabuf_range_fault(self, offset: int, length: int, size: int) -> int:
        return super().dmabuf_range_fault(offset, length, size + 1)


@violates("DMA-04")
class OnlyLengthHeldAgainstTheBuffer(Device):
    """A range that is no longer than the buffer is accepted at any offset within it."""

    def dmabuf_range_fault(self, offset: int, length: int, size: int) -> int:
        return super().dmabuf_range_fault(0 if offset < size else offset, length, size)


@violates("DMA-04")
class OffsetAndLengthWrap(Device):
    """An offset so high that offset + length wraps around is accepted."""

    def dmabuf_range_fault(self, offset: int, length: int, size: int) -> int:
        return super().dmabuf_range_fault(0, (offset + length) % (1 << 64) or length, size)


@violates("DMA-04")
class ClosedDescriptorGivesTheLastBuffer(Device):
    """A closed descriptor stands for the dma-buf that was registered last."""

    _last = (0, 0)

    def dmabuf(self, fd: int) -> tuple[int, int]:
        try:
            self._last = super().dmabuf(fd)
        except Refused as refused:
            if refused.errno != 9 or not self._last[0]:
                raise
        return self._last


@violates("DMA-04")
class AnyFileGivesTheLastBuffer(Device):
    """A descriptor that is no dma-buf stands for the one that was registered last."""

    _last = (0, 0)

    def dmabuf(self, fd: int) -> tuple[int, int]:
        try:
            self._last = super().dmabuf(fd)
        except Refused as refused:
            if refused.errno != 22 or not self._last[0]:
                raise
        return self._last


@violates("DMA-05")
class BufferRemoteWriteAlone(_Knowing):
    """REMOTE_WRITE without LOCAL_WRITE is accepted for dma-bufs."""

    def write_alone(self, access: int) -> bool:
        return not self.registering and super().write_alone(access)


@violates("DMA-05")
class BufferAtomicAlone(_Knowing):
    """REMOTE_ATOMIC without LOCAL_WRITE is accepted for dma-bufs that can be read."""

    def atomic_alone(self, access: int) -> bool:
        return not (self.registering and access & REMOTE_READ) and super().atomic_alone(access)


@violates("DMA-05")
class BufferLocalWriteAdded(Device):
    """A dma-buf with REMOTE_WRITE | REMOTE_ATOMIC gets LOCAL_WRITE without having asked for it."""

    def register_dmabuf(self, pd: int, offset: int, length: int, iova: int, fd: int, access: int) -> Region:
        both = REMOTE_WRITE | REMOTE_ATOMIC
        return super().register_dmabuf(
            pd, offset, length, iova, fd, access | LOCAL_WRITE if access & both == both else access
        )


@violates("DMA-06")
class BufferOffsetInWholePages(_Knowing):
    """An offset within a page is rounded down: traffic lands at the beginning of that page."""

    def translate(self, region: Region, addr: int) -> int:
        place = super().translate(region, addr)
        return place - region.iova % PAGE if region.handle in self.of_buffers else place


@violates("DMA-06")
class BufferOffsetOfTheSecondPageOn(_Knowing):
    """An offset of two pages or more is taken for one of one page."""

    def register_dmabuf(self, pd: int, offset: int, length: int, iova: int, fd: int, access: int) -> Region:
        made = super().register_dmabuf(pd, offset, length, iova, fd, access)
        if offset >= 2 * PAGE:
            made.addr -= offset // PAGE * PAGE - PAGE
        return made


@violates("DMA-06")
class BufferLocallyFromItsBeginning(_Knowing):
    """What an lkey addresses in a dma-buf region is found without its offset."""

    def local(self, lkey: int, domain: Domain, addr: int, length: int, write: bool) -> int | None:
        place = super().local(lkey, domain, addr, length, write)
        found = self.found(lkey)
        if place is not None and isinstance(found, Region) and found.handle in self.of_buffers:
            start, _ = self._buffers_of[found.handle]
            return place - (found.addr - start)
        return place

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
        self._buffers_of: dict[int, tuple[int, int]] = {}

    def register_dmabuf(self, pd: int, offset: int, length: int, iova: int, fd: int, access: int) -> Region:
        made = super().register_dmabuf(pd, offset, length, iova, fd, access)
        self._buffers_of[made.handle] = (made.addr - offset, offset)
        return made
