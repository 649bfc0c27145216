"""What a window opens whose region, window and queue pair are not of one domain, and to whom."""

from __future__ import annotations

from conformance.bench.work_requests import BindInfo
from reference.device import Device
from reference.objects import Domain, Region, Window
from reference.queues import Queue
from trial.violation import plain, violates


class _AnyRegion(Device):
    """A window opens its region in whatever domain that is."""

    def no_longer_fits(self, window: Window, region: Region, right: int) -> bool:
        return region.domain is window.domain and super().no_longer_fits(window, region, right)


@violates("BIND-18")
class WindowsOpenToTheQueuePairOfTheBind(Device):
    """A window is open to the PD of the queue pair on which it was bound, and not to its own."""

    def setup(self) -> None:
        self.binders: dict[Window, Domain] = {}

    def other_domain(self, queue: Domain, window: Window, region: Region) -> bool:
        self.binders[window] = queue
        return False

    def window_opens(self, window: Window, domain: Domain, queue: int) -> bool:
        return self.binders.get(window) is domain and window.queue in (0, queue)

    def no_longer_fits(self, window: Window, region: Region, right: int) -> bool:
        return False


@violates("BIND-18")
class WindowsOfAnyDomain(_AnyRegion):
    """A window of another PD than that of the queue pair can be bound, and is open over that queue pair."""

    def other_domain(self, queue: Domain, window: Window, region: Region) -> bool:
        return False

    def window_opens(self, window: Window, domain: Domain, queue: int) -> bool:
        return window.queue == queue or super().window_opens(window, domain, queue)


@violates("BIND-18")
class WindowsFollowTheirRegion(_AnyRegion):
    """A window that was bound to a region of another PD is open there instead of in its own."""

    def other_domain(self, queue: Domain, window: Window, region: Region) -> bool:
        return False

    def window_opens(self, window: Window, domain: Domain, queue: int) -> bool:
        own = window.region.domain if window.region else window.domain
        return own is domain and window.queue in (0, queue)


@violates("BIND-18", _AnyRegion.ibv_bind_mw)
def refused_binds_are_carried_out(
    self: _AnyRegion, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int
) -> tuple[int, int]:
    """ibv_bind_mw refuses the region of another PD, and the old key opens it."""
    fault, key = plain(self).ibv_bind_mw(queue, window, info, flags, wr_id)
    region = self.bound_region(info)
    if fault and region is not None and region.domain is not window.domain:
        self.bind(window, region, info.addr, info.length, info.access, window.key, queue.number)
    return fault, key
