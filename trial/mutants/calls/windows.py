"""Altered calls of windows, and their completions."""

from dataclasses import replace

from conformance.bench.calls import Return, Window
from conformance.bench.interface import Queue
from conformance.bench.work_requests import BindInfo
from trial.altering import Alteration


class WindowRights(Alteration):
    """Binds windows with other access flags than requested."""

    def rights(self, access: int) -> int:
        """Returns the access flags to request from the real device."""
        return access

    def bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> Return:
        return super().bind_mw(queue, window, replace(info, access=self.rights(info.access)), flags, wr_id)
