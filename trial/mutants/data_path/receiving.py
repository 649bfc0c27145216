"""Violations in the data of a READ or a received message: bytes that arrive late, not at all, or changed."""

from trial.data_path.alteration import DataPath
from trial.data_path.objects import Posted, QueuePair, Sent
from trial.data_path.structures import SUCCESS, SendRequest, WorkCompletion

_PACKET, _PAGE = 1024, 4096


class _Read(DataPath):
    """Changes the effect of a successful READ. `before` has the contents of the READ's elements before the READ."""

    def sending(self, queue: QueuePair, sent: Sent, request: SendRequest) -> int | None:
        if sent.reads and sent.length:
            sent.note = self.gather(sent.elements)
        return None

    def completed(self, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
        if sent.reads and sent.length and wc.status == SUCCESS and isinstance(sent.note, bytes):
            self.read(sent, self.gather(sent.elements) or b"", sent.note)
        return True

    def read(self, sent: Sent, arrived: bytes, before: bytes) -> None:
        """Changes the bytes in the elements."""


class _Received(DataPath):
    """Changes a received message in the elements of its receive."""

    def received(self, queue: QueuePair, posted: Posted, wc: WorkCompletion) -> None:
        if wc.status == SUCCESS and wc.opcode == 128 and wc.byte_len and None not in posted.before:
            self.message(posted, wc.byte_len)

    def message(self, posted: Posted, length: int) -> None:
        """Changes the message, which has `length` bytes."""
