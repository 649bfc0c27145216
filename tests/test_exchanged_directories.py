"""Tests of directories that another user exchanges while a command runs, and of links on the way to them."""

import os
import shutil
from pathlib import Path

import pytest

from commands.cli.endings import crash_reports_in
from conformance.errors import UserError
from conformance.regular_file import (
    holding_folders,
    open_folder,
    remove_below,
    write_whole,
)
from conformance.results.files import make_directory
from fixtures.system import console
from samples import user_error
from test_prepared_directories import OLD, assert_untouched, victim

__all__ = ["victim"]  # a fixture


def exchanged(folder: Path, victim: Path) -> None:
    """Another user renames the directory, and makes a link to a directory of the user in its place."""
    folder.rename(folder.with_name("moved"))
    folder.symlink_to(victim.parent)


EXCHANGES = {
    "compare --nodes": ["compare", "--nodes", OLD, "--out"],
    "findings": ["findings", OLD, "--programs", "--out"],
    "findings --format mail": ["findings", OLD, "--format", "mail", "--out"],
    "reproducer --all": ["reproducer", "--all", "--run", OLD, "--out"],
    "judge": ["judge", OLD, "--out"],
}


@pytest.mark.parametrize("name", EXCHANGES)
def test_a_command_does_not_write_into_an_exchanged_directory(
    tmp_path, victim, name, cli, monkeypatch
):
    """The directory is exchanged after the command has written its first file."""
    out, replaced = tmp_path / "out", os.replace

    def exchanging(source: str, target: str, **where: int) -> None:
        replaced(source, target, **where)
        if out.is_dir() and not out.is_symlink():
            exchanged(out, victim)

    monkeypatch.setattr(os, "replace", exchanging)
    said = cli(3, *EXCHANGES[name], out).err
    assert said.count("\n") == 1
    assert "was exchanged while this command wrote into it" in said
    assert_untouched(victim)


def test_files_are_removed_only_in_the_directory_that_was_written(tmp_path, victim):
    out = tmp_path / "out"
    with holding_folders():
        write_whole(out / victim.name, b"x")
        exchanged(out, victim)
        with pytest.raises(OSError, match="was exchanged"):
            remove_below(out, victim.name)
        with pytest.raises(OSError, match="was exchanged"):
            console.appending(out / victim.name)
    assert_untouched(victim)


def test_the_removed_directory_of_a_run_is_named_and_not_made_again(tmp_path):
    out = tmp_path / "out"
    write_whole(out / "results.jsonl", b"x")
    said = f"{out} was removed while the run was in progress"
    with user_error(said, status=3), crash_reports_in(out):
        shutil.rmtree(out)
        write_whole(out / "report.html", b"x")
    assert not out.exists()


def test_a_removed_directory_can_be_made_again(tmp_path):
    with holding_folders():
        for content in (b"x", b"y"):
            write_whole(tmp_path / "out" / "file", content)
            assert (tmp_path / "out" / "file").read_bytes() == content
            remove_below(tmp_path, "out")
        before = len(os.listdir("/proc/self/fd"))
        for number in range(20):
            write_whole(tmp_path / str(number) / "file", b"x")
            remove_below(tmp_path, str(number))
        assert len(os.listdir("/proc/self/fd")) <= before + 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link to another user")
@pytest.mark.parametrize("below", ["", "below/further"])
def test_a_link_of_another_user_is_not_followed(tmp_path, victim, below):
    (tmp_path / "link").symlink_to(victim.parent)
    write_whole(tmp_path / "link" / "own" / "file", b"x")
    remove_below(victim.parent, "own")
    os.lchown(tmp_path / "link", 65534, 65534)
    with pytest.raises(UserError, match="link is a symbolic link of another user") as refused:
        make_directory(tmp_path / "link" / below)
    assert refused.value.status == 2
    with pytest.raises(OSError, match="symbolic link of another user"):
        write_whole(tmp_path / "link" / below / "file", b"x")
    assert_untouched(victim)


@pytest.mark.parametrize("target", ["link", "../out/link", "/", ".."])
def test_links_of_the_user_lead_where_the_kernel_leads(tmp_path, target):
    out = tmp_path / "out"
    out.mkdir()
    (out / "link").symlink_to(target)
    try:
        there = os.stat(out / "link")
    except OSError as error:
        with pytest.raises(OSError, match=error.strerror), open_folder(out / "link"):
            pass
        return
    with open_folder(out / "link" / "." / "..", ["link"][:0]) as folder:
        assert os.path.samestat(os.fstat(folder), os.stat(out / "link" / ".."))
    with open_folder(out / "link") as folder:
        assert os.path.samestat(os.fstat(folder), there)
