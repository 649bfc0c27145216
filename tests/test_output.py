"""If the output of a command is lost, or an unforeseen error occurs, the command prints one line, and its status is
never the status of a violation."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from commands import listing
from commands.cli.streams import show
from conformance.errors import UserError
from conformance.results.records import read_results
from conformance.tables.suite import ROOT
from fixtures.system import cache
from kinds import Cli, Patch, Says
from launched import ended
from runs import folder as run_folder
from samples import footer_of, user_error

ENVIRONMENT = {**os.environ, "RDMA_CTS_PYTHON": sys.executable}
WITHOUT = ("| true", ">&-", "<&- >&- 2>&-")
ONE_CASE = "run --guest --yes --only reg_mr/registration/last-byte"


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a shell command line in the project's directory; the status is the status of the first program of a
    pipeline."""
    return ended("bash", "-c", f"{line}; exit ${{PIPESTATUS[0]}}", cwd=ROOT, env={**ENVIRONMENT, **environment})


@pytest.mark.parametrize("sink", ["| true", "<&- >&- 2>&-"])
def test_unread_output_does_not_change_the_status(sink: str) -> None:
    done = shell(f"./rdma-cts list {sink}")
    assert done.returncode == 0
    assert done.stderr == ""


@pytest.mark.parametrize("sink", ["2>/dev/full", ">&- 2>&-"])
def test_unread_messages_do_not_change_the_status(sink: str) -> None:
    assert shell(f"./rdma-cts explain REG-0 {sink}").returncode == 2


def test_a_terminal_that_knows_only_ascii_gets_every_line() -> None:
    assert shell("./rdma-cts explain REG-15 --run tests/old_results", PYTHONIOENCODING="ascii").returncode == 0


@pytest.mark.parametrize("word", ["--\x1b[2J", "\x1b]0;owned\x07", "\udcff"])
def test_what_was_typed_cannot_control_the_terminal(word: str, cli: Cli) -> None:
    assert all(line.isprintable() for line in cli(2, "list", word).err.split("\n"))


def test_foreign_text_cannot_control_the_terminal(capsys: Says) -> None:
    show(["a\x1b[31mb", "two\nlines\x07"])
    assert capsys.readouterr().out == "a?[31mb\ntwo\nlines?\n"


def test_an_unforeseen_exception_is_one_line_and_a_file_with_its_traceback(monkeypatch: Patch, cli: Cli) -> None:
    def fail(arguments: object) -> int:
        raise RuntimeError("a\nb\x1b")

    monkeypatch.setattr(listing, "execute", fail)
    (line,) = cli(3, "list").err.splitlines()
    assert line.startswith("rdma-cts: this is a defect of the suite, or of its environment: RuntimeError: a; see ")
    log = Path(line.rpartition("see ")[2])
    assert "raise RuntimeError" in log.read_text()
    log.unlink()


def test_a_user_without_home_and_entry_has_a_cache_of_its_own(tmp_path: Path, monkeypatch: Patch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("RDMA_CTS_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    place = cache.cache_directory()
    assert place.parent == tmp_path
    assert place.stat().st_mode & 0o777 == 0o700
    place.rmdir()
    place.symlink_to("/etc")
    with pytest.raises(UserError, match="set RDMA_CTS_CACHE"):
        cache.cache_directory()


@pytest.mark.guest
@pytest.mark.parametrize("sink", [">/dev/full", *(pytest.param(each, marks=pytest.mark.nightly) for each in WITHOUT)])
def test_a_run_goes_on_without_its_output(sink: str, tmp_path: Path) -> None:
    done = shell(f"./rdma-cts {ONE_CASE} --out {tmp_path}/out {sink}")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    footer = footer_of(read_results(tmp_path / "out"))
    assert footer["complete"] is True


def test_runs_without_a_directory_of_their_own_get_different_ones(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    found = {run_folder._new_folder("rxe0") for _ in range(5)}
    assert len(found) == 5
    assert all(path.is_dir() for path in found)
    (tmp_path / "out").rename(tmp_path / "other")
    (tmp_path / "out").write_text("")
    with user_error("cannot be written", status=2):
        run_folder._new_folder("rxe0")
