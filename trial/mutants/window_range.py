"""Where a window begins and ends."""

from __future__ import annotations

from reference.device import Device
from reference.memory import SPACE
from reference.objects import Region, Window
from trial.violation import violates

_WORD_LENGTH = 8


@violates("BIND-17")
class WrappingBindIsCutAtTheRegion(Device):
    """A bind past the end of the address space succeeds, and the window ends where the region ends."""

    def bind_refused(self, window: Window, region: Region | None, addr: int, length: int, access: int) -> bool:
        if region is not None and addr + length > SPACE:
            length = region.iova + region.length - addr
        return super().bind_refused(window, region, addr, length, access)

    def bind(
        self, window: Window, region: Region | None, addr: int, length: int, access: int, key: int, queue: int
    ) -> None:
        if region is not None and addr + length > SPACE:
            length = region.iova + region.length - addr
        super().bind(window, region, addr, length, access, key, queue)


@violates("BIND-17", written="blind")
class LengthOfABindOfThirtyTwoBits(Device):
    """Only the lower 32 bits of a bind's length are looked at and used."""

    def bind_refused(self, window: Window, region: Region | None, addr: int, length: int, access: int) -> bool:
        return super().bind_refused(window, region, addr, length & 0xFFFFFFFF, access)

    def bind(
        self, window: Window, region: Region | None, addr: int, length: int, access: int, key: int, queue: int
    ) -> None:
        super().bind(window, region, addr, length & 0xFFFFFFFF, access, key, queue)


@violates("BIND-10")
class NoBytesAreTheWholeRegion(Device):
    """A window of type 2 that is bound to no bytes opens its region from there on."""

    def bind(
        self, window: Window, region: Region | None, addr: int, length: int, access: int, key: int, queue: int
    ) -> None:
        left = region.iova + region.length - addr if region is not None and window.kind == 2 else 0
        super().bind(window, region, addr, length or left, access, key, queue)
