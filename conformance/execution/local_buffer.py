"""The harness's side of an operation: a registered buffer whose guards show what was written beside it.

Not for the range under test, which is memory of the case (bench/memory_areas.py).
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

from conformance.bench.calls import Sge
from conformance.bench.memory_areas import EMPTY, Area, of_one
from conformance.execution.connection import LoopbackConnection
from conformance.execution.context import CaseContext

_GUARD = 64  # bytes on each side


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
        """`length` is in bytes; `before` and `wanted` are those of Area, `access` is what is granted to the peer.

        `skipped` bytes in front of the data are used by a receive. Raises SetupRefused.
        """
        size = length + skipped + 2 * _GUARD
        around = context.harness.scratch(connection.pair.requester.pd, size, "local", access)
        start = around.addr + _GUARD
        self.sink = Sge(start, length + skipped, around.lkey, around.rkey)
        self.sge = Sge(start + skipped, length, around.lkey, around.rkey) if skipped else self.sink
        self.area = Area(_Scratch(around.addr, size), start + skipped, length, EMPTY, before, wanted)
        self._skipped = skipped

    def guards_changed(self) -> bool:
        """Whether a byte beside the buffer has changed, other than those in front of a datagram."""
        if not self._skipped:
            return self.area.strayed()
        ends = (self.area.memory.addr, self.area.start + self.area.length)
        return any(ctypes.string_at(end, _GUARD) != of_one(EMPTY, _GUARD) for end in ends)


class _Scratch(NamedTuple):
    """A part of the harness's own memory, which HarnessResources gives back."""

    addr: int
    size: int

    def close(self) -> None:
        """Nothing."""
