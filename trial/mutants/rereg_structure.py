"""What a re-registration leaves as it was, and what the structure says afterwards."""

from __future__ import annotations

from dataclasses import replace

from conformance.bench.calls import Pd
from reference.device import Device
from reference.memory import PAGE
from reference.objects import LOCAL_WRITE, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE, ZERO_BASED, Region
from reference.reregistration import CHANGE_ACCESS, CHANGE_PD, CHANGE_TRANSLATION, Change
from trial.mutants.bases import Wanted
from trial.violation import permits, plain, violates


@violates("REREG-13", Device.wanted)
def unselected_translation_taken(self: Device, region: Region, change: Change) -> Wanted:
    """addr and length are used without CHANGE_TRANSLATION."""
    found = plain(self).wanted(region, change)
    return (found[0], change.addr, change.length, change.addr, found[4]) if change.addr else found


@violates("REREG-13", Device.wanted)
def unselected_domain_taken(self: Device, region: Region, change: Change) -> Wanted:
    """pd is used without CHANGE_PD."""
    found = plain(self).wanted(region, change)
    return (self.domain_of(change.pd), *found[1:]) if change.pd is not None else found


@violates("REREG-13", Device.wanted)
def unselected_access_lost(self: Device, region: Region, change: Change) -> Wanted:
    """CHANGE_PD removes all access flags."""
    found = plain(self).wanted(region, change)
    return (*found[:4], 0) if change.flags == CHANGE_PD else found


@violates("REREG-13", Device.wanted)
def translation_takes_rights(self: Device, region: Region, change: Change) -> Wanted:
    """CHANGE_TRANSLATION removes all remote access flags."""
    found = plain(self).wanted(region, change)
    return (*found[:4], found[4] & LOCAL_WRITE) if change.flags == CHANGE_TRANSLATION else found


@violates("REREG-13", Device.wanted)
def change_grants_everything(self: Device, region: Region, change: Change) -> Wanted:
    """A change without CHANGE_ACCESS grants every right."""
    domain, addr, length, iova, access = plain(self).wanted(region, change)
    if change.flags and not change.flags & CHANGE_ACCESS:
        access |= LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC
    return domain, addr, length, iova, access


@violates("REREG-13", Device.wanted, written="blind")
def change_of_domain_takes_atomics(self: Device, region: Region, change: Change) -> Wanted:
    """A change of PD alone takes REMOTE_ATOMIC from the region."""
    domain, addr, length, iova, access = plain(self).wanted(region, change)
    return domain, addr, length, iova, access & ~REMOTE_ATOMIC if change.flags == CHANGE_PD else access


@violates("REREG-13", Device.wanted, written="blind")
def domain_given_is_domain_taken(self: Device, region: Region, change: Change) -> Wanted:
    """A PD that is given without CHANGE_PD becomes the region's."""
    if change.pd in self.domains:
        change = replace(change, flags=change.flags | CHANGE_PD)
    return plain(self).wanted(region, change)


@violates("REREG-13", Device.wanted, written="blind")
def change_of_access_forgets_hca_va(self: Device, region: Region, change: Change) -> Wanted:
    """A change of access alone makes the keys of a region with another hca_va take its addresses."""
    domain, addr, length, iova, access = plain(self).wanted(region, change)
    if change.flags & CHANGE_ACCESS and not region.access & ZERO_BASED:
        iova = addr
    return domain, addr, length, iova, access


@violates("REREG-13", Device.wanted, written="blind")
def address_given_is_address_taken(self: Device, region: Region, change: Change) -> Wanted:
    """An address and a length that are given without CHANGE_TRANSLATION are taken for the new ones."""
    if change.addr and change.length:
        change = replace(change, flags=change.flags | CHANGE_TRANSLATION)
    return plain(self).wanted(region, change)


@violates("REREG-13", Device.wanted, written="blind")
def change_of_translation_takes_remote_read(self: Device, region: Region, change: Change) -> Wanted:
    """A change of translation alone takes REMOTE_READ from a region that has REMOTE_WRITE as well."""
    domain, addr, length, iova, access = plain(self).wanted(region, change)
    if change.flags == CHANGE_TRANSLATION and access & REMOTE_WRITE:
        access &= ~REMOTE_READ
    return domain, addr, length, iova, access


@permits("REREG-13", written="blind")
class LibraryIgnoresUnselectedAccess(Device):
    """An access that no flag selects is ignored instead of refused: the two documents disagree."""

    def input_fault(self, change: Change) -> bool:
        plain = change if change.flags & 4 else Change(change.flags, change.pd, change.addr, change.length, 0)
        return super().input_fault(plain)


@violates("REREG-14", Device.reported_range)
def old_range_told(self: Device, change: Change) -> tuple[int, int]:
    """The structure still has the old addr and length."""
    return 0x1000, change.length


@violates("REREG-14", Device.reported_range)
def length_not_told(self: Device, change: Change) -> tuple[int, int]:
    """The structure has the new addr and no length."""
    return change.addr, 0


@violates("REREG-14", written="blind")
@violates("REREG-14", Device.reported_pd)
def old_domain_told(self: Device, pd: Pd, old: int) -> int:
    """The structure still has the old PD."""
    return old


@violates("REREG-14", Device.reported_pd)
def no_domain_told(self: Device, pd: Pd, old: int) -> int:
    """The structure has no PD after a change of it."""
    return 0


@violates("REREG-14")
class OldKeysTold(Device):
    """The region has new keys, and the structure the old ones."""

    def rekey(self, region: Region) -> None:
        before = region.key
        super().rekey(region)
        self.__dict__.setdefault("_told", {})[region.handle] = before

    def reported_keys(self, region: Region) -> tuple[int, int]:
        key = self.__dict__.get("_told", {}).get(region.handle, region.key)
        return key, key


@violates("REREG-14", Device.reported_range, written="blind")
def old_length_told(self: Device, change: Change) -> tuple[int, int]:
    """After a new translation the structure tells the length in whole pages."""
    addr, length = plain(self).reported_range(change)
    return addr, -(-length // PAGE) * PAGE


@violates("REREG-14", written="blind")
class KeysBeforeTheChangeTold(Device):
    """After a change of access the structure has the keys of before, which no longer work."""

    def setup(self) -> None:
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


@violates("REREG-14", written="blind")
class OldRkeyToldAfterTranslation(Device):
    """After a new translation the structure has the new lkey and the old rkey."""

    def setup(self) -> None:
        self._stale: dict[int, int] = {}

    def apply(self, region: Region, change: Change) -> None:
        old = region.key
        super().apply(region, change)
        self._stale.pop(region.handle, None)
        if change.flags & CHANGE_TRANSLATION:
            self._stale[region.handle] = old

    def reported_keys(self, region: Region) -> tuple[int, int]:
        return super().reported_keys(region)[0], self._stale.get(region.handle, region.key)
