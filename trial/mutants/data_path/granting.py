"""Violations that carry out requests that must be refused, because a key has ended or a right is missing.

The device below the violation refuses such a request. The violation chooses the address at which the request is carried
out nevertheless.
"""

from reference.objects import REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE
from trial.data_path.alteration import DataPath
from trial.data_path.objects import QueuePair, Region, Sent
from trial.data_path.structures import WRITE, SendRequest
from trial.violation import violates


class Granting(DataPath):
    """Carries out requests that must be refused."""

    def granted(self, queue: QueuePair, sent: Sent) -> int | None:
        """Returns the address at which a request is carried out although it must be refused; None for any other
        request."""
        return None

    def sending(self, queue: QueuePair, sent: Sent, request: SendRequest) -> int | None:
        place = self.granted(queue, sent) if sent.length and (sent.reads or sent.writes or sent.atomic) else None
        if place is not None:
            self.carry_out(queue, sent, request, place)
        return None

    def lacking(self, queue: QueuePair, sent: Sent, right: int) -> Region | None:
        """Returns the region that a request's rkey names, if only the right is missing; None for any other request.

        Then the region lacks the right, contains the request's range, and belongs to the PD of the peer.
        """
        region = self.objects.region(sent.rkey)
        inside = region is not None and region.place(sent.remote_addr, sent.length) is not None
        here = region is not None and region.pd == self.peer_pd(queue)
        return region if region and inside and here and not region.access & right else None


class _Ended(Granting):
    """The key of a deregistered region still works for some requests."""

    def opens(self, queue: QueuePair, sent: Sent, region: Region) -> bool:
        """Whether the key still works for this request."""
        return False

    def granted(self, queue: QueuePair, sent: Sent) -> int | None:
        region = self.objects.region(sent.rkey, ("deregistered",))
        if region is None or self.objects.valid(sent.rkey) or not self.opens(queue, sent, region):
            return None
        return region.place(sent.remote_addr, sent.length)


class _EndedSource(Granting):
    """A deregistered region's lkey still works."""

    opcode = WRITE

    def granted(self, queue: QueuePair, sent: Sent) -> int | None:
        lkeys = [each.lkey for each in sent.elements]
        ended = any(not self.objects.source(each) and self.objects.source(each, ("deregistered",)) for each in lkeys)
        region = self.objects.region(sent.rkey)
        return region.place(sent.remote_addr, sent.length) if ended and region and sent.opcode == self.opcode else None


@violates("DEREG-01")
class EndedLkeyIsWritten(_EndedSource):
    """A WRITE can send from a deregistered region."""


class _WithoutRight(Granting):
    """Some requests need no right."""

    right = REMOTE_READ

    def opens(self, queue: QueuePair, sent: Sent, region: Region) -> bool:
        """Whether the request needs no right."""
        return True

    def granted(self, queue: QueuePair, sent: Sent) -> int | None:
        if self.right != (REMOTE_READ if sent.reads else REMOTE_WRITE if sent.writes else REMOTE_ATOMIC):
            return None
        region = self.lacking(queue, sent, self.right)
        if region is None or not self.opens(queue, sent, region):
            return None
        return region.place(sent.remote_addr, sent.length)
