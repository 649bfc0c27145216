"""Tests the packets of conformance/wire/. scapy's contrib.roce is a second, independent reader of what is built."""

import json
import subprocess

import pytest

from conformance.older_python import zip
from conformance.wire.headers import BTH, HEADERS
from conformance.wire.icrc import Path
from conformance.wire.opcodes import (
    OPERATIONS,
    RESERVED,
    SYNDROMES,
    TRANSPORTS,
    headers_of,
    name_of,
    name_of_syndrome,
    operation_of,
)
from conformance.wire.packet import Packet, Parsed, build, parse
from fixtures.system.packages import SYSTEM_PYTHON

_PATH = Path("10.77.0.2", "10.77.0.1")
_PATH_V6 = Path("fe80::1", "fe80::2")
_FIELDS = {"qpn": 0x11, "psn": 0xFFFFFE, "va": 1 << 63, "rkey": 0x1234, "length": 5, "ackreq": 1}
# Reads packets of RDMA as hexadecimal from its input, and writes what scapy finds in each.
_SCAPY = """
import json, sys
from scapy.contrib.roce import AETH, BTH
from scapy.layers.inet import IP, UDP
from scapy.packet import Raw
found = []
for line in json.load(sys.stdin):
    ip = IP(src="10.77.0.2", dst="10.77.0.1", id=0, flags="DF") / UDP(sport=4791, dport=4791)
    packet = IP(bytes(ip / Raw(bytes.fromhex(line))))
    bth = packet[BTH]
    aeth = packet[AETH].syndrome if AETH in packet else None
    names = "opcode solicited migreq padcount version pkey dqpn ackreq psn".split()
    values = [int(getattr(bth, name)) for name in names]
    computed = bth.compute_icrc(b"")
    found.append([values, aeth, computed.hex()])
json.dump(found, sys.stdout)
"""


def _packet(operation: str, transport: str = "RC", data: bytes = b"") -> Packet:
    return Packet(transport, operation, _FIELDS, data)


def _every_packet() -> list[Packet]:
    packets = []
    for transport in TRANSPORTS:
        for operation, described in OPERATIONS.items():
            packets.append(_packet(operation, transport, b"hello" if described.data else b""))
    return packets


@pytest.mark.parametrize("path", [_PATH, _PATH_V6], ids=["ipv4", "ipv6"])
def test_a_built_packet_is_parsed_without_a_mistake(path):
    for packet in _every_packet():
        parsed = parse(build(packet, path), path)
        assert (parsed.transport, parsed.operation) == (packet.transport, packet.operation)
        assert (parsed.wrong, parsed.data) == ((), packet.data)
        headers = (BTH, *headers_of(packet.transport, packet.operation))
        sent = {field.name for header in headers for field in header.fields}
        for name in sent & _FIELDS.keys():
            assert parsed.fields[name] == _FIELDS[name]


def test_scapy_reads_the_same_fields_and_computes_the_same_icrc():
    packets = _every_packet()
    lines = [build(packet, _PATH).hex() for packet in packets]
    answer = subprocess.run(
        [SYSTEM_PYTHON, "-c", _SCAPY],
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        check=True,
    )
    for packet, line, read in zip(packets, lines, json.loads(answer.stdout), strict=True):
        opcode = TRANSPORTS[packet.transport] | operation_of(packet.operation).number
        pad = -len(packet.data) % 4
        values, syndrome, computed = read
        assert values == [opcode, 0, 1, pad, 0, 0xFFFF, 0x11, 1, 0xFFFFFE]
        assert computed == line[-8:]
        # scapy has the AETH of an acknowledgement only.
        if packet.operation == "ACKNOWLEDGE" and packet.transport == "RC":
            assert syndrome == 0


@pytest.mark.parametrize(
    "build_wrong, message",
    [
        ({"crc": "wrong"}, "wrong ICRC"),
        ({"crc": "twice"}, "wrong ICRC"),
        ({"crc": "absent"}, "wrong ICRC"),
        ({"cut": 20}, "its RETH is cut"),
        ({"cut": 3}, "only 7 bytes"),
        ({"padding": 1}, "6 bytes after the headers, no multiple of 4"),
    ],
)
def test_a_packet_that_is_built_wrong_is_found(build_wrong, message):
    built = build(_packet("RDMA_WRITE_ONLY", data=b"hello"), _PATH, **build_wrong)
    assert message in parse(built, _PATH).wrong


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"tver": 1}, "transport header version 1"),
        ({"reserved7": 3}, "reserved bits 0x3"),
        ({"opcode": 0x15}, "reserved opcode 0x15"),
        ({"opcode": 0xEA}, "reserved transport in the opcode 0xea"),
    ],
)
def test_a_wrong_field_is_found(fields, message):
    packet = Packet("RC", "RDMA_WRITE_ONLY", {**_FIELDS, **fields}, b"hello")
    assert message in parse(build(packet, _PATH), _PATH).wrong


def test_data_after_a_request_without_data_is_found():
    wrong = parse(build(_packet("RDMA_READ_REQUEST", data=b"1234"), _PATH), _PATH).wrong
    assert wrong == ("4 bytes after headers that no data may follow",)


def test_the_icrc_covers_addresses_ports_and_data_but_no_variable_field():
    packet = _packet("RDMA_WRITE_ONLY", data=b"hello")
    crc = build(packet, _PATH)[-4:]
    assert build(packet, Path("10.77.0.3", "10.77.0.1"))[-4:] != crc
    assert build(packet, Path("10.77.0.2", "10.77.0.1", source_port=4792))[-4:] != crc
    assert build(packet, Path("10.77.0.2", "10.77.0.1", identification=1))[-4:] != crc
    congested = Packet("RC", "RDMA_WRITE_ONLY", {**_FIELDS, "fecn": 1, "becn": 1}, b"hello")
    assert build(congested, _PATH)[-4:] == crc


def test_without_the_ip_header_the_icrc_is_not_checked():
    built = build(_packet("SEND_ONLY", data=b"1234"), _PATH, crc="wrong")
    parsed = parse(built, _PATH, checks_icrc=False)
    assert (parsed.wrong, parsed.checked) == ((), False)


def test_an_acknowledgement_has_the_name_of_its_syndrome():
    for name, syndrome in SYNDROMES.items():
        packet = Packet("RC", "ACKNOWLEDGE", {"syndrome": syndrome})
        assert parse(build(packet, _PATH), _PATH).name == name
    assert name_of_syndrome(0x03) == "ACK"
    assert name_of_syndrome(0x2E) == "RNR_NAK"
    assert name_of_syndrome(0x65) == "SYNDROME_0x65"
    assert name_of_syndrome(0x40) == "SYNDROME_0x40"


def test_a_congestion_notification_has_no_transport():
    packet = Packet("RC", "SEND_ONLY", {"opcode": 0x81})
    assert parse(build(packet, _PATH), _PATH).name == "CNP"


def test_every_opcode_has_a_name():
    assert {name_of(number) for number in range(32)} == {*OPERATIONS, *RESERVED}


def test_every_header_fills_whole_bytes():
    for header in HEADERS:
        assert header.size * 8 == sum(field.bits for field in header.fields)


def test_any_bytes_can_be_parsed():
    good = build(_packet("RDMA_WRITE_ONLY", data=b"hello"), _PATH)
    for length in range(len(good)):
        assert isinstance(parse(good[:length], _PATH), Parsed)
    for opcode in range(256):
        assert isinstance(parse(bytes([opcode]) + good[1:], _PATH), Parsed)
