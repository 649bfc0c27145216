"""Serves the requests of a wire peer at the reference: executes the packets that packets.py has checked, and repeats the
answers to repeated requests."""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass, field

from conformance.bench.work_requests import SendRequest
from conformance.wire.packet import DEFAULT_PKEY, Parsed
from conformance.wire.sequence import place_of
from conformance.wire.statuses import STATUS_OF_NAK
from trial.reference.access import RIGHTS
from trial.reference.objects import Window
from trial.reference.queues import SUCCESS, Queue
from trial.reference.work import Work

_PARTITION = 0x7FFF  # the bits of a P_Key without the membership
_WORD = 8
NOT_READY = "RNR_NAK"
_NAK_OF_STATUS = {status: nak for nak, status in STATUS_OF_NAK.items()} | {
    "RNR_RETRY_EXC_ERR": NOT_READY,
}
NAK_INVALID, NAK_ACCESS = "NAK_INVALID_REQUEST", "NAK_REMOTE_ACCESS"
READ = "RDMA_READ_REQUEST"
ATOMIC_OF = {"COMPARE_SWAP": "ATOMIC_CMP_AND_SWP", "FETCH_ADD": "ATOMIC_FETCH_AND_ADD"}
_FLUSHES = {
    (1, 0): "FLUSH_GLOBAL",
    (2, 0): "FLUSH_PERSISTENT",
    (3, 0): "FLUSH_BOTH",
    (1, 1): "FLUSH_GLOBAL_MR",
    (2, 1): "FLUSH_PERSISTENT_MR",
    (3, 1): "FLUSH_BOTH",
}
_OF_DATA = ("SEND", "RDMA_WRITE")


@dataclass
class Served:
    """A request with a response, for its repetition: the distance of its first PSN and its number of PSNs, its packet,
    and the old value of an atomic."""

    first: int
    count: int
    packet: Parsed
    original: int = 0


@dataclass
class Incoming:
    """The responder's state of a connection. `mtu` is the most bytes of a packet, and `expected` the distance of the next
    PSN from the first. `current` is the operation of the message that is not complete, `data` its bytes so far, and
    `request` its first packet."""

    resources: int
    mtu: int
    expected: int = 0
    completed: int = 0  # the number of messages
    current: str = ""
    data: bytes = b""
    request: Parsed | None = None
    told_gap: bool = False
    dropping: bool = False
    served: deque[Served] = field(default_factory=deque)


@dataclass(frozen=True)
class Answer:
    """A packet of the responder: the operation, the distance of its PSN, the syndrome, data, and an atomic's value."""

    operation: str
    distance: int
    syndrome: str = "ACK"
    data: bytes = b""
    original: int = 0


class Refusal(Exception):
    """Raised with the NAK of a request; empty for a request without an answer."""


class ServedPackets(Work):
    def right_of(self, packet: Parsed) -> int | None:
        """Returns the rights that an operation needs; None for an operation that responders do not have."""
        operation = packet.operation
        if operation == "FLUSH":
            name = _FLUSHES.get((packet.fields["plt"], packet.fields["sel"]), "")
        else:
            name = {READ: "RDMA_READ", "ATOMIC_WRITE": "ATOMIC_WRITE", **ATOMIC_OF}.get(
                operation, base_of(operation)
            )
        if name == "SEND":
            return 0
        return RIGHTS.get(name)

    def is_of_partition(self, packet: Parsed) -> bool:
        """Returns whether the partition key of a packet is that of the device."""
        return packet.fields["pkey"] & _PARTITION == DEFAULT_PKEY & _PARTITION

    def carried_out(
        self,
        queue: Queue,
        incoming: Incoming,
        packet: Parsed,
        distance: int,
    ) -> list[Answer]:
        answers = self.answers_of(queue, incoming, packet, distance)
        incoming.completed += self.completed_by(packet)
        return answers

    def completed_by(self, packet: Parsed) -> int:
        """Returns the number of messages that a packet ends, by which the MSN of answers grows."""
        return int(not packet.operation.endswith(("_FIRST", "_MIDDLE")))

    def answers_of(
        self,
        queue: Queue,
        incoming: Incoming,
        packet: Parsed,
        distance: int,
    ) -> list[Answer]:
        if packet.operation == READ:
            return self.read_packet(queue, incoming, packet, distance)
        if packet.operation in ATOMIC_OF:
            return self.atomic_packet(queue, incoming, packet, distance)
        if packet.operation in ("FLUSH", "ATOMIC_WRITE"):
            return self.word_packet(queue, incoming, packet, distance)
        return self.data_packet(queue, incoming, packet, distance)

    def bytes_of(self, queue: Queue, packet: Parsed, length: int, right: int) -> int:
        """Returns the address of the range of a request. Raises Refusal."""
        if not length:
            return 0
        fields = packet.fields
        at = self.remote(fields["rkey"], queue.domain, queue.number, fields["va"], length, right)
        if at is None:
            raise Refusal(NAK_ACCESS)
        return at

    def read_packet(
        self,
        queue: Queue,
        incoming: Incoming,
        packet: Parsed,
        distance: int,
    ) -> list[Answer]:
        content = self.read_content(queue, packet)
        responses = _responses(content, distance, incoming.mtu)
        self.remember(incoming, Served(distance, len(responses), packet))
        return responses

    def read_content(self, queue: Queue, packet: Parsed) -> bytes:
        length = packet.fields["length"]
        at = self.bytes_of(queue, packet, length, RIGHTS["RDMA_READ"])
        content = self.memory.read(at, length) if length else b""
        if content is None:
            raise Refusal(NAK_ACCESS)
        return content

    def remember(self, incoming: Incoming, served: Served) -> None:
        """Keeps a request for its repetition, in place of the oldest one; the next request follows its responses."""
        incoming.expected = served.first + served.count
        incoming.served.append(served)
        while len(incoming.served) > max(1, incoming.resources):
            incoming.served.popleft()

    def atomic_packet(
        self,
        queue: Queue,
        incoming: Incoming,
        packet: Parsed,
        distance: int,
    ) -> list[Answer]:
        fields = packet.fields
        if fields["va"] % _WORD:
            raise Refusal(NAK_INVALID)
        right = RIGHTS["ATOMIC_FETCH_AND_ADD"]
        at = self.bytes_of(queue, packet, _WORD, right)
        before = self.memory.read(at, _WORD)
        if before is None or not self.memory.fault_in(at, _WORD, write=True):
            raise Refusal(NAK_ACCESS)
        original = int.from_bytes(before, sys.byteorder)
        add, compare = fields["swap"], fields["compare"]
        if packet.operation == "COMPARE_SWAP":
            add = compare
        request = SendRequest(
            ATOMIC_OF[packet.operation],
            0,
            compare_add=add,
            swap=fields["swap"],
        )
        after = self.atomic_result(request, original) % (1 << 64)
        self.memory.write(at, after.to_bytes(_WORD, sys.byteorder))
        self.remember(incoming, Served(distance, 1, packet, original))
        return [Answer("ATOMIC_ACKNOWLEDGE", distance, original=original)]

    def word_packet(
        self,
        queue: Queue,
        incoming: Incoming,
        packet: Parsed,
        distance: int,
    ) -> list[Answer]:
        """Executes FLUSH and ATOMIC WRITE, whose response has no data."""
        if packet.operation == "ATOMIC_WRITE" and packet.fields["va"] % _WORD:
            raise Refusal(NAK_INVALID)
        self.flush_or_write(queue, packet)
        self.remember(incoming, Served(distance, 1, packet))
        return [Answer("RDMA_READ_RESPONSE_ONLY", distance)]

    def flush_or_write(self, queue: Queue, packet: Parsed) -> None:
        right = self.right_of(packet) or 0
        length = packet.fields["length"]
        if packet.operation == "FLUSH" and packet.fields["sel"]:
            self.check_region(queue, packet, right)
            return
        at = self.bytes_of(queue, packet, length, right)
        persists = right & RIGHTS["FLUSH_PERSISTENT"]
        if persists and at and not self.is_persistent(at, length):
            raise Refusal(NAK_ACCESS)
        if packet.operation == "ATOMIC_WRITE" and not self.memory.write(at, packet.data):
            raise Refusal(NAK_ACCESS)

    def check_region(self, queue: Queue, packet: Parsed, right: int) -> None:
        """Raises Refusal for a FLUSH of a whole region that the key does not permit. Its address does not count."""
        key = packet.fields["rkey"]
        target = self.found(key)
        if isinstance(target, Window):
            start = self.window_base(target)
        elif target is None:
            raise Refusal(NAK_ACCESS)
        else:
            start = target.iova
        if self.remote(key, queue.domain, queue.number, start, 0, right) is None:
            raise Refusal(NAK_ACCESS)

    def data_packet(
        self,
        queue: Queue,
        incoming: Incoming,
        packet: Parsed,
        distance: int,
    ) -> list[Answer]:
        """Executes a packet of a SEND or a WRITE."""
        base, operation = base_of(packet.operation), packet.operation
        starts = not incoming.current
        if starts:
            incoming.request, incoming.data = packet, b""
        takes_receive = starts if base == "SEND" else "imm" in packet.fields
        if takes_receive and not queue.receives:
            raise Refusal(NOT_READY)
        if base == "RDMA_WRITE":
            self.write_packet(queue, incoming, packet)
        incoming.data += packet.data
        more = operation.endswith(("_FIRST", "_MIDDLE"))
        if not more:
            self.complete_message(queue, incoming, packet)
        incoming.current = base if more else ""
        incoming.expected = distance + 1
        if queue.kind == "RC" and packet.fields["ackreq"]:
            return [Answer("ACKNOWLEDGE", distance)]
        return []

    def write_packet(self, queue: Queue, incoming: Incoming, packet: Parsed) -> None:
        """Writes the data of one packet; the key must open the whole range of the message with every packet."""
        request = incoming.request
        assert request is not None
        at = self.bytes_of(queue, request, request.fields["length"], RIGHTS["RDMA_WRITE"])
        if packet.data and not self.memory.write(at + len(incoming.data), packet.data):
            raise Refusal(NAK_ACCESS)

    def complete_message(self, queue: Queue, incoming: Incoming, packet: Parsed) -> None:
        """Consumes a receive for the last packet of a SEND, or of a WRITE with immediate data. Raises Refusal."""
        imm, key = packet.fields.get("imm"), packet.fields.get("inv")
        writes = base_of(packet.operation) == "RDMA_WRITE"
        if writes and imm is None:
            return
        if key is not None and not self.remote_invalidate(key, queue):
            raise Refusal(NAK_ACCESS)
        content = None if writes else incoming.data
        peer = Queue(0, queue.kind, queue.domain, False, 0, "RTS")
        peer.peer = queue
        status = self.deliver(peer, content, imm, len(incoming.data))
        if key is not None and status == SUCCESS:
            last = queue.polled.pop()
            queue.polled.append(last._replace(invalidated_rkey=self.reported_key(key)))
        if status != SUCCESS:
            raise Refusal(_NAK_OF_STATUS.get(status, ""))

    # Repeated requests.

    def repeated(
        self,
        queue: Queue,
        incoming: Incoming,
        packet: Parsed,
        distance: int,
    ) -> list[Answer]:
        """Answers a request whose PSN was served before."""
        if base_of(packet.operation) in _OF_DATA:
            return [Answer("ACKNOWLEDGE", incoming.expected - 1)]
        served = self.served_before(incoming, packet, distance)
        if served is None or not self.still_permitted(queue, packet):
            return []
        if packet.operation in ATOMIC_OF:
            return [Answer("ATOMIC_ACKNOWLEDGE", distance, original=served.original)]
        try:
            if packet.operation == READ:
                return _responses(self.read_content(queue, packet), distance, incoming.mtu)
            if packet.operation == "FLUSH":
                self.flush_or_write(queue, packet)
        except Refusal:
            return []  # what the request needs has ended
        return [Answer("RDMA_READ_RESPONSE_ONLY", distance)]

    def still_permitted(self, queue: Queue, packet: Parsed) -> bool:
        """Returns whether the queue pair still permits a repeated operation."""
        right = self.right_of(packet)
        return right is not None and queue.access & right == right

    def served_before(self, incoming: Incoming, packet: Parsed, distance: int) -> Served | None:
        """Returns the request that a packet repeats: the same operation, key and range, or for a READ a part of it."""
        for served in incoming.served:
            if not served.first <= distance < served.first + served.count:
                continue
            if self.repeats(incoming, served, packet, distance):
                return served
        return None

    def repeats(
        self,
        incoming: Incoming,
        served: Served,
        packet: Parsed,
        distance: int,
    ) -> bool:
        fields, before = packet.fields, served.packet.fields
        if packet.operation != served.packet.operation:
            return False
        if packet.operation in ATOMIC_OF:
            return (fields["rkey"], fields["va"]) == (before["rkey"], before["va"])
        skipped = (distance - served.first) * incoming.mtu
        same_key = fields["rkey"] == before["rkey"] or not fields["length"]
        inside = fields["length"] + skipped <= before["length"]
        return same_key and fields["va"] == before["va"] + skipped and inside


def base_of(operation: str) -> str:
    for base in _OF_DATA:
        if operation.startswith(
            (f"{base}_FIRST", f"{base}_MIDDLE", f"{base}_LAST", f"{base}_ONLY")
        ):
            return base
    return operation


def _responses(content: bytes, distance: int, mtu: int) -> list[Answer]:
    starts = range(0, max(1, len(content)), mtu)
    answers: list[Answer] = []
    for number, start in enumerate(starts):
        place = place_of(number, len(starts))
        part = content[start : start + mtu]
        answers.append(Answer(f"RDMA_READ_RESPONSE_{place}", distance + number, data=part))
    return answers
