"""Packs bytes into lines of text: compressed by zlib, and encoded in base64."""

from __future__ import annotations

import base64
import zlib


def packed(content: bytes, level: int = 1) -> str:
    """Returns the bytes as text; a higher `level`, up to 9, takes longer and makes the text shorter."""
    return base64.b64encode(zlib.compress(content, level)).decode("ascii")


def unpacked(text: str, most: int = 0) -> bytes:
    """Returns the bytes that `packed` has packed, at most `most`; 0 means all. Raises ValueError for other texts."""
    try:
        return zlib.decompressobj().decompress(base64.b64decode(text, validate=True), most)
    except zlib.error as error:
        raise ValueError(f"not compressed by zlib: {error}") from error
