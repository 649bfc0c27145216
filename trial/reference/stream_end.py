"""The wire peer of the reference over iWARP: the same peer as that of a device, in a stream whose other end is the
reference (segments.py)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from conformance.bench.calls import Pd
from conformance.bench.interface import Queue as AnyQueue
from conformance.bench.work_requests import SendRequest
from conformance.device.stream_peer import Probe, StreamEnd, UsedOnce
from conformance.errors import HostLacks
from conformance.model.case import QpSpec
from conformance.model.transport import IWARP, Transport
from conformance.wire import mpa
from conformance.wire.segments import Segment, parse_segment
from trial.reference.segments import StreamState

if TYPE_CHECKING:
    from trial.reference.bench import ReferenceBench
    from trial.reference.held_queue import HeldQueue

_PAGE = 4096


class ReferenceStream:
    """See wire_sockets.TcpStream: the bytes that the peer sends are executed at once."""

    def __init__(self, held: HeldQueue) -> None:
        self._held, self._state = held, StreamState()
        self._reader = mpa.Reader()
        self._answers: deque[bytes] = deque()

    def send(self, data: bytes) -> None:
        for packed, mistakes in self._reader.take(data):
            segment = parse_segment(packed)
            self._put(self._held.take_segment(self._state, segment, mistakes))

    def post(self, request: SendRequest) -> None:
        """Sends a request of the device to the wire peer."""
        self._put(self._held.send_segments(self._state, request))

    def _put(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            self._answers.append(mpa.frame(segment.packed()))

    def receive(self, deadline_s: float) -> bytes | None:
        if self._answers:
            return self._answers.popleft()
        if self._state.ended:
            return b""
        return None

    def arrived(self) -> bool:
        return True

    def close(self) -> None:
        """Does nothing."""


class _OwnRegion:
    """See stream_peer.Probe, on the reference."""

    def __init__(self, bench: ReferenceBench, pd: Pd) -> None:
        self._device = bench.device
        self.memory: Any = bench.allocate("anonymous", _PAGE)
        rights = 1 | 2 | 4  # IBV_ACCESS_LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ
        self._region = self._device.reg_mr(pd.handle, self.memory.addr, _PAGE, rights)
        self.rkey = self._region.key

    def close(self) -> None:
        self._device.dereg_mr(self._region.handle)
        self.memory.close()


class ReferenceStreamPair(UsedOnce):
    """A queue pair of the reference, and a wire peer over iWARP."""

    transport: Transport = IWARP

    def __init__(self, bench: ReferenceBench, spec: QpSpec, responder: Pd) -> None:
        """Raises Refused, and HostLacks on a stack with another transport."""
        if bench.device.stack.transport is not IWARP:
            raise HostLacks("segments of iWARP need an iWARP device", "run it on one")
        self.lingering = bench.lingering
        self.tells_state = bench.findings.tells_state
        self._device = bench.device
        self._probe = _OwnRegion(bench, responder)
        self.responder = bench.held(spec, responder)
        self.requester: AnyQueue = self.responder
        stream = ReferenceStream(self.responder)
        self.responder.wire = stream
        self.end = StreamEnd(stream, cast(Probe, self._probe))
        self.responder.move_to("RTS")

    def close(self) -> None:
        self._device.destroy_qp(self.responder.queue)
        self._probe.close()
