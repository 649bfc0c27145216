"""Keys: unknown, ended, of other objects and other processes."""

from __future__ import annotations

from conformance.bench.calls import IbvMr, Pd
from reference.device import Device
from reference.objects import REMOTE_READ, REMOTE_WRITE, Domain, Region, Window
from trial.violation import permits, plain, violates


@violates("REG-21")
class StaleKeysFound(Device):
    """Keys of a deregistered region give access to a new region of the same memory."""

    def setup(self) -> None:
        self._gone: dict[int, int] = {}

    def forget_key(self, region: Region) -> None:
        super().forget_key(region)
        self._gone[region.key] = region.addr

    def found(self, key: int) -> Region | Window | None:
        own = (each for each in self.regions.values() if each.addr == self._gone.get(key))
        return self.keys.get(key) or next(own, None)


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


@violates("REG-21", written="blind")
class EverySixteenthRegionHasTheKeysOfItsNeighbour(Device):
    """The structure of every sixteenth region tells the lkey of the region that was made before it."""

    _made = 0
    _before = 0

    def structure(self, region: Region, pd: Pd, addr: int, length: int) -> IbvMr:
        made = super().structure(region, pd, addr, length)
        self._made += 1
        if self._made % 16 == 0:
            made.lkey = self._before
        self._before = region.key
        return made


@permits("REG-21")
class KeysReused(Device):
    """The key of a deregistered region is used for the next one."""

    def setup(self) -> None:
        self._free: list[int] = []

    def deregister(self, handle: int) -> None:
        key = self.regions[handle].key if handle in self.regions else None
        super().deregister(handle)
        if key is not None:
            self._free.append(key)

    def new_key(self) -> int:
        return self._free.pop() if self._free else super().new_key()


@permits("REG-21", written="blind")
class LkeyAndRkeyDiffer(Device):
    """lkey and rkey of a region are two numbers, each good for its own purpose only."""

    _rkeys = 1 << 31

    def reported_keys(self, region: Region) -> tuple[int, int]:
        return region.key, region.key ^ self._rkeys

    def remote(self, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int) -> int | None:
        if isinstance(self.found(rkey), Window):
            return super().remote(rkey, domain, queue, addr, length, right)
        if not isinstance(self.found(rkey ^ self._rkeys), Region):
            return None
        return super().remote(rkey ^ self._rkeys, domain, queue, addr, length, right)


@permits("REG-21", written="blind")
class KeysAreRecycled(Device):
    """The index of a key that has ended is given to the next object, with another tag."""

    def setup(self) -> None:
        self._free: list[int] = []

    def forget_key(self, region: Region) -> None:
        super().forget_key(region)
        if region.handle not in self.regions:
            self._free.append(region.key)

    def new_key(self) -> int:
        return self.next_key(self._free.pop(0)) if len(self._free) > 3 else super().new_key()


@permits("REG-21", written="blind")
class KeysHaveTagZero(Device):
    """A new key always has the tag 0."""

    def new_key(self) -> int:
        return super().new_key() & ~0xFF
