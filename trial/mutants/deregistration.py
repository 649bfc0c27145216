"""Deregistration: its codes, and the end of the keys."""

from reference.device import Device
from reference.objects import Region


class _Haunted(Device):
    """A device that remembers deregistered regions."""

    def setup(self) -> None:
        self.ghosts: dict[int, Region] = {}

    def deregister(self, handle: int) -> None:
        """Ends a region incompletely."""
        region = self.regions.get(handle)
        super().deregister(handle)
        if region:
            self.ghosts[region.key] = region
