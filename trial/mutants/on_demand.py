"""On-demand regions, and implicit ones."""

import errno

from reference.device import Device
from reference.memory import Memory
from reference.objects import ON_DEMAND, REMOTE_ATOMIC, Domain, Region
from trial.violation import permits, plain, violates


class _RememberingMemory(Memory):
    """Memory that answers with what it had been when it was first read, for the regions of `region`."""

    region = 0

    def __init__(self) -> None:
        super().__init__()
        self._read: dict[tuple[int, int, int], bytes] = {}

    def read(self, addr: int, length: int) -> bytes | None:
        name = (self.region, addr, length)
        if self.region and name in self._read:
            return self._read[name]
        content = super().read(addr, length)
        if content is not None and self.region:
            self._read[name] = content
        return content

    def write(self, addr: int, content: bytes) -> bool:
        self._read.clear()
        return super().write(addr, content)


@violates("REG-12", Device.range_fault, written="blind")
def on_demand_memory_has_to_be_there_at_once(self: Device, addr: int, length: int, access: int) -> int:
    """An on-demand registration fails unless every page is mapped already."""
    fault = plain(self).range_fault(addr, length, access)
    implicit = self.is_implicit(addr, length, access)
    if not fault and access & ON_DEMAND and not implicit and self.not_there(addr, length, access):
        return errno.EFAULT
    return fault


@violates("REG-12", written="blind")
class OnDemandServesNoAtomicsOnFreshPages(Device):
    """An atomic on an on-demand region fails when it is the first operation on the region."""

    def setup(self) -> None:
        self._seen: set[int] = set()

    def remote(self, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int) -> int | None:
        found = self.found(rkey)
        if isinstance(found, Region) and found.access & ON_DEMAND and found.handle not in self._seen:
            self._seen.add(found.handle)
            if right == REMOTE_ATOMIC:
                return None
        return super().remote(rkey, domain, queue, addr, length, right)


@permits("REG-19", Device.remote, written="blind")
def implicit_regions_look_at_memory_first(
    self: Device, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int
) -> int | None:
    """An implicit region refuses memory that is not mapped when it is asked for, as an access error."""
    place = plain(self).remote(rkey, domain, queue, addr, length, right)
    found = self.found(rkey)
    if place is not None and isinstance(found, Region) and found.length == (1 << 64) - 1:
        return place if self.memory.fault_in(place, length, write=False) else None
    return place
