"""Sends requests of a reliable or an unreliable connection of the reference as packets, and takes the answers of a wire
peer (InfiniBand Architecture Specification, volume 1, 9.7.7 and 9.9.2, as the rule WIRE-06 cites it). Each decision is
a method, so that a violation of the reference can replace it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from conformance.bench.work_requests import SendRequest
from conformance.device.wire_messages import Message
from conformance.verbs import ENUMS
from conformance.wire.opcodes import SYNDROMES, name_of_syndrome
from conformance.wire.packet import Packet, Parsed
from conformance.wire.sequence import place_of
from conformance.wire.statuses import BAD_ANSWER, FLUSHED, STATUS_OF_NAK, STATUS_OF_REPEATED
from trial.reference.packets import Packets
from trial.reference.queues import ATOMICS, SUCCESS, Queue

_WORD = 8
_FLAGS = ENUMS["ibv_send_flags"]
_FENCE, INLINE = _FLAGS.value_of("FENCE"), _FLAGS.value_of("INLINE")
_REPEATED = "NAK_PSN_SEQUENCE"
_WITHOUT_LIMIT = 7  # as rnr_retry
_ACKNOWLEDGED = SYNDROMES["ACK"]
_TIMER = 0x1F  # the bits of a syndrome of RNR NAK
_FIRST_HALVES = 4


@dataclass
class Sent:
    """A request that is not answered completely: its packets, and the bytes of its response that have arrived."""

    message: Message
    arrived: bytes = b""
    parts: int = 0  # the number of packets of the response that have arrived

    @property
    def request(self) -> SendRequest:
        return self.message.request


@dataclass
class Local:
    """A request without packets, such as a bind, and its execution."""

    request: SendRequest
    execute: Callable[[], object]


@dataclass
class Outgoing:
    """The requester's state of a connection: how often a request may be sent again, also after RNR NAK, how many READs
    and atomics may wait for an answer, the most bytes of a packet, whether a timer sends again what has no answer, the
    distance of the next PSN from the first one, the requests without an answer, those that are not sent yet, and the
    seconds that RNR NAKs have cost."""

    repetitions: int
    not_ready: int
    most: int
    mtu: int
    has_timer: bool = False
    next: int = 0
    waiting: deque[Sent] = field(default_factory=deque)
    posted: deque[Sent | Local] = field(default_factory=deque)
    delays_s: float = 0.0

    def __post_init__(self) -> None:
        self._of_each = self.repetitions, self.not_ready

    def pop_answered(self) -> Sent:
        """Removes the oldest request. The next one may be sent again as often."""
        self.repetitions, self.not_ready = self._of_each
        return self.waiting.popleft()


class SentPackets(Packets):
    def send_packets(self, queue: Queue, outgoing: Outgoing, request: SendRequest) -> list[Packet]:
        """Posts a request that the queue pair can have. Returns its packets, each with the distance of its PSN."""
        if queue.state == "ERR":
            self.complete(queue, request, FLUSHED)
            return []
        message = Message(request, queue.kind, outgoing.mtu, outgoing.next)
        needs_key = message.packets[0].data and not request.flags & INLINE
        if needs_key and self.gather(queue, request.sges) is None:
            self.complete(queue, request, "LOC_PROT_ERR")
            return []
        outgoing.next = message.end
        if queue.kind == "RC":
            outgoing.posted.append(Sent(message))
            return self.released(outgoing)
        self.complete(queue, request, SUCCESS)
        return _numbered(message, message.first)

    def released(self, outgoing: Outgoing) -> list[Packet]:
        """Returns the packets of the posted requests that need not wait for a response."""
        packets: list[Packet] = []
        while outgoing.posted:
            sent = outgoing.posted[0]
            responses = sum(_reads(earlier) for earlier in outgoing.waiting)
            if isinstance(sent, Local):
                if self.is_fenced_here(sent, responses):
                    break
                outgoing.posted.popleft()
                sent.execute()
                continue
            if self.is_fenced(sent, responses) or self.exceeds(sent, responses, outgoing.most):
                break
            outgoing.posted.popleft()
            outgoing.waiting.append(sent)
            packets += _numbered(sent.message, sent.message.first)
        return packets

    def is_fenced(self, sent: Sent, responses: int) -> bool:
        """Returns whether a request waits because of its fence; `responses` are those that are missing."""
        return bool(sent.request.flags & _FENCE and responses)

    def is_fenced_here(self, local: Local, responses: int) -> bool:
        """Returns whether a request without packets waits because of its fence."""
        return bool(local.request.flags & _FENCE and responses)

    def exceeds(self, sent: Sent, responses: int, most: int) -> bool:
        """Returns whether a READ or an atomic waits because `most` responses are missing."""
        return _reads(sent) and responses >= most

    def traffic_class(self, queue: Queue, asked: int, answers: bool) -> int:
        """Returns the traffic class of a queue pair's packets; `answers` are those of its responder."""
        return asked

    def timed_out(self, queue: Queue, outgoing: Outgoing) -> list[Packet]:
        """Returns what is sent again when no answer comes."""
        if not (outgoing.has_timer and outgoing.waiting):
            return []
        return self.send_again(queue, outgoing, _REPEATED, outgoing.waiting[0].message.first)

    def not_ready_s(self, timer: int) -> float:
        """Returns the least time in seconds after an RNR NAK with a timer (InfiniBand Architecture Specification, volume 1,
        table of 9.7.5.2.8): the even ones double, and each odd one from 3 on is one and a half of the one before."""
        number = timer or 32
        if number < _FIRST_HALVES:
            return number * 1e-5
        return (1 << number // 2) * (3 if number % 2 else 2) / 2 * 1e-5

    def take_answer(
        self,
        queue: Queue,
        outgoing: Outgoing,
        packet: Parsed,
        distance: int,
    ) -> list[Packet]:
        """Takes an answer whose PSN has a distance from the first one. Returns the packets that are sent again."""
        if packet.wrong or packet.transport != "RC" or not self.is_of_partition(packet):
            return []
        if not self.is_awaited(outgoing, distance):
            return []
        if packet.operation != "ACKNOWLEDGE":
            return self.take_response(queue, outgoing, packet, distance)
        name = packet.name
        if name == "ACK":
            self.acknowledge_until(queue, outgoing, distance + 1)
        elif name in STATUS_OF_NAK:
            self.acknowledge_until(queue, outgoing, distance)
            self.fail_request(queue, outgoing, self.status_of(name))
        elif name in STATUS_OF_REPEATED:
            if name == "RNR_NAK" and outgoing.not_ready:
                outgoing.not_ready -= outgoing.not_ready != _WITHOUT_LIMIT
                outgoing.delays_s += self.not_ready_s(packet.fields["syndrome"] & _TIMER)
                self.acknowledge_until(queue, outgoing, distance)
                return self.from_on(outgoing, distance)
            return self.send_again(queue, outgoing, name, distance)
        return []

    def is_awaited(self, outgoing: Outgoing, distance: int) -> bool:
        """Returns whether an answer is one of a request that was sent and that is not answered yet."""
        if not outgoing.waiting:
            return False
        return outgoing.waiting[0].message.first <= distance < outgoing.waiting[-1].message.end

    def status_of(self, nak: str) -> str:
        return STATUS_OF_NAK[nak]

    def acknowledge_until(self, queue: Queue, outgoing: Outgoing, until: int) -> None:
        """Completes the requests before a distance that need only an acknowledgement."""
        while outgoing.waiting and outgoing.waiting[0].message.end <= until:
            if not self.is_complete(outgoing.waiting[0]):
                return
            self.complete(queue, outgoing.pop_answered().request, SUCCESS)

    def is_complete(self, sent: Sent) -> bool:
        """Returns whether an acknowledged request has its data."""
        return not sent.message.has_response

    def send_again(
        self,
        queue: Queue,
        outgoing: Outgoing,
        nak: str,
        distance: int,
    ) -> list[Packet]:
        """Returns the packets from a distance on, or fails the request if it may not be sent again."""
        self.acknowledge_until(queue, outgoing, distance)
        if nak != _REPEATED or not outgoing.repetitions:
            self.fail_request(queue, outgoing, STATUS_OF_REPEATED[nak])
            return []
        outgoing.repetitions -= 1
        return self.from_on(outgoing, distance)

    def from_on(self, outgoing: Outgoing, distance: int) -> list[Packet]:
        """Returns the packets without an answer from a distance on."""
        packets: list[Packet] = []
        for sent in outgoing.waiting:
            packets += _numbered(sent.message, max(distance, sent.message.first))
        return packets

    def fail_request(self, queue: Queue, outgoing: Outgoing, status: str) -> None:
        """Fails the oldest request, and flushes the later ones."""
        for sent in (*outgoing.waiting, *outgoing.posted):
            self.complete(queue, sent.request, status)
            status = FLUSHED
        outgoing.waiting.clear()
        outgoing.posted.clear()

    # Responses with data.

    def take_response(
        self,
        queue: Queue,
        outgoing: Outgoing,
        packet: Parsed,
        distance: int,
    ) -> list[Packet]:
        """Takes a packet of a response. Returns the request for the rest if packets before this one are missing."""
        sent = outgoing.waiting[0]
        number = distance - sent.message.first
        if not self.is_next_part(sent, number):
            return self.ask_again(outgoing, sent, number)
        if not self.answers(sent, packet) or not self.fits(sent, packet):
            self.fail_request(queue, outgoing, BAD_ANSWER)
            return []
        sent.arrived += self.response_of(packet)
        sent.parts += 1
        if self.is_last_part(sent, packet):
            self.place_response(queue, outgoing)
        return []

    def ask_again(self, outgoing: Outgoing, sent: Sent, number: int) -> list[Packet]:
        """Returns the READ of the bytes that have not arrived, if a later packet of the response has."""
        if sent.request.opcode != "RDMA_READ" or number <= sent.parts or not outgoing.repetitions:
            return []
        outgoing.repetitions -= 1
        (first,) = sent.message.packets
        fields = {
            **first.fields,
            "psn": sent.message.first + sent.parts,
            "va": first.fields["va"] + len(sent.arrived),
            "length": sent.message.length - len(sent.arrived),
        }
        return [Packet(first.transport, first.operation, fields, b"")]

    def is_next_part(self, sent: Sent, number: int) -> bool:
        """Returns whether a packet is the next one of the response to the oldest request."""
        return sent.message.has_response and number == sent.parts

    def answers(self, sent: Sent, packet: Parsed) -> bool:
        """Returns whether the operation of a response is that of its place in the response to the request, and its
        syndrome, if it has one, an acknowledgement."""
        syndrome = packet.fields.get("syndrome", _ACKNOWLEDGED)
        if name_of_syndrome(syndrome) != "ACK":
            return False
        if sent.request.opcode in ATOMICS:
            return packet.operation == "ATOMIC_ACKNOWLEDGE"
        place = place_of(sent.parts, sent.message.psns)
        return packet.operation == f"RDMA_READ_RESPONSE_{place}"

    def fits(self, sent: Sent, packet: Parsed) -> bool:
        """Returns whether a packet of a response has as many bytes as its place needs."""
        if sent.request.opcode != "RDMA_READ":
            return not packet.data
        rest = sent.message.length - len(sent.arrived)
        return len(packet.data) == min(sent.message.mtu, rest)

    def response_of(self, packet: Parsed) -> bytes:
        if packet.operation == "ATOMIC_ACKNOWLEDGE":
            return packet.fields["original"].to_bytes(_WORD, "little")
        return packet.data

    def is_last_part(self, sent: Sent, packet: Parsed) -> bool:
        return sent.parts == sent.message.psns

    def place_response(self, queue: Queue, outgoing: Outgoing) -> None:
        """Writes a complete response to the elements of the oldest request, if their regions still permit this."""
        sent = outgoing.waiting[0]
        if sent.arrived and not self.scatter(queue, sent.request.sges, sent.arrived):
            self.fail_request(queue, outgoing, "LOC_PROT_ERR")
            return
        self.complete(queue, outgoing.pop_answered().request, SUCCESS)


def _reads(sent: Sent) -> bool:
    return sent.request.opcode in ("RDMA_READ", *ATOMICS)


def _numbered(message: Message, start: int) -> list[Packet]:
    """Returns the packets of a message from a distance on; `psn` is the distance."""
    packets: Sequence[Packet] = message.packets[start - message.first :]
    numbered: list[Packet] = []
    for number, packet in enumerate(packets, start):
        fields = {**packet.fields, "psn": number}
        numbered.append(Packet(packet.transport, packet.operation, fields, packet.data))
    return numbered
