"""Violations that refuse what must work."""

from __future__ import annotations

from trial.data_path.alteration import DataPath
from trial.data_path.objects import LOCAL_WRITE, QueuePair, Sent
from trial.data_path.structures import REM_ACCESS_ERR, SUCCESS, SendRequest, WorkCompletion
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


@violates("REG-20", Refusing.refused)
def last_word_refused(self: Refusing, queue: QueuePair, sent: Sent) -> bool:
    """An atomic on the last eight bytes of a region is refused."""
    region = self.objects.region(sent.rkey)
    return bool(region and sent.atomic and sent.remote_addr + 8 == region.iova + region.length)


@violates("REG-21", Refusing.refused)
def bound_region_refused(self: Refusing, queue: QueuePair, sent: Sent) -> bool:
    """A region's own rkey is refused while a window is bound to it."""
    region = self.objects.region(sent.rkey)
    return region is not None and any(each.region is region and not each.ended for each in self.objects.bindings)


@violates("REG-21", Refusing.refused)
def older_region_refused(self: Refusing, queue: QueuePair, sent: Sent) -> bool:
    """A region's rkey is refused once the same memory is registered again."""
    region = self.objects.region(sent.rkey)
    regions = list(self.objects.live_regions())
    return region is not None and any(each.addr == region.addr for each in regions[regions.index(region) + 1 :])


@violates("REG-21", Refusing.refused)
def many_regions_refused(self: Refusing, queue: QueuePair, sent: Sent) -> bool:
    """Of more than 64 regions the oldest one's rkey is refused."""
    regions = list(self.objects.live_regions())
    return len(regions) > 64 and sent.rkey == regions[0].rkey


@violates("REG-20", Refusing.refused)
def whole_region_refused(self: Refusing, queue: QueuePair, sent: Sent) -> bool:
    """A READ of a whole region of several pages is refused."""
    region = self.objects.region(sent.rkey)
    return bool(region and sent.reads and sent.length == region.length > 4096)


@violates("REG-03", DataPath.sending)
def no_access_is_not_sent(self: DataPath, queue: QueuePair, sent: Sent, request: SendRequest) -> int | None:
    """A WRITE cannot send from a region that has no access right at all."""
    sources = [self.objects.source(each.lkey) for each in sent.elements]
    if sent.writes and any(each and not each.access for each in sources):
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


@violates("REG-24a", DataPath.completed)
def nothing_refused(self: DataPath, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
    """A READ or WRITE of no bytes is refused."""
    if (sent.reads or sent.writes) and not sent.length and wc.status == SUCCESS:
        wc.status = REM_ACCESS_ERR
    return True
