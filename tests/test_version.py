"""Tests of the text of --version, and that each text about the version is the same."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from commands.__main__ import main
from commands.cli.version import version_text
from conformance.tables.suite import ROOT, VERSION


def git(folder: Path, *words: str) -> str:
    settings = ("-c", "user.name=x", "-c", "user.email=x@y.invalid")
    command = ["git", "-C", str(folder), *settings, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_the_option_prints_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    shown = rf"rdma-cts {re.escape(VERSION)}( \(commit [0-9a-f]+\+?\))?\n"
    assert re.fullmatch(shown, capsys.readouterr().out)


def test_a_checkout_has_its_commit_and_a_mark_of_changes(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    (tmp_path / "file").write_text("1")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "--quiet", "-m", "x")
    commit = git(tmp_path, "rev-parse", "--short=12", "HEAD")
    assert version_text(tmp_path) == f"{VERSION} (commit {commit})"
    (tmp_path / "file").write_text("2")
    assert version_text(tmp_path) == f"{VERSION} (commit {commit}+)"


def test_a_package_has_its_commit_in_a_file(tmp_path: Path) -> None:
    assert version_text(tmp_path) == VERSION
    (tmp_path / "commit").write_text("0123456789ab\n")
    assert version_text(tmp_path) == f"{VERSION} (commit 0123456789ab)"


def test_the_changelogs_have_this_version() -> None:
    for name, begin in (
        ("CHANGELOG.md", f"## {VERSION}, "),
        ("debian/changelog", f"rdma-cts ({VERSION}) "),
        ("ci/packaging/rdma-cts.spec", f"Version:        {VERSION}"),
    ):
        assert re.search(rf"^{re.escape(begin)}", (ROOT / name).read_text(), re.MULTILINE), name
