"""Defines the positions of a range at which an operation can be executed, such as the first byte or across the end, and
the contents that the range can have before the operation. Tables use the names as axis values."""

# Operations on a word, which is eight bytes at an address that is a multiple of eight.
WORD_OPERATIONS = """
ATOMIC_CMP_AND_SWP UNEQUAL_CMP_AND_SWP UPPER_UNEQUAL_CMP_AND_SWP ATOMIC_FETCH_AND_ADD ZERO_FETCH_AND_ADD ATOMIC_WRITE
FETCH_AND_ADD
""".split()
POSITIONS = {
    "whole": "all of the range; for a word operation the first word in the range",
    "first": "the first byte, or word",
    "last": "the last byte, or word",
    "before": "the byte, or word, before the range",
    "after": "the byte, or word, after the range",
    "across-start": "sixteen bytes, or a word, with the first half before the range",
    "across-end": "sixteen bytes, or a word, with the second half after the range",
    "exact": "all of the range; for a word operation the first eight bytes of the range, aligned or not",
    "empty": "zero bytes at the beginning of the range",
}
# The contents of the range before an operation.
CONTENTS = {
    "made": "known bytes, written into the range and around it just before the operation",
    "filled": "the bytes that an earlier call of `fill` has written",
    "zeros": "zeros: nothing has been written to the memory yet",
}
_WORD, _HALF = 8, 8
# (offset, size) in bytes. The offset counts from the end of the range for the positions in _AT_THE_END, and from the
# beginning for the other positions.
_OFFSETS = {
    "first": (0, 1),
    "before": (-1, 1),
    "across-start": (-_HALF, 2 * _HALF),
    "empty": (0, 0),
    "last": (-1, 1),
    "after": (0, 1),
    "across-end": (-_HALF, 2 * _HALF),
}
_AT_THE_END = ("last", "after", "across-end")


def locate(position: str, operation: str, addr: int, length: int) -> tuple[int, int]:
    """Returns (offset from `addr`, size), in bytes, of an operation at a position of a range. The range has `length`
    bytes at `addr`. Raises LookupError if the operation does not have the position."""
    if operation in WORD_OPERATIONS:
        return _word(position, addr, length), _WORD
    if position in ("whole", "exact"):
        return 0, length
    offset, size = _OFFSETS[position]
    return offset + (length if position in _AT_THE_END else 0), size


def _word(position: str, addr: int, length: int) -> int:
    end = addr + length
    first, beyond = -(-addr // _WORD) * _WORD, -(-end // _WORD) * _WORD
    positions = {
        "whole": first,
        "first": first,
        "exact": addr,
        "last": end // _WORD * _WORD - _WORD,
        "before": addr // _WORD * _WORD - _WORD,
        "after": beyond,
        # These words are aligned only if the beginning or end of the range is in the middle of a word.
        "across-start": addr - _WORD // 2,
        "across-end": end - _WORD // 2,
    }
    if position not in positions:
        raise LookupError(f"a word operation has no position {position!r}")
    return positions[position] - addr
