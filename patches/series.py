"""A series of patches for `git am`, made from the files of a tree: a commit for each change in a scratch repository.

Each patch is the difference that a change makes after those before it. Not for finding out what a tree is (tree.py).
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from conformance.errors import UserError
from conformance.results.files import make_directory, write_through
from fixtures.guest.changes import Change, apply
from patches.tree import Tree, git

# The author, where nobody signs off.
NOBODY = "rdma-cts <rdma-cts@localhost>"


@dataclass(frozen=True)
class Letter:
    """The texts for a change: the message, and the part of the mail below it, which is in no commit."""

    message: str
    below: str = ""


@dataclass(frozen=True)
class Series:
    """The files that were written, and the changes left out, each with the reason."""

    written: tuple[Path, ...]
    misfits: Mapping[str, str]


def part_of(tree: Tree, changes: Sequence[Change]) -> list[Change]:
    """The changes that touch the tree's files."""
    return [change for change in changes if any(edit.file.startswith(f"{tree.name}/") for edit in change.edits)]


def write_series(
    tree: Tree,
    before: Sequence[Change],
    changes: Sequence[Change],
    letters: Mapping[str, Letter],
    author: str,
    out: Path,
) -> Series:
    """Writes the patches of these changes, which come after others, into a new directory. Raises UserError."""
    if out.exists() and any(out.iterdir()):
        raise UserError(f"{out} has files already", hint="--out DIR names another directory")
    own = {change.name: _limited(change, tree.name) for change in (*before, *changes)}
    _, misfits = apply([*own.values()], tree.files)
    fitting = [change for change in changes if change.name not in misfits]
    base = [own[change.name] for change in before if change.name not in misfits]
    with tempfile.TemporaryDirectory(prefix="rdma-cts-patches-") as name:
        scratch = Scratch(Path(name), tree, author)
        scratch.commit(apply(base, tree.files)[0], Letter("The sources as they were given\n"))
        for number, change in enumerate(fitting, 1):
            applied = [*base, *(own[each.name] for each in fitting[:number])]
            scratch.commit(apply(applied, tree.files)[0], letters[change.name])
        patches = scratch.patches([letters[change.name] for change in fitting])
    make_directory(out)
    for file, text in patches.items():
        write_through(out / file, text)
    return Series(tuple(out / file for file in patches), {each: misfits[each] for each in own if each in misfits})


class Scratch:
    """A repository with the driver's files alone, in their places."""

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
            path.write_bytes(text.encode())
        self._git("add", "--all", "--force")
        self._git("commit", "--quiet", "--cleanup=verbatim", "--file=-", given=letter.message)

    def patches(self, letters: Sequence[Letter]) -> dict[str, bytes]:
        """The patches of the last commits by the names of their files, with these letters."""
        if not letters:
            return {}
        out = self._path / ".git" / "patches"
        self._git("format-patch", "--quiet", "--zero-commit", "--no-signature", f"-{len(letters)}", "-o", str(out))
        mails = zip(sorted(out.iterdir()), letters, strict=True)
        return {path.name: _with(letter.below.encode(), path.read_bytes()) for path, letter in mails}

    def _git(self, *arguments: str, given: str = "") -> None:
        git(self._path, *arguments, given=given, env=self._env)


def _with(below: bytes, mail: bytes) -> bytes:
    """The mail with a text where `git am` expects none for the commit: below the first line of three dashes."""
    return mail.replace(b"\n---\n", b"\n---\n" + below + b"\n", 1) if below else mail


def _limited(change: Change, source: str) -> Change:
    """The change without its edits of another project's files."""
    return replace(change, edits=tuple(edit for edit in change.edits if edit.file.startswith(f"{source}/")))
