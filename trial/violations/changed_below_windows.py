"""Violations of what a window opens after its region was changed by ibv_rereg_mr."""

from __future__ import annotations

from reference.device import Device
from reference.objects import LOCAL_WRITE, MW_BIND, REMOTE_ATOMIC, REMOTE_READ, Domain, Region, Window
from reference.reregistration import CHANGE_ACCESS, CHANGE_PD, CHANGE_TRANSLATION, Change
from trial.violation import violates


class _ChangedBelowWindows(Device):
    """A region with a bound window can be changed."""

    def held(self, region: Region) -> bool:
        return False

    def apply(self, region: Region, change: Change) -> None:
        self.__dict__.setdefault("_before", {})[region.handle] = (region.addr, region.length, change.flags)
        super().apply(region, change)

    def changed(self, region: Region, flag: int) -> bool:
        """Whether the latest change of the region had a flag."""
        return bool(self.__dict__.get("_before", {}).get(region.handle, (0, 0, 0))[2] & flag)


@violates("REREG-18")
class WindowsOutliveTheDomain(_ChangedBelowWindows):
    """A window still opens its region to the old PD after CHANGE_PD."""

    def no_longer_fits(self, window: Window, region: Region, right: int) -> bool:
        return not self.changed(region, CHANGE_PD) and super().no_longer_fits(window, region, right)


@violates("REREG-18")
class WindowsReadInTheOldDomain(_ChangedBelowWindows):
    """A window can still be read in the old PD after CHANGE_PD."""

    def no_longer_fits(self, window: Window, region: Region, right: int) -> bool:
        return right != REMOTE_READ and super().no_longer_fits(window, region, right)


@violates("REREG-18")
class WindowsOutliveLocalWrite(_ChangedBelowWindows):
    """A window still allows writes after its region has lost LOCAL_WRITE."""

    def no_longer_fits(self, window: Window, region: Region, right: int) -> bool:
        lost = not region.access & LOCAL_WRITE and right != REMOTE_ATOMIC
        return not lost and super().no_longer_fits(window, region, right)


@violates("REREG-18")
class AtomicWindowsOutliveLocalWrite(_ChangedBelowWindows):
    """A window still allows atomics after its region has lost LOCAL_WRITE."""

    def no_longer_fits(self, window: Window, region: Region, right: int) -> bool:
        return right != REMOTE_ATOMIC and super().no_longer_fits(window, region, right)


@violates("REREG-18")
class WindowsOutliveBinding(_ChangedBelowWindows):
    """A window stays open after its region has lost MW_BIND."""

    def no_longer_fits(self, window: Window, region: Region, right: int) -> bool:
        return bool(region.access & MW_BIND) and super().no_longer_fits(window, region, right)


@violates("REREG-18")
class WindowsKeepTheOldMemory(_ChangedBelowWindows):
    """A window still opens the memory that its region had before CHANGE_TRANSLATION."""

    def through_window(
        self, window: Window, domain: Domain, queue: int, addr: int, length: int, right: int
    ) -> int | None:
        if window.region and self.changed(window.region, CHANGE_TRANSLATION):
            start, size, _ = self.__dict__["_before"][window.region.handle]
            return addr if start <= addr and addr + length <= start + size else None
        return super().through_window(window, domain, queue, addr, length, right)


@violates("REREG-18")
class WindowsTakeTheNewRights(_ChangedBelowWindows):
    """After CHANGE_ACCESS a window allows what its region allows."""

    def window_allows(self, window: Window, right: int) -> bool:
        region = window.region
        widened = region is not None and self.changed(region, CHANGE_ACCESS) and self.allows(region, right)
        return widened or super().window_allows(window, right)
