"""Files that the suite reads: no command waits for a FIFO, opens a device, or reads a file without bounds."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from conformance.regular_file import MOST_BYTES, open_regular, read_regular
from kinds import Cli, Patch
from runs.durations import Durations

OLD = Path(__file__).with_name("old_results")
# Commands that read the results of a run, RUN.
COMMANDS = (
    ("report", "RUN"),
    ("compare", "RUN", str(OLD)),
    ("compare", str(OLD), "RUN"),
    ("judge", "RUN", "--out", "OUT"),
    ("explain", "REG-15", "--run", "RUN"),
    ("coverage", "--run", "RUN"),
    ("bundle", "RUN"),
    ("waivers", "--run", "RUN", "--owner", "me", "--issue", "https://example.org/1", "--expires", "2026-12-01"),
    ("reproducer", "reg_mr/access_flags/local-write", "--run", "RUN"),
    ("findings", "RUN", "--out", "OUT"),
)


def told(command: tuple[str, ...], run: Path, cli: Cli) -> str:
    """Returns the line with which a command refuses RUN."""
    words = [{"RUN": str(run), "OUT": str(run.with_name("out"))}.get(word, word) for word in command]
    (line,) = cli(2, *words).err.splitlines()
    return line


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_waits_for_a_fifo_in_the_place_of_results(
    command: tuple[str, ...], tmp_path: Path, cli: Cli
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    os.mkfifo(run / "results.jsonl")
    assert "not a regular file" in told(command, run, cli)


def test_results_that_fill_the_memory_are_not_read(tmp_path: Path, cli: Cli) -> None:
    with (tmp_path / "results.jsonl").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    assert told(("report", "RUN"), tmp_path, cli).endswith(f"cannot be read: larger than {MOST_BYTES:,} bytes")


def test_no_report_waits_for_a_fifo_in_the_place_of_points(tmp_path: Path, cli: Cli) -> None:
    run = Path(shutil.copytree(OLD, tmp_path / "run"))
    (points, *_) = (run / "points").iterdir()
    points.unlink()
    os.mkfifo(points)
    assert told(("report", "RUN"), run, cli) == f"rdma-cts: {points} cannot be read: not a regular file"
    (run / "points" / points.name).unlink()


@pytest.mark.parametrize("options", [("--resume",), ("--guest", "--out")])
def test_no_run_waits_for_a_fifo_in_its_directory(options: tuple[str, ...], tmp_path: Path, cli: Cli) -> None:
    for name in ("results.jsonl", "plan.json"):
        os.mkfifo(tmp_path / name)
    assert "not a regular file" in told(("run", *options, "RUN"), tmp_path, cli)


@pytest.mark.parametrize("option", ["--waivers", "--profile", "--lab", "--kernel"])
def test_no_run_waits_for_a_fifo_that_it_is_given(option: str, tmp_path: Path, cli: Cli) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    assert "not a regular file" in told(("run", option, "RUN", "--out", str(tmp_path / "out")), fifo, cli)


def test_an_unreadable_file_of_durations_is_ignored(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert Durations(tmp_path / "fifo").read() == {}


def test_a_file_of_just_the_bound_is_read_and_a_larger_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_regular(path, 5) == b"12345"
    with pytest.raises(OSError, match="larger than 4 bytes") as caught:
        read_regular(path, 4)
    assert caught.value.errno == errno.EFBIG


def test_a_file_that_says_that_it_is_empty_is_read_up_to_the_bound() -> None:
    with pytest.raises(OSError, match="larger than 4 bytes"):
        read_regular(Path("/proc/self/maps"), 4)


def test_a_file_replaced_by_a_fifo_is_not_waited_for(tmp_path: Path, monkeypatch: Patch) -> None:
    (tmp_path / "file").touch()
    regular = (tmp_path / "file").stat()
    os.mkfifo(tmp_path / "fifo")
    monkeypatch.setattr(Path, "stat", lambda path: regular)
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(tmp_path / "fifo")
