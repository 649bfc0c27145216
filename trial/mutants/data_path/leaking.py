"""Violations by refused requests that nevertheless move bytes."""

from trial.data_path.alteration import DataPath
from trial.data_path.memory import content_at
from trial.data_path.objects import QueuePair, Region, Sent
from trial.data_path.structures import REFUSED, WorkCompletion

_LOC_PROT_ERR = 4


class _Refused(DataPath):
    """Gives a request that the real device has refused an effect."""

    def completed(self, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
        if wc.status in REFUSED and (sent.reads or sent.writes or sent.atomic):
            self.nevertheless(queue, sent)
        return True

    def nevertheless(self, queue: QueuePair, sent: Sent) -> None:
        """Moves bytes."""

    def leak(self, sent: Sent, length: int) -> None:
        """Fills the requester's elements with the first `length` bytes that a READ has requested."""
        self.scatter(sent.elements, content_at(self.place(sent), min(length, sent.length)) or b"")

    def region_of(self, sent: Sent) -> Region | None:
        """Returns the registered region that the request names."""
        return self.objects.region(sent.rkey)
