"""Ends of operations and of advice that are computed in 64 bits, and page numbers of large regions that wrap."""

from reference.device import Device
from reference.memory import SPACE
from reference.objects import Region

_SEEN_PAGES = 256 << 20


class _EndWraps(Device):
    """An operation that passes the end of the address space is made at the region's beginning."""

    def wrapped(self, region: Region, addr: int, length: int) -> int | None:
        """Returns the address in this process of an operation that passes a check because its end is computed modulo
        2^64, else None."""
        within = (addr + length) % SPACE <= region.iova + region.length
        return region.addr if addr >= region.iova and addr + length >= SPACE and within else None
