"""Re-registration with other access rights."""

from reference.device import Device
from reference.objects import LOCAL_WRITE, REMOTE_ATOMIC, REMOTE_READ, Region
from reference.reregistration import Change
from trial.mutants.bases import Wanted
from trial.violation import permits, violates


class _Keeping(Device):
    """CHANGE_ACCESS does not revoke one of the rights."""

    kept = 0

    def wanted(self, region: Region, change: Change) -> Wanted:
        domain, addr, length, iova, access = super().wanted(region, change)
        kept = 0 if self.kept == REMOTE_ATOMIC and not access & LOCAL_WRITE else self.kept
        return domain, addr, length, iova, access | region.access & kept


@violates("REREG-03", written="blind")
class RemoteReadGrantedTheSecondTime(Device):
    """REMOTE_READ that a region had, lost and is given again does not come back."""

    def setup(self) -> None:
        self._lost: set[int] = set()

    def apply(self, region: Region, change: Change) -> None:
        had = region.access & REMOTE_READ
        super().apply(region, change)
        if had and not region.access & REMOTE_READ:
            self._lost.add(region.handle)
        elif region.handle in self._lost:
            region.access &= ~REMOTE_READ


@permits("REREG-14", name="keys-stay-after-a-change", written="blind")
@permits("REREG-15")
class KeysKept(Device):
    """A region keeps its keys when it is re-registered."""

    def rekey(self, region: Region) -> None:
        """Does not change the keys."""
