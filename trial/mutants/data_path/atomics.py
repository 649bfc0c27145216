"""Violations of atomics that are granted: what they return and what they store."""

from __future__ import annotations

from trial.data_path.alteration import DataPath
from trial.data_path.memory import content_at, put
from trial.data_path.objects import QueuePair, Sent
from trial.data_path.structures import COMPARE_SWAP, FETCH_ADD, SUCCESS, SendRequest, WorkCompletion
from trial.violation import violates

_HALF = 1 << 32


class _Atomic(DataPath):
    """Changes what a successful atomic has left behind."""

    def sending(self, queue: QueuePair, sent: Sent, request: SendRequest) -> int | None:
        if sent.atomic:
            sent.note = content_at(self.place(sent), 8)
        return None

    def completed(self, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
        if sent.atomic and wc.status == SUCCESS and isinstance(sent.note, bytes):
            self.done(sent, self.place(sent), int.from_bytes(sent.note, "little"))
        return True

    def done(self, sent: Sent, place: int, old: int) -> None:
        """What becomes of the value at `place`, which was `old`, and of the value returned."""

    def store(self, place: int, value: int) -> None:
        """Stores a value at `place`."""
        put(place, value.to_bytes(8, "little"))

    def give(self, sent: Sent, value: int) -> None:
        """Returns a value."""
        self.scatter(sent.elements, value.to_bytes(8, "little"))


@violates("REG-07", _Atomic.done)
def new_value_returned(self: _Atomic, sent: Sent, place: int, old: int) -> None:
    """An atomic returns the value that it has stored."""
    self.give(sent, self.updated(sent, old))


@violates("REG-07", _Atomic.done)
def value_returned_backwards(self: _Atomic, sent: Sent, place: int, old: int) -> None:
    """An atomic returns the value with its bytes in the other order."""
    self.scatter(sent.elements, old.to_bytes(8, "big"))


@violates("REG-07", _Atomic.completed)
def value_returned_late(self: _Atomic, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
    """An atomic returns its value after its completion."""
    if sent.atomic and wc.status == SUCCESS and isinstance(sent.note, bytes):
        content = sent.note
        self.scatter(sent.elements, b"\x5a" * 8)
        self.next_time(lambda: self.scatter(sent.elements, content))
    return True


@violates("REG-07", _Atomic.done)
def carry_lost(self: _Atomic, sent: Sent, place: int, old: int) -> None:
    """FETCH_ADD adds the two halves of the value separately."""
    if sent.opcode == FETCH_ADD:
        low = (old + sent.compare_add) % _HALF
        self.store(place, (old // _HALF + sent.compare_add // _HALF) % _HALF * _HALF + low)


@violates("REG-07", _Atomic.done)
def lower_half_added(self: _Atomic, sent: Sent, place: int, old: int) -> None:
    """FETCH_ADD changes only the lower half of the value."""
    if sent.opcode == FETCH_ADD:
        self.store(place, old // _HALF * _HALF + (old + sent.compare_add) % _HALF)


@violates("REG-07", _Atomic.done)
def lower_half_compared(self: _Atomic, sent: Sent, place: int, old: int) -> None:
    """A compare-and-swap compares only the lower half of the value."""
    if sent.opcode == COMPARE_SWAP and old % _HALF == sent.compare_add % _HALF:
        self.store(place, sent.swap)


@violates("REG-07", _Atomic.done)
def always_swapped(self: _Atomic, sent: Sent, place: int, old: int) -> None:
    """A compare-and-swap swaps without comparing."""
    if sent.opcode == COMPARE_SWAP:
        self.store(place, sent.swap)


@violates("REG-07")
class FailedSwapReturnsNothing(_Atomic):
    """A compare-and-swap that does not match leaves the requester's memory as it was."""

    def sending(self, queue: QueuePair, sent: Sent, request: SendRequest) -> int | None:
        super().sending(queue, sent, request)
        self.kept = self.gather(sent.elements) if sent.atomic else None
        return None

    kept: bytes | None = None

    def done(self, sent: Sent, place: int, old: int) -> None:
        if sent.opcode == COMPARE_SWAP and old != sent.compare_add and self.kept:
            self.scatter(sent.elements, self.kept)


@violates("BIND-07", _Atomic.done)
def windows_return_zero(self: _Atomic, sent: Sent, place: int, old: int) -> None:
    """An atomic through a window returns 0."""
    if self.objects.binding(sent.rkey):
        self.give(sent, 0)


@violates("BIND-07", _Atomic.done)
def windows_do_not_swap(self: _Atomic, sent: Sent, place: int, old: int) -> None:
    """A compare-and-swap through a window returns the value and stores nothing."""
    if sent.opcode == COMPARE_SWAP and self.objects.binding(sent.rkey):
        self.store(place, old)
