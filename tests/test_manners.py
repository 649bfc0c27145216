"""Tests of behaviour that users expect: pipes, full devices, signals, mistakes in command lines, unforeseen errors."""

import io
import os
import pwd
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from bad_places import as_another_user
from commands import listing
from commands.__main__ import main, parser_of
from commands.cli import choice, run_arguments
from commands.cli.catalogue import COMMANDS, GROUPS
from commands.cli.streams import show
from commands.run import _kept as kept_text
from commands.variables import VARIABLES
from conformance.errors import UserError
from conformance.results import folder as run_folders
from conformance.results.records import read_written
from conformance.tables.suite import ROOT
from fixtures.guest import privileges
from fixtures.system import cache, processes
from fixtures.targets import target
from kinds import Cli, Patch, Says
from launched import ended, script
from reports.text import fitted
from samples import footer_of, laid, numbered, recorded, result, user_error, written

COMMAND = (sys.executable, "-m", "commands")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
TESTS = Path(__file__).parent
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


@pytest.mark.parametrize("command", ["list", "report run --out -"])
def test_a_full_device_is_reported_in_one_line(command: str, run: Path) -> None:
    done = shell(f'"$@" {command} >/dev/full', run.parent)
    assert (done.returncode, done.stderr) == (
        3,
        "rdma-cts: standard output: No space left on device\n",
    )


WITHOUT = ("| true", ">&-", "<&- >&- 2>&-")


@pytest.mark.parametrize(
    "command",
    ["list | true", "explain REG-0 2>/dev/full", "explain REG-0 >&- 2>&-"],
)
def test_unread_output_does_not_change_the_status(command: str, tmp_path: Path) -> None:
    done = shell(f'"$@" {command}; exit ${{PIPESTATUS[0]}}', tmp_path)
    assert (done.returncode, done.stderr) == (0 if "list" in command else 2, "")


def test_a_terminal_with_only_ascii_does_not_make_a_command_fail() -> None:
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
    ],
)
def test_no_output_replaces_recorded_data(
    out: str,
    run: Path,
    monkeypatch: Patch,
    cli: Cli,
) -> None:
    names = "run/points/1.json run/console.log run/console-2.log run/lab.json night/cell.json"
    laid(run.parent, dict.fromkeys([*names.split(), "night/run.log"], "{}"))
    (run.parent / "link").symlink_to("run/results.jsonl")
    before = (run.parent / out).read_bytes()
    monkeypatch.chdir(run.parent)
    said = f"rdma-cts: {out} is recorded data, which output must not replace; give another file to --out\n"
    assert cli(2, "report", "run", "--format", "summary", "--out", out).err == said
    assert (run.parent / out).read_bytes() == before


@pytest.mark.parametrize(
    "command",
    ["judge", "list --cases", "run --guest --overlay", "patches --out p --linux"],
)
def test_a_path_that_is_too_long_is_refused_in_one_line(command: str, tmp_path: Path) -> None:
    done = shell(f'"$@" {command} {tmp_path}/{"x" * 300}', tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_an_output_in_a_removed_working_directory_is_refused_without_a_traceback(run: Path) -> None:
    (run.parent / "gone").mkdir()
    done = shell(
        f'cd gone; rmdir ../gone; "$@" report {run} --format summary --out s.json',
        run.parent,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_with_closed_streams_no_file_takes_their_place(run: Path) -> None:
    done = shell('"$@" report run --format summary --out summary.json <&- >&- 2>&-', run.parent)
    assert done.returncode == 0
    assert (run.parent / "summary.json").read_text().startswith("{")


def test_a_report_for_the_file_behind_standard_output_is_appended_to_it(run: Path) -> None:
    done = shell(
        '{ echo before; "$@" report run --format summary --out /dev/stdout; echo after; } >all',
        run.parent,
    )
    assert (done.returncode, done.stderr) == (0, "")
    before, *summary, after = (run.parent / "all").read_text().splitlines()
    assert (before, summary[0], after) == ("before", "{", "after")


@pytest.mark.parametrize("mistake", [line for line in MISTAKES.splitlines() if line[0] != "#"])
def test_a_mistake_in_a_command_line_is_reported_in_one_line_with_status_2_or_128(
    mistake: str,
    tmp_path: Path,
    monkeypatch: Patch,
    cli: Cli,
) -> None:
    monkeypatch.chdir(tmp_path)
    command, said = mistake.replace("RECORDED", str(TESTS / "recorded_violations")).split(" => ")
    if command.startswith("bisect-step"):
        status = 128
    else:
        status = 2
    assert cli(status, *shlex.split(command)) == ("", f"rdma-cts: {said}\n")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A temporary directory that every user may enter."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


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


def test_a_locked_directory_is_reported_in_one_line(
    open_folder: Path,
    monkeypatch: Patch,
    cli: Cli,
) -> None:
    locked, work = open_folder / "locked", open_folder / "work"
    (locked / "run").mkdir(parents=True)
    locked.chmod(0)
    work.mkdir()
    work.chmod(0o777)
    monkeypatch.chdir(work)
    monkeypatch.setenv("RDMA_CTS_CACHE", str(work / "cache"))
    for module in (run_arguments, choice):
        monkeypatch.setattr(module, "load_suite", lambda *_: numbered(1))
    for command in COMMANDS:
        # imports the command's module, which another user may be unable to read
        parser_of([command])
    for command in LOCKED.format(locked / "run").strip().splitlines():
        with as_another_user():
            (said,) = cli(2, *command.split()).err.splitlines()
        assert said.startswith(f"rdma-cts: {locked}"), command


# Variables for the suite's parts and its tests, not for users.
INTERNAL = {
    "DRIVER",
    "MODULE",
    "BARE",
    "DEVICES",
    "PROGRAM",
    "FUZZED",
    "MOMENTS",
    "KERNEL_LOG",
    "SYSTEM",
}


def test_every_variable_is_printed_and_on_its_page(cli: Cli) -> None:
    files = ended("git", "ls-files", "-z", cwd=ROOT, check=True).stdout
    parts = ("commands", "conformance", "fixtures", "reports", "rdma-cts")
    paths = [ROOT / name for name in files.split("\0") if name.startswith(parts)]
    read = {
        names
        for path in paths
        if path.is_file()
        for names in re.findall(r"RDMA_CTS_([A-Z_]*[A-Z])\b", path.read_text(errors="replace"))
    }
    names = {name.removeprefix("RDMA_CTS_") for name in VARIABLES if name.startswith("RDMA_CTS_")}
    assert read - INTERNAL == names
    page = (ROOT / "docs" / "variables.md").read_text()
    assert re.findall(r"^\| `(\w+)`", page, re.MULTILINE) == list(VARIABLES)
    assert [
        line.split()[0] for line in cli(0, "list", "variables").out.splitlines() if line[0] != " "
    ] == list(VARIABLES)


FORMER = {
    "completion bash": "list completion bash",
    "coverage": "list coverage",
    "describe": "list verbs",
    "describe ibv_reg_mr": "explain ibv_reg_mr",
    "describe ibv_rereg_mr --dialect experimental": "explain ibv_rereg_mr --dialect experimental",
    "fleet nowhere --out o": "compare --nodes nowhere --out o",
    "schema rules": "list schema rules",
    "site --history nowhere --out s": "report --history nowhere --site s",
    "variables": "list variables",
    "verify nowhere": "judge nowhere",
}


@pytest.mark.parametrize(("former", "today"), FORMER.items())
def test_a_former_spelling_works_and_tells_the_spelling_of_today(
    former: str,
    today: str,
    capsys: Says,
) -> None:
    status = main(today.split())
    expected = capsys.readouterr()
    assert main(former.split()) == status
    output = capsys.readouterr()
    note, _, rest = output.err.partition("\n")
    assert note.startswith(f"rdma-cts: `{former.split()[0]}` is now `{today.split()[0]}")
    assert (output.out, rest) == (expected.out, expected.err)


def test_the_help_text_has_at_most_18_commands_in_groups(capsys: Says) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    shown = re.findall(r"^(?:  ([a-z][a-z-]+) |([a-z ]+):$)", text, re.MULTILINE)
    names = [name for name, _ in shown if name]
    titles = [title for _, title in shown if title]
    assert sorted(names) == sorted(COMMANDS)
    assert len(names) <= 18
    assert titles == [*GROUPS, "options"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_80_columns_and_breaks_no_word(
    command: str,
    monkeypatch: Patch,
    capsys: Says,
) -> None:
    said = []
    for columns in ("80", "1000"):
        monkeypatch.setenv("COLUMNS", columns)
        with pytest.raises(SystemExit):
            main([command, "--help"])
        said.append(capsys.readouterr().out)
    assert max(map(len, said[0].splitlines())) <= 80
    assert said[0].split() == said[1].split()


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("  FAIL a/b: 1234567890 123456", "  FAIL a/b: 1234567890\n    123456"),
        (
            "again: ./rdma-cts run --failed out/x runs it",
            "again: ./rdma-cts run --failed out/x runs it",
        ),
        ("a-very-long-word-in-one-piece", "a-very-long-word-in-one-piece"),
    ],
)
def test_a_terminal_line_is_broken_between_words_and_not_in_a_command(
    line: str,
    shown: str,
    monkeypatch: Patch,
) -> None:
    monkeypatch.setenv("COLUMNS", "24")
    master, slave = os.openpty()
    with open(master, "rb"), open(slave, "w") as terminal:
        assert fitted(line, terminal) == shown
    assert fitted(line, io.StringIO()) == line


@pytest.mark.parametrize("value", ["\n", "a\nb", "\x1b[2J"])
def test_variables_of_the_guest_are_printable_lines(
    value: str,
    tmp_path: Path,
    monkeypatch: Patch,
    cli: Cli,
) -> None:
    monkeypatch.chdir(tmp_path)
    said = cli(2, "run", "--guest", "--guest-env", f"COLOUR={value}", "--out", "out/x").err
    assert said.endswith("a value is one line of printable characters\n")
    assert list(tmp_path.iterdir()) == []


def test_list_prints_how_many_of_its_cases_are_in_a_run(cli: Cli) -> None:
    *cases, last = cli(0, "list").out.splitlines()
    *default, short = cli(0, "list", "--tier", "default").out.splitlines()
    assert (
        last
        == f"{len(cases)} cases; a run without --tier has {len(default)} of them (tier default)"
    )
    assert short == f"{len(default)} cases"
    assert len(default) < len(cases)


RACER = """
import os, pathlib, sys
place, victim = map(pathlib.Path, sys.argv[1:])
print(flush=True)
while True:
    place.symlink_to(victim)
    place.unlink()
    place.mkdir(0o777)
    place.chmod(0o777)
    place.rmdir()
    place.touch()
    place.unlink()
"""


def test_a_race_for_the_temporary_cache_is_lost_in_one_line(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    """A second process makes and removes what has the name of the directory. Nothing but a refusal is an error."""
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    place = tmp_path / f"rdma-cts-{os.geteuid()}"
    command = [sys.executable, "-c", RACER, str(place), str(laid(tmp_path / "victim", {}))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as racer:
        assert racer.stdout is not None
        racer.stdout.readline()
        for _ in range(5000):
            with suppress(UserError):
                assert cache._temporary() == place
                break
        racer.kill()
    assert not list((tmp_path / "victim").iterdir())


def test_the_temporary_cache_of_another_user_that_is_gone_is_refused(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))

    def lost(*_: object) -> None:
        raise FileExistsError

    monkeypatch.setattr(Path, "mkdir", lost)
    with user_error("is not a private directory of this user", status=3):
        cache._temporary()


def test_a_run_without_proc_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: Patch, cli: Cli
) -> None:
    monkeypatch.setattr(target, "_PROCESSES", tmp_path / "self")
    (line,) = cli(3, "run", "--guest", "--out", tmp_path / "out").err.splitlines()
    assert line == "rdma-cts: a run needs /proc, which is not mounted; mount -t proc proc /proc"
    assert not (tmp_path / "out").exists()


def test_a_run_directory_with_output_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "out" / "run"
    with run_folders.run_folder(out, "rxe0"):
        out.mkdir(parents=True)
        (out / "console.log").write_text("the guest has died")
        (out / "console-2.log").touch()
    assert [path.name for path in out.iterdir()] == ["console.log"]


@pytest.mark.parametrize(
    ("programs", "refused", "said", "reason", "remedy"),
    [
        (
            "unshare",
            "nothing",
            "",
            "a user namespace needs the program newuidmap (Debian package uidmap)",
            "sudo apt-get install --no-install-recommends uidmap",
        ),
        (
            "unshare",
            "true",
            "unshare: no such right",
            "this kernel or its configuration refuses the user namespace (unshare: no such right)",
            "permit user namespaces, or use root for the guest: sudo -E ./rdma-cts run --guest",
        ),
        (
            "unshare newuidmap",
            "--map-auto",
            "no line matching someone in /etc/subuid",
            "this user has no subordinate ids (no line matching someone in /etc/subuid)",
            "sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER",
        ),
    ],
)
def test_the_reason_why_a_user_cannot_build_an_image_is_reported(
    programs: str,
    refused: str,
    said: str,
    reason: str,
    remedy: str,
    tmp_path: Path,
    monkeypatch: Patch,
) -> None:
    """A process that unshare leaves behind holds its output, and does not delay the answer."""
    stand_in = f'/bin/sleep 36000 &\n[ "$3" != {refused} ] || {{ echo {said} >&2 && exit 1; }}'
    for name in ("apt-get", *programs.split()):
        script(tmp_path / name, stand_in)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(processes, "_SYSTEM_PROGRAMS", ())
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(privileges, "forbidden_by", list)
    assert privileges.obstacle() == privileges.Obstacle(reason, remedy)


def test_the_setting_that_forbids_user_namespaces_is_named(tmp_path: Path) -> None:
    restriction = "kernel/apparmor_restrict_unprivileged_userns"
    laid(tmp_path, {"user/max_user_namespaces": "31000\n", restriction: "1\n"})
    assert privileges.forbidden_by(tmp_path) == [
        "kernel.apparmor_restrict_unprivileged_userns is 1",
    ]
    assert privileges.forbidden_by(tmp_path / "none") == []


def test_an_interrupted_run_names_its_results_and_has_reports(run: Path) -> None:
    assert (
        kept_text(run, 0, 7)
        == f"no case has a result yet; ./rdma-cts run --resume {run} starts the run again"
    )
    said = kept_text(run, 60, 70)
    rest = f"./rdma-cts run --resume {run} runs the remaining cases"
    assert said == f"60 of 70 results and their report are in {run}; {rest}"
    assert {"report.html", "junit.xml", "summary.json"} < {path.name for path in run.iterdir()}


ENDED = """
import os, signal, sys
from commands import __main__ as program
# The suite leaves a signal ignored that was ignored when it started, such as SIGHUP under nohup.
signal.signal({number}, signal.SIG_DFL)
os.fsync = lambda descriptor: os.kill(os.getpid(), {number})
program.heed_signals()
sys.exit(program.main(["report", "run", "--out", "page.html"]))
"""


def test_a_signal_while_a_report_is_written_leaves_no_part_of_it(run: Path) -> None:
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


CLOSED = """
import os, signal
from commands.cli import endings
signal.signal(signal.SIGHUP, signal.SIG_DFL)
endings.heed_signals()
try:
    os.kill(os.getpid(), signal.SIGHUP)
except KeyboardInterrupt:
    os.kill(os.getpid(), signal.SIGHUP)
    print("the report is written")
"""


def test_a_terminal_that_is_closed_sends_sighup_twice_and_ends_a_command_once() -> None:
    done = ended(sys.executable, "-c", CLOSED, cwd=ROOT, check=True)
    assert done.stdout == "the report is written\n"


@pytest.mark.parametrize("word", ["--\x1b[2J", "\x1b]0;owned\x07", "\udcff"])
def test_a_command_line_cannot_control_the_terminal(word: str, cli: Cli) -> None:
    assert all(line.isprintable() for line in cli(2, "list", word).err.split("\n"))


def test_foreign_text_cannot_control_the_terminal(capsys: Says) -> None:
    show(["a\x1b[31mb", "two\nlines\x07"])
    assert capsys.readouterr().out == "a?[31mb\ntwo\nlines?\n"


def test_an_unexpected_exception_is_one_line_and_a_file_with_its_traceback(
    monkeypatch: Patch,
    cli: Cli,
) -> None:
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


def test_a_user_without_a_home_directory_has_a_private_cache(
    tmp_path: Path,
    monkeypatch: Patch,
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("RDMA_CTS_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setenv("HOME", "")
    user = pwd.getpwuid(os.geteuid())
    assert cache.cache_directory() == Path(user.pw_dir) / ".cache" / "rdma-cts"
    monkeypatch.setenv("HOME", "/home/someone")
    place = cache.cache_directory()
    assert place.parent == tmp_path
    assert place.stat().st_mode & 0o777 == 0o700
    place.rmdir()
    place.symlink_to("/etc")
    with pytest.raises(UserError, match="set RDMA_CTS_CACHE"):
        cache.cache_directory()


@pytest.mark.guest
@pytest.mark.parametrize(
    "sink",
    [">/dev/full", *(pytest.param(words, marks=pytest.mark.nightly) for words in WITHOUT)],
)
def test_a_run_continues_without_its_output(sink: str, tmp_path: Path) -> None:
    only = "reg_mr/registration/last-byte"
    done = shell(
        f'"$@" run --guest --yes --only {only} --out out {sink}; exit ${{PIPESTATUS[0]}}',
        tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert footer_of(read_written(tmp_path / "out"))["complete"] is True


def test_runs_without_a_given_directory_get_different_directories(
    tmp_path: Path,
    monkeypatch: Patch,
) -> None:
    monkeypatch.chdir(tmp_path)
    folders = {run_folders._new_folder("rxe0") for _ in range(5)}
    assert len(folders) == 5
    assert all(path.is_dir() for path in folders)
    (tmp_path / "out").rename(tmp_path / "other")
    (tmp_path / "out").write_text("")
    with user_error("cannot be written", status=2):
        run_folders._new_folder("rxe0")
