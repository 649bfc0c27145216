"""Tests that the packages can be built, have the right contents, and work in a clean Debian system."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from commands.cli.catalogue import COMMANDS
from conformance.results.records import read_written
from conformance.tables.suite import ROOT, VERSION
from fixtures.guest.build import System
from fixtures.guest.image import ensure_image
from fixtures.guest.kept import locked
from fixtures.guest.recipe import recipe_for
from fixtures.system import packages
from fixtures.system.architecture import AMD64, ARCHITECTURES
from fixtures.system.cache import cache_directory
from kinds import Folders
from launched import ended

NAME = f"rdma-cts-{VERSION}"
SUITE = "usr/share/rdma-cts"
CASE = "reg_mr/access_flags/remote-write-without-local-write+none"
# Names in a checkout that are not source: the data of git, and what tools have written.
_NOT_SOURCE = shutil.ignore_patterns(
    ".git",
    "out",
    "__pycache__",
    ".*_cache",
    ".hypothesis",
    ".tox",
    ".venv",
)


def run(*command: str, cwd: Path | None = None) -> str:
    """Runs a command, which must succeed; returns its output."""
    environment = {name: value for name, value in os.environ.items() if name != "MAKEFLAGS"}
    streams = {"capture_output": False, "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
    done = ended(*command, cwd=cwd, env=environment, stderr=subprocess.STDOUT, **streams)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: Folders) -> Path:
    """A copy of the project, as in an unpacked source archive."""
    folder = tmp_path_factory.mktemp("source") / NAME
    shutil.copytree(ROOT, folder, ignore=_NOT_SOURCE, symlinks=True)
    return folder


@dataclass(frozen=True)
class Packages:
    """The files of the package of the suite and of the package of its trial."""

    suite: Path
    trial: Path


@pytest.fixture(scope="module")
def deb(source: Path) -> Packages:
    run("dpkg-buildpackage", "--build=binary", "--no-sign", cwd=source)
    names = (f"{name}_{VERSION}_all.deb" for name in ("rdma-cts", "rdma-cts-trial"))
    return Packages(*(source.parent / name for name in names))


@pytest.fixture(scope="module")
def rpm(source: Path, tmp_path_factory: Folders) -> Packages:
    """Builds the RPMs on this host, without a check of its build dependencies: here the packages have other names."""
    top = tmp_path_factory.mktemp("rpmbuild")
    (top / "SOURCES").mkdir()
    run("tar", "-C", str(source.parent), "-czf", str(top / "SOURCES" / f"{NAME}.tar.gz"), NAME)
    run(
        "rpmbuild",
        "-bb",
        "--nodeps",
        "--define",
        f"_topdir {top}",
        str(source / "ci/packaging/rdma-cts.spec"),
    )
    built = top / "RPMS" / "noarch"
    (suite,) = built.glob(f"rdma-cts-{VERSION}-*.rpm")
    (trial,) = built.glob("rdma-cts-trial-*.rpm")
    return Packages(suite, trial)


def suite_files(names: Iterable[str]) -> set[str]:
    """Returns the files of the suite in a package, without directories and bytecode."""
    paths = {name.lstrip("./") for name in names if not name.endswith("/")}
    return {name for name in paths if name.startswith(SUITE) and "__pycache__" not in name}


# The texts of the packages


def stanza(text: str, field: str) -> set[str]:
    """Returns the names of the packages in a field of debian/control."""
    (value,) = re.findall(rf"^{field}:\n((?: .*\n)+)", text, re.MULTILINE)
    names = {line.split()[0].rstrip(",") for line in value.splitlines()}
    return {name for name in names if not name.startswith("$")}


def test_the_package_depends_on_the_packages_of_the_table():
    control = (ROOT / "debian" / "control").read_text().split("\n\n")[1]
    host = {need.package for need in packages.needs(("suite", *packages.HOST))}
    guest = {need.package for need in packages.needs(packages.guest(AMD64))}
    assert stanza(control, "Depends") == host
    assert stanza(control, "Recommends") == guest - host
    uses = dict.fromkeys(row.debian for row in ARCHITECTURES.values())
    emulators = [packages.needs([use])[0].package for use in uses]
    assert f" {' | '.join(emulators)},\n" in control


# The contents of the packages


def files_of_deb(path: Path) -> set[str]:
    return suite_files(line.split()[-1] for line in run("dpkg-deb", "-c", str(path)).splitlines())


def files_of_rpm(path: Path) -> set[str]:
    listed = run("rpm", "-qp", "--qf", r"[%{FILEMODES:perms} %{FILENAMES}\n]", str(path))
    return suite_files(line.split()[-1] for line in listed.splitlines() if line[0] != "d")


@pytest.mark.nightly
def test_lintian_reports_nothing(deb):
    (changes,) = deb.suite.parent.glob("*.changes")
    command = (
        "lintian",
        "--allow-root",
        "--display-info",
        "--fail-on",
        "error,warning,info",
        str(changes),
    )
    assert run(*command) == ""


@pytest.mark.nightly
def test_the_trial_is_a_package_of_its_own(deb, rpm):
    files = files_of_deb(deb.trial)
    assert files_of_rpm(rpm.trial) == files
    assert f"{SUITE}/commands/trial.py" in files
    tried = (f"{SUITE}/trial/", f"{SUITE}/commands/trial.py")
    assert not [name for name in files if not name.startswith(tried)]
    assert not [name for name in files_of_deb(deb.suite) if name.startswith(tried)]


@pytest.mark.nightly
def test_both_packages_have_the_same_files_of_the_suite(deb, rpm):
    from_deb = files_of_deb(deb.suite)
    assert files_of_rpm(rpm.suite) == from_deb
    assert {
        f"{SUITE}/cases/reg_mr/rules.yaml",
        f"{SUITE}/conformance/sweeps/loop.c",
        f"{SUITE}/rdma-cts",
    } <= from_deb
    ours = {path.parent.name for path in ROOT.glob("[a-z]*/*.py")} - {"tests", "docs", "trial"}
    assert {
        name.removeprefix(f"{SUITE}/").partition("/")[0]
        for name in from_deb
        if name.endswith(".py")
    } >= ours
    assert not [name for name in from_deb if name.startswith(f"{SUITE}/tests")]


@pytest.fixture(scope="module")
def both(tmp_path_factory: Folders) -> Packages:
    """The directories with the files of the two packages."""
    folder = tmp_path_factory.mktemp("files")
    files = Packages(folder / "suite", folder / "trial")
    run("sh", "ci/packaging/install.sh", str(files.suite), str(files.trial), cwd=ROOT)
    return files


@pytest.fixture
def files(both: Packages) -> Path:
    return both.suite


def test_the_manual_page_has_every_command(files):
    (path,) = (files / "usr/share/man/man1").glob("rdma-cts.1*")
    page = run("man", "--warnings=w", "-l", str(path))
    for command in {*COMMANDS} - {"trial"}:
        assert re.search(rf"^   {command}$", page, re.MULTILINE), command
    assert "--no-confirm" in page
    assert "warning:" not in page


def test_the_suite_runs_from_the_installed_files(files):
    shown = run(str(files / "usr/bin/rdma-cts"), "--version")
    assert re.fullmatch(rf"rdma-cts {re.escape(VERSION)}( \(commit [0-9a-f]+\+?\))?\n", shown)
    assert CASE in run(str(files / "usr/bin/rdma-cts"), "list")


def test_an_installed_suite_names_the_programs_and_places_of_its_pages(files):
    shown = str(files / "usr/bin/rdma-cts"), "reproducer", "687f", "--mail"
    command = *shown, "--run", str(ROOT / "docs/runs/rxe.jsonl.xz")
    assert "The text has no C program" in run(*command)
    docs = files / "usr/share/doc/rdma-cts/docs"
    shutil.copytree(ROOT / "docs/findings", docs / "findings")
    said = run(*command)
    assert f"by hand: {docs}/findings/by-hand/5c12bb81389f.c and {docs}/" in said
    assert "in the source: drivers/infiniband/" in said


def test_without_the_trial_its_command_names_the_package(both, tmp_path):
    suite = tmp_path / "suite"
    shutil.copytree(both.suite, suite, symlinks=True)
    program = suite / "usr/bin/rdma-cts"
    refused = ended(str(program), "trial", "kernel")
    assert refused.returncode == 2
    assert refused.stderr == (
        "rdma-cts: the trial of the suite is not installed; install the package rdma-cts-trial\n"
    )
    assert "trial" not in run(str(program), "--help")
    shutil.copytree(both.trial, suite, dirs_exist_ok=True)
    assert "kernel" in run(str(program), "trial", "--help")


# The Debian package in a clean Debian

RELEASE = "bookworm"  # the oldest Debian release with a Python on which the suite runs
USER = "tester"
HOME = Path("/home") / USER
_ADD_USER = f'chroot "$1" useradd --create-home {USER}'


@dataclass(frozen=True)
class Tree:
    """The root directory of a clean Debian system."""

    root: Path

    def run(self, command: str, user: str = USER) -> subprocess.CompletedProcess[str]:
        """Runs a shell command in the tree, as a user in the home directory, with a clean environment."""
        if user == USER:
            home = HOME
        else:
            home = Path("/root")
        inside = f"cd {home} && {command}"
        environment = [
            "env",
            "-i",
            f"HOME={home}",
            "PATH=/usr/bin:/bin:/usr/sbin:/sbin",
            "LC_ALL=C.UTF-8",
        ]
        as_user = [
            "chroot",
            str(self.root),
            "setpriv",
            f"--reuid={user}",
            f"--regid={user}",
            "--init-groups",
        ]
        line = shlex.join([*as_user, *environment, "sh", "-c", inside])
        proc = shlex.quote(str(self.root / "proc"))
        mounted = f"mkdir -p {proc} && mount -t proc proc {proc} && exec {line}"
        return ended("unshare", "--mount", "sh", "-c", mounted, stdin=subprocess.DEVNULL)

    def state(self, folder: str) -> dict[str, tuple[int, int]]:
        """Returns the size and the time of every file and directory below a folder of the tree."""
        state_read = {}
        for path in (self.root / folder).rglob("*"):
            status = path.lstat()
            state_read[str(path.relative_to(self.root))] = (status.st_size, status.st_mtime_ns)
        return state_read

    def lend_cache(self, cache: Path = HOME / ".cache" / "rdma-cts") -> None:
        """Gives the user hard links to this host's images and templates of the guest, which root has made."""
        source, target = cache_directory(), self.root / cache.relative_to("/")
        for path in [
            *source.glob("images/*/*"),
            *source.glob("templates/*/*"),
            *source.glob("derived/*/**/*"),
        ]:
            linked = target / path.relative_to(source)
            if (
                path.is_file()
                and path.name not in ("verified", "accelerator")
                and not linked.exists()
            ):
                linked.parent.mkdir(parents=True, exist_ok=True)
                os.link(path, linked)
        owner = (self.root / HOME.relative_to("/")).stat()
        if cache.is_relative_to(HOME):
            for folder in (
                target.parent,
                *(path for path in target.parent.rglob("*") if path.is_dir()),
            ):
                os.chown(folder, owner.st_uid, owner.st_gid)


@contextmanager
def unpacked(packages: Iterable[str]) -> Iterator[Tree]:
    """Yields a tree with these Debian packages, and removes the tree at the end of the block. The tree is in the cache,
    so that it can have hard links to files of the cache. It is built once, in about a minute, and stored as an archive;
    each use unpacks a copy."""
    if ended("unshare", "--mount", "true").returncode != 0:
        pytest.skip("this machine refuses mounts, and a tree needs its own /proc")
    needed = sorted(packages)
    digest = hashlib.sha256("\0".join(_system(needed).command(Path("TREE"))).encode()).hexdigest()[
        :16
    ]
    trees = cache_directory() / "trees"
    trees.mkdir(parents=True, exist_ok=True)
    archive = trees / f"{RELEASE}-{digest}.tar"
    folder = trees / f"test-{os.getpid()}"
    try:
        with locked(trees / "lock", ", which is building the clean Debian tree", print):
            _remove_remnants(trees)
            if not archive.exists():
                _make(archive, needed)
            folder.mkdir()
            subprocess.run(["tar", "-C", str(folder), "-xpf", str(archive)], check=True)
        yield Tree(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _system(packages: Sequence[str]) -> System:
    recipe = recipe_for(RELEASE)
    return System(recipe, packages, _ADD_USER, (), recipe.left_out, {})


def _make(archive: Path, packages: Sequence[str]) -> None:
    for old in archive.parent.glob("*.tar"):
        old.unlink()
    unfinished = archive.with_name("unfinished.tar")
    log = archive.with_name("build.log")
    log.write_bytes(b"")
    assert _system(packages).make(unfinished, log, print), log.read_text(
        encoding="utf-8",
        errors="replace",
    )
    unfinished.rename(archive)


def _remove_remnants(kept: Path) -> None:
    for tree in kept.glob("test-*"):
        if not Path("/proc", tree.name.removeprefix("test-")).exists():
            shutil.rmtree(tree, ignore_errors=True)


@pytest.fixture(scope="module")
def installed(deb: Packages) -> Iterator[Tree]:
    """A clean Debian system with the package installed."""
    control = (ROOT / "debian" / "control").read_text().split("\n\n")[1]
    with unpacked(stanza(control, "Depends") | stanza(control, "Recommends")) as tree:
        shutil.copy(deb.suite, tree.root / "root")
        done = tree.run(f"dpkg --install {deb.suite.name}", user="root")
        assert done.returncode == 0, done.stdout + done.stderr
        yield tree


@pytest.mark.nightly
def test_the_autopkgtest_passes(installed):
    shutil.copy(
        ROOT / "debian" / "tests" / "installed",
        installed.root / HOME.relative_to("/") / "installed",
    )
    done = installed.run("./installed")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"rdma-cts {VERSION}\n")


@pytest.mark.nightly
def test_nothing_is_written_into_the_directories_of_the_package_even_by_root(installed):
    before = installed.state(SUITE)
    assert any(name.endswith(".pyc") for name in before), "the package has no bytecode"
    for command in ("list", "list coverage", "list schema table", "explain REG-15", "doctor"):
        done = installed.run(f"rdma-cts {command}", user="root")
        assert done.stderr == ""
    assert installed.state(SUITE) == before


@pytest.mark.guest
@pytest.mark.nightly
def test_a_user_runs_a_case_in_the_guest(installed):
    ensure_image(recipe_for(), cache_directory(), print)  # this needs root
    installed.lend_cache()
    before = installed.state(SUITE)
    done = installed.run(f"rdma-cts run --guest --only {CASE} --out results")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "next: rdma-cts compare OLD results" in done.stdout
    (result,) = read_written(installed.root / HOME.relative_to("/") / "results").results
    assert result["verdict"] == "PASS"
    assert result["repro"] == f"rdma-cts run --guest --only {CASE}"
    assert installed.state(SUITE) == before


def test_a_built_package_leaves_the_checkout_as_clean_as_a_release_needs(tmp_path):
    control = (ROOT / "debian/control").read_text(encoding="utf-8")
    made = ["debhelper-build-stamp", "files", ".debhelper/generated"]
    for package in re.findall(r"^Package: (\S+)", control, re.MULTILINE):
        scripts = [f"{package}.{name}.debhelper" for name in ("postinst", "prerm", "postrm")]
        made += [f"{package}/usr", f"{package}.debhelper.log", f"{package}.substvars", *scripts]
    paths = [f"debian/{name}" for name in made]
    shutil.copy(ROOT / ".gitignore", tmp_path)
    ended("git", "init", "-q", ".", cwd=tmp_path, check=True)
    ignored = ended("git", "check-ignore", *paths, cwd=tmp_path).stdout.split()
    assert ignored == paths
    sources = "debian/control", "debian/rules", "debian/docs"
    assert not ended("git", "check-ignore", *sources, cwd=tmp_path).stdout
