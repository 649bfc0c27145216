"""Deregistration: its codes, and the end of the keys."""

from reference.device import Device
from reference.objects import REMOTE_READ, Domain, Region
from trial.violation import plain, violates


class _Haunted(Device):
    """A device that remembers the regions that are gone."""

    def setup(self) -> None:
        self.ghosts: dict[int, Region] = {}

    def deregister(self, handle: int) -> None:
        """Ends a region, not wholly."""
        region = self.regions.get(handle)
        super().deregister(handle)
        if region:
            self.ghosts[region.key] = region


@violates("DEREG-01", Device.deregister)
def twins_go_together(self: Device, handle: int) -> None:
    """Deregistration deregisters all regions of the same memory."""
    plain(self).deregister(handle)
    for each in [each for each in self.regions.values() if each.length]:
        del self.regions[each.handle]
        self.keys.pop(each.key, None)
        each.domain.users -= 1


@violates("DEREG-01", _Haunted.local, written="blind")
def lkey_serves_once_more(self: _Haunted, lkey: int, domain: Domain, addr: int, length: int, write: bool) -> int | None:
    """After deregistration the lkey serves one more local operation."""
    place = plain(self).local(lkey, domain, addr, length, write)
    ghost = self.ghosts.pop(lkey, None)
    if place is None and ghost and ghost.domain is domain and (not write or self.allows_local_write(ghost)):
        return self.place(ghost, addr, length)
    return place


@violates("DEREG-01", _Haunted.remote, written="blind")
def rkey_reads_on_in_a_busy_domain(
    self: _Haunted, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int
) -> int | None:
    """After deregistration the rkey still reads while its PD has other regions."""
    ghost = self.ghosts.get(rkey)
    others = any(each.domain is domain for each in self.regions.values())
    if ghost and others and ghost.domain is domain and right == REMOTE_READ and ghost.access & right:
        return self.place(ghost, addr, length)
    return plain(self).remote(rkey, domain, queue, addr, length, right)
