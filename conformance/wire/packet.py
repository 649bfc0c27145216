"""Builds packets, with any field wrong on purpose, and parses and checks packets. A packet here is the payload of a UDP
datagram: from the BTH to the ICRC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from conformance.wire.headers import BTH
from conformance.wire.icrc import RIGHT_ORDER, SIZE, Path, icrc
from conformance.wire.opcodes import (
    CNP,
    OPERATION_BITS,
    TRANSPORTS,
    headers_of,
    name_of,
    name_of_syndrome,
    operation_of,
)

DEFAULT_PKEY = 0xFFFF  # IBA 10.9.1.2: the default partition, full membership
WRONG_ICRC = "wrong ICRC"  # a mistake of a parsed packet
_PAD_TO = 4  # IBA 9.2.3: the payload is padded to a multiple of four bytes
# How the ICRC of a packet is computed. `twice`: the bytes from the BTH on count a second time at the end.
# Which bits of an ICRC are inverted: all, or those of its first or last byte.
INVERTED = {"wrong": 0xFFFFFFFF, "wrong_first": 0xFF000000, "wrong_last": 0xFF}
ICRCS = ("right", "absent", "twice", *INVERTED)
_TRANSPORT_OF = {number: name for name, number in TRANSPORTS.items()}


@dataclass(frozen=True)
class Packet:
    """A packet to build. `fields` are values of header fields by name; `pad` of the BTH is derived from the data, and
    the opcode from transport and operation, unless `fields` has them."""

    transport: str
    operation: str
    fields: Mapping[str, int] = field(default_factory=dict)
    data: bytes = b""

    def body(self, padding: int | None = None) -> bytes:
        """Returns the bytes from the BTH to the padding. `padding` is the number of bytes after the data, if it is not
        the number in the field `pad`."""
        pad = -len(self.data) % _PAD_TO
        opcode = TRANSPORTS[self.transport] | operation_of(self.operation).number
        values = {
            "opcode": opcode,
            "migreq": 1,
            "pkey": DEFAULT_PKEY,
            "pad": pad,
            **self.fields,
        }
        packed = BTH.pack(values)
        for header in headers_of(self.transport, self.operation):
            packed += header.pack(values)
        if padding is None:
            appended = values["pad"] % _PAD_TO
        else:
            appended = padding
        return packed + self.data + bytes(appended)


def build(
    packet: Packet,
    path: Path,
    crc: str = "",
    padding: int | None = None,
    cut: int | None = None,
) -> bytes:
    """Returns a packet with its ICRC. `crc` is one of ICRCS; empty for the ICRC in the byte order of the path. `cut` is
    the number of bytes of the body that are sent; the ICRC is then that of these bytes."""
    body = packet.body(padding)[:cut]
    if crc == "absent":
        return body
    if crc == "right":
        path = replace(path, order=RIGHT_ORDER)
    computed = icrc(path, body, body if crc == "twice" else b"")
    inverted = int.from_bytes(computed, "big") ^ INVERTED.get(crc, 0)
    return body + inverted.to_bytes(SIZE, "big")


@dataclass(frozen=True)
class Parsed:
    """A received packet. `wrong` lists what differs from the specification; `checked` is whether the ICRC could be
    checked: without the IPv4 header it cannot."""

    transport: str
    operation: str
    fields: Mapping[str, int]
    data: bytes = b""
    wrong: tuple[str, ...] = ()
    checked: bool = True

    @property
    def name(self) -> str:
        """The operation, or the meaning of the syndrome if the packet has no data: ACK, RNR_NAK, or the NAK."""
        if self.operation == "ACKNOWLEDGE":
            return name_of_syndrome(self.fields["syndrome"])
        return self.operation


def parse(payload: bytes, path: Path, checks_icrc: bool = True) -> Parsed:
    """Parses and checks the payload of a UDP datagram. A packet that is too short for its headers has only the fields
    of the headers that are complete."""
    if len(payload) < BTH.size + SIZE:
        return Parsed("", "", {}, payload, (f"only {len(payload)} bytes",), False)
    body, received = payload[:-SIZE], payload[-SIZE:]
    values = BTH.unpack(body)
    if values["opcode"] == CNP:
        return Parsed("CNP", "CNP", values, body[BTH.size :])
    transport = _TRANSPORT_OF.get(values["opcode"] & ~OPERATION_BITS, "")
    operation = name_of(values["opcode"])
    wrong: list[str] = []
    if not transport:
        wrong.append(f"reserved transport in the opcode {values['opcode']:#04x}")
    if operation.startswith("RESERVED"):
        wrong.append(f"reserved opcode {values['opcode']:#04x}")
    at = BTH.size
    for header in headers_of(transport, operation):
        if len(body) < at + header.size:
            wrong.append(f"its {header.name} is cut")
            break
        values |= header.unpack(body[at:])
        at += header.size
    end = len(body) - values["pad"]
    if end < at:
        wrong.append(f"a pad of {values['pad']} for {len(body) - at} bytes")
    wrong += _wrong_fields(values, operation, body[at:], max(0, end - at))
    if checks_icrc and icrc(path, body) != received:
        wrong.append(WRONG_ICRC)
    return Parsed(transport, operation, values, body[at:end], tuple(wrong), checks_icrc)


def _wrong_fields(values: Mapping[str, int], operation: str, rest: bytes, data: int) -> list[str]:
    """Checks what must be the same in every packet. `rest` are the bytes after the headers, of which `data` are data."""
    wrong: list[str] = []
    if values["tver"]:
        wrong.append(f"transport header version {values['tver']}")
    for name, value in values.items():
        if name.startswith("reserved") and value:
            wrong.append(f"reserved bits {value:#x}")
    if len(rest) % _PAD_TO:
        wrong.append(f"{len(rest)} bytes after the headers, no multiple of {_PAD_TO}")
    if any(rest[data:]):
        wrong.append("padding that is not zero")
    if rest and not operation_of(operation).data:
        wrong.append(f"{len(rest)} bytes after headers that no data may follow")
    return wrong
