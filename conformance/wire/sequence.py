"""The packet sequence numbers of a connection, which wrap (IBA 9.7.2), and the places of packets in a message (IBA
9.2.1)."""

PSNS = 1 << 24  # the number of packet sequence numbers


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
