"""Reads files that a user has named or a different machine has written. Reads only regular files of bounded size;
therefore a read never waits for a FIFO or a device, and never exhausts the memory."""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

MOST_BYTES = (
    256 << 20
)  # the maximum size of any file of a run; the results of a default run have 4 MB


def read_regular(path: Path, most: int = MOST_BYTES) -> bytes:
    """Returns the content of a regular file of at most `most` bytes. Raises OSError, with the reason in `strerror`,
    also if the file is not regular or is larger (EFBIG)."""
    with open_regular(path) as file:
        _check_size(path, os.fstat(file.fileno()).st_size, most)
        data = file.read(most + 1)  # the file may have grown since the check
        _check_size(path, len(data), most)
        return data


def regular_lines(path: Path) -> Iterator[bytes]:
    """Yields the lines of a regular file, each with its line feed. Raises OSError like `read_regular`."""
    with open_regular(path) as file:
        _check_size(path, os.fstat(file.fileno()).st_size, MOST_BYTES)
        read = 0
        while line := file.readline(MOST_BYTES + 1 - read):
            read += len(line)
            _check_size(path, read, MOST_BYTES)
            yield line


def _check_size(path: Path, size: int, most: int) -> None:
    if size > most:
        raise OSError(errno.EFBIG, f"larger than {most:,} bytes", str(path))


def open_regular(path: Path) -> IO[bytes]:
    """Opens a regular file for reading. Raises OSError, also if the file is not regular."""
    _check(path, path.stat())  # opening a device can have side effects
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    try:
        _check(path, os.fstat(file.fileno()))  # a different file may have replaced the checked file
    except OSError:
        file.close()
        raise
    return file


def _check(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
