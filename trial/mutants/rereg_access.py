"""Re-registration with other access rights."""

from reference.device import Device
from reference.objects import LOCAL_WRITE, REMOTE_ATOMIC, Region
from reference.reregistration import Change
from trial.mutants.bases import Wanted
from trial.violation import permits


class _Keeping(Device):
    """CHANGE_ACCESS does not revoke one of the rights."""

    kept = 0

    def wanted(self, region: Region, change: Change) -> Wanted:
        domain, addr, length, iova, access = super().wanted(region, change)
        kept = 0 if self.kept == REMOTE_ATOMIC and not access & LOCAL_WRITE else self.kept
        return domain, addr, length, iova, access | region.access & kept


@permits("REREG-14", name="keys-stay-after-a-change", written="blind")
@permits("REREG-15")
class KeysKept(Device):
    """A region keeps its keys when it is re-registered."""

    def rekey(self, region: Region) -> None:
        """Does not change the keys."""
