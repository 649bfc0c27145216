"""This process's real memory as a device sees it: which of it is there, and the kinds that the reference is told of.

Nothing is simulated but the kinds that a host may lack: huge pages, persistent memory and dma-bufs are ordinary
memory that the reference knows to be such.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fixtures import memory

PAGE = mmap.PAGESIZE
HUGEPAGE = 2 << 20
SPACE = 1 << 64
_STRETCH = 1 << 20

_libc = ctypes.CDLL(None, use_errno=True)
_libc.pread.argtypes = _libc.pwrite.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long)
_libc.pread.restype = _libc.pwrite.restype = ctypes.c_ssize_t


@dataclass
class Range:
    """A range of memory made for a case; closing it gives it back and tells the reference."""

    addr: int
    size: int
    forget: Callable[[], None]

    def close(self) -> None:
        """Gives the memory back."""
        self.forget()


@dataclass
class FileRange:
    """What the reference takes for a dma-buf: an anonymous file and where it is mapped."""

    fd: int
    addr: int
    size: int
    forget: Callable[[], None]

    def close(self) -> None:
        """Unmaps it and closes the descriptor."""
        self.forget()


class Memory:
    """What the reference knows of this process's memory."""

    def __init__(self) -> None:
        self._scratch = os.memfd_create("rdma-cts-reference")
        self._special: dict[str, list[tuple[int, int]]] = {}
        self._buffers: dict[tuple[int, int], FileRange] = {}

    def close(self) -> None:
        """Gives the reference's own file back."""
        os.close(self._scratch)

    def allocate(self, kind: str, size: int) -> Range:
        """Memory of one of language.MEMORY_KINDS; huge pages and persistent memory are said to be such."""
        pretended = kind in _PRETENDED
        unit = HUGEPAGE if kind == "huge" else PAGE
        rounded = max(1, -(-size // unit)) * unit
        made = memory.allocate("anonymous" if pretended else kind, rounded + unit if kind == "huge" else size)
        addr = -(-made.addr // unit) * unit if kind == "huge" else made.addr
        extent = (addr, addr + rounded)
        if pretended:
            self._special.setdefault(kind, []).append(extent)

        def forget() -> None:
            made.close()
            if pretended and extent in self._special[kind]:
                self._special[kind].remove(extent)

        return Range(addr, size, forget)

    def dmabuf(self, size: int) -> FileRange:
        """A dma-buf of the reference's own."""
        rounded = -(-size // PAGE) * PAGE
        fd = os.memfd_create("rdma-cts-dmabuf", os.MFD_CLOEXEC)
        os.ftruncate(fd, rounded)
        addr = memory.map_file(fd, rounded)
        name = _file_of(fd)

        def forget() -> None:
            if self._buffers.pop(name, None):
                memory.unmap(addr, rounded)
                os.close(fd)

        self._buffers[name] = made = FileRange(fd, addr, rounded, forget)
        return made

    def dmabuf_of(self, fd: int) -> FileRange | None:
        """The dma-buf that a descriptor names; None for what is none. Raises OSError for a closed descriptor."""
        return self._buffers.get(_file_of(fd))

    def is_open(self, fd: int) -> bool:
        """Whether a descriptor is open."""
        try:
            os.fstat(fd)
        except OSError:
            return False
        return True

    def in_dmabuf(self, addr: int) -> bool:
        """Whether an address is a dma-buf's."""
        return any(each.addr <= addr < each.addr + each.size for each in self._buffers.values())

    def is_special(self, kind: str, addr: int, length: int) -> bool:
        """Whether a range lies in memory that was allocated as `huge` or `persistent`."""
        return any(start <= addr and addr + length <= end for start, end in self._special.get(kind, ()))

    def fault_in(self, addr: int, length: int, write: bool) -> bool:
        """Makes a range present, as pinning it would; False where some of it is not there or not allowed.

        Its contents go to a file and, for writing, back from there: the kernel itself checks each page.
        """
        for start, size in _stretches(addr, length):
            if _libc.pwrite(self._scratch, start, size, 0) != size:
                return False
            if write and _libc.pread(self._scratch, start, size, 0) != size:
                return False
        return True

    def read(self, addr: int, length: int) -> bytes | None:
        """The bytes of a range; None where some of it is not there."""
        if not length:
            return b""
        return ctypes.string_at(addr, length) if self.fault_in(addr, length, write=False) else None

    def write(self, addr: int, content: bytes) -> bool:
        """Puts bytes there; False, with nothing written, where some of the range is not there."""
        if not self.fault_in(addr, len(content), write=True):
            return False
        ctypes.memmove(addr, content, len(content))
        return True


# Kinds that a host may lack and the reference pretends to have.
_PRETENDED = ("huge", "persistent")


def _file_of(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def _stretches(addr: int, length: int) -> Iterator[tuple[int, int]]:
    for start in range(addr, addr + length, _STRETCH):
        yield start, min(_STRETCH, addr + length - start)
