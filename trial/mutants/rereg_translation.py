"""Re-registration with another translation, and with several changes at once."""

from dataclasses import replace

from reference.device import Device
from reference.objects import REMOTE_READ, Domain, Region
from reference.reregistration import CHANGE_TRANSLATION, Change
from trial.violation import violates


@violates("REREG-01", written="blind")
class OldRangeStaysOpen(Device):
    """After a new translation, a key can still read the old range."""

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
