"""The memory that the reference device accesses, which is real memory of this process. Kinds of memory that a host may
not have, such as huge pages, persistent memory and dma-bufs, are simulated: the reference allocates ordinary memory,
and records the kind that the memory simulates."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from conformance.device import memory
from conformance.kernel.paging import libc

PAGE = mmap.PAGESIZE
HUGEPAGE = 2 << 20
SPACE = 1 << 64
_STRETCH = 1 << 20
_POPULATE_READ, _POPULATE_WRITE = 22, 23  # for madvise, since Linux 5.14

libc.pread.argtypes = libc.pwrite.argtypes = (
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_long,
)
libc.pread.restype = libc.pwrite.restype = ctypes.c_ssize_t


@dataclass
class Range:
    """A range of memory allocated for a case. `close` frees the range and removes it from the reference's records. A
    simulated dma-buf is the mapping of an anonymous file with the descriptor `fd`."""

    addr: int
    size: int
    forget: Callable[[], None]
    fd: int = -1
    revoked: bool = False  # a dma-buf that its exporter has revoked

    def close(self) -> None:
        self.forget()


class Memory:
    def __init__(self) -> None:
        self._scratch = os.memfd_create("rdma-cts-reference")
        self._special: dict[str, list[tuple[int, int]]] = {}
        self._buffers: dict[tuple[int, int], Range] = {}

    def close(self) -> None:
        os.close(self._scratch)

    def allocate(self, kind: str, size: int) -> Range:
        """Returns memory of a kind in memory_kinds.MEMORY_KINDS. The kinds in _SIMULATED are simulated."""
        simulated = kind in _SIMULATED
        if kind == "huge":
            unit = HUGEPAGE
        else:
            unit = PAGE
        rounded = max(1, -(-size // unit)) * unit
        area = memory.allocate(
            "anonymous" if simulated else kind,
            rounded + unit if kind == "huge" else size,
        )
        if kind == "huge":
            addr = -(-area.addr // unit) * unit
        else:
            addr = area.addr
        extent = (addr, addr + rounded)
        if simulated:
            self._special.setdefault(kind, []).append(extent)

        def forget() -> None:
            area.close()
            if simulated and extent in self._special[kind]:
                self._special[kind].remove(extent)

        return Range(addr, size, forget)

    def dmabuf(self, size: int) -> Range:
        """Returns a simulated dma-buf of at least `size` bytes."""
        rounded = -(-size // PAGE) * PAGE
        fd = os.memfd_create("rdma-cts-dmabuf", os.MFD_CLOEXEC)
        os.ftruncate(fd, rounded)
        addr = memory.map_file(fd, rounded)
        name = _file_of(fd)

        def forget() -> None:
            if self._buffers.pop(name, None):
                memory.unmap(addr, rounded)
                with suppress(OSError):  # the case may have closed this descriptor
                    os.close(fd)

        self._buffers[name] = buffer = Range(addr, rounded, forget, fd)
        return buffer

    def dmabuf_of(self, fd: int) -> Range | None:
        """Returns the dma-buf of a descriptor, or None if the file is not a dma-buf. Raises OSError."""
        return self._buffers.get(_file_of(fd))

    def is_open(self, fd: int) -> bool:
        try:
            os.fstat(fd)
        except OSError:
            return False
        return True

    def in_dmabuf(self, addr: int) -> bool:
        return any(
            buffer.addr <= addr < buffer.addr + buffer.size for buffer in self._buffers.values()
        )

    def is_special(self, kind: str, addr: int, length: int) -> bool:
        """Returns whether a range is in memory that was allocated as `kind`, which is `huge` or `persistent`."""
        return any(
            start <= addr and addr + length <= end for start, end in self._special.get(kind, ())
        )

    def fault_in(self, addr: int, length: int, write: bool) -> bool:
        """Faults in the pages of a range, as pinning does. Returns False if a page does not permit the access. If the
        kernel cannot populate the pages, the range is written to a file and, if `write`, read back from the file."""
        first = addr & -PAGE
        if not libc.madvise(
            first,
            addr + length - first,
            _POPULATE_WRITE if write else _POPULATE_READ,
        ):
            return True
        for start in range(addr, addr + length, _STRETCH):
            size = min(_STRETCH, addr + length - start)
            if libc.pwrite(self._scratch, start, size, 0) != size:
                return False
            if write and libc.pread(self._scratch, start, size, 0) != size:
                return False
        return True

    def read(self, addr: int, length: int) -> bytes | None:
        """Returns the bytes of a range, or None if a page cannot be read."""
        if not length:
            return b""
        if self.fault_in(addr, length, write=False):
            return ctypes.string_at(addr, length)
        return None

    def write(self, addr: int, content: bytes) -> bool:
        """Writes bytes. If a page of the range cannot be written, writes nothing and returns False."""
        if not self.fault_in(addr, len(content), write=True):
            return False
        ctypes.memmove(addr, content, len(content))
        return True


# The simulated kinds of memory, which a host may not have.
_SIMULATED = (
    *("huge", "partly_huge", "persistent", "partly_persistent", "transparent", "secret", "clock"),
    "bar",
)


def _file_of(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino
