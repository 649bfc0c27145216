"""Violations that refuse requests that must succeed."""

from trial.data_path.alteration import DataPath
from trial.data_path.objects import QueuePair, Sent
from trial.data_path.structures import SendRequest


class Refusing(DataPath):
    """Refuses some requests that the real device would carry out."""

    def refused(self, queue: QueuePair, sent: Sent) -> bool:
        """Whether a request is refused."""
        return False

    def sending(self, queue: QueuePair, sent: Sent, request: SendRequest) -> int | None:
        if (sent.reads or sent.writes or sent.atomic) and self.refused(queue, sent):
            self.refuse(sent, request)
        return None
