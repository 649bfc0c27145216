"""Violations of dma-buf regions."""

from __future__ import annotations

import errno

from reference.device import Device
from reference.memory import PAGE
from reference.objects import HUGETLB, LOCAL_WRITE, MW_BIND, ON_DEMAND, RELAXED_ORDERING, ZERO_BASED, Refused, Region
from trial.violation import violates


@violates("DMA-01")
class DmabufWholeOnly(Device):
    """Only a whole dma-buf can be registered."""

    def dmabuf_range_fault(self, offset: int, length: int, size: int) -> int:
        return super().dmabuf_range_fault(offset, length, size) or (errno.EINVAL if length != size else 0)


@violates("DMA-01")
class DmabufRefused(Device):
    """Every second dma-buf is refused."""

    def dmabuf(self, fd: int) -> tuple[int, int]:
        self._asked = not getattr(self, "_asked", False)
        if self._asked:
            return super().dmabuf(fd)
        raise Refused(errno.ENOMEM)


@violates("DMA-02")
class DmabufOffsetUnchecked(Device):
    """The offsets of iova and offset within a page are not compared."""

    def dmabuf_offset_fault(self, offset: int, iova: int) -> int:
        return 0


@violates("DMA-02")
class DmabufOffsetsOfBothZero(Device):
    """offset and iova must both be multiples of the page size."""

    def dmabuf_offset_fault(self, offset: int, iova: int) -> int:
        return errno.EINVAL if offset % PAGE or iova % PAGE else 0


@violates("DMA-03")
class DmabufEveryFlag(Device):
    """Every access flag is accepted."""

    def dmabuf_unsupported(self, access: int) -> bool:
        return False


@violates("DMA-03")
class DmabufOnDemand(Device):
    """ON_DEMAND and HUGETLB are accepted."""

    def dmabuf_unsupported(self, access: int) -> bool:
        return super().dmabuf_unsupported(access & ~(ON_DEMAND | HUGETLB))


@violates("DMA-03")
class DmabufBinding(Device):
    """MW_BIND and ZERO_BASED are accepted."""

    def dmabuf_unsupported(self, access: int) -> bool:
        return super().dmabuf_unsupported(access & ~(MW_BIND | ZERO_BASED))


@violates("DMA-03")
class DmabufNoRelaxedOrdering(Device):
    """RELAXED_ORDERING is refused."""

    def dmabuf_unsupported(self, access: int) -> bool:
        return super().dmabuf_unsupported(access) or bool(access & RELAXED_ORDERING)


@violates("DMA-04")
class DmabufLongerThanItIs(Device):
    """Ranges beyond the end of the dma-buf are accepted."""

    def dmabuf_range_fault(self, offset: int, length: int, size: int) -> int:
        return 0


@violates("DMA-04")
class DmabufEndWraps(Device):
    """The end of a range wraps around at 64 bits."""

    def dmabuf_range_fault(self, offset: int, length: int, size: int) -> int:
        return super().dmabuf_range_fault(offset, (offset + length) % (1 << 64) - offset, size)


@violates("DMA-04")
class DmabufOfAnyFile(Device):
    """Any file is accepted as a dma-buf."""

    def dmabuf(self, fd: int) -> tuple[int, int]:
        try:
            return super().dmabuf(fd)
        except Refused:
            if fd < 0 or self.memory.is_open(fd) is False:
                raise
            return 0, 1 << 40


@violates("DMA-05")
class DmabufWriteAlone(Device):
    """REMOTE_WRITE and REMOTE_ATOMIC are granted without LOCAL_WRITE."""

    def register_dmabuf(self, pd: int, offset: int, length: int, iova: int, fd: int, access: int) -> Region:
        return super().register_dmabuf(pd, offset, length, iova, fd, access | LOCAL_WRITE)


@violates("DMA-06")
class DmabufFromItsBeginning(Device):
    """Traffic is addressed from the beginning of the dma-buf, not from the offset."""

    def register_dmabuf(self, pd: int, offset: int, length: int, iova: int, fd: int, access: int) -> Region:
        region = super().register_dmabuf(pd, offset, length, iova, fd, access)
        region.addr -= offset
        return region


@violates("DMA-06")
class DmabufNotWritten(Device):
    """Data written to a dma-buf stays in a cache."""

    def put(self, addr: int, content: bytes) -> bool:
        return self.memory.in_dmabuf(addr) or super().put(addr, content)
