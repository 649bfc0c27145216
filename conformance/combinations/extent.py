"""The memory that a key opens, or seems to open."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Extent:
    """Memory that a key opens: `length` bytes at `addr` in this process, whose first byte has the address `base` in
    requests."""

    addr: int
    length: int
    base: int
    lkey: int
    rkey: int

    def opened(self, addr: int, length: int) -> tuple[int, int]:
        """Returns the first and the last offset of the part of a range that is in this memory; equal if none is."""
        start = min(max(self.addr - addr, 0), length)
        end = min(max(self.addr + self.length - addr, start), length)
        return start, end
