"""Writes known contents into memory before an operation, and finds the differences after the operation. The destination
never contains the transferred bytes before the operation, so each transferred byte changes the destination.
execution/traffic.py executes the operations, and judging/ judges the differences."""

import ctypes
import functools
import re
from typing import NamedTuple

from conformance.bench.interface import Memory

# The initial bytes of a range that is written, of the memory around the range, and of a receiving buffer. BEFORE is
# larger than the bytes of a pattern, so that FETCH_AND_ADD carries from the lower half of the word into the upper half.
BEFORE, CANARY, EMPTY = 0xFE, 0x77, 0x5A
# The byte around the range in a case's memory, for each of positions.CONTENTS.
AROUND = {"made": CANARY, "filled": BEFORE, "zeros": 0}
# The states of an area that exchange.c reports. UNTOUCHED: nothing has changed. REPLACED: each byte of the range has
# changed to the wanted value, and no other byte has changed. OTHER: all other changes, which Python examines.
UNTOUCHED, REPLACED, OTHER = range(3)
SHOWN = 64  # the maximum number of bytes of a partial transfer, or of changed ranges, in a result
_NOT_ZERO = re.compile(rb"[^\0]+")
# If this many consecutive bytes also occur in the memory of another area, they count as copied from that memory.
_TELLING = 4
_libc = ctypes.CDLL(None)
_memcmp, _memchr = _libc.memcmp, _libc.memchr
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_memchr.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
_memchr.restype = ctypes.c_void_p
_PERIOD = 113  # a prime, so that data displaced by whole words or pages also differ
_PATTERN = bytes(0x80 + (number * 31 + 7) % _PERIOD for number in range(_PERIOD))


@functools.lru_cache(maxsize=16)
def pattern(length: int) -> bytes:
    """Returns the `length` bytes that an operation transfers. No byte is BEFORE, CANARY, EMPTY or zero."""
    return (_PATTERN * (length // _PERIOD + 1))[:length]


def numbered(number: int, length: int) -> bytes:
    """Returns the `length` bytes of a numbered message. At each position, messages with near numbers differ."""
    start = number % _PERIOD
    return pattern(start + length)[start:]


class Part(NamedTuple):
    """A part of memory: its address, and its size in bytes. The owner of the memory releases the memory."""

    addr: int
    size: int

    def close(self) -> None:
        """Does nothing."""


class Area:
    """A range of `length` bytes at the address `start` in memory, with known contents in and around the range. `before`
    are the contents of the range before an operation, and `wanted` are the contents after a complete operation. The
    memory around the range is filled with the byte `around`."""

    def __init__(
        self,
        memory: Memory,
        start: int,
        length: int,
        around: int,
        before: bytes,
        content: bytes,
        prefill: bool = True,
    ) -> None:
        """Without `prefill`, the contents exist already or must not be written: `fill` writes nothing."""
        self.memory, self.start, self.length = memory, start, length
        self.around, self.before, self.wanted, self.prefill = around, before, content, prefill
        self.native_state: int | None = None  # the state from exchange.c, or None

    def fill(self) -> None:
        """Writes the contents, if `prefill` is true."""
        self.native_state = None
        if self.prefill:
            ctypes.memset(self.memory.addr, self.around, self.memory.size)
            ctypes.memmove(self.start, self.before, self.length)

    def content(self) -> bytes:
        return ctypes.string_at(self.start, self.length)

    def moved(self, skipped: int = 0) -> str:
        """Returns how much of the wanted contents is in the range: `all`, `nothing` or `part`. Ignores the first
        `skipped` bytes of the range."""
        if self.native_state == UNTOUCHED:
            if self.wanted == self.before:
                return "all"
            return "nothing"
        if self.native_state == REPLACED:
            return "all"
        content, expected = self.content()[skipped:], self.wanted[: self.length - skipped]
        if content == expected:
            return "all"
        if content == self.before[skipped:]:
            return "nothing"
        return "part"

    def received(self, source: "Area") -> str:
        """Returns how much of another area's contents is in this area: a result of `moved`, or `other`.

        `other` means that bytes have changed, but no changed part is from the memory of `source`. A changed part counts
        as copied from the memory of `source` if it has the wanted contents, or if four of its consecutive bytes occur
        anywhere in the memory of `source`.
        """
        moved = self.moved()
        if moved != "part":
            return moved
        content = self.content()
        there = ctypes.string_at(source.memory.addr, source.memory.size)
        for offset, size in _differing(content, self.before):
            new = content[offset : offset + size]
            if new == self.wanted[offset : offset + size]:
                return "part"
            if any(new[at : at + _TELLING] in there for at in range(size - _TELLING + 1)):
                return "part"
        return "other"

    def changed(self) -> list[list[int]]:
        """Returns at most SHOWN changes of the memory, as [offset from the beginning of the range, size], both in
        bytes. A change that crosses an end of the range is split at this end."""
        if self.native_state in (UNTOUCHED, REPLACED):
            if self.native_state == REPLACED:
                return [[0, self.length]]
            return []
        inside = [[offset, size] for offset, size in _differing(self.content(), self.before)]
        return sorted([*inside, *self._changes_outside()])[:SHOWN]

    def changed_outside(self) -> bool:
        return self.native_state not in (UNTOUCHED, REPLACED) and bool(self._changes_outside())

    def _changes_outside(self) -> list[list[int]]:
        ranges: list[list[int]] = []
        reference, after = repeated(self.around, self.memory.size), self.start + self.length
        for at, end in (
            (self.memory.addr, self.start),
            (after, self.memory.addr + self.memory.size),
        ):
            if end > at and _memcmp(at, reference, end - at):
                differing = _differing(ctypes.string_at(at, end - at), reference[: end - at])
                ranges += [[at - self.start + offset, size] for offset, size in differing]
        return ranges


def is_filled(part: Memory, byte: int) -> bool:
    """Whether all bytes of a memory are `byte`. Nothing is copied, because the pages of a copy take longer than the
    comparison."""
    is_uniform = not _memcmp(part.addr, part.addr + 1, part.size - 1)
    return is_uniform and ctypes.string_at(part.addr, 1)[0] == byte


def has_byte(part: Memory, byte: int) -> bool:
    """Whether a memory has this byte anywhere."""
    return _memchr(part.addr, byte, part.size) is not None


@functools.lru_cache(maxsize=8)
def repeated(byte: int, size: int) -> bytes:
    return bytes([byte]) * size


def changed_ranges(content: bytes, reference: bytes) -> list[tuple[int, int]]:
    """Returns at most SHOWN ranges in which two contents of equal length differ, as (offset, size)."""
    return _differing(content, reference)[:SHOWN]


def _differing(content: bytes, reference: bytes) -> list[tuple[int, int]]:
    """Returns the ranges in which two contents of equal length differ, as (offset, size)."""
    if content == reference:
        return []
    differences = int.from_bytes(content, "big") ^ int.from_bytes(reference, "big")
    return [
        (ranges.start(), len(ranges[0]))
        for ranges in _NOT_ZERO.finditer(differences.to_bytes(len(content), "big"))
    ]
