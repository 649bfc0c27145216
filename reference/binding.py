"""Requests to bind a window, by ibv_bind_mw or posted, and to invalidate its key. The bind itself is in windows.py."""

from __future__ import annotations

import errno

from conformance.bench.work_requests import BindInfo, SendRequest
from reference.objects import Refused, Region, Window
from reference.queues import FLUSHED, SUCCESS, Queue, Queues


class Binding(Queues):
    """The requests of queue pairs about windows."""

    def ibv_bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> tuple[int, int]:
        """ibv_bind_mw: returns 0 or errno, and the key that the window's structure has afterwards."""
        region = self.bound_region(info)
        fault = self.bind_fault(queue, window, region, info, posted=False)
        if fault:
            return fault, window.key
        key = self.next_key(window.key)
        refused = self.bind_refused(window, region, info.addr, info.length, info.access)
        status = FLUSHED if queue.state == "ERR" else "MW_BIND_ERR" if refused else SUCCESS
        if status == SUCCESS:
            self.bind(window, region, info.addr, info.length, info.access, key, queue.number)
        self.complete(queue, SendRequest("BIND_MW", wr_id, flags=flags), status)
        return 0, key

    def bound_region(self, info: BindInfo) -> Region | None:
        return self.regions.get(info.mr.handle) if info.mr else None

    def bind_fault(self, queue: Queue, window: Window, region: Region | None, info: BindInfo, posted: bool) -> int:
        """Returns the errno for a bind that cannot be posted, or 0."""
        if queue.state not in ("RTS", "ERR") or self.wrong_queue(queue.kind) or self.wrong_type(window, posted):
            return errno.EINVAL
        return self.bind_argument_fault(queue.domain, window, region, info.length, info.access)

    def posted_bind_fault(self, queue: Queue, request: SendRequest) -> int:
        """Returns the errno for a posted bind request that cannot be posted, or 0."""
        window, info = request.window, request.bind
        assert info is not None
        return self.bind_fault(queue, self.window_behind(window), self.bound_region(info), info, posted=True)

    def window_behind(self, window: object) -> Window:
        """Returns the device's window for a window of the bench. Raises Refused if it has been deallocated."""
        found = getattr(window, "window", None)
        if not isinstance(found, Window):
            raise Refused(errno.EINVAL)
        return found

    def posted_bind(self, queue: Queue, request: SendRequest) -> str:
        """Binds a window of type 2 and returns the status. The request has the new key, with the window's own index.

        A window that is bound already cannot be bound again.
        """
        info = request.bind
        assert info is not None
        window, region = self.window_behind(request.window), self.bound_region(info)
        if window.region is not None or request.rkey >> 8 != window.key >> 8:
            return "MW_BIND_ERR"
        if self.bind_refused(window, region, info.addr, info.length, info.access):
            return "MW_BIND_ERR"
        self.bind(window, region, info.addr, info.length, info.access, request.rkey, queue.number)
        return SUCCESS

    def local_invalidate(self, key: int, queue: Queue) -> bool:
        """LOCAL_INV: returns whether a binding was invalidated."""
        return self.invalidate(key, queue.number, queue.domain)

    def remote_invalidate(self, key: int, queue: Queue) -> bool:
        """The invalidation by a SEND_WITH_INV, at the responder: returns whether a binding was invalidated."""
        return self.invalidate(key, queue.number, queue.domain)
