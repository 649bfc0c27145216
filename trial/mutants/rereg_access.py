"""Re-registration with other access rights."""

from __future__ import annotations

from reference.device import Device
from reference.objects import LOCAL_WRITE, MW_BIND, REMOTE_ATOMIC, REMOTE_READ, Region
from reference.reregistration import Change
from trial.mutants.bases import SENDS, Wanted, Watching
from trial.violation import permits, violates


class _Keeping(Device):
    """CHANGE_ACCESS does not revoke one of the rights."""

    kept = 0

    def wanted(self, region: Region, change: Change) -> Wanted:
        domain, addr, length, iova, access = super().wanted(region, change)
        kept = 0 if self.kept == REMOTE_ATOMIC and not access & LOCAL_WRITE else self.kept
        return domain, addr, length, iova, access | region.access & kept


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
