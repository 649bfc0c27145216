"""Violations by requests that are refused and nevertheless move bytes."""

from __future__ import annotations

from trial.data_path.alteration import DataPath
from trial.data_path.memory import content_at, put
from trial.data_path.objects import REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE, QueuePair, Region, Sent
from trial.data_path.structures import REFUSED, SENDS, WRITE_WITH_IMM, Element, SendRequest, WorkCompletion
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


@violates("REG-06", _Refused.nevertheless)
def refused_reads_leak(self: _Refused, queue: QueuePair, sent: Sent) -> None:
    """A READ that is refused for want of REMOTE_READ fills the requester's memory."""
    region = self.region_of(sent)
    if sent.reads and region and not region.access & REMOTE_READ:
        self.leak(sent, sent.length)


@violates("REG-22", _Refused.nevertheless)
def other_domains_leak(self: _Refused, queue: QueuePair, sent: Sent) -> None:
    """A READ that is refused because of its PD returns the first eight bytes."""
    region = self.region_of(sent)
    if sent.reads and region and region.pd != self.peer_pd(queue):
        self.leak(sent, 8)


@violates("DEREG-01", _Refused.nevertheless)
def ended_keys_leak(self: _Refused, queue: QueuePair, sent: Sent) -> None:
    """A READ by the key of a deregistered region is refused and returns the first eight bytes."""
    if sent.reads and not self.objects.valid(sent.rkey) and self.objects.region(sent.rkey, ("deregistered",)):
        self.leak(sent, 8)


@violates("REG-20", _Refused.nevertheless)
def bytes_beyond_leak(self: _Refused, queue: QueuePair, sent: Sent) -> None:
    """A READ that exceeds a region is refused and returns the bytes behind the region."""
    region = self.region_of(sent)
    if sent.reads and region:
        inside = max(0, min(sent.length, region.iova + region.length - sent.remote_addr))
        place = region.addr + sent.remote_addr - region.iova
        kept = self.gather(sent.elements) or b""
        beyond = content_at(place + inside, sent.length - inside)
        if beyond:
            self.scatter(sent.elements, kept[:inside] + beyond)


@violates("REG-05", _Refused.nevertheless)
def short_refused_writes_arrive(self: _Refused, queue: QueuePair, sent: Sent) -> None:
    """A WRITE of at most eight bytes arrives although it is refused for want of REMOTE_WRITE."""
    region = self.region_of(sent)
    if sent.writes and sent.length <= 8 and region and not region.access & REMOTE_WRITE:
        put(self.place(sent), self.gather(sent.elements) or b"")


@violates("REG-05", _Refused.nevertheless)
def first_packet_arrives(self: _Refused, queue: QueuePair, sent: Sent) -> None:
    """The first packet of a WRITE of several packets arrives although it is refused for want of REMOTE_WRITE."""
    region = self.region_of(sent)
    if sent.writes and sent.length > 1024 and region and not region.access & REMOTE_WRITE:
        put(self.place(sent), (self.gather(sent.elements) or b"")[:1024])


@violates("REG-20", _Refused.nevertheless)
def bytes_beyond_are_written(self: _Refused, queue: QueuePair, sent: Sent) -> None:
    """A WRITE that exceeds a region is refused and writes the bytes behind the region."""
    region = self.region_of(sent)
    if sent.writes and region and region.access & REMOTE_WRITE:
        inside = max(0, min(sent.length, region.iova + region.length - sent.remote_addr))
        content = self.gather(sent.elements) or b""
        put(region.addr + sent.remote_addr - region.iova + inside, content[inside:])


@violates("REG-07", _Refused.nevertheless)
def refused_atomics_store(self: _Refused, queue: QueuePair, sent: Sent) -> None:
    """An atomic that is refused for want of REMOTE_ATOMIC changes the value."""
    region, place = self.region_of(sent), self.place(sent)
    old = content_at(place, 8)
    if sent.atomic and region and not region.access & REMOTE_ATOMIC and old:
        put(place, self.updated(sent, int.from_bytes(old, "little")).to_bytes(8, "little"))


@violates("REG-07", _Refused.nevertheless)
def refused_atomics_return(self: _Refused, queue: QueuePair, sent: Sent) -> None:
    """An atomic that is refused for want of REMOTE_ATOMIC returns the value."""
    region = self.region_of(sent)
    if sent.atomic and region and not region.access & REMOTE_ATOMIC:
        self.leak(sent, 8)


@violates("BIND-06", _Refused.nevertheless)
def windows_leak(self: _Refused, queue: QueuePair, sent: Sent) -> None:
    """A READ that a window refuses returns the first eight bytes."""
    if sent.reads and self.objects.binding(sent.rkey):
        self.leak(sent, 8)


@violates("BIND-05", _Refused.nevertheless)
def refused_writes_arrive_by_windows(self: _Refused, queue: QueuePair, sent: Sent) -> None:
    """A WRITE with immediate data arrives although its window refuses it."""
    if sent.opcode == WRITE_WITH_IMM and self.objects.binding(sent.rkey):
        put(self.place(sent), self.gather(sent.elements) or b"")


@violates("REG-04", DataPath.completed)
def unwritable_memory_is_filled(self: DataPath, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
    """A READ into a region without LOCAL_WRITE fails and fills it."""
    if wc.status == _LOC_PROT_ERR and sent.reads:
        self.scatter(sent.elements, content_at(self.place(sent), sent.length) or b"")
    return True


@violates("REG-04")
class RefusedMessagesArrive(DataPath):
    """A message to a receive without LOCAL_WRITE fails and arrives."""

    def sending(self, queue: QueuePair, sent: Sent, request: SendRequest) -> int | None:
        peer = self.peer(queue)
        if sent.opcode in SENDS and peer and peer.receives:
            sent.note = peer.receives[0].elements
        return None

    def completed(self, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
        if wc.status in REFUSED and isinstance(sent.note, tuple) and sent.note and isinstance(sent.note[0], Element):
            self.scatter(sent.note, self.gather(sent.elements) or b"")
        return True
