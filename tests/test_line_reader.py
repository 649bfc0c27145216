"""Tests of the reader of lines, to which any bytes may be written; of a worker's console, which may grow forever; and
of the function that writes files."""

import fcntl
import os
import re
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.errors import UserError
from conformance.pytest_plugin.recorder import Stream
from conformance.results.files import write_atomically
from conformance.tables.suite import ROOT
from fixtures.system import console, line_reader
from fixtures.system.line_reader import LineReader, new_mark, unmarked
from patience import PATIENCE_S
from samples import user_error


@contextmanager
def written(*parts: bytes, repeat: int = 1) -> Iterator[LineReader]:
    """Yields a reader of a pipe. A thread writes these parts into the pipe `repeat` times, and then closes the pipe."""
    ours, theirs = os.pipe()

    def write() -> None:
        with suppress(BrokenPipeError), open(theirs, "wb", buffering=0) as pipe:
            for part in parts * repeat:
                rest = part
                while rest:
                    rest = rest[pipe.write(rest) or 0 :]

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield LineReader(ours)
    finally:
        os.close(ours)
        thread.join()


def all_of(reader: LineReader) -> list[bytes]:
    return [*iter(lambda: reader.next_line(PATIENCE_S) or b"", b"")]


@given(st.lists(st.sampled_from([b"a", b"\n", b"bc\n", b"d\nef", b"\n\n"])))
def test_lines_are_whole_however_they_are_written(parts):
    with written(*parts) as reader:
        assert all_of(reader) == re.findall(rb"[^\n]*\n|[^\n]+", b"".join(parts))
        assert reader.next_line(PATIENCE_S) == b""


def test_a_descriptor_that_select_refuses_is_read():
    """Processes of a lab of more than 337 hosts have descriptors above 1023."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 1025), limits[1]))
    ours, theirs = os.pipe()
    high = fcntl.fcntl(ours, fcntl.F_DUPFD_CLOEXEC, 1024)
    try:
        reader = LineReader(high)
        os.write(theirs, b"a line\n")
        assert reader.next_line(PATIENCE_S) == b"a line\n"
        assert reader.next_line(0) is None
    finally:
        for descriptor in (ours, theirs, high):
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_an_overlong_line_is_cut_after_its_beginning(monkeypatch):
    monkeypatch.setattr(line_reader, "MAX_LINE", 100_000)
    with written(b"mark " + b"x" * 1_000_000 + b"\nnext\n") as reader:
        first, last = all_of(reader)
    assert first.startswith(b"mark xxx")
    assert len(first) < 100_000
    assert first.endswith(b"\n")
    assert last == b"next\n"


def test_the_time_out_expires_although_the_pipe_always_has_bytes():
    with written(b"x" * 4096, repeat=1 << 20) as reader:
        began = time.monotonic()
        assert reader.next_line(0.5) is None
        assert time.monotonic() - began < PATIENCE_S / 2


def test_the_stream_ends_with_its_process_although_the_pipe_stays_open(tmp_path):
    """The pipe has no end of file, because this test itself keeps it open for writing."""
    path, mark = tmp_path / "stream", new_mark()
    os.mkfifo(path)
    ours = os.open(path, os.O_RDWR)
    program = f"from {Stream.__module__} import Stream; Stream({str(path)!r}, {mark!r}).append({{'type': 'x'}})"
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT) as process:
        ended = os.pidfd_open(process.pid)
        (line,) = all_of(LineReader(ours, ended))
    assert unmarked(line, mark.encode()) == b'{"type":"x"}\n'
    assert unmarked(line, new_mark().encode()) is None
    for descriptor in (ours, ended):
        os.close(descriptor)


def test_the_last_lines_of_a_console_are_read_and_its_middle_is_cut(tmp_path, monkeypatch):
    path = tmp_path / "console.log"
    console.create(path)
    with path.open("ab") as file:
        file.write(b"first\n" + b"middle\n" * 3_000_000 + b"y" * 5000 + b"\nlast\n")
    assert console.tail(path, 2) == ["y" * 1000, "last"]
    console.bound(path)
    assert path.stat().st_size < console.MOST_BYTES
    text = path.read_bytes()
    assert text.startswith(b"first\n")
    assert text.endswith(b"last\n")
    assert b"bytes of output are left out here)" in text
    before = path.read_bytes()
    console.bound(path)
    assert path.read_bytes() == before


def test_a_console_is_not_created_through_a_link(tmp_path):
    (tmp_path / "console.log").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        console.create(tmp_path / "console.log")
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_and_its_folder_are_created_and_a_link_in_its_place_is_not_followed(tmp_path):
    path = tmp_path / "deep" / "er" / "file"
    for data in (b"first and long", b"second", b"third"):
        write_atomically(path, data)
        assert path.read_bytes() == data
        if data == b"second":
            (tmp_path / "elsewhere").write_bytes(b"kept")
            path.unlink()
            path.symlink_to(tmp_path / "elsewhere")
    assert os.listdir(path.parent) == ["file"]
    assert not path.is_symlink()
    assert (tmp_path / "elsewhere").read_bytes() == b"kept"


@pytest.mark.parametrize("failing", ["os.fsync", "os.replace"])
@pytest.mark.parametrize(
    "error, said",
    [
        (OSError(28, "No space left on device"), "cannot be written: No space"),
        (KeyboardInterrupt, ""),
    ],
)
def test_nothing_changes_if_writing_fails(failing, error, said, tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, b"old")
    monkeypatch.setattr(failing, Mock(side_effect=error))
    with pytest.raises((UserError, KeyboardInterrupt), match=said) as caught:
        write_atomically(path, b"new")
    assert getattr(caught.value, "status", 3) == 3
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_name_that_is_too_long_is_refused_and_the_longest_valid_name_is_written(tmp_path):
    with user_error("cannot be written: File name too long", status=2):
        write_atomically(tmp_path / ("n" * 256), b"")
    write_atomically(tmp_path / ("n" * 255), b"data")
    assert (tmp_path / ("n" * 255)).read_bytes() == b"data"
