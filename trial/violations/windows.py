"""Violations of what memory windows allow."""

from __future__ import annotations

import errno

from reference.device import Device
from reference.objects import (
    LOCAL_WRITE,
    REMOTE_ATOMIC,
    REMOTE_READ,
    REMOTE_WRITE,
    ZERO_BASED,
    Domain,
    Refused,
    Region,
    Window,
)
from trial.violation import violates


@violates("BIND-05")
class WriteWindowOfReadOnly(Device):
    """A window with REMOTE_WRITE can be bound to a region without LOCAL_WRITE."""

    def lacks_local_write(self, region: Region, access: int) -> bool:
        return bool(access & REMOTE_ATOMIC) and not region.access & LOCAL_WRITE


@violates("BIND-05")
class WindowNeedsTheRegionsRight(Device):
    """A window allows writes only if its region allows them too."""

    def through_window(
        self, window: Window, domain: Domain, queue: int, addr: int, length: int, right: int
    ) -> int | None:
        if window.region and right == REMOTE_WRITE and not window.region.access & right:
            return None
        return super().through_window(window, domain, queue, addr, length, right)


@violates("BIND-05")
class WriteWindowIsClosed(Device):
    """A window's REMOTE_WRITE has no effect."""

    def window_allows(self, window: Window, right: int) -> bool:
        return right != REMOTE_WRITE and super().window_allows(window, right)


@violates("BIND-06")
class ReadWindowIsClosed(Device):
    """A window's REMOTE_READ has no effect."""

    def window_allows(self, window: Window, right: int) -> bool:
        return right != REMOTE_READ and super().window_allows(window, right)


@violates("BIND-06")
class ReadWindowNeedsLocalWrite(Device):
    """A window with REMOTE_READ requires LOCAL_WRITE of its region."""

    def lacks_local_write(self, region: Region, access: int) -> bool:
        return bool(access) and not region.access & LOCAL_WRITE


@violates("BIND-06")
class ReadWindowsCanBeWritten(Device):
    """A window's REMOTE_READ grants writes."""

    def window_allows(self, window: Window, right: int) -> bool:
        return super().window_allows(window, right) or (right == REMOTE_WRITE and bool(window.access & REMOTE_READ))


@violates("BIND-07")
class AtomicWindowOfReadOnly(Device):
    """A window with REMOTE_ATOMIC can be bound to a region without LOCAL_WRITE."""

    def lacks_local_write(self, region: Region, access: int) -> bool:
        return bool(access & REMOTE_WRITE) and not region.access & LOCAL_WRITE


@violates("BIND-07")
class AtomicWindowRefused(Device):
    """A window with REMOTE_ATOMIC is refused although atomics are declared."""

    def bind_refused(self, window: Window, region: Region | None, addr: int, length: int, access: int) -> bool:
        return bool(access & REMOTE_ATOMIC) or super().bind_refused(window, region, addr, length, access)


@violates("BIND-07")
class AtomicWindowIsClosed(Device):
    """A window's REMOTE_ATOMIC has no effect."""

    def window_allows(self, window: Window, right: int) -> bool:
        return right != REMOTE_ATOMIC and super().window_allows(window, right)


@violates("BIND-08")
class ZeroBasedWindowIgnored(Device):
    """A window with ZERO_BASED is addressed by pointers."""

    def window_base(self, window: Window) -> int:
        return window.addr


@violates("BIND-08")
class ZeroBasedFromTheRegion(Device):
    """A window with ZERO_BASED is addressed from the beginning of its region."""

    def window_base(self, window: Window) -> int:
        start = window.addr - window.region.iova if window.region else 0
        return start if window.access & ZERO_BASED else window.addr


@violates("BIND-09")
class WindowHasTheRegionsRights(Device):
    """A window allows what its region allows."""

    def window_allows(self, window: Window, right: int) -> bool:
        return super().window_allows(window, right) or (window.region is not None and self.allows(window.region, right))


@violates("BIND-09")
class NoRightsIsAllRights(Device):
    """A window bound with access flags 0 allows everything."""

    def window_allows(self, window: Window, right: int) -> bool:
        return not window.access or super().window_allows(window, right)


@violates("BIND-09")
class NoRightsRefused(Device):
    """A bind with access flags 0 is refused."""

    def bind_refused(self, window: Window, region: Region | None, addr: int, length: int, access: int) -> bool:
        return (length > 0 and not access) or super().bind_refused(window, region, addr, length, access)


@violates("BIND-10")
class WindowOfTheWholeRegion(Device):
    """A window gives access to its whole region."""

    def window_contains(self, window: Window, offset: int, length: int) -> bool:
        region = window.region
        start = window.addr + offset
        return region is not None and region.iova <= start and start + length <= region.iova + region.length


@violates("BIND-10")
class WindowOneByteTooLong(Device):
    """A window ends one byte too late."""

    def window_contains(self, window: Window, offset: int, length: int) -> bool:
        return offset >= 0 and offset + length <= window.length + 1


@violates("BIND-10")
class WindowOneByteTooEarly(Device):
    """A window begins one byte too early."""

    def window_contains(self, window: Window, offset: int, length: int) -> bool:
        return offset >= -1 and offset + length <= window.length


@violates("BIND-10")
class WindowOneByteTooShort(Device):
    """A window's last byte cannot be accessed."""

    def window_contains(self, window: Window, offset: int, length: int) -> bool:
        return offset >= 0 and offset + length < window.length


@violates("BIND-10")
class WindowBeyondItsRegion(Device):
    """A window may exceed its region."""

    def beyond(self, region: Region, addr: int, length: int) -> bool:
        return False


@violates("BIND-10")
class WindowOneByteBeyondItsRegion(Device):
    """A window may exceed its region by one byte."""

    def beyond(self, region: Region, addr: int, length: int) -> bool:
        return super().beyond(region, addr, length - 1)


@violates("BIND-16")
class UnboundWindowsOpen(Device):
    """A window that was never bound gives access to the memory of its PD."""

    def through_window(
        self, window: Window, domain: Domain, queue: int, addr: int, length: int, right: int
    ) -> int | None:
        if window.region is None and domain is window.domain:
            return addr
        return super().through_window(window, domain, queue, addr, length, right)


@violates("BIND-16")
class AnyTypeOfWindow(Device):
    """A window of an unknown type can be allocated."""

    def no_such_type(self, kind: int) -> bool:
        return False

    def alloc_mw(self, pd: int, kind: int) -> Window:
        return super().alloc_mw(pd, kind if kind in (1, 2) else 1)


@violates("BIND-16")
class TypeTwoMissing(Device):
    """Windows of type 2 are declared, but cannot be allocated."""

    def alloc_mw(self, pd: int, kind: int) -> Window:
        if kind == 2:
            raise Refused(errno.ENOMEM)
        return super().alloc_mw(pd, kind)


@violates("BIND-16")
class WindowLeaks(Device):
    """Deallocating a window returns 0, but its PD stays busy."""

    def dealloc_mw(self, window: Window) -> None:
        super().dealloc_mw(window)
        window.domain.users += 1


@violates("BIND-16")
class BoundWindowsStay(Device):
    """A bound window cannot be deallocated."""

    def dealloc_mw(self, window: Window) -> None:
        if window.region is not None:
            raise Refused(errno.EBUSY)
        super().dealloc_mw(window)


@violates("BIND-16")
class KeyOutlivesTheWindow(Device):
    """The key of a deallocated window still works."""

    def dealloc_mw(self, window: Window) -> None:
        bound = window.region, window.addr, window.length, window.access, window.queue
        super().dealloc_mw(window)
        window.region, window.addr, window.length, window.access, window.queue = bound
        self.keys[window.key] = window
