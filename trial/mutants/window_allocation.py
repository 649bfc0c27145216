"""Allocation and deallocation of windows."""

from __future__ import annotations

from reference.device import Device
from reference.objects import REMOTE_READ, REMOTE_WRITE, Domain, Window
from trial.violation import violates


@violates("BIND-16")
class AnyTypeOfWindow(Device):
    """A window of an unknown type can be allocated."""

    def no_such_type(self, kind: int) -> bool:
        return False

    def alloc_mw(self, pd: int, kind: int) -> Window:
        return super().alloc_mw(pd, kind if kind in (1, 2) else 1)


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
