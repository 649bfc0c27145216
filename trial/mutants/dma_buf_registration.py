"""dma-bufs: what is registered and what is refused."""

from __future__ import annotations

import errno

from reference.device import Device
from reference.objects import (
    FLUSH_GLOBAL,
    HUGETLB,
    LOCAL_WRITE,
    MW_BIND,
    ON_DEMAND,
    RELAXED_ORDERING,
    REMOTE_ATOMIC,
    REMOTE_READ,
    REMOTE_WRITE,
    ZERO_BASED,
    Refused,
    Region,
)
from trial.mutants.bases import Knowing
from trial.violation import permits, plain, violates


@violates("DMA-03", Device.dmabuf_unsupported)
def dmabuf_every_flag(self: Device, access: int) -> bool:
    """Every access flag is accepted."""
    return False


@violates("DMA-03", Device.dmabuf_unsupported)
def dmabuf_on_demand(self: Device, access: int) -> bool:
    """ON_DEMAND and HUGETLB are accepted."""
    return plain(self).dmabuf_unsupported(access & ~(ON_DEMAND | HUGETLB))


@violates("DMA-03", Device.dmabuf_unsupported)
def dmabuf_binding(self: Device, access: int) -> bool:
    """MW_BIND and ZERO_BASED are accepted."""
    return plain(self).dmabuf_unsupported(access & ~(MW_BIND | ZERO_BASED))


@violates("DMA-03", name="relaxed-buffers-refused", written="blind")
@violates("DMA-03", Device.dmabuf_unsupported)
def dmabuf_no_relaxed_ordering(self: Device, access: int) -> bool:
    """RELAXED_ORDERING is refused."""
    return plain(self).dmabuf_unsupported(access) or bool(access & RELAXED_ORDERING)


@violates("DMA-03", Device.allows_local_write)
def dmabuf_written_locally(self: Device, region: Region) -> bool:
    """Received data is written to dma-buf regions without LOCAL_WRITE."""
    return self.memory.in_dmabuf(region.addr) or plain(self).allows_local_write(region)


@violates("DMA-03", Device.dmabuf_unsupported, written="blind")
def binding_of_buffers(self: Device, access: int) -> bool:
    """MW_BIND is accepted for dma-bufs."""
    return plain(self).dmabuf_unsupported(access & ~MW_BIND)


@violates("DMA-03", Device.dmabuf_unsupported, written="blind")
def paging_of_buffers_beside_read(self: Device, access: int) -> bool:
    """ON_DEMAND is accepted for dma-bufs beside REMOTE_READ."""
    return plain(self).dmabuf_unsupported(access & ~ON_DEMAND if access & REMOTE_READ else access)


@violates("DMA-03", Device.dmabuf_unsupported, written="blind")
def zero_based_buffers(self: Device, access: int) -> bool:
    """ZERO_BASED is accepted for dma-bufs."""
    return plain(self).dmabuf_unsupported(access & ~ZERO_BASED)


@violates("DMA-03", Knowing.allows, written="blind")
def no_atomics_in_buffers(self: Knowing, region: Region, right: int) -> bool:
    """REMOTE_ATOMIC is accepted for dma-bufs, but atomics are refused there."""
    lost = right == REMOTE_ATOMIC and region.handle in self.of_buffers
    return plain(self).allows(region, right) and not lost


@violates("DMA-03", Device.dmabuf_unsupported, written="blind")
def flush_of_buffers(self: Device, access: int) -> bool:
    """FLUSH_GLOBAL is accepted for dma-bufs that have REMOTE_WRITE."""
    return plain(self).dmabuf_unsupported(access & ~FLUSH_GLOBAL if access & REMOTE_WRITE else access)


@permits("DMA-03", Device.dmabuf_fault, written="blind")
def buffers_with_unsupported_flags_are_invalid(
    self: Device, offset: int, length: int, iova: int, access: int, size: int
) -> int:
    """Flags that dma-bufs do not support are refused with EINVAL."""
    if self.dmabuf_unsupported(access):
        return errno.EINVAL
    return plain(self).dmabuf_fault(offset, length, iova, access, size)


@violates("DMA-04", Device.dmabuf_range_fault)
def dmabuf_longer_than_it_is(self: Device, offset: int, length: int, size: int) -> int:
    """Ranges beyond the end of the dma-buf are accepted."""
    return 0


@violates("DMA-04", Device.dmabuf_range_fault)
def dmabuf_end_wraps(self: Device, offset: int, length: int, size: int) -> int:
    """The end of a range wraps around at 64 bits."""
    return plain(self).dmabuf_range_fault(offset, (offset + length) % (1 << 64) - offset, size)


@violates("DMA-04", Device.dmabuf)
def dmabuf_of_any_file(self: Device, fd: int) -> tuple[int, int]:
    """Any file is accepted as a dma-buf."""
    try:
        return plain(self).dmabuf(fd)
    except Refused:
        if fd < 0 or self.memory.is_open(fd) is False:
            raise
        return 0, 1 << 40


@violates("DMA-04", Device.dmabuf_range_fault, written="blind")
def one_byte_beyond_the_buffer(self: Device, offset: int, length: int, size: int) -> int:
    """A range that ends one byte beyond the buffer is accepted."""
    return plain(self).dmabuf_range_fault(offset, length, size + 1)


@violates("DMA-04", Device.dmabuf_range_fault, written="blind")
def only_length_held_against_the_buffer(self: Device, offset: int, length: int, size: int) -> int:
    """A range that is no longer than the buffer is accepted at any offset within it."""
    return plain(self).dmabuf_range_fault(0 if offset < size else offset, length, size)


@violates("DMA-04", Device.dmabuf_range_fault, written="blind")
def offset_and_length_wrap(self: Device, offset: int, length: int, size: int) -> int:
    """An offset so high that offset + length wraps around is accepted."""
    return plain(self).dmabuf_range_fault(0, (offset + length) % (1 << 64) or length, size)


class _LastBuffer(Device):
    """A descriptor that is refused with `excused` stands for the dma-buf that was registered last."""

    excused = 0
    _last = (0, 0)

    def dmabuf(self, fd: int) -> tuple[int, int]:
        try:
            self._last = super().dmabuf(fd)
        except Refused as refused:
            if refused.errno != self.excused or not self._last[0]:
                raise
        return self._last


@violates("DMA-04", written="blind")
class ClosedDescriptorGivesTheLastBuffer(_LastBuffer):
    """A closed descriptor stands for the dma-buf that was registered last."""

    excused = errno.EBADF


@violates("DMA-04", written="blind")
class AnyFileGivesTheLastBuffer(_LastBuffer):
    """A descriptor that is not a dma-buf stands for the one that was registered last."""

    excused = errno.EINVAL


@permits("DMA-04", Device.dmabuf, written="blind")
def wrong_descriptors_are_ebadf(self: Device, fd: int) -> tuple[int, int]:
    """A descriptor that is not a dma-buf is refused with EBADF."""
    try:
        return plain(self).dmabuf(fd)
    except Refused as refused:
        raise Refused(errno.EBADF) from refused


@permits("DMA-04", Device.dmabuf_range_fault, written="blind")
def ranges_beyond_the_buffer_are_enomem(self: Device, offset: int, length: int, size: int) -> int:
    """A range beyond the dma-buf is refused with ENOMEM."""
    return errno.ENOMEM if plain(self).dmabuf_range_fault(offset, length, size) else 0


@permits("DMA-04", Device.dmabuf_range_fault, written="blind")
def buffer_without_bytes_granted(self: Device, offset: int, length: int, size: int) -> int:
    """A region of no bytes of a dma-buf is granted and opens nothing."""
    return errno.EINVAL if offset + length > size else 0


@violates("DMA-05", Device.register_dmabuf)
def dmabuf_write_alone(self: Device, pd: int, offset: int, length: int, iova: int, fd: int, access: int) -> Region:
    """REMOTE_WRITE and REMOTE_ATOMIC are granted without LOCAL_WRITE."""
    return plain(self).register_dmabuf(pd, offset, length, iova, fd, access | LOCAL_WRITE)


@violates("DMA-05", Knowing.write_alone, written="blind")
def buffer_remote_write_alone(self: Knowing, access: int) -> bool:
    """REMOTE_WRITE without LOCAL_WRITE is accepted for dma-bufs."""
    return not self.registering and plain(self).write_alone(access)


@violates("DMA-05", Knowing.atomic_alone, written="blind")
def buffer_atomic_alone(self: Knowing, access: int) -> bool:
    """REMOTE_ATOMIC without LOCAL_WRITE is accepted for dma-bufs that can be read."""
    return not (self.registering and access & REMOTE_READ) and plain(self).atomic_alone(access)


@violates("DMA-05", Device.register_dmabuf, written="blind")
def buffer_local_write_added(
    self: Device, pd: int, offset: int, length: int, iova: int, fd: int, access: int
) -> Region:
    """A dma-buf with REMOTE_WRITE | REMOTE_ATOMIC gets LOCAL_WRITE without having asked for it."""
    both = REMOTE_WRITE | REMOTE_ATOMIC
    return plain(self).register_dmabuf(
        pd, offset, length, iova, fd, access | LOCAL_WRITE if access & both == both else access
    )
