"""The invariant CRC of RoCEv2 (annex A17.3.3; Linux: rxe_icrc.c): CRC-32 over the packet with its IP and UDP headers, in
which the fields that routers may change count as ones."""

import ipaddress
import struct
import zlib
from dataclasses import dataclass, replace
from typing import Literal

UDP_PORT = 4791  # annex A17.3.1, assigned by IANA
SIZE = 4  # bytes of the ICRC
_UDP = struct.Struct(">HHHH")
_IPV4 = struct.Struct(">BBHHHBBH4s4s")
_IPV6 = struct.Struct(">IHBB16s16s")
_PROTOCOL = 17
_DONT_FRAGMENT = 0x4000
# The eight bytes of ones in place of the LRH of InfiniBand.
_NO_LRH = b"\xff" * 8
_ONES_OF_BTH = 4  # the offset of the BTH's byte with FECN and BECN


Order = Literal["little", "big"]
RIGHT_ORDER: Order = (
    "little"  # Linux, lib/crc/: the bits of crc32_le() in the order in which they are sent
)


@dataclass(frozen=True)
class Path:
    """The addresses of a packet as text, its ports, and the fields of the IPv4 header that the ICRC covers. The kernel
    sends packets of an unconnected UDP socket with DF and the identification 0. `order` is the byte order of the ICRC;
    a device may have a wrong one."""

    source: str
    destination: str
    source_port: int = UDP_PORT
    port: int = UDP_PORT
    identification: int = 0
    fragment: int = _DONT_FRAGMENT
    order: Order = RIGHT_ORDER

    def back(self) -> "Path":
        """Returns the path of an answer."""
        return replace(self, source=self.destination, destination=self.source)


def _covered_ip(path: Path, udp_length: int) -> bytes:
    """Returns the IP header with ones in its variable fields: TOS, TTL and checksum, or the first four bytes without the
    version, and the hop limit."""
    source, destination = (
        ipaddress.ip_address(path.source).packed,
        ipaddress.ip_address(path.destination).packed,
    )
    if len(source) == 4:
        length = _IPV4.size + udp_length
        return _IPV4.pack(
            0x45,
            0xFF,
            length,
            path.identification,
            path.fragment,
            0xFF,
            _PROTOCOL,
            0xFFFF,
            source,
            destination,
        )
    return _IPV6.pack(0x6FFFFFFF, udp_length, _PROTOCOL, 0xFF, source, destination)


def icrc(path: Path, packet: bytes, again: bytes = b"") -> bytes:
    """Returns the ICRC of a packet, which begins with the BTH and ends before the ICRC. `again` are bytes that a wrong
    implementation counts after the packet."""
    udp_length = _UDP.size + len(packet) + SIZE
    udp = _UDP.pack(path.source_port, path.port, udp_length, 0xFFFF)
    bth = packet[:_ONES_OF_BTH] + b"\xff" + packet[_ONES_OF_BTH + 1 :]
    covered = _NO_LRH + _covered_ip(path, udp_length) + udp + bth + again
    return zlib.crc32(covered).to_bytes(SIZE, path.order)
