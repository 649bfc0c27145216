"""Violations of binds and invalidations: not made, not told of, in another order."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from trial.data_path.alteration import DataPath
from trial.data_path.memory import content_at
from trial.data_path.objects import REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE, QueuePair, Sent
from trial.data_path.replaced import key_of_window
from trial.data_path.structures import (
    BIND_MW,
    FENCE,
    LOCAL_INV,
    SIGNALED,
    SUCCESS,
    WR_FLUSH_ERR,
    BindRequest,
    Info,
    SendRequest,
    WorkCompletion,
)
from trial.violation import violates


@violates("BIND-02")
class EveryFiftiethBindLost(DataPath):
    """Every fiftieth bind completes and is not made."""

    binds = 0

    def binding(self, queue: QueuePair, sent: Sent, info: Info) -> bool:
        self.binds += 1
        return bool(self.binds % 50)


@violates("BIND-04")
class FencedBindsLost(DataPath):
    """A bind with FENCE completes and is not made."""

    def binding(self, queue: QueuePair, sent: Sent, info: Info) -> bool:
        return not sent.flags & FENCE


@violates("BIND-04")
class UnsignaledBindsLost(DataPath):
    """A bind without SIGNALED is not made."""

    def binding(self, queue: QueuePair, sent: Sent, info: Info) -> bool:
        return bool(sent.flags & SIGNALED)


@violates("BIND-02")
class RebindsOfTheSameRangeLost(DataPath):
    """A bind of a window to the range to which it is bound already completes and is not made."""

    def binding(self, queue: QueuePair, sent: Sent, info: Info) -> bool:
        bound = self.objects.bound(sent.window)
        return not (bound and (bound.addr, bound.length) == (info.addr, info.length))


@violates("BIND-10")
class LengthsBeyond64KiBCut(DataPath):
    """A window of more than 64 KiB has 64 KiB."""

    def binding(self, queue: QueuePair, sent: Sent, info: Info) -> bool:
        info.length = min(info.length, 1 << 16)
        return True


@violates("BIND-06")
class RightToReadLostBesideWriting(DataPath):
    """A window with REMOTE_WRITE and REMOTE_READ grants only writing."""

    def binding(self, queue: QueuePair, sent: Sent, info: Info) -> bool:
        if info.access & REMOTE_WRITE:
            info.access &= ~REMOTE_READ
        return True


@violates("BIND-09")
class NoRightIsTheRegionsRead(DataPath):
    """A window bound without any right can be read."""

    def binding(self, queue: QueuePair, sent: Sent, info: Info) -> bool:
        info.access = info.access or REMOTE_READ
        return True


@violates("BIND-09")
class AtomicsByWritingToWindows(DataPath):
    """A window with REMOTE_WRITE grants atomics."""

    def binding(self, queue: QueuePair, sent: Sent, info: Info) -> bool:
        if info.access & REMOTE_WRITE:
            info.access |= REMOTE_ATOMIC
        return True


@violates("BIND-06")
class WindowsReadFromTheRegionsBeginning(DataPath):
    """A READ through a window returns the first bytes of its region."""

    def completed(self, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
        binding = self.objects.binding(sent.rkey)
        if sent.reads and wc.status == SUCCESS and binding and binding.region:
            self.scatter(sent.elements, content_at(binding.region.addr, sent.length) or b"")
        return True


@violates("BIND-05")
class WritesThroughWindowsShort(DataPath):
    """The last byte of a WRITE through a window does not arrive."""

    def sending(self, queue: QueuePair, sent: Sent, request: SendRequest) -> int | None:
        if sent.writes and sent.length > 1 and self.objects.binding(sent.rkey):
            self.relist(request, sent.length - 1)
            sent.byte_len = sent.length
        return None


@violates("BIND-01")
class BindsCompleteAsSends(DataPath):
    """The completion of a bind has the opcode of a SEND."""

    def completed(self, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
        if sent.opcode == BIND_MW and wc.status == SUCCESS:
            wc.opcode = 0
        return True


@violates("BIND-01")
class FailedBindsHaveNoNumber(DataPath):
    """The completion of a bind that fails has the wr_id 0."""

    def completed(self, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
        if sent.opcode == BIND_MW and wc.status != SUCCESS:
            wc.wr_id = 0
        return True


@violates("BIND-12")
class FailedBindsSucceed(DataPath):
    """A bind that fails completes with success."""

    def completed(self, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
        if sent.opcode == BIND_MW and wc.status not in (SUCCESS, WR_FLUSH_ERR):
            wc.status, wc.opcode = SUCCESS, sent.completed_as
        return True


@violates("BIND-04")
class FencedBindsAreSilent(DataPath):
    """A bind with FENCE and SIGNALED has no completion."""

    def completed(self, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
        return not (sent.opcode == BIND_MW and sent.flags & FENCE and wc.status == SUCCESS)


@violates("BIND-22")
class FailedBindsAreSilent(DataPath):
    """A bind that fails has no completion if it was not SIGNALED."""

    def completed(self, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
        silent = sent.opcode == BIND_MW and not sent.flags & SIGNALED
        return not (silent and wc.status not in (SUCCESS, WR_FLUSH_ERR))


@violates("BIND-22")
class FlushedBindsSucceed(DataPath):
    """A bind on a queue pair in the error state completes with success."""

    def completed(self, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
        if sent.opcode == BIND_MW and wc.status == WR_FLUSH_ERR:
            wc.status, wc.opcode = SUCCESS, sent.completed_as
        return True


@violates("BIND-20")
class BindsWithAnotherIndexSucceed(DataPath):
    """A posted bind with another index in its key completes with success, and the old binding stays."""

    def binding(self, queue: QueuePair, sent: Sent, info: Info) -> bool:
        bound = next((each for each in self.objects.bindings if each.window == sent.window), None)
        return not (bound and sent.rkey and bound.rkey >> 8 != sent.rkey >> 8)


@violates("BIND-15")
class InvalidationsCompleteAsBinds(DataPath):
    """The completion of a local invalidation has the opcode of a bind."""

    def completed(self, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
        if sent.opcode == LOCAL_INV and wc.status == SUCCESS:
            wc.opcode = 5
        return True


class _Invalidating(DataPath):
    """An invalidation that must fail completes with success and does nothing."""

    def nothing(self, sent: Sent) -> bool:
        """Whether the key is one that must not be invalidated."""
        return False

    def sending(self, queue: QueuePair, sent: Sent, request: SendRequest) -> int | None:
        if sent.opcode == LOCAL_INV and self.nothing(sent):
            self.replace(sent, request)
        return None


@violates("BIND-19")
class InvalidatedRegionsSucceed(_Invalidating):
    """Invalidating a region's key completes with success and does nothing."""

    def nothing(self, sent: Sent) -> bool:
        return self.objects.region(sent.imm) is not None


@violates("BIND-19")
class InvalidatedNothingSucceeds(_Invalidating):
    """Invalidating a key that does not exist completes with success."""

    def nothing(self, sent: Sent) -> bool:
        known = [each.rkey for each in self.objects.regions] + [each.rkey for each in self.objects.bindings]
        return sent.imm not in known


@violates("BIND-19")
class InvalidatedFirstTypeSucceeds(_Invalidating):
    """Invalidating the key of a window of type 1 completes with success and does nothing."""

    def nothing(self, sent: Sent) -> bool:
        binding = self.objects.binding(sent.imm)
        return binding is not None and binding.kind == 1


@violates("BIND-13")
class BindsOvertaken(DataPath):
    """A bind is executed after the request that is posted behind it."""

    def __init__(self) -> None:
        super().__init__()
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
        """Executes the bind that is held on a queue pair."""
        held: Any = self._held.pop(qp, None)
        if held:
            held()

    def _poll_cq(self, cq: int, count: int, address: int) -> int:
        for qp in list(self._held):
            self.release(qp)
        return super()._poll_cq(cq, count, address)
