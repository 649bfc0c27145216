"""@about

usage: python3 THIS_FILE OWN_ADDRESS PROGRAM [ARGUMENT ...]

Runs on a machine with an ordinary network interface, whose IPv4 address is OWN_ADDRESS. PROGRAM starts the C program
beside this script at the RDMA device, for example `ssh root@node ./a.out mlx5_0 OWN_ADDRESS`. Needs the standard library
of Python only. The exit status is 0: kept, 1: violated, 2: not set up."""

from __future__ import annotations

import socket
import subprocess
import sys

LONGEST_S, SILENCE_S = 5.0, 1.0

if len(sys.argv) < 3:
    print(__doc__, file=sys.stderr)
    sys.exit(2)
here, *command = sys.argv[1:]
program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
value: dict[str, int] = {}
violations: list[str] = []
# How the names of refusals begin: NAKs of RoCE, and the errors of iWARP's Terminate messages.
REFUSALS = ("NAK_", "RNR_", "RDMAP_", "DDP_", "MPA_", "TERMINATE_")


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


def pattern(start: int, size: int) -> bytes:
    return bytes(0x80 + number % 113 for number in range(start, start + size))


def judge(what: str, seen: str, expected: str) -> None:
    words = expected.split("|")
    refused = seen in ("nothing", "closed") or seen.startswith(REFUSALS)
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


def bytes_at(at: int, size: int) -> bytes:
    """Returns the bytes from an address on, as they were before the first packet."""
    starts = [start for name, start in value.items() if name.startswith("memory.")]
    base = max(start for start in starts if start <= at)
    return fill(at - base + size)[at - base :]


def word_at(at: int) -> int:
    """Returns the word at an address before the first packet."""
    return int.from_bytes(bytes_at(at, 8), sys.byteorder)


def fill(size: int) -> bytes:
    return bytes(1 + (number * 5) % 127 for number in range(size))
