"""@about

usage: python3 @file OWN_ADDRESS PROGRAM [ARGUMENT ...]

Runs on a machine with an ordinary network interface, whose IPv4 address is OWN_ADDRESS. PROGRAM starts the C program
beside this script at the RDMA device, for example `ssh root@node ./a.out mlx5_0 OWN_ADDRESS`. Needs the standard library
of Python only. The exit status is 0: kept, 1: violated, 2: not set up."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import zlib

PORT, NUMBER, MTU, PSNS = 4791, 0x100001, 256, 1 << 24
FIRST_PSN, DEVICE_PSN = 0x700000, 0x300000  # of this script, and of the device
LONGEST_S, SILENCE_S = 5.0, 1.0
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

here, *command = sys.argv[1:]
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, IP_PMTUDISC_DO: DF, identification 0
udp.bind((here, PORT))
program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
value: dict[str, int] = {}
violations: list[str] = []
sent: list[dict[str, int]] = []
state = {"psn": 0, "message": 0, "reply": 0}


def device() -> str:
    """Returns the address of the device, which the program has told."""
    return socket.inet_ntoa(value["device"].to_bytes(4, "big"))


def turn() -> list[str]:
    """Lets the program do its next step. Returns the words of its last line, and stores the values in all others."""
    assert program.stdin
    assert program.stdout
    program.stdin.write("\n")
    program.stdin.flush()
    for line in program.stdout:
        words = line.split()
        if words[0] == "done":
            return words[1:]
        if words[0] in ("kept:", "VIOLATED:"):
            print(line, end="")
        else:
            value[words[0]] = int(words[1], 0)
    status = program.wait()
    if status in (2, 77):
        sys.exit(status)  # not set up, or not supported
    print("the program at the device has ended: see the log of its kernel")
    sys.exit(1)


def packed(names: str, values: dict[str, int]) -> bytes:
    bits, size, words = 0, 0, names.split()
    for name, width in zip(words[::2], map(int, words[1::2])):
        bits, size = bits << width | values.get(name, 0) % (1 << width), size + width
    return bits.to_bytes(size // 8, "big")


def unpacked(names: str, data: bytes) -> dict[str, int]:
    bits, values, words = int.from_bytes(data, "big"), {}, names.split()
    for name, width in reversed(list(zip(words[::2], map(int, words[1::2])))):
        values[name], bits = bits % (1 << width), bits >> width
    return values


def icrc(body: bytes, again: bytes = b"") -> bytes:
    """The CRC over the packet, with ones in place of what routers may change (InfiniBand, annex A17.3.3)."""
    length = 8 + len(body) + 4
    addresses = socket.inet_aton(here) + socket.inet_aton(device())
    ip = struct.pack(">BBHHHBBH", 0x45, 0xFF, 20 + length, 0, 0x4000, 0xFF, 17, 0xFFFF)
    udp_header = struct.pack(">HHHH", PORT, PORT, length, 0xFFFF)
    covered = b"\xff" * 8 + ip + addresses + udp_header + body[:4] + b"\xff" + body[5:] + again
    return struct.pack("<I", zlib.crc32(covered))


def pattern(start: int, size: int) -> bytes:
    return bytes(0x80 + number % 113 for number in range(start, start + size))


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
        state["psn"] = psn + (max(1, -(-numbers["length"] // MTU)) if reads else 1)
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
    trailer = icrc(body, body if crc == "twice" else b"")
    if crc == "wrong":
        trailer = bytes(byte ^ 0xFF for byte in trailer)
    udp.sendto(body + (b"" if crc == "absent" else trailer), (device(), PORT))


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
        return {**fields, "operation": name, "data": len(received) - at - 4 - int(fields["pad"])}


def sends(expected: str, **numbers: int) -> None:
    """Checks the next request of the device, and its fields."""
    seen = request(SILENCE_S if expected == "nothing" else LONGEST_S)
    judge("a request of the device", str(seen["operation"]), expected)
    if "psn" in numbers:
        numbers["psn"] = (DEVICE_PSN + numbers["psn"]) % PSNS
    for name, number in numbers.items():
        judge(f"{name} of the request", str(seen.get(name, "none")), str(number))


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


def judge(what: str, seen: str, expected: str) -> None:
    words = expected.split("|")
    refused = seen == "nothing" or seen.startswith(("NAK_", "RNR_"))
    kept = seen in words or "anything" in words or ("refusal" in words and refused)
    print(f"{'kept' if kept else 'VIOLATED'}: {what} should get {expected}, got {seen}")
    if not kept:
        violations.append(what)


def device_step(what: str, expected: str = "", **fields: int) -> None:
    """Lets the program do its next step, and judges what it tells: a word, and after SUCCESS the fields of a
    completion."""
    words = turn()
    if expected:
        judge(what, words[0], expected)
    told = dict(word.split("=") for word in words[1:])
    if "SUCCESS" in words:
        for name, number in fields.items():
            judge(f"{name} of {what}", told.get(name, "none"), str(number))


def finish(changes: list[tuple[int, bytes]], free: list[tuple[int, int]]) -> None:
    """Compares the memory of the program with what it had before, and with the bytes that had to change."""
    for name in turn():
        text, base = turn()[0], value[f"memory.{name}"]
        now = bytes.fromhex(text)
        expected = bytearray(fill(len(now)))
        for at, data in changes:
            if base <= at < base + len(now):
                expected[at - base : at - base + len(data)] = data
        for at, size in free:
            if base <= at < base + len(now):
                expected[at - base : at - base + size] = now[at - base : at - base + size]
        other = [at for at in range(len(now)) if now[at] != expected[at]]
        if other:
            at = other[0]
            print(f"VIOLATED: {len(other)} bytes of {name} are not as expected, from {at} on")
            violations.append(name)
    program.terminate()
    sys.exit(1 if violations else 0)


def word_at(at: int) -> int:
    """Returns the word at an address before the first packet."""
    starts = [start for name, start in value.items() if name.startswith("memory.")]
    base = max(start for start in starts if start <= at)
    return int.from_bytes(fill(at - base + 8)[-8:], sys.byteorder)


def fill(size: int) -> bytes:
    return bytes(1 + (number * 5) % 127 for number in range(size))


turn()
# The exchange.
