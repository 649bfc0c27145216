"""Tests of the text of --version, and that each text about the version is the same."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from commands.__main__ import main
from commands.cli.version import version_text
from conformance.tables.suite import ROOT, VERSION


def git(folder: Path, *words: str) -> str:
    settings = ("-c", "user.name=x", "-c", "user.email=x@y.invalid")
    command = ["git", "-C", str(folder), *settings, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_the_option_prints_the_version(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    shown = rf"rdma-cts {re.escape(VERSION)}( \(commit [0-9a-f]+\+?\))?\n"
    assert re.fullmatch(shown, capsys.readouterr().out)


def test_a_checkout_has_its_commit_and_a_mark_of_changes(tmp_path):
    git(tmp_path, "init", "--quiet")
    (tmp_path / "file").write_text("1")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "--quiet", "-m", "x")
    commit = git(tmp_path, "rev-parse", "--short=12", "HEAD")
    assert version_text(tmp_path) == f"{VERSION} (commit {commit})"
    (tmp_path / "file").write_text("2")
    assert version_text(tmp_path) == f"{VERSION} (commit {commit}+)"


def test_a_package_has_its_commit_in_a_file(tmp_path):
    assert version_text(tmp_path) == VERSION
    (tmp_path / "commit").write_text("0123456789ab\n")
    assert version_text(tmp_path) == f"{VERSION} (commit 0123456789ab)"


def test_the_changelogs_have_this_version():
    for name, begin in (
        ("CHANGELOG.md", f"## {VERSION}, "),
        ("debian/changelog", f"rdma-cts ({VERSION}) "),
        ("ci/packaging/rdma-cts.spec", f"Version:        {VERSION}"),
    ):
        assert re.search(rf"^{re.escape(begin)}", (ROOT / name).read_text(), re.MULTILINE), name


FILES = ("CHANGELOG.md", "ci/packaging/rdma-cts.spec", "ci/release.sh", "debian/changelog")


def test_a_release_gives_its_version_to_what_is_unreleased(tmp_path):
    for name in (*FILES, "conformance/tables/suite.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "conformance/tables/suite.py").write_text('VERSION = "1.0.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changes\n\n## Unreleased\n\n- news\n\n## 1.0.0, 2026-11-28\n"
    )
    command = ["sh", str(tmp_path / "ci/release.sh"), "--cut"]
    environment = {**os.environ, "RDMA_CTS_PYTHON": sys.executable}
    ends = []
    for version in ("1.2.3", "1.2.3", "1.2.4", "1.2"):
        done = subprocess.run([*command, version], env=environment, capture_output=True, text=True)
        ends.append((done.returncode, done.stderr))
    assert ends == [
        (0, ""),
        (2, "ci/release.sh: CHANGELOG.md has 1.2.3 already\n"),
        (2, "ci/release.sh: nothing is unreleased in CHANGELOG.md\n"),
        (2, "ci/release.sh: '1.2' is not a version of three numbers\n"),
    ]
    changes = (tmp_path / "CHANGELOG.md").read_text()
    assert re.fullmatch(
        r"# Changes\n\n## Unreleased\n\n## 1\.2\.3, [\d-]{10}\n\n- news\n\n## 1\.0\.0, 2026-11-28\n",
        changes,
    )
    assert (tmp_path / "conformance/tables/suite.py").read_text() == 'VERSION = "1.2.3"\n'
    assert (tmp_path / "debian/changelog").read_text().startswith("rdma-cts (1.2.3) unstable;")
    spec = (tmp_path / "ci/packaging/rdma-cts.spec").read_text()
    assert "Version:        1.2.3\n" in spec
    assert re.search(
        r"^%changelog\n\* \w{3} \w{3} \d\d \d{4} .* - 1\.2\.3-1\n- .*\n\n\* ", spec, re.MULTILINE
    )
