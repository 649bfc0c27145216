"""The functions that an alteration of the data path can use. Its hooks are called with each request before the request
is posted, and with each completion before the completion is returned.

Real requests are posted to real queue pairs. If only the altered device would execute a request, a request of zero
bytes is posted, and this module copies the bytes. If only the altered device would refuse a request, the request is
posted with a key that does not exist.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from conformance.verbs import ENUMS
from trial.data_path.memory import content_at, put
from trial.data_path.objects import EVERY, QueuePair, Sent
from trial.data_path.replaced import ReplacedPath
from trial.data_path.structures import (
    COMPARE_SWAP,
    WRITE_WITH_IMM,
    Element,
    SendRequest,
    elements_of,
)

_STATES = ENUMS["ibv_qp_state"]
_NO_KEY = 0x00FF_FF00  # an index that no object of these devices has
_STATE, _ATTRIBUTES = 1, 512  # IBV_QP_STATE; room for struct ibv_qp_attr
_WORD = 1 << 64


class DataPath(ReplacedPath):
    """Passes every request and completion on unchanged; the base of all alterations of the data path."""

    def peer(self, queue: QueuePair) -> QueuePair | None:
        """Returns the queue pair to which `queue` is connected; None if that queue pair has posted nothing."""
        other = self._other_end(queue)
        if other:
            return self.queues.get(other.number)
        return None

    def peer_pd(self, queue: QueuePair) -> int:
        """Returns the struct ibv_pd * of the peer, or 0."""
        other = self._other_end(queue)
        if other:
            return int(other.pd.pointer)
        return 0

    def _other_end(self, queue: QueuePair) -> Any:
        for pair in reversed(self.pairs):
            if queue.number == pair.requester.number:
                return pair.responder
            if queue.number == pair.responder.number:
                return pair.requester
        return None

    def ready(self, queue: QueuePair) -> bool:
        """Whether the queue pair is in the state RTS."""
        attributes = ctypes.create_string_buffer(2 * _ATTRIBUTES)
        at = ctypes.addressof(attributes)
        failed = ctypes.CDLL("libibverbs.so.1").ibv_query_qp(
            ctypes.c_void_p(queue.pointer),
            ctypes.c_void_p(at),
            _STATE,
            ctypes.c_void_p(at + _ATTRIBUTES),
        )
        return not failed and int.from_bytes(attributes.raw[:4], "little") == _STATES.value_of(
            "RTS",
        )

    def gather(self, elements: Sequence[Element]) -> bytes | None:
        """Returns the contents of local SGEs; None if some bytes cannot be read."""
        parts = [content_at(self.local(element), element.length) for element in elements]
        if None in parts:
            return None
        return b"".join(part or b"" for part in parts)

    def scatter(self, elements: Sequence[Element], content: bytes) -> None:
        """Writes `content` to local SGEs, one after the other."""
        for element in elements:
            put(self.local(element), content[: element.length])
            content = content[element.length :]

    def place(self, sent: Sent) -> int:
        """Returns the address in this process of a request's remote range, even if the key is no longer valid."""
        for target in (
            self.objects.region(sent.rkey, EVERY),
            self.objects.binding(sent.rkey, EVERY),
        ):
            if target:
                place = target.place(sent.remote_addr, sent.length)
            else:
                place = None
            if place is not None:
                return place
        return sent.remote_addr

    def carry_out(self, queue: QueuePair, sent: Sent, request: SendRequest, place: int) -> None:
        """Executes a READ, a WRITE or an atomic at the address `place`, in place of the real device."""
        if (
            queue.kind not in ("RC", "UC")
            or not self.ready(queue)
            or content_at(place, sent.length) is None
        ):
            return
        if sent.writes:
            content = self.gather(sent.elements)
            if content is None or not put(place, content):
                return
        elif sent.reads:
            self.scatter(sent.elements, content_at(place, sent.length) or b"")
        elif sent.atomic:
            old = int.from_bytes(content_at(place, 8) or b"", "little")
            put(place, self.updated(sent, old).to_bytes(8, "little"))
            self.scatter(sent.elements, old.to_bytes(8, "little"))
        if sent.opcode == WRITE_WITH_IMM and (peer := self.peer(queue)):
            peer.arriving.append(sent.length)
        sent.byte_len = sent.length
        self.replace(sent, request)

    def updated(self, sent: Sent, old: int) -> int:
        """Returns the value that an atomic stores in place of `old`."""
        if sent.opcode == COMPARE_SWAP:
            if old == sent.compare_add:
                return sent.swap
            return old
        return (old + sent.compare_add) % _WORD

    def relist(self, request: SendRequest, length: int) -> None:
        """Shortens the request's SGEs to the first `length` bytes."""
        elements = list(elements_of(request))
        while (
            sum(element.length for element in elements) - elements[-1].length >= length
            and len(elements) > 1
        ):
            elements.pop()
        elements[-1].length -= sum(element.length for element in elements) - length
        self._elements = (Element * len(elements))(*elements)
        request.sg_list, request.num_sge = ctypes.addressof(self._elements), len(elements)

    def refuse(self, sent: Sent, request: SendRequest) -> None:
        """Makes the real device refuse a READ, a WRITE or an atomic."""
        request.rkey = _NO_KEY

    def after(self, number: int, action: Callable[[], None]) -> None:
        """Calls `action` when the data path is called again after the next completion of queue pair `number`."""
        self._polled.discard(number)
        self._later.append((lambda: number in self._polled, action))

    def next_time(self, action: Callable[[], None]) -> None:
        """Calls `action` at the next call of the data path."""
        self._later.append((lambda: True, action))
