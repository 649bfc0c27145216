"""Permitted behaviours of drivers for memory windows. table.py combines them to personas."""

import errno

from conformance.bench.work_requests import BindInfo, SendRequest
from reference.device import Device
from reference.objects import ZERO_BASED, Domain, Refused, Region, Window
from reference.queues import Queue

_LONGEST, _TAG = 1 << 31, 0xFF


class NoZeroBasedTypeOne(Device):
    """ibv_bind_mw refuses ZERO_BASED, which the InfiniBand specification does not allow for windows of type 1."""

    def bind_fault(self, queue: Queue, window: Window, region: Region | None, info: BindInfo, posted: bool) -> int:
        fault = super().bind_fault(queue, window, region, info, posted)
        return fault or (errno.EINVAL if not posted and info.access & ZERO_BASED else 0)


class NoBindOfZeroBasedRegions(Device):
    """No window can be bound to a region that is zero-based."""

    def bind_fault(self, queue: Queue, window: Window, region: Region | None, info: BindInfo, posted: bool) -> int:
        fault = super().bind_fault(queue, window, region, info, posted)
        zero_based = region is not None and region.access & ZERO_BASED
        return fault or (errno.EINVAL if zero_based else 0)


class WindowsOfTwoGigabytes(Device):
    """A window of more than 2 GiB cannot be bound."""

    def bind_fault(self, queue: Queue, window: Window, region: Region | None, info: BindInfo, posted: bool) -> int:
        fault = super().bind_fault(queue, window, region, info, posted)
        return fault or (errno.EOPNOTSUPP if info.length > _LONGEST else 0)


class NoEmptyTypeTwo(Device):
    """A posted bind of zero bytes is refused: a window of type 2 is unbound by an invalidation."""

    def bind_fault(self, queue: Queue, window: Window, region: Region | None, info: BindInfo, posted: bool) -> int:
        fault = super().bind_fault(queue, window, region, info, posted)
        return fault or (errno.EINVAL if posted and not info.length else 0)


class WindowsHoldNothing(Device):
    """A region can be deregistered while a window is bound to it."""

    def busy(self, region: Region) -> bool:
        return False


class NoRightToBind(Device):
    """Windows can be bound to a region without MW_BIND."""

    def forbids_binding(self, region: Region) -> bool:
        return False


class BindsCheckedAtAccess(Device):
    """A posted bind always succeeds; access that the region forbids is refused when the window is used."""

    def bind_refused(self, *_: object) -> bool:
        return False

    def no_longer_fits(self, window: Window, region: Region, right: int) -> bool:
        return region.domain is not window.domain or self.lacks_local_write(region, right)

    def through_window(
        self, window: Window, domain: Domain, queue: int, addr: int, length: int, right: int
    ) -> int | None:
        at, region = super().through_window(window, domain, queue, addr, length, right), window.region
        if at is None or region is None or at < region.addr or at + length > region.addr + region.length:
            return None
        return at


class IndexOfAKeyIsIgnored(Device):
    """A posted bind uses only the lowest eight bits of the requested key, and the index of the window."""

    def posted_bind(self, queue: Queue, request: SendRequest) -> str:
        own = self.window_behind(request.window).key
        return super().posted_bind(queue, request._replace(rkey=own & ~_TAG | request.rkey & _TAG))


class UnbindingKeepsTheKey(Device):
    """ibv_bind_mw of zero bytes does not change the window's key, which then gives no access."""

    def ibv_bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> tuple[int, int]:
        self._unbinding = not info.length
        try:
            return super().ibv_bind_mw(queue, window, info, flags, wr_id)
        finally:
            self._unbinding = False

    _unbinding = False

    def next_key(self, key: int) -> int:
        return key if self._unbinding else super().next_key(key)


class BindsOnReliableConnectionsOnly(Device):
    """Only queue pairs of type RC bind windows."""

    def wrong_queue(self, kind: str) -> bool:
        return kind != "RC"


class WindowsCannotBeBound(Device):
    """Windows can be allocated and deallocated, but no bind can be posted."""

    def alloc_mw(self, pd: int, kind: int) -> Window:
        domain = self.domain_of(pd)
        if self.no_such_type(kind):
            raise Refused(errno.EINVAL)
        window = Window(kind, domain, self.new_key())
        domain.users += 1
        self.windows.append(window)
        self.keys[window.key] = window
        return window

    def bind_fault(self, queue: Queue, window: Window, region: Region | None, info: BindInfo, posted: bool) -> int:
        return errno.EOPNOTSUPP
