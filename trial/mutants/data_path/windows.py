"""Violations of binds and invalidations: not made, not reported, in another order."""

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


@violates("BIND-04", DataPath.binding)
def fenced_binds_lost(self: DataPath, queue: QueuePair, sent: Sent, info: Info) -> bool:
    """A bind with FENCE completes and is not made."""
    return not sent.flags & FENCE


@violates("BIND-04", DataPath.binding)
def unsignaled_binds_lost(self: DataPath, queue: QueuePair, sent: Sent, info: Info) -> bool:
    """A bind without SIGNALED is not made."""
    return bool(sent.flags & SIGNALED)


@violates("BIND-02", DataPath.binding)
def rebinds_of_the_same_range_lost(self: DataPath, queue: QueuePair, sent: Sent, info: Info) -> bool:
    """A bind of a window to the range to which it is bound already completes and is not made."""
    bound = self.objects.bound(sent.window)
    return not (bound and (bound.addr, bound.length) == (info.addr, info.length))


@violates("BIND-10", DataPath.binding)
def lengths_beyond64_ki_b_cut(self: DataPath, queue: QueuePair, sent: Sent, info: Info) -> bool:
    """A window of more than 64 KiB has 64 KiB."""
    info.length = min(info.length, 1 << 16)
    return True


@violates("BIND-06", DataPath.binding)
def right_to_read_lost_beside_writing(self: DataPath, queue: QueuePair, sent: Sent, info: Info) -> bool:
    """A window with REMOTE_WRITE and REMOTE_READ grants only writing."""
    if info.access & REMOTE_WRITE:
        info.access &= ~REMOTE_READ
    return True


@violates("BIND-09", DataPath.binding)
def no_right_is_the_regions_read(self: DataPath, queue: QueuePair, sent: Sent, info: Info) -> bool:
    """A window bound without any right can be read."""
    info.access = info.access or REMOTE_READ
    return True


@violates("BIND-09", DataPath.binding)
def atomics_by_writing_to_windows(self: DataPath, queue: QueuePair, sent: Sent, info: Info) -> bool:
    """A window with REMOTE_WRITE grants atomics."""
    if info.access & REMOTE_WRITE:
        info.access |= REMOTE_ATOMIC
    return True


@violates("BIND-06", DataPath.completed)
def windows_read_from_the_regions_beginning(self: DataPath, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
    """A READ through a window returns the first bytes of its region."""
    binding = self.objects.binding(sent.rkey)
    if sent.reads and wc.status == SUCCESS and binding and binding.region:
        self.scatter(sent.elements, content_at(binding.region.addr, sent.length) or b"")
    return True


@violates("BIND-05", DataPath.sending)
def writes_through_windows_short(self: DataPath, queue: QueuePair, sent: Sent, request: SendRequest) -> int | None:
    """The last byte of a WRITE through a window does not arrive."""
    if sent.writes and sent.length > 1 and self.objects.binding(sent.rkey):
        self.relist(request, sent.length - 1)
        sent.byte_len = sent.length
    return None


@violates("BIND-01", DataPath.completed)
def binds_complete_as_sends(self: DataPath, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
    """The completion of a bind has the opcode of a SEND."""
    if sent.opcode == BIND_MW and wc.status == SUCCESS:
        wc.opcode = 0
    return True


@violates("BIND-01", DataPath.completed)
def failed_binds_have_no_number(self: DataPath, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
    """The completion of a bind that fails has the wr_id 0."""
    if sent.opcode == BIND_MW and wc.status != SUCCESS:
        wc.wr_id = 0
    return True


@violates("BIND-12", DataPath.completed)
def failed_binds_succeed(self: DataPath, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
    """A bind that fails completes with success."""
    if sent.opcode == BIND_MW and wc.status not in (SUCCESS, WR_FLUSH_ERR):
        wc.status, wc.opcode = SUCCESS, sent.completed_as
    return True


@violates("BIND-04", DataPath.completed)
def fenced_binds_are_silent(self: DataPath, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
    """A bind with FENCE and SIGNALED has no completion."""
    return not (sent.opcode == BIND_MW and sent.flags & FENCE and wc.status == SUCCESS)


@violates("BIND-22", DataPath.completed)
def failed_binds_are_silent(self: DataPath, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
    """A bind that fails has no completion if it was not SIGNALED."""
    silent = sent.opcode == BIND_MW and not sent.flags & SIGNALED
    return not (silent and wc.status not in (SUCCESS, WR_FLUSH_ERR))


@violates("BIND-22", DataPath.completed)
def flushed_binds_succeed(self: DataPath, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
    """A bind on a queue pair in the error state completes with success."""
    if sent.opcode == BIND_MW and wc.status == WR_FLUSH_ERR:
        wc.status, wc.opcode = SUCCESS, sent.completed_as
    return True


@violates("BIND-20", DataPath.binding)
def binds_with_another_index_succeed(self: DataPath, queue: QueuePair, sent: Sent, info: Info) -> bool:
    """A posted bind with another index in its key completes with success, and the old binding stays."""
    bound = next((each for each in self.objects.bindings if each.window == sent.window), None)
    return not (bound and sent.rkey and bound.rkey >> 8 != sent.rkey >> 8)


@violates("BIND-15", DataPath.completed)
def invalidations_complete_as_binds(self: DataPath, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
    """The completion of a local invalidation has the opcode of a bind."""
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


@violates("BIND-19", _Invalidating.nothing)
def invalidated_regions_succeed(self: _Invalidating, sent: Sent) -> bool:
    """Invalidating a region's key completes with success and does nothing."""
    return self.objects.region(sent.imm) is not None


@violates("BIND-19", _Invalidating.nothing)
def invalidated_nothing_succeeds(self: _Invalidating, sent: Sent) -> bool:
    """Invalidating a key that does not exist completes with success."""
    known = [each.rkey for each in self.objects.regions] + [each.rkey for each in self.objects.bindings]
    return sent.imm not in known


@violates("BIND-19", _Invalidating.nothing)
def invalidated_first_type_succeeds(self: _Invalidating, sent: Sent) -> bool:
    """Invalidating the key of a window of type 1 completes with success and does nothing."""
    binding = self.objects.binding(sent.imm)
    return binding is not None and binding.kind == 1


@violates("BIND-13")
class BindsOvertaken(DataPath):
    """A bind is executed after the request that is posted behind it."""

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
        """Executes the bind that is held on a queue pair."""
        held: Any = self._held.pop(qp, None)
        if held:
            held()

    def _poll_cq(self, cq: int, count: int, address: int) -> int:
        for qp in list(self._held):
            self.release(qp)
        return super()._poll_cq(cq, count, address)
