"""The opcodes of packets (IBA 9.2.1, annex A19; Linux: ib_pack.h), the headers that follow the BTH, and the meanings of
the syndrome in an AETH (IBA 9.7.5.1; Linux: rxe_hdr.h)."""

from collections.abc import Mapping
from dataclasses import dataclass

from conformance.wire.headers import (
    AETH,
    ATOMICACKETH,
    ATOMICETH,
    DETH,
    FETH,
    IETH,
    IMMDT,
    RETH,
    XRCETH,
    Header,
)

# The upper three bits of an opcode.
TRANSPORTS: Mapping[str, int] = {"RC": 0x00, "UC": 0x20, "UD": 0x60, "XRC": 0xA0}
OPERATION_BITS = 0x1F
# The congestion notification of RoCEv2 (annex A17.9.3), an opcode without a transport.
CNP = 0x81


@dataclass(frozen=True)
class Operation:
    """The lower five bits of an opcode, the extended headers, and whether data may follow the headers."""

    number: int
    headers: tuple[Header, ...] = ()
    data: bool = False


OPERATIONS: Mapping[str, Operation] = {
    "SEND_FIRST": Operation(0, (), True),
    "SEND_MIDDLE": Operation(1, (), True),
    "SEND_LAST": Operation(2, (), True),
    "SEND_LAST_WITH_IMM": Operation(3, (IMMDT,), True),
    "SEND_ONLY": Operation(4, (), True),
    "SEND_ONLY_WITH_IMM": Operation(5, (IMMDT,), True),
    "RDMA_WRITE_FIRST": Operation(6, (RETH,), True),
    "RDMA_WRITE_MIDDLE": Operation(7, (), True),
    "RDMA_WRITE_LAST": Operation(8, (), True),
    "RDMA_WRITE_LAST_WITH_IMM": Operation(9, (IMMDT,), True),
    "RDMA_WRITE_ONLY": Operation(10, (RETH,), True),
    "RDMA_WRITE_ONLY_WITH_IMM": Operation(11, (RETH, IMMDT), True),
    "RDMA_READ_REQUEST": Operation(12, (RETH,)),
    "RDMA_READ_RESPONSE_FIRST": Operation(13, (AETH,), True),
    "RDMA_READ_RESPONSE_MIDDLE": Operation(14, (), True),
    "RDMA_READ_RESPONSE_LAST": Operation(15, (AETH,), True),
    "RDMA_READ_RESPONSE_ONLY": Operation(16, (AETH,), True),
    "ACKNOWLEDGE": Operation(17, (AETH,)),
    "ATOMIC_ACKNOWLEDGE": Operation(18, (AETH, ATOMICACKETH)),
    "COMPARE_SWAP": Operation(19, (ATOMICETH,)),
    "FETCH_ADD": Operation(20, (ATOMICETH,)),
    "SEND_LAST_WITH_INV": Operation(22, (IETH,), True),
    "SEND_ONLY_WITH_INV": Operation(23, (IETH,), True),
    "FLUSH": Operation(28, (FETH, RETH)),
    "ATOMIC_WRITE": Operation(29, (RETH,), True),
}
# Opcodes that the specification reserves.
RESERVED: Mapping[str, Operation] = {
    f"RESERVED_{number}": Operation(number, (), True) for number in (21, 24, 25, 26, 27, 30, 31)
}
_NAMES = {operation.number: name for name, operation in {**OPERATIONS, **RESERVED}.items()}
_RESPONSES = ("RDMA_READ_RESPONSE", "ACKNOWLEDGE", "ATOMIC_ACKNOWLEDGE")


def operation_of(name: str) -> Operation:
    """Returns the operation with a name of OPERATIONS or RESERVED."""
    return OPERATIONS.get(name) or RESERVED[name]


def name_of(opcode: int) -> str:
    """Returns the name of an opcode's operation, without its transport."""
    return _NAMES[opcode & OPERATION_BITS]


def is_response(name: str) -> bool:
    return name.startswith(_RESPONSES)


def headers_of(transport: str, name: str) -> tuple[Header, ...]:
    """Returns the headers after the BTH: datagrams begin with a DETH, requests of XRC with an XRCETH."""
    headers = operation_of(name).headers
    if transport == "UD":
        return (DETH, *headers)
    if transport == "XRC" and not is_response(name):
        return (XRCETH, *headers)
    return headers


# The syndromes of a NAK.
NAKS: Mapping[str, int] = {
    "NAK_PSN_SEQUENCE": 0x60,
    "NAK_INVALID_REQUEST": 0x61,
    "NAK_REMOTE_ACCESS": 0x62,
    "NAK_REMOTE_OPERATIONAL": 0x63,
    "NAK_INVALID_RD_REQUEST": 0x64,
}
# The lower five bits of ACK are a credit count, and those of RNR_NAK a timer. 31: no credit count is reported.
SYNDROMES: Mapping[str, int] = {"ACK": 0x1F, "RNR_NAK": 0x20, **NAKS}
_KINDS = {0x00: "ACK", 0x20: "RNR_NAK"}
_KIND_BITS = 0xE0
_OF_NAK = {number: name for name, number in NAKS.items()}


def name_of_syndrome(syndrome: int) -> str:
    """Returns the name of an AETH's syndrome, or `SYNDROME_` with the number if it is reserved."""
    kind = _KINDS.get(syndrome & _KIND_BITS)
    return kind or _OF_NAK.get(syndrome) or f"SYNDROME_{syndrome:#04x}"
