"""The segments of iWARP as data: the headers of DDP (RFC 5041, 4) and RDMAP (RFC 5040, 4), their operations, the errors
that a Terminate message reports (RFC 5040, 4.8; RFC 5041, 7.2; RFC 5044, 8), a builder that can make any field wrong, and
a parser. Linux: drivers/infiniband/sw/siw/iwarp.h, which has the same numbers. mpa.py frames segments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from conformance.wire.headers import Header, header_of
from conformance.wire.packet import Parsed

IWARP = "iWARP"
VERSION = 1  # of DDP and of RDMAP
# RFC 5041, 4.1, and RFC 5040, 4.1: the control fields of both.
CONTROL = header_of(
    "control", "tagged 1, last 1, reserved11 4, dv 2, rv 2, reserved12 2, rdmapop 4"
)
# RFC 5041, 4.2: the STag and the tagged offset have the names of a key and an address, as in the RETH.
TAGGED = header_of("tagged", "rkey 32, va 64")
# RFC 5041, 4.3: `inv` is the STag to invalidate (RFC 5040, 4.1); queue number, message number, offset in the message.
UNTAGGED = header_of("untagged", "inv 32, qn 32, msn 32, mo 32")
# RFC 5040, 4.4: where the requester wants the data, their length, and where they are.
READ = header_of("RDMA Read Request", "sinkstag 32, sinkto 64, length 32, rkey 32, va 64")
# RFC 5040, 4.8: what of the refused segment follows.
TERMINATE = header_of(
    "Terminate", "layer 4, etype 4, code 8, hasm 1, hasd 1, hasr 1, reserved13 13"
)
# The same on a device that counts the bits of these bytes from the least significant one (the bit fields of a structure in
# siw on a little-endian processor).
_MIRRORED = header_of(
    "Terminate", "etype 4, layer 4, code 8, reserved13 5, hasr 1, hasd 1, hasm 1, reserved14 8"
)
SEGMENT_HEADERS = (CONTROL, TAGGED, UNTAGGED, READ, TERMINATE)


@dataclass(frozen=True)
class SegmentKind:
    """An opcode of RDMAP, and the headers behind the control field. `queue` is None for a tagged segment."""

    number: int
    queue: int | None = None
    headers: tuple[Header, ...] = (UNTAGGED,)
    data: bool = True


# RFC 5040, 4.1 and 4.2, with the queue numbers of RFC 5040, 4.1.
SEGMENTS: Mapping[str, SegmentKind] = {
    "RDMA_WRITE": SegmentKind(0, None, (TAGGED,)),
    "RDMA_READ_REQUEST": SegmentKind(1, 1, (UNTAGGED, READ), data=False),
    "RDMA_READ_RESPONSE": SegmentKind(2, None, (TAGGED,)),
    "SEND": SegmentKind(3, 0),
    "SEND_WITH_INV": SegmentKind(4, 0),
    "SEND_WITH_SE": SegmentKind(5, 0),
    "SEND_WITH_SE_AND_INV": SegmentKind(6, 0),
    "TERMINATE": SegmentKind(7, 2, (UNTAGGED, TERMINATE)),
}
# Opcodes to which neither RFC 5040 nor RFC 7306 gives a meaning.
RESERVED_SEGMENTS: Mapping[str, SegmentKind] = {
    f"RESERVED_{number}": SegmentKind(number, 0) for number in (12, 13, 14, 15)
}
_NAMES = {kind.number: name for name, kind in {**SEGMENTS, **RESERVED_SEGMENTS}.items()}
# Layer, error type and error code of a Terminate message.
TERMINATES: Mapping[str, tuple[int, int, int]] = {
    "RDMAP_CATASTROPHIC": (0, 0, 0xFF),
    "RDMAP_INVALID_STAG": (0, 1, 0x00),
    "RDMAP_BASE_BOUNDS": (0, 1, 0x01),
    "RDMAP_ACCESS_RIGHTS": (0, 1, 0x02),
    "RDMAP_NOT_ASSOCIATED": (0, 1, 0x03),
    "RDMAP_TO_WRAP": (0, 1, 0x04),
    "RDMAP_CANNOT_INVALIDATE": (0, 1, 0x09),
    "RDMAP_UNSPECIFIED_PROTECTION": (0, 1, 0xFF),
    "RDMAP_VERSION": (0, 2, 0x05),
    "RDMAP_UNEXPECTED_OPCODE": (0, 2, 0x06),
    "RDMAP_STREAM": (0, 2, 0x07),
    "RDMAP_GLOBAL": (0, 2, 0x08),
    "RDMAP_CANNOT_INVALIDATE_OPERATION": (0, 2, 0x09),
    "RDMAP_UNSPECIFIED_OPERATION": (0, 2, 0xFF),
    "DDP_CATASTROPHIC": (1, 0, 0x00),
    "DDP_INVALID_STAG": (1, 1, 0x00),
    "DDP_BASE_BOUNDS": (1, 1, 0x01),
    "DDP_NOT_ASSOCIATED": (1, 1, 0x02),
    "DDP_TO_WRAP": (1, 1, 0x03),
    "DDP_TAGGED_VERSION": (1, 1, 0x04),
    "DDP_INVALID_QN": (1, 2, 0x01),
    "DDP_NO_BUFFER": (1, 2, 0x02),
    "DDP_MSN_RANGE": (1, 2, 0x03),
    "DDP_INVALID_MO": (1, 2, 0x04),
    "DDP_TOO_LONG": (1, 2, 0x05),
    "DDP_UNTAGGED_VERSION": (1, 2, 0x06),
    "MPA_CRC": (2, 0, 0x02),
    "MPA_FPDU": (2, 0, 0x03),
}
_OF_TERMINATE = {numbers: name for name, numbers in TERMINATES.items()}


def kind_of(name: str) -> SegmentKind:
    """Returns the kind with a name of SEGMENTS or RESERVED_SEGMENTS."""
    return SEGMENTS.get(name) or RESERVED_SEGMENTS[name]


def fields_of_terminate(name: str) -> dict[str, int]:
    """Returns the fields of a Terminate message with the error of a name of TERMINATES."""
    return dict(zip(("layer", "etype", "code"), TERMINATES[name]))


def name_of_terminate(fields: Mapping[str, int]) -> str:
    """Returns the name of the error in a Terminate message, or its three numbers if no document names it."""
    numbers = fields["layer"], fields["etype"], fields["code"]
    return _OF_TERMINATE.get(numbers) or "TERMINATE_{}_{}_{:#04x}".format(*numbers)


@dataclass(frozen=True)
class Segment:
    """A segment to build. `fields` are values of header fields by name; those of the control field are derived from the
    operation unless `fields` has them."""

    operation: str
    fields: Mapping[str, int] = field(default_factory=dict)
    data: bytes = b""

    def packed(self) -> bytes:
        kind = kind_of(self.operation)
        values = {
            "tagged": int(kind.queue is None),
            "last": 1,
            "dv": VERSION,
            "rv": VERSION,
            "rdmapop": kind.number,
            "qn": kind.queue or 0,
            **self.fields,
        }
        packed = CONTROL.pack(values)
        for header in kind.headers:
            packed += header.pack(values)
        return packed + self.data


@dataclass(frozen=True)
class ParsedSegment(Parsed):
    """A received segment; see Parsed. The data of a TERMINATE are what it repeats of the refused segment."""

    @property
    def name(self) -> str:
        """The operation, or the error that a TERMINATE reports."""
        if self.operation == "TERMINATE" and "code" in self.fields:
            return name_of_terminate(self.fields)
        return self.operation


def parse_segment(packed: bytes, mirrored: bool = False) -> ParsedSegment:
    """Parses and checks a segment. One that is too short has only the fields of the headers that are complete. `mirrored` is
    whether the device counts the bits of a Terminate message from the wrong end."""
    if len(packed) < CONTROL.size:
        return ParsedSegment(IWARP, "", {}, packed, (f"only {len(packed)} bytes",))
    values = CONTROL.unpack(packed)
    operation = _NAMES.get(values["rdmapop"], "")
    if not operation:
        wrong = (f"opcode {values['rdmapop']:#x}",)
        return ParsedSegment(IWARP, "", values, packed[CONTROL.size :], wrong)
    kind = kind_of(operation)
    mistakes: list[str] = []
    at = CONTROL.size
    for header in kind.headers:
        if mirrored and header is TERMINATE:
            header = _MIRRORED
        if len(packed) < at + header.size:
            mistakes.append(f"its header {header.name} is cut")
            break
        values |= header.unpack(packed[at:])
        at += header.size
    mistakes += _mistakes(values, kind)
    data = packed[at:]
    if data and not kind.data:
        mistakes.append(f"{len(data)} bytes after headers that no data may follow")
    return ParsedSegment(IWARP, operation, values, data, tuple(mistakes))


def _mistakes(values: Mapping[str, int], kind: SegmentKind) -> list[str]:
    """Checks what must be the same in every segment of a kind."""
    mistakes: list[str] = []
    if (values["dv"], values["rv"]) != (VERSION, VERSION):
        mistakes.append(f"DDP version {values['dv']}, RDMAP version {values['rv']}")
    if values["tagged"] != int(kind.queue is None):
        mistakes.append(f"the tagged flag is {values['tagged']}")
    if kind.queue is not None and values.get("qn", kind.queue) != kind.queue:
        mistakes.append(f"queue number {values['qn']} instead of {kind.queue}")
    for name, value in values.items():
        if name.startswith("reserved") and value:
            mistakes.append(f"reserved bits {value:#x}")
    return mistakes
