"""Writing files so that a reader, and a crash at any moment, sees the old content or the new one and never a part.

Not for files that grow line by line (writer.py), but for `write_all`, which these need too.
"""

from __future__ import annotations

import os
from pathlib import Path

from conformance.errors import UserError


def write_atomically(path: Path, data: bytes) -> None:
    """Replaces the file's content, and creates its folder where there is none; the data are on disk on return.

    Raises UserError (status 3) where that is not possible; then the old file is as it was, with nothing left beside it.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
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
    """Writes all of the data, however many calls that takes. Raises OSError."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
