"""Binds and invalidates windows by calls and by work requests."""

from __future__ import annotations

import errno

from conformance.bench.work_requests import BindInfo, SendRequest
from trial.reference.objects import Refused, Region, Window
from trial.reference.queues import FLUSHED, SUCCESS, Queue, Queues


class Binding(Queues):
    def ibv_bind_mw(
        self,
        queue: Queue,
        window: Window,
        info: BindInfo,
        flags: int,
        wr_id: int,
    ) -> tuple[int, int]:
        """Executes ibv_bind_mw. Returns 0 or errno, and the key that struct ibv_mw has afterwards."""
        region = self.bound_region(info)
        fault = self.bind_fault(queue, window, region, info, posted=False)
        if fault:
            return fault, window.key
        key = self.next_key(window.key)
        refused = self.bind_refused(window, region, info.addr, info.length, info.access)
        if queue.state == "ERR":
            status = FLUSHED
        elif refused:
            status = "MW_BIND_ERR"
        else:
            status = SUCCESS
        if status == SUCCESS:
            self.bind(window, region, info.addr, info.length, info.access, key, queue.number)
        self.complete(queue, SendRequest("BIND_MW", wr_id, flags=flags), status)
        return 0, key

    def begun_bind(
        self,
        queue: Queue,
        window: Window,
        info: BindInfo,
        flags: int,
        wr_id: int,
    ) -> tuple[int, int]:
        """Posts what ibv_bind_mw executes later. Returns 0 or errno, and the key that struct ibv_mw has afterwards."""
        fault = self.bind_fault(queue, window, self.bound_region(info), info, posted=False)
        return fault, window.key if fault else self.next_key(window.key)

    def bound_region(self, info: BindInfo) -> Region | None:
        """Returns the region with the lkey in struct ibv_mr, or None."""
        if info.mr is None:
            return None
        region, lkey = self.regions.get(info.mr.handle), int(info.mr.struct.lkey)
        if region is None or lkey == self.reported_keys(region)[0]:
            return region
        named = self.found(lkey)
        if isinstance(named, Region):
            return named
        return None

    def bind_fault(
        self,
        queue: Queue,
        window: Window,
        region: Region | None,
        info: BindInfo,
        posted: bool,
    ) -> int:
        """Returns the errno for a bind that cannot be posted, or 0."""
        if (
            queue.state not in ("RTS", "ERR")
            or self.wrong_queue(queue.kind)
            or self.wrong_type(window, posted)
        ):
            return errno.EINVAL
        return self.bind_argument_fault(queue.domain, window, region, info.length, info.access)

    def posted_bind_fault(self, queue: Queue, request: SendRequest) -> int:
        """Returns the errno for a posted bind request that cannot be posted, or 0."""
        info, window = request.bind, self.window_behind(request.window)
        assert info is not None
        if self.misnamed(window, getattr(request.window, "rkey", window.key)):
            return errno.EINVAL
        return self.bind_fault(queue, window, self.bound_region(info), info, posted=True)

    def window_behind(self, window: object) -> Window:
        """Returns the device's window for a window of the bench. Raises Refused if the window was deallocated."""
        behind = getattr(window, "window", None)
        if not isinstance(behind, Window):
            raise Refused(errno.EINVAL)
        return behind

    def misnamed(self, window: Window, rkey: int) -> bool:
        """Returns whether struct ibv_mw contains a key that the window does not have."""
        return rkey != window.key

    def posted_bind(self, queue: Queue, request: SendRequest) -> str:
        """Binds an unbound window of type 2, with a key that has the window's index. Returns the status."""
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
        """Executes LOCAL_INV. Returns whether a binding was invalidated."""
        return self.invalidate(key, queue.number, queue.domain)

    def remote_invalidate(self, key: int, queue: Queue) -> bool:
        """Executes the invalidation of a SEND_WITH_INV at the responder. Returns whether a binding was invalidated."""
        return self.invalidate(key, queue.number, queue.domain)
