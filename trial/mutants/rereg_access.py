"""Re-registration with other access rights."""

from __future__ import annotations

import errno

from reference.device import Device
from reference.objects import LOCAL_WRITE, MW_BIND, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE, Refused, Region, Window
from reference.reregistration import CHANGE_ACCESS, CHANGE_TRANSLATION, Change
from trial.mutants.bases import SENDS, Remembering, Wanted, Watching
from trial.violation import permits, plain, violates


class _Keeping(Device):
    """CHANGE_ACCESS does not revoke one of the rights."""

    kept = 0

    def wanted(self, region: Region, change: Change) -> Wanted:
        domain, addr, length, iova, access = super().wanted(region, change)
        kept = 0 if self.kept == REMOTE_ATOMIC and not access & LOCAL_WRITE else self.kept
        return domain, addr, length, iova, access | region.access & kept


@violates("REREG-03", Device.wanted)
def access_stays(self: Device, region: Region, change: Change) -> Wanted:
    """CHANGE_ACCESS returns 0 and changes nothing."""
    return (*plain(self).wanted(region, change)[:4], region.access)


@violates("REREG-03", Device.wanted)
def rights_are_only_added(self: Device, region: Region, change: Change) -> Wanted:
    """CHANGE_ACCESS grants rights and revokes none."""
    *others, access = plain(self).wanted(region, change)
    return (*others, access | region.access)  # type: ignore[return-value]


@violates("REREG-03", Device.wanted)
def rights_are_only_taken(self: Device, region: Region, change: Change) -> Wanted:
    """CHANGE_ACCESS revokes rights and grants none."""
    *others, access = plain(self).wanted(region, change)
    return (*others, access & region.access)  # type: ignore[return-value]


@violates("REREG-03", Device.wanted)
def reads_are_not_revoked(self: Device, region: Region, change: Change) -> Wanted:
    """CHANGE_ACCESS does not revoke REMOTE_READ."""
    *others, access = plain(self).wanted(region, change)
    return (*others, access | region.access & REMOTE_READ)  # type: ignore[return-value]


@violates("REREG-03", Remembering.found)
def old_key_serves(self: Remembering, key: int) -> Region | Window | None:
    """After a change to new keys, the old keys still give access to the region as it was before."""
    olds = (before for before, _ in self.formers().values() if before.key == key)
    return plain(self).found(key) or next(olds, None)


@violates("REREG-03")
class LocalWriteStays(_Keeping):
    """CHANGE_ACCESS does not revoke LOCAL_WRITE."""

    kept = LOCAL_WRITE


@violates("REREG-03")
class AtomicStays(_Keeping):
    """CHANGE_ACCESS does not revoke REMOTE_ATOMIC."""

    kept = REMOTE_ATOMIC


@violates("REREG-03")
class BindingStays(_Keeping):
    """CHANGE_ACCESS does not revoke MW_BIND."""

    kept = MW_BIND


@violates("REREG-03", Device.wanted, written="blind")
def rights_only_grow(self: Device, region: Region, change: Change) -> Wanted:
    """A change of access grants rights and revokes none."""
    domain, addr, length, iova, access = plain(self).wanted(region, change)
    return domain, addr, length, iova, access | region.access


@violates("REREG-03", Device.wanted, written="blind")
def atomic_right_not_revoked(self: Device, region: Region, change: Change) -> Wanted:
    """A change of access that keeps LOCAL_WRITE does not revoke REMOTE_ATOMIC."""
    domain, addr, length, iova, access = plain(self).wanted(region, change)
    if access & LOCAL_WRITE:
        access |= region.access & REMOTE_ATOMIC
    return domain, addr, length, iova, access


@violates("REREG-03", Device.wanted, written="blind")
def binding_not_granted(self: Device, region: Region, change: Change) -> Wanted:
    """A change of access does not grant MW_BIND."""
    domain, addr, length, iova, access = plain(self).wanted(region, change)
    return domain, addr, length, iova, access & ~(MW_BIND & ~region.access)


@violates("REREG-03", written="blind")
class LocalWriteNotRevokedForReceives(Watching):
    """After LOCAL_WRITE has been revoked messages can still be received into the region."""

    def setup(self) -> None:
        super().setup()
        self._had: set[int] = set()

    def apply(self, region: Region, change: Change) -> None:
        had = region.access & LOCAL_WRITE
        super().apply(region, change)
        if had:
            self._had.add(region.handle)

    def allows_local_write(self, region: Region) -> bool:
        return super().allows_local_write(region) or (self.opcode in SENDS and region.handle in self._had)


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


@violates("REREG-03", written="blind")
class RevokedBindingStillBinds(Device):
    """After MW_BIND has been revoked windows can still be bound."""

    def setup(self) -> None:
        self._had: set[int] = set()

    def apply(self, region: Region, change: Change) -> None:
        had = region.access & MW_BIND
        super().apply(region, change)
        if had:
            self._had.add(region.handle)

    def forbids_binding(self, region: Region) -> bool:
        return super().forbids_binding(region) and region.handle not in self._had


@violates("REREG-12", Device.change_fault)
def change_to_write_alone(self: Device, addr: int, length: int, access: int, flags: int) -> int:
    """CHANGE_ACCESS grants REMOTE_WRITE and REMOTE_ATOMIC without LOCAL_WRITE."""
    return plain(self).change_fault(addr, length, access | LOCAL_WRITE, flags)


@violates("REREG-12", Device.change_fault)
def no_change_to_zero(self: Device, addr: int, length: int, access: int, flags: int) -> int:
    """A change to access 0 is refused."""
    return plain(self).change_fault(addr, length, access, flags) if access else errno.EINVAL


@violates("REREG-12", Device.change)
def no_change_from_zero(self: Device, handle: int, change: Change) -> Region:
    """A region that was registered with access 0 cannot be given rights."""
    if handle in self.regions and not self.regions[handle].access and change.access & REMOTE_WRITE:
        raise Refused(errno.EACCES)
    return plain(self).change(handle, change)


@violates("REREG-12", Device.change_fault, written="blind")
def change_to_remote_write_alone(self: Device, addr: int, length: int, access: int, flags: int) -> int:
    """A change of access to REMOTE_WRITE without LOCAL_WRITE is granted."""
    alone = access & REMOTE_WRITE and not access & (LOCAL_WRITE | REMOTE_ATOMIC)
    return plain(self).change_fault(addr, length, access & ~REMOTE_WRITE if alone else access, flags)


@violates("REREG-12", Device.change_fault, written="blind")
def change_to_nothing_refused(self: Device, addr: int, length: int, access: int, flags: int) -> int:
    """A change of access to 0 is refused."""
    if flags & CHANGE_ACCESS and not access:
        return errno.EINVAL
    return plain(self).change_fault(addr, length, access, flags)


@violates("REREG-12", Device.change_fault, written="blind")
def change_to_atomic_alone_with_translation(self: Device, addr: int, length: int, access: int, flags: int) -> int:
    """REMOTE_ATOMIC without LOCAL_WRITE is granted where the translation changes too."""
    if flags & CHANGE_TRANSLATION and not access & (LOCAL_WRITE | REMOTE_WRITE):
        access &= ~REMOTE_ATOMIC
    return plain(self).change_fault(addr, length, access, flags)


@violates("REREG-12", written="blind")
class LocalWriteOfTheOldRegionSuffices(Device):
    """REMOTE_WRITE without LOCAL_WRITE is granted where the region had LOCAL_WRITE before."""

    def wanted(self, region: Region, change: Change) -> Wanted:
        self._had = bool(region.access & LOCAL_WRITE)
        return super().wanted(region, change)

    _had = False

    def change_fault(self, addr: int, length: int, access: int, flags: int) -> int:
        return super().change_fault(addr, length, access | LOCAL_WRITE if self._had else access, flags)


@permits("REREG-14", name="keys-stay-after-a-change", written="blind")
@permits("REREG-15")
class KeysKept(Device):
    """A region keeps its keys when it is re-registered."""

    def rekey(self, region: Region) -> None:
        """Does not change the keys."""


@permits("REREG-15", name="change-gives-a-new-index", written="blind")
@permits("REREG-15")
class KeysOfAnotherIndex(Device):
    """A region gets keys that have nothing in common with the old ones when it is re-registered."""

    def rekey(self, region: Region) -> None:
        self.forget_key(region)
        region.key = self.new_key()
        self.keys[region.key] = region
