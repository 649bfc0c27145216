"""Violations of the codes of ibv_rereg_mr, and of the vendor's dialect."""

from __future__ import annotations

import errno

from reference.device import Device
from reference.memory import PAGE
from reference.objects import REMOTE_READ, Domain, Refused, Region
from reference.reregistration import (
    CHANGE_ACCESS,
    CHANGE_PD,
    CHANGE_TRANSLATION,
    CMD,
    CMD_AND_DO_FORK_NEW,
    DO_FORK_OLD,
    DONT_FORK_NEW,
    INPUT,
    Change,
)
from trial.violation import violates

Wanted = tuple[Domain, int, int, int, int]


@violates("REREG-05")
class KernelsErrno(Device):
    """A command error returns the value of errno instead of a code."""

    def rereg_code(self, handle: int, change: Change) -> tuple[int, int, Region | None]:
        code, error, region = super().rereg_code(handle, change)
        return (error if code == CMD else code), error, region


@violates("REREG-05")
class PositiveCodes(Device):
    """An input error returns 1 instead of a code."""

    def rereg_code(self, handle: int, change: Change) -> tuple[int, int, Region | None]:
        code, error, region = super().rereg_code(handle, change)
        return (-code if code == INPUT else code), error, region


@violates("REREG-06")
class InputUnchecked(Device):
    """The library passes unknown flags on."""

    def library_unknown(self, flags: int) -> bool:
        return False


@violates("REREG-06")
class TopFlagsUnchecked(Device):
    """The library checks only the lower sixteen flags."""

    def library_unknown(self, flags: int) -> bool:
        return super().library_unknown(flags & 0xFFFF)


@violates("REREG-06")
class InputErrorEndsTheRegion(Device):
    """After an input error the old region is not valid."""

    def input_fault(self, change: Change) -> bool:
        wrong = super().input_fault(change)
        for region in self.regions.values() if wrong else ():
            region.usable = False
        return wrong


@violates("REREG-06")
class InputErrorMovesTheRegion(Device):
    """After an input error the region belongs to the domain that was asked for."""

    def rereg_code(self, handle: int, change: Change) -> tuple[int, int, Region | None]:
        code, error, region = super().rereg_code(handle, change)
        if code == INPUT and change.flags & CHANGE_PD and change.pd:
            self.move(self.regions[handle], self.domain_of(change.pd))
        return code, error, region


@violates("REREG-06")
class InputErrorGrantsRights(Device):
    """After an input error the region has the rights that were asked for beside its own."""

    def rereg_code(self, handle: int, change: Change) -> tuple[int, int, Region | None]:
        code, error, region = super().rereg_code(handle, change)
        if code == INPUT and change.flags & CHANGE_ACCESS:
            self.regions[handle].access |= change.access
        return code, error, region


@violates("REREG-06")
class ZeroLengthPassedOn(Device):
    """The library does not check addr and length."""

    def input_fault(self, change: Change) -> bool:
        return self.library_unknown(change.flags)


@violates("REREG-07")
class ForkProtectionUnchecked(Device):
    """A failure to protect the new range from fork is ignored."""

    def dont_fork(self, addr: int, length: int) -> bool:
        super().dont_fork(addr, length)
        return True


@violates("REREG-07")
class ForkFailureIsAnInputError(Device):
    """If the new range cannot be protected from fork, an input error is returned."""

    def rereg_code(self, handle: int, change: Change) -> tuple[int, int, Region | None]:
        code, error, region = super().rereg_code(handle, change)
        return (INPUT if code == DONT_FORK_NEW else code), error, region


@violates("REREG-07")
class ForkFailureEndsTheRegion(Device):
    """If the new range cannot be protected from fork, the old region is already gone."""

    def dont_fork(self, addr: int, length: int) -> bool:
        done = super().dont_fork(addr, length)
        for region in self.regions.values() if not done else ():
            region.usable = False
        return done


@violates("REREG-07")
class ForkFailureMovesTheRegion(Device):
    """If the new range cannot be protected from fork, the region belongs to the new domain already."""

    def rereg_code(self, handle: int, change: Change) -> tuple[int, int, Region | None]:
        code, error, region = super().rereg_code(handle, change)
        if code == DONT_FORK_NEW and change.flags & CHANGE_PD and change.pd:
            self.move(self.regions[handle], self.domain_of(change.pd))
        return code, error, region


@violates("REREG-08")
class OldRangeFailureShortens(Device):
    """If the fork protection of the old range cannot be removed, the new region ends one page early."""

    def rereg_code(self, handle: int, change: Change) -> tuple[int, int, Region | None]:
        code, error, region = super().rereg_code(handle, change)
        if code == DO_FORK_OLD and region:
            region.length -= PAGE
        return code, error, region


@violates("REREG-08")
class OldRangeFailureUndoes(Device):
    """If the fork protection of the old range cannot be removed, the new region is not valid."""

    def rereg_code(self, handle: int, change: Change) -> tuple[int, int, Region | None]:
        code, error, region = super().rereg_code(handle, change)
        if code == DO_FORK_OLD and region:
            region.usable = False
        return code, error, region


@violates("REREG-09")
class CommandErrorHidden(Device):
    """A command error returns 0."""

    def rereg_code(self, handle: int, change: Change) -> tuple[int, int, Region | None]:
        code, error, region = super().rereg_code(handle, change)
        return (0, 0, region) if code == CMD else (code, error, region)


@violates("REREG-09")
class CommandErrorIsInput(Device):
    """A command error is reported as an input error."""

    def command_code(self, forks: bool, change: Change) -> int:
        code = super().command_code(forks, change)
        return INPUT if code == CMD else code


@violates("REREG-10")
class ForkStateNotTold(Device):
    """It is not reported that the new range was left in an invalid fork state."""

    def command_code(self, forks: bool, change: Change) -> int:
        super().command_code(forks, change)
        return CMD


@violates("REREG-10")
class ForkStateIsOld(Device):
    """The code for the fork state of the new range is that for the old range."""

    def command_code(self, forks: bool, change: Change) -> int:
        code = super().command_code(forks, change)
        return DO_FORK_OLD if code == CMD_AND_DO_FORK_NEW else code


@violates("REREG-11")
class GoneAfterFailure(Device):
    """A re-registration that fails deregisters the region."""

    def rereg_code(self, handle: int, change: Change) -> tuple[int, int, Region | None]:
        code, error, region = super().rereg_code(handle, change)
        if code in (CMD, INPUT) and handle in self.regions:
            self.deregister(handle)
        return code, error, region


@violates("REREG-11")
class StuckAfterFailure(Device):
    """A region whose re-registration failed cannot be deregistered."""

    def deregister(self, handle: int) -> None:
        if handle in self.regions and not self.regions[handle].usable:
            raise Refused(errno.EBUSY)
        super().deregister(handle)


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


@violates("REREG-11")
class KernelEndsTheRegion(Device):
    """In the kernel, an unknown flag invalidates the region."""

    def unknown_changes(self, flags: int) -> bool:
        unknown = super().unknown_changes(flags)
        for region in self.regions.values() if unknown else ():
            region.usable = False
        return unknown


@violates("XREREG-01")
class CodesInTheDialect(Device):
    """The vendor's call returns the codes of the mainline page."""

    def experimental_code(self, handle: int, change: Change) -> tuple[int, Region | None]:
        error, region = super().experimental_code(handle, change)
        return (CMD if error else 0), region


@violates("XREREG-01")
class DialectAnswersOne(Device):
    """The vendor's call returns 1 on success."""

    def experimental_code(self, handle: int, change: Change) -> tuple[int, Region | None]:
        error, region = super().experimental_code(handle, change)
        return error or 1, region


@violates("XREREG-02")
class DialectChecksAccess(Device):
    """The vendor's call refuses access that is not selected."""

    def experimental_code(self, handle: int, change: Change) -> tuple[int, Region | None]:
        if change.access and not change.flags & CHANGE_ACCESS:
            return errno.EINVAL, None
        return super().experimental_code(handle, change)


@violates("XREREG-03")
class DialectReleases(Device):
    """A failure of the vendor's call releases the region."""

    def experimental_code(self, handle: int, change: Change) -> tuple[int, Region | None]:
        error, region = super().experimental_code(handle, change)
        if error:
            self.deregister(handle)
        return error, region


@violates("XREREG-04")
class DialectKnowsNoReads(Device):
    """The vendor's call refuses REMOTE_READ."""

    def experimental_code(self, handle: int, change: Change) -> tuple[int, Region | None]:
        if change.flags & CHANGE_ACCESS and change.access & REMOTE_READ:
            return errno.EINVAL, None
        return super().experimental_code(handle, change)


@violates("XREREG-05")
class SharedStays(Device):
    """A shared region cannot be given a new translation."""

    def experimental_code(self, handle: int, change: Change) -> tuple[int, Region | None]:
        if change.flags & CHANGE_TRANSLATION and self.stack.reach("shared_mr"):
            return errno.EBUSY, None
        return super().experimental_code(handle, change)


@violates("XREREG-06")
class PeerMemoryChanged(Device):
    """A region on peer memory can be re-registered."""

    def experimental_code(self, handle: int, change: Change) -> tuple[int, Region | None]:
        return 0, self.change(handle, change)
