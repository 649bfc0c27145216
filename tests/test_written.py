"""`--out` of `report` and `waivers` writes regular files atomically, and special files directly."""

import os
import shutil
import stat
import threading
from pathlib import Path

import pytest

from commands.__main__ import main
from kinds import Cli, Patch, Says

OLD = str(Path(__file__).with_name("old_results"))
KTAP = ("report", OLD, "--format", "ktap", "--out")


def test_a_fifo_gets_the_report_and_stays_one(tmp_path: Path, capsys: Says) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(fifo.read_bytes()))
    reader.start()
    assert main([*KTAP, str(fifo)]) == 0
    reader.join()
    assert found[0].startswith(b"TAP version 13\n")
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert capsys.readouterr().out == ""


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("before")
    (tmp_path / "link").symlink_to("target")
    assert main([*KTAP, str(tmp_path / "link")]) == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes().startswith(b"TAP version")


def test_a_full_device_is_one_line_and_stays_a_device(cli: Cli) -> None:
    assert cli(3, *KTAP, "/dev/full").err == "rdma-cts: /dev/full cannot be written: No space left on device\n"
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)


# Places in which nothing can be created. They are reported before anything else is done, and nothing is created.
COMMANDS = (
    ["run", "--host", "root@nowhere.invalid", "--device", "x"],
    ["run", "--guest"],
    ["judge", OLD],
    ["report", OLD],
    ["bundle", OLD],
    ["findings", OLD],
    ["trial", "reference"],
    ["reproducer", "reg_mr/access_flags/local-write"],
    ["waivers", "--run", OLD, "--owner", "me", "--issue", "https://example.org/1", "--expires", "2026-12-01"],
)


def refused(arguments: list[str], cli: Cli) -> str:
    out, err = cli(2, *arguments)
    assert (out, err.count("\n")) == ("", 1)
    return err.removeprefix("rdma-cts: ").rstrip("\n")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_no_command_makes_a_tree_of_directories(
    command: list[str], tmp_path: Path, cli: Cli, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(tmp_path)
    for out, why in (
        ("a/b/c", "there is no directory a/b"),
        ("out/a/b", "there is no directory out/a"),
        ("/dev/null/x", "/dev/null is not a directory"),
    ):
        assert refused([*command, "--out", out], cli) == f"{out} cannot be written: {why}"
    assert list(tmp_path.iterdir()) == []


def test_no_command_takes_what_cannot_be_a_name(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for command in COMMANDS:
        for name, why in (("x" * 300, "File name too long"), ("loop", "Too many levels of symbolic links")):
            out = tmp_path / name
            assert refused([*command, "--out", str(out)], cli) == f"{out} cannot be written: {why}"
    assert [path.name for path in tmp_path.iterdir()] == ["loop"]


def test_the_page_of_a_history_that_is_a_loop_is_one_line(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "20261122T031700Z").mkdir()
    (tmp_path / "history.html").symlink_to("history.html")
    said = refused(["report", "--history", str(tmp_path)], cli)
    assert said == f"{tmp_path / 'history.html'} cannot be written: Too many levels of symbolic links"


@pytest.mark.parametrize("out", ["new", "out/new", "./out/new"])
def test_the_last_directory_is_made_and_the_one_where_runs_are(out: str, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    main(["judge", OLD, "--out", out])
    assert (tmp_path / out / "results.jsonl").is_file()


def test_a_run_that_is_there_is_reported_before_a_host_is_reached(tmp_path: Path, cli: Cli) -> None:
    shutil.copytree(OLD, tmp_path / "run")
    said = refused(["run", "--host", "root@nowhere.invalid", "--out", str(tmp_path / "run")], cli)
    there = f"{tmp_path / 'run' / 'results.jsonl'} exists: a run is recorded there; choose another --out"
    assert said == there  # a run that was judged or merged has no plan, and cannot be resumed
    (tmp_path / "run/plan.json").touch()
    said = refused(["run", "--host", "root@nowhere.invalid", "--out", str(tmp_path / "run")], cli)
    assert said == f"{there}, or ./rdma-cts run --resume {tmp_path / 'run'}"
