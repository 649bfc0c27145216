"""Files that were computed from the suite's own files, kept for the next process: read tables, compiled C.

They lie in the directory that RDMA_CTS_DERIVED names; without it, nothing is kept. The name of each has the digest of
everything that it was computed from, so that a file is never out of date. Since these files are executed, they are used
only where nobody but this user and root can have written them. Not for results.
"""

import contextlib
import functools
import grp
import hashlib
import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

DIRECTORY = "RDMA_CTS_DERIVED"
KEPT = 24  # files; those used last


def digest_of(parts: Iterable[bytes]) -> str:
    """The digest of a sequence of byte strings, as 32 hexadecimal digits."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}\0".encode() + part)
    return digest.hexdigest()[:32]


def path_of(name: str) -> Path | None:
    """The path of the file of this name, which may not exist; None if nothing is cached."""
    folder = os.environ.get(DIRECTORY)
    return Path(folder) / name if folder else None


def is_own(path: Path) -> bool:
    """Whether only this user and root can have written or replaced this file or directory."""
    try:
        real = Path(os.path.realpath(path, strict=True))
        return all(_is_private(os.lstat(each)) for each in (real, *real.parents))
    except OSError:
        return False


def is_private(path: Path) -> bool:
    """Whether only this user and root can write this file or directory; its parents are not checked."""
    try:
        return _is_private(os.stat(path))
    except OSError:
        return False


def _is_private(found: os.stat_result) -> bool:
    if found.st_uid not in (os.geteuid(), 0):
        return False
    if stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX:
        return True
    by_group = found.st_mode & 0o020 and not _is_of_one(found.st_gid)
    return not (by_group or found.st_mode & 0o002)


@functools.cache
def _is_of_one(group: int) -> bool:
    """Whether only this user is in the group, to which many systems give the right to write by default."""
    try:
        user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return found.gr_gid == user.pw_gid and found.gr_name == user.pw_name and set(found.gr_mem) <= {user.pw_name}


def lookup(name: str) -> Path | None:
    """The file of this name if there is one that nobody else can have written."""
    path = path_of(name)
    if path is None or not is_own(path):
        return None
    try:
        os.utime(path)  # it is in use
    except FileNotFoundError:
        return None
    except OSError:
        return path if path.exists() else None  # a directory that others own
    return path


def store(name: str, content: bytes) -> None:
    """Caches a file, whole or not at all. If that fails, it is computed again the next time, without a message."""
    path = path_of(name)
    if path is None:
        return
    with contextlib.suppress(OSError):
        write_whole(path, content)
        prune((each for each in path.parent.iterdir() if each.is_file()), KEPT)


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file, whole or not at all, and creates its folder if necessary. Raises OSError.

    Unlike results (results/files.py), it need not be on disk on return: it can be computed again.
    """
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    descriptor, unfinished = tempfile.mkstemp(dir=path.parent, prefix="unfinished-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(unfinished, path)
    except BaseException:
        os.unlink(unfinished)
        raise


def prune(paths: Iterable[Path], kept: int) -> None:
    """Removes these files and directories, except the `kept` ones that were used last."""
    for path in sorted(paths, key=lambda path: path.stat().st_mtime)[:-kept]:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
