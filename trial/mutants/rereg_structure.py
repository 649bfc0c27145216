"""Properties that a re-registration must keep, and struct ibv_mr after it."""

from reference.device import Device
from reference.reregistration import Change
from trial.violation import permits


@permits("REREG-13", written="blind")
class LibraryIgnoresUnselectedAccess(Device):
    """An `access` that no flag selects is ignored instead of refused: the two documents disagree."""

    def input_fault(self, change: Change) -> bool:
        plain = change if change.flags & 4 else Change(change.flags, change.pd, change.addr, change.length, 0)
        return super().input_fault(plain)
