"""Re-registration of on-demand regions, of those with an hca_va, and of those with bound windows."""

from reference.device import Device
from reference.objects import LOCAL_WRITE, MW_BIND, Region
from reference.reregistration import Change
from trial.violation import permits

_KEPT = LOCAL_WRITE | MW_BIND


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
