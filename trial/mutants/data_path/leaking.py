"""Violations by requests that are refused and nevertheless move bytes."""

from trial.data_path.alteration import DataPath
from trial.data_path.memory import content_at, put
from trial.data_path.objects import REMOTE_WRITE, QueuePair, Region, Sent
from trial.data_path.structures import REFUSED, WorkCompletion
from trial.violation import violates

_LOC_PROT_ERR = 4


class _Refused(DataPath):
    """Does something for a request that the real device has refused."""

    def completed(self, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
        if wc.status in REFUSED and (sent.reads or sent.writes or sent.atomic):
            self.nevertheless(queue, sent)
        return True

    def nevertheless(self, queue: QueuePair, sent: Sent) -> None:
        """Moves bytes."""

    def leak(self, sent: Sent, length: int) -> None:
        """Fills the requester's elements with the first `length` bytes that a READ has asked for."""
        self.scatter(sent.elements, content_at(self.place(sent), min(length, sent.length)) or b"")

    def region_of(self, sent: Sent) -> Region | None:
        """The registered region that the request names."""
        return self.objects.region(sent.rkey)


@violates("REG-20", _Refused.nevertheless)
def bytes_beyond_leak(self: _Refused, queue: QueuePair, sent: Sent) -> None:
    """A READ that exceeds a region is refused and returns the bytes beyond the region."""
    region = self.region_of(sent)
    if sent.reads and region:
        inside = max(0, min(sent.length, region.iova + region.length - sent.remote_addr))
        place = region.addr + sent.remote_addr - region.iova
        kept = self.gather(sent.elements) or b""
        beyond = content_at(place + inside, sent.length - inside)
        if beyond:
            self.scatter(sent.elements, kept[:inside] + beyond)


@violates("REG-20", _Refused.nevertheless)
def bytes_beyond_are_written(self: _Refused, queue: QueuePair, sent: Sent) -> None:
    """A WRITE that exceeds a region is refused and writes the bytes beyond the region."""
    region = self.region_of(sent)
    if sent.writes and region and region.access & REMOTE_WRITE:
        inside = max(0, min(sent.length, region.iova + region.length - sent.remote_addr))
        content = self.gather(sent.elements) or b""
        put(region.addr + sent.remote_addr - region.iova + inside, content[inside:])
