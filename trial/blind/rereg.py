"""Re-registration, in the library's form and in the vendor's dialect."""

from __future__ import annotations

import errno
from dataclasses import replace

from conformance.bench.calls import Pd
from reference.device import Device
from reference.memory import PAGE
from reference.objects import (
    LOCAL_WRITE,
    MW_BIND,
    ON_DEMAND,
    REMOTE_ATOMIC,
    REMOTE_READ,
    REMOTE_WRITE,
    ZERO_BASED,
    Domain,
    Refused,
    Region,
)
from reference.reregistration import (
    CHANGE_ACCESS,
    CHANGE_PD,
    CHANGE_TRANSLATION,
    CHANGES,
    CMD,
    CMD_AND_DO_FORK_NEW,
    DO_FORK_OLD,
    DONT_FORK_NEW,
    INPUT,
    Change,
)
from reference.stack import WHOLE, Stack
from trial.blind.watching import ATOMICS, SENDS, Watching, forced
from trial.violation import violates

_Wanted = tuple[Domain, int, int, int, int]

# Translation


@violates("REREG-01")
class OldRangeStaysOpen(Device):
    """After a new translation the old range can still be read by key."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
        self._old: dict[int, Region] = {}

    def apply(self, region: Region, change: Change) -> None:
        old = replace(region, windows=[])
        super().apply(region, change)
        if change.flags & CHANGE_TRANSLATION:
            self._old[region.handle] = old

    def remote(self, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int) -> int | None:
        place = super().remote(rkey, domain, queue, addr, length, right)
        found = self.found(rkey)
        if place is None and isinstance(found, Region) and right == REMOTE_READ:
            old = self._old.get(found.handle)
            if old and self.opens(found, domain) and self.allows(found, right):
                return self.place(old, addr, length)
        return place


@violates("REREG-01")
class NewLengthAtTheSameAddressIgnored(Device):
    """A translation to the same address with a shorter length leaves the old length in force."""

    def wanted(self, region: Region, change: Change) -> _Wanted:
        domain, addr, length, iova, access = super().wanted(region, change)
        return domain, addr, max(length, region.length) if addr == region.addr else length, iova, access


@violates("REREG-01")
class NewTranslationFromThePage(Device):
    """A translation to an address within a page begins with that page."""

    def wanted(self, region: Region, change: Change) -> _Wanted:
        domain, addr, length, iova, access = super().wanted(region, change)
        if change.flags & CHANGE_TRANSLATION and not access & ZERO_BASED:
            addr, length, iova = addr // PAGE * PAGE, length + addr % PAGE, iova // PAGE * PAGE
        return domain, addr, length, iova, access


@violates("REREG-01")
class KeysKeepTheOldAddresses(Device):
    """After a new translation the lkey works with the old addresses, the rkey with the new ones."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
        self._old: dict[int, int] = {}

    def apply(self, region: Region, change: Change) -> None:
        old = region.iova
        super().apply(region, change)
        if change.flags & CHANGE_TRANSLATION and old and region.iova:
            self._old[region.handle] = old

    def local(self, lkey: int, domain: Domain, addr: int, length: int, write: bool) -> int | None:
        found = self.found(lkey)
        if isinstance(found, Region) and found.handle in self._old:
            addr = max(0, addr - self._old[found.handle] + found.iova)
        return super().local(lkey, domain, addr, length, write)


@violates("REREG-01")
class GrownPartCannotBeReached(Device):
    """A translation to a longer range does not open what exceeds the old length in whole pages."""

    def wanted(self, region: Region, change: Change) -> _Wanted:
        domain, addr, length, iova, access = super().wanted(region, change)
        most = -(-region.length // PAGE) * PAGE
        return domain, addr, min(length, most), iova, access


# Domain


@violates("REREG-02")
class OldDomainStaysOpen(Device):
    """After a change of PD the queue pairs of the old one still reach the region."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
        self._old: dict[int, Domain] = {}

    def move(self, region: Region, domain: Domain) -> None:
        if domain is not region.domain:
            self._old[region.handle] = region.domain
        super().move(region, domain)

    def opens(self, region: Region, domain: Domain) -> bool:
        return super().opens(region, domain) or (region.usable and self._old.get(region.handle) is domain)


@violates("REREG-02")
class AtomicsStayInTheOldDomain(Watching):
    """After a change of PD atomics are still checked against the old one."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
        self._first: dict[int, Domain] = {}

    def move(self, region: Region, domain: Domain) -> None:
        self._first.setdefault(region.handle, region.domain)
        super().move(region, domain)

    def opens(self, region: Region, domain: Domain) -> bool:
        if self.opcode in ATOMICS and region.handle in self._first:
            return region.usable and self._first[region.handle] is domain
        return super().opens(region, domain)


@violates("REREG-02")
class LkeyStaysInTheOldDomain(Device):
    """After a change of PD the lkey is good in both PDs."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
        self._first: dict[int, Domain] = {}

    def move(self, region: Region, domain: Domain) -> None:
        self._first.setdefault(region.handle, region.domain)
        super().move(region, domain)

    def opens_locally(self, region: Region, domain: Domain) -> bool:
        first = region.usable and self._first.get(region.handle) is domain
        return first or super().opens_locally(region, domain)


@violates("REREG-02")
class OldDomainStaysInUse(Device):
    """A change of PD leaves the old PD in use: it cannot be deallocated once it is empty."""

    def move(self, region: Region, domain: Domain) -> None:
        old = region.domain
        super().move(region, domain)
        if old is not domain:
            old.users += 1


# Access


@violates("REREG-03")
class RightsOnlyGrow(Device):
    """A change of access grants rights and revokes none."""

    def wanted(self, region: Region, change: Change) -> _Wanted:
        domain, addr, length, iova, access = super().wanted(region, change)
        return domain, addr, length, iova, access | region.access


@violates("REREG-03")
class AtomicRightNotRevoked(Device):
    """A change of access that keeps LOCAL_WRITE does not revoke REMOTE_ATOMIC."""

    def wanted(self, region: Region, change: Change) -> _Wanted:
        domain, addr, length, iova, access = super().wanted(region, change)
        if access & LOCAL_WRITE:
            access |= region.access & REMOTE_ATOMIC
        return domain, addr, length, iova, access


@violates("REREG-03")
class BindingNotGranted(Device):
    """A change of access does not grant MW_BIND."""

    def wanted(self, region: Region, change: Change) -> _Wanted:
        domain, addr, length, iova, access = super().wanted(region, change)
        return domain, addr, length, iova, access & ~(MW_BIND & ~region.access)


@violates("REREG-03")
class LocalWriteNotRevokedForReceives(Watching):
    """After LOCAL_WRITE has been revoked messages can still be received into the region."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
        self._had: set[int] = set()

    def apply(self, region: Region, change: Change) -> None:
        had = region.access & LOCAL_WRITE
        super().apply(region, change)
        if had:
            self._had.add(region.handle)

    def allows_local_write(self, region: Region) -> bool:
        return super().allows_local_write(region) or (self.opcode in SENDS and region.handle in self._had)


@violates("REREG-03")
class RemoteReadGrantedTheSecondTime(Device):
    """REMOTE_READ that a region had, lost and is given again does not come back."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
        self._lost: set[int] = set()

    def apply(self, region: Region, change: Change) -> None:
        had = region.access & REMOTE_READ
        super().apply(region, change)
        if had and not region.access & REMOTE_READ:
            self._lost.add(region.handle)
        elif region.handle in self._lost:
            region.access &= ~REMOTE_READ


@violates("REREG-03")
class RevokedBindingStillBinds(Device):
    """After MW_BIND has been revoked windows can still be bound."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
        self._had: set[int] = set()

    def apply(self, region: Region, change: Change) -> None:
        had = region.access & MW_BIND
        super().apply(region, change)
        if had:
            self._had.add(region.handle)

    def forbids_binding(self, region: Region) -> bool:
        return super().forbids_binding(region) and region.handle not in self._had


# Combinations


@violates("REREG-04")
class AllThreeForgetTheDomain(Device):
    """All three changes at once leave the PD as it was."""

    def wanted(self, region: Region, change: Change) -> _Wanted:
        flags = change.flags & ~CHANGE_PD if change.flags == CHANGES else change.flags
        return super().wanted(region, replace(change, flags=flags))


@violates("REREG-04")
class TranslationForgetsAccess(Device):
    """Translation and access at once leave the access as it was."""

    def wanted(self, region: Region, change: Change) -> _Wanted:
        both = CHANGE_TRANSLATION | CHANGE_ACCESS
        flags = CHANGE_TRANSLATION if change.flags == both else change.flags
        return super().wanted(region, replace(change, flags=flags))


@violates("REREG-04")
class DomainForgetsTranslation(Device):
    """Translation and PD at once keep the old length."""

    def wanted(self, region: Region, change: Change) -> _Wanted:
        domain, addr, length, iova, access = super().wanted(region, change)
        if change.flags == CHANGE_TRANSLATION | CHANGE_PD:
            length = region.length
        return domain, addr, length, iova, access


@violates("REREG-04")
class DomainAndAccessLoseRemoteWrite(Device):
    """PD and access at once do not grant REMOTE_WRITE."""

    def wanted(self, region: Region, change: Change) -> _Wanted:
        domain, addr, length, iova, access = super().wanted(region, change)
        if change.flags == CHANGE_PD | CHANGE_ACCESS:
            access &= ~(REMOTE_WRITE & ~region.access)
        return domain, addr, length, iova, access


# Codes


@violates("REREG-05")
class ErrnoInsteadOfACode(Device):
    """A command error returns errno instead of a code."""

    def rereg_code(self, handle: int, change: Change) -> tuple[int, int, Region | None]:
        code, error, region = super().rereg_code(handle, change)
        return error if code == CMD else code, error, region


@violates("REREG-05")
class SixthCode(Device):
    """A command error over memory that is not mapped returns -6."""

    def rereg_code(self, handle: int, change: Change) -> tuple[int, int, Region | None]:
        code, error, region = super().rereg_code(handle, change)
        return -6 if code == CMD and error == errno.EFAULT else code, error, region


@violates("REREG-05")
class SuccessReturnsOne(Device):
    """A change of the PD alone that succeeds returns 1."""

    def rereg_code(self, handle: int, change: Change) -> tuple[int, int, Region | None]:
        code, error, region = super().rereg_code(handle, change)
        return code or int(change.flags == CHANGE_PD), error, region


@violates("REREG-06")
class UnknownFlagGoesDown(Device):
    """The library passes an unknown flag on, and the command's error comes back."""

    def library_unknown(self, flags: int) -> bool:
        return False


@violates("REREG-06")
class UnknownFlagAlongsideIgnored(Device):
    """Unknown flags are ignored beside known ones."""

    def rereg_code(self, handle: int, change: Change) -> tuple[int, int, Region | None]:
        known = change.flags & CHANGES
        return super().rereg_code(handle, replace(change, flags=known) if known else change)


@violates("REREG-06")
class InputErrorSpoilsTheRegion(Device):
    """After ERR_INPUT for a length of 0 the old region no longer works."""

    def rereg_code(self, handle: int, change: Change) -> tuple[int, int, Region | None]:
        answer = super().rereg_code(handle, change)
        if answer[0] == INPUT and change.flags & CHANGE_TRANSLATION and not change.length:
            self.regions[handle].usable = False
        return answer


@violates("REREG-06")
class NoDomainGoesDown(Device):
    """A change of PD without a PD is passed on as a command and spoils the region."""

    def input_fault(self, change: Change) -> bool:
        if change.flags & CHANGE_PD and change.pd is None:
            return super().input_fault(replace(change, pd=0))
        return super().input_fault(change)


@violates("REREG-06")
class InputErrorChangesRights(Device):
    """ERR_INPUT for a translation without address comes after the new access has been set."""

    def rereg_code(self, handle: int, change: Change) -> tuple[int, int, Region | None]:
        answer = super().rereg_code(handle, change)
        if answer[0] == INPUT and change.flags & CHANGE_ACCESS and handle in self.regions:
            self.regions[handle].access = change.access
        return answer


@violates("REREG-07")
class NewForkFailureSpoilsTheOld(Device):
    """After ERR_DONT_FORK_NEW the old region no longer works."""

    def rereg_code(self, handle: int, change: Change) -> tuple[int, int, Region | None]:
        answer = super().rereg_code(handle, change)
        if answer[0] == DONT_FORK_NEW and handle in self.regions:
            self.regions[handle].usable = False
        return answer


@violates("REREG-07")
class NewForkFailureIsAnInputError(Device):
    """A new range that cannot be kept from children gives ERR_INPUT."""

    def rereg_code(self, handle: int, change: Change) -> tuple[int, int, Region | None]:
        code, error, region = super().rereg_code(handle, change)
        return INPUT if code == DONT_FORK_NEW else code, error, region


@violates("REREG-07")
class NewForkFailureRevokes(Device):
    """After ERR_DONT_FORK_NEW the old region can no longer be written remotely."""

    def rereg_code(self, handle: int, change: Change) -> tuple[int, int, Region | None]:
        answer = super().rereg_code(handle, change)
        if answer[0] == DONT_FORK_NEW and handle in self.regions:
            self.regions[handle].access &= ~REMOTE_WRITE
        return answer


@violates("REREG-08")
class OldForkFailureUndoesTheChange(Device):
    """ERR_DO_FORK_OLD is returned and the region has its old place again."""

    def rereg_code(self, handle: int, change: Change) -> tuple[int, int, Region | None]:
        region = self.regions.get(handle)
        old = (region.addr, region.length, region.iova) if region else (0, 0, 0)
        answer = super().rereg_code(handle, change)
        if answer[0] == DO_FORK_OLD and region:
            region.addr, region.length, region.iova = old
        return answer


@violates("REREG-08")
class OldForkFailureNotTold(Device):
    """A failure to give the old range back to children is answered with 0."""

    def rereg_code(self, handle: int, change: Change) -> tuple[int, int, Region | None]:
        code, error, region = super().rereg_code(handle, change)
        return (0, 0, region) if code == DO_FORK_OLD else (code, error, region)


@violates("REREG-08")
class OldForkFailureEndsTheRegion(Device):
    """After ERR_DO_FORK_OLD the new region cannot be used."""

    def rereg_code(self, handle: int, change: Change) -> tuple[int, int, Region | None]:
        answer = super().rereg_code(handle, change)
        if answer[0] == DO_FORK_OLD:
            self.regions[handle].usable = False
        return answer


@violates("REREG-09")
class CommandErrorIsAnInputError(Device):
    """A command error gives ERR_INPUT, which promises that the old region is valid."""

    def command_code(self, forks: bool, change: Change) -> int:
        code = super().command_code(forks, change)
        return INPUT if code == CMD else code


@violates("REREG-09")
class CommandErrorIsSuccess(Device):
    """A command that fails for its access flags is answered with 0."""

    def rereg_code(self, handle: int, change: Change) -> tuple[int, int, Region | None]:
        code, error, region = super().rereg_code(handle, change)
        return (0, 0, region) if code == CMD and error == errno.EINVAL else (code, error, region)


@violates("REREG-09")
class CommandErrorIsAForkError(Device):
    """A command that fails for memory that is not there gives ERR_DONT_FORK_NEW."""

    def rereg_code(self, handle: int, change: Change) -> tuple[int, int, Region | None]:
        code, error, region = super().rereg_code(handle, change)
        return DONT_FORK_NEW if code == CMD and error == errno.EFAULT else code, error, region


@violates("REREG-10")
class DoubleFailureIsACommandError(Device):
    """A command error whose fork mark cannot be undone gives ERR_CMD."""

    def command_code(self, forks: bool, change: Change) -> int:
        super().command_code(forks, change)
        return CMD


@violates("REREG-10")
class DoubleFailureIsAnOldForkError(Device):
    """A command error whose fork mark cannot be undone gives ERR_DO_FORK_OLD."""

    def command_code(self, forks: bool, change: Change) -> int:
        code = super().command_code(forks, change)
        return DO_FORK_OLD if code == CMD_AND_DO_FORK_NEW else code


@violates("REREG-11")
class NoDeregistrationAfterACommandError(Device):
    """After a command error ibv_dereg_mr fails."""

    def deregister(self, handle: int) -> None:
        if handle in self.regions and not self.regions[handle].usable:
            raise Refused(errno.EINVAL)
        super().deregister(handle)


@violates("REREG-11")
class CommandErrorDeregisters(Device):
    """A command error deregisters the region already: ibv_dereg_mr finds none."""

    def change(self, handle: int, change: Change) -> Region:
        try:
            return super().change(handle, change)
        except Refused:
            region = self.regions.get(handle)
            if region and not region.usable and not region.windows:
                super().deregister(handle)
            raise


@violates("REREG-11")
class DeregistrationAfterAnErrorLeaks(Device):
    """After a command error ibv_dereg_mr returns 0, but the PD stays in use."""

    def deregister(self, handle: int) -> None:
        region = self.regions.get(handle)
        super().deregister(handle)
        if region and not region.usable:
            region.domain.users += 1


@violates("REREG-11")
class InputErrorForbidsDeregistration(Device):
    """After an ERR_INPUT ibv_dereg_mr of the region fails the first time."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
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


@violates("REREG-12")
class ChangeToRemoteWriteAlone(Device):
    """A change of access to REMOTE_WRITE without LOCAL_WRITE is granted."""

    def change_fault(self, addr: int, length: int, access: int, flags: int) -> int:
        alone = access & REMOTE_WRITE and not access & (LOCAL_WRITE | REMOTE_ATOMIC)
        return super().change_fault(addr, length, access & ~REMOTE_WRITE if alone else access, flags)


@violates("REREG-12")
class ChangeToNothingRefused(Device):
    """A change of access to 0 is refused."""

    def change_fault(self, addr: int, length: int, access: int, flags: int) -> int:
        if flags & CHANGE_ACCESS and not access:
            return errno.EINVAL
        return super().change_fault(addr, length, access, flags)


@violates("REREG-12")
class ChangeToAtomicAloneWithTranslation(Device):
    """REMOTE_ATOMIC without LOCAL_WRITE is granted where the translation changes too."""

    def change_fault(self, addr: int, length: int, access: int, flags: int) -> int:
        if flags & CHANGE_TRANSLATION and not access & (LOCAL_WRITE | REMOTE_WRITE):
            access &= ~REMOTE_ATOMIC
        return super().change_fault(addr, length, access, flags)


@violates("REREG-12")
class LocalWriteOfTheOldRegionSuffices(Device):
    """REMOTE_WRITE without LOCAL_WRITE is granted where the region had LOCAL_WRITE before."""

    def wanted(self, region: Region, change: Change) -> _Wanted:
        self._had = bool(region.access & LOCAL_WRITE)
        return super().wanted(region, change)

    _had = False

    def change_fault(self, addr: int, length: int, access: int, flags: int) -> int:
        return super().change_fault(addr, length, access | LOCAL_WRITE if self._had else access, flags)


# What stays


@violates("REREG-13")
class ChangeOfDomainTakesAtomics(Device):
    """A change of PD alone takes REMOTE_ATOMIC from the region."""

    def wanted(self, region: Region, change: Change) -> _Wanted:
        domain, addr, length, iova, access = super().wanted(region, change)
        return domain, addr, length, iova, access & ~REMOTE_ATOMIC if change.flags == CHANGE_PD else access


@violates("REREG-13")
class DomainGivenIsDomainTaken(Device):
    """A PD that is given without CHANGE_PD becomes the region's."""

    def wanted(self, region: Region, change: Change) -> _Wanted:
        if change.pd in self.domains:
            change = replace(change, flags=change.flags | CHANGE_PD)
        return super().wanted(region, change)


@violates("REREG-13")
class ChangeOfAccessForgetsHcaVa(Device):
    """A change of access alone makes the keys of a region with another hca_va take its addresses."""

    def wanted(self, region: Region, change: Change) -> _Wanted:
        domain, addr, length, iova, access = super().wanted(region, change)
        if change.flags & CHANGE_ACCESS and not region.access & ZERO_BASED:
            iova = addr
        return domain, addr, length, iova, access


@violates("REREG-13")
class AddressGivenIsAddressTaken(Device):
    """An address and a length that are given without CHANGE_TRANSLATION are taken for the new ones."""

    def wanted(self, region: Region, change: Change) -> _Wanted:
        if change.addr and change.length:
            change = replace(change, flags=change.flags | CHANGE_TRANSLATION)
        return super().wanted(region, change)


@violates("REREG-13")
class ChangeOfTranslationTakesRemoteRead(Device):
    """A change of translation alone takes REMOTE_READ from a region that has REMOTE_WRITE as well."""

    def wanted(self, region: Region, change: Change) -> _Wanted:
        domain, addr, length, iova, access = super().wanted(region, change)
        if change.flags == CHANGE_TRANSLATION and access & REMOTE_WRITE:
            access &= ~REMOTE_READ
        return domain, addr, length, iova, access


@violates("REREG-14")
class OldLengthTold(Device):
    """After a new translation the structure tells the length in whole pages."""

    def reported_range(self, change: Change) -> tuple[int, int]:
        addr, length = super().reported_range(change)
        return addr, -(-length // PAGE) * PAGE


@violates("REREG-14")
class OldDomainTold(Device):
    """After a change of PD the structure still names the old one."""

    def reported_pd(self, pd: Pd, old: int) -> int:
        return old


@violates("REREG-14")
class KeysBeforeTheChangeTold(Device):
    """After a change of access the structure has the keys of before, which no longer work."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
        self._stale: dict[int, int] = {}

    def apply(self, region: Region, change: Change) -> None:
        old = region.key
        super().apply(region, change)
        self._stale.pop(region.handle, None)
        if change.flags == CHANGE_ACCESS:
            self._stale[region.handle] = old

    def reported_keys(self, region: Region) -> tuple[int, int]:
        old = self._stale.get(region.handle)
        return (old, old) if old is not None else super().reported_keys(region)


@violates("REREG-14")
class OldRkeyToldAfterTranslation(Device):
    """After a new translation the structure has the new lkey and the old rkey."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
        self._stale: dict[int, int] = {}

    def apply(self, region: Region, change: Change) -> None:
        old = region.key
        super().apply(region, change)
        self._stale.pop(region.handle, None)
        if change.flags & CHANGE_TRANSLATION:
            self._stale[region.handle] = old

    def reported_keys(self, region: Region) -> tuple[int, int]:
        return super().reported_keys(region)[0], self._stale.get(region.handle, region.key)


# Read-only memory


class _Careless(Device):
    """A device that does not look at memory when only the access changes, and then writes it past its protection."""

    def change_fault(self, addr: int, length: int, access: int, flags: int) -> int:
        """The errno for what could not be registered anew."""
        if flags & CHANGE_TRANSLATION or not flags & CHANGE_ACCESS:
            return super().change_fault(addr, length, access, flags)
        return self.access_fault(access)


@violates("REREG-16")
class PeersWriteReadOnlyMemory(_Careless):
    """After a change of access over memory that is mapped read-only peers write it."""

    def put(self, addr: int, content: bytes) -> bool:
        return super().put(addr, content) or forced(addr, content)


@violates("REREG-16")
class PeersWriteOneByteOfReadOnlyMemory(_Careless):
    """After a change of access over memory that is mapped read-only a peer's write is refused behind its first byte."""

    def put(self, addr: int, content: bytes) -> bool:
        done = super().put(addr, content)
        if not done and self.memory.fault_in(addr, len(content), write=False):
            forced(addr, content[:1])
        return done


# Special regions


@violates("REREG-17")
class BusyRegionMovesAllTheSame(Device):
    """A change of PD and access of a region with a bound window is refused, but the rights have changed."""

    def change(self, handle: int, change: Change) -> Region:
        try:
            return super().change(handle, change)
        except Refused:
            region = self.regions.get(handle)
            if region and region.windows and change.flags & CHANGE_ACCESS:
                region.access = change.access
            raise


@violates("REREG-17")
class RefusedChangeKeepsTheNewDomain(Device):
    """A refused change of PD and access leaves the new PD in use."""

    def change_fault(self, addr: int, length: int, access: int, flags: int) -> int:
        fault = super().change_fault(addr, length, access, flags)
        if fault and flags & CHANGE_PD and flags & CHANGE_ACCESS and self._asked:
            self._asked.users += 1
        return fault

    _asked: Domain | None = None

    def wanted(self, region: Region, change: Change) -> _Wanted:
        found = super().wanted(region, change)
        self._asked = found[0]
        return found


@violates("REREG-17")
class RefusedChangeFreesTheOldDomain(Device):
    """After a refused change of PD and access the region is counted in the new PD, and freed in the old one."""

    def apply(self, region: Region, change: Change) -> None:
        try:
            super().apply(region, change)
        except Refused:
            if change.flags & CHANGE_PD and change.flags & CHANGE_ACCESS and change.pd in self.domains:
                self.domains[change.pd or 0].users += 1
                region.domain.users -= 1
            raise


@violates("REREG-17")
class OnDemandTranslationForgetsAccess(Device):
    """Of a change of translation and access of an on-demand region only the translation takes effect."""

    def wanted(self, region: Region, change: Change) -> _Wanted:
        domain, addr, length, iova, access = super().wanted(region, change)
        if region.access & ON_DEMAND and change.flags & CHANGE_TRANSLATION:
            access = region.access
        return domain, addr, length, iova, access


@violates("REREG-17")
class MovedRegionTranslatedByHalf(Device):
    """A new translation of a region with another hca_va moves its memory and keeps its key addresses' length."""

    def wanted(self, region: Region, change: Change) -> _Wanted:
        moved = region.iova not in (region.addr, 0)
        domain, addr, length, iova, access = super().wanted(region, change)
        if moved and change.flags & CHANGE_TRANSLATION:
            length = region.length
        return domain, addr, length, iova, access


# The vendor's dialect


@violates("XREREG-01")
class VendorsMinusOne(Device):
    """The vendor's verb returns -1 on failure."""

    def experimental_code(self, handle: int, change: Change) -> tuple[int, Region | None]:
        code, region = super().experimental_code(handle, change)
        return -1 if code else 0, region


@violates("XREREG-01")
class VendorsCodes(Device):
    """The vendor's verb returns a code of the mainline enumeration for bad access flags."""

    def experimental_code(self, handle: int, change: Change) -> tuple[int, Region | None]:
        code, region = super().experimental_code(handle, change)
        return CMD if code == errno.EINVAL else code, region


@violates("XREREG-02")
class VendorRefusesAccessWithoutItsFlag(Device):
    """The vendor's verb refuses an access that is given without its flag."""

    def experimental_code(self, handle: int, change: Change) -> tuple[int, Region | None]:
        if change.access and not change.flags & CHANGE_ACCESS:
            return errno.EINVAL, None
        return super().experimental_code(handle, change)


@violates("XREREG-02")
class VendorTakesEveryDomain(Device):
    """The vendor's verb changes the PD whenever one is given."""

    def experimental_code(self, handle: int, change: Change) -> tuple[int, Region | None]:
        if change.pd is not None:
            change = replace(change, flags=change.flags | CHANGE_PD)
        return super().experimental_code(handle, change)


@violates("XREREG-02")
class VendorTakesEveryLength(Device):
    """The vendor's verb takes a length that is given without CHANGE_TRANSLATION."""

    def experimental_code(self, handle: int, change: Change) -> tuple[int, Region | None]:
        code, region = super().experimental_code(handle, change)
        if region and not change.flags & CHANGE_TRANSLATION and 0 < change.length < region.length:
            region.length = change.length
        return code, region


@violates("XREREG-03")
class VendorsErrorForbidsDeregistration(Device):
    """After an error of the vendor's verb ibv_dereg_mr fails."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
        self._hurt: set[int] = set()

    def experimental_code(self, handle: int, change: Change) -> tuple[int, Region | None]:
        code, region = super().experimental_code(handle, change)
        if code:
            self._hurt.add(handle)
        return code, region

    def deregister(self, handle: int) -> None:
        if handle in self._hurt:
            raise Refused(errno.EINVAL)
        super().deregister(handle)


@violates("XREREG-03")
class VendorsErrorLeaks(Device):
    """After an error of the vendor's verb ibv_dereg_mr returns 0, but the region stays in the account."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
        self._hurt: set[int] = set()

    def experimental_code(self, handle: int, change: Change) -> tuple[int, Region | None]:
        code, region = super().experimental_code(handle, change)
        if code:
            self._hurt.add(handle)
        return code, region

    def deregister(self, handle: int) -> None:
        region = self.regions.get(handle)
        super().deregister(handle)
        if region and handle in self._hurt:
            lost = self.new_handle()
            self.regions[lost] = replace(region, handle=lost, windows=[])


@violates("XREREG-04")
class VendorTakesOneRightAlone(Device):
    """The vendor's verb refuses LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ together."""

    def experimental_code(self, handle: int, change: Change) -> tuple[int, Region | None]:
        whole = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ
        if change.flags & CHANGE_ACCESS and change.access & whole == whole:
            return errno.EINVAL, None
        return super().experimental_code(handle, change)


@violates("XREREG-04")
class VendorForgetsRemoteRead(Device):
    """The vendor's verb accepts REMOTE_READ beside LOCAL_WRITE and does not grant it."""

    def experimental_code(self, handle: int, change: Change) -> tuple[int, Region | None]:
        code, region = super().experimental_code(handle, change)
        if region and change.flags & CHANGE_ACCESS and change.access & LOCAL_WRITE:
            region.access &= ~REMOTE_READ
        return code, region


@violates("XREREG-06")
class PeerMemoryReregisters(Device):
    """A region on peer memory can be re-registered."""

    def experimental_code(self, handle: int, change: Change) -> tuple[int, Region | None]:
        try:
            return 0, self.change(handle, change)
        except Refused as refused:
            return refused.errno, None


@violates("XREREG-06")
class PeerMemoryChangesItsRights(Device):
    """A region on peer memory can have its access changed, and nothing else."""

    def experimental_code(self, handle: int, change: Change) -> tuple[int, Region | None]:
        if change.flags == CHANGE_ACCESS and handle in self.regions:
            try:
                return 0, self.change(handle, change)
            except Refused as refused:
                return refused.errno, None
        return super().experimental_code(handle, change)
