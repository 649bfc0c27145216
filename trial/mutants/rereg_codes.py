"""The codes of a re-registration, and the release of the region after a failure."""

from reference.device import Device
from reference.objects import Refused, Region
from reference.reregistration import Change
from trial.violation import permits, plain, violates


@violates("REREG-06", Device.input_fault)
def input_error_ends_the_region(self: Device, change: Change) -> bool:
    """After an input error the old region is not valid."""
    wrong = plain(self).input_fault(change)
    for region in self.regions.values() if wrong else ():
        region.usable = False
    return wrong


@permits("REREG-09", Device.change, written="blind")
def failed_command_leaves_the_region_valid(self: Device, handle: int, change: Change) -> Region:
    """After a command error the old region works as before, though nobody may count on it."""
    try:
        return plain(self).change(handle, change)
    except Refused:
        if handle in self.regions:
            self.regions[handle].usable = True
        raise


@violates("REREG-11", Device.unknown_changes)
def kernel_ends_the_region(self: Device, flags: int) -> bool:
    """In the kernel, an unknown flag invalidates the region."""
    unknown = plain(self).unknown_changes(flags)
    for region in self.regions.values() if unknown else ():
        region.usable = False
    return unknown


@violates("REREG-11", Device.change, written="blind")
def command_error_deregisters(self: Device, handle: int, change: Change) -> Region:
    """A command error deregisters the region already: ibv_dereg_mr finds none."""
    try:
        return plain(self).change(handle, change)
    except Refused:
        region = self.regions.get(handle)
        if region and not region.usable and not region.windows:
            plain(self).deregister(handle)
        raise
