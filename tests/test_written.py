"""Where `--out` of `report` and `waivers` writes: regular files as a whole, anything else through."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from commands.__main__ import main

OLD = str(Path(__file__).with_name("old_results"))
KTAP = ("report", OLD, "--format", "ktap", "--out")


def test_a_fifo_gets_the_report_and_stays_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(fifo.read_bytes()))
    reader.start()
    assert main([*KTAP, str(fifo)]) == 0
    reader.join()
    assert found[0].startswith(b"KTAP version 1\n")
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert capsys.readouterr().out == ""


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("before")
    (tmp_path / "link").symlink_to("target")
    assert main([*KTAP, str(tmp_path / "link")]) == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes().startswith(b"KTAP")


def test_a_full_device_is_one_line_and_stays_a_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*KTAP, "/dev/full"]) == 3
    assert capsys.readouterr().err == "rdma-cts: /dev/full cannot be written: No space left on device\n"
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)


def test_a_directory_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*KTAP, str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"rdma-cts: {tmp_path} cannot be written: Is a directory\n"


def test_a_regular_file_is_replaced_as_a_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.ktap"
    path.write_text("before")
    assert main([*KTAP, str(path)]) == 0
    assert path.read_bytes().startswith(b"KTAP")
    assert capsys.readouterr().out == f"report: {path}\n"
    assert list(tmp_path.iterdir()) == [path]
