"""Known contents in memory before an operation, and where they differ afterwards.

What is sent never contains the bytes that stood there before, so that nothing that moves goes unseen. Not
for operations (probes.py) and not for saying whether a change is right (judging.py).
"""

from __future__ import annotations

import ctypes
import functools

from conformance.bench import Memory

# What stands in a range before it is written, in all memory around it, and in a buffer that is to be written.
BEFORE, CANARY, EMPTY = 0x3C, 0x77, 0x5A
_AROUND = {"made": CANARY, "filled": BEFORE, "zeros": 0}
SHOWN = 64  # bytes of a torn transfer, or differing stretches, that a result shows
_STRETCH = 4096
memcmp = ctypes.CDLL(None).memcmp
memcmp.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)
_PERIOD = 113  # prime, so that what lands some whole pages or words off its place differs too
_PATTERN = bytes(0x80 + (number * 31 + 7) % _PERIOD for number in range(_PERIOD))


def sent(length: int) -> bytes:
    """What operations move: `length` bytes, none of which is BEFORE, CANARY, EMPTY or zero."""
    return (_PATTERN * (length // _PERIOD + 1))[:length]


def how_much(content: bytes, wanted: bytes, untouched: bytes) -> str:
    """How much of what was wanted has come where `untouched` stood: all, nothing or part."""
    if content == wanted:
        return "all"
    return "nothing" if content == untouched else "part"


class Target:
    """A range of `length` bytes at `place` in memory of the case, with known contents in it and all around.

    `contents` is of places.CONTENTS; to make them would touch pages that are to be left alone. `inside` is what
    stands in the range, `content` if that is made.
    """

    def __init__(self, memory: Memory, place: int, length: int, contents: str, content: bytes) -> None:
        self.place, self.length = place, length
        self._memory = memory
        self._around = _AROUND[contents]
        self.inside = content if contents == "made" else bytes([self._around]) * length
        if contents == "made":
            ctypes.memset(memory.addr, CANARY, memory.size)
            ctypes.memmove(place, content, length)

    def content(self) -> bytes:
        """What stands in the range now."""
        return ctypes.string_at(self.place, self.length)

    def changed(self) -> list[list[int]]:
        """Where the memory differs from before, as [offset from the range's beginning, bytes].

        No stretch goes across an end of the range.
        """
        first, end = self._memory.addr, self._memory.addr + self._memory.size
        behind = self.place + self.length
        found = [[offset + first - self.place, size] for offset, size in self._strays(first, self.place)]
        found += [[offset, size] for offset, size in _differing(self.content(), self.inside)]
        found += [[offset + self.length, size] for offset, size in self._strays(behind, end)]
        return found[:SHOWN]

    def _strays(self, start: int, end: int) -> list[tuple[int, int]]:
        """The stretches of this memory that are not what stands all around, as (offset from `start`, bytes)."""
        reference = _of_one(self._around, self._memory.size)
        if end <= start or memcmp(start, reference, end - start) == 0:
            return []
        return _differing(ctypes.string_at(start, end - start), reference[: end - start])


@functools.lru_cache(maxsize=4)
def _of_one(byte: int, size: int) -> bytes:
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
