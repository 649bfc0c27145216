"""Encodes a number for each point as text of a results file: 16-bit words, compressed."""

from __future__ import annotations

import base64
import sys
import zlib
from array import array


def encode_index(index: array[int]) -> str:
    """Returns the index as little-endian 16-bit words, compressed by zlib and encoded in base64."""
    return base64.b64encode(zlib.compress(little(index).tobytes(), 6)).decode("ascii")


def decode_index(text: str, points: int) -> array[int]:
    """Reverses `encode_index`. Returns at most `points` + 1 numbers. Raises ValueError."""
    try:
        # The output is bounded, because the file may be of any origin.
        data = zlib.decompressobj().decompress(
            base64.b64decode(text, validate=True),
            2 * (points + 1),
        )
    except zlib.error as error:
        raise ValueError(f"invalid index of points: {error}") from error
    index = array("H")
    index.frombytes(data)
    return little(index)


def little(words: array[int]) -> array[int]:
    """Converts 16-bit words between the byte order of this machine and little-endian."""
    if sys.byteorder == "little":
        return words
    swapped = array(words.typecode, words)
    swapped.byteswap()
    return swapped
