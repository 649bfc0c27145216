"""Violations of what ibv_rereg_mr changes and what it preserves."""

from __future__ import annotations

import errno

from conformance.bench.calls import Pd
from reference.device import Device
from reference.objects import LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, Domain, Refused, Region
from reference.reregistration import CHANGE_ACCESS, CHANGE_PD, CHANGE_TRANSLATION, Change
from trial.violation import violates

Wanted = tuple[Domain, int, int, int, int]


@violates("REREG-01")
class TranslationStays(Device):
    """CHANGE_TRANSLATION returns 0, and the keys still give access to the old range."""

    def wanted(self, region: Region, change: Change) -> Wanted:
        domain, _, _, _, access = super().wanted(region, change)
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


@violates("REREG-01")
class OldAddressesNewMemory(Device):
    """After CHANGE_TRANSLATION the new memory is accessed at the old addresses."""

    def wanted(self, region: Region, change: Change) -> Wanted:
        domain, addr, length, _, access = super().wanted(region, change)
        return domain, addr, length, region.iova, access


@violates("REREG-01")
class ChangeOfTranslationRefused(Device):
    """CHANGE_TRANSLATION is refused with EINVAL."""

    def change(self, handle: int, change: Change) -> Region:
        if change.flags & CHANGE_TRANSLATION:
            raise Refused(errno.EINVAL)
        return super().change(handle, change)


@violates("REREG-01")
class OldLengthStays(Device):
    """CHANGE_TRANSLATION changes the address and not the length."""

    def wanted(self, region: Region, change: Change) -> Wanted:
        domain, addr, _, iova, access = super().wanted(region, change)
        return domain, addr, region.length, iova, access


@violates("REREG-02")
class DomainStays(Device):
    """CHANGE_PD returns 0 and changes nothing."""

    def move(self, region: Region, domain: Domain) -> None:
        """Keeps the old value."""


@violates("REREG-02")
class OldDomainStaysToo(Device):
    """After CHANGE_PD queue pairs of the old PD still have access."""

    def move(self, region: Region, domain: Domain) -> None:
        self.__dict__.setdefault("_former", {})[region.handle] = region.domain
        super().move(region, domain)

    def opens(self, region: Region, domain: Domain) -> bool:
        return self.__dict__.get("_former", {}).get(region.handle) is domain or super().opens(region, domain)


@violates("REREG-03")
class AccessStays(Device):
    """CHANGE_ACCESS returns 0 and changes nothing."""

    def wanted(self, region: Region, change: Change) -> Wanted:
        return (*super().wanted(region, change)[:4], region.access)


@violates("REREG-03")
class RightsAreOnlyAdded(Device):
    """CHANGE_ACCESS grants rights and revokes none."""

    def wanted(self, region: Region, change: Change) -> Wanted:
        *others, access = super().wanted(region, change)
        return (*others, access | region.access)  # type: ignore[return-value]


@violates("REREG-03")
class RightsAreOnlyTaken(Device):
    """CHANGE_ACCESS revokes rights and grants none."""

    def wanted(self, region: Region, change: Change) -> Wanted:
        *others, access = super().wanted(region, change)
        return (*others, access & region.access)  # type: ignore[return-value]


@violates("REREG-03")
class ReadsAreNotRevoked(Device):
    """CHANGE_ACCESS does not revoke REMOTE_READ."""

    def wanted(self, region: Region, change: Change) -> Wanted:
        *others, access = super().wanted(region, change)
        return (*others, access | region.access & REMOTE_READ)  # type: ignore[return-value]


@violates("REREG-04")
class AccessForgottenBesideTranslation(Device):
    """CHANGE_ACCESS is ignored together with CHANGE_TRANSLATION."""

    def wanted(self, region: Region, change: Change) -> Wanted:
        found = super().wanted(region, change)
        return (*found[:4], region.access) if change.flags & CHANGE_TRANSLATION else found


@violates("REREG-04")
class DomainForgottenBesideAccess(Device):
    """CHANGE_PD is ignored together with CHANGE_ACCESS."""

    def wanted(self, region: Region, change: Change) -> Wanted:
        found = super().wanted(region, change)
        return (region.domain, *found[1:]) if change.flags & CHANGE_ACCESS else found


@violates("REREG-04")
class OneChangeAtATime(Device):
    """More than one flag at once is refused."""

    def unknown_changes(self, flags: int) -> bool:
        return super().unknown_changes(flags) or flags.bit_count() > 1


@violates("REREG-12")
class ChangeToWriteAlone(Device):
    """CHANGE_ACCESS grants REMOTE_WRITE and REMOTE_ATOMIC without LOCAL_WRITE."""

    def change_fault(self, addr: int, length: int, access: int, flags: int) -> int:
        return super().change_fault(addr, length, access | LOCAL_WRITE, flags)


@violates("REREG-12")
class NoChangeToZero(Device):
    """A change to access 0 is refused."""

    def change_fault(self, addr: int, length: int, access: int, flags: int) -> int:
        return super().change_fault(addr, length, access, flags) if access else errno.EINVAL


@violates("REREG-12")
class NoChangeFromZero(Device):
    """A region that was registered with access 0 cannot be given rights."""

    def change(self, handle: int, change: Change) -> Region:
        if handle in self.regions and not self.regions[handle].access and change.access & REMOTE_WRITE:
            raise Refused(errno.EACCES)
        return super().change(handle, change)


@violates("REREG-13")
class UnselectedTranslationTaken(Device):
    """addr and length are used without CHANGE_TRANSLATION."""

    def wanted(self, region: Region, change: Change) -> Wanted:
        found = super().wanted(region, change)
        return (found[0], change.addr, change.length, change.addr, found[4]) if change.addr else found


@violates("REREG-13")
class UnselectedDomainTaken(Device):
    """pd is used without CHANGE_PD."""

    def wanted(self, region: Region, change: Change) -> Wanted:
        found = super().wanted(region, change)
        return (self.domain_of(change.pd), *found[1:]) if change.pd is not None else found


@violates("REREG-13")
class UnselectedAccessLost(Device):
    """CHANGE_PD removes all access flags."""

    def wanted(self, region: Region, change: Change) -> Wanted:
        found = super().wanted(region, change)
        return (*found[:4], 0) if change.flags == CHANGE_PD else found


@violates("REREG-13")
class TranslationTakesRights(Device):
    """CHANGE_TRANSLATION removes all remote access flags."""

    def wanted(self, region: Region, change: Change) -> Wanted:
        found = super().wanted(region, change)
        return (*found[:4], found[4] & LOCAL_WRITE) if change.flags == CHANGE_TRANSLATION else found


@violates("REREG-14")
class OldRangeTold(Device):
    """The structure still has the old addr and length."""

    def reported_range(self, change: Change) -> tuple[int, int]:
        return 0x1000, change.length


@violates("REREG-14")
class LengthNotTold(Device):
    """The structure has the new addr and no length."""

    def reported_range(self, change: Change) -> tuple[int, int]:
        return change.addr, 0


@violates("REREG-14")
class OldDomainTold(Device):
    """The structure still has the old PD."""

    def reported_pd(self, pd: Pd, old: int) -> int:
        return old


@violates("REREG-14")
class NoDomainTold(Device):
    """The structure has no PD after a change of it."""

    def reported_pd(self, pd: Pd, old: int) -> int:
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
