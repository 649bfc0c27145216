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
