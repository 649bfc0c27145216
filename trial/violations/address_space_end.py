"""Violations at the end of the address space: the end of an operation is computed in 64 bits."""

from __future__ import annotations

from conformance.bench.calls import Sge
from reference.device import Device
from reference.memory import SPACE
from reference.objects import ON_DEMAND, Domain, Region
from trial.violation import violates


class _EndWraps(Device):
    """An operation that passes the end of the address space is made at the region's beginning."""

    def wrapped(self, region: Region, addr: int, length: int) -> int | None:
        """The address in this process of an operation that a sum in 64 bits lets pass; None for any other."""
        passes = (
            addr >= region.iova and addr + length >= SPACE and (addr + length) % SPACE <= region.iova + region.length
        )
        return region.addr if passes else None


@violates("REG-20")
class RemoteEndsWrap(_EndWraps):
    """The end of a peer's operation on a pinned region is computed in 64 bits."""

    def remote(self, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int) -> int | None:
        found = super().remote(rkey, domain, queue, addr, length, right)
        region = self.found(rkey)
        if found is not None or not isinstance(region, Region) or region.access & ON_DEMAND:
            return found
        opened = self.opens(region, domain) and self.allows(region, right)
        return self.wrapped(region, addr, length) if opened else None


@violates("REG-20")
class LocalEndsWrap(_EndWraps):
    """The end of an element on a pinned region is computed in 64 bits."""

    def local(self, lkey: int, domain: Domain, addr: int, length: int, write: bool) -> int | None:
        found = super().local(lkey, domain, addr, length, write)
        region = self.found(lkey)
        if found is not None or not isinstance(region, Region) or region.access & ON_DEMAND:
            return found
        return self.wrapped(region, addr, length) if self.opens_locally(region, domain) else None


@violates("REG-20")
class OnDemandEndsWrap(_EndWraps):
    """The end of an operation on an on-demand region is computed in 64 bits."""

    def place(self, region: Region, addr: int, length: int) -> int | None:
        found = super().place(region, addr, length)
        return self.wrapped(region, addr, length) if found is None and region.access & ON_DEMAND else found


@violates("ADV-08")
class EndOfAdviceWraps(Device):
    """The end of advised memory is computed in 64 bits."""

    def advice_out_of_bounds(self, region: Region, sge: Sge) -> bool:
        return sge.addr < region.iova or (sge.addr + sge.length) % SPACE > region.iova + region.length
