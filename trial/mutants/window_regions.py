"""What a window opens whose region, window and queue pair are not of one domain, and to whom."""

from conformance.bench.work_requests import BindInfo
from reference.device import Device
from reference.objects import Region, Window
from reference.queues import Queue
from trial.violation import plain, violates


class _AnyRegion(Device):
    """A window opens its region in whatever domain that is."""

    def no_longer_fits(self, window: Window, region: Region, right: int) -> bool:
        return region.domain is window.domain and super().no_longer_fits(window, region, right)


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
