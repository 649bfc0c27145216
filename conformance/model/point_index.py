"""Encodes a number for each point as text of a results file: 16-bit words, compressed."""

from __future__ import annotations

import sys
from array import array

from conformance.packed_text import packed, unpacked


def encode_index(index: array[int]) -> str:
    """Returns the index as little-endian 16-bit words, compressed by zlib and encoded in base64."""
    return packed(little(index).tobytes(), level=6)


def decode_index(text: str, points: int) -> array[int]:
    """Reverses `encode_index`. Returns at most `points` + 1 numbers. Raises ValueError."""
    index = array("H")
    # The output is bounded, because the file may be of any origin.
    index.frombytes(unpacked(text, 2 * (points + 1)))
    return little(index)


def little(words: array[int]) -> array[int]:
    """Converts 16-bit words between the byte order of this machine and little-endian."""
    if sys.byteorder == "little":
        return words
    swapped = array(words.typecode, words)
    swapped.byteswap()
    return swapped
