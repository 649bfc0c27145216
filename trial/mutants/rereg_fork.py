"""The codes of a re-registration for fork protection."""

from reference.device import Device
from reference.objects import Region
from reference.reregistration import DO_FORK_OLD, Change
from trial.violation import plain, violates


@violates("REREG-07", Device.dont_fork)
def fork_failure_ends_the_region(self: Device, addr: int, length: int) -> bool:
    """If the new range cannot be protected from fork, the old region is already gone."""
    done = plain(self).dont_fork(addr, length)
    for region in self.regions.values() if not done else ():
        region.usable = False
    return done


@violates("REREG-08", Device.rereg_code, written="blind")
def old_fork_failure_undoes_the_change(self: Device, handle: int, change: Change) -> tuple[int, int, Region | None]:
    """ERR_DO_FORK_OLD is returned and the region has its old place again."""
    region = self.regions.get(handle)
    old = (region.addr, region.length, region.iova) if region else (0, 0, 0)
    answer = plain(self).rereg_code(handle, change)
    if answer[0] == DO_FORK_OLD and region:
        region.addr, region.length, region.iova = old
    return answer
