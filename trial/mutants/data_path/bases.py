"""The classes of the data path whose methods the rows of tables replace.

A class changes the effect of requests that the real device carries out, or refuses or carries out requests itself.
"""

from reference.objects import LOCAL_WRITE, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE
from trial.data_path import structures as wire
from trial.data_path.alteration import DataPath
from trial.data_path.memory import content_at, put
from trial.data_path.objects import Binding, Posted, QueuePair, Region, Sent

PACKET, PAGE = 1024, 4096
HALF = 1 << 32
LOC_PROT_ERR = 4


# Requests that are carried out although a key has ended or a right is missing. The device below refuses such a
# request; the class chooses the address at which the request is carried out nevertheless.


class Granting(DataPath):
    """Carries out requests that must be refused."""

    def granted(self, queue: QueuePair, sent: Sent) -> int | None:
        """Returns the address at which a request is carried out although it must be refused; None for any other
        request."""
        return None

    def sending(self, queue: QueuePair, sent: Sent, request: wire.SendRequest) -> int | None:
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


class Ended(Granting):
    """The key of a deregistered region still works for some requests."""

    def opens(self, queue: QueuePair, sent: Sent, region: Region) -> bool:
        """Whether the key still works for this request."""
        return False

    def granted(self, queue: QueuePair, sent: Sent) -> int | None:
        region = self.objects.region(sent.rkey, ("deregistered",))
        if region is None or self.objects.valid(sent.rkey) or not self.opens(queue, sent, region):
            return None
        return region.place(sent.remote_addr, sent.length)


class EndedSource(Granting):
    """A deregistered region's lkey still works."""

    opcode = wire.WRITE

    def granted(self, queue: QueuePair, sent: Sent) -> int | None:
        lkeys = [each.lkey for each in sent.elements]
        ended = any(not self.objects.source(each) and self.objects.source(each, ("deregistered",)) for each in lkeys)
        region = self.objects.region(sent.rkey)
        return region.place(sent.remote_addr, sent.length) if ended and region and sent.opcode == self.opcode else None


class WithoutRight(Granting):
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


# Access by other domains, by other keys, and outside of a range


class OtherDomain(Granting):
    """A queue pair of another PD can use a region for some requests."""

    def allowed(self, sent: Sent, region: Region) -> bool:
        """Whether the PD is not checked."""
        return False

    def granted(self, queue: QueuePair, sent: Sent) -> int | None:
        region = self.objects.region(sent.rkey)
        domain = self.peer_pd(queue)
        if region is None or not domain or region.pd == domain or not self.allowed(sent, region):
            return None
        return region.place(sent.remote_addr, sent.length)


class Beyond(Granting):
    """Requests may exceed the range of a region."""

    right = REMOTE_READ

    def exceeds(self, sent: Sent, offset: int, region: Region) -> bool:
        """Whether a request at `offset`, which exceeds the region, is carried out."""
        return False

    def granted(self, queue: QueuePair, sent: Sent) -> int | None:
        region = self.objects.region(sent.rkey)
        if region is None or region.pd != self.peer_pd(queue) or not region.access & self.right:
            return None
        offset = sent.remote_addr - region.iova
        if region.place(sent.remote_addr, sent.length) is not None or not self.exceeds(sent, offset, region):
            return None
        return region.addr + offset


class Unwritable(Granting):
    """A request can fill a region without LOCAL_WRITE."""

    def wanted(self, sent: Sent) -> bool:
        """Whether the request may fill the region."""
        return sent.reads

    def granted(self, queue: QueuePair, sent: Sent) -> int | None:
        region = self.objects.region(sent.rkey)
        targets = [self.objects.source(each.lkey) for each in sent.elements]
        fine = region and region.access & (REMOTE_READ if sent.reads else REMOTE_ATOMIC) and self.wanted(sent)
        unwritable = any(each and not each.access & LOCAL_WRITE for each in targets)
        return region.place(sent.remote_addr, sent.length) if region and fine and unwritable else None


class Iova(Granting):
    """A region can also be reached at an address other than its hca_va."""

    zero = False

    def shifted(self, remote_addr: int, region: Region) -> int:
        """Returns the address at which the request is carried out in place of `remote_addr`."""
        return remote_addr - region.addr + region.iova

    def granted(self, queue: QueuePair, sent: Sent) -> int | None:
        region = self.objects.region(sent.rkey)
        if region is None or region.verb != "reg_mr_iova" or (region.iova == 0) != self.zero:
            return None
        if region.place(sent.remote_addr, sent.length) is not None:
            return None
        return region.place(self.shifted(sent.remote_addr, region), sent.length)


# Access by the key of a window


class EndedBinding(Granting):
    """A window's key that has ended still works for some requests."""

    ended: tuple[str, ...] = ("rebound",)

    def opens(self, sent: Sent, binding: Binding) -> bool:
        """Whether the ended key still works for this request."""
        return sent.reads and bool(binding.access & REMOTE_READ)

    def granted(self, queue: QueuePair, sent: Sent) -> int | None:
        binding = self.objects.binding(sent.rkey, self.ended)
        if binding is None or self.objects.valid(sent.rkey) or not self.opens(sent, binding):
            return None
        return binding.place(sent.remote_addr, sent.length)


class ByWindow(Granting):
    """A window grants requests that its rights do not allow."""

    def grants(self, queue: QueuePair, sent: Sent, binding: Binding) -> bool:
        """Whether the window grants the request although it must not."""
        return False

    def granted(self, queue: QueuePair, sent: Sent) -> int | None:
        binding = self.objects.binding(sent.rkey)
        if binding is None or not self.grants(queue, sent, binding):
            return None
        return binding.place(sent.remote_addr, sent.length)


# Requests that are refused


class Refusing(DataPath):
    """Refuses some requests that the real device would carry out."""

    def refused(self, queue: QueuePair, sent: Sent) -> bool:
        """Whether a request is refused."""
        return False

    def sending(self, queue: QueuePair, sent: Sent, request: wire.SendRequest) -> int | None:
        if (sent.reads or sent.writes or sent.atomic) and self.refused(queue, sent):
            self.refuse(sent, request)
        return None


# Refused requests that move bytes


class Refused(DataPath):
    """Gives a request that the real device has refused an effect."""

    def completed(self, queue: QueuePair, sent: Sent, wc: wire.WorkCompletion) -> bool:
        if wc.status in wire.REFUSED and (sent.reads or sent.writes or sent.atomic):
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


# The data of a WRITE


class Written(DataPath):
    """Changes the effect of a successful WRITE. `before` has the bytes of the target before the WRITE."""

    def sending(self, queue: QueuePair, sent: Sent, request: wire.SendRequest) -> int | None:
        if sent.writes and sent.length:
            sent.note = content_at(self.place(sent), sent.length)
        return None

    def completed(self, queue: QueuePair, sent: Sent, wc: wire.WorkCompletion) -> bool:
        if sent.writes and sent.length and wc.status == wire.SUCCESS and isinstance(sent.note, bytes):
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


class Shortened(DataPath):
    """Posts a request with fewer bytes."""

    def kept(self, sent: Sent) -> int:
        """Returns the number of bytes of the request that are kept."""
        return sent.length

    def sending(self, queue: QueuePair, sent: Sent, request: wire.SendRequest) -> int | None:
        if sent.writes or sent.reads:
            left = self.kept(sent)
            if left < sent.length:
                self.relist(request, left)
                sent.byte_len = sent.length
        return None


class Moved(DataPath):
    """Accesses another place of the region."""

    wrap = 1 << 16

    def sending(self, queue: QueuePair, sent: Sent, request: wire.SendRequest) -> int | None:
        region = self.objects.region(sent.rkey) if sent.writes or sent.reads or sent.atomic else None
        if region and region.place(sent.remote_addr, sent.length) is not None:
            offset = sent.remote_addr - region.iova
            request.remote_addr = region.iova + offset % self.wrap
        return None


# The data of a READ or of a message


class Read(DataPath):
    """Changes the effect of a successful READ. `before` has the contents of the READ's elements before the READ."""

    def sending(self, queue: QueuePair, sent: Sent, request: wire.SendRequest) -> int | None:
        if sent.reads and sent.length:
            sent.note = self.gather(sent.elements)
        return None

    def completed(self, queue: QueuePair, sent: Sent, wc: wire.WorkCompletion) -> bool:
        if sent.reads and sent.length and wc.status == wire.SUCCESS and isinstance(sent.note, bytes):
            self.read(sent, self.gather(sent.elements) or b"", sent.note)
        return True

    def read(self, sent: Sent, arrived: bytes, before: bytes) -> None:
        """Changes the bytes in the elements."""


class Received(DataPath):
    """Changes a received message in the elements of its receive."""

    def received(self, queue: QueuePair, posted: Posted, wc: wire.WorkCompletion) -> None:
        if wc.status == wire.SUCCESS and wc.opcode == 128 and wc.byte_len and None not in posted.before:
            self.message(posted, wc.byte_len)

    def message(self, posted: Posted, length: int) -> None:
        """Changes the message, which has `length` bytes."""


# The returned and stored values of atomics


class Atomic(DataPath):
    """Changes the effect of a successful atomic."""

    def sending(self, queue: QueuePair, sent: Sent, request: wire.SendRequest) -> int | None:
        if sent.atomic:
            sent.note = content_at(self.place(sent), 8)
        return None

    def completed(self, queue: QueuePair, sent: Sent, wc: wire.WorkCompletion) -> bool:
        if sent.atomic and wc.status == wire.SUCCESS and isinstance(sent.note, bytes):
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


# Invalidations


class Invalidating(DataPath):
    """An invalidation that must fail completes with success and does nothing."""

    def nothing(self, sent: Sent) -> bool:
        """Whether the key must not be invalidated."""
        return False

    def sending(self, queue: QueuePair, sent: Sent, request: wire.SendRequest) -> int | None:
        if sent.opcode == wire.LOCAL_INV and self.nothing(sent):
            self.replace(sent, request)
        return None


# Completions


def scribble(wc: wire.WorkCompletion) -> None:
    """Fills the other fields of a completion with an error."""
    if wc.status != wire.SUCCESS:
        wc.opcode, wc.byte_len, wc.imm, wc.flags = 0x7F, 0xDEAD, 0xBEEF, wire.WITH_IMM | wire.WITH_INV
        wc.vendor_err, wc.src_qp, wc.slid = 0x88, 0xABCDEF, 0x1234
