"""Violations that refuse what must work."""

from __future__ import annotations

from trial.data_path.alteration import DataPath
from trial.data_path.objects import LOCAL_WRITE, QueuePair, Sent
from trial.data_path.structures import SendRequest
from trial.violation import violates


class Refusing(DataPath):
    """Refuses some requests that the real device would carry out."""

    def refused(self, queue: QueuePair, sent: Sent) -> bool:
        """Whether a request is refused."""
        return False

    def sending(self, queue: QueuePair, sent: Sent, request: SendRequest) -> int | None:
        if (sent.reads or sent.writes or sent.atomic) and self.refused(queue, sent):
            self.refuse(sent, request)
        return None


@violates("REG-21")
class UnwritableSourceOfASecondMessage(Refusing):
    """Every second WRITE that sends from a region without LOCAL_WRITE is refused."""

    number = 0

    def refused(self, queue: QueuePair, sent: Sent) -> bool:
        sources = [self.objects.source(each.lkey) for each in sent.elements]
        counted = sent.writes and any(each and not each.access & LOCAL_WRITE for each in sources)
        self.number += counted
        return bool(counted and self.number % 2 == 0)
