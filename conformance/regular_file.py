"""Reads files that a user has named or a different machine has written, and writes files into directories that other
users could have prepared. Reads only regular files of bounded size; therefore a read never waits for a FIFO or a device,
and never exhausts the memory. A write replaces whatever has the name of the file, also a link or a device. Every write
goes through a descriptor of its directory, which a command opens only once: see `holding_folders`."""

from __future__ import annotations

import errno
import io
import os
import re
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

# the maximum size of any file of a run; the results of a default run have 4 MB
MOST_BYTES = 256 << 20
_PARTIAL = re.compile(r"\.[0-9]+-[0-9a-f]+\.partial")
_BEGINNING = 1 << 16  # the most bytes of a file by which the suite knows its own files
XZ = b"\xfd7zXZ\0"  # how packed files begin
_MEMORY = 128 << 20  # of xz; its highest level needs 65 MiB


def is_there(path: Path) -> bool:
    """Whether a file, a directory or a link has this path. Raises OSError if this user may not know it, where
    os.path.lexists returns False."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def read_regular(path: Path, most: int = MOST_BYTES) -> bytes:
    """Returns the content of a regular file of at most `most` bytes. Raises OSError, with the reason in `strerror`,
    also if the file is not regular or is larger (EFBIG)."""
    with open_regular(path) as file:
        return content_of(file, path, most)


def beginning_of(path: Path) -> bytes:
    """Returns the beginning of a regular file; of a file that xz has packed, whatever its name, that of the unpacked
    content. Raises OSError."""
    with open_regular(path) as file:
        content = file.read(_BEGINNING)
    if not content.startswith(XZ):
        return content
    import lzma  # imported late: few files are packed

    try:
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, _MEMORY).decompress(content, _BEGINNING)
    except lzma.LZMAError:
        return content


def content_of(file: IO[bytes], path: Path, most: int) -> bytes:
    """Returns the content of an opened file of at most `most` bytes. Raises OSError if it is larger (EFBIG)."""
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


def open_regular(path: Path) -> io.BufferedReader:
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
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_MOST_LINKS = 40  # in one path, as for the kernel
# The directories that this process has written into, with a descriptor of each; None outside of `holding_folders`.
_held: dict[Path, int] | None = None
_staying: set[Path] = set()


@contextmanager
def holding_folders() -> Iterator[None]:
    """Within the block, each directory is opened at the first write into it. A later write fails if a different
    directory has its path by then: another user could have exchanged the directory, or one above it."""
    global _held
    before, _held = _held, {}
    try:
        yield
    finally:
        for folder in _held.values():
            os.close(folder)
        _held = before


@contextmanager
def must_stay(folder: Path) -> Iterator[None]:
    """Within the block, a write into this directory fails if it was removed, and does not make it again."""
    path = folder.absolute()
    _staying.add(path)
    try:
        yield
    finally:
        _staying.discard(path)


@contextmanager
def open_folder(path: Path, names: Sequence[str] = ()) -> Iterator[int]:
    """Yields a descriptor of the directory at `path` or, with `names`, of the directory below it. Missing directories
    are created. `path` may have links that this user or root has made; a directory below it may not be a link. Raises
    OSError."""
    folder = _of_path(path.absolute())
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


def _of_path(path: Path) -> int:
    """Returns a new descriptor of the directory at an absolute path."""
    folder = _held.get(path) if _held is not None else None
    if path in _staying and not path.is_dir():
        raise OSError(errno.ESTALE, f"the directory {path} was removed")
    if folder is not None and os.fstat(folder).st_nlink:  # a removed directory has no name
        if not path.is_dir() or not os.path.samestat(path.stat(), os.fstat(folder)):
            reason = f"the directory {path} was exchanged while this command wrote into it"
            raise OSError(errno.ESTALE, reason)
        return os.dup(folder)
    folder = _walked(path)
    if _held is not None:
        for old, descriptor in list(_held.items()):  # a run has many temporary directories
            if not os.fstat(descriptor).st_nlink:
                os.close(_held.pop(old))
        _held[path] = os.dup(folder)
    return folder


def _walked(path: Path) -> int:
    """Opens each directory of an absolute path in the one before it, and creates it if it is missing. Another user could
    have made a link, also while this function runs; therefore only links of this user and of root are followed."""
    rest = list(reversed(path.parts[1:]))
    links = 0
    folder = os.open("/", os.O_PATH | _FOLDER)
    try:
        while rest:
            name = rest.pop()
            try:
                below = os.open(name, os.O_PATH | os.O_NOFOLLOW | _FOLDER, dir_fd=folder)
            except FileNotFoundError:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=folder)
                rest.append(name)
                continue
            except NotADirectoryError:
                target = _target(folder, name)
                links += 1
                if links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
                rest += reversed([part for part in target.parts if part != "/"])
                if not target.is_absolute():
                    continue
                below = os.open("/", os.O_PATH | _FOLDER)
            os.close(folder)
            folder = below
        return os.open(".", _FOLDER, dir_fd=folder)
    finally:
        os.close(folder)


def _target(folder: int, name: str) -> Path:
    """Returns the target of a link. Raises OSError if it is not a link, or if another user has made it."""
    status = os.lstat(name, dir_fd=folder)
    if not stat.S_ISLNK(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if status.st_uid not in (0, os.geteuid()):
        reason = f"{name} is a symbolic link of another user; name the directory to which it leads"
        raise OSError(errno.ELOOP, reason)
    return Path(os.readlink(name, dir_fd=folder))


def _opened_below(folder: int, name: str) -> int:
    try:
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    except NotADirectoryError as error:
        if stat.S_ISLNK(os.lstat(name, dir_fd=folder).st_mode):
            raise OSError(errno.ELOOP, f"its directory {name} is a symbolic link") from error
        raise


def open_below(path: Path, flags: int, mode: int = 0o644) -> int:
    """Returns a descriptor of the file at `path`, opened in its directory, which is created if necessary. Raises
    OSError, also if `path` is a link."""
    with open_folder(path.parent) as folder:
        return opened_in(folder, path.name, flags, mode)


def opened_in(folder: int, name: str, flags: int, mode: int = 0o644) -> int:
    """Returns a descriptor of a file of an opened directory. Raises OSError, also if the file is a link."""
    return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=folder)


def is_partial(name: str) -> bool:
    """Whether `write_whole` gives this name to a file that is not complete."""
    return _PARTIAL.fullmatch(name) is not None


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
            with open(opened_in(folder, partial, _NEW_FILE, mode), "wb") as file:
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
    """Removes the file or the directory `name` below a directory, if it is there. No link in the name is followed.
    Raises OSError."""
    *names, last = name.split("/")
    with suppress(FileNotFoundError), open_folder(folder, names) as place:
        try:
            os.unlink(last, dir_fd=place)
        except IsADirectoryError:
            _remove_tree(last, place)


def _remove_tree(name: str, place: int) -> None:
    """Removes a directory with its content. `rmtree` has a descriptor of the place only since Python 3.11."""
    for _, folders, files, within in os.fwalk(name, topdown=False, dir_fd=place):
        for file in files:
            os.unlink(file, dir_fd=within)
        for folder in folders:
            try:
                os.rmdir(folder, dir_fd=within)
            except NotADirectoryError:  # a link to a directory
                os.unlink(folder, dir_fd=within)
    os.rmdir(name, dir_fd=place)


def _is_of_system(path: Path) -> bool:
    folder = Path(os.path.realpath(path.parent))
    return folder == Path("/dev") or folder.is_relative_to("/proc")


def writable_status(path: Path) -> os.stat_result | None:
    """Returns the status of the file that a write to `path` replaces or opens; None if there is no file. Raises OSError
    for a directory, a block device, and a link that `write_special` does not follow."""
    try:
        status = os.stat(path, follow_symlinks=_is_of_system(path))
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, "it is a symbolic link; name the file to which it leads")
    if stat.S_ISBLK(status.st_mode):
        raise OSError(errno.EISDIR, "it is a block device")
    if stat.S_ISDIR(status.st_mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    return status


def write_special(path: Path, content: bytes) -> bool:
    """Writes into the FIFO or the character device at `path`. Returns False if there is a regular file or nothing. Only
    links of the kernel and of root in /dev and /proc, such as /dev/stdout, are followed. Raises OSError for any other
    link, for a directory and for a block device."""
    status = writable_status(path)
    if status is None or (stat.S_ISREG(status.st_mode) and not _is_of_system(path)):
        return False
    if _is_of_system(path):
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
