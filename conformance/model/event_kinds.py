"""Defines the kinds of events of a script (script.py), with the words and numbers that an event can have."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from conformance.model.script import ANYTHING, CLOSED, NOTHING, REFUSAL, RESPONSE, Event
from conformance.wire.headers import BTH, DETH, HEADERS, XRCETH, Header
from conformance.wire.mpa import CRCS
from conformance.wire.opcodes import OPERATIONS, RESERVED, SYNDROMES, TRANSPORTS, operation_of
from conformance.wire.packet import ICRCS
from conformance.wire.segments import (
    CONTROL,
    RESERVED_SEGMENTS,
    SEGMENT_HEADERS,
    SEGMENTS,
    TERMINATES,
    kind_of,
)

QP_STATES_SEEN = ("RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR")
ANSWERS = (*SYNDROMES, RESPONSE, NOTHING, REFUSAL, ANYTHING, *TERMINATES, CLOSED)
_FIELDS = tuple(
    sorted(
        {
            entry.name
            for header in (*HEADERS, *SEGMENT_HEADERS)
            for entry in header.fields
            if not entry.name.startswith("reserved")
        }
        | {"reserved6", "reserved7"},
    ),
)
# The numbers of a packet besides the fields of its headers: `addr` is the field `va`, and `at` is the address of the same
# bytes in this process. `data` is the number of bytes of data, which are those of a message from `offset` on. `again`
# repeats the packet of this number. For `cut` and `padding` see wire.packet.build, for `ulpdu`, the length field, wire.mpa.
_OF_PACKETS = (*_FIELDS, "addr", "at", "data", "offset", "again", "cut", "padding", "ulpdu")
_STREAM = {**SEGMENTS, **RESERVED_SEGMENTS}
_ROCE = {**OPERATIONS, **RESERVED}
_PACKETS = tuple(dict.fromkeys((*_ROCE, *_STREAM)))
_POSTED = """
SEND SEND_WITH_IMM SEND_WITH_INV RDMA_WRITE RDMA_WRITE_WITH_IMM RDMA_READ ATOMIC_CMP_AND_SWP ATOMIC_FETCH_AND_ADD LOCAL_INV
ATOMIC_WRITE FLUSH_GLOBAL
""".split()
_STATUSES = """
SUCCESS LOC_LEN_ERR LOC_QP_OP_ERR LOC_PROT_ERR WR_FLUSH_ERR MW_BIND_ERR BAD_RESP_ERR LOC_ACCESS_ERR REM_INV_REQ_ERR
REM_ACCESS_ERR REM_OP_ERR RETRY_EXC_ERR RNR_RETRY_EXC_ERR FATAL_ERR GENERAL_ERR nothing
""".split()


# The only flag of a posted request that removes one: each other request has SIGNALED.
UNSIGNALED = "UNSIGNALED"


@dataclass(frozen=True)
class EventSpec:
    """A kind of event: the words or the quantity of its key, and its further keys: numbers, and words of which `several`
    keys can have a list."""

    meaning: str
    words: tuple[str, ...] = ()  # empty: the key has a quantity
    several: bool = False
    numbers: tuple[str, ...] = ()
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


_OF_PEER: Mapping[str, tuple[str, ...]] = {
    "transport": tuple(TRANSPORTS),
    "icrc": ICRCS,
    "crc": CRCS,
}
EVENTS: Mapping[str, EventSpec] = {
    "op": EventSpec(
        "the peer sends a request, and gets one of these answers",
        _PACKETS,
        # `counts` is the message sequence number of the answer, and `tclass` its traffic class.
        numbers=(*_OF_PACKETS, "counts", "tclass"),
        names={
            **_OF_PEER,
            "gets": ANSWERS,
            "says": tuple(TERMINATES),
            # The answer is read as the documents say, also on a device that is known to differ.
            "form": ("document",),
            "lost": ("true",),
        },
    ),
    "answer": EventSpec(
        "the peer answers the device's oldest request",
        _PACKETS,
        numbers=_OF_PACKETS,
        names={**_OF_PEER, "gets": ANSWERS, "says": (*SYNDROMES, *TERMINATES)},
    ),
    "post": EventSpec(
        "the device posts a request to the peer",
        tuple(_POSTED),
        # `split` is the length of the first of two elements that together are the range. An ATOMIC WRITE has the word
        # that is at `addr`.
        numbers=("addr", "length", "split", "lkey", "to", "rkey", "imm", "inv", "compare", "swap"),
        names={"flags": ("FENCE", "INLINE", "SOLICITED", UNSIGNALED)},
    ),
    "sends": EventSpec(
        "the device sends a packet with these fields, and with the bytes of the case's memory `from` an address on",
        (*_PACKETS, NOTHING),
        True,
        # `tclass` is the traffic class in the IP header, without the two bits for congestion. `after` is the least number
        # of milliseconds from the peer's last answer.
        numbers=(*_OF_PACKETS, "from", "tclass", "after"),
        # With `rest`, the packet asks for a part of the range: from the place of its PSN to the end.
        names={"rest": ("true",)},
    ),
    "completes": EventSpec("the oldest posted request completes", tuple(_STATUSES), True),
    "receives": EventSpec(
        "a receive completes",
        tuple(_STATUSES),
        True,
        numbers=("length", "imm", "inv"),
    ),
    "state": EventSpec("the queue pair is in one of these states", QP_STATES_SEEN, True),
    # The bytes of a message from `offset` on; or with `add` or `holds`, the new value of a word of eight bytes.
    "changed": EventSpec(
        "these bytes of the case's memory change, and no others",
        numbers=("length", "offset", "add", "holds"),
    ),
    "may_change": EventSpec("these bytes may change: no document says it", numbers=("length",)),
}
SENT = ("op", "answer", "sends")


def belongs_to(event: Event, stream: bool) -> bool:
    """Whether the operations of an event are those of a stream of iWARP, or else of packets of RoCE."""
    return event.kind not in SENT or {*event.words} <= {*operations_of(stream), NOTHING}


def operations_of(stream: bool) -> tuple[str, ...]:
    """Returns the operations of a stream of iWARP, or else of packets of RoCE."""
    return (*(_STREAM if stream else _ROCE),)


# The keys that an event has only with a packet of RoCE, or only with a segment of iWARP.
_OF_ROCE = ("transport", "icrc", "padding", "again", "lost", "counts", "tclass")
_OF_IWARP = ("crc", "ulpdu", "form")


# The fields that only packets of one transport have: `lack_over` says which.
OF_TRANSPORTS = {*DETH.names, *XRCETH.names}


def lack_over(transport: str, key: str) -> str:
    """Returns in words that packets of a transport have no header with a field; an empty text if they have it."""
    for header, owner in ((DETH, "UD"), (XRCETH, "XRC")):
        if key in header.names and transport != owner:
            return f"packets of {transport} have no {header.name}: unknown field {key}"
    return ""


def lack_of(word: str, key: str, has_data: bool) -> str:
    """Returns in words that packets of an operation have no such field; an empty text if they have it, or if the key is
    no field of a header. Without `data`, `length` is the number of bytes of data."""
    field = "va" if key == "addr" else key
    headers: list[Header] = []
    others: list[Header] = []
    known: tuple[str, ...] = ()
    if word in _ROCE:
        headers += [BTH, DETH, XRCETH, *operation_of(word).headers]
        others += HEADERS
        known += _OF_ROCE
    if word in _STREAM:
        headers += [CONTROL, *kind_of(word).headers]
        others += SEGMENT_HEADERS
        known += _OF_IWARP
    if not headers or key in known:
        return ""
    if key in (*_OF_ROCE, *_OF_IWARP):
        return f"{word} is sent over {'RoCE' if word in _ROCE else 'iWARP'}: unknown field {key}"
    if field == "length" and not has_data and (word in _STREAM or operation_of(word).data):
        return ""
    if field not in _FIELDS or any(field in header.names for header in headers):
        return ""
    owners = [header.name for header in others if field in header.names]
    return f"{word} has no {' or '.join(owners) or 'such header'}: unknown field {key}"
