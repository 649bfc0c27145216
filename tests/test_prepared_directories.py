"""Tests that no command writes through what another user has prepared in a directory: a link, a hard link, a FIFO, a
device or a directory that is exchanged while the command runs."""

import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conformance.errors import UserError
from conformance.regular_file import (
    open_folder,
    write_special,
    write_whole,
)
from conformance.results.files import make_directory, write_atomically
from conformance.results.writer import ResultsFile
from conformance.tables.suite import ROOT
from fixtures.system import console
from samples import header

OLD = Path(__file__).with_name("old_results")
VICTIM = "export PATH\n"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of the user outside of every directory that a command is given."""
    path = tmp_path / "home" / ".bashrc"
    path.parent.mkdir()
    path.write_text(VICTIM)
    return path


def assert_untouched(victim: Path) -> None:
    assert [path.name for path in victim.parent.iterdir()] == [victim.name]
    assert victim.read_text() == VICTIM
    assert not victim.is_symlink()


# How another user can prepare the name of a file. Each function is given the name and a file of the user.
PREPARED: dict[str, Callable[[Path, Path], None]] = {
    "a link": lambda name, victim: name.symlink_to(victim),
    "a dangling link": lambda name, victim: name.symlink_to(victim.with_name("authorized_keys")),
    "a relative link": lambda name, victim: name.symlink_to(os.path.relpath(victim, name.parent)),
    "a link to itself": lambda name, victim: name.symlink_to(name.name),
    "a hard link": lambda name, victim: os.link(victim, name),
    "a FIFO": lambda name, victim: os.mkfifo(name),
}


@pytest.fixture(params=PREPARED)
def prepare(request: pytest.FixtureRequest, victim: Path) -> Callable[[Path], None]:
    """Prepares a name in one of the ways of PREPARED; at the end, checks that the user's file is untouched."""
    return lambda name: PREPARED[request.param](name, victim)


def run_of_somebody(folder: Path) -> Path:
    return Path(shutil.copytree(OLD, folder))


def test_a_report_replaces_what_has_its_name(tmp_path, victim, prepare, cli):
    run = run_of_somebody(tmp_path / "run")
    prepare(run / "report.html")
    cli(0, "report", run)
    assert "<html" in (run / "report.html").read_text()
    assert_untouched(victim)


def test_a_page_of_a_history_replaces_what_has_its_name(tmp_path, victim, prepare, cli):
    history = tmp_path / "history"
    (history / "20261122T031700Z").mkdir(parents=True)
    prepare(history / "history.html")
    cli(3, "report", "--history", history)  # no night has results
    assert "<html" in (history / "history.html").read_text()
    assert_untouched(victim)


@pytest.mark.parametrize("form", ["markdown", "mail"])
def test_findings_replace_what_has_their_names(tmp_path, victim, form, cli):
    out, names = tmp_path / "out", {}
    command = ["findings", OLD, "--programs", "--format", form, "--out"]
    cli(0, *command, tmp_path / "first")
    for path in sorted((tmp_path / "first").rglob("*")):
        name = out / path.relative_to(tmp_path / "first")
        if path.is_dir():
            name.mkdir(parents=True)
        else:
            name.parent.mkdir(exist_ok=True)
            name.symlink_to(victim)
            names[name] = path.read_bytes()
    assert names
    cli(0, *command, out)
    assert {name: name.read_bytes() for name in names} == names
    assert_untouched(victim)


def test_findings_are_not_written_through_a_link_to_a_directory(tmp_path, victim, cli):
    for form in ("markdown", "mail"):
        out = tmp_path / form
        out.mkdir()
        (out / "findings").symlink_to(victim.parent)
        said = cli(2, "findings", OLD, "--programs", "--format", form, "--out", out).err
        assert said.count("\n") == 1
        assert "its directory findings is a symbolic link" in said
    assert_untouched(victim)


def test_reproducers_replace_what_has_their_names(tmp_path, victim, cli):
    run = run_of_somebody(tmp_path / "run")
    cli(0, "reproducer", "--all", "--run", run)
    names = list((run / "reproducers").iterdir())
    for name in names:
        name.unlink()
        name.symlink_to(victim)
    cli(0, "reproducer", "--all", "--run", run)
    assert names
    assert not any(name.is_symlink() for name in names)
    assert_untouched(victim)


@pytest.mark.parametrize(
    "command",
    [
        ["report", OLD, "--out"],
        ["report", OLD, "--format", "junit", "--out"],
        ["reproducer", "reg_mr/access_flags/local-write-alone", "--run", OLD, "--out"],
    ],
    ids=lambda command: " ".join(map(str, command[:1] + command[2:-1])),
)
def test_a_named_file_that_is_a_link_is_refused(tmp_path, victim, command, cli):
    (tmp_path / "out").symlink_to(victim)
    said = cli(2, *command, tmp_path / "out").err
    assert said.count("\n") == 1
    assert "cannot be written: it is a symbolic link" in said
    assert_untouched(victim)


def test_a_program_in_the_working_directory_is_not_written_through_a_link(
    tmp_path, victim, cli, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "repro.c").symlink_to(victim.with_name("authorized_keys"))
    cli(2, "reproducer", "reg_mr/access_flags/local-write-alone", "--run", OLD)
    assert_untouched(victim)


# A run's own directory


def test_a_run_is_not_written_into_a_directory_that_others_can_write(tmp_path, cli):
    out = tmp_path / "shared"
    out.mkdir()
    out.chmod(0o777)
    for command in (["judge", OLD], ["run", "--guest"]):
        said = cli(2, *command, "--out", out).err
        assert said.count("\n") == 1
        assert f"{out} belongs to another user, or other users can write it" in said
    assert list(out.iterdir()) == []
    ResultsFile(out / "new" / "results.jsonl").close()
    assert stat.S_IMODE((out / "new").stat().st_mode) == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_run_is_not_written_into_a_directory_of_another_user(tmp_path):
    os.chown(tmp_path, 65534, 65534)
    with pytest.raises(UserError, match="belongs to another user"):
        ResultsFile(tmp_path / "results.jsonl")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
@pytest.mark.parametrize("name", ["plan.json", "."])
def test_a_plan_of_another_user_is_not_resumed(tmp_path, name, cli):
    (tmp_path / "plan.json").write_text("{}")
    os.chown(tmp_path / name, 65534, 65534)
    said = cli(2, "run", "--resume", tmp_path).err
    assert said == (
        f"rdma-cts: {tmp_path / name} belongs to another user; "
        "only the user who started the run can resume it\n"
    )


@pytest.mark.parametrize("name", ["plan.json", "."])
def test_a_plan_that_others_can_write_is_not_resumed(tmp_path, name, cli):
    touched = tmp_path / "touched"
    arguments = ["--host", "root@nowhere.invalid", "--device", "x", "--console", f"touch {touched}"]
    plan = {
        "schema": "rdma-cts-plan/1",
        "argv": arguments,
        "directory": str(tmp_path),
        "planned": [],
        "tables_sha256": "",
        "stack": "",
        "given": {},
    }
    run = tmp_path / "run"
    run.mkdir()
    (run / "plan.json").write_text(json.dumps(plan))
    (run / name).chmod(0o777)
    said = cli(2, "run", "--resume", run).err
    assert said == (
        f"rdma-cts: {run / name} can be written by other users; "
        f"let only you write it: chmod go-w {run / name}\n"
    )
    assert not touched.exists()


# The functions that write


def test_a_console_replaces_what_has_its_name(tmp_path, victim, prepare):
    prepare(tmp_path / "console.log")
    console.renew(tmp_path / "console.log", b"booting\n")
    assert (tmp_path / "console.log").read_bytes() == b"booting\n"
    assert_untouched(victim)


def test_the_points_of_sweeps_are_not_written_through_a_link(tmp_path, victim):
    run = tmp_path / "run"
    run.mkdir()
    (run / "points").symlink_to(victim.parent)
    with pytest.raises(UserError, match="its directory points is a symbolic link"):
        write_atomically(run / "points" / "x.json", b"", within=run)
    with pytest.raises(UserError, match="its directory points is a symbolic link"):
        make_directory(run / "points", within=run)
    assert_untouched(victim)


def test_a_name_outside_of_its_directory_is_refused(tmp_path, victim):
    run = tmp_path / "run"
    run.mkdir()
    with pytest.raises(UserError, match="outside of its directory"):
        write_atomically(run / ".." / "home" / ".bashrc", b"", within=run)
    assert_untouched(victim)


def test_a_directory_that_is_exchanged_during_a_write_has_no_effect(tmp_path, victim, monkeypatch):
    """Another user renames the directory, and makes a link in its place, after the suite has opened the directory."""
    run, opened = tmp_path / "run", os.open

    def exchanging(path: str, flags: int, *mode: int, **where: int) -> int:
        if str(path).endswith(".partial"):
            (run / "points").rename(run / "moved")
            (run / "points").symlink_to(victim.parent)
        return opened(path, flags, *mode, **where)

    (run / "points").mkdir(parents=True)
    monkeypatch.setattr(os, "open", exchanging)
    write_whole(run / "points" / ".bashrc", b"x", within=run)
    assert (run / "moved" / ".bashrc").read_bytes() == b"x"
    assert_untouched(victim)


def test_a_special_file_that_is_exchanged_before_it_is_opened_is_refused(
    tmp_path, victim, monkeypatch
):
    opened = os.open
    os.mkfifo(tmp_path / "out")

    def exchanging(path: Path, flags: int, *mode: int) -> int:
        path.unlink()
        os.link(victim, path)
        return opened(path, flags, *mode)

    monkeypatch.setattr(os, "open", exchanging)
    with pytest.raises(OSError, match="it was replaced while it was opened"):
        write_special(tmp_path / "out", b"x")
    assert victim.read_text() == VICTIM


def test_a_file_in_place_of_a_directory_is_refused(tmp_path):
    (tmp_path / "points").write_text("")

    def entered() -> Iterator[int]:
        with open_folder(tmp_path, ["points"]) as folder:
            yield folder

    with pytest.raises(NotADirectoryError):
        list(entered())


def test_a_header_is_written_into_a_new_directory(tmp_path):
    """The checks of the directory do not refuse what a run makes itself."""
    file = ResultsFile(tmp_path / "a" / "b" / "results.jsonl")
    file.append(header())
    file.close()
    assert (tmp_path / "a" / "b" / "results.jsonl").stat().st_size


# Functions that write into a directory of a path, and where they are permitted: into the cache, which only this user and
# root can write, and into new directories whose names nobody can know before.
WRITES = re.compile(
    r"\.write_(?:text|bytes)\(|\.unlink\(|\brmtree\(|\bos\.(?:truncate|rename|remove)\("
    r"|\bopen\([^)]*\"[rwax]b?\+?\"?[^)]*\"[wax]|\.open\(\"(?:[wax]|r\+)"
)
PERMITTED = re.compile(
    "conformance/(regular_file|cache|header/program|device/.*|kernel/module_memory)[.]py"
    "|fixtures/guest/.*[.]py|fixtures/hosts/agent[.]py|fixtures/system/host[.]py"
    "|reports/(bundles/(archive|signature)|patches/series)[.]py|conformance/pytest_plugin/.*[.]py"
    "|fixtures/targets/guests[.]py|conformance/verbs/.*|trial/(?!report).*"
    "|commands/cli/start[.]py"
)


def test_output_is_written_in_one_place():
    sources = [
        path
        for folder in ("commands", "conformance", "fixtures", "reports", "trial")
        for path in (ROOT / folder).rglob("*.py")
    ]
    assert sources
    found = []
    for path in sources:
        name = path.relative_to(ROOT).as_posix()
        if not PERMITTED.fullmatch(name) and WRITES.search(path.read_text()):
            found.append(name)
    assert not found
