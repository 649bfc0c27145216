"""Violations by binds and invalidations that are not made, not reported, or made in another order."""

import ctypes
from collections.abc import Callable
from typing import Any

from trial.data_path.alteration import DataPath
from trial.data_path.objects import QueuePair, Sent
from trial.data_path.replaced import key_of_window
from trial.data_path.structures import LOCAL_INV, BindRequest, SendRequest
from trial.violation import violates


class _Invalidating(DataPath):
    """An invalidation that must fail completes with success and does nothing."""

    def nothing(self, sent: Sent) -> bool:
        """Whether the key must not be invalidated."""
        return False

    def sending(self, queue: QueuePair, sent: Sent, request: SendRequest) -> int | None:
        if sent.opcode == LOCAL_INV and self.nothing(sent):
            self.replace(sent, request)
        return None


@violates("BIND-13")
class BindsOvertaken(DataPath):
    """A bind is executed after the next request."""

    def setup(self) -> None:
        self._held: dict[int, Callable[[], int]] = {}

    def _bind_mw(self, qp: int, window: int, address: int) -> int:
        self.release(qp)
        request = BindRequest.from_buffer_copy(BindRequest.from_address(address))
        key = key_of_window(window)
        old = key.value
        new = old & ~0xFF | (old + 1) & 0xFF

        def execute() -> int:
            changed, key.value = key.value, old
            returned = super(BindsOvertaken, self)._bind_mw(qp, window, ctypes.addressof(request))
            key.value = changed if returned else key.value
            return returned

        key.value = new
        self._held[qp] = execute
        return 0

    def _post_send(self, qp: int, address: int, bad: int) -> int:
        held = self._held.pop(qp, None)
        returned = super()._post_send(qp, address, bad)
        if held:
            held()
        return returned

    def release(self, qp: int) -> None:
        """Executes the bind that is delayed on a queue pair."""
        held: Any = self._held.pop(qp, None)
        if held:
            held()

    def _poll_cq(self, cq: int, count: int, address: int) -> int:
        for qp in list(self._held):
            self.release(qp)
        return super()._poll_cq(cq, count, address)
