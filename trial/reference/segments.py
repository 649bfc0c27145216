"""Takes the segments of a wire peer at a queue pair of the reference, and sends those of its requests (RFC 5040, 5041 and
5044, as the rules WIRE-09 to WIRE-15 cite them). Each decision is a method, so that a violation of the reference can
replace it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from conformance.bench.calls import Sge
from conformance.bench.work_requests import Completion, SendRequest
from conformance.wire.segments import (
    VERSION,
    ParsedSegment,
    Segment,
    fields_of_terminate,
    kind_of,
)
from trial.reference.access import RIGHTS
from trial.reference.queues import FLUSHED, SUCCESS, Queue
from trial.reference.sent_packets import SentPackets

_OFFSETS = 1 << 64
_READ, _RESPONSE, _WRITE = "RDMA_READ_REQUEST", "RDMA_READ_RESPONSE", "RDMA_WRITE"
_SENDS = ("SEND", "SEND_WITH_INV", "SEND_WITH_SE", "SEND_WITH_SE_AND_INV")
_OF_QUEUE = {0: _SENDS, 1: (_READ,), 2: ("TERMINATE",)}


@dataclass
class Asked:
    """An RDMA READ of the device, and how many bytes of its response have arrived."""

    request: SendRequest
    arrived: int = 0


@dataclass
class StreamState:
    """The device's state of a stream. `numbers` are those of the next message of each queue, of the peer and of the device;
    `current` is the operation of the message that is not complete, by whether it is tagged; `data` are the bytes of the
    untagged one."""

    numbers: dict[int, int] = field(default_factory=lambda: {0: 1, 1: 1, 2: 1})
    sent: dict[int, int] = field(default_factory=lambda: {0: 1, 1: 1})
    current: dict[bool, str] = field(default_factory=dict)
    data: bytes = b""
    asked: deque[Asked] = field(default_factory=deque)
    ended: bool = False


class Ended(Exception):
    """Raised with the error that ends a stream; empty if no Terminate message says it."""


class Segments(SentPackets):
    def take_segment(
        self,
        queue: Queue,
        stream: StreamState,
        segment: ParsedSegment,
        mistakes: tuple[str, ...],
    ) -> list[Segment]:
        """Executes a segment; `mistakes` are those of its FPDU. Returns the answers."""
        if stream.ended:
            return []
        try:
            self.check_form(segment, mistakes)
            self.check_message(stream, segment)
            return self.segment_executed(queue, stream, segment)
        except Ended as error:
            self.end_stream(queue, stream)
            return self.terminates(str(error))

    def terminates(self, error: str) -> list[Segment]:
        if not error:
            return []
        return [Segment("TERMINATE", {**fields_of_terminate(error), "msn": 1})]

    def end_stream(self, queue: Queue, stream: StreamState) -> None:
        stream.ended = True
        self.fail(queue)
        while stream.asked:
            self.complete(queue, stream.asked.popleft().request, FLUSHED)

    # What ends the stream.

    def check_form(self, segment: ParsedSegment, mistakes: tuple[str, ...]) -> None:
        """Raises Ended for a segment that is damaged, or that has another form than its operation."""
        if mistakes:
            raise Ended("MPA_CRC")
        fields = segment.fields
        if fields.get("dv") != VERSION:
            raise Ended("DDP_TAGGED_VERSION" if fields.get("tagged") else "DDP_UNTAGGED_VERSION")
        if fields["rv"] != VERSION:
            raise Ended("RDMAP_VERSION")
        if not segment.operation or segment.operation.startswith("RESERVED"):
            raise Ended("RDMAP_UNEXPECTED_OPCODE")
        if any("cut" in text for text in segment.wrong):
            raise Ended("MPA_FPDU")
        queue = kind_of(segment.operation).queue
        if fields["tagged"] != int(queue is None):
            raise Ended("RDMAP_UNEXPECTED_OPCODE")
        if segment.data and not kind_of(segment.operation).data:
            raise Ended("DDP_TOO_LONG")

    def check_message(self, stream: StreamState, segment: ParsedSegment) -> None:
        """Raises Ended for a segment that does not continue its message, or that is not the next one of its queue."""
        fields, queue = segment.fields, kind_of(segment.operation).queue
        current = stream.current.get(queue is None, "")
        if current and current != segment.operation:
            raise Ended("RDMAP_UNEXPECTED_OPCODE")
        if queue is None:
            return
        if segment.operation not in _OF_QUEUE.get(fields["qn"], ()):
            raise Ended("DDP_INVALID_QN")
        if fields["msn"] != stream.numbers[queue]:
            raise Ended("DDP_MSN_RANGE")
        if fields["mo"] != (len(stream.data) if current else 0):
            raise Ended("DDP_INVALID_MO")

    def tagged_range(
        self,
        queue: Queue,
        fields: Mapping[str, int],
        length: int,
        right: int,
        layer: str,
    ) -> int:
        """Returns the address of a range. Raises Ended with the error of the layer."""
        if not length:
            return 0
        target = self.found(fields["rkey"])
        if target is None:
            raise Ended(f"{layer}_INVALID_STAG")
        if target.domain is not queue.domain:
            raise Ended(f"{layer}_NOT_ASSOCIATED")
        if target.access & right != right:
            raise Ended("RDMAP_ACCESS_RIGHTS")
        if fields["va"] + length > _OFFSETS:
            raise Ended(f"{layer}_TO_WRAP")
        arguments = fields["rkey"], queue.domain, queue.number, fields["va"], length, right
        at = self.remote(*arguments)
        if at is None:
            raise Ended(f"{layer}_BASE_BOUNDS")
        return at

    # What a segment does.

    def segment_executed(
        self,
        queue: Queue,
        stream: StreamState,
        segment: ParsedSegment,
    ) -> list[Segment]:
        operation, fields = segment.operation, segment.fields
        answers: list[Segment] = []
        if operation == "TERMINATE":
            raise Ended("")
        if operation == _READ:
            answers = [self.read_response(queue, segment)]
        elif operation == _WRITE:
            self.write_segment(queue, segment)
        elif operation == _RESPONSE:
            self.take_read_response(queue, stream, segment)
        else:
            self.send_segment(queue, stream, segment)
        last, kind = fields["last"], kind_of(operation)
        stream.current[kind.queue is None] = "" if last else operation
        if last and kind.queue is not None:
            stream.numbers[kind.queue] += 1
        return answers

    def read_response(self, queue: Queue, segment: ParsedSegment) -> Segment:
        fields = segment.fields
        length = fields["length"]
        at = self.tagged_range(queue, fields, length, RIGHTS["RDMA_READ"], "RDMAP")
        content = self.memory.read(at, length) if length else b""
        if content is None:
            raise Ended("RDMAP_BASE_BOUNDS")
        return Segment(_RESPONSE, {"rkey": fields["sinkstag"], "va": fields["sinkto"]}, content)

    def write_segment(self, queue: Queue, segment: ParsedSegment) -> None:
        size, right = len(segment.data), RIGHTS["RDMA_WRITE"]
        at = self.tagged_range(queue, segment.fields, size, right, "DDP")
        if size and not self.memory.write(at, segment.data):
            raise Ended("DDP_BASE_BOUNDS")

    def send_segment(self, queue: Queue, stream: StreamState, segment: ParsedSegment) -> None:
        if not queue.receives:
            raise Ended("DDP_NO_BUFFER")
        if not stream.current.get(False):
            stream.data = b""
        stream.data += segment.data
        wr_id, sges = queue.receives[0]
        if len(stream.data) > sum(sge.length for sge in sges):
            queue.receives.popleft()
            queue.polled.append(Completion(wr_id, "LOC_LEN_ERR"))
            raise Ended("DDP_TOO_LONG")
        if segment.fields["last"]:
            self.complete_send(queue, stream, segment)
            return
        rest, parts = len(stream.data), list[Sge]()
        for sge in sges:
            parts.append(sge._replace(length=min(rest, sge.length)))
            rest -= parts[-1].length
        self.scatter(queue, [sge for sge in parts if sge.length], stream.data)

    def complete_send(self, queue: Queue, stream: StreamState, segment: ParsedSegment) -> None:
        key = segment.fields["inv"]
        if "INV" in segment.operation and not self.remote_invalidate(key, queue):
            raise Ended("RDMAP_CANNOT_INVALIDATE")
        peer = Queue(0, queue.kind, queue.domain, False, 0, "RTS")
        peer.peer = queue
        if self.deliver(peer, stream.data, None, len(stream.data)) != SUCCESS:
            raise Ended("DDP_CATASTROPHIC")

    def take_read_response(
        self,
        queue: Queue,
        stream: StreamState,
        segment: ParsedSegment,
    ) -> None:
        if not stream.asked:
            raise Ended("DDP_CATASTROPHIC")
        asked, size = stream.asked[0], len(segment.data)
        sink = asked.request.sges[0]
        end = asked.arrived + size
        place = segment.fields["rkey"], segment.fields["va"]
        if place != (sink.lkey, sink.addr + asked.arrived):
            self.fail_read(queue, stream, "BAD_RESP_ERR", "DDP_BASE_BOUNDS")
        if end > sink.length or (segment.fields["last"] and end < sink.length):
            self.fail_read(queue, stream, "LOC_LEN_ERR", "DDP_BASE_BOUNDS")
        part = Sge(sink.addr + asked.arrived, size, sink.lkey)
        if size and not self.scatter(queue, [part], segment.data):
            self.fail_read(queue, stream, "LOC_PROT_ERR", "DDP_INVALID_STAG")
        asked.arrived = end
        if segment.fields["last"]:
            self.complete(queue, stream.asked.popleft().request, SUCCESS)

    def fail_read(self, queue: Queue, stream: StreamState, status: str, error: str) -> None:
        """Fails the oldest READ. Raises Ended."""
        self.complete(queue, stream.asked.popleft().request, status)
        raise Ended(error)

    # The device's requests.

    def send_segments(
        self,
        queue: Queue,
        stream: StreamState,
        request: SendRequest,
    ) -> list[Segment]:
        """Posts a request of the device. Returns its segments."""
        if stream.ended:
            self.complete(queue, request, FLUSHED)
            return []
        source = {"rkey": request.rkey, "va": request.remote_addr}
        if request.opcode == "RDMA_READ":
            stream.asked.append(Asked(request))
            sink = request.sges[0]
            asks = {"sinkstag": sink.lkey, "sinkto": sink.addr, "length": sink.length}
            return [Segment(_READ, {**source, **asks, "msn": self.next_number(stream, 1)})]
        data = self.gather(queue, request.sges)
        if data is None:
            self.complete(queue, request, "LOC_PROT_ERR")
            return []
        self.complete(queue, request, SUCCESS)
        if request.opcode == "RDMA_WRITE":
            return [Segment(_WRITE, source, data)]
        return [Segment("SEND", {"msn": self.next_number(stream, 0)}, data)]

    def next_number(self, stream: StreamState, queue: int) -> int:
        number = stream.sent[queue]
        stream.sent[queue] += 1
        return number
