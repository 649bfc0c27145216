"""The codes of a re-registration, and the release of the region after a failure."""

from __future__ import annotations

import errno
from dataclasses import replace

from reference.device import Device
from reference.objects import Refused, Region
from reference.reregistration import (
    CHANGE_ACCESS,
    CHANGE_PD,
    CHANGE_TRANSLATION,
    CHANGES,
    CMD,
    CMD_AND_DO_FORK_NEW,
    DONT_FORK_NEW,
    INPUT,
    Change,
)
from trial.violation import permits, plain, violates


@violates("REREG-05", name="errno-instead-of-a-code", written="blind")
@violates("REREG-05", Device.rereg_code)
def kernels_errno(self: Device, handle: int, change: Change) -> tuple[int, int, Region | None]:
    """A command error returns the value of errno instead of a code."""
    code, error, region = plain(self).rereg_code(handle, change)
    return (error if code == CMD else code), error, region


@violates("REREG-05", Device.rereg_code)
def positive_codes(self: Device, handle: int, change: Change) -> tuple[int, int, Region | None]:
    """An input error returns 1 instead of a code."""
    code, error, region = plain(self).rereg_code(handle, change)
    return (-code if code == INPUT else code), error, region


@violates("REREG-05", Device.rereg_code, written="blind")
def sixth_code(self: Device, handle: int, change: Change) -> tuple[int, int, Region | None]:
    """A command error over memory that is not mapped returns -6."""
    code, error, region = plain(self).rereg_code(handle, change)
    return -6 if code == CMD and error == errno.EFAULT else code, error, region


@violates("REREG-05", Device.rereg_code, written="blind")
def success_returns_one(self: Device, handle: int, change: Change) -> tuple[int, int, Region | None]:
    """A change of the PD alone that succeeds returns 1."""
    code, error, region = plain(self).rereg_code(handle, change)
    return code or int(change.flags == CHANGE_PD), error, region


@permits("REREG-05", Device.input_fault)
def no_change_refused(self: Device, change: Change) -> bool:
    """A re-registration that selects nothing is an input error."""
    return not change.flags or plain(self).input_fault(change)


@violates("REREG-06", name="unknown-flag-goes-down", written="blind")
@violates("REREG-06", Device.library_unknown)
def input_unchecked(self: Device, flags: int) -> bool:
    """The library passes unknown flags on."""
    return False


@violates("REREG-06", Device.library_unknown)
def top_flags_unchecked(self: Device, flags: int) -> bool:
    """The library checks only the lower sixteen flags."""
    return plain(self).library_unknown(flags & 0xFFFF)


@violates("REREG-06", Device.input_fault)
def input_error_ends_the_region(self: Device, change: Change) -> bool:
    """After an input error the old region is not valid."""
    wrong = plain(self).input_fault(change)
    for region in self.regions.values() if wrong else ():
        region.usable = False
    return wrong


@violates("REREG-06", Device.rereg_code)
def input_error_moves_the_region(self: Device, handle: int, change: Change) -> tuple[int, int, Region | None]:
    """After an input error the region belongs to the domain that was asked for."""
    code, error, region = plain(self).rereg_code(handle, change)
    if code == INPUT and change.flags & CHANGE_PD and change.pd:
        self.move(self.regions[handle], self.domain_of(change.pd))
    return code, error, region


@violates("REREG-06", Device.rereg_code)
def input_error_grants_rights(self: Device, handle: int, change: Change) -> tuple[int, int, Region | None]:
    """After an input error the region has the rights that were asked for beside its own."""
    code, error, region = plain(self).rereg_code(handle, change)
    if code == INPUT and change.flags & CHANGE_ACCESS:
        self.regions[handle].access |= change.access
    return code, error, region


@violates("REREG-06", Device.input_fault)
def zero_length_passed_on(self: Device, change: Change) -> bool:
    """The library does not check addr and length."""
    return self.library_unknown(change.flags)


@violates("REREG-06", Device.rereg_code, written="blind")
def unknown_flag_alongside_ignored(self: Device, handle: int, change: Change) -> tuple[int, int, Region | None]:
    """Unknown flags are ignored beside known ones."""
    known = change.flags & CHANGES
    return plain(self).rereg_code(handle, replace(change, flags=known) if known else change)


@violates("REREG-06", Device.rereg_code, written="blind")
def input_error_spoils_the_region(self: Device, handle: int, change: Change) -> tuple[int, int, Region | None]:
    """After ERR_INPUT for a length of 0 the old region no longer works."""
    answer = plain(self).rereg_code(handle, change)
    if answer[0] == INPUT and change.flags & CHANGE_TRANSLATION and not change.length:
        self.regions[handle].usable = False
    return answer


@violates("REREG-06", Device.input_fault, written="blind")
def no_domain_goes_down(self: Device, change: Change) -> bool:
    """A change of PD without a PD is passed on as a command and spoils the region."""
    if change.flags & CHANGE_PD and change.pd is None:
        return plain(self).input_fault(replace(change, pd=0))
    return plain(self).input_fault(change)


@violates("REREG-06", Device.rereg_code, written="blind")
def input_error_changes_rights(self: Device, handle: int, change: Change) -> tuple[int, int, Region | None]:
    """ERR_INPUT for a translation without address comes after the new access has been set."""
    answer = plain(self).rereg_code(handle, change)
    if answer[0] == INPUT and change.flags & CHANGE_ACCESS and handle in self.regions:
        self.regions[handle].access = change.access
    return answer


@permits("REREG-06", Device.input_fault)
def unselected_access_taken(self: Device, change: Change) -> bool:
    """The library accepts access flags without CHANGE_ACCESS, and the device ignores them."""
    selected = change.access if change.flags & CHANGE_ACCESS else 0
    return plain(self).input_fault(Change(change.flags, change.pd, change.addr, change.length, selected))


@permits("REREG-06", Device.input_fault, written="blind")
def library_refuses_too_much(self: Device, change: Change) -> bool:
    """The library itself finds REMOTE_WRITE without LOCAL_WRITE and gives ERR_INPUT."""
    alone = change.flags & 4 and (self.write_alone(change.access) or self.atomic_alone(change.access))
    return bool(alone) or plain(self).input_fault(change)


@violates("REREG-09", Device.rereg_code)
def command_error_hidden(self: Device, handle: int, change: Change) -> tuple[int, int, Region | None]:
    """A command error returns 0."""
    code, error, region = plain(self).rereg_code(handle, change)
    return (0, 0, region) if code == CMD else (code, error, region)


@violates("REREG-09", name="command-error-is-an-input-error", written="blind")
@violates("REREG-09", Device.command_code)
def command_error_is_input(self: Device, forks: bool, change: Change) -> int:
    """A command error is reported as an input error."""
    code = plain(self).command_code(forks, change)
    return INPUT if code == CMD else code


@violates("REREG-09", Device.rereg_code, written="blind")
def command_error_is_success(self: Device, handle: int, change: Change) -> tuple[int, int, Region | None]:
    """A command that fails for its access flags is answered with 0."""
    code, error, region = plain(self).rereg_code(handle, change)
    return (0, 0, region) if code == CMD and error == errno.EINVAL else (code, error, region)


@violates("REREG-09", Device.rereg_code, written="blind")
def command_error_is_a_fork_error(self: Device, handle: int, change: Change) -> tuple[int, int, Region | None]:
    """A command that fails for memory that is not there gives ERR_DONT_FORK_NEW."""
    code, error, region = plain(self).rereg_code(handle, change)
    return DONT_FORK_NEW if code == CMD and error == errno.EFAULT else code, error, region


@permits("REREG-09", Device.change, written="blind")
def failed_command_leaves_the_region_valid(self: Device, handle: int, change: Change) -> Region:
    """After a command error the old region works as before, though nobody may count on it."""
    try:
        return plain(self).change(handle, change)
    except Refused:
        if handle in self.regions:
            self.regions[handle].usable = True
        raise


@violates("REREG-11", Device.rereg_code)
def gone_after_failure(self: Device, handle: int, change: Change) -> tuple[int, int, Region | None]:
    """A re-registration that fails deregisters the region."""
    code, error, region = plain(self).rereg_code(handle, change)
    if code in (CMD, INPUT) and handle in self.regions:
        self.deregister(handle)
    return code, error, region


@violates("REREG-11", Device.deregister)
def stuck_after_failure(self: Device, handle: int) -> None:
    """A region whose re-registration failed cannot be deregistered."""
    if handle in self.regions and not self.regions[handle].usable:
        raise Refused(errno.EBUSY)
    plain(self).deregister(handle)


@violates("REREG-11")
class KeyOutlivesAFailedRegion(Device):
    """The key of a region that was deregistered after a command error still opens it."""

    def rereg_code(self, handle: int, change: Change) -> tuple[int, int, Region | None]:
        code, error, region = super().rereg_code(handle, change)
        if code in (CMD, CMD_AND_DO_FORK_NEW) and handle in self.regions:
            self.regions[handle].usable = True
            self.failed = (*self.failed, self.regions[handle])
        return code, error, region

    failed: tuple[Region, ...] = ()

    def forget_key(self, region: Region) -> None:
        if region not in self.failed:
            super().forget_key(region)


@violates("REREG-11", Device.unknown_changes)
def kernel_ends_the_region(self: Device, flags: int) -> bool:
    """In the kernel, an unknown flag invalidates the region."""
    unknown = plain(self).unknown_changes(flags)
    for region in self.regions.values() if unknown else ():
        region.usable = False
    return unknown


@violates("REREG-11", Device.deregister, written="blind")
def no_deregistration_after_a_command_error(self: Device, handle: int) -> None:
    """After a command error ibv_dereg_mr fails."""
    if handle in self.regions and not self.regions[handle].usable:
        raise Refused(errno.EINVAL)
    plain(self).deregister(handle)


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


@violates("REREG-11", Device.deregister, written="blind")
def deregistration_after_an_error_leaks(self: Device, handle: int) -> None:
    """After a command error ibv_dereg_mr returns 0, but the PD stays in use."""
    region = self.regions.get(handle)
    plain(self).deregister(handle)
    if region and not region.usable:
        region.domain.users += 1


@violates("REREG-11", written="blind")
class InputErrorForbidsDeregistration(Device):
    """After an ERR_INPUT ibv_dereg_mr of the region fails the first time."""

    def setup(self) -> None:
        self._hurt: set[int] = set()

    def rereg_code(self, handle: int, change: Change) -> tuple[int, int, Region | None]:
        answer = super().rereg_code(handle, change)
        if answer[0] == INPUT:
            self._hurt.add(handle)
        return answer

    def deregister(self, handle: int) -> None:
        if handle in self._hurt:
            self._hurt.remove(handle)
            raise Refused(errno.EBUSY)
        super().deregister(handle)


@violates("REREG-19", Device.absent_code)
def an_absent_verb_is_a_command_error(self: Device) -> int:
    """Where the provider lacks the verb the code says that the region should not be used."""
    return CMD


@violates("REREG-19", Device.rereg_code)
def an_absent_verb_ends_the_region(self: Device, handle: int, change: Change) -> tuple[int, int, Region | None]:
    """Where the provider lacks the verb the region has been deregistered all the same."""
    found = self.regions.get(handle)
    if found is not None and not self.stack.has("rereg_mr"):
        found.usable = False
    return plain(self).rereg_code(handle, change)
