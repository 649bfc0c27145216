"""Violations in the returned and stored values of granted atomics."""

from trial.data_path.alteration import DataPath
from trial.data_path.memory import content_at, put
from trial.data_path.objects import QueuePair, Sent
from trial.data_path.structures import SUCCESS, SendRequest, WorkCompletion

_HALF = 1 << 32


class _Atomic(DataPath):
    """Changes the effect of a successful atomic."""

    def sending(self, queue: QueuePair, sent: Sent, request: SendRequest) -> int | None:
        if sent.atomic:
            sent.note = content_at(self.place(sent), 8)
        return None

    def completed(self, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
        if sent.atomic and wc.status == SUCCESS and isinstance(sent.note, bytes):
            self.done(sent, self.place(sent), int.from_bytes(sent.note, "little"))
        return True

    def done(self, sent: Sent, place: int, old: int) -> None:
        """Changes the value at `place`, which was `old` before the atomic, and the returned value."""

    def store(self, place: int, value: int) -> None:
        """Stores a value at `place`."""
        put(place, value.to_bytes(8, "little"))

    def give(self, sent: Sent, value: int) -> None:
        """Returns a value."""
        self.scatter(sent.elements, value.to_bytes(8, "little"))
