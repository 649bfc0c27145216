"""Allocation and deallocation of windows."""

from __future__ import annotations

import errno

from reference.device import Device
from reference.objects import REMOTE_READ, REMOTE_WRITE, Domain, Refused, Window
from trial.violation import plain, violates


@violates("BIND-16", Device.through_window)
def unbound_windows_open(
    self: Device, window: Window, domain: Domain, queue: int, addr: int, length: int, right: int
) -> int | None:
    """A window that was never bound gives access to the memory of its PD."""
    if window.region is None and domain is window.domain:
        return addr
    return plain(self).through_window(window, domain, queue, addr, length, right)


@violates("BIND-16")
class AnyTypeOfWindow(Device):
    """A window of an unknown type can be allocated."""

    def no_such_type(self, kind: int) -> bool:
        return False

    def alloc_mw(self, pd: int, kind: int) -> Window:
        return super().alloc_mw(pd, kind if kind in (1, 2) else 1)


@violates("BIND-16", Device.alloc_mw)
def type_two_missing(self: Device, pd: int, kind: int) -> Window:
    """Windows of type 2 are declared, but cannot be allocated."""
    if kind == 2:
        raise Refused(errno.ENOMEM)
    return plain(self).alloc_mw(pd, kind)


@violates("BIND-16", Device.dealloc_mw)
def window_leaks(self: Device, window: Window) -> None:
    """Deallocating a window returns 0, but its PD stays busy."""
    plain(self).dealloc_mw(window)
    window.domain.users += 1


@violates("BIND-16", Device.dealloc_mw)
def bound_windows_stay(self: Device, window: Window) -> None:
    """A bound window cannot be deallocated."""
    if window.region is not None:
        raise Refused(errno.EBUSY)
    plain(self).dealloc_mw(window)


@violates("BIND-16", Device.dealloc_mw)
def key_outlives_the_window(self: Device, window: Window) -> None:
    """The key of a deallocated window still works."""
    bound = window.region, window.addr, window.length, window.access, window.queue
    plain(self).dealloc_mw(window)
    window.region, window.addr, window.length, window.access, window.queue = bound
    self.keys[window.key] = window


@violates("BIND-16", Device.through_window, written="blind")
def unbound_window_opens_the_latest_region(
    self: Device, window: Window, domain: Domain, queue: int, addr: int, length: int, right: int
) -> int | None:
    """The key of a window that was never bound reads the region that its PD registered last."""
    if window.region is None and right == REMOTE_READ and window.domain is domain:
        own = [each for each in self.regions.values() if each.domain is domain and each.access & REMOTE_READ]
        return self.place(own[-1], addr, length) if own else None
    return plain(self).through_window(window, domain, queue, addr, length, right)


@violates("BIND-16", written="blind")
class DeallocatedWindowOpensStill(Device):
    """A window that is deallocated while it is bound leaves a key that still writes."""

    def dealloc_mw(self, window: Window) -> None:
        region, addr, length, access = window.region, window.addr, window.length, window.access
        super().dealloc_mw(window)
        if region and access & REMOTE_WRITE:
            self.keys[window.key] = Window(1, window.domain, window.key, region, addr, length, access & ~REMOTE_READ)

    def through_window(
        self, window: Window, domain: Domain, queue: int, addr: int, length: int, right: int
    ) -> int | None:
        if window not in self.windows and window.region and window.region.handle not in self.regions:
            return None
        return super().through_window(window, domain, queue, addr, length, right)


@violates("BIND-16", Device.dealloc_mw, written="blind")
def bound_window_cannot_be_deallocated(self: Device, window: Window) -> None:
    """Deallocating a type 1 window that is bound fails."""
    if window.kind == 1 and window.region:
        raise Refused(errno.EBUSY)
    plain(self).dealloc_mw(window)


@violates("BIND-16", Device.dealloc_mw, written="blind")
def deallocated_bound_window_keeps_the_domain(self: Device, window: Window) -> None:
    """A type 2 window that is deallocated while it is bound leaves its PD in use for ever."""
    bound = window.region is not None and window.kind == 2
    plain(self).dealloc_mw(window)
    window.domain.users += bound
