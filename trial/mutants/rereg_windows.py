"""Access through a window after ibv_rereg_mr has changed its region."""

from reference.device import Device
from reference.objects import Region
from reference.reregistration import Change


class _ChangedBelowWindows(Device):
    """A region with a bound window can be changed. `before` has address, length and flags of the latest changes."""

    def setup(self) -> None:
        self.before: dict[int, tuple[int, int, int]] = {}

    def held(self, region: Region) -> bool:
        return False

    def apply(self, region: Region, change: Change) -> None:
        self.before[region.handle] = (region.addr, region.length, change.flags)
        super().apply(region, change)

    def changed(self, region: Region, flag: int) -> bool:
        """Whether the latest change of the region had a flag."""
        return bool(self.before.get(region.handle, (0, 0, 0))[2] & flag)
