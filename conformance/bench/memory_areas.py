"""Known contents in memory before an operation, and where they differ afterwards.

What is sent never contains the bytes that stood there before, so that nothing that moves goes unseen. Not
for operations (execution/traffic.py) and not for saying whether a change is right (judging.py).
"""

from __future__ import annotations

import ctypes
import functools

from conformance.bench.interface import Memory

# What stands in a range before it is written, in all memory around it, and in a buffer that is to be written.
BEFORE, CANARY, EMPTY = 0x3C, 0x77, 0x5A
# What stands around in a case's memory, by places.CONTENTS.
AROUND = {"made": CANARY, "filled": BEFORE, "zeros": 0}
# What exchange.c sees of an area: nothing changed; all of the range is as wanted, in every byte another than before,
# and nothing else changed; anything else, at which Python looks.
UNTOUCHED, REPLACED, OTHER = range(3)
SHOWN = 64  # bytes of a torn transfer, or differing stretches, that a result shows
_STRETCH = 4096
_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)
_PERIOD = 113  # prime, so that what lands some whole pages or words off its place differs too
_PATTERN = bytes(0x80 + (number * 31 + 7) % _PERIOD for number in range(_PERIOD))


def sent(length: int) -> bytes:
    """What operations move: `length` bytes, none of which is BEFORE, CANARY, EMPTY or zero."""
    return (_PATTERN * (length // _PERIOD + 1))[:length]


class Area:
    """A range of `length` bytes at `start` in memory, with known contents in it and all around.

    `before` stands in the range when an operation comes, `wanted` when it has done all that it should. What stands
    around is one byte, again and again. Addresses and lengths in bytes.
    """

    def __init__(
        self, memory: Memory, start: int, length: int, around: int, before: bytes, wanted: bytes, made: bool = True
    ) -> None:
        """Not `made` is what must not be touched, or stands there already: it is looked at and never written."""
        self.memory, self.start, self.length = memory, start, length
        self.around, self.before, self.wanted, self.made = around, before, wanted, made
        self.seen: int | None = None  # of SEEN, by who has looked already

    def fill(self) -> None:
        """Makes the contents, if they are to be made."""
        self.seen = None
        if self.made:
            ctypes.memset(self.memory.addr, self.around, self.memory.size)
            ctypes.memmove(self.start, self.before, self.length)

    def content(self) -> bytes:
        """What stands in the range now."""
        return ctypes.string_at(self.start, self.length)

    def moved(self, skipped: int = 0) -> str:
        """How much of what was wanted has come: all, nothing or part; of the bytes behind the `skipped` first ones."""
        if self.seen == UNTOUCHED:
            return "all" if self.wanted == self.before else "nothing"
        if self.seen == REPLACED:
            return "all"
        content, wanted = self.content()[skipped:], self.wanted[: self.length - skipped]
        if content == wanted:
            return "all"
        return "nothing" if content == self.before[skipped:] else "part"

    def changed(self) -> list[list[int]]:
        """Where the memory differs from before, as [offset from the range's beginning, bytes].

        No stretch goes across an end of the range.
        """
        if self.seen in (UNTOUCHED, REPLACED):
            return [[0, self.length]] if self.seen == REPLACED else []
        first, end = self.memory.addr, self.memory.addr + self.memory.size
        behind = self.start + self.length
        found = [[offset + first - self.start, size] for offset, size in self._strays(first, self.start)]
        found += [[offset, size] for offset, size in _differing(self.content(), self.before)]
        found += [[offset + self.length, size] for offset, size in self._strays(behind, end)]
        return found[:SHOWN]

    def strayed(self) -> bool:
        """Whether anything beside the range is no longer as it was."""
        if self.seen in (UNTOUCHED, REPLACED):
            return False
        behind = self.start + self.length
        parts = (self.memory.addr, self.start), (behind, self.memory.addr + self.memory.size)
        return any(self._strays(start, end) for start, end in parts)

    def _strays(self, start: int, end: int) -> list[tuple[int, int]]:
        """The stretches of this memory that are not what stands all around, as (offset from `start`, bytes)."""
        reference = of_one(self.around, self.memory.size)
        if end <= start or _memcmp(start, reference, end - start) == 0:
            return []
        return _differing(ctypes.string_at(start, end - start), reference[: end - start])


@functools.lru_cache(maxsize=8)
def of_one(byte: int, size: int) -> bytes:
    """`size` times the byte."""
    return bytes([byte]) * size


def _differing(content: bytes, reference: bytes) -> list[tuple[int, int]]:
    """The stretches in which two equally long contents differ, as (offset, bytes)."""
    if content == reference:
        return []
    if reference[0] not in content and reference.count(reference[0]) == len(reference):
        return [(0, len(content))]  # all that was there is gone, as after most of what is allowed
    found: list[tuple[int, int]] = []
    for start in range(0, len(content), _STRETCH):
        piece, other = content[start : start + _STRETCH], reference[start : start + _STRETCH]
        if piece == other:
            continue
        for offset, (here, there) in enumerate(zip(piece, other, strict=True), start):
            if here == there:
                continue
            if found and sum(found[-1]) == offset:
                found[-1] = (found[-1][0], found[-1][1] + 1)
            else:
                found.append((offset, 1))
    return found
