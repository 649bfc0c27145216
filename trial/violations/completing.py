"""Violations of what a successful completion tells of its request; what is read and written is correct."""

from __future__ import annotations

from collections.abc import Sequence

from conformance.bench.calls import Sge
from reference.device import Device
from trial.violation import violates


@violates("WC-01")
class ReadsToldAsWrites(Device):
    """The completion of a READ names a WRITE."""

    def completed_opcode(self, opcode: str) -> str:
        return super().completed_opcode("RDMA_WRITE" if opcode == "RDMA_READ" else opcode)


@violates("WC-01")
class SwapsToldAsAdds(Device):
    """The completion of a compare-and-swap names a fetch-and-add."""

    def completed_opcode(self, opcode: str) -> str:
        return super().completed_opcode(opcode.replace("CMP_AND_SWP", "FETCH_AND_ADD"))


@violates("WC-01")
class BindsToldAsWrites(Device):
    """The completion of a bind names a WRITE."""

    def completed_opcode(self, opcode: str) -> str:
        return super().completed_opcode("RDMA_WRITE" if opcode == "BIND_MW" else opcode)


@violates("WC-01")
class ImmediatesToldAsMessages(Device):
    """The completion of a receive that a WRITE with immediate data consumed names a message."""

    def received_opcode(self, message: bool) -> str:
        return super().received_opcode(True)


@violates("WC-01")
class RoomToldAsLength(Device):
    """The completion of a receive has the length of its elements, not that of the message."""

    def received_length(self, length: int, sges: Sequence[Sge]) -> int:
        return sum(sge.length for sge in sges) or length
