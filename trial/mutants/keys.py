"""Keys: unknown, ended, of other objects and other processes."""

from reference.device import Device
from reference.objects import REMOTE_READ, REMOTE_WRITE, Domain, Region, Window
from trial.violation import permits, plain, violates


@violates("REG-21", Device.place)
def foreign_key_serves(self: Device, region: Region, addr: int, length: int) -> int | None:
    """A key gives access to every region of its PD."""
    at = plain(self).place(region, addr, length)
    for other in self.regions.values() if at is None else ():
        if other.domain is region.domain and self.contains(other, addr, length):
            at = self.translate(other, addr)
    return at


@violates("REG-21", Device.local, written="blind")
def window_keys_serve_elements(
    self: Device, lkey: int, domain: Domain, addr: int, length: int, write: bool
) -> int | None:
    """The key of a bound window is taken for an lkey."""
    found = self.found(lkey)
    if isinstance(found, Window):
        right = REMOTE_WRITE if write else REMOTE_READ
        return self.through_window(found, domain, found.queue, addr, length, right)
    return plain(self).local(lkey, domain, addr, length, write)


@violates("REG-21", Device.forget_key, written="blind")
def twin_loses_its_key(self: Device, region: Region) -> None:
    """Deregistering one of two regions of the very same memory ends the keys of both."""
    self.keys.pop(region.key, None)
    for other in self.regions.values():
        if (other.addr, other.length) == (region.addr, region.length):
            self.keys.pop(other.key, None)


@violates("REG-21", Device.remote, written="blind")
def any_key_of_the_domain_will_do(
    self: Device, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int
) -> int | None:
    """A remote read with the key of another region of the same PD is served by the region that has the address."""
    place = plain(self).remote(rkey, domain, queue, addr, length, right)
    found = self.found(rkey)
    if place is None and isinstance(found, Region) and right == REMOTE_READ and found.access & right:
        for other in self.regions.values():
            if other.domain is domain and other.access & right and self.contains(other, addr, length):
                return self.translate(other, addr)
    return place


@permits("REG-21", written="blind")
class KeysHaveTagZero(Device):
    """A new key always has the tag 0."""

    def new_key(self) -> int:
        return super().new_key() & ~0xFF
