"""Caches files that one process has computed from the suite's own files, such as parsed tables, for later processes.

The cached files are in the directory that RDMA_CTS_DERIVED names; without this variable, nothing is cached. The name of
each file contains the digest of everything from which the file was computed; therefore a file is never out of date. A
file can be a pickle, which executes code; therefore a file is used only if only this user and root can have written it.
"""

from __future__ import annotations

import contextlib
import functools
import grp
import hashlib
import json
import os
import pwd
import shlex
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from conformance.errors import UserError
from conformance.regular_file import write_whole

DIRECTORY = "RDMA_CTS_DERIVED"
KEPT = 24  # the number of cached files that are kept: the most recently used files
failure: tuple[Path, str] | None = None  # the directory in which no file could be cached, and why
_USED: dict[str, Path] = {}


def digest_of(parts: Iterable[bytes]) -> str:
    """Returns the digest of a sequence of byte strings, as 32 hexadecimal digits."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}\0".encode() + part)
    return digest.hexdigest()[:32]


def path_of(name: str) -> Path | None:
    """Returns the path of the cached file with this name, which need not exist; None if there is no cache."""
    folder = os.environ.get(DIRECTORY)
    if folder:
        return Path(folder) / name
    return None


def is_own(path: Path) -> bool:
    """Whether only this user and root can have written or replaced this file or directory, or a link on the way."""
    try:
        real, named = path.resolve(strict=True), path.absolute()
        places = {real, *real.parents, named, *named.parents}
        return all(has_private_status(os.lstat(place)) for place in places)
    except (OSError, RuntimeError):  # RuntimeError: a loop of links
        return False


def is_private(path: Path) -> bool:
    """Whether only this user and root can write this file or directory; its parents are not checked."""
    try:
        return has_private_status(os.stat(path))
    except OSError:
        return False


def is_of_others(status: os.stat_result) -> bool:
    """Whether a file or directory with this status belongs to a user other than this one and root."""
    return status.st_uid not in (os.geteuid(), 0)


def refuse_of_others(place: Path, status: os.stat_result, hint: str, because: str = "") -> None:
    """Raises UserError if a file or directory with this status belongs to another user, which has this hint, or can be
    written by other users."""
    if is_of_others(status):
        raise UserError(f"{place} belongs to another user{because}", hint=hint)
    if not has_private_status(status):
        raise UserError(
            f"{place} can be written by other users{because}",
            hint=f"let only you write it: chmod go-w {shlex.quote(str(place))}",
        )


def has_private_status(status: os.stat_result) -> bool:
    """Whether only this user and root can write a file or directory with this status."""
    if is_of_others(status):
        return False
    # A link can only be replaced, which its directory permits or not.
    if stat.S_ISLNK(status.st_mode):
        return True
    if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX:
        return True
    by_group = status.st_mode & 0o020 and not _is_of_one(status.st_gid)
    return not (by_group or status.st_mode & 0o002)


@functools.cache
def _is_of_one(group: int) -> bool:
    """Whether only this user is in the group. On many systems, the user's group can write new files by default."""
    try:
        user, group_entry = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return (
        group_entry.gr_gid == user.pw_gid
        and group_entry.gr_name == user.pw_name
        and set(group_entry.gr_mem) <= {user.pw_name}
    )


def used() -> list[Path]:
    """Returns the cached files that this process has read or stored, except those that are gone, or that a user other
    than this user and root can have written."""
    return [path for path in _USED.values() if is_own(path)]


def lookup(name: str) -> Path | None:
    """Returns the path of the cached file with this name; None if it does not exist or is not a regular file, or if a
    user other than this user and root can have written it."""
    path = path_of(name)
    if path is None or not is_own(path) or not path.is_file():
        return None
    try:
        os.utime(path)  # marks the file as used now
    except FileNotFoundError:
        return None
    except OSError:
        # The file belongs to root or is on a read-only file system: only its time could not be changed.
        if not path.exists():
            return None
    _USED[name] = path
    return path


def recalled(name: str) -> Any:
    """Returns the JSON value of the cached file with this name; None if no such file can be used."""
    with contextlib.suppress(OSError, ValueError):
        if path := lookup(name):
            return json.loads(path.read_bytes())
    return None


def store(name: str, content: bytes) -> None:
    """Caches a file atomically. After a failure, which `failure` names, the next process computes the file again."""
    global failure
    path = path_of(name)
    if path is None:
        return
    try:
        write_whole(path, content)
        _USED[name] = path
    except OSError as error:
        failure = path.parent, error.strerror or str(error)
        return
    if not is_own(path):
        failure = path.parent, "other users can write it"
    with contextlib.suppress(OSError):
        prune((path for path in path.parent.iterdir() if path.is_file()), KEPT)


def remove(path: Path) -> None:
    if path.is_dir():
        import shutil  # imported late: it loads the libraries for compression

        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def prune(
    paths: Iterable[Path],
    most: int,
    remove: Callable[[Path], object] = remove,
) -> None:
    """Removes these files and directories, except the `most` ones that were used last. What other processes may be
    using, or what belongs to another user in a namespace, has its own `remove`."""
    for path in sorted(paths, key=lambda path: path.stat().st_mtime)[:-most]:
        remove(path)
