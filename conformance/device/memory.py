"""Allocates memory of every kind that a case can request; most kinds have inaccessible guard pages on both sides. Also
creates real dma-bufs without a GPU, with /dev/udmabuf or the system's dma-buf heap. Uses libc's mmap, because Python's
mmap module cannot create holes and does not return addresses."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import re
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from conformance.device import exporter, persistent
from conformance.errors import HostLacks
from conformance.kernel import paging
from conformance.kernel.machine_numbers import iow, map_noreserve

PAGE = mmap.PAGESIZE
REPEATED_PAGES = 1031
_TEST_DEVICE = ["0x1b36", "0x0005"]  # the vendor id and the device id of pci-testdev
_NONE, _READ, _WRITE = 0, mmap.PROT_READ, mmap.PROT_WRITE
_MAP_FIXED, _MAP_HUGETLB, _MAP_FIXED_NOREPLACE = 0x10, 0x40000, 0x100000
_MAP_NORESERVE = map_noreserve()
_MADV_HUGEPAGE, _MEMFD_SECRET = 14, 447
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_FAILED = ctypes.c_void_p(-1).value

_UDMABUF, _HEAP = Path("/dev/udmabuf"), Path("/dev/dma_heap/system")
_UDMABUF_CREATE = iow("u", 0x42, 24)  # struct udmabuf_create of <linux/udmabuf.h>
_HEAP_ALLOC = 0xC0184800  # _IOWR('H', 0, struct dma_heap_allocation_data), <linux/dma-heap.h>
_CLOEXEC = 1

_libc = paging.libc
_libc.munmap.argtypes = _libc.mlock.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


def hugepage_size() -> int:
    """Returns the system's default size of huge pages in bytes, or 2 MiB if the kernel does not report a size."""
    match = re.search(
        r"^Hugepagesize:\s+([0-9]+) kB",
        Path("/proc/meminfo").read_text(),
        re.MULTILINE,
    )
    if match:
        return int(match[1]) * 1024
    return 2 << 20


@dataclass
class Memory:
    """A range of `size` bytes at `addr`. `mapped` is the mapping to remove, as (address, bytes), or None. `fd` is the
    file descriptor of a dma-buf, or a descriptor with a lock on the memory, or -1."""

    addr: int
    size: int
    mapped: tuple[int, int] | None
    fd: int = -1

    def close(self) -> None:
        """Unmaps the range and its guards, and closes the descriptor. Further calls do nothing, because the addresses
        may then belong to a new mapping."""
        if self.mapped:
            _libc.munmap(*self.mapped)
            self.mapped = None
            if self.fd >= 0:
                os.close(self.fd)


def _map(
    addr: int | None,
    size: int,
    protection: int,
    flags: int,
    fd: int = -1,
    offset: int = 0,
) -> int:
    address = _libc.mmap(addr, size, protection, flags, fd, offset)
    if address in (None, _FAILED):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(address)


def map_file(fd: int, size: int) -> int:
    """Maps a file for reading and writing. Returns the address. Raises OSError."""
    return _map(None, size, _READ | _WRITE, mmap.MAP_SHARED, fd)


def unmap(addr: int, size: int) -> None:
    _libc.munmap(addr, size)


def _reserve(size: int, alignment: int) -> tuple[int, tuple[int, int]]:
    """Reserves `size` aligned bytes between guard pages. Returns their address, and (address, bytes) of the whole
    mapping."""
    total = size + 2 * alignment + PAGE
    base = _map(None, total, _NONE, _PRIVATE | _MAP_NORESERVE)
    inner = (base + PAGE + alignment - 1) // alignment * alignment
    return inner, (base, total)


def _private(protection: int) -> Callable[[int, int], None]:
    def fill(addr: int, size: int) -> None:
        _untouched(addr, size)
        # without a write, read-only memory would be the shared zero page
        ctypes.memset(addr, 0, size)
        _libc.mprotect(addr, size, protection)

    return fill


def _untouched(addr: int, size: int, flags: int = 0) -> None:
    _map(addr, size, _READ | _WRITE, _PRIVATE | _MAP_FIXED | flags)


def _repeated(addr: int, size: int) -> None:
    """Maps the same file many times at adjacent addresses. The file has a prime number of pages. If a driver loses
    upper bits of an address, the shortened address is therefore in a different page of the file."""
    period = REPEATED_PAGES * PAGE
    fd = os.memfd_create("rdma-cts")
    try:
        os.ftruncate(fd, period)
        for start in range(0, size, period):
            _map(
                addr + start,
                min(period, size - start),
                _READ | _WRITE,
                mmap.MAP_SHARED | _MAP_FIXED,
                fd,
            )
    finally:
        os.close(fd)


def _hole(addr: int, size: int) -> None:
    _untouched(addr, size)
    _libc.munmap(addr + PAGE, PAGE)


def _writable_start(addr: int, size: int) -> None:
    _private(_READ | _WRITE)(addr, size)
    _libc.mprotect(addr + PAGE, size - PAGE, _READ)


def _huge(addr: int, size: int) -> None:
    try:
        _untouched(addr, size, _MAP_HUGETLB)
    except OSError as error:
        hint = "reserve huge pages: sysctl vm.nr_hugepages=16"
        raise HostLacks(
            f"this host has no {size} bytes of huge pages ({error.strerror})",
            hint,
        ) from error


def _partly_huge(addr: int, size: int) -> None:
    unit = hugepage_size()
    _huge(addr, unit)
    _private(_READ | _WRITE)(addr + unit, size - unit)


def _transparent(addr: int, size: int) -> None:
    """Raises HostLacks if the kernel does not use a huge page for this range."""
    _untouched(addr, size)
    _libc.madvise(addr, size, _MADV_HUGEPAGE)
    ctypes.memset(addr, 0, size)
    if not paging.in_huge_pages(addr, size):
        raise HostLacks(
            "this kernel used no transparent huge page",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        )


def _locked(addr: int, size: int) -> None:
    _untouched(addr, size)
    if _libc.mlock(addr, size):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _of_file(open_file: Callable[[], int]) -> Callable[[int, int], None]:
    def fill(addr: int, size: int) -> None:
        fd = open_file()
        try:
            os.ftruncate(fd, size)
            _map(addr, size, _READ | _WRITE, mmap.MAP_SHARED | _MAP_FIXED, fd)
        finally:
            os.close(fd)

    return fill


def _open_file() -> int:
    """Returns a descriptor of a file without a name, in the directory for temporary files."""
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _open_secret() -> int:
    fd = int(_libc.syscall(_MEMFD_SECRET, 0))
    if fd < 0:
        raise HostLacks(
            "this kernel has no memfd_secret",
            "boot the kernel with secretmem.enable=1",
        )
    return fd


_FILL: dict[str, Callable[[int, int], None]] = {
    "anonymous": _private(_READ | _WRITE),
    "read_only": _private(_READ),
    "writable_start": _writable_start,
    "no_access": _private(_NONE),
    "unmapped": unmap,
    "untouched": _untouched,
    "sparse": lambda addr, size: _untouched(addr, size, _MAP_NORESERVE),
    "repeated": _repeated,
    "hole": _hole,
    "shared": _of_file(lambda: os.memfd_create("rdma-cts")),
    "file": _of_file(_open_file),
    "secret": _of_file(_open_secret),
    "locked": _locked,
    "transparent": _transparent,
    "huge": _huge,
    "partly_huge": _partly_huge,
}


def allocate(kind: str, size: int) -> Memory:
    """Allocates memory of `kind`, one of memory_kinds.MEMORY_KINDS, `size` bytes rounded up to whole pages. Raises
    HostLacks if this host has no free memory of that kind, and OSError for other failures."""
    if kind.endswith("persistent"):
        return _persistent(size, between=kind != "persistent")
    if kind == "clock":
        return Memory(paging.mapping_of("[vvar]"), size, None)
    if kind == "bar":
        return _bar(size)
    if kind in ("huge", "partly_huge", "transparent"):
        unit = hugepage_size()
    else:
        unit = PAGE
    rounded = max(1, -(-size // unit)) * unit
    addr, mapped = _reserve(rounded, unit)
    try:
        _FILL[kind](addr, rounded)
    except BaseException:
        _libc.munmap(*mapped)
        raise
    return Memory(addr, size, mapped)


def allocate_at(addr: int, size: int) -> Memory:
    """Allocates at least `size` bytes of anonymous memory at an address. Raises OSError if the range is in use."""
    rounded = max(1, -(-size // PAGE)) * PAGE
    address = _map(addr, rounded, _READ | _WRITE, _PRIVATE | _MAP_FIXED_NOREPLACE)
    memory = Memory(address, size, (address, rounded))
    if address != addr:  # a kernel without MAP_FIXED_NOREPLACE treats the address as a hint
        memory.close()
        raise FileExistsError(errno.EEXIST, f"the memory at {addr:#x} is in use")
    return memory


def _bar(size: int) -> Memory:
    """Maps the first BAR of QEMU's pci-testdev. No driver uses the registers in this BAR."""
    for device in Path("/sys/bus/pci/devices").glob("*"):
        if [(device / name).read_text().strip() for name in ("vendor", "device")] == _TEST_DEVICE:
            fd = os.open(device / "resource0", os.O_RDWR | os.O_CLOEXEC)
            try:
                addr = map_file(fd, PAGE)
            finally:
                os.close(fd)
            return Memory(addr, size, (addr, PAGE))
    raise HostLacks(
        "this machine has no pci-testdev",
        "add the device: qemu-system-x86_64 -device pci-testdev",
    )


def _persistent(size: int, between: bool) -> Memory:
    """Maps memory of the device in RDMA_CTS_PMEM for reading and writing; or `between` two ordinary pages, so that the
    memory has whole units of the device and two pages."""
    device = persistent.device()
    if device is None:
        raise HostLacks(
            "no persistent memory was specified",
            f"specify a device DAX in {persistent.VARIABLE}",
        )
    unit = max(PAGE, device.alignment)
    rounded = max(1, -(-size // unit)) * unit
    fd, offset = device.lock(rounded)
    addr, mapped = _reserve(rounded + between * unit, unit)
    memory = Memory(addr, size, mapped, fd)
    if between:
        addr += unit
        memory = Memory(addr - PAGE, rounded + 2 * PAGE, mapped, fd)
    try:
        if between:
            _untouched(memory.addr, PAGE)
            _untouched(addr + rounded, PAGE)
        _map(addr, rounded, _READ | _WRITE, mmap.MAP_SHARED | _MAP_FIXED, fd, offset)
        ctypes.memset(memory.addr, 0, memory.size)
    except BaseException:
        memory.close()
        raise
    return memory


def _udmabuf(size: int) -> int:
    file = os.memfd_create("rdma-cts", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(file, size)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)  # udmabuf requires this seal
        with _UDMABUF.open("rb", buffering=0) as device:
            # The ioctl returns the new descriptor. Python returns the ioctl's value only if the buffer is mutable.
            return int(
                fcntl.ioctl(
                    device,
                    _UDMABUF_CREATE,
                    bytearray(struct.pack("=IIQQ", file, _CLOEXEC, 0, size)),
                ),
            )
    finally:
        os.close(file)


def _system_heap(size: int) -> int:
    with _HEAP.open("rb", buffering=0) as device:
        allocation = fcntl.ioctl(
            device,
            _HEAP_ALLOC,
            struct.pack("=QIIQ", size, 0, os.O_RDWR | os.O_CLOEXEC, 0),
        )
    return int(struct.unpack("=QIIQ", allocation)[1])


# For each kind of dma-buf: the device, the function that creates the dma-buf, and the kernel's option.
_MAKE: dict[str, tuple[Path, Callable[[int], int], str]] = {
    "udmabuf": (_UDMABUF, _udmabuf, "CONFIG_UDMABUF"),
    "system_heap": (_HEAP, _system_heap, "CONFIG_DMABUF_HEAPS_SYSTEM"),
    "movable": (exporter.DEVICE, exporter.create, "the module rdma_cts_exporter"),
}


def allocate_dmabuf(kind: str, size: int) -> Memory:
    """Returns a mapped dma-buf of `kind`, one of memory_kinds.DMABUF_KINDS, `size` bytes rounded up to whole pages.
    Raises HostLacks if this kernel cannot create dma-bufs of that kind."""
    device, make, option = _MAKE[kind]
    rounded = -(-size // PAGE) * PAGE
    try:
        fd = make(rounded)
        addr = map_file(fd, rounded)
    except OSError as error:
        hint = f"modprobe {kind}, on a kernel with {option}, as root or with permission to open {device}"
        raise HostLacks(
            f"this host cannot create dma-bufs with {device} ({error.strerror})",
            hint,
        ) from error
    return Memory(addr, rounded, (addr, rounded), fd)
