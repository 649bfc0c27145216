"""Altered calls of windows, and their completions."""

from __future__ import annotations

from dataclasses import replace

from conformance.bench.calls import Pd, Return, Window
from conformance.bench.interface import Bench, Queue
from conformance.bench.work_requests import BindInfo, SendRequest, next_rkey
from trial.altering import Alteration
from trial.violation import plain, violates


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


class WindowRights(Alteration):
    """Binds windows with other access flags than requested."""

    def rights(self, access: int) -> int:
        """The access flags to request from the real device."""
        return access

    def bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> Return:
        return super().bind_mw(queue, window, replace(info, access=self.rights(info.access)), flags, wr_id)


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
