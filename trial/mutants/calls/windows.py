"""Altered calls of windows, and their completions."""

from dataclasses import replace

from conformance.bench.calls import Return, Window
from conformance.bench.interface import Queue
from conformance.bench.work_requests import BindInfo
from trial.altering import Alteration
from trial.violation import plain, violates


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
