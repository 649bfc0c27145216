"""Divides a work request into packets, and collects the answers of the device, as a correct requester does."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping, Sequence

from conformance.bench.calls import Sge
from conformance.bench.work_requests import COMPLETED_AS, Completion, SendRequest
from conformance.model.operations import FLUSHES
from conformance.verbs import ENUMS
from conformance.wire.packet import Packet, Parsed
from conformance.wire.sequence import place_of
from conformance.wire.statuses import BAD_ANSWER

_WORD = 8
_SOLICITED = ENUMS["ibv_send_flags"].value_of("SOLICITED")
_ATOMICS: Mapping[str, str] = {
    "ATOMIC_CMP_AND_SWP": "COMPARE_SWAP",
    "ATOMIC_FETCH_AND_ADD": "FETCH_ADD",
}
# The suffix of the last packet, by the opcode of the request.
_ENDINGS = ("_WITH_IMM", "_WITH_INV")
# The placement types of a FLUSH (annex A19: 1 global visibility, 2 persistence).
_PLACEMENTS: Mapping[str, int] = {"GLOBAL": 1, "PERSISTENT": 2, "BOTH": 3}
_REGION = "_MR"  # selectivity level 1: the whole region
ACKNOWLEDGED_EACH = 8  # packets after which a long message asks for an acknowledgement
_READ_RESPONSE = "RDMA_READ_RESPONSE"


def local_bytes(sges: Sequence[Sge]) -> bytes:
    """Returns the contents of a list of elements in this process."""
    return b"".join(ctypes.string_at(sge.addr, sge.length) for sge in sges)


class Message:
    """A request as packets. `first` is the distance of its first PSN from that of the connection, and `psns` the number
    of its PSNs. `mtu` is the most bytes of a packet."""

    def __init__(self, request: SendRequest, transport: str, mtu: int, first: int) -> None:
        self.request, self.first = request, first
        self._transport, self.mtu = transport, mtu
        self._arrived: set[int] = set()
        self.length = sum(sge.length for sge in request.sges)
        self.packets = self._divided()
        self.psns = len(self.packets)
        if request.opcode == "RDMA_READ":
            self.psns = max(1, -(-self.length // mtu))

    @property
    def end(self) -> int:
        return self.first + self.psns

    @property
    def has_response(self) -> bool:
        """Whether more than an acknowledgement must answer the request."""
        opcode = self.request.opcode
        answered = ("RDMA_READ", "ATOMIC_WRITE", *_ATOMICS, *FLUSHES)
        return opcode in answered

    def _divided(self) -> list[Packet]:
        request = self.request
        target = {"va": request.remote_addr, "rkey": request.rkey}
        if request.opcode == "RDMA_READ":
            fields = {**target, "length": self.length, "ackreq": 1}
            return [self._packet("RDMA_READ_REQUEST", fields)]
        if request.opcode in _ATOMICS:
            return [self._packet(_ATOMICS[request.opcode], {**target, **self._operands()})]
        if request.opcode == "ATOMIC_WRITE":
            word = request.swap.to_bytes(_WORD, sys.byteorder)
            fields = {**target, "length": _WORD, "ackreq": 1}
            return [self._packet("ATOMIC_WRITE", fields, word)]
        if request.opcode in FLUSHES:
            fields = {**target, "length": request.length, "ackreq": 1}
            return [self._packet("FLUSH", {**fields, **_flush_fields(request.opcode)})]
        return self._of_data(target)

    def _operands(self) -> dict[str, int]:
        request = self.request
        if request.opcode == "ATOMIC_FETCH_AND_ADD":
            return {"swap": request.compare_add, "ackreq": 1}
        return {"swap": request.swap, "compare": request.compare_add, "ackreq": 1}

    def _of_data(self, target: Mapping[str, int]) -> list[Packet]:
        """Returns the packets of a SEND or a WRITE."""
        ending = ""
        for suffix in _ENDINGS:
            if self.request.opcode.endswith(suffix):
                ending = suffix
        base = self.request.opcode.removesuffix(ending)
        data = local_bytes(self.request.sges)
        starts = range(0, max(1, len(data)), self.mtu)
        packets: list[Packet] = []
        for number, start in enumerate(starts):
            is_last = number == len(starts) - 1
            fields: dict[str, int] = {}
            if not number and base == "RDMA_WRITE":
                fields |= {**target, "length": len(data)}
            if is_last or number % ACKNOWLEDGED_EACH == ACKNOWLEDGED_EACH - 1:
                fields["ackreq"] = 1
            name = f"{base}_{place_of(number, len(starts))}"
            if is_last:
                name += ending
                fields |= self._of_last()
            packets.append(self._packet(name, fields, data[start : start + self.mtu]))
        return packets

    def _of_last(self) -> dict[str, int]:
        request = self.request
        fields = {"se": int(bool(request.flags & _SOLICITED))}
        if request.opcode.endswith("_WITH_IMM"):
            fields["imm"] = request.imm
        if request.opcode.endswith("_WITH_INV"):
            fields["inv"] = request.invalidate_rkey
        return fields

    def _packet(self, name: str, fields: Mapping[str, int], data: bytes = b"") -> Packet:
        return Packet(self._transport, name, fields, data)

    def answered(self, packet: Parsed, offset: int) -> bool:
        """Takes a part of the response, whose PSN has the distance `offset` from the first of the message. Returns
        whether the response is complete. Raises ValueError if the packet is not this part."""
        if not 0 <= offset < self.psns:
            raise ValueError(BAD_ANSWER)
        if packet.operation == "ATOMIC_ACKNOWLEDGE":
            self._take_word(packet)
            return True
        if packet.operation != self._expected(offset):
            raise ValueError(BAD_ANSWER)
        start = offset * self.mtu
        expected = 0
        if self.request.opcode == "RDMA_READ":
            expected = min(self.mtu, self.length - start)
        if len(packet.data) != expected:
            raise ValueError(BAD_ANSWER)
        self._place(start, packet.data)
        self._arrived.add(offset)
        return len(self._arrived) == self.psns

    def _expected(self, offset: int) -> str:
        if self.request.opcode in _ATOMICS:
            return "ATOMIC_ACKNOWLEDGE"
        return f"{_READ_RESPONSE}_{place_of(offset, self.psns)}"

    def _take_word(self, packet: Parsed) -> None:
        if self.request.opcode not in _ATOMICS:
            raise ValueError(BAD_ANSWER)
        self._place(0, packet.fields["original"].to_bytes(_WORD, sys.byteorder))

    def _place(self, start: int, data: bytes) -> None:
        """Writes bytes of the response to the elements of the request, from `start` on."""
        for sge in self.request.sges:
            if start < sge.length:
                fitting = data[: sge.length - start]
                ctypes.memmove(sge.addr + start, fitting, len(fitting))
                data = data[len(fitting) :]
            start = max(0, start - sge.length)

    def completion(self, status: str) -> Completion:
        request = self.request
        if status != "SUCCESS":
            return Completion(request.wr_id, status)
        opcode = COMPLETED_AS.get(request.opcode, request.opcode)
        return Completion(request.wr_id, status, opcode, self.length)


def _flush_fields(opcode: str) -> dict[str, int]:
    words = opcode.removeprefix("FLUSH_").removesuffix(_REGION)
    return {"plt": _PLACEMENTS[words], "sel": int(opcode.endswith(_REGION))}
