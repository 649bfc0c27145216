"""dma-bufs: which bytes a region has and which address reaches them."""

from reference.device import Device
from reference.memory import PAGE
from reference.objects import Domain, Region
from trial.mutants.bases import Knowing
from trial.violation import plain, violates


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
