"""The part of a peer's script that sends packets of RoCE: reports/reproducers/wire_program.py puts the text below the line
behind that of peer.py."""

from __future__ import annotations

import socket
import struct
import zlib

from reports.reproducers.snippets.peer import (
    LONGEST_S,
    SILENCE_S,
    bytes_at,
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
PORT, NUMBER, PSNS = 4791, 0x100001, 1 << 24
FIRST_PSN, DEVICE_PSN = 0x700000, 0x300000  # of this script, and of the device
FLUSH_CRC = "twice"  # the ICRC of a FLUSH that Soft-RoCE takes; "right" for other devices
TRANSPORTS = {"RC": 0x00, "UC": 0x20, "UD": 0x60}
FIELDS = {
    "bth": "opcode 8 se 1 migreq 1 pad 2 tver 4 pkey 16 fecn 1 becn 1 reserved6 6 qpn 24"
    " ackreq 1 reserved7 7 psn 24",
    "reth": "va 64 rkey 32 length 32",
    "atomic": "va 64 rkey 32 swap 64 compare 64",
    "imm": "imm 32",
    "inv": "inv 32",
    "flush": "reserved10 26 sel 2 plt 4",
    "aeth": "syndrome 8 msn 24",
    "value": "original 64",
}
# The lower bits of the opcode, and the headers after the BTH.
OPERATIONS = {
    "SEND_FIRST": (0, ""),
    "SEND_MIDDLE": (1, ""),
    "SEND_LAST": (2, ""),
    "SEND_LAST_WITH_IMM": (3, "imm"),
    "SEND_ONLY": (4, ""),
    "SEND_ONLY_WITH_IMM": (5, "imm"),
    "RDMA_WRITE_FIRST": (6, "reth"),
    "RDMA_WRITE_MIDDLE": (7, ""),
    "RDMA_WRITE_LAST": (8, ""),
    "RDMA_WRITE_LAST_WITH_IMM": (9, "imm"),
    "RDMA_WRITE_ONLY": (10, "reth"),
    "RDMA_WRITE_ONLY_WITH_IMM": (11, "reth imm"),
    "RDMA_READ_REQUEST": (12, "reth"),
    "RDMA_READ_RESPONSE_FIRST": (13, "aeth"),
    "RDMA_READ_RESPONSE_MIDDLE": (14, ""),
    "RDMA_READ_RESPONSE_LAST": (15, "aeth"),
    "RDMA_READ_RESPONSE_ONLY": (16, "aeth"),
    "ACKNOWLEDGE": (17, "aeth"),
    "ATOMIC_ACKNOWLEDGE": (18, "aeth value"),
    "COMPARE_SWAP": (19, "atomic"),
    "FETCH_ADD": (20, "atomic"),
    "SEND_LAST_WITH_INV": (22, "inv"),
    "SEND_ONLY_WITH_INV": (23, "inv"),
    "FLUSH": (28, "flush reth"),
    "ATOMIC_WRITE": (29, "reth"),
}
ANSWERS = range(13, 19)
REQUESTS = {
    opcode: (name, headers)
    for name, (opcode, headers) in OPERATIONS.items()
    if opcode not in ANSWERS
}
NAKS = {
    0x60: "NAK_PSN_SEQUENCE",
    0x61: "NAK_INVALID_REQUEST",
    0x62: "NAK_REMOTE_ACCESS",
    0x63: "NAK_REMOTE_OPERATIONAL",
    0x64: "NAK_INVALID_RD_REQUEST",
}
ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE, READ_RESPONSES, LAST_RESPONSES = 17, 18, range(13, 17), (15, 16)

udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, IP_PMTUDISC_DO: DF, identification 0
udp.bind((here, PORT))
sent: list[dict[str, int]] = []
state = {"psn": 0, "message": 0, "reply": 0}


def icrc(body: bytes, again: bytes = b"") -> bytes:
    """The CRC over the packet, with ones in place of what routers may change (InfiniBand, annex A17.3.3)."""
    length = 8 + len(body) + 4
    addresses = socket.inet_aton(here) + socket.inet_aton(device())
    ip = struct.pack(">BBHHHBBH", 0x45, 0xFF, 20 + length, 0, 0x4000, 0xFF, 17, 0xFFFF)
    udp_header = struct.pack(">HHHH", PORT, PORT, length, 0xFFFF)
    covered = b"\xff" * 8 + ip + addresses + udp_header + body[:4] + b"\xff" + body[5:] + again
    return struct.pack("<I", zlib.crc32(covered))


def op(
    operation: str,
    gets: str = "",
    transport: str = "RC",
    crc: str = "right",
    lost: bool = False,
    again: int = 0,
    content: str = "",
    **numbers: int,
) -> None:
    """Sends a packet and checks its answer. `again` repeats an earlier packet; `content` are the bytes, in hexadecimal,
    that a response must have."""
    if again:
        numbers = {**sent[again - 1], **numbers}
    size = numbers.get("data", 0)
    start = numbers.get("offset", 0)
    if "_MIDDLE" in operation or "_LAST" in operation:
        start = numbers.get("offset", state["message"])
    state["message"] = start + size
    psn = numbers.setdefault("psn", state["psn"])
    if not again:
        reads = operation == "RDMA_READ_REQUEST"
        state["psn"] = psn + (max(1, -(-numbers["length"] // value["mtu"])) if reads else 1)
    sent.append(numbers)
    if lost:
        return
    send(operation, transport, crc, numbers, FIRST_PSN + psn, pattern(start, size))
    if gets:
        judge(f"{operation} with PSN {psn:+d}", answer(gets, bytes.fromhex(content)), gets)


def send(
    operation: str, transport: str, crc: str, numbers: dict[str, int], psn: int, data: bytes
) -> None:
    if operation in OPERATIONS:
        opcode, headers = OPERATIONS[operation]
    else:
        opcode, headers = int(operation.removeprefix("RESERVED_")), ""
    fields = {"opcode": TRANSPORTS[transport] | opcode, "migreq": 1, "pkey": 0xFFFF, **numbers}
    fields |= {"pad": numbers.get("pad", -len(data) % 4), "psn": psn % PSNS}
    fields |= {"qpn": numbers.get("qpn", value["qp.number"])}
    body = b"".join(packed(FIELDS[name], fields) for name in ["bth", *headers.split()])
    body += data + bytes(numbers.get("padding", fields["pad"]))
    body = body[: numbers.get("cut")]
    trailer = int.from_bytes(icrc(body, body if crc == "twice" else b""), "big")
    trailer ^= {"wrong": 0xFFFFFFFF, "wrong_first": 0xFF000000, "wrong_last": 0xFF}.get(crc, 0)
    body += b"" if crc == "absent" else trailer.to_bytes(4, "big")
    udp.sendto(body, (device(), PORT))


def request(seconds: float) -> dict[str, int | str]:
    """Awaits a request of the device. Returns its operation, its fields and the number of its bytes of data."""
    udp.settimeout(seconds)
    while True:
        try:
            received = udp.recv(65536)
        except TimeoutError:
            return {"operation": "nothing"}
        fields: dict[str, int | str] = {**unpacked(FIELDS["bth"], received[:12])}
        code, at = received[0] & 0x1F, 12
        if code not in REQUESTS or fields["qpn"] != NUMBER:
            continue
        name, headers = REQUESTS[code]
        for header in headers.split():
            size = sum(map(int, FIELDS[header].split()[1::2])) // 8
            fields |= unpacked(FIELDS[header], received[at : at + size])
            at += size
        state["request"] = int(fields["psn"])
        data = received[at : len(received) - 4 - int(fields["pad"])]
        return {**fields, "operation": name, "data": len(data), "bytes": data.hex()}


def sends(expected: str, source: int | None = None, **numbers: int) -> None:
    """Checks the next request of the device, its fields, and that it has the bytes at the address `source`."""
    seen = request(SILENCE_S if expected == "nothing" else LONGEST_S)
    judge("a request of the device", str(seen["operation"]), expected)
    if "psn" in numbers:
        numbers["psn"] = (DEVICE_PSN + numbers["psn"]) % PSNS
    for name, number in numbers.items():
        judge(f"{name} of the request", str(seen.get(name, "none")), str(number))
    if source is not None:
        data = bytes.fromhex(str(seen.get("bytes", "")))
        right = data == bytes_at(source, len(data))
        judge("the data of the request", "as posted" if right else "other bytes", "as posted")


def reply(operation: str, transport: str = "RC", crc: str = "right", **numbers: int) -> None:
    """Answers the device's request, whose PSN is that from which `psn` counts."""
    if "request" not in state:
        request(LONGEST_S)
    start = state["reply"] if operation.endswith(("_MIDDLE", "_LAST")) else 0
    state["reply"] = start + numbers.get("data", 0)
    psn = state.get("request", DEVICE_PSN) + numbers.get("psn", 0)
    data = pattern(start, numbers.get("data", 0))
    send(operation, transport, crc, numbers, psn, data)


def answer(gets: str, content: bytes) -> str:
    """Receives the answer of the device. A response is RESPONSE only if it has the right bytes."""
    data = b""
    silent = {"nothing", "refusal", "anything"} & {*gets.split("|")}
    udp.settimeout(SILENCE_S if silent else LONGEST_S)
    while True:
        try:
            received = udp.recv(65536)
        except TimeoutError:
            return "nothing"
        kind, syndrome = received[0] & 0x1F, received[12]
        if int.from_bytes(received[5:8], "big") != NUMBER:
            continue
        if kind == ACKNOWLEDGE:
            names = {0x00: "ACK", 0x20: "RNR_NAK"}
            return NAKS.get(syndrome, names.get(syndrome & 0xE0, f"syndrome {syndrome:#x}"))
        if kind == ATOMIC_ACKNOWLEDGE:
            data = received[16:24][::-1]
        elif kind in READ_RESPONSES:
            data += received[12 if kind == 14 else 16 : -4 - (received[1] >> 4 & 3)]
        if kind == ATOMIC_ACKNOWLEDGE or kind in LAST_RESPONSES:
            return "RESPONSE" if data == content else f"a response with {data.hex() or 'no bytes'}"


turn()
# The exchange.
