"""Altered calls of windows, and their completions."""

from __future__ import annotations

from dataclasses import replace

from conformance.bench.calls import Pd, Return, Window
from conformance.bench.interface import Bench, Queue
from conformance.bench.work_requests import SIGNALED, BindInfo, Completion, SendRequest, next_rkey
from reference.objects import REMOTE_READ, REMOTE_WRITE
from trial.altering import Alteration
from trial.violation import plain, violates


@violates("BIND-01", Alteration.completions)
def other_numbers(self: Alteration, queue: Queue, found: list[Completion]) -> list[Completion]:
    """Completions have another wr_id than the request."""
    return [each._replace(wr_id=each.wr_id ^ 1) for each in found]


@violates("BIND-02")
class OldKeyWorks(Alteration):
    """Requests with a window's old key are posted with the new one."""

    def setup(self) -> None:
        self._newer: dict[int, int] = {}

    def bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> Return:
        old = window.rkey
        returned = super().bind_mw(queue, window, info, flags, wr_id)
        self._newer[old] = window.rkey
        return returned

    def post_send(self, queue: Queue, request: SendRequest) -> Return:
        return super().post_send(queue, request._replace(rkey=self._newer.get(request.rkey, request.rkey)))


@violates("BIND-04", Alteration.bind_mw)
def always_signaled(self: Alteration, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> Return:
    """A bind without SIGNALED generates a completion."""
    return plain(self).bind_mw(queue, window, info, flags | SIGNALED, wr_id)


class WindowRights(Alteration):
    """Binds windows with other access flags than requested."""

    def rights(self, access: int) -> int:
        """The access flags to request from the real device."""
        return access

    def bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> Return:
        return super().bind_mw(queue, window, replace(info, access=self.rights(info.access)), flags, wr_id)


@violates("BIND-05", WindowRights.rights)
def windows_not_written(self: WindowRights, access: int) -> int:
    """A window's REMOTE_WRITE is dropped."""
    return access & ~REMOTE_WRITE


@violates("BIND-06", WindowRights.rights)
def windows_not_read(self: WindowRights, access: int) -> int:
    """A window's REMOTE_READ is dropped."""
    return access & ~REMOTE_READ


@violates("BIND-09", WindowRights.rights)
def windows_with_all_rights(self: WindowRights, access: int) -> int:
    """A window grants every access, whatever its access flags."""
    return access | REMOTE_WRITE | REMOTE_READ


@violates("BIND-10", Alteration.bind_mw)
def windows_pushed_inside(
    self: Alteration, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int
) -> Return:
    """A window that exceeds its region is shortened to fit."""
    if info.mr and info.length:
        start, end = int(info.mr.struct.addr or 0), int(info.mr.struct.addr or 0) + int(info.mr.struct.length)
        addr = min(max(info.addr, start), end - 1)
        info = replace(info, addr=addr, length=max(1, min(info.length, end - addr)))
    return plain(self).bind_mw(queue, window, info, flags, wr_id)


@violates("BIND-14")
class TypeTwoBound(Alteration):
    """ibv_bind_mw of a window of type 2 posts a bind request, as that type needs."""

    def setup(self) -> None:
        self._second: set[int] = set()

    def alloc_mw(self, bench: Bench, pd: Pd, kind: int) -> tuple[Window | None, Return]:
        window, returned = super().alloc_mw(bench, pd, kind)
        if window and kind == 2:
            self._second.add(window.pointer)
        return window, returned

    def bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> Return:
        if window.pointer not in self._second:
            return super().bind_mw(queue, window, info, flags, wr_id)
        key = next_rkey(window.rkey)
        return queue.post_send(SendRequest("BIND_MW", wr_id, flags=flags, rkey=key, window=window, bind=info))


@violates("BIND-15", Alteration.post_send)
def invalidation_swallowed(self: Alteration, queue: Queue, request: SendRequest) -> Return:
    """A local invalidation completes and invalidates nothing."""
    if request.opcode == "LOCAL_INV":
        request = SendRequest("RDMA_WRITE", request.wr_id, flags=request.flags)
    return plain(self).post_send(queue, request)


@violates("BIND-16", Alteration.dealloc_mw)
def window_kept(self: Alteration, window: Window) -> Return:
    """Deallocating a window returns 0 and does nothing."""
    self.unreleased.append(window.dealloc)
    return Return(0, 0)


@violates("BIND-16", Alteration.alloc_mw)
def any_type_allocated(self: Alteration, bench: Bench, pd: Pd, kind: int) -> tuple[Window | None, Return]:
    """Allocating a window of an unknown type makes one of type 1."""
    return plain(self).alloc_mw(bench, pd, kind if kind in (1, 2) else 1)
