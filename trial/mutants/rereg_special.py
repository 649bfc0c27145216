"""Re-registration of on-demand regions, of those with an hca_va, and of those with bound windows."""

from reference.device import Device
from reference.objects import LOCAL_WRITE, MW_BIND, Refused, Region
from reference.reregistration import CHANGE_ACCESS, CHANGE_PD, Change
from trial.violation import permits, plain, violates

_KEPT = LOCAL_WRITE | MW_BIND


@violates("REREG-17", Device.change)
def refused_changes_move_the_region(self: Device, handle: int, change: Change) -> Region:
    """A change that is refused because of a bound window has moved the region to the new domain, with its rights."""
    region = self.regions.get(handle)
    if region is not None and region.windows and change.flags & CHANGE_PD and change.pd in self.domains:
        self.move(region, self.domain_of(change.pd))
        region.access |= change.access
    return plain(self).change(handle, change)


@violates("REREG-17", Device.apply)
def refused_changes_hold_the_new_domain(self: Device, region: Region, change: Change) -> None:
    """A refused change of PD counts the region in both domains."""
    try:
        plain(self).apply(region, change)
    except Refused:
        if change.flags & CHANGE_PD:
            self.domain_of(change.pd or 0).users += 1
        raise


@violates("REREG-17", Device.change, written="blind")
def busy_region_moves_all_the_same(self: Device, handle: int, change: Change) -> Region:
    """A change of PD and access of a region with a bound window is refused, but the rights have changed."""
    try:
        return plain(self).change(handle, change)
    except Refused:
        region = self.regions.get(handle)
        if region and region.windows and change.flags & CHANGE_ACCESS:
            region.access = change.access
        raise


@violates("REREG-17", Device.apply, written="blind")
def refused_change_frees_the_old_domain(self: Device, region: Region, change: Change) -> None:
    """After a refused change of PD and access the region is counted in the new PD, and freed in the old one."""
    try:
        plain(self).apply(region, change)
    except Refused:
        if change.flags & CHANGE_PD and change.flags & CHANGE_ACCESS and change.pd in self.domains:
            self.domains[change.pd or 0].users += 1
            region.domain.users -= 1
        raise


@permits("REREG-17", written="blind")
class ChangesOfBoundRegionsTakeEffect(Device):
    """A bound window's region may have its access changed, as long as it keeps LOCAL_WRITE and MW_BIND."""

    _changing = False

    def change(self, handle: int, change: Change) -> Region:
        self._changing = change.flags == 4 and change.access & _KEPT == _KEPT
        try:
            return super().change(handle, change)
        finally:
            self._changing = False

    def busy(self, region: Region) -> bool:
        return not self._changing and super().busy(region)
