"""Executes the script of a `wire` call: sends packets to queue pairs of the device, issues calls between the packets, and
records what the device answers, what completes, and which bytes change. judging/wire.py judges the record."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, cast

from conformance.bench.interface import Memory, WirePair
from conformance.bench.memory_areas import changed_ranges, pattern
from conformance.bench.work_requests import Completion, SendRequest
from conformance.execution.connection import SILENCE_S, state_of
from conformance.execution.context import CaseContext, told
from conformance.model.case import Step
from conformance.model.observation import EventSeen, Observation
from conformance.model.script import ANYTHING, CALL, NOTHING, REFUSAL, RESPONSE, Event
from conformance.wire.headers import HEADERS
from conformance.wire.opcodes import SYNDROMES, is_response, operation_of
from conformance.wire.packet import Packet, Parsed
from conformance.wire.sequence import PSNS, psn_distance

_FIELDS = frozenset(field.name for header in HEADERS for field in header.fields)
_WORD = 8
_AT_ONCE_S = 0.001  # the wait for a completion of what has been processed already
_UNJUDGED = (NOTHING, REFUSAL, ANYTHING)
# The operations whose data continue those of the packet before.
_CONTINUED = ("_MIDDLE", "_LAST")
_WHOLE_PACKETS = ("_FIRST", "_MIDDLE")
# Requests of which the peer wants an acknowledgement.
_UNANSWERED = ("_FIRST", "_MIDDLE")
_MORE_FOLLOWS = ("RDMA_READ_RESPONSE_FIRST", "RDMA_READ_RESPONSE_MIDDLE")
_ATOMICS = ("COMPARE_SWAP", "FETCH_ADD")
_PERIOD = 127
_FILL = bytes(1 + (number * 5) % _PERIOD for number in range(_PERIOD))


def _fill(number: int, size: int) -> bytes:
    """Returns the contents of a case's memory before the script. No byte is one of `pattern`, and each memory differs."""
    start = number * 29 % _PERIOD
    rotated = _FILL[start:] + _FILL[:start]
    return (rotated * (size // _PERIOD + 1))[:size]


class _Sent:
    """A packet that was sent: the event, the packet, and the distance of its PSN from the first."""

    def __init__(self, event: Event, packet: Packet, offset: int, at: int, length: int) -> None:
        self.event, self.packet, self.offset = event, packet, offset
        self.at, self.length = at, length
        self.numbers: Mapping[str, int] = {}  # those of the event, as they were then
        self.content = b""  # what the range had when the packet was sent


class _Connection:
    """The state of a script on one queue pair."""

    def __init__(self, name: str, pair: WirePair) -> None:
        self.name, self.pair = name, pair
        self.end, self.queue = pair.end, pair.responder
        self.offset = 0  # of the next request's PSN
        self.message = 0  # the number of bytes of the message that earlier packets had
        self.requests: deque[Parsed] = deque()  # of the device, not answered yet
        self.posted: list[int] = []
        self.sent_completions: list[Completion] = []
        self.receive_completions: list[Completion] = []
        self.last_request = 0  # the PSN of the device's last request
        self.packets: list[Parsed] = []  # not awaited by an event
        # By the distance of its PSN: a request that had no answer yet, and what was noted about it.
        self.open: dict[int, tuple[_Sent, EventSeen]] = {}

    def poll(self, deadline_s: float) -> bool:
        """Sorts the next completion into sends and receives. Returns whether there was one."""
        completions = self.queue.completions(1, deadline_s)
        for completion in completions:
            if completion.wr_id in self.posted:
                self.sent_completions.append(completion)
            else:
                self.receive_completions.append(completion)
        return bool(completions)


class _Script:
    def __init__(self, context: CaseContext, step: Step) -> None:
        self._context = context
        self._default = str(step.arguments["qp"])
        self._connections: dict[str, _Connection] = {}
        self._sent: list[_Sent] = []
        self._expected: list[tuple[int, bytes]] = []  # addresses, and the bytes that they get
        self._free: list[tuple[int, int]] = []  # addresses and sizes of ranges that may change
        self._seen: list[EventSeen] = []
        self._wrong: list[str] = []
        self._before: dict[str, bytes] = {}
        self._subject = ""  # the last operation that the peer sent or the device posted

    def run(self, events: Sequence[Event]) -> Observation:
        self._fill()
        for event in events:
            connection = self._connection(event.qp or self._default)
            if event.kind == CALL:
                self._call(event)
            elif event.kind == "op":
                self._send(connection, event)
            else:
                _HANDLERS[event.kind](self, connection, event)
        return self._observation()

    def _connection(self, name: str) -> _Connection:
        if name not in self._connections:
            pair = cast(WirePair, self._context.pairs[name])
            self._connections[name] = _Connection(name, pair)
        return self._connections[name]

    def _memories(self) -> dict[str, Memory]:
        context = self._context
        return {**context.memory, **context.dmabufs, **context.buffers}

    def _fill(self) -> None:
        for number, (name, memory) in enumerate(self._memories().items()):
            content = _fill(number, memory.size)
            ctypes.memmove(memory.addr, content, memory.size)
            self._before[name] = content

    def _numbers(self, event: Event) -> dict[str, int]:
        return {key: self._context.bytes(value) for key, value in event.numbers.items()}

    def _note(
        self,
        event: Event,
        what: str,
        seen: str,
        expected: Sequence[str],
        **more: Any,
    ) -> None:
        entry: EventSeen = {
            "event": str(event),
            "what": what,
            "operation": event.word if event.kind in ("op", "sends") else self._subject,
            "expected": list(expected),
            "seen": seen,
            **more,  # type: ignore[typeddict-item]
        }
        self._seen.append(entry)

    def _call(self, event: Event) -> None:
        from conformance.execution.procedure import succeeded_step

        assert event.step is not None
        succeeded_step(self._context, event.step)

    # The peer's packets.

    def _send(self, connection: _Connection, event: Event) -> None:
        self._subject = event.word
        sent, wrong = self._packet(connection, event)
        self._sent.append(sent)
        if event.names.get("lost"):
            return
        sent.content = sent.content or self._content(sent.at, sent.length)
        connection.end.send(sent.packet, **wrong)
        gets = event.names.get("gets")
        if gets:
            self._await_answer(connection, sent, gets)

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
        offset = numbers.get("psn", connection.offset)
        if not repeated:
            connection.offset = (offset + self._psns(operation, fields)) % PSNS
        fields["psn"] = (connection.end.first_psn + offset) % PSNS
        packet = Packet(transport, operation, fields, data)
        wrong: dict[str, Any] = {key: numbers[key] for key in ("cut", "padding") if key in numbers}
        if "icrc" in names:
            wrong["crc"] = names["icrc"][0]
        elif operation == "FLUSH":
            wrong["crc"] = connection.end.flush_icrc
        if operation in _ATOMICS:
            length = _WORD
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
            size = _WORD
        elif operation.endswith(_WHOLE_PACKETS):
            size = connection.end.mtu
        else:
            size = numbers.get("length", 0)
        size = numbers.get("data", size)
        continues = any(part in operation for part in _CONTINUED)
        if continues:
            start = connection.message
        else:
            start = 0
        start = numbers.get("offset", start)
        connection.message = start + size
        return pattern(start + size)[start:]

    def _fields(
        self,
        connection: _Connection,
        operation: str,
        numbers: Mapping[str, int],
        data: int,
    ) -> dict[str, int]:
        fields = {key: value for key, value in numbers.items() if key in _FIELDS}
        if "addr" in numbers:
            fields["va"] = numbers["addr"]
        fields.setdefault("length", data)
        fields.setdefault("qpn", connection.end.destination)
        fields.setdefault("ackreq", int(not operation.endswith(_UNANSWERED)))
        if connection.queue.kind == "UD":
            fields.setdefault("qkey", connection.end.qkey)
            fields.setdefault("srcqp", connection.end.number)
        if operation == "COMPARE_SWAP" and "compare" not in numbers:
            here = self._content(numbers.get("at", fields.get("va", 0)), _WORD)
            fields["compare"] = int.from_bytes(here, "little")
        return fields

    def _psns(self, operation: str, fields: Mapping[str, int]) -> int:
        if operation != "RDMA_READ_REQUEST":
            return 1
        mtu = self._connections[self._default].end.mtu
        return max(1, -(-fields["length"] // mtu))

    def _content(self, at: int, length: int) -> bytes:
        """Returns the bytes of a range that is in the case's memory; no bytes for any other range."""
        for memory in self._memories().values():
            if memory.addr <= at and at + length <= memory.addr + memory.size:
                return ctypes.string_at(at, length)
        return b""

    # The device's answers.

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
            for mistake in packet.wrong:
                self._wrong.append(f"{packet.operation}: {mistake}")
        return packet

    def _await_answer(self, connection: _Connection, sent: _Sent, gets: Sequence[str]) -> None:
        silent_is_right = any(word in _UNJUDGED for word in gets)
        if silent_is_right:
            connection.end.settle()
        packets: list[Parsed] = []
        packet = self._next(connection, 0 if silent_is_right else SILENCE_S)
        while packet:
            if not self._is_late(connection, sent, packet):
                packets.append(packet)
                if packet.operation not in _MORE_FOLLOWS:
                    break
            waits = packets or not silent_is_right
            packet = self._next(connection, SILENCE_S if waits else 0)
        self._note(sent.event, "answer", NOTHING, gets)
        if packets:
            self._answered(connection, sent, packets, self._seen[-1])
        else:
            connection.open[sent.offset] = (sent, self._seen[-1])

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
        return packet.name == "ACK" and distance < sent.offset and "again" not in sent.event.numbers

    def _add_late(self, connection: _Connection, packet: Parsed) -> bool:
        earlier = connection.open.pop(self._distance(connection, packet), None)
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
            original = last.fields["original"].to_bytes(_WORD, "little")
            right = original == sent.content
            return RESPONSE if right else "a response with another value", _WORD
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

    # The device's requests.

    def _post(self, connection: _Connection, event: Event) -> None:
        from conformance.bench.calls import Sge, errno_name
        from conformance.errors import SetupRefused

        numbers, wr_id = self._numbers(event), self._context.next_wr_id()
        sges: tuple[Sge, ...] = ()
        if "addr" in numbers:
            sges = (Sge(numbers["addr"], numbers.get("length", 0), numbers.get("lkey", 0)),)
        request = SendRequest(
            event.word,
            wr_id,
            sges,
            remote_addr=numbers.get("to", 0),
            rkey=numbers.get("rkey", 0),
            imm=numbers.get("imm", 0),
            invalidate_rkey=numbers.get("inv", 0),
            compare_add=numbers.get("compare", 0),
            swap=numbers.get("swap", 0),
        )
        self._subject = event.word
        connection.posted.append(wr_id)
        returned = connection.queue.post_send(request)
        if returned.value:
            raise SetupRefused(f"posting {event.word}", errno_name(returned.value))

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

    def _sends(self, connection: _Connection, event: Event) -> None:
        silent = NOTHING in event.words
        packet = self._request(connection, 0 if silent else SILENCE_S)
        if packet:
            seen = packet.name
        else:
            seen = NOTHING
        wrong: list[str] = []
        if packet:
            connection.last_request = packet.fields["psn"]
            numbers = self._numbers(event)
            wanted = {"va" if key == "addr" else key: value for key, value in numbers.items()}
            if "psn" in wanted:
                wanted["psn"] = (connection.end.device_psn + wanted["psn"]) % PSNS
            if "data" in wanted:
                wanted["data"] = wanted["data"] % PSNS
            present = {**packet.fields, "data": len(packet.data)}
            for key, value in wanted.items():
                if present.get(key) != value:
                    wrong.append(f"{key} {present.get(key, 0):#x} instead of {value:#x}")
        self._note(event, "request", "; ".join([seen, *wrong]), event.words)

    def _answer_device(self, connection: _Connection, event: Event) -> None:
        numbers, names = self._numbers(event), event.names
        if connection.requests or not connection.last_request:
            packet = self._request(connection, SILENCE_S)
            if packet:
                connection.last_request = packet.fields["psn"]
        operation = event.word
        size = numbers.get("data", 0)
        fields = {key: value for key, value in numbers.items() if key in _FIELDS}
        if "says" in names:
            fields["syndrome"] = SYNDROMES[names["says"][0]]
        fields.setdefault("syndrome", SYNDROMES["ACK"])
        fields.setdefault("qpn", connection.end.destination)
        offset = numbers.get("psn", 0)
        fields["psn"] = (connection.last_request + offset) % PSNS
        continues = any(part in operation for part in _CONTINUED)
        if continues:
            start = connection.message
        else:
            start = 0
        connection.message = start + size
        transport = names.get("transport", (connection.queue.kind,))[0]
        packet_out = Packet(transport, operation, fields, pattern(start + size)[start:])
        wrong: dict[str, Any] = {key: numbers[key] for key in ("cut", "padding") if key in numbers}
        if "icrc" in names:
            wrong["crc"] = names["icrc"][0]
        connection.end.send(packet_out, **wrong)

    # The device's side.

    def _completion(self, connection: _Connection, event: Event, sends: bool) -> Completion | None:
        if sends:
            queue = connection.sent_completions
        else:
            queue = connection.receive_completions
        deadline_s = SILENCE_S
        if NOTHING in event.words:
            connection.end.settle()
            deadline_s = _AT_ONCE_S
        while not queue and connection.poll(deadline_s):
            pass
        if queue:
            return queue.pop(0)
        return None

    def _completes(self, connection: _Connection, event: Event) -> None:
        completion = self._completion(connection, event, sends=True)
        if completion:
            seen = completion.status
        else:
            seen = NOTHING
        self._note(event, "completion", seen, event.words)

    def _receives(self, connection: _Connection, event: Event) -> None:
        completion = self._completion(connection, event, sends=False)
        if completion:
            seen = completion.status
        else:
            seen = NOTHING
        pairs: dict[str, list[int | None]] = {}
        if completion and completion.status == "SUCCESS":
            told_ = {
                "length": completion.byte_len,
                "imm": completion.imm,
                "inv": completion.invalidated_rkey,
            }
            for key, value in self._numbers(event).items():
                pairs[key] = [told_[key], value]
        self._note(event, "receive", seen, event.words, **({"fields": pairs} if pairs else {}))

    def _state(self, connection: _Connection, event: Event) -> None:
        connection.end.settle()
        seen = state_of(connection.pair, connection.queue)
        if seen:
            self._note(event, "state", seen, event.words)

    def _changed(self, connection: _Connection, event: Event) -> None:
        numbers = self._numbers(event)
        at = numbers["changed"]
        if "holds" in numbers or "add" in numbers:
            value = numbers.get("holds", 0)
            if "add" in numbers:
                old = int.from_bytes(self._original(at, _WORD), "little")
                value = (old + numbers["add"]) % (1 << 64)
            self._expected.append((at, value.to_bytes(_WORD, "little")))
            return
        start, length = numbers.get("offset", 0), numbers["length"]
        self._expected.append((at, pattern(start + length)[start:]))

    def _may_change(self, connection: _Connection, event: Event) -> None:
        numbers = self._numbers(event)
        self._free.append((numbers["may_change"], numbers["length"]))

    def _original(self, at: int, length: int) -> bytes:
        for name, memory in self._memories().items():
            if memory.addr <= at and at + length <= memory.addr + memory.size:
                start = at - memory.addr
                return self._before[name][start : start + length]
        raise LookupError(f"{length} bytes at {at:#x} are outside the case's memory")

    # The end.

    def _observation(self) -> Observation:
        for connection in self._connections.values():
            self._drain(connection)
        observation = told()
        observation |= {"layer": "device", "exchange": self._seen}
        stray, missing = self._changes()
        if stray:
            observation["stray"] = stray
        if missing:
            observation["missing"] = missing
        if self._wrong:
            observation["wrong_packets"] = sorted(set(self._wrong))
        unasked = [
            f"{connection.name}: {packet.name}"
            for connection in self._connections.values()
            for packet in connection.packets
        ]
        if unasked:
            observation["unasked"] = unasked
        announced = [
            f"{connection.name}: {completion.opcode} of {completion.byte_len} bytes"
            for connection in self._connections.values()
            for completion in connection.receive_completions
            if completion.status == "SUCCESS"
        ]
        if announced:
            observation["announced"] = announced
        return observation

    def _drain(self, connection: _Connection) -> None:
        connection.end.settle()
        while packet := self._next(connection, 0):
            if not self._add_late(connection, packet):
                connection.packets.append(packet)
        before = -1
        while before != len(connection.sent_completions) + len(connection.receive_completions):
            before = len(connection.sent_completions) + len(connection.receive_completions)
            connection.poll(_AT_ONCE_S)

    def _changes(self) -> tuple[list[list[Any]], list[list[Any]]]:
        """Returns the ranges that changed but should not, and those that have not the expected bytes, each as memory,
        offset and size."""
        stray: list[list[Any]] = []
        missing: list[list[Any]] = []
        for name, memory in self._memories().items():
            expected = bytearray(self._before[name])
            touched: list[tuple[int, int]] = []
            for at, content in self._expected:
                start = at - memory.addr
                if start >= 0 and start + len(content) <= memory.size:
                    expected[start : start + len(content)] = content
                    touched.append((start, start + len(content)))
            actual = ctypes.string_at(memory.addr, memory.size)
            for at, size in self._free:
                start = at - memory.addr
                if start >= 0 and start + size <= memory.size:
                    expected[start : start + size] = actual[start : start + size]
            for start, size in changed_ranges(actual, bytes(expected)):
                inside = any(begin <= start < end for begin, end in touched)
                (missing if inside else stray).append([name, start, size])
        return stray, missing


_HANDLERS = {
    "answer": _Script._answer_device,
    "post": _Script._post,
    "sends": _Script._sends,
    "completes": _Script._completes,
    "receives": _Script._receives,
    "state": _Script._state,
    "changed": _Script._changed,
    "may_change": _Script._may_change,
}


def wire(context: CaseContext, step: Step) -> Observation:
    """Executes a script. Raises SetupRefused if a call between the packets is refused, and PeerLost."""
    return _Script(context, step).run(cast(Sequence[Event], step.arguments["packets"]))


def silent() -> Observation:
    """Returns what is observed of a device that does not answer the peer's first packet, whatever the script is."""
    first = Packet("RC", "RDMA_WRITE_ONLY")
    entry: EventSeen = {
        "event": f"op {first.operation}(data=8)",
        "what": "answer",
        "operation": first.operation,
        "expected": ["ACK"],
        "seen": NOTHING,
    }
    return told() | {"layer": "device", "exchange": [entry]}
