"""dma-bufs: what is registered and what is refused."""

import errno

from reference.device import Device
from reference.objects import Refused
from trial.violation import permits, plain, violates


@violates("DMA-04", Device.dmabuf)
def dmabuf_of_any_file(self: Device, fd: int) -> tuple[int, int]:
    """Any file is accepted as a dma-buf."""
    try:
        return plain(self).dmabuf(fd)
    except Refused:
        if fd < 0 or self.memory.is_open(fd) is False:
            raise
        return 0, 1 << 40


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


@permits("DMA-04", Device.dmabuf, written="blind")
def wrong_descriptors_are_ebadf(self: Device, fd: int) -> tuple[int, int]:
    """A descriptor that is not a dma-buf is refused with EBADF."""
    try:
        return plain(self).dmabuf(fd)
    except Refused as refused:
        raise Refused(errno.EBADF) from refused
