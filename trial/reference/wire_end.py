"""The wire peer of the reference: the packets of both are built and parsed as on a network, and the reference's responder
(packets.py) and requester (sent_packets.py) execute them at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from conformance.bench.calls import Pd
from conformance.bench.interface import Queue as AnyQueue
from conformance.bench.work_requests import SendRequest
from conformance.device.queue_pairs import DATAGRAM_QKEY
from conformance.device.wire_requester import WireRequester
from conformance.errors import HostLacks
from conformance.model.case import SMALLEST_MTU, QpSpec, mtu_bytes
from conformance.model.transport import ROCE, Transport
from conformance.model.vocabulary import WIRE
from conformance.wire.icrc import Path
from conformance.wire.opcodes import SYNDROMES, is_response
from conformance.wire.packet import Packet, Parsed, build, parse
from conformance.wire.sequence import PSNS, psn_distance
from trial.reference.sent_packets import Local, Outgoing
from trial.reference.served_packets import Answer, Incoming

if TYPE_CHECKING:
    from trial.reference.bench import ReferenceBench
    from trial.reference.held_queue import HeldQueue

_TO_DEVICE = Path("10.77.0.2", "10.77.0.1")
_NUMBER = 0x100001
_DEADLINE_S = 5.0
_HINT = "run the case on a device"


class ReferenceEnd:
    """See bench.interface.WireEnd."""

    number, qkey, flush_icrc = _NUMBER, DATAGRAM_QKEY, ""

    def __init__(self, held: HeldQueue, spec: QpSpec) -> None:
        self.mtu = mtu_bytes(spec.mtu(SMALLEST_MTU))
        self._held, self._spec = held, spec
        self.first_psn, self.device_psn = spec.first_psns
        self.destination = held.number
        self.begin()

    def begin(self) -> None:
        """Begins the connection."""
        spec = self._spec
        self._incoming = Incoming(spec.max_dest_rd_atomic, self.mtu)
        limits = spec.retry_cnt, spec.rnr_retry, spec.max_rd_atomic, self.mtu
        self._outgoing = Outgoing(*limits, has_timer=spec.timeout > 0)
        self._packets: deque[Parsed] = deque()  # of the device

    def send(self, packet: Packet, **wrong: Any) -> None:
        received = parse(build(packet, _TO_DEVICE, **wrong), _TO_DEVICE)
        if received.fields.get("qpn") != self.destination:
            return
        if received.transport == "RC" and is_response(received.operation):
            distance = psn_distance(received.fields["psn"], self.device_psn)
            self._put(self._held.take_answer(self._outgoing, received, distance))
            self._put(self._held.released(self._outgoing))
            return
        distance = psn_distance(received.fields["psn"], self.first_psn)
        for answer in self._held.take(self._incoming, received, distance):
            self._packets.append(self._parsed(answer))

    def post(self, request: SendRequest) -> None:
        """Sends a request of the device to the wire peer."""
        self._put(self._held.send_packets(self._outgoing, request))

    def execute(self, local: Local) -> None:
        """Executes a request without packets, when the requests before it permit this."""
        self._outgoing.posted.append(local)
        self._put(self._held.released(self._outgoing))

    def _put(self, packets: Iterable[Packet]) -> None:
        for packet in packets:
            psn = (self.device_psn + packet.fields["psn"]) % PSNS
            fields = {**packet.fields, "qpn": _NUMBER, "psn": psn}
            self._packets.append(self._arrived(replace(packet, fields=fields), answers=False))

    def _arrived(self, packet: Packet, answers: bool) -> Parsed:
        """Returns a packet of the device as the wire peer sees it, with its traffic class."""
        back = _TO_DEVICE.back()
        parsed = parse(build(packet, back), back)
        traffic_class = self._held.traffic_class(self._spec.traffic_class, answers)
        return replace(parsed, fields={**parsed.fields, "tclass": traffic_class})

    def _parsed(self, answer: Answer) -> Parsed:
        psn = (self.first_psn + answer.distance) % PSNS
        fields = {"qpn": _NUMBER, "psn": psn, "syndrome": SYNDROMES[answer.syndrome]}
        fields["msn"] = self._incoming.completed
        sent = Packet("RC", answer.operation, {**fields, "original": answer.original}, answer.data)
        return self._arrived(sent, answers=True)

    def receive(self, deadline_s: float) -> Parsed | None:
        if deadline_s and not self._packets:
            self._put(self._held.timed_out(self._outgoing))
        if self._packets:
            return self._packets.popleft()
        return None

    def settle(self) -> None:
        """Does nothing: packets are executed when they are sent."""

    def time_s(self) -> float:
        return self._outgoing.delays_s


class ReferencePair:
    """A queue pair of the reference whose other end is a wire peer; with `extended` WIRE, a requester of packets."""

    renews_by_reset = False
    transport: Transport = ROCE

    def __init__(self, bench: ReferenceBench, spec: QpSpec, requester: Pd, responder: Pd) -> None:
        """Raises Refused, and HostLacks for a type of queue pair whose packets the reference does not take."""
        if not bench.device.stack.transport.iba or spec.kind not in ("RC", "UC", "UD"):
            raise HostLacks(f"the reference takes no packets of type {spec.kind}", _HINT)
        self._arguments = bench, spec, requester, responder
        self.lingering = bench.lingering
        self._create()

    def _create(self) -> None:
        bench, spec, requester, responder = self._arguments
        self.responder = bench.held(spec, responder)
        self.end = ReferenceEnd(self.responder, spec)
        self.responder.wire = self.end
        self.requester: AnyQueue = self.responder
        if spec.extended == WIRE:
            self.requester = WireRequester(self.end, spec.kind, requester, _DEADLINE_S, 0)
        self.responder.move_to(spec.state)

    @property
    def tells_state(self) -> bool:
        return self._arguments[0].findings.tells_state

    def connect(self) -> None:
        self.responder.move_to("RTS")

    def reset(self) -> None:
        device = self._arguments[0].device
        device.reset_qp(self.responder.queue)
        if device.forgets_messages(self.responder.queue):
            self.end.begin()
        self.connect()

    def renew(self) -> None:
        self.close()
        self._create()

    def close(self) -> None:
        self._arguments[0].device.destroy_qp(self.responder.queue)
