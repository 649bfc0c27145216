"""The codes of a re-registration for fork protection."""

from __future__ import annotations

from reference.device import Device
from reference.memory import PAGE
from reference.objects import REMOTE_WRITE, Region
from reference.reregistration import CHANGE_PD, CMD, CMD_AND_DO_FORK_NEW, DO_FORK_OLD, DONT_FORK_NEW, INPUT, Change
from trial.violation import permits, plain, violates


@violates("REREG-07", Device.dont_fork)
def fork_protection_unchecked(self: Device, addr: int, length: int) -> bool:
    """A failure to protect the new range from fork is ignored."""
    plain(self).dont_fork(addr, length)
    return True


@violates("REREG-07", name="new-fork-failure-is-an-input-error", written="blind")
@violates("REREG-07", Device.rereg_code)
def fork_failure_is_an_input_error(self: Device, handle: int, change: Change) -> tuple[int, int, Region | None]:
    """If the new range cannot be protected from fork, an input error is returned."""
    code, error, region = plain(self).rereg_code(handle, change)
    return (INPUT if code == DONT_FORK_NEW else code), error, region


@violates("REREG-07", Device.dont_fork)
def fork_failure_ends_the_region(self: Device, addr: int, length: int) -> bool:
    """If the new range cannot be protected from fork, the old region is already gone."""
    done = plain(self).dont_fork(addr, length)
    for region in self.regions.values() if not done else ():
        region.usable = False
    return done


@violates("REREG-07", Device.rereg_code)
def fork_failure_moves_the_region(self: Device, handle: int, change: Change) -> tuple[int, int, Region | None]:
    """If the new range cannot be protected from fork, the region belongs to the new domain already."""
    code, error, region = plain(self).rereg_code(handle, change)
    if code == DONT_FORK_NEW and change.flags & CHANGE_PD and change.pd:
        self.move(self.regions[handle], self.domain_of(change.pd))
    return code, error, region


@violates("REREG-07", Device.rereg_code, written="blind")
def new_fork_failure_spoils_the_old(self: Device, handle: int, change: Change) -> tuple[int, int, Region | None]:
    """After ERR_DONT_FORK_NEW the old region no longer works."""
    answer = plain(self).rereg_code(handle, change)
    if answer[0] == DONT_FORK_NEW and handle in self.regions:
        self.regions[handle].usable = False
    return answer


@violates("REREG-07", Device.rereg_code, written="blind")
def new_fork_failure_revokes(self: Device, handle: int, change: Change) -> tuple[int, int, Region | None]:
    """After ERR_DONT_FORK_NEW the old region can no longer be written remotely."""
    answer = plain(self).rereg_code(handle, change)
    if answer[0] == DONT_FORK_NEW and handle in self.regions:
        self.regions[handle].access &= ~REMOTE_WRITE
    return answer


@violates("REREG-08", Device.rereg_code)
def old_range_failure_shortens(self: Device, handle: int, change: Change) -> tuple[int, int, Region | None]:
    """If the fork protection of the old range cannot be removed, the new region ends one page early."""
    code, error, region = plain(self).rereg_code(handle, change)
    if code == DO_FORK_OLD and region:
        region.length -= PAGE
    return code, error, region


@violates("REREG-08", Device.rereg_code)
def old_range_failure_undoes(self: Device, handle: int, change: Change) -> tuple[int, int, Region | None]:
    """If the fork protection of the old range cannot be removed, the new region is not valid."""
    code, error, region = plain(self).rereg_code(handle, change)
    if code == DO_FORK_OLD and region:
        region.usable = False
    return code, error, region


@violates("REREG-08", Device.rereg_code, written="blind")
def old_fork_failure_undoes_the_change(self: Device, handle: int, change: Change) -> tuple[int, int, Region | None]:
    """ERR_DO_FORK_OLD is returned and the region has its old place again."""
    region = self.regions.get(handle)
    old = (region.addr, region.length, region.iova) if region else (0, 0, 0)
    answer = plain(self).rereg_code(handle, change)
    if answer[0] == DO_FORK_OLD and region:
        region.addr, region.length, region.iova = old
    return answer


@violates("REREG-08", Device.rereg_code, written="blind")
def old_fork_failure_not_told(self: Device, handle: int, change: Change) -> tuple[int, int, Region | None]:
    """A failure to give the old range back to children is answered with 0."""
    code, error, region = plain(self).rereg_code(handle, change)
    return (0, 0, region) if code == DO_FORK_OLD else (code, error, region)


@violates("REREG-08", Device.rereg_code, written="blind")
def old_fork_failure_ends_the_region(self: Device, handle: int, change: Change) -> tuple[int, int, Region | None]:
    """After ERR_DO_FORK_OLD the new region cannot be used."""
    answer = plain(self).rereg_code(handle, change)
    if answer[0] == DO_FORK_OLD:
        self.regions[handle].usable = False
    return answer


@permits("REREG-08")
class OldRangeForgotten(Device):
    """Nobody looks whether the old range could be given back to fork, as in mainline libibverbs."""

    of_new_range = False

    def command_code(self, forks: bool, change: Change) -> int:
        self.of_new_range = True
        code = super().command_code(forks, change)
        self.of_new_range = False
        return code

    def do_fork(self, addr: int, length: int) -> bool:
        return super().do_fork(addr, length) or not self.of_new_range


@violates("REREG-10", name="double-failure-is-a-command-error", written="blind")
@violates("REREG-10", Device.command_code)
def fork_state_not_told(self: Device, forks: bool, change: Change) -> int:
    """It is not reported that the new range was left in an invalid fork state."""
    plain(self).command_code(forks, change)
    return CMD


@violates("REREG-10", name="double-failure-is-an-old-fork-error", written="blind")
@violates("REREG-10", Device.command_code)
def fork_state_is_old(self: Device, forks: bool, change: Change) -> int:
    """The code for the fork state of the new range is that for the old range."""
    code = plain(self).command_code(forks, change)
    return DO_FORK_OLD if code == CMD_AND_DO_FORK_NEW else code
