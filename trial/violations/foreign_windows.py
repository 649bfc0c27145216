"""Violations of the domains of windows: what a window opens whose bind was wrong, and to whom."""

from __future__ import annotations

from conformance.bench.work_requests import BindInfo, SendRequest
from reference.device import Device
from reference.objects import REMOTE_READ, REMOTE_WRITE, Domain, Region, Window
from reference.queues import Queue
from trial.violation import violates


class _AnyRegion(Device):
    """A window opens its region in whatever domain that is."""

    def no_longer_fits(self, window: Window, region: Region, right: int) -> bool:
        return region.domain is window.domain and super().no_longer_fits(window, region, right)


@violates("BIND-18")
class ForeignRegionsAreOpened(_AnyRegion):
    """A window can be bound to a region of another PD, and opens it."""

    def other_domain(self, queue: Domain, window: Window, region: Region) -> bool:
        return window.domain is not queue


@violates("BIND-18")
class WindowsOpenToTheQueuePairOfTheBind(Device):
    """A window is open to the PD of the queue pair on which it was bound, and not to its own."""

    def other_domain(self, queue: Domain, window: Window, region: Region) -> bool:
        return False

    def posted_bind(self, queue: Queue, request: SendRequest) -> str:
        self.window_behind(request.window).domain = queue.domain
        return super().posted_bind(queue, request)

    def ibv_bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> tuple[int, int]:
        self.__dict__.setdefault("_binders", {})[id(window)] = queue.domain
        return super().ibv_bind_mw(queue, window, info, flags, wr_id)

    def window_opens(self, window: Window, domain: Domain, queue: int) -> bool:
        binder = self.__dict__.get("_binders", {}).get(id(window), window.domain)
        return binder is domain and window.queue in (0, queue)

    def no_longer_fits(self, window: Window, region: Region, right: int) -> bool:
        return False


@violates("BIND-18")
class WindowsOfAnyDomain(_AnyRegion):
    """A window of another PD than that of the queue pair can be bound, and is open over that queue pair."""

    def other_domain(self, queue: Domain, window: Window, region: Region) -> bool:
        return False

    def window_opens(self, window: Window, domain: Domain, queue: int) -> bool:
        return window.queue == queue or super().window_opens(window, domain, queue)


@violates("BIND-18")
class RefusedBindsAreCarriedOut(_AnyRegion):
    """ibv_bind_mw refuses the region of another PD, and the old key opens it."""

    def ibv_bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> tuple[int, int]:
        fault, key = super().ibv_bind_mw(queue, window, info, flags, wr_id)
        region = self.bound_region(info)
        if fault and region is not None and region.domain is not window.domain:
            self.bind(window, region, info.addr, info.length, info.access, window.key, queue.number)
        return fault, key


@violates("BIND-18")
class WindowsAreOpenToEveryDomain(Device):
    """A window of type 1 that can be written or read is open to the queue pairs of every PD."""

    def window_opens(self, window: Window, domain: Domain, queue: int) -> bool:
        shared = window.kind == 1 and window.access & (REMOTE_WRITE | REMOTE_READ)
        return bool(shared) or super().window_opens(window, domain, queue)


@violates("REG-28")
class WindowsNeedNoRightOfTheQueuePair(Device):
    """An operation through a window needs no right of the queue pair."""

    def allows_operation(self, queue: Queue, request: SendRequest) -> bool:
        through = isinstance(self.keys.get(request.rkey), Window)
        return (through and queue.peer.state in ("RTR", "RTS")) or super().allows_operation(queue, request)


@violates("BIND-18")
class WindowsFollowTheirRegion(_AnyRegion):
    """A window that was bound to a region of another PD is open there instead of in its own."""

    def other_domain(self, queue: Domain, window: Window, region: Region) -> bool:
        return False

    def window_opens(self, window: Window, domain: Domain, queue: int) -> bool:
        own = window.region.domain if window.region else window.domain
        return own is domain and window.queue in (0, queue)
