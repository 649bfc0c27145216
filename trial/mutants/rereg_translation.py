"""Re-registration with another translation, and with several changes at once."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any

from reference.device import Device
from reference.memory import PAGE, SPACE
from reference.objects import REMOTE_READ, REMOTE_WRITE, ZERO_BASED, Domain, Refused, Region
from reference.reregistration import CHANGE_ACCESS, CHANGE_PD, CHANGE_TRANSLATION, CHANGES, Change
from trial.mutants.bases import Remembering, Wanted
from trial.violation import permits, plain, violates


@violates("REREG-01", Device.wanted)
def translation_stays(self: Device, region: Region, change: Change) -> Wanted:
    """CHANGE_TRANSLATION returns 0, and the keys still give access to the old range."""
    domain, _, _, _, access = plain(self).wanted(region, change)
    return domain, region.addr, region.length, region.iova, access


@violates("REREG-01")
class OldTranslationStaysToo(Device):
    """After CHANGE_TRANSLATION the old range can be accessed as well."""

    def apply(self, region: Region, change: Change) -> None:
        old = region.addr, region.length
        super().apply(region, change)
        if change.flags & CHANGE_TRANSLATION:
            self.__dict__.setdefault("_old", {})[region.handle] = old

    def place(self, region: Region, addr: int, length: int) -> int | None:
        start, size = self.__dict__.get("_old", {}).get(region.handle, (0, 0))
        return addr if start <= addr and addr + length <= start + size else super().place(region, addr, length)


@violates("REREG-01", Device.wanted)
def old_addresses_new_memory(self: Device, region: Region, change: Change) -> Wanted:
    """After CHANGE_TRANSLATION the new memory is accessed at the old addresses."""
    domain, addr, length, _, access = plain(self).wanted(region, change)
    return domain, addr, length, region.iova, access


@violates("REREG-01", Device.change)
def change_of_translation_refused(self: Device, handle: int, change: Change) -> Region:
    """CHANGE_TRANSLATION is refused with EINVAL."""
    if change.flags & CHANGE_TRANSLATION:
        raise Refused(errno.EINVAL)
    return plain(self).change(handle, change)


@violates("REREG-01", Device.wanted)
def old_length_stays(self: Device, region: Region, change: Change) -> Wanted:
    """CHANGE_TRANSLATION changes the address and not the length."""
    domain, addr, _, iova, access = plain(self).wanted(region, change)
    return domain, addr, region.length, iova, access


@violates("REREG-01", Remembering.contains)
def longer_length_stays(self: Remembering, region: Region, addr: int, length: int) -> bool:
    """After CHANGE_TRANSLATION the longer of the two lengths is enforced."""
    before = self.former(region, CHANGE_TRANSLATION)
    most = max(region.length, before.length if before else 0)
    return addr >= region.iova and addr + length <= region.iova + most


@violates("REREG-01", Remembering.local)
def old_translation_by_lkey(
    self: Remembering, lkey: int, domain: Domain, addr: int, length: int, write: bool
) -> int | None:
    """After CHANGE_TRANSLATION the lkey gives access to the old range instead of the new one."""
    found: Any = self.found(lkey)
    before = self.former(found, CHANGE_TRANSLATION) if isinstance(found, Region) else None
    if before:
        return addr if before.addr <= addr and addr + length <= before.addr + before.length else None
    return plain(self).local(lkey, domain, addr, length, write)


@violates("REREG-01", written="blind")
class OldRangeStaysOpen(Device):
    """After a new translation the old range can still be read by key."""

    def setup(self) -> None:
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


@violates("REREG-01", Device.wanted, written="blind")
def new_length_at_the_same_address_ignored(self: Device, region: Region, change: Change) -> Wanted:
    """A translation to the same address with a shorter length leaves the old length in force."""
    domain, addr, length, iova, access = plain(self).wanted(region, change)
    return domain, addr, max(length, region.length) if addr == region.addr else length, iova, access


@violates("REREG-01", Device.wanted, written="blind")
def new_translation_from_the_page(self: Device, region: Region, change: Change) -> Wanted:
    """A translation to an address within a page begins with that page."""
    domain, addr, length, iova, access = plain(self).wanted(region, change)
    if change.flags & CHANGE_TRANSLATION and not access & ZERO_BASED:
        addr, length, iova = addr // PAGE * PAGE, length + addr % PAGE, iova // PAGE * PAGE
    return domain, addr, length, iova, access


@violates("REREG-01", written="blind")
class KeysKeepTheOldAddresses(Device):
    """After a new translation the lkey works with the old addresses, the rkey with the new ones."""

    def setup(self) -> None:
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


@violates("REREG-01", Device.wanted, written="blind")
def grown_part_cannot_be_reached(self: Device, region: Region, change: Change) -> Wanted:
    """A translation to a longer range does not open what exceeds the old length in whole pages."""
    domain, addr, length, iova, access = plain(self).wanted(region, change)
    most = -(-region.length // PAGE) * PAGE
    return domain, addr, min(length, most), iova, access


@permits("REREG-01", Device.missing_change)
def no_change_of_translation(self: Device, flags: int) -> bool:
    """There is ibv_rereg_mr, and every change of the translation is answered with EOPNOTSUPP: the profile decides."""
    return plain(self).missing_change(flags) or bool(flags & CHANGE_TRANSLATION)


@violates("REREG-04", Device.wanted)
def access_forgotten_beside_translation(self: Device, region: Region, change: Change) -> Wanted:
    """CHANGE_ACCESS is ignored together with CHANGE_TRANSLATION."""
    found = plain(self).wanted(region, change)
    return (*found[:4], region.access) if change.flags & CHANGE_TRANSLATION else found


@violates("REREG-04", Device.wanted)
def domain_forgotten_beside_access(self: Device, region: Region, change: Change) -> Wanted:
    """CHANGE_PD is ignored together with CHANGE_ACCESS."""
    found = plain(self).wanted(region, change)
    return (region.domain, *found[1:]) if change.flags & CHANGE_ACCESS else found


@violates("REREG-04", Device.unknown_changes)
def one_change_at_a_time(self: Device, flags: int) -> bool:
    """More than one flag at once is refused."""
    return plain(self).unknown_changes(flags) or flags.bit_count() > 1


@violates("REREG-04", Remembering.opens)
def old_domain_beside_translation(self: Remembering, region: Region, domain: Domain) -> bool:
    """After CHANGE_PD with CHANGE_TRANSLATION the old PD still has access."""
    before = self.former(region, CHANGE_TRANSLATION, CHANGE_PD)
    return bool(before and before.domain is domain) or plain(self).opens(region, domain)


@violates("REREG-04", Remembering.place)
def old_range_beside_access(self: Remembering, region: Region, addr: int, length: int) -> int | None:
    """After CHANGE_TRANSLATION with CHANGE_ACCESS the old range can be accessed as well."""
    before = self.former(region, CHANGE_TRANSLATION, CHANGE_ACCESS)
    inside = before and before.addr <= addr and addr + length <= before.addr + before.length
    return addr if inside else plain(self).place(region, addr, length)


@violates("REREG-04", Device.wanted, written="blind")
def all_three_forget_the_domain(self: Device, region: Region, change: Change) -> Wanted:
    """All three changes at once leave the PD as it was."""
    flags = change.flags & ~CHANGE_PD if change.flags == CHANGES else change.flags
    return plain(self).wanted(region, replace(change, flags=flags))


@violates("REREG-04", Device.wanted, written="blind")
def translation_forgets_access(self: Device, region: Region, change: Change) -> Wanted:
    """Translation and access at once leave the access as it was."""
    both = CHANGE_TRANSLATION | CHANGE_ACCESS
    flags = CHANGE_TRANSLATION if change.flags == both else change.flags
    return plain(self).wanted(region, replace(change, flags=flags))


@violates("REREG-04", Device.wanted, written="blind")
def domain_forgets_translation(self: Device, region: Region, change: Change) -> Wanted:
    """Translation and PD at once keep the old length."""
    domain, addr, length, iova, access = plain(self).wanted(region, change)
    if change.flags == CHANGE_TRANSLATION | CHANGE_PD:
        length = region.length
    return domain, addr, length, iova, access


@violates("REREG-04", Device.wanted, written="blind")
def domain_and_access_lose_remote_write(self: Device, region: Region, change: Change) -> Wanted:
    """PD and access at once do not grant REMOTE_WRITE."""
    domain, addr, length, iova, access = plain(self).wanted(region, change)
    if change.flags == CHANGE_PD | CHANGE_ACCESS:
        access &= ~(REMOTE_WRITE & ~region.access)
    return domain, addr, length, iova, access


@violates("REREG-13", Device.apply)
def unselected_lengths_are_looked_at(self: Device, region: Region, change: Change) -> None:
    """A change is refused for a length that is too large, although it is not selected."""
    if not change.flags & CHANGE_TRANSLATION and change.length >= SPACE - 1:
        raise Refused(errno.EINVAL)
    plain(self).apply(region, change)
