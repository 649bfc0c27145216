"""Violations of requests to bind and to invalidate memory windows."""

from __future__ import annotations

import errno
import functools
from collections.abc import Callable

from conformance.bench.work_requests import BindInfo, SendRequest
from reference.device import Device
from reference.objects import Domain, Region, Window
from reference.queues import Queue
from trial.violation import violates


@violates("REG-10")
class BindingUnchecked(Device):
    """MW_BIND is not checked."""

    def forbids_binding(self, region: Region) -> bool:
        return False


@violates("REG-10")
class BindingDenied(Device):
    """A window cannot be bound although the region has MW_BIND."""

    def forbids_binding(self, region: Region) -> bool:
        return True


@violates("BIND-01")
class OtherNumberCompletes(Device):
    """Completions have a wr_id of the device's own."""

    def reported_wr_id(self, wr_id: int) -> int:
        return 0


@violates("BIND-01")
class BindAnswersOne(Device):
    """A posted bind returns EINPROGRESS."""

    def ibv_bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> tuple[int, int]:
        fault, key = super().ibv_bind_mw(queue, window, info, flags, wr_id)
        return fault or errno.EINPROGRESS, key


@violates("BIND-02")
class OldKeyTold(Device):
    """The structure still has the old key."""

    def ibv_bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> tuple[int, int]:
        before = window.key
        return super().ibv_bind_mw(queue, window, info, flags, wr_id)[0], before


@violates("BIND-02")
class OldKeyStays(Device):
    """A window's key from before its bind still works."""

    def replace_key(self, window: Window, key: int) -> None:
        before = window.key
        super().replace_key(window, key)
        if window.kind == 1:
            self.keys[before] = window

    def end_window_key(self, window: Window) -> None:
        for key in [key for key, each in self.keys.items() if each is window]:
            del self.keys[key]


@violates("BIND-02")
class OldKeyOfTheUnboundStays(Device):
    """A bind of length 0 returns 0 and does not change the window."""

    def ibv_bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> tuple[int, int]:
        if info.length or window.region is None:
            return super().ibv_bind_mw(queue, window, info, flags, wr_id)
        self.complete(queue, SendRequest("BIND_MW", wr_id, flags=flags), "SUCCESS")
        return 0, self.next_key(window.key)


@violates("BIND-03")
class DatagramsBind(Device):
    """A window is bound on a queue pair of type UD."""

    def wrong_queue(self, kind: str) -> bool:
        return False


@violates("BIND-03")
class UnreliableDoesNotBind(Device):
    """A bind on a queue pair of type UC is refused."""

    def wrong_queue(self, kind: str) -> bool:
        return kind == "UC" or super().wrong_queue(kind)


@violates("BIND-03")
class ExtendedDoesNotBind(Device):
    """A bind on a queue pair of type XRC_SEND is refused."""

    def wrong_queue(self, kind: str) -> bool:
        return kind == "XRC_SEND" or super().wrong_queue(kind)


@violates("BIND-04")
class AlwaysCompletes(Device):
    """A bind generates a completion with or without SIGNALED."""

    def asks_completion(self, queue: Queue, flags: int) -> bool:
        return True


@violates("BIND-04")
class NeverCompletes(Device):
    """sq_sig_all has no effect on binds."""

    def asks_completion(self, queue: Queue, flags: int) -> bool:
        return super().asks_completion(queue, flags) and not (queue.sq_sig_all and not flags)


@violates("BIND-04")
class FenceRefused(Device):
    """A bind with FENCE is refused."""

    def ibv_bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> tuple[int, int]:
        if flags & 1:
            return errno.EINVAL, window.key
        return super().ibv_bind_mw(queue, window, info, flags, wr_id)


@violates("BIND-11")
class BindAnswersMinusOne(Device):
    """A bind that cannot be posted returns -1."""

    def ibv_bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> tuple[int, int]:
        fault, key = super().ibv_bind_mw(queue, window, info, flags, wr_id)
        return (-1 if fault else 0), key


@violates("BIND-11")
class ForeignRegionBound(Device):
    """It is not checked whether window and region have the same PD."""

    def other_domain(self, queue: Domain, window: Window, region: Region) -> bool:
        return False


@violates("BIND-11")
class NullRegionBound(Device):
    """A bind of a range without a region returns 0."""

    def bind_argument_fault(
        self, queue: Domain, window: Window, region: Region | None, length: int, access: int
    ) -> int:
        return 0 if region is None else super().bind_argument_fault(queue, window, region, length, access)


@violates("BIND-12")
class FailedBindSucceeds(Device):
    """A bind that fails completes with success."""

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        super().complete(queue, request, "SUCCESS" if status == "MW_BIND_ERR" else status)


@violates("BIND-12")
class FailedBindUnbinds(Device):
    """A bind that fails unbinds the window."""

    def bind_refused(self, window: Window, region: Region | None, addr: int, length: int, access: int) -> bool:
        refused = super().bind_refused(window, region, addr, length, access)
        if refused:
            self.unbind(window)
        return refused


@violates("BIND-12")
class FailedBindEndsTheWindow(Device):
    """After a failed bind the window cannot be bound again."""

    def bind_refused(self, window: Window, region: Region | None, addr: int, length: int, access: int) -> bool:
        failed = self.__dict__.setdefault("_failed", set())
        refused = window in failed or super().bind_refused(window, region, addr, length, access)
        if refused:
            failed.add(window)
        return refused


@violates("BIND-13")
class SendOvertakesTheBind(Device):
    """A bind takes effect only after later requests, unless its completion is awaited."""

    late: Callable[[], None] | None = None

    def bind(
        self, window: Window, region: Region | None, addr: int, length: int, access: int, key: int, queue: int
    ) -> None:
        self.late = functools.partial(super().bind, window, region, addr, length, access, key, queue)

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        super().complete(queue, request, status)
        waits = request.opcode == "BIND_MW" and self.asks_completion(queue, request.flags)
        if self.late and (waits or request.opcode.startswith("RDMA")):
            self.late()
            self.late = None


@violates("BIND-14")
class TypeTwoByTheVerb(Device):
    """ibv_bind_mw binds windows of type 2."""

    def wrong_type(self, window: Window, posted: bool) -> bool:
        return posted and window.kind != 2


@violates("BIND-14")
class TypeTwoNotPosted(Device):
    """A posted bind of a window of type 2 is refused."""

    def wrong_type(self, window: Window, posted: bool) -> bool:
        return posted or super().wrong_type(window, posted)


@violates("BIND-15")
class KeyOfTheDevicesOwn(Device):
    """The key of a window of type 2 is the one after the key in the request."""

    def posted_bind(self, queue: Queue, request: SendRequest) -> str:
        status = super().posted_bind(queue, request)
        if status == "SUCCESS":
            window = self.window_behind(request.window)
            self.replace_key(window, self.next_key(window.key))
        return status


@violates("BIND-15")
class LocalInvalidationDoesNothing(Device):
    """A local invalidation completes and invalidates nothing."""

    def local_invalidate(self, key: int, queue: Queue) -> bool:
        return True


@violates("BIND-15")
class RemoteInvalidationDoesNothing(Device):
    """A send with invalidate arrives and invalidates nothing."""

    def remote_invalidate(self, key: int, queue: Queue) -> bool:
        return True


@violates("BIND-19")
class AnyQueuePairOpens(Device):
    """A window of type 2 can be accessed through every queue pair of its PD."""

    def window_opens(self, window: Window, domain: Domain, queue: int) -> bool:
        return window.domain is domain


@violates("BIND-15")
class InvalidatedForGood(Device):
    """An invalidated window cannot be bound again."""

    def invalidate(self, key: int, queue: int, domain: Domain) -> bool:
        window = self.keys.get(key)
        self.__dict__.setdefault("_ended", set()).add(window)
        return super().invalidate(key, queue, domain)

    def bind_refused(self, window: Window, region: Region | None, addr: int, length: int, access: int) -> bool:
        ended = window in self.__dict__.get("_ended", ())
        return ended or super().bind_refused(window, region, addr, length, access)


@violates("BIND-15")
class OldKeyOfTypeTwoStays(Device):
    """The key of a window of type 2 from before its bind works as well."""

    def replace_key(self, window: Window, key: int) -> None:
        before = window.key
        super().replace_key(window, key)
        if window.kind == 2:
            self.keys[before] = window

    def end_window_key(self, window: Window) -> None:
        for key in [key for key, each in self.keys.items() if each is window]:
            del self.keys[key]
