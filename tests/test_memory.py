"""Tests of memory: each kind has its described properties, is between guard pages, and is unmapped after use. Limits
are restored, and changes of the known contents around a range are detected."""

import ctypes
import errno
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import pytest

from conformance.bench.memory_areas import (
    AROUND,
    BEFORE,
    CANARY,
    EMPTY,
    Area,
    Part,
    has_byte,
    is_filled,
    pattern,
    repeated,
)
from conformance.device import memory, persistent
from conformance.device.limits import check_lockable, locked_memory_limit, obey_locked_memory_limit
from conformance.device.memory import PAGE, REPEATED_PAGES, Memory, allocate
from conformance.errors import HostLacks, UserError
from conformance.kernel import paging
from conformance.model.memory_kinds import MEMORY_KINDS
from conformance.model.positions import POSITIONS, WORD_OPERATIONS, locate
from kinds import Patch
from samples import laid, user_error

SIZE = 3 * PAGE
SMALL_KINDS = sorted(
    set(MEMORY_KINDS)
    - {"huge", "partly_huge", "persistent", "partly_persistent", "transparent"}
    - {"secret", "clock", "bar"},
)


def protection(addr: int) -> str:
    """Returns the protection of the page at `addr`, such as `rw-p`; empty if nothing is mapped there."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        extent, protection_seen, *_ = line.split()
        start, end = (int(text, 16) for text in extent.split("-"))
        if start <= addr < end:
            return protection_seen
    return ""


def pages(start: int, length: int) -> list[str]:
    return [protection(addr) for addr in range(start, start + length, PAGE)]


@pytest.mark.parametrize(
    "kind, protections",
    [
        ("anonymous", ["rw-p"] * 3),
        ("read_only", ["r--p"] * 3),
        ("no_access", ["---p"] * 3),
        ("unmapped", [""] * 3),
        ("hole", ["rw-p", "", "rw-p"]),
        ("shared", ["rw-s"] * 3),
        ("writable_start", ["rw-p", "r--p", "r--p"]),
        ("sparse", ["rw-p"] * 3),
        ("repeated", ["rw-s"] * 3),
        ("file", ["rw-s"] * 3),
        ("locked", ["rw-p"] * 3),
    ],
)
def test_each_kind_is_mapped_as_described(kind, protections):
    with closing(allocate(kind, SIZE)) as memory_made:
        assert pages(memory_made.addr, memory_made.size) == protections
        assert memory_made.addr % PAGE == 0
        assert memory_made.size == SIZE


@pytest.mark.parametrize("kind", SMALL_KINDS)
@pytest.mark.parametrize("size", [1, PAGE, PAGE + 1, SIZE])
def test_both_neighbours_of_a_range_are_inaccessible_and_nothing_is_left_after_close(kind, size):
    if kind == "hole":
        size = SIZE
    with closing(allocate(kind, size)) as memory_made:
        assert protection(memory_made.addr - 1) == "---p"
        assert protection(-(-(memory_made.addr + size) // PAGE) * PAGE) == "---p"
        assert (mapped := memory_made.mapped)
    assert set(pages(*mapped)) == {""}


def free_hugepages() -> int:
    text = Path("/proc/meminfo").read_text()
    return next(
        (int(line.split()[1]) for line in text.splitlines() if line.startswith("HugePages_Free:")),
        0,
    )


def test_huge_memory_has_huge_pages_or_an_error_about_them():
    before = free_hugepages()
    if before == 0:
        with pytest.raises(HostLacks, match="huge pages") as caught:
            allocate("huge", 1)
        assert "vm.nr_hugepages" in str(caught.value)
        return
    with closing(allocate("huge", memory.hugepage_size())) as memory_made:
        assert memory_made.addr % memory.hugepage_size() == 0
        ctypes.memset(memory_made.addr, 1, memory_made.size)
        assert free_hugepages() == before - 1
    assert free_hugepages() == before


@pytest.fixture
def dax(tmp_path: Path, monkeypatch: Patch) -> persistent.Device:
    """A file with room for two ranges, which replaces a DAX device."""
    stand_in = persistent.Device(tmp_path / "dax0.0", 2 * PAGE, 5 * PAGE)
    stand_in.path.write_bytes(b"old" * 5 * PAGE)
    monkeypatch.setattr(persistent, "device", lambda: stand_in)
    return stand_in


def test_each_allocation_of_persistent_memory_is_a_separate_part_of_the_device(dax):
    first, second = allocate("persistent", PAGE), allocate("persistent", 2 * PAGE)
    assert (first.addr % dax.alignment, first.size, protection(first.addr)) == (0, PAGE, "rw-s")
    assert protection(first.addr - 1) == protection(first.addr + dax.alignment) == "---p"
    ctypes.memset(first.addr, 1, PAGE)
    ctypes.memset(second.addr, 2, 2 * PAGE)
    content = dax.path.read_bytes()
    assert (content[:PAGE], content[2 * PAGE : 4 * PAGE]) == (b"\1" * PAGE, b"\2" * 2 * PAGE)
    with pytest.raises(HostLacks, match="left"):
        allocate("persistent", PAGE)
    first.close()
    third = allocate("persistent", PAGE)
    assert ctypes.string_at(third.addr, PAGE) == bytes(PAGE)
    for part in (second, third):
        part.close()


def test_memory_that_is_partly_persistent_has_an_ordinary_page_on_each_side(dax):
    with closing(allocate("partly_persistent", PAGE)) as made:
        assert made.size == dax.alignment + 2 * PAGE
        seen = pages(made.addr - PAGE, made.size + 2 * PAGE)
        assert seen == ["---p", "rw-p", "rw-s", "rw-s", "rw-p", "---p"]
        ctypes.memset(made.addr, 3, made.size)
        assert dax.path.read_bytes()[: 3 * PAGE].count(3) == dax.alignment


def test_without_the_variable_no_persistent_memory_is_used(monkeypatch):
    monkeypatch.delenv(persistent.VARIABLE, raising=False)
    assert persistent.device() is None
    with pytest.raises(UserError, match="no persistent memory was specified"):
        allocate("persistent", PAGE)


def test_alignment_and_size_of_a_device_dax_are_those_in_sysfs(tmp_path, monkeypatch):
    # A DAX device is recognised by its device number, here that of /dev/null.
    monkeypatch.setenv(persistent.VARIABLE, "/dev/null")
    folder = laid(tmp_path / "1:3", {"align": "2097152\n", "size": "1073741824\n"})
    (folder / "subsystem").symlink_to("../bus/dax")
    assert persistent.device(tmp_path) == persistent.Device(Path("/dev/null"), 2 << 20, 1 << 30)


@pytest.mark.parametrize(
    "named, said",
    [
        ("/dev/null", "is not a device DAX"),
        ("/etc", "is not a device DAX"),
        ("/dev/nosuch", "No such file"),
    ],
)
def test_a_file_that_is_not_a_device_dax_is_not_written(named, said, monkeypatch):
    monkeypatch.setenv(persistent.VARIABLE, named)
    with user_error(said, status=2):
        persistent.device()


def test_memory_that_cannot_be_filled_leaves_nothing_mapped(monkeypatch):
    fail = Mock(side_effect=OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)))
    monkeypatch.setitem(memory._FILL, "anonymous", fail)
    with pytest.raises(OSError, match="memory"):
        allocate("anonymous", SIZE)
    assert protection(fail.call_args.args[0]) == ""


def can_lock(size: int) -> bool:
    library = ctypes.CDLL(None, use_errno=True)
    with closing(allocate("anonymous", size)) as memory_made:
        return bool(library.mlock(ctypes.c_void_p(memory_made.addr), ctypes.c_size_t(size)) == 0)


def state() -> tuple[tuple[int, int], str]:
    """Returns the locked-memory limit and the effective capabilities."""
    (effective,) = [
        line
        for line in Path("/proc/thread-self/status").read_text().splitlines()
        if line.startswith("CapEff")
    ]
    return resource.getrlimit(resource.RLIMIT_MEMLOCK), effective


def check_the_limit() -> None:
    """Sets the limit and checks its effect. Needs a separate process, because dropping a capability is permanent."""
    obey_locked_memory_limit()
    before = state()
    assert can_lock(3 * PAGE)
    with locked_memory_limit(2 * PAGE):
        assert can_lock(2 * PAGE)
        assert not can_lock(3 * PAGE)
    assert can_lock(3 * PAGE)
    with pytest.raises(RuntimeError, match="from within"), locked_memory_limit(PAGE):
        raise RuntimeError("from within")
    assert state() == before


def test_the_limit_applies_within_the_block_and_is_restored_also_after_an_exception():
    code = f"import sys; sys.path[:0] = {sys.path!r}; import test_memory; test_memory.check_the_limit()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_more_memory_than_the_process_may_lock_is_reported_as_lacking_on_this_host():
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (2 * PAGE, hard))
    try:
        check_lockable(2 * PAGE)
        for lock in (check_lockable, lambda size: locked_memory_limit(size).__enter__()):
            with pytest.raises(
                HostLacks,
                match=rf"may lock {2 * PAGE} bytes.*needs {3 * PAGE}; raise the limit",
            ):
                lock(3 * PAGE)
    finally:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (soft, hard))


def test_repeated_memory_repeats_its_pages_after_an_uneven_number():
    with closing(allocate("repeated", (REPEATED_PAGES + 2) * PAGE)) as memory_made:
        ctypes.memset(memory_made.addr + 8, 0x5A, 1)
        again = memory_made.addr + REPEATED_PAGES * PAGE
        assert ctypes.string_at(again + 8, 1) == b"\x5a"
        assert ctypes.string_at(again + PAGE + 8, 1) == b"\0"
    assert all((2**high - 2**low) % REPEATED_PAGES for high in range(64) for low in range(high))


def test_pages_that_were_only_read_do_not_belong_to_the_process():
    with closing(allocate("untouched", SIZE)) as memory_made:
        ctypes.string_at(memory_made.addr, SIZE)
        assert paging.own_pages(memory_made.addr, SIZE)[0] == 0
        ctypes.memset(memory_made.addr, 1, SIZE)
        assert paging.own_pages(memory_made.addr, SIZE) == (3, 3)
        assert not paging.kept_from_children(memory_made.addr)


@pytest.mark.parametrize("kind", ["anonymous", "shared"])
def test_pages_that_were_absent_are_back_with_their_contents(kind):
    with closing(memory.allocate(kind, 4 * PAGE)) as area:
        ctypes.memset(area.addr, 7, area.size)
        for page in (1, 2):
            first = area.addr + page * PAGE
            with paging.absent(first, 2 * PAGE):
                assert paging.mappings(first, 2 * PAGE) == 0
            assert paging.mappings(area.addr, area.size) == 1
        assert ctypes.string_at(area.addr, area.size) == bytes([7]) * area.size


def test_a_child_inherits_the_pages_that_are_not_excluded():
    with closing(allocate("anonymous", SIZE)) as memory_made:
        assert paging.inherited(memory_made.addr, SIZE) == (3, 3)
        ctypes.CDLL(None).madvise(
            ctypes.c_void_p(memory_made.addr + PAGE),
            ctypes.c_size_t(PAGE),
            10,
        )  # MADV_DONTFORK
        assert paging.inherited(memory_made.addr, SIZE) == (2, 3)
        assert paging.inherited(memory_made.addr + PAGE, 1) == (0, 1)


@pytest.fixture
def buffer() -> Iterator[Memory]:
    with closing(allocate("anonymous", SIZE)) as memory_made:
        yield memory_made


def target(buffer: Memory, length: int = 16, contents: str = "made") -> Area:
    before = repeated(BEFORE if contents == "made" else AROUND[contents], length)
    area = Area(
        buffer,
        buffer.addr + 100,
        length,
        AROUND[contents],
        before,
        pattern(length),
        contents == "made",
    )
    area.fill()
    return area


def test_sent_bytes_differ_from_the_fillings_and_between_pages_and_words():
    assert not set(pattern(1000)) & {BEFORE, CANARY, EMPTY, 0}
    assert pattern(8192)[:4096] != pattern(8192)[4096:]
    assert pattern(16)[:8] != pattern(16)[8:]


@pytest.mark.parametrize(
    "length, written, changed",
    [
        (
            16,
            {0: pattern(17)},
            [[0, 16], [16, 1]],
        ),  # the byte after the range is a separate stretch
        (16, {-1: b"\1", 8900: b"\1\1"}, [[-1, 1], [8900, 2]]),
        (
            2 * 4096,
            {0: b"a", 3: bytes([BEFORE ^ ord("\n")]) * 2, 4000: b"b" * 200, 8191: b"\0"},
            [[0, 1], [3, 2], [4000, 200], [8191, 1]],
        ),
    ],
    ids=["behind", "before and pages away", "torn"],
)
def test_every_changed_stretch_is_detected_whatever_its_bytes(buffer, length, written, changed):
    area = target(buffer, length)
    for offset, new in written.items():
        ctypes.memmove(area.start + offset, new, len(new))
    assert area.changed() == changed


def test_changes_of_memory_without_the_known_contents_are_not_reported(buffer):
    assert target(buffer, contents="zeros").changed() == []
    ctypes.memset(buffer.addr, BEFORE, buffer.size)
    assert target(buffer, contents="filled").changed() == []


@pytest.mark.parametrize("arrived, moved", [(16, "all"), (0, "nothing"), (8, "part")])
def test_an_area_reports_how_much_has_moved(buffer, arrived, moved):
    area = target(buffer)
    ctypes.memmove(area.start, pattern(16), arrived)
    assert area.moved() == moved
    assert not area.changed_outside()


@pytest.mark.parametrize(
    "new, received",
    [
        (b"", "nothing"),
        (pattern(16), "all"),
        (pattern(8), "part"),
        (repeated(EMPTY, 3) + pattern(4)[3:], "part"),  # one byte arrived, in its place
        (b"\0" + pattern(8), "part"),  # some bytes arrived, in another place
        (bytes([CANARY]) * 4, "part"),  # the bytes are from outside the range
        (b"\0" * 16, "other"),
        (bytes(range(16)), "other"),
    ],
)
def test_received_bytes_of_unknown_origin_are_distinguished_from_those_of_the_peer(
    buffer, new, received
):
    source = Area(buffer, buffer.addr + 100, 16, CANARY, pattern(16), pattern(16))
    source.fill()
    with closing(allocate("anonymous", 256)) as own_memory:
        requester = Area(
            own_memory, own_memory.addr + 64, 16, EMPTY, repeated(EMPTY, 16), source.before
        )
        requester.fill()
        ctypes.memmove(requester.start, new, len(new))
        assert requester.received(source) == received


ADDR, LENGTH = 4096 + 100, 200


@pytest.mark.parametrize("position", sorted(set(POSITIONS) - {"empty"}))
@pytest.mark.parametrize(
    "operation",
    ["RDMA_WRITE", "SEND", "ATOMIC_WRITE", "ATOMIC_FETCH_AND_ADD"],
)
def test_a_position_is_inside_or_outside_the_range_according_to_its_name(operation, position):
    offset, size = locate(position, operation, ADDR, LENGTH)
    inside = range(LENGTH)
    touched = [byte in inside for byte in range(offset, offset + size)]
    expected = {
        "before": [False],
        "after": [False],
        "across-start": [False, True],
        "across-end": [True, False],
    }
    assert sorted(set(touched)) == sorted(expected.get(position, [True]))


@pytest.mark.parametrize("operation", WORD_OPERATIONS)
@pytest.mark.parametrize("position", sorted(set(POSITIONS) - {"empty", "exact"}))
def test_words_are_aligned_although_the_range_begins_and_ends_within_a_word(operation, position):
    offset, size = locate(position, operation, ADDR, LENGTH)
    assert ((ADDR + offset) % 8, size) == (0, 8)


def test_operations_on_words_have_no_empty_position():
    assert locate("empty", "RDMA_WRITE", ADDR, LENGTH) == (0, 0)
    with pytest.raises(LookupError, match="no position 'empty'"):
        locate("empty", "ATOMIC_WRITE", ADDR, LENGTH)


@pytest.mark.parametrize("size", [1, 2, 4096])
def test_a_byte_is_found_at_each_end_of_a_memory_and_not_beside_it(size):
    content = ctypes.create_string_buffer(repeated(BEFORE, size + 2), size + 2)
    part = Part(ctypes.addressof(content) + 1, size)
    ctypes.memset(part.addr, CANARY, size)
    assert is_filled(part, CANARY)
    assert has_byte(part, CANARY)
    assert not has_byte(part, BEFORE)
    for at in {0, size - 1}:
        ctypes.memset(part.addr + at, EMPTY, 1)
        assert not is_filled(part, CANARY)
        assert has_byte(part, EMPTY)
        ctypes.memset(part.addr + at, CANARY, 1)
