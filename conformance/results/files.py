"""Writes files atomically: at any moment, also after a crash, a file has its whole old or its whole new content.
writer.py writes the files that grow line by line."""

import errno
import itertools
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from conformance.errors import UserError

# The values of errno for which the path is at fault, and not the disk.
_WRONG_PLACE = (
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ELOOP,
    errno.EEXIST,
)


def write_atomically(path: Path, data: bytes, durable: bool = True) -> None:
    """Replaces the content of a file; creates its folder if necessary.

    If `durable`, the data are on disk on return. Files that can be made again need not be durable. A link at `path` is
    replaced, and not followed. If the function fails, it raises UserError. The old file is then unchanged, and the
    folder has no new file.
    """
    partial = path.with_name(f".{os.getpid()}-{threading.get_ident():x}.partial")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.unlink(missing_ok=True)  # left by a process that was killed
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(partial, flags, 0o644), "wb") as file:
                file.write(data)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        if durable:
            _sync_folder(path.parent)


def write_through(path: Path, data: bytes) -> bool:
    """Writes a file like `write_atomically`. If `path` is a FIFO, a device or a link, writes into it instead.

    Returns whether a regular file was written. Raises UserError if the file cannot be written.
    """
    if not os.path.islink(path) and (not os.path.exists(path) or os.path.isfile(path)):
        write_atomically(path, data)
        return True
    with writing(path):
        path.write_bytes(data)
    return False


def make_directory(folder: Path) -> None:
    """Makes a directory and its parents, unless it exists. Raises UserError if it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except FileExistsError as error:
        raise UserError(f"{folder} is not a directory") from error
    except OSError as error:
        raise not_written(folder, error) from error


def new_directory(first: Path) -> Path:
    """Makes and returns the directory `first` or, if it exists, the first of `first-2`, `first-3` and so on. Raises
    UserError."""
    for number in itertools.count(1):
        folder = first if number == 1 else first.with_name(f"{first.name}-{number}")
        with writing(folder), suppress(FileExistsError):
            folder.mkdir(parents=True)
            return folder
    raise AssertionError("there is always another name")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Within the block, an OSError becomes a UserError that says that `path` cannot be written."""
    try:
        yield
    except OSError as error:
        raise not_written(path, error) from error


def not_written(path: Path, error: OSError) -> UserError:
    """Returns the error for a file that cannot be written: status 2 if its path is the reason, 3 for a full disk."""
    status = 2 if error.errno in _WRONG_PLACE else 3
    return UserError(f"{path} cannot be written: {error.strerror}", status=status)


def _sync_folder(folder: Path) -> None:
    """Writes a folder to disk. The new name of a file is on disk only when its folder is on disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Writes all data, with as many calls of write() as necessary. Raises OSError."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
