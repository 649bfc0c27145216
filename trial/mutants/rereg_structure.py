"""What a re-registration leaves as it was, and what the structure says afterwards."""

from __future__ import annotations

from reference.device import Device
from reference.objects import Region
from reference.reregistration import CHANGE_ACCESS, CHANGE_TRANSLATION, Change
from trial.violation import permits, violates


@permits("REREG-13", written="blind")
class LibraryIgnoresUnselectedAccess(Device):
    """An access that no flag selects is ignored instead of refused: the two documents disagree."""

    def input_fault(self, change: Change) -> bool:
        plain = change if change.flags & 4 else Change(change.flags, change.pd, change.addr, change.length, 0)
        return super().input_fault(plain)


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
