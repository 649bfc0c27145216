"""Tests of behaviour that users expect: pipes, full devices, signals, mistakes in command lines, unforeseen errors."""

import argparse
import errno
import lzma
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path

import pytest

from bad_places import as_another_user
from commands import listing, report_site
from commands import run as run_command
from commands.__main__ import main, parser_of, whole_parser
from commands.cli import choice, run_arguments
from commands.cli.catalogue import COMMANDS
from commands.cli.streams import show
from commands.report import FORMATS
from commands.run import _kept as kept_text
from conformance.errors import UserError
from conformance.results import folder as run_folders
from conformance.results.records import read_written
from conformance.tables.suite import ROOT
from launched import ended
from patience import PATIENCE_S
from programs import FORKY
from reports.digest import read
from samples import footer_of, laid, numbered, recorded, result, user_error, written

COMMAND = (sys.executable, "-m", "commands")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
TESTS = Path(__file__).parent
OLD = TESTS / "old_results"
SOON = date.today() + timedelta(days=30)
# files of other programs
FOREIGN = [
    b"# mine\n",
    b"<!doctype html>\n<html><title>mine</title></html>\n",
    b"<?xml version='1.0' encoding='us-ascii'?>\n<testsuites>\n  <testsuite name='mine'/></testsuites>\n",
    b"TAP version 13\n1..1\n# mine\nok 1 mine\n",
    b'{"schema": "mine/1"}\n',
    lzma.compress(b"mine"),
]
MISTAKES = (TESTS / "mistakes.txt").read_text()


def shell(script: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs a shell script in which "$@" is the beginning of the suite's command line."""
    return ended(
        "bash",
        "-c",
        script,
        "bash",
        *COMMAND,
        cwd=cwd,
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The directory of a run with many results."""
    results = [result(case, "FAIL", "it is so" * 40) for case in numbered(60).cases]
    return written(recorded(results, complete=False, planned=[]), tmp_path / "run")


@pytest.mark.parametrize(
    "command", ["list", "report run --out -", "--help", "--version", "run --help"]
)
def test_a_full_device_is_reported_in_one_line(command, run):
    done = shell(f'"$@" {command} >/dev/full', run.parent)
    assert (done.returncode, done.stderr) == (
        3,
        "rdma-cts: standard output: No space left on device\n",
    )


@pytest.mark.parametrize("command, status", [("list", 3), ("--help", 3), ("frobnicate", 2)])
def test_a_closed_output_is_told_if_something_was_to_be_written(command, status, tmp_path):
    done = shell(f'"$@" {command} >&-', tmp_path)
    said = "rdma-cts: standard output: Bad file descriptor\n"
    assert (done.returncode, done.stderr == said) == (status, status == 3)


@pytest.mark.parametrize("reason", ["Not a directory", "other users can write it"])
def test_a_cache_that_cannot_be_used_is_told_once(reason, tmp_path, monkeypatch):
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    if reason == "Not a directory":
        folder = laid(tmp_path, {"file": ""}) / "file"
    monkeypatch.setitem(ENVIRONMENT, "RDMA_CTS_CACHE", str(folder / "cache"))
    monkeypatch.delitem(ENVIRONMENT, "RDMA_CTS_DERIVED", raising=False)
    done = shell('"$@" list --rule REG-15', tmp_path)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 0
    assert line.startswith(f"rdma-cts: the cache cannot be used: {folder}/cache/")
    assert line.endswith(f": {reason}; set RDMA_CTS_CACHE to a directory of your own")


def test_an_unknown_option_does_not_import_all_commands(cli, monkeypatch):
    monkeypatch.setattr("commands.__main__.whole_parser", lambda: pytest.fail("imported"))
    cli(2, "run", "--bogus")


def test_an_explanation_is_printed_as_a_whole_or_not_at_all(cli):
    said = cli(
        2,
        "explain",
        "87a72407047b",
        "--run",
        ROOT / "docs/runs/siw.jsonl.xz",
        "--against",
        "nosuch",
    )
    assert said.out == ""


WITHOUT = ("| true", ">&-", "<&- >&- 2>&-")


@pytest.mark.parametrize(
    "command",
    [
        "report OLD --format markdown",
        f"waivers --run OLD --owner me --issue https://bugs.example/1 --expires {SOON}",
        "reproducer advise_mr/codes/region-of-another-pd@libibverbs",
    ],
)
def test_a_file_that_is_replaced_is_named(command, tmp_path, cli):
    out = tmp_path / "file"
    words = command.replace("OLD", str(OLD)).split()

    def said() -> str:
        return str(cli(0, *words, "--out", out).out)

    assert "replaces" not in said()
    content = out.read_bytes()
    assert "replaces" not in said()  # the content is the same
    out.write_bytes(content + b"edited")
    assert said().endswith(" (replaces a file with a different content)\n")
    assert out.read_bytes() == content


@pytest.mark.parametrize(
    "command",
    [
        f"waivers --run OLD --owner me --issue https://bugs.example/1 --expires {SOON}",
        "reproducer advise_mr/codes/region-of-another-pd@libibverbs",
        "reproducer advise_mr/codes/region-of-another-pd@libibverbs --mail --run FORKY",
        *(f"report OLD --format {form}" for form in FORMATS),
        *(f"report OLD FORKY --format {form}" for form in FORMATS),
    ],
)
def test_only_a_file_of_the_suite_is_replaced(command, tmp_path, cli):
    file = tmp_path / "file"
    words = command.replace("OLD", str(OLD)).replace("FORKY", str(FORKY)).split()
    said = f"{file} is a file that this command has not written, and is not replaced"
    for content in FOREIGN:
        file.write_bytes(content)
        assert said in cli(2, *words, "--out", file).err
        assert file.read_bytes() == content
    file.write_bytes(b"")
    cli(0, *words, "--out", file)
    cli(0, *words, "--out", file)


@pytest.mark.parametrize(
    "command",
    [
        "compare FORKY RUN",
        "explain REG-15 --run RUN",
        "findings RUN --out RUN/new",
        "judge RUN --out RUN/new",
        "report RUN",
        "report RUN --format junit --out RUN/j",
        "reproducer --all --run RUN",
        "reproducer advise_mr/codes/region-of-another-pd@libibverbs --out RUN/c",
    ],
)
def test_an_end_of_line_in_the_name_of_a_run_ends_no_line(command, tmp_path, capsys):
    run = tmp_path / "new\nline\x1b[31mX"
    laid(run, {"results.jsonl": FORKY.read_bytes()})
    words = command.replace("FORKY", str(FORKY)).split()
    main([word.replace("RUN", str(run)) for word in words])
    said = capsys.readouterr()
    assert "new?line?[31mX" in said.out
    assert "new\n" not in said.out + said.err


def read_before(commands: Iterable[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Imports the modules of the commands, and replaces the tables: another user may be unable to read both."""
    assert report_site  # `report` imports it late
    for command in commands:
        parser_of([command])
    for module in (run_arguments, choice, run_command):
        monkeypatch.setattr(module, "load_suite", lambda *_: numbered(1))


@pytest.mark.parametrize("command", ["explain REG-15 --run", "report", "compare", "bundle"])
def test_a_directory_that_the_user_may_not_enter_is_no_missing_run(command, cli, monkeypatch):
    read_before(command.split()[:1], monkeypatch)
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o711)
        run = written(recorded([]), Path(name, "run"))
        words = [*command.split(), run, *([run] if command == "compare" else [])]
        cli(2, "report", Path(name))  # loads what the command imports
        run.chmod(0o700)
        with as_another_user():
            assert "results.jsonl cannot be read: Permission denied" in cli(2, *words).err


@pytest.mark.parametrize(
    "options",
    ["--device nosuch0", "--device rxe0 --stack trixie", "--device rxe0 --guest", "--host h:x"],
)
def test_what_needs_no_tables_is_refused_before_they_are_read(options, cli, monkeypatch):
    def never(*_: object) -> None:
        raise AssertionError("the tables were read")

    monkeypatch.setattr(choice, "load_suite", never)
    cli(2, "run", *options.split())


@pytest.mark.parametrize(
    "command",
    ["list | true", "explain REG-0 2>/dev/full", "explain REG-0 >&- 2>&-"],
)
def test_unread_output_does_not_change_the_status(command, tmp_path):
    done = shell(f'"$@" {command}; exit ${{PIPESTATUS[0]}}', tmp_path)
    assert (done.returncode, done.stderr) == (0 if "list" in command else 2, "")


def test_a_terminal_with_only_ascii_does_not_make_a_command_fail():
    assert (
        shell('PYTHONIOENCODING=ascii "$@" explain REG-15 --run old_results', TESTS).returncode == 0
    )


@pytest.mark.parametrize(
    "out",
    [
        "run/results.jsonl",
        "run/points/1.json",
        "run/console.log",
        "run/console-2.log",
        "run/lab.json",
        "link",
        "night/cell.json",
        "night/run.log",
        "copy.jsonl",
        "copy.jsonl.xz",
    ],
)
def test_no_output_replaces_recorded_data(out, run, monkeypatch, cli):
    names = "run/points/1.json run/console.log run/console-2.log run/lab.json night/cell.json"
    laid(run.parent, dict.fromkeys([*names.split(), "night/run.log"], "{}"))
    (run.parent / "link").symlink_to("run/results.jsonl")
    recorded = (run / "results.jsonl").read_bytes()
    (run.parent / "copy.jsonl").write_bytes(recorded)
    (run.parent / "copy.jsonl.xz").write_bytes(lzma.compress(recorded))
    before = (run.parent / out).read_bytes()
    monkeypatch.chdir(run.parent)
    said = f"rdma-cts: {out} is recorded data, which output must not replace; give another file to --out\n"
    assert cli(2, "report", "run", "--format", "summary", "--out", out).err == said
    assert (run.parent / out).read_bytes() == before


@pytest.mark.parametrize(
    "command",
    ["judge", "list --cases", "run --guest --overlay", "patches --out p --linux"],
)
def test_a_path_that_is_too_long_is_refused_in_one_line(command, tmp_path):
    done = shell(f'"$@" {command} {tmp_path}/{"x" * 300}', tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_an_output_in_a_removed_working_directory_is_refused_without_a_traceback(run):
    (run.parent / "gone").mkdir()
    done = shell(
        f'cd gone; rmdir ../gone; "$@" report {run} --format summary --out s.json',
        run.parent,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_with_closed_streams_no_file_takes_their_place(run):
    done = shell('"$@" report run --format summary --out summary.json <&- >&- 2>&-', run.parent)
    assert done.returncode == 3  # its line was lost
    assert (run.parent / "summary.json").read_text().startswith("{")


def test_a_report_for_the_file_behind_standard_output_is_appended_to_it(run):
    done = shell(
        '{ echo before; "$@" report run --format summary --out /dev/stdout; echo after; } >all',
        run.parent,
    )
    assert (done.returncode, done.stderr) == (0, "")
    before, *summary, after = (run.parent / "all").read_text().splitlines()
    assert (before, summary[0], after) == ("before", "{", "after")


@pytest.mark.parametrize(
    "changed, lost, written, status",
    [("", "", 3, 3), ("", "", 2, 2), ("changed", "", 0, 1), ("", "lost", 0, 3)],
)
def test_the_last_line_of_a_run_names_the_exit_status_that_the_run_has(
    changed, lost, written, status, tmp_path, monkeypatch, capsys
):
    def write_beside(*_: object) -> None:
        if written:
            raise UserError("report.html cannot be written", status=written)

    monkeypatch.setattr("commands.report.write_beside", write_beside)
    with user_error("", status=status):
        run_command._reported(read(FORKY), tmp_path, 0, lost, changed)
    assert capsys.readouterr().out.endswith(f"(exit status {status})\n")


@pytest.mark.parametrize("mistake", [line for line in MISTAKES.splitlines() if line[0] != "#"])
def test_a_mistake_in_a_command_line_is_reported_in_one_line_with_status_2_or_128(
    mistake, tmp_path, monkeypatch, cli
):
    monkeypatch.chdir(tmp_path)
    command, said = mistake.replace("RECORDED", str(TESTS / "recorded_violations")).split(" => ")
    if command.startswith("bisect-step"):
        status = 128
    else:
        status = 2
    assert cli(status, *shlex.split(command)) == ("", f"rdma-cts: {said}\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        "explain X",
        "findings RECORDED/forky.jsonl --title X --out D",
        "run --guest --guest-env A=X",
        "list -k X",
        "waivers --run RECORDED/forky.jsonl --owner X",
    ],
)
def test_bytes_that_are_not_text_are_refused_in_an_argument_that_is_no_path(
    words, tmp_path, monkeypatch, cli
):
    monkeypatch.chdir(tmp_path)
    command = words.replace("RECORDED", str(TESTS / "recorded_violations")).replace("X", "\udcff")
    (said,) = cli(2, *shlex.split(command)).err.splitlines()
    assert "its bytes are not text in UTF-8; see ./rdma-cts" in said
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A temporary directory that every user may enter."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


NOT_COUNTS = {"--gid-index", "--seed"}


def counts(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
    """Yields the options of all commands that count something, by the words of their command line."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in dict(action.choices).values():
                yield from counts(below)
        elif action.metavar == "N" and not NOT_COUNTS & {*action.option_strings}:
            yield f"{parser.prog} {action.option_strings[-1]}", action


def test_no_option_counts_nothing():
    options = dict(counts(whole_parser()))
    assert {"rdma-cts run --guests", "rdma-cts trial reference --jobs"} < options.keys()
    accepting = []
    for words, action in options.items():
        for text in ("0", "-1"):
            with suppress(argparse.ArgumentTypeError):
                assert callable(action.type)
                accepting.append((words, action.type(text)))
    assert accepting == []


LOCKED = """
merge {0} {0} --out m
bundle {0}
run --failed {0}
run --resume {0}
report --history {0} --site s
run --guest --overlay={0} --out r
run --guest --rdma-core {0} --out r
run --guest --modules {0} --out r
run --guest --linux {0} --out r
patches --linux {0} --out s
"""


def test_a_locked_directory_is_reported_in_one_line(open_folder, monkeypatch, cli):
    locked, work = open_folder / "locked", open_folder / "work"
    (locked / "run").mkdir(parents=True)
    locked.chmod(0)
    work.mkdir()
    work.chmod(0o777)
    monkeypatch.chdir(work)
    monkeypatch.setenv("RDMA_CTS_CACHE", str(work / "cache"))
    read_before(COMMANDS, monkeypatch)
    for command in LOCKED.format(locked / "run").strip().splitlines():
        with as_another_user():
            (said,) = cli(2, *command.split()).err.splitlines()
        assert said.startswith(f"rdma-cts: {locked}"), command


def test_a_run_directory_with_output_is_kept(tmp_path):
    out = tmp_path / "out" / "run"
    with run_folders.run_folder(out, "rxe0"):
        out.mkdir(parents=True)
        (out / "console.log").write_text("the guest has died")
        (out / "console-2.log").touch()
    assert [path.name for path in out.iterdir()] == ["console.log"]


def test_an_interrupted_run_names_its_results_and_has_reports(run):
    assert (
        kept_text(run, 0, 7)
        == f"no case has a result yet; ./rdma-cts run --resume {run} starts the run again"
    )
    said = kept_text(run, 60, 70)
    rest = f"./rdma-cts run --resume {run} runs the remaining cases"
    assert said == f"60 of 70 results and their report are in {run}; {rest}"
    assert {"report.html", "junit.xml", "summary.json"} < {path.name for path in run.iterdir()}


def test_an_interrupted_run_lists_first_what_is_new_against_the_earlier_run(tmp_path, capsys):
    failed = [result(case, "FAIL") for case in numbered(2).cases]
    run = written(recorded(failed, complete=False), tmp_path / "run")
    old = written(recorded([result(numbered(1).cases[0])]), tmp_path / "old")
    said = kept_text(run, 2, 7, earlier=read(old))
    assert said.startswith("2 of 7 results and their report are in")
    assert f"1 defect new against {old}" in capsys.readouterr().out
    assert f"1 defect new against {old}" in (run / "report.html").read_text()


ENDED = """
import os, signal, sys
from commands import __main__ as program
# The suite leaves a signal ignored that was ignored when it started, such as SIGHUP under nohup.
signal.signal({number}, signal.SIG_DFL)
os.fsync = lambda descriptor: os.kill(os.getpid(), {number})
program.heed_signals()
sys.exit(program.main(["report", "run", "--out", "page.html"]))
"""


def test_a_signal_while_a_report_is_written_leaves_no_part_of_it(run):
    number = signal.SIGTERM
    done = ended(
        sys.executable,
        "-c",
        ENDED.format(number=int(number)),
        cwd=run.parent,
        env=ENVIRONMENT,
    )
    assert (done.returncode, done.stderr) == (128 + number, f"rdma-cts: ended by {number.name}\n")
    assert [path.name for path in run.parent.iterdir()] == ["run"]


SENT_TWICE = """
import os, signal
from commands.cli import endings
endings._AGAIN_S = {again_s}
signal.signal({number}, signal.default_int_handler)
endings.heed_signals()
try:
    os.kill(os.getpid(), {number})
except KeyboardInterrupt:
    os.kill(os.getpid(), {number})
    print("the report is written")
"""


def sent_twice(number: signal.Signals, again_s: float) -> tuple[int, str]:
    code = SENT_TWICE.format(number=int(number), again_s=again_s)
    done = ended(sys.executable, "-c", code, cwd=ROOT)
    return done.returncode, done.stdout


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_is_sent_twice_at_once_ends_a_command_once(number):
    """A terminal that is closed sends SIGHUP twice, timeout(1) SIGTERM, and a key that is held down SIGINT."""
    assert sent_twice(number, PATIENCE_S) == (0, "the report is written\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_later_second_signal_ends_a_command_at_once(number):
    assert sent_twice(number, 0.0) == (-number, "")


def test_sigint_while_python_starts_is_one_line_and_status_130(tmp_path):
    interrupting = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
    (tmp_path / "sitecustomize.py").write_text(interrupting)
    done = ended(
        *(sys.executable, "-S", ROOT / "commands/cli/start.py", "list"),
        env={**ENVIRONMENT, "PYTHONPATH": str(tmp_path)},
        # a shell starts a process in the background with SIGINT ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert (done.returncode, done.stderr) == (130, "rdma-cts: interrupted\n")


def test_a_command_in_the_background_blocks_no_signal_for_its_children(tmp_path):
    """The launcher starts Python with SIGINT blocked; a shell starts the launcher with SIGINT ignored."""

    def in_the_background() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])

    shown = "import signal\nprint(signal.pthread_sigmask(signal.SIG_BLOCK, []), flush=True)\n"
    (tmp_path / "sitecustomize.py").write_text(shown)
    done = ended(
        *(sys.executable, "-S", ROOT / "commands/cli/start.py", "--version"),
        env={**ENVIRONMENT, "PYTHONPATH": str(tmp_path)},
        preexec_fn=in_the_background,
    )
    assert done.stdout.startswith("set()\n")


@pytest.mark.parametrize("word", ["--\x1b[2J", "\x1b]0;owned\x07", "\udcff"])
def test_a_command_line_cannot_control_the_terminal(word, cli):
    assert all(line.isprintable() for line in cli(2, "list", word).err.split("\n"))


def test_foreign_text_cannot_control_the_terminal(capsys):
    show(["a\x1b[31mb", "two\nlines\x07"])
    assert capsys.readouterr().out == "a?[31mb\ntwo\nlines?\n"


@pytest.mark.parametrize("name", ["results.jsonl", "plan.json", "lab.json", "mine.txt"])
def test_a_shell_adds_no_console_to_a_directory_with_other_files(name, tmp_path, cli):
    laid(tmp_path, {name: ""})
    said = cli(2, "run", "--guest", "--shell", "--out", tmp_path).err
    assert said.endswith("; give --out a new or an empty directory\n")
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    "error, said",
    [
        (MemoryError(), "there is not enough memory"),
        (OSError(errno.ENOSPC, "No room"), "a file of this command cannot be written: No room"),
        (OSError(errno.EDQUOT, "No room", "/x/y"), "/x/y cannot be written: No room"),
    ],
)
def test_exhausted_memory_and_a_full_disk_are_no_errors_of_the_suite(error, said, monkeypatch, cli):
    def fail(arguments: object) -> int:
        raise error

    monkeypatch.setattr(listing, "execute", fail)
    assert cli(3, "list").err == f"rdma-cts: {said}\n"


def test_an_unexpected_exception_is_one_line_and_a_file_with_its_traceback(monkeypatch, cli):
    def fail(arguments: object) -> int:
        raise RuntimeError("a\nb\x1b")

    monkeypatch.setattr(listing, "execute", fail)
    (line,) = cli(3, "list").err.splitlines()
    assert line.startswith(
        "rdma-cts: this is an error of the suite, or of its environment: RuntimeError: a; see ",
    )
    log = Path(line.rpartition("see ")[2])
    assert "raise RuntimeError" in log.read_text()
    log.unlink()


@pytest.mark.guest
@pytest.mark.parametrize(
    "sink",
    [">/dev/full", *(pytest.param(words, marks=pytest.mark.nightly) for words in WITHOUT)],
)
def test_a_run_continues_without_its_output(sink, tmp_path):
    only = "reg_mr/registration/last-byte"
    done = shell(
        f'"$@" run --guest --yes --only {only} --out out {sink}; exit ${{PIPESTATUS[0]}}',
        tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert footer_of(read_written(tmp_path / "out"))["complete"] is True


def test_runs_without_a_given_directory_get_different_directories(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folders = {run_folders._new_folder("rxe0") for _ in range(5)}
    assert len(folders) == 5
    assert all(path.is_dir() for path in folders)
    (tmp_path / "out").rename(tmp_path / "other")
    (tmp_path / "out").write_text("")
    with user_error("cannot be written", status=2):
        run_folders._new_folder("rxe0")


def test_results_without_their_points_are_no_bundle(tmp_path, cli):
    run = laid(tmp_path / "run", {"results.jsonl": (OLD / "results.jsonl").read_bytes()})
    said = cli(2, "bundle", run).err
    assert said.startswith(f"rdma-cts: {run} lacks points/")
    assert said.endswith("give the whole directory that `run` has written, with its points/\n")


def test_judge_refuses_a_recorded_run_before_it_reads_the_tables(tmp_path, monkeypatch, cli):
    run = laid(tmp_path / "run", {"results.jsonl": FORKY.read_bytes()})
    monkeypatch.setattr("commands.judge.suite_from", lambda _: pytest.fail("tables were read"))
    said = cli(2, "judge", FORKY, "--out", run).err
    assert said == (
        f"rdma-cts: {run}/results.jsonl exists: a run is recorded there; choose another --out\n"
    )


def test_the_last_line_of_judge_names_the_status_after_a_full_disk(tmp_path, monkeypatch, cli):
    def fail(*_: object) -> None:
        raise UserError("report.html cannot be written", status=3)

    monkeypatch.setattr("commands.report.write_beside", fail)
    said = cli(3, "judge", FORKY, "--out", tmp_path / "out")
    assert said.out.endswith(" (exit status 3)\n")
    assert said.err == "rdma-cts: report.html cannot be written\n"
