"""Violations of what ibv_rereg_mr revokes: old keys, rights, ranges and PDs that still work."""

from __future__ import annotations

from copy import copy
from typing import Any

from reference.device import Device
from reference.objects import LOCAL_WRITE, MW_BIND, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE, Domain, Region, Window
from reference.reregistration import CHANGE_ACCESS, CHANGE_PD, CHANGE_TRANSLATION, Change
from trial.violation import violates

Wanted = tuple[Domain, int, int, int, int]


class _Remembering(Device):
    """Remembers each region's state before its last change."""

    def apply(self, region: Region, change: Change) -> None:
        before = copy(region)
        super().apply(region, change)
        self.formers()[region.handle] = before, change

    def formers(self) -> dict[int, tuple[Region, Change]]:
        """Earlier states of regions and their changes, by handle."""
        found: dict[int, tuple[Region, Change]] = self.__dict__.setdefault("_formers", {})
        return found

    def former(self, region: Region, *flags: int) -> Region | None:
        """The region before its last change, if that had all the flags; else None."""
        before, change = self.formers().get(region.handle, (None, None))
        return before if change and all(change.flags & flag for flag in flags) else None


@violates("REREG-03")
class OldKeyServes(_Remembering):
    """After a change to new keys, the old keys still give access to the region as it was before."""

    def found(self, key: int) -> Region | Window | None:
        olds = (before for before, _ in self.formers().values() if before.key == key)
        return super().found(key) or next(olds, None)


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


@violates("REREG-01")
class LongerLengthStays(_Remembering):
    """After CHANGE_TRANSLATION the longer of the two lengths is enforced."""

    def contains(self, region: Region, addr: int, length: int) -> bool:
        before = self.former(region, CHANGE_TRANSLATION)
        most = max(region.length, before.length if before else 0)
        return addr >= region.iova and addr + length <= region.iova + most


@violates("REREG-13")
class ChangeGrantsEverything(Device):
    """A change without CHANGE_ACCESS grants every right."""

    def wanted(self, region: Region, change: Change) -> Wanted:
        domain, addr, length, iova, access = super().wanted(region, change)
        if change.flags and not change.flags & CHANGE_ACCESS:
            access |= LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC
        return domain, addr, length, iova, access


@violates("REREG-02")
class OldDomainByLkey(_Remembering):
    """After CHANGE_PD queue pairs of the old PD can still use the lkey."""

    def opens_locally(self, region: Region, domain: Domain) -> bool:
        before = self.former(region, CHANGE_PD)
        return bool(before and before.domain is domain) or super().opens_locally(region, domain)


@violates("REREG-01")
class OldTranslationByLkey(_Remembering):
    """After CHANGE_TRANSLATION the lkey gives access to the old range instead of the new one."""

    def local(self, lkey: int, domain: Domain, addr: int, length: int, write: bool) -> int | None:
        found: Any = self.found(lkey)
        before = self.former(found, CHANGE_TRANSLATION) if isinstance(found, Region) else None
        if before:
            return addr if before.addr <= addr and addr + length <= before.addr + before.length else None
        return super().local(lkey, domain, addr, length, write)


@violates("REREG-04")
class OldDomainBesideTranslation(_Remembering):
    """After CHANGE_PD with CHANGE_TRANSLATION the old PD still has access."""

    def opens(self, region: Region, domain: Domain) -> bool:
        before = self.former(region, CHANGE_TRANSLATION, CHANGE_PD)
        return bool(before and before.domain is domain) or super().opens(region, domain)


@violates("REREG-04")
class OldRangeBesideAccess(_Remembering):
    """After CHANGE_TRANSLATION with CHANGE_ACCESS the old range can be accessed as well."""

    def place(self, region: Region, addr: int, length: int) -> int | None:
        before = self.former(region, CHANGE_TRANSLATION, CHANGE_ACCESS)
        inside = before and before.addr <= addr and addr + length <= before.addr + before.length
        return addr if inside else super().place(region, addr, length)
