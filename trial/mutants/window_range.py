"""Where a window begins and ends."""

from __future__ import annotations

from reference.device import Device
from reference.memory import PAGE, SPACE
from reference.objects import Region, Window
from trial.violation import plain, violates

_WORD_LENGTH = 8


@violates("BIND-10", Device.window_contains)
def window_of_the_whole_region(self: Device, window: Window, offset: int, length: int) -> bool:
    """A window gives access to its whole region."""
    region = window.region
    start = window.addr + offset
    return region is not None and region.iova <= start and start + length <= region.iova + region.length


@violates("BIND-10", Device.window_contains)
def window_one_byte_too_long(self: Device, window: Window, offset: int, length: int) -> bool:
    """A window ends one byte too late."""
    return offset >= 0 and offset + length <= window.length + 1


@violates("BIND-10", Device.window_contains)
def window_one_byte_too_early(self: Device, window: Window, offset: int, length: int) -> bool:
    """A window begins one byte too early."""
    return offset >= -1 and offset + length <= window.length


@violates("BIND-10", Device.window_contains)
def window_one_byte_too_short(self: Device, window: Window, offset: int, length: int) -> bool:
    """A window's last byte cannot be accessed."""
    return offset >= 0 and offset + length < window.length


@violates("BIND-10", Device.beyond)
def window_beyond_its_region(self: Device, region: Region, addr: int, length: int) -> bool:
    """A window may exceed its region."""
    return False


@violates("BIND-10", Device.beyond)
def window_one_byte_beyond_its_region(self: Device, region: Region, addr: int, length: int) -> bool:
    """A window may exceed its region by one byte."""
    return plain(self).beyond(region, addr, length - 1)


@violates("BIND-10", Device.window_contains, written="blind")
def one_byte_behind_the_window(self: Device, window: Window, offset: int, length: int) -> bool:
    """One byte behind a type 2 window is open."""
    return plain(self).window_contains(window, offset, length - (window.kind == 2))


@violates("BIND-10", Device.window_contains, written="blind")
def window_in_whole_pages(self: Device, window: Window, offset: int, length: int) -> bool:
    """A window of more than a page is open to the end of its last page."""
    size = -(-window.length // PAGE) * PAGE if window.length > PAGE else window.length
    return offset >= 0 and offset + length <= size


@violates("BIND-10", Device.window_contains, written="blind")
def before_the_window_readable(self: Device, window: Window, offset: int, length: int) -> bool:
    """Up to eight bytes before a window, within its region, are open."""
    region = window.region
    before = min(_WORD_LENGTH, window.addr - region.iova) if region else 0
    return offset >= -before and offset + length <= window.length


@violates("BIND-10", Device.window_contains, written="blind")
def first_byte_of_the_window_closed(self: Device, window: Window, offset: int, length: int) -> bool:
    """The first byte of a window that does not begin its region is closed."""
    inner = window.region is not None and window.addr != window.region.iova and window.length > 1
    return plain(self).window_contains(window, offset, length) and not (inner and offset == 0 and length == 1)


@violates("BIND-10", Device.bind, written="blind")
def window_of_the_longest_binding(
    self: Device, window: Window, region: Region | None, addr: int, length: int, access: int, key: int, queue: int
) -> None:
    """A window bound again to a shorter range of the same region keeps the longer length."""
    old = window.length if window.region is region and window.addr == addr else 0
    plain(self).bind(window, region, addr, length, access, key, queue)
    if length and region is not None:
        window.length = max(length, old)


@violates("BIND-17", Device.beyond)
def end_of_a_bind_wraps(self: Device, region: Region, addr: int, length: int) -> bool:
    """The end of a window is computed in 64 bits, so that a huge length ends within the region."""
    return addr < region.iova or (addr + length) % SPACE > region.iova + region.length


@violates("BIND-17", Device.beyond)
def huge_lengths_are_signed(self: Device, region: Region, addr: int, length: int) -> bool:
    """A length of 2^63 or more counts as negative, and as no length at all."""
    return plain(self).beyond(region, addr, 0 if length >= SPACE // 2 else length)


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


@violates("BIND-17", Device.beyond, written="blind")
def wrapping_bind(self: Device, region: Region, addr: int, length: int) -> bool:
    """The end of a bind is reckoned in 64 bits: one that wraps around to within its region is accepted."""
    end = (addr + length) % SPACE
    return addr < region.iova or end > region.iova + region.length


@violates("BIND-17", Device.bind_refused, written="blind")
def wrapping_posted_bind(
    self: Device, window: Window, region: Region | None, addr: int, length: int, access: int
) -> bool:
    """A posted bind whose end passes the end of the address space is bound."""
    if window.kind == 2 and region is not None and addr + length >= SPACE and not self.forbids_binding(region):
        return False
    return plain(self).bind_refused(window, region, addr, length, access)


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
