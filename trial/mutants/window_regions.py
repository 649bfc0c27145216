"""Windows whose region, window and queue pair are not of one domain."""

from reference.device import Device
from reference.objects import Region, Window


class _AnyRegion(Device):
    """A window gives access to its region whatever the region's domain is."""

    def no_longer_fits(self, window: Window, region: Region, right: int) -> bool:
        return region.domain is window.domain and super().no_longer_fits(window, region, right)
