"""The keys of binds, and their order with sends."""

from conformance.bench.work_requests import BindInfo, SendRequest
from reference.device import Device
from reference.objects import Region, Window
from reference.queues import SUCCESS, Queue
from trial.violation import permits, plain, violates


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


@permits("BIND-02", written="blind")
class KeysOfBindsSkip(Device):
    """The key after a bind is not the next one but seven further."""

    def ibv_bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> tuple[int, int]:
        self._binding = True
        try:
            return super().ibv_bind_mw(queue, window, info, flags, wr_id)
        finally:
            self._binding = False

    _binding = False

    def next_key(self, key: int) -> int:
        return key & ~0xFF | (key + 7) & 0xFF if self._binding else super().next_key(key)


@violates("BIND-13", written="blind")
class UnsignaledBindComesLate(Device):
    """An unsignaled bind by ibv_bind_mw takes effect only after the two requests that follow it."""

    def setup(self) -> None:
        self._later: list[tuple[int, Window, Region | None, int, int, int, int, int]] = []
        self._unsignaled = False

    def ibv_bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> tuple[int, int]:
        self._unsignaled = not self.asks_completion(queue, flags)
        try:
            return super().ibv_bind_mw(queue, window, info, flags, wr_id)
        finally:
            self._unsignaled = False

    def bind(
        self, window: Window, region: Region | None, addr: int, length: int, access: int, key: int, queue: int
    ) -> None:
        if self._unsignaled:
            self._later.append((2, window, region, addr, length, access, key, queue))
        else:
            super().bind(window, region, addr, length, access, key, queue)

    def post_send(self, queue: Queue, request: SendRequest) -> int:
        fault = super().post_send(queue, request)
        later, self._later = self._later, []
        for left, window, region, addr, length, access, key, number in later:
            if left > 1:
                self._later.append((left - 1, window, region, addr, length, access, key, number))
            elif window in self.windows:
                super().bind(window, region, addr, length, access, key, number)
        return fault


@violates("BIND-13", written="blind")
class SendAfterABindIsSkipped(Device):
    """A SEND right after a bind on the same queue pair completes, but its message does not arrive."""

    _bound = 0

    def bind(
        self, window: Window, region: Region | None, addr: int, length: int, access: int, key: int, queue: int
    ) -> None:
        super().bind(window, region, addr, length, access, key, queue)
        self._bound = queue

    def post_send(self, queue: Queue, request: SendRequest) -> int:
        just = self._bound == queue.number
        self._bound = 0
        if just and request.opcode in ("SEND", "SEND_WITH_IMM") and queue.state == "RTS":
            self.complete(queue, request, SUCCESS)
            return 0
        return super().post_send(queue, request)


@violates("BIND-20", Device.posted_bind)
def refused_bind_renames_the_key(self: Device, queue: Queue, request: SendRequest) -> str:
    """A second bind is refused, and the key of the binding is the requested one from then on."""
    window = self.window_behind(request.window)
    status = plain(self).posted_bind(queue, request)
    if status != SUCCESS and window.region is not None and request.rkey not in self.keys:
        self.replace_key(window, request.rkey)
    return status


@violates("BIND-20", Device.posted_bind, written="blind")
def any_index_in_the_key(self: Device, queue: Queue, request: SendRequest) -> str:
    """A posted bind with a key of another index is accepted and the window has that key."""
    window, info = self.window_behind(request.window), request.bind
    if info is not None and window.region is None and request.rkey >> 8 != window.key >> 8:
        region = self.bound_region(info)
        if request.rkey in self.keys or self.bind_refused(window, region, info.addr, info.length, info.access):
            return "MW_BIND_ERR"
        self.bind(window, region, info.addr, info.length, info.access, request.rkey, queue.number)
        return SUCCESS
    return plain(self).posted_bind(queue, request)


@violates("BIND-20", Device.posted_bind, written="blind")
def bound_window_is_bound_again(self: Device, queue: Queue, request: SendRequest) -> str:
    """A type 2 window that is still bound can be bound by another posted bind."""
    window, info = self.window_behind(request.window), request.bind
    if info is not None and window.region is not None and request.rkey >> 8 == window.key >> 8:
        region = self.bound_region(info)
        if not self.bind_refused(window, region, info.addr, info.length, info.access):
            self.bind(window, region, info.addr, info.length, info.access, request.rkey, queue.number)
            return SUCCESS
    return plain(self).posted_bind(queue, request)


@violates("BIND-20", Device.posted_bind, written="blind")
def refused_rebind_ends_the_binding(self: Device, queue: Queue, request: SendRequest) -> str:
    """A posted bind of a bound type 2 window is refused, and its old binding is gone."""
    window = self.window_behind(request.window)
    bound = window.region is not None
    status = plain(self).posted_bind(queue, request)
    if bound and status != SUCCESS:
        self.unbind(window)
    return status


@violates("BIND-20", Device.posted_bind, written="blind")
def refused_rebind_shortens_the_binding(self: Device, queue: Queue, request: SendRequest) -> str:
    """A posted bind of a bound type 2 window is refused, but the old key now has the length asked for."""
    window = self.window_behind(request.window)
    bound = window.region is not None
    status = plain(self).posted_bind(queue, request)
    if bound and status != SUCCESS and request.bind and request.bind.length:
        window.length = min(window.length, request.bind.length)
    return status
