"""A requester that is no RDMA device: carries the requests of a case by packets of its own to a queue pair of the device
(wire_messages.py), repeats what is lost, and reports completions, with a status for each NAK (wire/statuses.py).
`CarriedPair` has the interface of two queue pairs, so that calls such as `traffic` need not know the requester."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from conformance.bench.calls import Pd, Return, Sge, Window
from conformance.bench.interface import WireEnd
from conformance.bench.work_requests import SIGNALED, BindInfo, Completion, SendRequest
from conformance.device.wire_messages import ACKNOWLEDGED_EACH, Message
from conformance.device.wire_peer import WireLink, WirePair
from conformance.errors import HarnessFailure, HostLacks
from conformance.model.case import QpSpec
from conformance.model.deadline import Wait
from conformance.wire.opcodes import is_response
from conformance.wire.packet import Parsed
from conformance.wire.sequence import PSNS, psn_distance
from conformance.wire.statuses import FLUSHED, NO_ANSWER, STATUS_OF_NAK, STATUS_OF_REPEATED

# Packets in flight: at most as many as any receive buffer on the way holds, and after losses fewer, but always one that
# asks for an acknowledgement.
_MOST_IN_FLIGHT = 64
_MTU_CODE = 3  # IBV_MTU_1024 of enum ibv_mtu
# Seconds until a request without an answer is repeated, twice as long before each further time, and how often. If one
# packet in ten is lost or comes too late, all repetitions fail once in ten million requests.
TIMEOUT_S = 0.067
_REPETITIONS = 6
# The most packets of one request, or of its response, where packets are lost on purpose: about one in ten of them costs a
# timeout, and the request must complete before the deadline of its case.
MOST_WITH_LOSSES = 1024
_NOT_READY_S = 0.01  # until a request is repeated after RNR NAK
_TURN_S = 0.001  # one turn of a Wait


class WireRequester:
    """See bench.interface.Queue. Has no receive queue, and binds no windows."""

    handle = 0
    sq_sig_all = False

    def __init__(
        self,
        end: WireEnd,
        kind: str,
        pd: Pd,
        deadline_s: float,
        timeout_s: float = TIMEOUT_S,
        most_packets: int = PSNS,
    ) -> None:
        """`pd` is the domain of the regions from which requests take their data. `deadline_s` is the deadline of a
        completion, and after `timeout_s` a request is repeated. A request may have `most_packets`."""
        self._timeout_s, self._most_packets = timeout_s, most_packets
        self._end, self.kind, self.pd = end, kind, pd
        self.number, self._deadline_s = end.number, deadline_s
        self.state = "RTS"
        self._messages: deque[Message] = deque()  # not completed
        self._completions: deque[Completion] = deque()
        self._next = 0  # the distance of the next request's PSN from the first
        self._sent = 0  # the packets before this distance are sent
        self._acknowledged = 0
        self._repetitions = 0
        self._in_flight = _MOST_IN_FLIGHT
        self._since = 0.0  # the time of the last progress

    def query_state(self) -> str:
        return self.state

    def events(self, deadline_s: float = 0) -> list[str]:
        return []

    def post_receive(self, sges: Sequence[Sge], wr_id: int) -> Return:
        raise HarnessFailure("the wire requester receives no messages")

    def bind_mw(self, window: Window, info: BindInfo, flags: int, wr_id: int) -> Return:
        raise HarnessFailure("windows are bound at the responder, not at the wire requester")

    def post_send(self, request: SendRequest) -> Return:
        """Sends a request. Raises PeerLost, and HostLacks if it has too many packets."""
        if self.state == "ERR":
            self._completions.append(Completion(request.wr_id, FLUSHED))
            return Return(0, 0)
        message = Message(request, self.kind, self._end.mtu, self._next)
        if message.psns > self._most_packets:
            raise HostLacks(
                f"--wire-losses loses packets on purpose, and this request has {message.psns} packets",
                "run it without --wire-losses",
            )
        self._next = message.end
        if not self._messages:
            self._since = time.monotonic()
        self._messages.append(message)
        self._advance()
        return Return(0, 0)

    def completions(self, count: int = 1, deadline_s: float | None = None) -> list[Completion]:
        """Returns the next `count` completions, or fewer at the deadline. Raises PeerLost."""
        if deadline_s is None:
            deadline_s = self._deadline_s
        wait = Wait(deadline_s)
        while len(self._completions) < count:
            packet = self._end.receive(min(deadline_s, _TURN_S))
            if packet:
                self._take(packet)
            elif wait.over():
                break
            else:
                self._repeat_late()
        number = min(count, len(self._completions))
        return [self._completions.popleft() for _ in range(number)]

    # Sending.

    def _advance(self) -> None:
        """Sends the packets that may be in flight."""
        for message in list(self._messages):
            for number in range(len(message.packets)):
                distance = message.first + number
                if distance < self._sent:
                    continue
                if self.kind == "RC" and distance - self._acknowledged >= self._in_flight:
                    return
                self._send(message, number)
            self._sent = max(self._sent, message.end)
        if self.kind == "UC":
            self._complete_until(self._sent)

    def _send(self, message: Message, number: int) -> None:
        packet, distance = message.packets[number], message.first + number
        fields = {"qpn": self._end.destination, **packet.fields}
        fields["psn"] = (self._end.first_psn + distance) % PSNS
        if packet.operation == "FLUSH":
            crc = self._end.flush_icrc
        else:
            crc = ""
        self._end.send(replace(packet, fields=fields), crc=crc)
        self._sent = max(self._sent, distance + 1)

    def _repeat_late(self) -> None:
        timeout_s = self._timeout_s * (1 << self._repetitions)
        if self._messages and time.monotonic() - self._since > timeout_s:
            self._repeat(self._oldest(), NO_ANSWER)

    def _oldest(self) -> int:
        """Returns the distance of the oldest packet without an answer: a request with a response is repeated whole."""
        message = self._messages[0]
        if message.has_response:
            return message.first
        return max(message.first, self._acknowledged)

    def _repeat(self, distance: int, status: str) -> None:
        """Sends all packets from a distance on again; after the last repetition the request fails with `status`."""
        self._repetitions += 1
        if self._repetitions > _REPETITIONS:
            # A peer that is lost is no failure of the device.
            self._end.settle()
            self._fail(status)
            return
        self._since = time.monotonic()
        self._in_flight = max(ACKNOWLEDGED_EACH, self._in_flight // 2)
        self._sent = distance
        self._acknowledged = min(distance, self._acknowledged)
        self._advance()

    # Answers.

    def _take(self, packet: Parsed) -> None:
        """Takes a packet of the device. A malformed one counts as lost."""
        if packet.wrong or not self._messages or not is_response(packet.operation):
            return
        distance = self._distance(packet)
        if not self._messages[0].first <= distance < self._next:
            return  # a repeated answer
        if packet.name in STATUS_OF_NAK:
            self._refused(distance, STATUS_OF_NAK[packet.name])
        elif packet.name in STATUS_OF_REPEATED:
            self._progress(distance)
            if packet.name == "RNR_NAK":
                time.sleep(_NOT_READY_S)
            self._repeat(distance, STATUS_OF_REPEATED[packet.name])
        elif packet.operation == "ACKNOWLEDGE":
            self._progress(distance + 1)
        else:
            self._respond(packet, distance)
        self._advance()

    def _distance(self, packet: Parsed) -> int:
        """Returns the distance of an answer's PSN from the first; it is near the oldest message."""
        first = self._messages[0].first
        return psn_distance(packet.fields["psn"], self._end.first_psn + first) + first

    def _progress(self, until: int) -> None:
        """All requests before a distance are acknowledged. The response of one of them may be lost."""
        if until > self._acknowledged:
            self._acknowledged, self._repetitions = until, 0
            self._in_flight = min(_MOST_IN_FLIGHT, self._in_flight + 1)
            self._since = time.monotonic()
        self._complete_until(until)

    def _complete_until(self, until: int) -> None:
        while self._messages and self._messages[0].end <= until:
            if self._messages[0].has_response:
                return
            self._complete("SUCCESS")

    def _complete(self, status: str) -> None:
        message = self._messages.popleft()
        if message.request.flags & SIGNALED or status != "SUCCESS":
            self._completions.append(message.completion(status))

    def _respond(self, packet: Parsed, distance: int) -> None:
        self._complete_until(distance)
        message = self._messages[0]
        if not message.first <= distance < message.end:
            return  # the response of an earlier request is still missing
        try:
            complete = message.answered(packet, distance - message.first)
        except ValueError as error:
            self._fail(str(error))
            return
        self._since = time.monotonic()
        if complete:
            self._complete("SUCCESS")
            self._progress(message.end)

    def _refused(self, distance: int, status: str) -> None:
        self._progress(distance)
        if self._messages[0].end > distance:
            self._fail(status)
        # Otherwise the response of an earlier request is still missing, and that request is repeated first.

    def _fail(self, status: str) -> None:
        """The oldest request fails, and all later ones are flushed."""
        self.state = "ERR"
        self._complete(status)
        while self._messages:
            self._complete(FLUSHED)


class CarriedPair(WirePair):
    """A queue pair of the device, and a requester that is no RDMA device."""

    mtu_code = _MTU_CODE

    def __init__(
        self,
        link: WireLink,
        spec: QpSpec,
        pds: tuple[Pd, Pd],
        deadline_s: float,
        most_packets: int,
    ) -> None:
        """`pds` are the domains of the requester's data and of the device's queue pair. Raises PyverbsRDMAError."""
        self._arguments = link, spec, pds, deadline_s, most_packets
        self._connect_anew()

    def _connect_anew(self) -> None:
        link, spec, pds, deadline_s, most_packets = self._arguments
        super().__init__(link, spec, pds[1], deadline_s)
        self.requester = WireRequester(
            self.end, spec.kind, pds[0], deadline_s, most_packets=most_packets
        )

    def renew(self) -> None:
        """Creates both ends anew."""
        self.close()
        self._connect_anew()
