"""The keys of binds, and their order with sends."""

from conformance.bench.work_requests import BindInfo, SendRequest
from reference.device import Device
from reference.objects import Region, Window
from reference.queues import SUCCESS, Queue
from trial.violation import violates


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
