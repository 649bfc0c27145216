"""Makes a series of patches for `git am` from the driver's files in the last commit of a source tree of Linux or
rdma-core. Each change becomes a commit in a scratch repository. The tree is only read. The Fixes: lines name the
commits that added the changed lines; git finds them."""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from conformance.errors import UserError
from conformance.model.printable import one_line
from conformance.older_python import zip
from conformance.results.files import write_together
from fixtures.guest.changes import LIBIBVERBS, LINUX, RDMA_CORE, Change, Edit, apply
from fixtures.system.git import git


@dataclass(frozen=True)
class Project:
    """A project with a part of the driver: the folder of this part, and the prefix of its commits' subjects."""

    title: str
    folder: str
    prefix: str


PROJECTS = {
    LINUX: Project("Linux", "drivers/infiniband/sw/rxe", "RDMA/rxe"),
    RDMA_CORE: Project("rdma-core", "providers/rxe", "librxe"),
    LIBIBVERBS: Project("rdma-core with libibverbs", "libibverbs", "verbs"),
}


@dataclass(frozen=True)
class Tree:
    """A source tree. `files` has the texts of the driver's files, by the name that an edit has in `file`. `history` is
    true if git can find the commits that added lines. `remarks` has remarks for the user."""

    name: str
    path: Path
    files: Mapping[str, str]
    history: bool = False
    remarks: tuple[str, ...] = ()

    @property
    def project(self) -> Project:
        return PROJECTS[self.name]

    def own(self, change: Change) -> Iterator[Edit]:
        return (edit for edit in change.edits if edit.file.startswith(f"{self.name}/"))

    def inside(self, file: str) -> str:
        return f"{self.project.folder}/{file.partition('/')[2]}"

    def origins(self, words_sought: Collection[str]) -> dict[str, str]:
        """Returns, for each text, the commit that added the text to the driver, in the form of Fixes:. Texts
        that the first commit of the history has are left out. The history is read once for all texts."""
        if not self.history or not words_sought:
            return {}
        cut = set(_lines(self.path, "rev-list", "--max-parents=0", "HEAD")) | _shallow(self.path)
        origins: dict[str, tuple[str, str]] = {}
        rest, commit, folder = set(words_sought), "HEAD", self.project.folder
        while rest:
            here = _oldest(self.path, commit, folder, rest)
            origins |= here
            if (
                moved := _moved(self.path, folder, {origin for origin, _ in here.values()})
            ) is None:
                break
            mover, folder = moved
            rest = {words for words, (origin, _) in here.items() if origin == mover}
            commit = f"{mover}^"
        return {
            words: f'{id_[:12]} ("{one_line(subject)}")'
            for words, (id_, subject) in origins.items()
            if id_ not in cut
        }


def read_tree(name: str, path: Path) -> Tree:
    """Returns the tree at a path. Raises UserError (status 2) if the tree does not have the driver."""
    project = PROJECTS[name]
    folder = path / project.folder
    if not path.exists():
        raise UserError(f"--{name} {path} does not exist")
    if not folder.is_dir():
        raise UserError(
            f"--{name} {path}: there is no {project.folder} in it, so it is not a source tree of {project.title}",
        )
    top = git(path, "rev-parse", "--show-toplevel", check=False)
    if top.returncode != 0 or Path(_path(top.stdout)).resolve() != path.resolve():
        remark = f"{path} has no history: no Fixes: lines"
        return Tree(name, path, _sources(name, _on_disk(folder)), remarks=(remark,))
    archive = git(path, "archive", "HEAD", "--", project.folder, check=False)
    if archive.returncode != 0:
        remark = f"{path}: no commit has {project.folder}: the files of the directory are used, without Fixes: lines"
        return Tree(name, path, _sources(name, _on_disk(folder)), remarks=(remark,))
    remarks = []
    if dirty := _lines(path, "status", "--porcelain", "--", project.folder):
        remarks.append(
            f"{path}: {len(dirty)} files of {project.folder} are not committed: the series is for HEAD",
        )
    history = len(_lines(path, "rev-list", "--max-count=2", "HEAD")) > 1
    if not history:
        remarks.append(f"{path} has a single commit: no Fixes: lines")
    return Tree(name, path, _sources(name, _archived(archive.stdout)), history, tuple(remarks))


def _path(output: bytes) -> str:
    return os.fsdecode(output.removesuffix(b"\n"))


def _lines(path: Path, *arguments: str) -> list[str]:
    return git(path, *arguments).stdout.decode(errors="replace").splitlines()


def _shallow(path: Path) -> set[str]:
    """Returns the commits at which a shallow history ends. Each of them appears to add all its files."""
    file = path / _path(git(path, "rev-parse", "--git-path", "shallow").stdout)
    if file.is_file():
        return set(file.read_text().split())
    return set()


def _oldest(
    path: Path,
    end: str,
    folder: str,
    words_sought: Collection[str],
) -> dict[str, tuple[str, str]]:
    """Returns, for each text, the id and subject of the oldest commit up to `end` that adds the text."""
    shape = (
        "--no-color",
        "--no-ext-diff",
        "--no-renames",
        "--patch",
        "--unified=0",
        "--format=%x00%H %s",
    )
    plain = ("--no-textconv", "--no-ext-diff")
    log = git(path, "log", "--reverse", "--no-merges", *plain, *shape, end, "--", folder)
    oldest: dict[str, tuple[str, str]] = {}
    for text in log.stdout.decode(errors="replace").split("\0")[1:]:
        head, *lines = text.split("\n")
        commit, _, subject = head.partition(" ")
        added = "\n".join(line[1:] for line in lines if line[:1] == "+" and line[:3] != "+++")
        oldest |= {
            words: (commit, subject)
            for words in words_sought
            if words not in oldest and words in added
        }
    return oldest


def _moved(path: Path, folder: str, commits: Collection[str]) -> tuple[str, str] | None:
    """Returns the commit among `commits` that moved files into a folder, and the old folder."""
    for commit in commits:
        for line in _lines(
            path,
            "diff-tree",
            "-r",
            "--no-commit-id",
            "--name-status",
            "-M",
            "--diff-filter=R",
            commit,
        ):
            _, old, new = line.split("\t")
            if new.startswith(f"{folder}/") and not old.startswith(f"{folder}/"):
                return commit, str(Path(old).parent)
    return None


def _on_disk(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.iterdir()):
        if path.is_file() and not path.is_symlink():
            yield path.name, path.read_bytes()


def _archived(data: bytes) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            if (content := archive.extractfile(member)) is not None:
                yield Path(member.name).name, content.read()


def _sources(name: str, files: Iterator[tuple[str, bytes]]) -> dict[str, str]:
    return {
        f"{name}/{file}": data.decode("utf-8", "surrogateescape")
        for file, data in files
        if file.endswith((".c", ".h"))
    }


# The author of patches without a Signed-off-by line.
NOBODY = "rdma-cts <rdma-cts@localhost>"


@dataclass(frozen=True)
class Letter:
    """The texts for a change: the message of the commit, and the text below it, which is only in the mail."""

    message: str
    below: str = ""


@dataclass(frozen=True)
class Series:
    """The files that were written, and the changes that were left out, with the reasons."""

    written: tuple[Path, ...]
    misfits: Mapping[str, str]


def part_of(tree: Tree, changes: Sequence[Change]) -> list[Change]:
    return [change for change in changes if any(tree.own(change))]


def write_series(
    tree: Tree,
    before: Sequence[Change],
    changes: Sequence[Change],
    letters: Mapping[str, Letter],
    author: str,
    out: Path,
) -> Series:
    """Writes the patches of `changes` into a new directory. The patches apply after the changes `before`. Raises
    UserError."""
    if out.exists() and any(out.iterdir()):
        raise UserError(f"{out} has files already", hint="--out DIR names another directory")
    changes_of_tree = {
        change.name: replace(change, edits=tuple(tree.own(change)))
        for change in (*before, *changes)
    }
    _, misfits = apply([*changes_of_tree.values()], tree.files)
    fitting = [change for change in changes if change.name not in misfits]
    base = [changes_of_tree[change.name] for change in before if change.name not in misfits]
    with tempfile.TemporaryDirectory(prefix="rdma-cts-patches-") as name:
        scratch = Scratch(Path(name), tree, author)
        scratch.commit(apply(base, tree.files)[0], Letter("The sources as they were given\n"))
        for number, change in enumerate(fitting, 1):
            applied = [*base, *(changes_of_tree[change.name] for change in fitting[:number])]
            scratch.commit(apply(applied, tree.files)[0], letters[change.name])
        patches = scratch.patches([letters[change.name] for change in fitting])
    write_together(out, patches)
    return Series(
        tuple(out / file for file in patches),
        {change: misfits[change] for change in changes_of_tree if change in misfits},
    )


class Scratch:
    """A repository that has only the driver's files, at their paths in the tree."""

    def __init__(self, path: Path, tree: Tree, author: str) -> None:
        self._path, self._tree = path, tree
        name, _, address = author.removesuffix(">").partition(" <")
        self._env = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
        for who in ("AUTHOR", "COMMITTER"):
            self._env |= {f"GIT_{who}_NAME": name, f"GIT_{who}_EMAIL": address}
        self._git("init", "--quiet", "--initial-branch=series", "--template=", ".")

    def commit(self, files: Mapping[str, str], letter: Letter) -> None:
        for name, text in files.items():
            path = self._path / self._tree.inside(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("utf-8", "surrogateescape"))
        self._git("add", "--all", "--force")
        self._git("commit", "--quiet", "--cleanup=verbatim", "--file=-", given=letter.message)

    def patches(self, letters: Sequence[Letter]) -> dict[str, bytes]:
        """Returns the patches of the last commits, one for each letter, by file name."""
        if not letters:
            return {}
        out = self._path / ".git" / "patches"
        self._git(
            "format-patch",
            "--quiet",
            "--zero-commit",
            "--no-signature",
            f"-{len(letters)}",
            "-o",
            str(out),
        )
        mails = zip(sorted(out.iterdir()), letters, strict=True)
        return {
            path.name: _with(letter.below.encode(), path.read_bytes()) for path, letter in mails
        }

    def _git(self, *arguments: str, given: str = "") -> None:
        git(self._path, *arguments, given=given, env=self._env)


def _with(below: bytes, mail: bytes) -> bytes:
    """Returns the mail with a text after the first line of three dashes. `git am` does not commit this text."""
    if below:
        return mail.replace(b"\n---\n", b"\n---\n" + below + b"\n", 1)
    return mail
