"""Takes the packets of a wire peer at a queue pair of the reference, as the responder of a reliable or an unreliable
connection (InfiniBand Architecture Specification, volume 1, 9.7 to 9.9, as the rules WIRE-… cite it). Each decision is a
method, so that a violation of the reference can replace it."""

from __future__ import annotations

from conformance.device.queue_pairs import DATAGRAM_QKEY
from conformance.wire.opcodes import is_response
from conformance.wire.packet import Parsed
from trial.reference.queues import Queue
from trial.reference.served_packets import (
    ATOMIC_OF,
    NAK_ACCESS,
    NAK_INVALID,
    NOT_READY,
    READ,
    Answer,
    Incoming,
    Refusal,
    ServedPackets,
    base_of,
)

_WORD = 8
_LONGEST = 1 << 31  # bytes of a message
_DATAGRAMS = ("SEND_ONLY", "SEND_ONLY_WITH_IMM")
_SEQUENCE = "NAK_PSN_SEQUENCE"


class Packets(ServedPackets):
    def take(self, queue: Queue, incoming: Incoming, packet: Parsed, distance: int) -> list[Answer]:
        """Executes a packet whose PSN has a distance from the first one. Returns the answers."""
        if queue.state not in ("RTR", "RTS") or self.drops(queue, packet):
            return []
        try:
            return self.executed(queue, incoming, packet, distance)
        except Refusal as refusal:
            nak = str(refusal)
            if nak != NOT_READY:
                incoming.current = ""
            if queue.kind != "RC":
                incoming.dropping = True
                return []
            if nak in (NAK_INVALID, NAK_ACCESS, "NAK_REMOTE_OPERATIONAL"):
                if nak == NAK_ACCESS:
                    queue.events.append("QP_ACCESS_ERR")
                self.fail(queue)
            return [Answer("ACKNOWLEDGE", distance, nak)] if nak else []

    def drops(self, queue: Queue, packet: Parsed) -> bool:
        """Returns whether a packet is dropped without an answer, because it is damaged or for another queue pair."""
        if queue.kind == "UD" and packet.fields.get("qkey") != DATAGRAM_QKEY:
            return True
        wrong = [text for text in packet.wrong if not text.startswith("reserved bits")]
        if wrong or packet.transport != queue.kind or is_response(packet.operation):
            return True
        return not self.is_of_partition(packet)

    def executed(
        self,
        queue: Queue,
        incoming: Incoming,
        packet: Parsed,
        distance: int,
    ) -> list[Answer]:
        if queue.kind == "RC":
            if distance < incoming.expected:
                return self.repeated(queue, incoming, packet, distance)
            if distance > incoming.expected:
                return self.gap(incoming)
        elif queue.kind == "UC" and not self.resumes(incoming, packet, distance):
            return []
        incoming.told_gap = False
        self.check_sequence(incoming, packet)
        self.check_operation(queue, incoming, packet)
        self.check_length(incoming, packet)
        return self.carried_out(queue, incoming, packet, distance)

    def gap(self, incoming: Incoming) -> list[Answer]:
        """Answers a packet after a lost one, once until the lost one arrives."""
        if incoming.told_gap:
            return []
        incoming.told_gap = True
        return [Answer("ACKNOWLEDGE", incoming.expected, _SEQUENCE)]

    def resumes(self, incoming: Incoming, packet: Parsed, distance: int) -> bool:
        """Returns whether an unreliable connection takes a packet: after a lost one, the first packet of a message."""
        starts = packet.operation.endswith(("_FIRST", "_ONLY")) or "_ONLY_" in packet.operation
        lost = distance != incoming.expected
        incoming.expected = distance
        if starts:
            if lost or incoming.dropping:
                incoming.current = ""
            incoming.dropping = False
            return True
        if lost or incoming.dropping:
            incoming.current, incoming.dropping = "", True
            incoming.expected = distance + 1
            return False
        return True

    # What is refused.

    def check_sequence(self, incoming: Incoming, packet: Parsed) -> None:
        """Raises Refusal for a packet that does not continue the message, or that interrupts it."""
        base = base_of(packet.operation)
        continues = "_MIDDLE" in packet.operation or "_LAST" in packet.operation
        if continues != bool(incoming.current) or (continues and base != incoming.current):
            raise Refusal(NAK_INVALID)

    def check_operation(self, queue: Queue, incoming: Incoming, packet: Parsed) -> None:
        """Raises Refusal for an operation that the queue pair does not permit."""
        right = self.right_of(packet)
        if queue.kind == "UD" and packet.operation not in _DATAGRAMS:
            raise Refusal(NAK_INVALID)
        if right is None or queue.access & right != right:
            raise Refusal(NAK_INVALID)
        answered = packet.operation in (READ, *ATOMIC_OF, "FLUSH", "ATOMIC_WRITE")
        if answered and (queue.kind != "RC" or not self.has_resource(incoming)):
            raise Refusal(NAK_INVALID)

    def has_resource(self, incoming: Incoming) -> bool:
        """Returns whether a request with a response can be served."""
        return incoming.resources > 0

    def check_length(self, incoming: Incoming, packet: Parsed) -> None:
        """Raises Refusal for a packet whose data do not fit its place in the message."""
        size, operation = len(packet.data), packet.operation
        length = packet.fields.get("length", 0)
        if length > _LONGEST or size > incoming.mtu:
            raise Refusal(NAK_INVALID)
        if operation.endswith(("_FIRST", "_MIDDLE")) and size != incoming.mtu:
            raise Refusal(NAK_INVALID)
        if "_LAST" in operation and not size:
            raise Refusal(NAK_INVALID)
        if operation == "ATOMIC_WRITE" and not size == length == _WORD:
            raise Refusal(NAK_INVALID)
        if base_of(operation) == "RDMA_WRITE":
            self.check_written(incoming, packet)

    def check_written(self, incoming: Incoming, packet: Parsed) -> None:
        """Raises Refusal for a WRITE whose data are not as long as its first packet says."""
        total = len(packet.data)
        if "va" in packet.fields:
            first = packet
        else:
            assert incoming.request is not None
            first = incoming.request
            total += len(incoming.data)
        length = first.fields["length"]
        if packet.operation.endswith(("_FIRST", "_MIDDLE")):
            if total >= length:
                raise Refusal(NAK_INVALID)
        elif total != length:
            raise Refusal(NAK_INVALID)
