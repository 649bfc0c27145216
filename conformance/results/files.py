"""Writes files atomically: at any time, also after a crash, a file has either its whole old or its whole new content.
writer.py writes the files that grow line by line."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from conformance.errors import UserError
from conformance.regular_file import (
    open_below,
    open_folder,
    remove_below,
    write_special,
    write_whole,
)

# The values of errno that are caused by the path, and not by the disk.
_WRONG_PLACE = {
    getattr(errno, name)
    for name in "EACCES EPERM EROFS ENAMETOOLONG ENOENT ENOTDIR EISDIR ELOOP EEXIST".split()
}
_BLOCK = 4096  # bytes


def write_atomically(
    path: Path,
    data: bytes,
    durable: bool = True,
    within: Path | None = None,
) -> None:
    """Replaces the content of a file as `write_whole` does. If the function fails, it raises UserError. The old file is
    then unchanged, and the folder has no new file."""
    with writing(path):
        write_whole(path, data, durable, within)


def write_together(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Writes files below a directory, which is created unless it exists. If one cannot be written, or the writing is
    interrupted, removes the new ones and the new directory. Raises UserError."""
    with new_or_nothing(folder):
        make_directory(folder)
        new = [name for name in contents if not os.path.lexists(folder / name)]
        try:
            for name, data in contents.items():
                write_atomically(folder / name, data, within=folder)
        except BaseException:
            for name in new:
                with suppress(OSError):
                    remove_below(folder, name)
            raise


def write_named(path: Path, data: bytes) -> bool:
    """Writes the file that the user has named. A FIFO or a device is written and not replaced. A file whose name the
    suite has chosen is written by `write_atomically` instead. Returns whether the file was replaced. Raises UserError
    if the file cannot be written, or is a link: another user could have made the link."""
    with writing(path):
        if write_special(path, data):
            return False
        write_whole(path, data, durable=True)
    return True


@contextmanager
def new_or_nothing(folder: Path) -> Iterator[None]:
    """If the block fails or is interrupted, removes this directory with its content, unless it existed before."""
    is_new = not os.path.lexists(folder)
    try:
        yield
    except BaseException:
        if is_new:
            with suppress(OSError):
                remove_below(folder.parent, folder.name)
        raise


def make_directory(folder: Path, within: Path | None = None) -> None:
    """Creates a directory and its parents, unless it exists. The directories below `within` may not be links. Raises
    UserError if the directory cannot be created or written."""
    import tempfile  # imported late: most commands make no directory

    top = within or folder
    new = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        with (
            open_folder(top, folder.relative_to(top).parts),
            tempfile.TemporaryFile(dir=folder) as file,
        ):
            file.write(bytes(_BLOCK))  # on a full disk, an empty file can be created
    except OSError as error:
        with suppress(OSError):
            for place in new:
                place.rmdir()
        if isinstance(error, NotADirectoryError) and folder.exists():
            raise UserError(f"{folder} is not a directory") from error
        raise not_written(folder, error) from error


@contextmanager
def locked(path: Path, busy: UserError) -> Iterator[None]:
    """Within the block, this process has locked the file at `path`, which is created, with its directory, and removed at
    the end. It is a file that is open for writing, because NFS locks no other. Raises `busy` if another process has
    locked it, and UserError if it cannot be locked."""
    make_directory(path.parent)
    with writing(path):
        descriptor = open_below(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.fstat(descriptor).st_nlink:  # the other process has just removed the file
                raise BlockingIOError
        except BlockingIOError as error:
            raise busy from error
        except OSError as error:
            raise UserError(f"{path} cannot be locked: {error.strerror}", status=3) from error
        try:
            yield
        finally:
            with suppress(OSError):
                remove_below(path.parent, path.name)
    finally:
        os.close(descriptor)


def new_directory(first: Path) -> Path:
    """Creates and returns the directory `first` or, if `first` exists, the first free one of `first-2`, `first-3` and
    so on. Raises UserError."""
    for number in itertools.count(1):
        if number == 1:
            folder = first
        else:
            folder = first.with_name(f"{first.name}-{number}")
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
    if error.errno in _WRONG_PLACE:
        status = 2
    else:
        status = 3
    return UserError(f"{path} cannot be written: {error.strerror}", status=status)


def write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
