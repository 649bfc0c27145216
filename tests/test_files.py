"""Files are replaced whole: a reader sees the old content or the new one, and nothing is left beside it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conformance.results.files import write_atomically
from samples import user_error


def test_a_file_and_its_folder_are_created_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "file"
    for data in (b"first and long", b"second"):
        write_atomically(path, data)
        assert path.read_bytes() == data
    assert os.listdir(path.parent) == ["file"]


def test_a_file_is_as_readable_as_any_that_a_program_creates(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"")
    write_atomically(tmp_path / "file", b"")
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.parametrize("failing", ["os.fsync", "pathlib.Path.replace"])
def test_nothing_changes_where_writing_fails(failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "file"
    write_atomically(path, b"old")
    monkeypatch.setattr(failing, fail)
    with user_error("file cannot be written: No space left on device", status=3):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_an_interruption_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "file", b"new")
    assert os.listdir(tmp_path) == []


def test_a_folder_that_is_a_file_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with user_error("cannot be written", status=2):
        write_atomically(tmp_path / "file" / "inside", b"")


def test_a_name_that_is_too_long_is_one_clear_error_and_one_that_just_fits_is_written(tmp_path: Path) -> None:
    with user_error("cannot be written: File name too long", status=2):
        write_atomically(tmp_path / ("n" * 256), b"")
    write_atomically(tmp_path / ("n" * 255), b"data")
    assert (tmp_path / ("n" * 255)).read_bytes() == b"data"


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"kept")
    (tmp_path / "file").symlink_to(tmp_path / "elsewhere")
    write_atomically(tmp_path / "file", b"new")
    assert (tmp_path / "elsewhere").read_bytes() == b"kept"
    assert not (tmp_path / "file").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"new"
