"""Windows with a region, window and queue pair that are not of one domain."""

from reference.device import Device
from reference.objects import Region, Window


class _AnyRegion(Device):
    """A window gives access to its region even if the region is in another domain."""

    def no_longer_fits(self, window: Window, region: Region, right: int) -> bool:
        return region.domain is window.domain and super().no_longer_fits(window, region, right)
