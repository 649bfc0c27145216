"""The framing of segments in a TCP stream (MPA, RFC 5044) without markers: FPDUs with their CRC32C, and the frames that
begin a connection."""

from __future__ import annotations

import struct
from functools import lru_cache

_LENGTH = struct.Struct(">H")
_CRC = struct.Struct("<I")
_PAD_TO = 4
# RFC 5044, 7.1.1; Linux: drivers/infiniband/sw/siw/iwarp.h.
REQUEST_KEY, REPLY_KEY = b"MPA ID Req Frame", b"MPA ID Rep Frame"
MARKERS, CRC, REJECTED = 0x80, 0x40, 0x20
REVISION = 1
_FRAME = struct.Struct(">16sBBH")
FRAME_SIZE = _FRAME.size
# How the CRC of an FPDU is computed; `zero` is what an end sends that does not use the CRC.
CRCS = ("right", "wrong", "zero")
_POLYNOMIAL = 0x82F63B78  # CRC32C, reflected (RFC 3385)


@lru_cache(maxsize=1)
def _table() -> tuple[int, ...]:
    table: list[int] = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            shifted = value >> 1
            if value & 1:
                shifted ^= _POLYNOMIAL
            value = shifted
        table.append(value)
    return tuple(table)


def crc32c(data: bytes) -> int:
    table, value = _table(), 0xFFFFFFFF
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ value >> 8
    return value ^ 0xFFFFFFFF


def frame(
    segment: bytes,
    crc: str = "right",
    length: int | None = None,
    cut: int | None = None,
) -> bytes:
    """Returns the FPDU of a segment (RFC 5044, 4.1). `crc` is one of CRCS; `length` is the value of its length field;
    `cut` is the number of its bytes that are sent."""
    if length is None:
        length = len(segment)
    body = _LENGTH.pack(length % (1 << 16)) + segment
    body += bytes(-len(body) % _PAD_TO)
    computed = crc32c(body)
    if crc == "wrong":
        computed ^= 0xFFFFFFFF
    elif crc == "zero":
        computed = 0
    return (body + _CRC.pack(computed))[:cut]


def request(flags: int = CRC, revision: int = REVISION, data: bytes = b"") -> bytes:
    """Returns the frame with which an initiator begins a connection."""
    return _FRAME.pack(REQUEST_KEY, flags, revision, len(data)) + data


def reply_flags(frame_: bytes) -> int | None:
    """Returns the flags of a reply frame; None if it is none."""
    key, flags, _, _ = _FRAME.unpack_from(frame_)
    if key != REPLY_KEY:
        return None
    return int(flags)


def private_bytes(frame_: bytes) -> int:
    """Returns the number of bytes of private data after a frame of FRAME_SIZE bytes."""
    return int(_FRAME.unpack_from(frame_)[3])


class Reader:
    """Takes the bytes of a stream, and returns the complete segments in it, each with the mistakes of its FPDU."""

    def __init__(self) -> None:
        self._bytes = b""

    def take(self, received: bytes) -> list[tuple[bytes, tuple[str, ...]]]:
        self._bytes += received
        segments: list[tuple[bytes, tuple[str, ...]]] = []
        while len(self._bytes) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._bytes)
            end = _LENGTH.size + length
            padded = end + -end % _PAD_TO
            if len(self._bytes) < padded + _CRC.size:
                break
            body, crc = self._bytes[:padded], self._bytes[padded : padded + _CRC.size]
            self._bytes = self._bytes[padded + _CRC.size :]
            mistakes: list[str] = []
            if _CRC.pack(crc32c(body)) != crc:
                mistakes.append("wrong CRC")
            if any(body[end:]):
                mistakes.append("padding that is not zero")
            segments.append((body[_LENGTH.size : end], tuple(mistakes)))
        return segments
