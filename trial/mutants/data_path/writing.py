"""Violations in the data of a WRITE: bytes that arrive late, or in a wrong number, order or place."""

from trial.data_path.alteration import DataPath
from trial.data_path.memory import content_at, put
from trial.data_path.objects import QueuePair, Sent
from trial.data_path.structures import SUCCESS, SendRequest, WorkCompletion
from trial.violation import violates

_PACKET, _PAGE = 1024, 4096


class _Written(DataPath):
    """Changes the effect of a successful WRITE. `before` has the bytes of the target before the WRITE."""

    def sending(self, queue: QueuePair, sent: Sent, request: SendRequest) -> int | None:
        if sent.writes and sent.length:
            sent.note = content_at(self.place(sent), sent.length)
        return None

    def completed(self, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
        if sent.writes and sent.length and wc.status == SUCCESS and isinstance(sent.note, bytes):
            self.written(queue, sent, self.place(sent), sent.note)
        return True

    def written(self, queue: QueuePair, sent: Sent, place: int, before: bytes) -> None:
        """Changes the bytes at `place`."""

    def delay(self, queue: QueuePair, place: int, before: bytes) -> None:
        """Restores the old bytes, and writes the new bytes after the next poll of a completion at the peer."""
        arrived = content_at(place, len(before))
        if arrived is not None and (peer := self.peer(queue)):
            put(place, before)
            self.after(peer.number, lambda: _again(place, before, arrived))


def _again(place: int, before: bytes, arrived: bytes) -> None:
    if content_at(place, len(before)) == before:
        put(place, arrived)


class _Shortened(DataPath):
    """Posts a request with fewer bytes."""

    def kept(self, sent: Sent) -> int:
        """Returns the number of bytes of the request that are kept."""
        return sent.length

    def sending(self, queue: QueuePair, sent: Sent, request: SendRequest) -> int | None:
        if sent.writes or sent.reads:
            left = self.kept(sent)
            if left < sent.length:
                self.relist(request, left)
                sent.byte_len = sent.length
        return None


class _Moved(DataPath):
    """Accesses another place of the region."""

    wrap = 1 << 16

    def sending(self, queue: QueuePair, sent: Sent, request: SendRequest) -> int | None:
        region = self.objects.region(sent.rkey) if sent.writes or sent.reads or sent.atomic else None
        if region and region.place(sent.remote_addr, sent.length) is not None:
            offset = sent.remote_addr - region.iova
            request.remote_addr = region.iova + offset % self.wrap
        return None


@violates("REG-20")
class OffsetsWrapAt64KiB(_Moved):
    """An access beyond the first 64 KiB of a region reaches the first 64 KiB."""
