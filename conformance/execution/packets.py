"""Executes the script of a `wire` call over RoCE: the peer sends packets to queue pairs of the device, and answers its
requests."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from conformance.bench.interface import WireEnd
from conformance.execution.connection import SILENCE_S
from conformance.execution.context import CaseContext
from conformance.execution.script import WORD, Connection, Script, fields_of_headers
from conformance.model.case import Step
from conformance.model.observation import EventSeen
from conformance.model.script import ANYTHING, NOTHING, REFUSAL, RESPONSE, Event
from conformance.wire.headers import HEADERS
from conformance.wire.opcodes import SYNDROMES, is_response, operation_of
from conformance.wire.packet import DEFAULT_PKEY, WRONG_ICRC, Packet, Parsed
from conformance.wire.sequence import PSNS, psn_distance

_Connection = Connection[WireEnd]
_FIELDS = frozenset(field.name for header in HEADERS for field in header.fields)
_UNJUDGED = (NOTHING, REFUSAL, ANYTHING)
# The operations whose data continue those of the packet before.
_CONTINUED = ("_MIDDLE", "_LAST")
_WHOLE_PACKETS = ("_FIRST", "_MIDDLE")
# Requests of which the peer wants an acknowledgement.
_UNANSWERED = ("_FIRST", "_MIDDLE")
_MORE_FOLLOWS = ("RDMA_READ_RESPONSE_FIRST", "RDMA_READ_RESPONSE_MIDDLE")
_ATOMICS = ("COMPARE_SWAP", "FETCH_ADD")
# An answer is awaited so often, each time for so many seconds and then until the sentinel is acknowledged.
_LOOKS, _LOOK_S = 5, 0.02
_TICK_S = 0.01  # the coarsest clock of a kernel, by which a timer may end too soon


class _Sent:
    """A packet that was sent: the event, the packet, and the distance of its PSN from the first."""

    def __init__(self, event: Event, packet: Packet, offset: int, at: int, length: int) -> None:
        self.event, self.packet, self.offset = event, packet, offset
        self.at, self.length = at, length
        self.numbers: Mapping[str, int] = {}  # those of the event, as they were then
        self.content = b""  # what the range had when the packet was sent
        self.awaited = 0  # the distance of the PSN that the device awaited before


class _Sequence:
    """The numbers of a connection."""

    def __init__(self) -> None:
        self.offset = 0  # of the next request's PSN
        self.awaited = 0  # of the PSN that the device awaits
        self.last_request: int | None = None  # the PSN of the device's last request
        # By the distance of its PSN: a request that had no answer yet, and what was noted about it.
        self.open: dict[int, tuple[_Sent, EventSeen]] = {}
        # Distances of requests of which the script awaits no answer. The device may acknowledge them all the same (IBA
        # 9.7.5.1.2).
        self.unasked: set[int] = set()


class PacketScript(Script[WireEnd]):
    receive_s = _LOOKS * _LOOK_S

    def __init__(self, context: CaseContext, step: Step) -> None:
        super().__init__(context, step)
        self._sent: list[_Sent] = []
        self._states: dict[str, _Sequence] = {}
        self._answered_s = 0.0  # the time just before the peer's last answer

    def _sequence(self, connection: _Connection) -> _Sequence:
        return self._states.setdefault(connection.name, _Sequence())

    def _begin_anew(self, name: str) -> None:
        super()._begin_anew(name)
        self._states.pop(name, None)

    def _send(self, connection: _Connection, event: Event) -> None:
        self._subject = event.word
        sent, wrong = self._packet(connection, event)
        self._sent.append(sent)
        if event.names.get("lost"):
            return
        sent.content = sent.content or self._content(sent.at, sent.length)
        sequence = self._sequence(connection)
        sent.awaited = sequence.awaited
        if sent.offset == sequence.awaited:
            sequence.awaited += self._psns(event.word, sent.packet.fields)
        connection.end.send(sent.packet, **wrong)
        gets = event.names.get("gets")
        if gets:
            self._await_answer(connection, sent, gets)
        else:
            sequence.unasked.add(sent.offset)

    def _packet(self, connection: _Connection, event: Event) -> tuple[_Sent, dict[str, Any]]:
        """Returns a packet of an event, and the arguments of `build` that make it wrong."""
        numbers, names, operation = self._numbers(event), dict(event.names), event.word
        repeated = numbers.pop("again", 0)
        if repeated:
            first = self._sent[repeated - 1]
            numbers = {**first.numbers, **numbers}
            numbers.setdefault("psn", first.offset)
            names = {**first.event.names, **names}
            names.pop("lost", None)
        transport = names.get("transport", (connection.queue.kind,))[0]
        data = self._data(connection, operation, numbers)
        fields = self._fields(connection, operation, numbers, len(data))
        offset = numbers.get("psn", self._sequence(connection).offset)
        if not repeated:
            self._sequence(connection).offset = (offset + self._psns(operation, fields)) % PSNS
        fields["psn"] = (connection.end.first_psn + offset) % PSNS
        packet = Packet(transport, operation, fields, data)
        wrong: dict[str, Any] = {key: numbers[key] for key in ("cut", "padding") if key in numbers}
        if "icrc" in names:
            wrong["crc"] = names["icrc"][0]
        elif operation == "FLUSH":
            wrong["crc"] = connection.end.flush_icrc
        if operation in _ATOMICS:
            length = WORD
        else:
            length = fields.get("length", 0)
        at = numbers.get("at", fields.get("va", 0))
        sent = _Sent(event, packet, offset, at, length)
        sent.numbers = numbers
        if repeated and operation in _ATOMICS:
            sent.content = first.content  # the value that the first answer had
        return sent, wrong

    def _data(self, connection: _Connection, operation: str, numbers: Mapping[str, int]) -> bytes:
        if not operation_of(operation).data and "data" not in numbers:
            return b""
        if operation == "ATOMIC_WRITE":
            size = WORD
        elif operation.endswith(_WHOLE_PACKETS):
            size = connection.end.mtu
        else:
            size = numbers.get("length", 0)
        size = numbers.get("data", size)
        continues = any(part in operation for part in _CONTINUED)
        return connection.data(size, continues, numbers.get("offset"))

    def _fields(
        self,
        connection: _Connection,
        operation: str,
        numbers: Mapping[str, int],
        data: int,
    ) -> dict[str, int]:
        fields = fields_of_headers(numbers, _FIELDS)
        fields.setdefault("length", data)
        fields.setdefault("qpn", connection.end.destination)
        fields.setdefault("ackreq", int(not operation.endswith(_UNANSWERED)))
        if connection.queue.kind == "UD":
            fields.setdefault("qkey", connection.end.qkey)
            fields.setdefault("srcqp", connection.end.number)
        if operation == "COMPARE_SWAP" and "compare" not in numbers:
            here = self._content(numbers.get("at", fields.get("va", 0)), WORD)
            fields["compare"] = int.from_bytes(here, sys.byteorder)
        return fields

    def _psns(self, operation: str, fields: Mapping[str, int]) -> int:
        if operation != "RDMA_READ_REQUEST":
            return 1
        mtu = self._connections[self._default].end.mtu
        return max(1, -(-fields["length"] // mtu))

    def _next(self, connection: _Connection, deadline_s: float) -> Parsed | None:
        """Returns the next answer of the device; requests of the device are put aside."""
        while packet := self._received(connection, deadline_s):
            if is_response(packet.operation):
                return packet
            connection.requests.append(packet)
        return None

    def _received(self, connection: _Connection, deadline_s: float) -> Parsed | None:
        """Returns the next packet of the device, and records its mistakes."""
        packet = connection.end.receive(deadline_s)
        if packet:
            wrong = [*packet.wrong]
            if packet.operation == "FLUSH" and connection.end.flush_icrc and WRONG_ICRC in wrong:
                wrong.remove(WRONG_ICRC)  # a row of WIRE-07 judges it
            if packet.fields.get("pkey", DEFAULT_PKEY) != DEFAULT_PKEY:  # the only one of RoCE
                wrong.append(f"partition key {packet.fields['pkey']:#06x}")
            for mistake in wrong:
                self._malformed.append(f"{packet.operation}: {mistake}")
        return packet

    def _await_answer(self, connection: _Connection, sent: _Sent, gets: Sequence[str]) -> None:
        silent_is_right = any(word in _UNJUDGED for word in gets)
        if silent_is_right:
            connection.end.settle()
        packets: list[Parsed] = []
        while packet := self._next_awaited(connection, bool(packets) or not silent_is_right):
            if not self._is_late(connection, sent, packet):
                packets.append(packet)
                if packet.operation not in _MORE_FOLLOWS:
                    break
        self._note(sent.event, "answer", NOTHING, gets)
        if packets:
            self._answered(connection, sent, packets, self._seen[-1])
        else:
            self._sequence(connection).open[sent.offset] = (sent, self._seen[-1])

    def _next_awaited(self, connection: _Connection, waits: bool) -> Parsed | None:
        """Returns the next answer of the device. If it `waits`, None means that the device has processed many later
        messages without an answer."""
        looks = _LOOKS if waits else 0
        for _ in range(looks):
            if packet := self._next(connection, _LOOK_S):
                return packet
            connection.end.settle()
        return self._next(connection, 0)

    def _answered(
        self,
        connection: _Connection,
        sent: _Sent,
        packets: Sequence[Parsed],
        entry: EventSeen,
    ) -> None:
        """Adds an answer to what was noted about a request."""
        entry["seen"], data = self._answer(sent, packets)
        if data:
            entry["data"] = data
        if "psn" in packets[-1].fields:
            entry["psn"] = self._distance(connection, packets[-1]) - sent.offset
            entry["length"] = self._psns(sent.packet.operation, sent.packet.fields)
            fields: dict[str, list[int | None]] = {}
            if "counts" in sent.event.numbers:
                right = self._context.bytes(sent.event.numbers["counts"])
                fields["msn"] = [packets[-1].fields.get("msn"), right]
            if "tclass" in sent.event.numbers:
                right = self._context.bytes(sent.event.numbers["tclass"])
                classes = [packet.fields.get("tclass") for packet in packets]
                others = [number for number in classes if number != right]
                fields["tclass"] = [others[0] if others else right, right]
            if fields:
                entry["fields"] = fields
            if entry["seen"] == "NAK_PSN_SEQUENCE":
                entry["gap"] = self._distance(connection, packets[-1]) - sent.awaited

    def _distance(self, connection: _Connection, packet: Parsed) -> int:
        """Returns the distance of a packet's PSN from the first."""
        return psn_distance(packet.fields.get("psn", 0), connection.end.first_psn)

    def _is_late(self, connection: _Connection, sent: _Sent, packet: Parsed) -> bool:
        """Whether a packet answers an earlier request, to which it is then added: the sentinel on another connection
        does not prove that the device has already sent each answer on this one. An acknowledgement of an earlier PSN
        is that of an earlier packet."""
        distance = self._distance(connection, packet)
        if distance != sent.offset and self._add_late(connection, packet):
            return True
        if packet.name != "ACK" or distance >= sent.offset:
            return False
        unasked = distance in self._sequence(connection).unasked
        return unasked or "again" not in sent.event.numbers

    def _add_late(self, connection: _Connection, packet: Parsed) -> bool:
        earlier = self._sequence(connection).open.pop(self._distance(connection, packet), None)
        if earlier is None:
            return False
        self._answered(connection, earlier[0], [packet], earlier[1])
        return True

    def _answer(self, sent: _Sent, packets: Sequence[Parsed]) -> tuple[str, int]:
        """Returns a word of ANSWERS, or a description, and the number of bytes that the answer has of the memory."""
        if not packets:
            return NOTHING, 0
        data = b"".join(packet.data for packet in packets)
        last = packets[-1]
        if last.operation == "ATOMIC_ACKNOWLEDGE":
            original = last.fields["original"].to_bytes(WORD, sys.byteorder)
            right = original == sent.content
            return RESPONSE if right else "a response with another value", WORD
        if not last.operation.startswith("RDMA_READ_RESPONSE"):
            return last.name, len(data)
        if not last.operation.endswith(("_LAST", "_ONLY")):
            return f"a response that ends after {len(data)} bytes", len(data)
        if sent.packet.operation == "RDMA_READ_REQUEST":
            wanted = sent.content
        else:
            wanted = b""
        if data == wanted:
            return RESPONSE, len(data)
        if len(data) != len(wanted):
            return f"a response of {len(data)} bytes", len(data)
        return "a response with other bytes", len(data)

    def _request(self, connection: _Connection, deadline_s: float) -> Parsed | None:
        """Returns the device's oldest request that no event has taken."""
        while not connection.requests:
            packet = self._received(connection, deadline_s)
            if packet is None:
                return None
            if is_response(packet.operation):
                connection.packets.append(packet)
            else:
                connection.requests.append(packet)
        return connection.requests.popleft()

    def _expect_request(self, connection: _Connection, event: Event) -> None:
        silent = NOTHING in event.words or connection.is_in_error
        if silent:
            connection.end.settle()
        least_s = self._numbers(event).get("after", 0) / 1000
        packet = self._request(connection, 0 if silent else SILENCE_S + least_s)
        waited_s = connection.end.time_s() - self._answered_s
        if packet:
            seen = packet.name
        else:
            seen = NOTHING
        wrong: list[str] = []
        if packet:
            self._sequence(connection).last_request = packet.fields["psn"]
            wrong = self._mistakes_in(connection, packet, event)
            if waited_s + _TICK_S < least_s:
                wrong.append(f"sooner than after {least_s * 1000:.0f} ms")
        self._note(event, "request", "; ".join([seen, *wrong]), event.words)

    def _mistakes_in(self, connection: _Connection, packet: Parsed, event: Event) -> list[str]:
        """Returns what a request of the device has that is not as the event says, in words."""
        numbers = self._numbers(event)
        if "psn" in numbers:
            numbers["psn"] = (connection.end.device_psn + numbers["psn"]) % PSNS
        if "rest" in event.names:
            arrived = psn_distance(packet.fields["psn"], connection.end.device_psn)
            numbers["addr"] += arrived * connection.end.mtu
            numbers["length"] -= arrived * connection.end.mtu
        return self._differences(packet, numbers)

    def _receives(self, connection: _Connection, event: Event) -> None:
        arrived = connection.receive_completions or NOTHING in event.words
        if not arrived and not connection.poll(_LOOK_S):
            connection.end.settle()  # only packets that were sent before complete a receive
        super()._receives(connection, event)

    def _answer_device(self, connection: _Connection, event: Event) -> None:
        numbers, names = self._numbers(event), event.names
        sequence = self._sequence(connection)
        if connection.requests or sequence.last_request is None:
            packet = self._request(connection, SILENCE_S)
            if packet:
                sequence.last_request = packet.fields["psn"]
        operation = event.word
        size = numbers.get("data", 0)
        fields = {key: value for key, value in numbers.items() if key in _FIELDS}
        if "says" in names:
            fields["syndrome"] = SYNDROMES[names["says"][0]]
        fields.setdefault("syndrome", SYNDROMES["ACK"])
        fields.setdefault("qpn", connection.end.destination)
        offset = numbers.get("psn", 0)
        fields["psn"] = ((sequence.last_request or 0) + offset) % PSNS
        continues = any(part in operation for part in _CONTINUED)
        transport = names.get("transport", (connection.queue.kind,))[0]
        data = connection.data(size, continues, numbers.get("offset"))
        packet_out = Packet(transport, operation, fields, data)
        wrong: dict[str, Any] = {key: numbers[key] for key in ("cut", "padding") if key in numbers}
        if "icrc" in names:
            wrong["crc"] = names["icrc"][0]
        self._answered_s = connection.end.time_s()
        connection.end.send(packet_out, **wrong)

    def _take_late(self, connection: _Connection) -> None:
        while packet := self._next(connection, 0):
            unasked = self._distance(connection, packet) in self._sequence(connection).unasked
            if not self._add_late(connection, packet) and not (packet.name == "ACK" and unasked):
                connection.packets.append(packet)
