"""The vendor's experimental re-registration."""

from reference.device import Device
from reference.objects import Refused, Region
from reference.reregistration import CHANGE_ACCESS, Change
from trial.violation import plain, violates


class _Hurt(Device):
    """What an error of the vendor's verb leaves in the regions that it was asked to change."""

    def setup(self) -> None:
        self._hurt: set[int] = set()

    def experimental_code(self, handle: int, change: Change) -> tuple[int, Region | None]:
        code, region = super().experimental_code(handle, change)
        if code:
            self._hurt.add(handle)
        return code, region


@violates("XREREG-06", Device.experimental_code, written="blind")
def peer_memory_reregisters(self: Device, handle: int, change: Change) -> tuple[int, Region | None]:
    """A region on peer memory can be re-registered."""
    try:
        return 0, self.change(handle, change)
    except Refused as refused:
        return refused.errno, None


@violates("XREREG-06", Device.experimental_code, written="blind")
def peer_memory_changes_its_rights(self: Device, handle: int, change: Change) -> tuple[int, Region | None]:
    """A region on peer memory can have its access changed, and nothing else."""
    if change.flags == CHANGE_ACCESS and handle in self.regions:
        try:
            return 0, self.change(handle, change)
        except Refused as refused:
            return refused.errno, None
    return plain(self).experimental_code(handle, change)
