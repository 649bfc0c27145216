"""Files of the kernel that stay open: what is read again, by whom, and the numbers in them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conformance.kernel.kernel_file import KernelFile, number_after

TEXT = "VmPinned: 3 kB\nVmPin:\t      16 kB\nnr_released 5\nnr_acquired 12"


def test_each_reading_gives_the_text_as_it_is_then(tmp_path: Path) -> None:
    path = tmp_path / "status"
    path.write_text("a" * 200_000)
    file = KernelFile(path)
    assert file.read() == "a" * 200_000
    path.write_text("short")
    assert file.read() == file.read() == "short"


def test_a_file_that_is_not_there_is_looked_for_again(tmp_path: Path) -> None:
    file = KernelFile(tmp_path / "status")
    with pytest.raises(FileNotFoundError):
        file.read()
    (tmp_path / "status").write_text("here")
    assert file.read() == "here"


def test_a_forked_process_reads_of_itself() -> None:
    file = KernelFile(Path("/proc/self/stat"))
    assert file.read().startswith(f"{os.getpid()} ")
    if not (child := os.fork()):
        os._exit(0 if file.read().startswith(f"{os.getpid()} ") else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert file.read().startswith(f"{os.getpid()} ")


def test_a_file_is_closed_when_it_is_no_longer_used() -> None:
    def is_open() -> bool:
        return any(os.path.realpath(f"/proc/self/fd/{name}") == "/proc/version" for name in os.listdir("/proc/self/fd"))

    file = KernelFile(Path("/proc/version"))
    file.read()
    assert is_open()
    del file
    assert not is_open()


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("VmPin:", 16),
        ("VmPinned:", 3),
        ("nr_acquired ", 12),
        ("nr_released ", 5),
        ("VmLck:", None),
        ("acquired ", None),
    ],
)
def test_a_number_is_that_of_the_line_that_begins_with_its_name(name: str, number: int | None) -> None:
    assert number_after(TEXT, name) == number


def test_a_name_without_a_number_has_none() -> None:
    assert number_after("VmPin:", "VmPin:") is number_after("VmPin: none", "VmPin:") is None
