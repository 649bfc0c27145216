"""Tests the segments of iWARP (conformance/wire/) and the peer that sends them in a stream."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from conformance.device.stream_peer import StreamEnd
from conformance.errors import PeerLost
from conformance.wire import mpa
from conformance.wire.segments import (
    RESERVED_SEGMENTS,
    SEGMENTS,
    TERMINATES,
    Segment,
    kind_of,
    name_of_terminate,
    parse_segment,
)

_FIELDS = {"rkey": 0x1234, "va": 1 << 63, "msn": 7, "mo": 9, "length": 5, "sinkto": 3}
_READ = "RDMA_READ_REQUEST"
_WORKS, _REFUSES, _ENDS = "works", "refuses", "ends"


def _segment(operation: str, **fields: int) -> Segment:
    data = b"hello" if kind_of(operation).data else b""
    return Segment(operation, {**_FIELDS, **fields}, data)


def test_the_crc_is_that_of_the_document():
    # RFC 3720, B.4: 32 bytes of zeros, and the bytes from 0 to 31.
    assert mpa.crc32c(bytes(32)) == 0x8A9136AA
    assert mpa.crc32c(bytes(range(32))) == 0x46DD794E


@pytest.mark.parametrize("operation", SEGMENTS)
def test_a_built_segment_is_parsed_without_a_mistake(operation):
    segment = _segment(operation)
    framed = mpa.frame(segment.packed())
    assert len(framed) % 4 == 0
    reader = mpa.Reader()
    assert reader.take(framed[:11]) == []
    ((packed, mistakes),) = reader.take(framed[11:])
    parsed = parse_segment(packed)
    assert (parsed.operation, parsed.wrong, mistakes) == (operation, (), ())
    assert parsed.data == segment.data
    for header in kind_of(operation).headers:
        for field in header.fields:
            if field.name in _FIELDS:
                assert parsed.fields[field.name] == _FIELDS[field.name]


def test_the_layout_is_that_of_the_documents():
    # RFC 5041, 4.2, and RFC 5040, 4.3: flags T and L, versions 1, opcode 0, STag, tagged offset.
    write = Segment("RDMA_WRITE", {"rkey": 0x01020304, "va": 0x1112131415161718}).packed()
    assert write.hex() == "c140" + "01020304" + "1112131415161718"
    # RFC 5041, 4.3, and RFC 5040, 4.4: queue 1, message 2, offset 0, sink, size, source.
    fields = {"msn": 2, "sinkstag": 5, "sinkto": 6, "length": 7, "rkey": 8, "va": 9}
    words = (0, 1, 2, 0, 5, 0, 6, 7, 8, 0, 9)
    packed = Segment(_READ, fields).packed()
    assert packed.hex() == "4141" + "".join(f"{word:08x}" for word in words)


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"dv": 2}, "DDP version 2, RDMAP version 1"),
        ({"tagged": 1}, "the tagged flag is 1"),
        ({"qn": 4}, "queue number 4 instead of 0"),
        ({"reserved11": 1}, "reserved bits 0x1"),
        ({"rdmapop": 13}, ""),
        ({"rdmapop": 9}, "opcode 0x9"),
    ],
)
def test_a_wrong_field_is_found(fields, message):
    parsed = parse_segment(_segment("SEND", **fields).packed())
    if message:
        assert message in parsed.wrong
    else:
        assert parsed.operation in RESERVED_SEGMENTS


@pytest.mark.parametrize("size, message", [(1, "only 1 bytes"), (9, "its header untagged is cut")])
def test_a_segment_that_is_cut_is_found(size, message):
    assert message in parse_segment(_segment("SEND").packed()[:size]).wrong


@pytest.mark.parametrize(
    "crc, mistakes", [("right", ()), ("wrong", ("wrong CRC",)), ("zero", ("wrong CRC",))]
)
def test_a_wrong_crc_is_found(crc, mistakes):
    ((_, found),) = mpa.Reader().take(mpa.frame(_segment("SEND").packed(), crc))
    assert found == mistakes


@pytest.mark.parametrize("name", TERMINATES)
def test_a_terminate_message_has_the_name_of_its_error(name):
    fields = dict(zip(("layer", "etype", "code"), TERMINATES[name]))
    assert parse_segment(Segment("TERMINATE", fields).packed()).name == name
    assert name_of_terminate({"layer": 1, "etype": 3, "code": 7}) == "TERMINATE_1_3_0x07"


class _Device:
    """A stream to a device that answers READs, refuses all segments, or ends the stream."""

    def __init__(self, behaviour: str) -> None:
        self._behaviour, self._reader = behaviour, mpa.Reader()
        self._answers: list[bytes] = []
        self.taken: list[Any] = []

    def send(self, data: bytes) -> None:
        for packed, _ in self._reader.take(data):
            segment = parse_segment(packed)
            self.taken.append(segment)
            if self._behaviour == _ENDS:
                self._answers.append(b"")
            elif self._behaviour == _REFUSES:
                fields = {"layer": 1, "etype": 1, "code": 1, "msn": 1}
                self._answers += [mpa.frame(Segment("TERMINATE", fields).packed()), b""]
            elif segment.operation == _READ:
                sink = {"rkey": segment.fields["sinkstag"], "va": segment.fields["sinkto"]}
                content = bytes(segment.fields["length"])
                self._answers.append(
                    mpa.frame(Segment("RDMA_READ_RESPONSE", sink, content).packed())
                )

    def receive(self, deadline_s: float) -> bytes | None:
        return self._answers.pop(0) if self._answers else None

    def arrived(self) -> bool:
        return True

    def close(self) -> None:
        """Does nothing."""


def _end(behaviour: str) -> tuple[StreamEnd, _Device]:
    device = _Device(behaviour)
    probe = SimpleNamespace(rkey=1, memory=SimpleNamespace(addr=4096))
    return StreamEnd(device, probe), device  # type: ignore[arg-type]


def test_a_stream_that_works_answers_the_probe():
    end, device = _end(_WORKS)
    for _ in range(2):
        assert end.probe()
    assert [segment.fields["msn"] for segment in device.taken] == [1, 2]
    assert end.receive(0) is None
    assert not end.closed


def test_a_stream_that_is_refused_has_the_terminate_message():
    end, _ = _end(_REFUSES)
    assert not end.probe()
    refusal = end.receive(0)
    assert refusal is not None
    assert refusal.name == "DDP_BASE_BOUNDS"
    assert end.closed


def test_a_stream_that_ends_is_closed():
    end, _ = _end(_ENDS)
    assert not end.probe()
    assert end.closed
    end.settle()


def test_a_message_that_is_not_complete_gets_no_probe_behind_it():
    end, device = _end(_WORKS)
    first = end.numbered("SEND", {"last": 0}, 8)
    end.send(Segment("SEND", first, bytes(8)))
    end.settle()
    second = end.numbered("SEND", {}, 4)
    assert [segment.operation for segment in device.taken] == ["SEND"]
    assert (first["msn"], first["mo"], second["msn"], second["mo"]) == (1, 0, 1, 8)
    assert end.numbered("SEND", {}, 4)["msn"] == 2


def test_a_device_that_does_not_accept_is_one_line():
    end, device = _end(_WORKS)
    device._answers = [mpa.REPLY_KEY + bytes((mpa.REJECTED, 1, 0, 0))]
    with pytest.raises(PeerLost, match="MPA reply"):
        end.agree()
    device._answers = [mpa.REPLY_KEY + bytes((mpa.CRC, 1, 0, 2)) + b"xy"]
    end.agree()
    assert not end.closed


def test_a_terminate_message_that_is_mirrored_has_the_same_name():
    # What siw sends on a little-endian processor: layer and type swapped, the flags in the lower bits.
    # layer 0 in the lower half, type 1 in the upper, code 2, flags M and D
    header = bytes.fromhex("10020300")
    packed = Segment("TERMINATE").packed()[:-4] + header
    assert parse_segment(packed, mirrored=True).name == "RDMAP_ACCESS_RIGHTS"
    assert parse_segment(packed, mirrored=True).wrong == ()
    literal = parse_segment(packed)
    assert (literal.name, literal.wrong) == ("TERMINATE_1_0_0x02", ("reserved bits 0x300",))
