"""The packet sequence numbers of a connection, which wrap (IBA 9.7.2), and the places of packets in a message (IBA
9.2.1)."""

from __future__ import annotations

import zlib

PSNS = 1 << 24  # the number of packet sequence numbers
# The first PSNs of a peer and of the device, far from the wrap and from each other.
FIRST_PSNS = (0x700000, 0x300000)
# A third of all names has one of the first two. From each of them, messages of two to four packets end behind the wrap.
_BY_NAME = (PSNS - 1, PSNS - 2, None, None, None, None)


def psn_distance(psn: int, first: int) -> int:
    """Returns how many packets a PSN is behind another one; negative if it is before."""
    distance = (psn - first) % PSNS
    if distance > PSNS // 2:
        return distance - PSNS
    return distance


def place_of(number: int, count: int) -> str:
    """Returns the place of a packet, counted from 0, in a message of `count` packets, as in the name of its opcode."""
    if count == 1:
        return "ONLY"
    if not number:
        return "FIRST"
    if number == count - 1:
        return "LAST"
    return "MIDDLE"


def psn_near_the_wrap(name: str) -> int | None:
    """Returns the first PSN of a third of all names, always the same ones; None for the others."""
    return _BY_NAME[zlib.crc32(name.encode()) % len(_BY_NAME)]
