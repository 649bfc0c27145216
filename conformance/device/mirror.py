"""Memory that processes on two hosts have at the same addresses, so that a request is the same on both.

Each end knows the contents at their last exchange, and sends the pieces that have changed since. The ends take turns: a
piece that both have changed gets the contents of the end that sends first. Not for mapping the memory.
"""

import base64
import ctypes
import zlib
from collections.abc import Iterable

_PIECE = 4096  # bytes
Changes = list[tuple[int, str]]  # of each piece its address, and its contents as text


class Mirror:
    """One end of the memory. Both hold each range before either uses it; its contents are zeros then."""

    def __init__(self) -> None:
        self._known: dict[int, bytearray] = {}

    def hold(self, addr: int, size: int) -> None:
        """Adds the range of `size` bytes at `addr`."""
        self._known[addr] = bytearray(size)

    def drop(self, addr: int) -> None:
        """Removes the range at `addr`."""
        del self._known[addr]

    def changes(self) -> Changes:
        """The ranges that have changed here. From now on the other end is assumed to know them."""
        found: Changes = []
        for addr, known in self._known.items():
            now = ctypes.string_at(addr, len(known))
            if now == known:
                continue
            for at in range(0, len(now), _PIECE):
                piece = now[at : at + _PIECE]
                if piece != known[at : at + _PIECE]:
                    found.append((addr + at, base64.b64encode(zlib.compress(piece, 1)).decode("ascii")))
            known[:] = now
        return found

    def apply(self, changes: Iterable[tuple[int, str]]) -> None:
        """Writes what has changed at the other end. Raises ValueError for memory that is not held."""
        for addr, text in changes:
            content = zlib.decompressobj().decompress(base64.b64decode(text), _PIECE)
            for start, known in self._known.items():
                if start <= addr and addr + len(content) <= start + len(known):
                    ctypes.memmove(addr, content, len(content))
                    known[addr - start : addr - start + len(content)] = content
                    break
            else:
                raise ValueError(f"{len(content)} bytes at {addr:#x} are not in memory that both ends hold")
