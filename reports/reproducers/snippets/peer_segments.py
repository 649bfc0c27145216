"""The part of a peer's script that sends segments of iWARP: reports/reproducers/wire_program.py puts the text below the
line behind that of peer.py."""

from __future__ import annotations

import socket
import struct
import time

from reports.reproducers.snippets.peer import (
    LONGEST_S,
    SILENCE_S,
    device,
    here,
    judge,
    packed,
    pattern,
    turn,
    unpacked,
    value,
)

# The script.
MIRRORED = True  # the Terminate messages of siw, whose bits begin at the wrong end; False for other devices
CONTROL = "tagged 1 last 1 reserved11 4 dv 2 rv 2 reserved12 2 rdmapop 4"
TAGGED, UNTAGGED = "rkey 32 va 64", "inv 32 qn 32 msn 32 mo 32"
READ = "sinkstag 32 sinkto 64 length 32 rkey 32 va 64"
TERMINATE = "layer 4 etype 4 code 8 hasm 1 hasd 1 hasr 1 reserved13 13"
MIRRORED_TERMINATE = "etype 4 layer 4 code 8 reserved13 5 hasr 1 hasd 1 hasm 1 reserved14 8"
# The opcode, the queue of an untagged segment, and the headers after the control field (RFC 5040, 4; RFC 5041, 4).
OPERATIONS = {
    "RDMA_WRITE": (0, None, (TAGGED,)),
    "RDMA_READ_REQUEST": (1, 1, (UNTAGGED, READ)),
    "RDMA_READ_RESPONSE": (2, None, (TAGGED,)),
    "SEND": (3, 0, (UNTAGGED,)),
    "SEND_WITH_INV": (4, 0, (UNTAGGED,)),
    "SEND_WITH_SE": (5, 0, (UNTAGGED,)),
    "SEND_WITH_SE_AND_INV": (6, 0, (UNTAGGED,)),
    "TERMINATE": (7, 2, (UNTAGGED, TERMINATE)),
}
NAMES = {number: name for name, (number, _, _) in OPERATIONS.items()}
# Layer, error type and code of a Terminate message (RFC 5040, 4.8; RFC 5041, 7.2; RFC 5044, 8).
ERRORS: dict[tuple[int, int, int], str] = {}
MPA_REQUEST, MPA_REPLY_SIZE = struct.pack(">16sBBH", b"MPA ID Req Frame", 0x40, 1, 0), 20
SINK = {"sinkstag": 0x5EED00, "sinkto": 1 << 32}  # where this script wants the data of its READs
PROBE_STAG = 0x0B5E55ED  # the same for the READs that show that the device has taken a segment
stream = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
stream.bind((here, 0))
numbers_of_queues = {0: 1, 1: 1, 2: 1}
place = {"offset": 0, "message": 0, "incomplete": 0, "closed": 0}
received = bytearray()
inbox: list[tuple[str, dict[str, int], bytes]] = []
asked: dict[str, int] = {}


def crc32c(data: bytes) -> int:
    value_ = 0xFFFFFFFF
    for byte in data:
        value_ ^= byte
        for _ in range(8):
            value_ = value_ >> 1 ^ (0x82F63B78 if value_ & 1 else 0)
    return value_ ^ 0xFFFFFFFF


def connect() -> None:
    """Connects the stream and negotiates MPA (RFC 5044, 7.1), while the program accepts."""
    stream.connect((device(), value["port"]))
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.sendall(MPA_REQUEST)
    turn()
    stream.settimeout(LONGEST_S)
    reply_ = b""
    while len(reply_) < MPA_REPLY_SIZE:
        reply_ += stream.recv(MPA_REPLY_SIZE - len(reply_))
    stream.recv(int.from_bytes(reply_[18:], "big"))  # private data


def send(operation: str, numbers: dict[str, int], data: bytes, crc: str) -> None:
    """Sends a segment. The number and the offset of its message follow from the segments before."""
    if operation in OPERATIONS:
        opcode, queue, headers = OPERATIONS[operation]
    else:
        opcode, queue, headers = int(operation.removeprefix("RESERVED_")), 0, (UNTAGGED,)
    fields = {"tagged": int(queue is None), "last": 1, "dv": 1, "rv": 1, "rdmapop": opcode}
    if queue is not None:
        fields |= {"qn": queue, "msn": numbers_of_queues[queue], "mo": place["offset"]}
        numbers_of_queues[queue] += numbers.get("last", 1)
    fields |= numbers
    place["incomplete"] = 1 - fields["last"]
    place["offset"] = 0 if fields["last"] else place["offset"] + len(data)
    segment = b"".join(packed(names, fields) for names in (CONTROL, *headers)) + data
    length = numbers.get("ulpdu", len(segment))
    if "cut" in numbers or length > len(segment):
        place["incomplete"] = 1
    body = struct.pack(">H", length) + segment
    body += bytes(-len(body) % 4)
    trailer = {"right": crc32c(body), "wrong": ~crc32c(body) % (1 << 32), "zero": 0}[crc]
    try:
        stream.sendall((body + struct.pack("<I", trailer))[: numbers.get("cut")])
    except OSError:
        place["closed"] = 1


def next_segment(seconds: float) -> tuple[str, dict[str, int], bytes] | None:
    """Returns the next segment of the device; None if it has closed the stream, or sends none."""
    while not inbox and not place["closed"]:
        stream.settimeout(seconds)
        try:
            more = stream.recv(65536)
        except TimeoutError:
            return None
        except OSError:
            more = b""
        place["closed"] = int(not more)
        received.extend(more)
        while len(received) >= 2:
            length = int.from_bytes(received[:2], "big")
            end = 2 + length + -(2 + length) % 4 + 4
            if len(received) < end:
                break
            inbox.append(parsed(bytes(received[2 : 2 + length])))
            del received[:end]
    return inbox.pop(0) if inbox else None


def parsed(segment: bytes) -> tuple[str, dict[str, int], bytes]:
    fields = unpacked(CONTROL, segment[:2])
    name = NAMES.get(fields["rdmapop"], f"opcode {fields['rdmapop']}")
    at = 2
    for header in OPERATIONS.get(name, (0, 0, ()))[2]:
        if header == TERMINATE and place.get("mirrored", MIRRORED):
            header = MIRRORED_TERMINATE
        size = sum(map(int, header.split()[1::2])) // 8
        fields |= unpacked(header, segment[at : at + size].ljust(size, b"\0"))
        at += size
    return name, fields, segment[at:]


def probe() -> bool:
    """Reads from the device's memory. Returns whether the data came: the device has taken the segments before."""
    fields = {"sinkstag": PROBE_STAG, "sinkto": 0, "length": 8}
    fields |= {"rkey": value["probe.rkey"], "va": value["probe.addr"]}
    send("RDMA_READ_REQUEST", fields, b"", "right")
    earlier: list[tuple[str, dict[str, int], bytes]] = []
    while segment := next_segment(LONGEST_S):
        if segment[1].get("rkey") == PROBE_STAG:
            inbox[:0] = earlier
            return True
        earlier.append(segment)
    inbox[:0] = earlier
    return False


def settle() -> None:
    """Waits until the device has taken what was sent."""
    if place["closed"] or place["incomplete"] or not probe():
        time.sleep(SILENCE_S)


def op(
    operation: str,
    gets: str = "",
    crc: str = "right",
    content: str = "",
    form: str = "",
    **numbers: int,
) -> None:
    """Sends a segment and checks what it gets. `content` are the bytes, in hexadecimal, that a response must have."""
    if form:
        place["mirrored"] = 0
    start = numbers.get("offset", place["message"] if place["incomplete"] else 0)
    place["message"] = start + numbers.get("data", 0)
    if operation == "RDMA_READ_REQUEST":
        numbers = {**SINK, **numbers}
    send(operation, numbers, pattern(start, numbers.get("data", 0)), crc)
    if gets and operation == "RDMA_READ_REQUEST" and numbers.get("last", 1):
        judge(operation, response(numbers, bytes.fromhex(content)), gets)
    elif gets:
        judge(operation, outcome(), gets)


def outcome() -> str:
    """Returns ACK if the stream works, the error of a Terminate message, or `closed`."""
    if not place["incomplete"] and probe():
        return "ACK"
    while segment := next_segment(SILENCE_S):
        if segment[0] in ("TERMINATE", "RDMA_READ_RESPONSE"):
            return name_of(segment)
    return "closed" if place["closed"] else "nothing"


def name_of(segment: tuple[str, dict[str, int], bytes]) -> str:
    name, fields, _ = segment
    if name != "TERMINATE":
        return name
    error = (fields["layer"], fields["etype"], fields["code"])
    return ERRORS.get(error, "TERMINATE_{}_{}_{:#04x}".format(*error))


def response(numbers: dict[str, int], content: bytes) -> str:
    """Receives the response of a READ. It is RESPONSE only if it has the right bytes, at the right place."""
    data = b""
    while segment := next_segment(LONGEST_S):
        name, fields, part = segment
        if name == "TERMINATE":
            return name_of(segment)
        if name != "RDMA_READ_RESPONSE":
            continue
        if (fields["rkey"], fields["va"]) != (numbers["sinkstag"], numbers["sinkto"] + len(data)):
            return "a response to another place"
        data += part
        if fields["last"]:
            return "RESPONSE" if data == content else f"a response with {data.hex() or 'no bytes'}"
    return "closed" if place["closed"] else "nothing"


def sends(expected: str, **numbers: int) -> None:
    """Checks the next request of the device, and its fields."""
    if expected == "nothing":
        settle()
    seen = next_segment(SILENCE_S if expected == "nothing" else LONGEST_S)
    name, fields, data = seen or ("nothing", {}, b"")
    judge("a request of the device", name, expected)
    if name == "RDMA_READ_REQUEST":
        asked.update(fields)
    fields["data"] = len(data)
    for key, number in numbers.items():
        judge(f"{key} of the request", str(fields.get(key, "none")), str(number))


def reply(operation: str, gets: str = "", crc: str = "right", **numbers: int) -> None:
    """Answers the device's request, and checks what the answer gets."""
    start = numbers.get("offset", place["message"] if place["incomplete"] else 0)
    place["message"] = start + numbers.get("data", 0)
    if operation == "RDMA_READ_RESPONSE" and asked:
        numbers = {"rkey": asked["sinkstag"], "va": asked["sinkto"] + start, **numbers}
    send(operation, numbers, pattern(start, numbers.get("data", 0)), crc)
    if gets:
        judge(operation, outcome(), gets)


turn()
connect()
# The exchange.
