"""Where in a range an operation goes: its first byte, across its end, the byte behind it.

Also what stands in it. Names and offsets alone, so that tables can have them for an axis.
"""

from __future__ import annotations

# Operations on eight bytes at an address that is a multiple of eight.
WORD_OPERATIONS = (
    "ATOMIC_CMP_AND_SWP", "UNEQUAL_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD", "ATOMIC_WRITE", "FETCH_AND_ADD",
)  # fmt: skip
POSITIONS = {
    "whole": "all of the range; of a word operation its first whole word",
    "first": "the first byte, or word",
    "last": "the last byte, or word",
    "before": "the byte, or word, before the range",
    "after": "the byte, or word, behind it",
    "across-start": "sixteen bytes, or a word, of which half lie before the range",
    "across-end": "sixteen bytes, or a word, of which half lie behind it",
    "empty": "no bytes at the beginning",
}
# What stands in the range when an operation comes.
CONTENTS = {
    "made": "known bytes, written into the range and all around it just before the operation",
    "filled": "those that `fill` has left in the memory",
    "zeros": "zeros in memory that nobody has written to",
}
_WORD, _HALF = 8, 8
# From the beginning of the range, or from its end, and how many bytes.
_OFFSETS = {
    "first": (0, 1), "before": (-1, 1), "across-start": (-_HALF, 2 * _HALF), "empty": (0, 0),
    "last": (-1, 1), "after": (0, 1), "across-end": (-_HALF, 2 * _HALF),
}  # fmt: skip
_AT_THE_END = ("last", "after", "across-end")


def locate(position: str, operation: str, addr: int, length: int) -> tuple[int, int]:
    """Offset from `addr`, and length in bytes, of an operation at a position of the range of `length` at `addr`.

    Raises LookupError for a position that the operation does not have.
    """
    if operation in WORD_OPERATIONS:
        return _word(position, addr, length), _WORD
    if position == "whole":
        return 0, length
    offset, size = _OFFSETS[position]
    return offset + (length if position in _AT_THE_END else 0), size


def _word(position: str, addr: int, length: int) -> int:
    end = addr + length
    first, beyond = -(-addr // _WORD) * _WORD, -(-end // _WORD) * _WORD
    positions = {
        "whole": first, "first": first, "last": end // _WORD * _WORD - _WORD,
        "before": addr // _WORD * _WORD - _WORD, "after": beyond,
        # Aligned, and across, where the range begins or ends in the middle of a word.
        "across-start": addr - _WORD // 2, "across-end": end - _WORD // 2,
    }  # fmt: skip
    if position not in positions:
        raise LookupError(f"an operation on a word has no position {position!r}")
    return positions[position] - addr
