"""dma-bufs: the bytes of a region, and the addresses that reach them."""

from reference.objects import Domain, Region
from trial.mutants.bases import Knowing
from trial.violation import violates


@violates("DMA-06", written="blind")
class BufferLocallyFromItsBeginning(Knowing):
    """The range of an lkey in a dma-buf region is found without the region's offset."""

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
