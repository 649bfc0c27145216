"""The harness's side of an operation: a registered buffer with guard bytes on both sides, which detect stray writes.

The range under test is memory of the case (bench/memory_areas.py).
"""

import ctypes

from conformance.bench.calls import Sge
from conformance.bench.memory_areas import EMPTY, Area, Part, repeated
from conformance.execution.connection import LoopbackConnection
from conformance.execution.context import CaseContext

_GUARD = 64  # guard bytes on each side


class LocalBuffer:
    """A buffer with guards on both sides, registered at the requester of a connection."""

    def __init__(
        self,
        context: CaseContext,
        connection: LoopbackConnection,
        length: int,
        before: bytes,
        wanted: bytes,
        access: int = 0,
        skipped: int = 0,
    ) -> None:
        """`length` is in bytes. `before` and `wanted` are as in Area. `access` are the access flags for the peer.

        `skipped` is the size of the header that a receive writes in front of the data. Raises SetupRefused.
        """
        size = length + skipped + 2 * _GUARD
        scratch = context.harness.scratch(connection.pair.requester.pd, size, "local", access)
        start = scratch.addr + _GUARD
        self.sink = Sge(start, length + skipped, scratch.lkey, scratch.rkey)
        self.sge = Sge(start + skipped, length, scratch.lkey, scratch.rkey) if skipped else self.sink
        self.area = Area(Part(scratch.addr, size), start + skipped, length, EMPTY, before, wanted)
        self._skipped = skipped

    def guards_changed(self) -> bool:
        """Whether a guard byte has changed; the header in front of a datagram is ignored."""
        if not self._skipped:
            return self.area.changed_outside()
        ends = (self.area.memory.addr, self.area.start + self.area.length)
        return any(ctypes.string_at(end, _GUARD) != repeated(EMPTY, _GUARD) for end in ends)
