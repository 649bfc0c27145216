"""Writes files atomically: a reader, or a crash at any moment, sees the old or the new content, never a part of it.

What is no regular file, such as a pipe, is written through and never replaced.
Not for files that grow line by line (writer.py); these use only `write_all`.
"""

from __future__ import annotations

import os
from pathlib import Path

from conformance.errors import UserError


def write_atomically(path: Path, data: bytes) -> None:
    """Replaces the content of a file; creates its folder if necessary. The data are on disk on return.

    A link stays one: the file that it names is replaced. Raises UserError (status 3) if that fails; the old file is
    unchanged then, and no other file is left.
    """
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
            return
        path = Path(os.path.realpath(path))
        partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with partial.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        _sync_folder(path.parent)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}", status=3) from error


def _sync_folder(folder: Path) -> None:
    """A file's new name is on disk only when its folder is."""
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
