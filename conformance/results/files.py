"""Writes files atomically: at any time, also after a crash, a file has either its whole old or its whole new content.
writer.py writes the files that grow line by line."""

import errno
import itertools
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from conformance.cache import write_whole
from conformance.errors import UserError

# The values of errno that are caused by the path, and not by the disk.
_WRONG_PLACE = {
    getattr(errno, name)
    for name in "EACCES EPERM EROFS ENAMETOOLONG ENOENT ENOTDIR EISDIR ELOOP EEXIST".split()
}


def write_atomically(path: Path, data: bytes, durable: bool = True) -> None:
    """Replaces the content of a file as `write_whole` does. If the function fails, it raises UserError. The old file is
    then unchanged, and the folder has no new file."""
    with writing(path):
        write_whole(path, data, durable)


def write_through(path: Path, data: bytes) -> bool:
    """Writes a file like `write_atomically`. If `path` is a FIFO, a device or a link, writes into the existing file
    instead. Returns whether the file was written atomically. Raises UserError if the file cannot be written."""
    if not os.path.islink(path) and (not os.path.exists(path) or os.path.isfile(path)):
        write_atomically(path, data)
        return True
    with writing(path):
        path.write_bytes(data)
    return False


def make_directory(folder: Path) -> None:
    """Creates a directory and its parents, unless it exists. Raises UserError if it cannot be created or written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except FileExistsError as error:
        raise UserError(f"{folder} is not a directory") from error
    except OSError as error:
        raise not_written(folder, error) from error


def new_directory(first: Path) -> Path:
    """Creates and returns the directory `first` or, if `first` exists, the first free one of `first-2`, `first-3` and
    so on. Raises UserError."""
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
    """Returns the error for a file that cannot be written, with status 2 if its path is the reason, else status 3."""
    status = 2 if error.errno in _WRONG_PLACE else 3
    return UserError(f"{path} cannot be written: {error.strerror}", status=status)


def write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
