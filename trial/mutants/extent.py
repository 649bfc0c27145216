"""The beginning and the end of regions of any length."""

from reference.device import Device
from reference.objects import Region
from trial.violation import permits

GIB = 1 << 30


@permits("REG-20", written="blind")
class HandlesAreReused(Device):
    """The handle of a deregistered region is given to the next region."""

    def setup(self) -> None:
        self._free: list[int] = []

    def keep(self, region: Region) -> Region:
        if self._free:
            region.handle = self._free.pop()
        return super().keep(region)

    def deregister(self, handle: int) -> None:
        super().deregister(handle)
        self._free.append(handle)
