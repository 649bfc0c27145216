"""What a window opens after its region was changed by ibv_rereg_mr."""

from __future__ import annotations

from reference.device import Device
from reference.objects import LOCAL_WRITE, MW_BIND, REMOTE_ATOMIC, REMOTE_READ, Domain, Region, Window
from reference.reregistration import CHANGE_ACCESS, CHANGE_PD, CHANGE_TRANSLATION, Change
from trial.violation import plain, violates


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


@violates("REREG-18", _ChangedBelowWindows.no_longer_fits)
def windows_outlive_the_domain(self: _ChangedBelowWindows, window: Window, region: Region, right: int) -> bool:
    """A window still opens its region to the old PD after CHANGE_PD."""
    return not self.changed(region, CHANGE_PD) and plain(self).no_longer_fits(window, region, right)


@violates("REREG-18", _ChangedBelowWindows.no_longer_fits)
def windows_read_in_the_old_domain(self: _ChangedBelowWindows, window: Window, region: Region, right: int) -> bool:
    """A window can still be read in the old PD after CHANGE_PD."""
    return right != REMOTE_READ and plain(self).no_longer_fits(window, region, right)


@violates("REREG-18", _ChangedBelowWindows.no_longer_fits)
def windows_outlive_local_write(self: _ChangedBelowWindows, window: Window, region: Region, right: int) -> bool:
    """A window still allows writes after its region has lost LOCAL_WRITE."""
    lost = not region.access & LOCAL_WRITE and right != REMOTE_ATOMIC
    return not lost and plain(self).no_longer_fits(window, region, right)


@violates("REREG-18", _ChangedBelowWindows.no_longer_fits)
def atomic_windows_outlive_local_write(self: _ChangedBelowWindows, window: Window, region: Region, right: int) -> bool:
    """A window still allows atomics after its region has lost LOCAL_WRITE."""
    return right != REMOTE_ATOMIC and plain(self).no_longer_fits(window, region, right)


@violates("REREG-18", _ChangedBelowWindows.no_longer_fits)
def windows_outlive_binding(self: _ChangedBelowWindows, window: Window, region: Region, right: int) -> bool:
    """A window stays open after its region has lost MW_BIND."""
    return bool(region.access & MW_BIND) and plain(self).no_longer_fits(window, region, right)


@violates("REREG-18", _ChangedBelowWindows.through_window)
def windows_keep_the_old_memory(
    self: _ChangedBelowWindows, window: Window, domain: Domain, queue: int, addr: int, length: int, right: int
) -> int | None:
    """A window still opens the memory that its region had before CHANGE_TRANSLATION."""
    if window.region and self.changed(window.region, CHANGE_TRANSLATION):
        start, size, _ = self.before[window.region.handle]
        return addr if start <= addr and addr + length <= start + size else None
    return plain(self).through_window(window, domain, queue, addr, length, right)


@violates("REREG-18", _ChangedBelowWindows.window_allows)
def windows_take_the_new_rights(self: _ChangedBelowWindows, window: Window, right: int) -> bool:
    """After CHANGE_ACCESS a window allows what its region allows."""
    region = window.region
    widened = region is not None and self.changed(region, CHANGE_ACCESS) and self.allows(region, right)
    return widened or plain(self).window_allows(window, right)
