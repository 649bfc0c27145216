"""Has the classes of the data path whose methods mutants replace. A class changes the effect of requests that
the real device executes, refuses requests, or executes requests in place of the real device."""

from __future__ import annotations

from typing import Any

from trial.data_path import structures as wire
from trial.data_path.alteration import DataPath
from trial.data_path.memory import content_at, put
from trial.data_path.objects import Binding, Posted, QueuePair, Region, Sent
from trial.reference.objects import LOCAL_WRITE, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE

PACKET, PAGE = 1024, 4096
HALF = 1 << 32
LOC_PROT_ERR = 4


# Requests that are executed although a key is not valid or a right is missing. The real device refuses such a request;
# the class chooses the address at which the request is executed.


class Granting(DataPath):
    """Executes requests that must be refused. Access is granted to regions and bindings with a state in `ended`: "" is
    the state of a valid object, and each other state is the reason why an object is no longer valid."""

    ended: tuple[str, ...] = ("",)

    def named(self, queue: QueuePair, sent: Sent) -> Region | Binding | None:
        """Returns the region or binding of a request's rkey, if access to it may be granted wrongly."""
        live = self.ended != ("",) and self.objects.valid(sent.rkey)
        if live:
            return None
        return self.objects.region(sent.rkey, self.ended)

    def opens(self, queue: QueuePair, sent: Sent, found: Any) -> bool:
        """Whether the region or binding wrongly grants this request."""
        return False

    def granted(self, queue: QueuePair, sent: Sent) -> int | None:
        """Returns the address at which a request that must be refused is executed, or None."""
        binding = self.named(queue, sent)
        if binding and self.opens(queue, sent, binding):
            return binding.place(sent.remote_addr, sent.length)
        return None

    def from_ended(self, sent: Sent) -> bool:
        """Whether an element has the lkey of a deregistered region, and of no valid region."""
        lkeys = [element.lkey for element in sent.elements]
        return any(
            not self.objects.source(lkey) and self.objects.source(lkey, ("deregistered",))
            for lkey in lkeys
        )

    def into_unwritable(self, sent: Sent) -> bool:
        """Whether an element is in a region without LOCAL_WRITE."""
        regions = (self.objects.source(element.lkey) for element in sent.elements)
        return any(region and not region.access & LOCAL_WRITE for region in regions)

    def sending(self, queue: QueuePair, sent: Sent, request: wire.SendRequest) -> int | None:
        if sent.length and (sent.reads or sent.writes or sent.atomic):
            place = self.granted(queue, sent)
        else:
            place = None
        if place is not None:
            self.carry_out(queue, sent, request, place)
        return None


class Ended(Granting):
    """The key of a deregistered region still works for some requests."""

    ended = ("deregistered",)


class WithoutRight(Granting):
    """Some requests need no right to access a region that contains their range and belongs to the PD of the peer."""

    right = REMOTE_READ

    def named(self, queue: QueuePair, sent: Sent) -> Region | Binding | None:
        if self.right != (
            REMOTE_READ if sent.reads else REMOTE_WRITE if sent.writes else REMOTE_ATOMIC
        ):
            return None
        region = self.objects.region(sent.rkey)
        if region and region.pd == self.peer_pd(queue) and not region.access & self.right:
            return region
        return None

    def opens(self, queue: QueuePair, sent: Sent, found: Any) -> bool:
        return True


# Access by other domains, by other keys, and outside of a range


class OtherDomain(Granting):
    """A queue pair of another PD can use a region for some requests."""

    def named(self, queue: QueuePair, sent: Sent) -> Region | Binding | None:
        region, domain = self.objects.region(sent.rkey), self.peer_pd(queue)
        if region and domain and region.pd != domain:
            return region
        return None


class Beyond(Granting):
    """Requests may exceed the range of a region."""

    right = REMOTE_READ

    def exceeds(self, sent: Sent, offset: int, region: Region) -> bool:
        """Whether a request that exceeds the region is executed; `offset` counts from the region's start."""
        return False

    def granted(self, queue: QueuePair, sent: Sent) -> int | None:
        region = self.objects.region(sent.rkey)
        if region is None or region.pd != self.peer_pd(queue) or not region.access & self.right:
            return None
        offset = sent.remote_addr - region.iova
        if region.place(sent.remote_addr, sent.length) is not None or not self.exceeds(
            sent,
            offset,
            region,
        ):
            return None
        return region.addr + offset


class Iova(Granting):
    """Grants accesses outside of the range of a region with an hca_va; `zero` says whether this hca_va is 0."""

    zero = False

    def shifted(self, remote_addr: int, region: Region) -> int:
        """Returns the address at which the request is executed in place of `remote_addr`."""
        return remote_addr - region.addr + region.iova

    def granted(self, queue: QueuePair, sent: Sent) -> int | None:
        region = self.objects.region(sent.rkey)
        if region is None or region.verb != "reg_mr_iova" or (region.iova == 0) != self.zero:
            return None
        if region.place(sent.remote_addr, sent.length) is not None:
            return None
        return region.place(self.shifted(sent.remote_addr, region), sent.length)


# Access by the key of a window


class ByWindow(Granting):
    """A window grants some requests that must be refused."""

    def named(self, queue: QueuePair, sent: Sent) -> Region | Binding | None:
        return self.objects.binding(sent.rkey, self.ended)


class EndedBinding(ByWindow):
    """A window's key that is no longer valid still works for some requests."""

    ended = ("rebound",)

    def opens(self, queue: QueuePair, sent: Sent, found: Any) -> bool:
        return sent.reads and bool(found.access & REMOTE_READ)

    def named(self, queue: QueuePair, sent: Sent) -> Region | Binding | None:
        if not self.objects.valid(sent.rkey):
            return super().named(queue, sent)
        return None


# Requests that are refused


class Refusing(DataPath):
    """Refuses some requests that the real device would execute."""

    def refused(self, queue: QueuePair, sent: Sent) -> bool:
        """Whether a request is refused."""
        return False

    def sending(self, queue: QueuePair, sent: Sent, request: wire.SendRequest) -> int | None:
        if (sent.reads or sent.writes or sent.atomic) and self.refused(queue, sent):
            self.refuse(sent, request)
        return None


# Refused requests that move bytes


class Refused(DataPath):
    """Moves bytes for a request that the real device has refused."""

    def completed(self, queue: QueuePair, sent: Sent, wc: wire.WorkCompletion) -> bool:
        if wc.status in wire.REFUSED and (sent.reads or sent.writes or sent.atomic):
            self.after_refusal(queue, sent)
        return True

    def after_refusal(self, queue: QueuePair, sent: Sent) -> None:
        """Moves bytes."""

    def leak(self, sent: Sent, length: int) -> None:
        """Fills the requester's elements with the first `length` bytes that a READ has requested."""
        self.scatter(sent.elements, content_at(self.place(sent), min(length, sent.length)) or b"")

    def region_of(self, sent: Sent) -> Region | None:
        """Returns the valid region of the request's rkey."""
        return self.objects.region(sent.rkey)


# The data of a WRITE


class Succeeding(DataPath):
    """Changes the effect of a successful request. `sent.note` has the result of `before` until the completion."""

    def before(self, sent: Sent) -> bytes | None:
        """Returns the present contents of the memory that a request writes; None if the effect is not changed."""
        raise NotImplementedError

    def after_success(self, queue: QueuePair, sent: Sent, before: bytes) -> None:
        """Changes the effect of a request; `before` has the earlier contents of the memory that the request writes."""
        raise NotImplementedError

    def sending(self, queue: QueuePair, sent: Sent, request: wire.SendRequest) -> int | None:
        sent.note = self.before(sent)
        return None

    def completed(self, queue: QueuePair, sent: Sent, wc: wire.WorkCompletion) -> bool:
        if wc.status == wire.SUCCESS and isinstance(sent.note, bytes):
            self.after_success(queue, sent, sent.note)
        return True


class Written(Succeeding):
    """Changes the effect of a successful WRITE. `before` has the bytes of the target before the WRITE."""

    def before(self, sent: Sent) -> bytes | None:
        if sent.writes and sent.length:
            return content_at(self.place(sent), sent.length)
        return None

    def after_success(self, queue: QueuePair, sent: Sent, before: bytes) -> None:
        self.written(queue, sent, self.place(sent), before)

    def written(self, queue: QueuePair, sent: Sent, place: int, before: bytes) -> None:
        """Changes the bytes at `place`."""

    def delay(self, queue: QueuePair, place: int, before: bytes) -> None:
        """Restores the old bytes, and writes the new bytes after the peer's next completion."""
        arrived = content_at(place, len(before))
        if arrived is not None and (peer := self.peer(queue)):
            put(place, before)
            self.after(peer.number, lambda: _put_late(place, before, arrived))


def _put_late(place: int, before: bytes, arrived: bytes) -> None:
    if content_at(place, len(before)) == before:
        put(place, arrived)


class Shortened(DataPath):
    """Posts a request with fewer bytes."""

    def kept(self, sent: Sent) -> int:
        """Returns the number of bytes with which the request is posted."""
        return sent.length

    def sending(self, queue: QueuePair, sent: Sent, request: wire.SendRequest) -> int | None:
        if sent.writes or sent.reads:
            remaining = self.kept(sent)
            if remaining < sent.length:
                self.relist(request, remaining)
                sent.byte_len = sent.length
        return None


class Moved(DataPath):
    """Replaces the offset of an access in its region by the offset modulo `wrap`."""

    wrap = 1 << 16

    def sending(self, queue: QueuePair, sent: Sent, request: wire.SendRequest) -> int | None:
        if sent.writes or sent.reads or sent.atomic:
            region = self.objects.region(sent.rkey)
        else:
            region = None
        if region and region.place(sent.remote_addr, sent.length) is not None:
            offset = sent.remote_addr - region.iova
            request.remote_addr = region.iova + offset % self.wrap
        return None


# The data of a READ or of a message


class Read(Succeeding):
    """Changes the effect of a successful READ. `before` has the contents of the READ's elements before the READ."""

    def before(self, sent: Sent) -> bytes | None:
        if sent.reads and sent.length:
            return self.gather(sent.elements)
        return None

    def after_success(self, queue: QueuePair, sent: Sent, before: bytes) -> None:
        self.read(sent, self.gather(sent.elements) or b"", before)

    def read(self, sent: Sent, arrived: bytes, before: bytes) -> None:
        """Changes the bytes in the elements."""


class Received(DataPath):
    """Changes a received message in the elements of its receive."""

    def received(self, queue: QueuePair, posted: Posted, wc: wire.WorkCompletion) -> None:
        if (
            wc.status == wire.SUCCESS
            and wc.opcode == 128
            and wc.byte_len
            and None not in posted.before
        ):
            self.message(posted, wc.byte_len)

    def message(self, posted: Posted, length: int) -> None:
        """Changes the message, which has `length` bytes."""


# The returned and stored values of atomics


class Atomic(Succeeding):
    """Changes the effect of a successful atomic."""

    def before(self, sent: Sent) -> bytes | None:
        if sent.atomic:
            return content_at(self.place(sent), 8)
        return None

    def after_success(self, queue: QueuePair, sent: Sent, before: bytes) -> None:
        self.done(sent, self.place(sent), int.from_bytes(before, "little"))

    def done(self, sent: Sent, place: int, old: int) -> None:
        """Changes the value at `place`, the returned value, or both; `old` is the value before the atomic."""

    def store(self, place: int, value: int) -> None:
        """Stores a value at `place`."""
        put(place, value.to_bytes(8, "little"))

    def give(self, sent: Sent, value: int) -> None:
        """Writes a value to the requester's elements."""
        self.scatter(sent.elements, value.to_bytes(8, "little"))


# Completions


def scribble(wc: wire.WorkCompletion) -> None:
    """Sets fields of a failed completion to arbitrary values, but not wr_id, status and qp_num."""
    if wc.status != wire.SUCCESS:
        wc.opcode, wc.byte_len, wc.imm, wc.flags = (
            0x7F,
            0xDEAD,
            0xBEEF,
            wire.WITH_IMM | wire.WITH_INV,
        )
        wc.vendor_err, wc.src_qp, wc.slid = 0x88, 0xABCDEF, 0x1234
