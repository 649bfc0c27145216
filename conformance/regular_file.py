"""Reads files that a user has named or a different machine has written, and writes files into directories that other
users could have prepared. Reads only regular files of bounded size; therefore a read never waits for a FIFO or a device,
and never exhausts the memory. A write replaces whatever has the name of the file, also a link or a device."""

from __future__ import annotations

import errno
import io
import os
import shutil
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

MOST_BYTES = (
    256 << 20
)  # the maximum size of any file of a run; the results of a default run have 4 MB
_MEMORY = 128 << 20  # of xz; its highest level needs 65 MiB


def read_regular(path: Path, most: int = MOST_BYTES) -> bytes:
    """Returns the content of a regular file of at most `most` bytes. Raises OSError, with the reason in `strerror`,
    also if the file is not regular or is larger (EFBIG)."""
    with open_regular(path) as file:
        _check_size(path, os.fstat(file.fileno()).st_size, most)
        data = file.read(most + 1)  # the file may have grown since the check
        _check_size(path, len(data), most)
        return data


def regular_lines(path: Path) -> Iterator[bytes]:
    """Yields the lines of a regular file, each with its line feed; of a file that ends in .xz, those that are compressed
    in it. Raises OSError like `read_regular`, also if xz cannot expand the file."""
    if path.suffix == ".xz":
        yield from io.BytesIO(_expanded(path))
        return
    with open_regular(path) as file:
        _check_size(path, os.fstat(file.fileno()).st_size, MOST_BYTES)
        read = 0
        while line := file.readline(MOST_BYTES + 1 - read):
            read += len(line)
            _check_size(path, read, MOST_BYTES)
            yield line


def _expanded(path: Path) -> bytes:
    import lzma  # imported late: only recorded runs of the documentation are compressed

    compressed = read_regular(path)
    decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY)
    try:
        content = decompressor.decompress(compressed, MOST_BYTES + 1)
    except lzma.LZMAError as error:
        raise OSError(errno.EINVAL, f"not a file of xz: {error}", str(path)) from error
    _check_size(path, len(content), MOST_BYTES)
    if not decompressor.eof or decompressor.unused_data:
        raise OSError(errno.EINVAL, "not one whole stream of xz", str(path))
    return content


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


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def open_folder(path: Path, names: Sequence[str] = ()) -> Iterator[int]:
    """Yields a descriptor of the directory at `path` or, with `names`, of the directory below it. Missing directories
    are created. `path` may be a link, because the user has named it; a directory below it may not. Raises OSError."""
    path.mkdir(mode=0o755, parents=True, exist_ok=True)
    folder = os.open(path, _FOLDER)
    try:
        for name in names:
            if name == "..":
                raise OSError(errno.EINVAL, "it is outside of its directory")
            with suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=folder)
            below = _opened_below(folder, name)
            os.close(folder)
            folder = below
        yield folder
    finally:
        os.close(folder)


def _opened_below(folder: int, name: str) -> int:
    try:
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    except NotADirectoryError as error:
        if stat.S_ISLNK(os.lstat(name, dir_fd=folder).st_mode):
            raise OSError(errno.ELOOP, f"its directory {name} is a symbolic link") from error
        raise


def write_whole(
    path: Path,
    content: bytes,
    durable: bool = False,
    within: Path | None = None,
    mode: int = 0o644,
) -> None:
    """Replaces the content of a file atomically; creates its folder if necessary. If `durable`, the data are on disk on
    return. A link, a FIFO or a device at `path` is replaced, not followed or opened. The folders between `within` and
    the file may not be links (default: the folder of the file). Raises OSError."""
    top = within or path.parent
    *names, name = path.relative_to(top).parts
    partial = f".{os.getpid()}-{threading.get_ident():x}.partial"
    with open_folder(top, names) as folder:
        with suppress(FileNotFoundError):
            os.unlink(partial, dir_fd=folder)  # left by a process that was killed
        try:
            with open(os.open(partial, _NEW_FILE, mode, dir_fd=folder), "wb") as file:
                file.write(content)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(partial, name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(partial, dir_fd=folder)
        if durable:
            os.fsync(folder)  # the new name of a file is on disk only when its folder is on disk


def remove_below(folder: Path, name: str) -> None:
    """Removes the file or the directory `name` below a directory, if it is there and can be removed. No link in the
    name is followed."""
    *names, last = name.split("/")
    with suppress(OSError), open_folder(folder, names) as place:
        try:
            os.unlink(last, dir_fd=place)
        except IsADirectoryError:
            shutil.rmtree(last, dir_fd=place)


def write_special(path: Path, content: bytes) -> bool:
    """Writes into the FIFO or the character device at `path`. Returns False if there is a regular file or nothing. Only
    links of the kernel and of root in /dev and /proc, such as /dev/stdout, are followed. Raises OSError for any other
    link, for a directory and for a block device."""
    folder = Path(os.path.realpath(path.parent))
    is_of_system = folder == Path("/dev") or folder.is_relative_to("/proc")
    try:
        status = os.stat(path, follow_symlinks=is_of_system)
    except FileNotFoundError:
        return False
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, "it is a symbolic link; name the file to which it leads")
    if stat.S_ISBLK(status.st_mode):
        raise OSError(errno.EISDIR, "it is a block device")
    if stat.S_ISREG(status.st_mode) and not is_of_system:
        return False
    if is_of_system:
        follow = 0
    else:
        follow = os.O_NOFOLLOW
    descriptor = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC | follow)
    with open(descriptor, "wb", buffering=0) as file:
        opened = os.fstat(descriptor)
        if not os.path.samestat(opened, status):
            raise OSError(errno.EAGAIN, "it was replaced while it was opened")
        if stat.S_ISREG(opened.st_mode):
            os.ftruncate(descriptor, 0)
        rest = memoryview(content)
        while rest:
            rest = rest[file.write(rest) or 0 :]
    return True
