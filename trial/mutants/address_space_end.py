"""Ends of operations and of advice that are computed in 64 bits, and pages of large regions that begin again."""

from __future__ import annotations

from conformance.bench.calls import Sge
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


@violates("REG-20", _EndWraps.local)
def local_ends_wrap(self: _EndWraps, lkey: int, domain: Domain, addr: int, length: int, write: bool) -> int | None:
    """The end of an element on a pinned region is computed in 64 bits."""
    found = plain(self).local(lkey, domain, addr, length, write)
    region = self.found(lkey)
    if found is not None or not isinstance(region, Region) or region.access & ON_DEMAND:
        return found
    return self.wrapped(region, addr, length) if self.opens_locally(region, domain) else None


@violates("REG-20", _EndWraps.place)
def on_demand_ends_wrap(self: _EndWraps, region: Region, addr: int, length: int) -> int | None:
    """The end of an operation on an on-demand region is computed in 64 bits."""
    found = plain(self).place(region, addr, length)
    return self.wrapped(region, addr, length) if found is None and region.access & ON_DEMAND else found


@violates("ADV-08", Device.advice_out_of_bounds)
def end_of_advice_wraps(self: Device, region: Region, sge: Sge) -> bool:
    """The end of advised memory is computed in 64 bits."""
    return sge.addr < region.iova or (sge.addr + sge.length) % SPACE > region.iova + region.length


@violates("REG-25", Device.translate)
def pinned_pages_begin_again(self: Device, region: Region, addr: int) -> int:
    """Beyond 256 MiB of a pinned region its first pages come again."""
    found = plain(self).translate(region, addr)
    beyond = not region.access & ON_DEMAND and found - region.addr >= _SEEN_PAGES
    return found - _SEEN_PAGES if beyond else found


@violates("IOVA-02", Device.place)
def regions_past_the_end_have_no_end(self: Device, region: Region, addr: int, length: int) -> int | None:
    """A region whose addresses pass the end of the address space is open at any address, and begins there."""
    found = plain(self).place(region, addr, length)
    return region.addr if found is None and region.iova + region.length > SPACE else found
