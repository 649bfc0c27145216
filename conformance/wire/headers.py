"""The headers of InfiniBand packets as lists of fields (IBA, chapter 9; FETH: annex A19). The BTH is first, and the opcode
determines the other headers. A field has the same name in tables."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Field:
    """`bits` of a header, most significant bit first."""

    name: str
    bits: int


@dataclass(frozen=True)
class Header:
    """A header whose fields follow each other without gaps. Fields whose names begin with `reserved` are sent as 0."""

    name: str
    fields: tuple[Field, ...]

    @property
    def names(self) -> set[str]:
        return {field.name for field in self.fields}

    @property
    def size(self) -> int:
        """The size in bytes."""
        return sum(field.bits for field in self.fields) // 8

    def pack(self, values: Mapping[str, int]) -> bytes:
        """Returns the header as bytes. Fields without a value are 0; values wrap at the size of their field."""
        packed = 0
        for field in self.fields:
            value = values.get(field.name, 0) % (1 << field.bits)
            packed = packed << field.bits | value
        return packed.to_bytes(self.size, "big")

    def unpack(self, data: bytes) -> dict[str, int]:
        """Returns the fields of the header at the beginning of `data`."""
        packed = int.from_bytes(data[: self.size], "big")
        values: dict[str, int] = {}
        for field in reversed(self.fields):
            values[field.name] = packed % (1 << field.bits)
            packed >>= field.bits
        return values


def header_of(name: str, fields: str) -> Header:
    """Returns a header from a text such as `va 64, rkey 32`."""
    parsed: list[Field] = []
    for text in fields.split(","):
        field, bits = text.split()
        parsed.append(Field(field, int(bits)))
    return Header(name, tuple(parsed))


# IBA 9.2: the base transport header. `qpn` is the destination, `tver` the transport header version, which is 0.
BTH = header_of(
    "BTH",
    "opcode 8, se 1, migreq 1, pad 2, tver 4, pkey 16, fecn 1, becn 1, reserved6 6, qpn 24,"
    " ackreq 1, reserved7 7, psn 24",
)
# IBA 9.3: the extended headers.
DETH = header_of("DETH", "qkey 32, reserved8 8, srcqp 24")
RETH = header_of("RETH", "va 64, rkey 32, length 32")
ATOMICETH = header_of("AtomicETH", "va 64, rkey 32, swap 64, compare 64")
AETH = header_of("AETH", "syndrome 8, msn 24")
ATOMICACKETH = header_of("AtomicAckETH", "original 64")
IMMDT = header_of("ImmDt", "imm 32")
IETH = header_of("IETH", "inv 32")
XRCETH = header_of("XRCETH", "reserved9 8, xrcsrq 24")
# Annex A19: `sel` is the selectivity level (0 range, 1 region), `plt` the placement types (1 global visibility,
# 2 persistence).
FETH = header_of("FETH", "reserved10 26, sel 2, plt 4")
HEADERS = (
    BTH,
    DETH,
    RETH,
    ATOMICETH,
    AETH,
    ATOMICACKETH,
    IMMDT,
    IETH,
    XRCETH,
    FETH,
)
