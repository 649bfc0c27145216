"""Memory around a range: the positions, the known contents, and the detection of changes."""

import ctypes

import pytest

from conformance.bench.memory_areas import AROUND, BEFORE, CANARY, EMPTY, Area, pattern, repeated
from conformance.model.positions import POSITIONS, WORD_OPERATIONS, locate


class Buffer:
    def __init__(self, size: int) -> None:
        self._bytes = ctypes.create_string_buffer(size)
        self.addr, self.size = ctypes.addressof(self._bytes), size

    def close(self) -> None:
        pass


@pytest.fixture
def memory() -> Buffer:
    return Buffer(3 * 4096)


def target(memory: Buffer, length: int = 16, contents: str = "made") -> Area:
    before = repeated(BEFORE if contents == "made" else AROUND[contents], length)
    area = Area(memory, memory.addr + 100, length, AROUND[contents], before, pattern(length), contents == "made")
    area.fill()
    return area


def test_sent_bytes_differ_from_all_bytes_in_memory_before() -> None:
    assert not set(pattern(1000)) & {BEFORE, CANARY, EMPTY, 0}


def test_sent_bytes_differ_if_they_arrive_whole_pages_or_words_off() -> None:
    assert pattern(8192)[:4096] != pattern(8192)[4096:]
    assert pattern(16)[:8] != pattern(16)[8:]


def test_a_byte_right_behind_the_range_is_a_stretch_of_its_own(memory: Buffer) -> None:
    area = target(memory)
    ctypes.memmove(area.start, pattern(17), 17)
    assert area.changed() == [[0, 16], [16, 1]]


def test_a_byte_before_the_range_and_one_pages_away_are_seen(memory: Buffer) -> None:
    area = target(memory)
    ctypes.memset(area.start - 1, 1, 1)
    ctypes.memset(memory.addr + 9000, 1, 2)
    assert area.changed() == [[-1, 1], [8900, 2]]


def test_every_stretch_of_a_torn_transfer_is_seen_whatever_its_bytes(memory: Buffer) -> None:
    area = target(memory, 2 * 4096)
    for offset, new in ((0, b"a"), (3, bytes([BEFORE ^ ord("\n")]) * 2), (4000, b"b" * 200), (8191, b"\0")):
        ctypes.memmove(area.start + offset, new, len(new))
    assert area.changed() == [[0, 1], [3, 2], [4000, 200], [8191, 1]]


def test_memory_that_was_filled_or_never_touched_is_left_as_it_is(memory: Buffer) -> None:
    assert target(memory, contents="zeros").changed() == []
    ctypes.memset(memory.addr, BEFORE, memory.size)
    assert target(memory, contents="filled").changed() == []


@pytest.mark.parametrize(("arrived", "moved"), [(16, "all"), (0, "nothing"), (8, "part")])
def test_how_much_has_arrived(memory: Buffer, arrived: int, moved: str) -> None:
    area = target(memory)
    ctypes.memmove(area.start, pattern(16), arrived)
    assert area.moved() == moved
    assert not area.changed_outside()


def requester(memory: Buffer, source: Area) -> Area:
    """Returns the buffer of a peer that reads the contents of `source`."""
    area = Area(memory, memory.addr + 64, source.length, EMPTY, repeated(EMPTY, source.length), source.before)
    area.fill()
    return area


@pytest.mark.parametrize(
    ("new", "received"),
    [
        (b"", "nothing"),
        (pattern(16), "all"),
        (pattern(8), "part"),
        (repeated(EMPTY, 3) + pattern(4)[3:], "part"),  # one byte has arrived, in its place
        (b"\0" + pattern(8), "part"),  # some bytes have arrived, elsewhere
        (bytes([CANARY]) * 4, "part"),  # the bytes come from outside of the range
        (b"\0" * 16, "other"),
        (bytes(range(16)), "other"),
    ],
)
def test_bytes_that_are_nobodys_are_reported_from_those_of_the_other_side(
    memory: Buffer, new: bytes, received: str
) -> None:
    source = Area(memory, memory.addr + 100, 16, CANARY, pattern(16), pattern(16))
    source.fill()
    made = requester(Buffer(256), source)
    ctypes.memmove(made.start, new, len(new))
    assert made.received(source) == received


ADDR, LENGTH = 4096 + 100, 200


@pytest.mark.parametrize("position", sorted(set(POSITIONS) - {"empty"}))
@pytest.mark.parametrize("operation", ["RDMA_WRITE", "SEND", "ATOMIC_WRITE", "ATOMIC_FETCH_AND_ADD"])
def test_a_position_is_inside_or_outside_the_range_as_its_name_says(operation: str, position: str) -> None:
    offset, size = locate(position, operation, ADDR, LENGTH)
    inside = range(LENGTH)
    touched = [byte in inside for byte in range(offset, offset + size)]
    expected = {"before": [False], "after": [False], "across-start": [False, True], "across-end": [True, False]}
    assert sorted(set(touched)) == sorted(expected.get(position, [True]))


@pytest.mark.parametrize("operation", WORD_OPERATIONS)
@pytest.mark.parametrize("position", sorted(set(POSITIONS) - {"empty", "exact"}))
def test_words_are_aligned_where_the_range_begins_and_ends_in_the_middle_of_one(operation: str, position: str) -> None:
    offset, size = locate(position, operation, ADDR, LENGTH)
    assert ((ADDR + offset) % 8, size) == (0, 8)


def test_no_word_is_empty() -> None:
    assert locate("empty", "RDMA_WRITE", ADDR, LENGTH) == (0, 0)
    with pytest.raises(LookupError, match="no position 'empty'"):
        locate("empty", "ATOMIC_WRITE", ADDR, LENGTH)
