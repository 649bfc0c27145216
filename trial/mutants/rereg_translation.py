"""Re-registration with another translation, and with several changes at once."""

from __future__ import annotations

from dataclasses import replace

from reference.device import Device
from reference.objects import REMOTE_READ, Domain, Region
from reference.reregistration import CHANGE_TRANSLATION, Change
from trial.violation import violates


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
