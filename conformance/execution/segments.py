"""Executes the script of a `wire` call over iWARP: the peer sends segments in a TCP stream to queue pairs of the device, and
answers its requests. A stream keeps the order, so that a READ behind a segment shows that the device has taken it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.bench.interface import StreamEnd
from conformance.execution.connection import SILENCE_S
from conformance.execution.context import CaseContext
from conformance.execution.script import Connection, Script, fields_of_headers
from conformance.model.case import Step
from conformance.model.script import CLOSED, NOTHING, RESPONSE, Event
from conformance.wire.segments import (
    SEGMENT_HEADERS,
    ParsedSegment,
    Segment,
    fields_of_terminate,
    kind_of,
)

_Connection = Connection[StreamEnd]
_FIELDS = frozenset(field.name for header in SEGMENT_HEADERS for field in header.fields)
_TAKEN = "ACK"  # a segment was executed, or dropped without an error
_READ, _RESPONSE, _TERMINATE = "RDMA_READ_REQUEST", "RDMA_READ_RESPONSE", "TERMINATE"
_RESPONSES = (_RESPONSE, _TERMINATE)
# Where the peer wants the data of its READs: the STag and the offset that the device must name in its response.
_SINK = {"sinkstag": 0x5EED00, "sinkto": 0x1_0000_0000}
# How long the device may take to answer what it must answer, or to close the stream.
_ANSWER_S = 10.0


class SegmentScript(Script[StreamEnd]):
    def __init__(self, context: CaseContext, step: Step) -> None:
        super().__init__(context, step)
        # By connection: the fields of the READ that is being answered.
        self._asked: dict[str, Mapping[str, int]] = {}

    # The peer's segments.

    def _send(self, connection: _Connection, event: Event) -> None:
        self._subject = event.word
        numbers = self._numbers(event)
        segment, content = self._segment(connection, event, numbers)
        if "form" in event.names:
            connection.end.mirrored = False
        connection.end.send(segment, **_frame_faults(event, numbers))
        self._await(connection, event, segment, content)

    def _await(
        self,
        connection: _Connection,
        event: Event,
        segment: Segment,
        content: bytes = b"",
    ) -> None:
        """Waits for the device's answer if the event has `gets`, and notes the answer."""
        gets = event.names.get("gets")
        if not gets:
            return
        seen, data = self._outcome(connection, segment, content)
        more: dict[str, Any] = {}
        if data:
            more["data"] = data
        self._note(event, "answer", seen, gets, **more)

    def _segment(
        self,
        connection: _Connection,
        event: Event,
        numbers: Mapping[str, int],
    ) -> tuple[Segment, bytes]:
        """Returns the segment of an event, and the bytes that a READ must return."""
        operation, end = event.word, connection.end
        fields = fields_of_headers(numbers, _FIELDS)
        content = b""
        if operation == _READ:
            fields = {**_SINK, **fields}
            content = self._content(numbers.get("at", fields["va"]), fields["length"])
        data = b""
        if kind_of(operation).data or "data" in numbers:
            size = numbers.get("data", numbers.get("length", 0))
            data = connection.data(size, end.incomplete, numbers.get("offset"))
        if operation == _TERMINATE and "says" in event.names:
            fields |= fields_of_terminate(event.names["says"][0])
        return Segment(operation, end.numbered(operation, fields, len(data)), data), content

    def _outcome(
        self,
        connection: _Connection,
        segment: Segment,
        content: bytes,
    ) -> tuple[str, int]:
        """Returns a word of ANSWERS, or a description, and the number of bytes that the answer has of the memory."""
        end = connection.end
        if segment.operation == _READ and segment.fields.get("last", 1):
            return self._response(connection, segment.fields, content)
        if not end.incomplete and end.probe():
            return _TAKEN, 0
        refusal = self._next(connection, SILENCE_S)
        if refusal:
            return refusal.name, len(refusal.data) if refusal.operation == _RESPONSE else 0
        return (CLOSED if end.closed else NOTHING), 0

    def _response(
        self,
        connection: _Connection,
        fields: Mapping[str, int],
        content: bytes,
    ) -> tuple[str, int]:
        """Returns the outcome of a READ, which must return `content` to the place that the request names."""
        data, misplaced = b"", False
        segment = self._next(connection, _ANSWER_S)
        while segment and segment.operation == _RESPONSE:
            place = segment.fields.get("rkey"), segment.fields.get("va")
            misplaced |= place != (fields["sinkstag"], (fields["sinkto"] + len(data)) % (1 << 64))
            data += segment.data
            if segment.fields["last"]:
                break
            segment = self._next(connection, _ANSWER_S)
        if segment is None:
            return (CLOSED if connection.end.closed else NOTHING), len(data)
        if segment.operation == _TERMINATE:
            return segment.name, len(data)
        if misplaced:
            return "a response to another place", len(data)
        if len(data) != fields["length"]:
            return f"a response of {len(data)} bytes", len(data)
        if data != content and content:
            return "a response with other bytes", len(data)
        return RESPONSE, len(data)

    # The device's segments.

    def _received(self, connection: _Connection, deadline_s: float) -> ParsedSegment | None:
        segment = connection.end.receive(deadline_s)
        if segment:
            for mistake in segment.wrong:
                self._malformed.append(f"{segment.operation}: {mistake}")
        return segment

    def _next(self, connection: _Connection, deadline_s: float) -> ParsedSegment | None:
        """Returns the next answer of the device; requests of the device are put aside."""
        while segment := self._received(connection, deadline_s):
            if segment.operation in _RESPONSES:
                return segment
            connection.requests.append(segment)
        return None

    def _expect_request(self, connection: _Connection, event: Event) -> None:
        silent = NOTHING in event.words
        if silent:
            connection.end.settle()
        if not connection.requests:
            answer = self._next_request(connection, 0 if silent else _ANSWER_S)
            if answer:
                connection.packets.append(answer)
        if not connection.requests:
            self._note(event, "request", NOTHING, event.words)
            return
        request = connection.requests.popleft()
        if request.operation == _READ:
            self._asked[connection.name] = request.fields
        wrong = self._differences(request, self._numbers(event))
        self._note(event, "request", "; ".join([request.name, *wrong]), event.words)

    def _next_request(self, connection: _Connection, deadline_s: float) -> ParsedSegment | None:
        """Puts the next request of the device aside. Returns an answer that came instead of it."""
        segment = self._received(connection, deadline_s)
        if segment and segment.operation not in _RESPONSES:
            connection.requests.append(segment)
            return None
        return segment

    def _answer_device(self, connection: _Connection, event: Event) -> None:
        numbers, end = self._numbers(event), connection.end
        fields = fields_of_headers(numbers, _FIELDS)
        continues = end.incomplete
        data = connection.data(numbers.get("data", 0), continues, numbers.get("offset"))
        if event.word == _TERMINATE:
            fields |= fields_of_terminate(event.names["says"][0])
        request = self._asked.get(connection.name)
        if request and event.word == _RESPONSE:
            fields.setdefault("rkey", request["sinkstag"])
            fields.setdefault("va", request["sinkto"] + connection.message - len(data))
        segment = Segment(event.word, end.numbered(event.word, fields, len(data)), data)
        end.send(segment, **_frame_faults(event, numbers))
        self._await(connection, event, segment)

    def _take_late(self, connection: _Connection) -> None:
        while segment := self._next(connection, 0):
            connection.packets.append(segment)


def _frame_faults(event: Event, numbers: Mapping[str, int]) -> dict[str, Any]:
    """Returns the arguments of mpa.frame that make the FPDU of an event wrong."""
    faults: dict[str, Any] = {}
    if "crc" in event.names:
        faults["crc"] = event.names["crc"][0]
    if "ulpdu" in numbers:
        faults["length"] = numbers["ulpdu"]
    if "cut" in numbers:
        faults["cut"] = numbers["cut"]
    return faults
