"""A clean Debian in a directory, with packages that a test names and without files of this host. A helper of tests.

The tree is made once, in about a minute, and kept in the cache as an archive; each use unpacks a copy.
"""

import hashlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from fixtures.guest.build import System
from fixtures.guest.kept import locked
from fixtures.guest.recipe import recipe_for
from fixtures.system.cache import cache_directory
from launched import ended

SUITE = "bookworm"  # the oldest Debian release with a Python on which the suite runs
USER = "tester"
HOME = Path("/home") / USER
_ADD_USER = f'chroot "$1" useradd --create-home {USER}'


@dataclass(frozen=True)
class Tree:
    """The root directory of a clean Debian system."""

    root: Path

    def run(self, command: str, user: str = USER) -> subprocess.CompletedProcess[str]:
        """Runs a shell command in the tree, as a user in the home directory, with a clean environment."""
        home = HOME if user == USER else Path("/root")
        inside = f"cd {home} && {command}"
        environment = ["env", "-i", f"HOME={home}", "PATH=/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL=C.UTF-8"]
        as_user = ["chroot", str(self.root), "setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
        line = shlex.join([*as_user, *environment, "sh", "-c", inside])
        proc = shlex.quote(str(self.root / "proc"))
        mounted = f"mkdir -p {proc} && mount -t proc proc {proc} && exec {line}"
        return ended("unshare", "--mount", "sh", "-c", mounted, stdin=subprocess.DEVNULL)

    def state(self, folder: str) -> dict[str, tuple[int, int]]:
        """Size and time of every file and directory below a folder of the tree."""
        found = {}
        for path in (self.root / folder).rglob("*"):
            status = path.lstat()
            found[str(path.relative_to(self.root))] = (status.st_size, status.st_mtime_ns)
        return found

    def lend_cache(self, cache: Path = HOME / ".cache" / "rdma-cts") -> None:
        """Gives the user hard links to this host's images and templates of the guest, which root has made."""
        source, target = cache_directory(), self.root / cache.relative_to("/")
        for path in [*source.glob("images/*/*"), *source.glob("templates/*/*"), *source.glob("derived/*/**/*")]:
            linked = target / path.relative_to(source)
            if path.is_file() and path.name not in ("verified", "accelerator") and not linked.exists():
                linked.parent.mkdir(parents=True, exist_ok=True)
                os.link(path, linked)
        owner = (self.root / HOME.relative_to("/")).stat()
        if cache.is_relative_to(HOME):
            for folder in (target.parent, *(path for path in target.parent.rglob("*") if path.is_dir())):
                os.chown(folder, owner.st_uid, owner.st_gid)


@contextmanager
def unpacked(packages: Iterable[str]) -> Iterator[Tree]:
    """Gives a tree with these Debian packages, which is removed at the end of the block. The tree is in the cache, so
    that it can have hard links to files of the cache."""
    if ended("unshare", "--mount", "true").returncode != 0:
        pytest.skip("this machine refuses mounts, and a tree needs its own /proc")
    needed = sorted(packages)
    digest = hashlib.sha256("\0".join(_system(needed).command(Path("TREE"))).encode()).hexdigest()[:16]
    kept = cache_directory() / "trees"
    kept.mkdir(parents=True, exist_ok=True)
    archive = kept / f"{SUITE}-{digest}.tar"
    folder = kept / f"test-{os.getpid()}"
    try:
        with locked(kept / "lock", ", which is building the clean Debian tree", print):
            _remove_remnants(kept)
            if not archive.exists():
                _make(archive, needed)
            folder.mkdir()
            subprocess.run(["tar", "-C", str(folder), "-xpf", str(archive)], check=True)
        yield Tree(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _system(packages: Sequence[str]) -> System:
    recipe = recipe_for(SUITE)
    return System(recipe, packages, _ADD_USER, (), recipe.left_out, {})


def _make(archive: Path, packages: Sequence[str]) -> None:
    for old in archive.parent.glob("*.tar"):
        old.unlink()
    unfinished = archive.with_name("unfinished.tar")
    log = archive.with_name("build.log")
    log.write_bytes(b"")
    assert _system(packages).make(unfinished, log, print), log.read_text(encoding="utf-8", errors="replace")
    unfinished.rename(archive)


def _remove_remnants(kept: Path) -> None:
    """Removes the trees of tests that were killed."""
    for tree in kept.glob("test-*"):
        if not Path("/proc", tree.name.removeprefix("test-")).exists():
            shutil.rmtree(tree, ignore_errors=True)
