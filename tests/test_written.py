"""Tests of files that the suite reads and writes. No command waits for an input that is a FIFO, or reads a file without
a bound. `--out` of `report` writes to special files directly, and refuses links."""

import errno
import os
import shutil
import stat
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from conformance.regular_file import MOST_BYTES, open_regular, read_regular
from conformance.supervision.durations import Durations
from fixtures.guest.kernel import unpacked
from fixtures.system.digests import sha256_of
from kinds import Cli
from samples import user_error

OLD = str(Path(__file__).with_name("old_results"))
KTAP = ("report", OLD, "--format", "ktap", "--out")


def test_a_fifo_gets_the_report_and_stays_a_fifo(tmp_path, cli):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    texts: list[bytes] = []
    reader = threading.Thread(target=lambda: texts.append(fifo.read_bytes()))
    reader.start()
    assert cli(0, *KTAP, fifo).out == ""
    reader.join()
    assert texts[0].startswith(b"TAP version 13\n")
    assert stat.S_ISFIFO(fifo.stat().st_mode)


def test_a_link_is_refused(tmp_path, cli):
    (tmp_path / "target").write_text("before")
    for name, target in (("link", "target"), ("dangling", "new")):
        link = tmp_path / name
        link.symlink_to(target)
        said = "it is a symbolic link; name the file to which it leads"
        assert refused([*KTAP, str(link)], cli) == f"{link} cannot be written: {said}"
        assert link.is_symlink()
    assert (tmp_path / "target").read_text() == "before"
    assert not (tmp_path / "new").exists()


def test_a_full_device_is_reported_in_one_line_and_stays_a_device(cli):
    assert (
        cli(3, *KTAP, "/dev/full").err
        == "rdma-cts: /dev/full cannot be written: No space left on device\n"
    )
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)


RECORDED = ("results.jsonl", "plan.json", "summary.json", "junit.xml", "report.html", "console.log")


@pytest.mark.parametrize("name", RECORDED)
def test_no_output_replaces_a_file_of_a_run(name, tmp_path, cli):
    """A report of the name that a run gives to it is made anew."""
    run = Path(shutil.copytree(OLD, tmp_path / "run"))
    if name == "summary.json":
        cli(0, "report", run, "--format", "summary", "--out", run / name)
        (run / name).write_text(f"{(run / name).read_text()}\n")
    elif not (run / name).exists():
        (run / name).write_text("recorded")
    before = (run / name).read_bytes()
    said = cli(2, "report", run, "--format", "markdown", "--out", run / name).err
    assert "is recorded data, which output must not replace" in said
    assert (run / name).read_bytes() == before
    if name == "summary.json":
        cli(0, "report", run, "--format", "summary", "--out", run / name)
        assert (run / name).read_bytes() != before


# Commands that read the results of a run, RUN, and write to --out.
OF_A_RUN = (
    ("judge", "RUN"),
    ("report", "RUN"),
    ("bundle", "RUN"),
    ("findings", "RUN", "--out", "findings"),
    ("reproducer", "reg_mr/access_flags/local-write", "--run", "RUN"),
    (
        "waivers",
        "--run",
        "RUN",
        "--owner",
        "me",
        "--issue",
        "https://example.org/1",
        "--expires",
        "2026-12-01",
    ),
)
READING = (
    *OF_A_RUN,
    ("compare", "RUN", OLD),
    ("compare", OLD, "RUN"),
    ("explain", "REG-15", "--run", "RUN"),
    ("list", "coverage", "--run", "RUN"),
)


def of_old_run(command: Sequence[str]) -> list[str]:
    return [OLD if word == "RUN" else word for word in command]


WRITING = (
    ["run", "--host", "root@nowhere.invalid", "--device", "x"],
    ["run", "--guest"],
    ["trial", "reference"],
    *map(of_old_run, OF_A_RUN),
)


def refused(arguments: list[str], cli: Cli) -> str:
    out, err = cli(2, *arguments)
    assert (out, err.count("\n")) == ("", 1)
    return err.removeprefix("rdma-cts: ").rstrip("\n")


# An --out that cannot be created is reported before the command does anything else.


@pytest.mark.parametrize("command", WRITING, ids=lambda command: command[0])
def test_an_out_below_a_missing_directory_is_refused(command, tmp_path, cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for out, why in (
        ("a/b/c", "there is no directory a/b"),
        ("out/a/b", "there is no directory out/a"),
        ("/dev/null/x", "/dev/null is not a directory"),
    ):
        assert refused([*command, "--out", out], cli) == f"{out} cannot be written: {why}"
    assert list(tmp_path.iterdir()) == []


def test_no_command_accepts_an_invalid_name(tmp_path, cli):
    (tmp_path / "loop").symlink_to("loop")
    for command in WRITING:
        for name, why in (
            ("x" * 300, "File name too long"),
            ("loop", "Too many levels of symbolic links"),
        ):
            out = tmp_path / name
            assert refused([*command, "--out", str(out)], cli) == f"{out} cannot be written: {why}"
    assert [path.name for path in tmp_path.iterdir()] == ["loop"]


@pytest.mark.parametrize("out", ["new", "out/new", "./out/new"])
def test_the_last_directory_of_a_path_and_the_directory_out_are_made(
    out, tmp_path, monkeypatch, cli
):
    monkeypatch.chdir(tmp_path)
    cli(1, "judge", OLD, "--out", out)
    assert (tmp_path / out / "results.jsonl").is_file()


def test_an_existing_run_is_reported_before_a_host_is_connected(tmp_path, cli):
    shutil.copytree(OLD, tmp_path / "run")
    command = ["run", "--host", "root@nowhere.invalid", "--out", str(tmp_path / "run")]
    there = f"{tmp_path / 'run' / 'results.jsonl'} exists: a run is recorded there; choose another --out"
    # a run that was judged or merged has no plan, and cannot be resumed
    assert refused(command, cli) == there
    (tmp_path / "run/plan.json").touch()
    assert refused(command, cli) == f"{there}, or ./rdma-cts run --resume {tmp_path / 'run'}"


# Reading


def refusal_of(command: tuple[str, ...], run: Path, cli: Cli) -> str:
    """Returns the line with which a command refuses RUN."""
    (line,) = cli(2, *(run if word == "RUN" else word for word in command)).err.splitlines()
    return line


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_no_command_waits_for_a_fifo_in_the_place_of_results(command, tmp_path, cli):
    run = tmp_path / "run"
    run.mkdir()
    os.mkfifo(run / "results.jsonl")
    assert "not a regular file" in refusal_of(command, run, cli)


def test_results_larger_than_the_bound_are_not_read(tmp_path, cli):
    with (tmp_path / "results.jsonl").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    assert refusal_of(("report", "RUN"), tmp_path, cli).endswith(
        f"cannot be read: larger than {MOST_BYTES:,} bytes",
    )


def test_no_report_waits_for_a_fifo_in_the_place_of_points(tmp_path, cli):
    run = shutil.copytree(OLD, tmp_path / "run")
    (points, *_) = (run / "points").iterdir()
    points.unlink()
    os.mkfifo(points)
    assert (
        refusal_of(("report", "RUN"), run, cli)
        == f"rdma-cts: {points} cannot be read: not a regular file"
    )


@pytest.mark.parametrize("options", [("--resume",), ("--guest", "--out")])
def test_no_run_waits_for_a_fifo_in_its_directory(options, tmp_path, cli):
    for name in ("results.jsonl", "plan.json"):
        os.mkfifo(tmp_path / name)
    assert "not a regular file" in refusal_of(("run", *options, "RUN"), tmp_path, cli)


@pytest.mark.parametrize("option", ["--waivers", "--profile", "--lab", "--kernel"])
def test_no_run_waits_for_a_fifo_that_an_option_names(option, tmp_path, cli):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    assert "not a regular file" in refusal_of(
        ("run", option, "RUN", "--out", str(tmp_path / "out")),
        fifo,
        cli,
    )


@pytest.mark.parametrize("command", ["list", "run"])
@pytest.mark.parametrize("name", ["mine.yaml", "rules.yaml"])
def test_no_command_waits_for_a_fifo_among_tables(name, command, tmp_path, cli):
    (tmp_path / "reg_mr").mkdir()
    fifo = tmp_path / "reg_mr" / name
    os.mkfifo(fifo)
    said = cli(2, command, "--cases", tmp_path).err
    assert said == f"rdma-cts: {fifo}: cannot be read: not a regular file\n"


def test_an_overlay_has_only_what_can_be_copied(tmp_path, cli):
    said = refusal_of(("run", "--guest", "--overlay", "RUN"), tmp_path, cli)
    assert said == f"rdma-cts: --overlay {tmp_path} is empty"
    os.mkfifo(tmp_path / "fifo")
    said = refusal_of(("run", "--guest", "--overlay", "RUN"), tmp_path, cli)
    assert said == (
        f"rdma-cts: --overlay {tmp_path}: {tmp_path}/fifo is not a regular file, a directory or a link"
    )


def test_no_reader_of_a_build_waits_for_a_fifo(tmp_path):
    fifo = tmp_path / "rdma_rxe.ko"
    os.mkfifo(fifo)
    with user_error(f"{fifo} cannot be read: not a regular file", status=2):
        unpacked(fifo)
    with pytest.raises(OSError, match="not a regular file"):
        sha256_of(fifo)


def test_an_unreadable_file_of_durations_is_ignored(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    assert Durations(tmp_path / "fifo").read() == {}


def test_a_file_of_exactly_the_bound_is_read_and_a_larger_file_is_not(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_regular(path, 5) == b"12345"
    with pytest.raises(OSError, match="larger than 4 bytes") as caught:
        read_regular(path, 4)
    assert caught.value.errno == errno.EFBIG
    with pytest.raises(OSError, match="larger than 4 bytes"):
        read_regular(Path("/proc/self/maps"), 4)  # its reported size is 0


def test_no_reader_waits_for_a_fifo_that_has_replaced_a_file(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    regular = (tmp_path / "file").stat()
    os.mkfifo(tmp_path / "fifo")
    monkeypatch.setattr(Path, "stat", lambda path: regular)
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(tmp_path / "fifo")
