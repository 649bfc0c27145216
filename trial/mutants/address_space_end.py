"""Ends of operations and of advice that are computed in 64 bits, and pages of large regions that begin again."""

from reference.device import Device
from reference.memory import SPACE
from reference.objects import ON_DEMAND, Domain, Region
from trial.violation import plain, violates

_SEEN_PAGES = 256 << 20


class _EndWraps(Device):
    """An operation that passes the end of the address space is made at the region's beginning."""

    def wrapped(self, region: Region, addr: int, length: int) -> int | None:
        """The address in this process of an operation that a sum in 64 bits lets pass; None for any other."""
        within = (addr + length) % SPACE <= region.iova + region.length
        return region.addr if addr >= region.iova and addr + length >= SPACE and within else None


@violates("REG-20", _EndWraps.remote)
def remote_ends_wrap(
    self: _EndWraps, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int
) -> int | None:
    """The end of a peer's operation on a pinned region is computed in 64 bits."""
    found = plain(self).remote(rkey, domain, queue, addr, length, right)
    region = self.found(rkey)
    if found is not None or not isinstance(region, Region) or region.access & ON_DEMAND:
        return found
    opened = self.opens(region, domain) and self.allows(region, right)
    return self.wrapped(region, addr, length) if opened else None
