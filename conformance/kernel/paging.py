"""Queries, removes and moves pages of this process's memory with functions of libc. Addresses are numbers, and sizes
are in bytes. execution/memory_events.py has the steps of cases that call these functions."""

import ctypes
import mmap
import os
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from conformance.errors import HostLacks
from conformance.kernel.child import fork

# Values of the advice argument of madvise(2), by the names of model.memory_kinds.DISCARDS.
_ADVICE = {"DONTNEED": 4, "REMOVE": 9, "PAGEOUT": 21}
_PAGEMAP_ENTRY = 8  # bytes of a page in /proc/self/pagemap
_PRESENT = 63  # the number of a bit of such an entry
_MAYMOVE, _FIXED = 1, 2
_RESERVATION = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x100000  # MAP_FIXED_NOREPLACE
_FAILED = ctypes.c_void_p(-1).value

libc = ctypes.CDLL(None, use_errno=True)
libc.mremap.restype = ctypes.c_void_p
libc.mremap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_void_p,
)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)
libc.madvise.argtypes = libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
libc.read.argtypes = libc.write.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


def advise(addr: int, size: int, how: str) -> None:
    """Calls madvise(2) with the advice `how`, one of memory_kinds.DISCARDS. Raises OSError."""
    _check(libc.madvise(addr, _whole_pages(size), _ADVICE[how]) == 0, how)


def page_out(addr: int, size: int) -> bool:
    """Swaps pages out. Returns False if a page remains in memory. Raises OSError."""
    advise(addr, size, "PAGEOUT")
    return in_core(addr, size)[0] == 0


def move(addr: int, size: int, place: int) -> None:
    """Moves a mapping to the address `place`, and replaces any mapping at this address. Raises OSError. Then reserves
    the old range without access. If a new mapping were in the old range, a request with the old address would access
    the new mapping."""
    length = _whole_pages(size)
    _move(addr, length, place)
    _check(libc.mmap(addr, length, 0, _RESERVATION, -1, 0) == addr, "mmap")


def _move(addr: int, length: int, place: int) -> None:
    _check(libc.mremap(addr, length, length, _MAYMOVE | _FIXED, place) != _FAILED, "mremap")


@contextmanager
def absent(addr: int, size: int) -> Iterator[None]:
    """In the block, nothing is mapped in a range; then the mapping is there again. Raises OSError."""
    length = _whole_pages(size)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    place = libc.mmap(None, length, 0, flags, -1, 0)
    _move(addr, length, place)
    try:
        yield
    finally:
        _move(place, length, addr)


def protect(addr: int, size: int, readable: bool = True) -> None:
    """Makes memory read-only, or without any access. Raises OSError."""
    _change(addr, size, mmap.PROT_READ if readable else 0)


def unprotect(addr: int, size: int) -> None:
    """Makes memory readable and writable again. Raises OSError."""
    _change(addr, size, mmap.PROT_READ | mmap.PROT_WRITE)


def _change(addr: int, size: int, protection: int) -> None:
    _check(libc.mprotect(addr, _whole_pages(size), protection) == 0, "mprotect")


def in_core(addr: int, size: int) -> tuple[int, int]:
    """Returns the number of pages of a range that are in memory, and the number of all its pages. Raises OSError."""
    pages = -(-size // mmap.PAGESIZE)
    vector = (ctypes.c_ubyte * pages)()
    _check(libc.mincore(addr, size, vector) == 0, "mincore")
    return sum(page & 1 for page in vector), pages


def mapped(addr: int, size: int) -> tuple[int, int]:
    """Returns the number of pages of a range that are in the page table of this process, and the number of all its
    pages."""
    first, last = addr // mmap.PAGESIZE, (addr + size - 1) // mmap.PAGESIZE
    with open("/proc/self/pagemap", "rb") as pagemap:
        pagemap.seek(first * _PAGEMAP_ENTRY)
        entries = array("Q", pagemap.read((last - first + 1) * _PAGEMAP_ENTRY))
    return sum(entry >> _PRESENT for entry in entries), last - first + 1


def own_pages(addr: int, size: int) -> tuple[int, int]:
    """Returns the number of this process's own pages in a private mapping, and the number of all its pages. Pages that
    were only read are mapped to the shared page of zeros, which is not an own page."""
    own_bytes = sum(int(words[0]) << 10 for _, words in _mapped(addr, size, "Anonymous:"))
    return own_bytes // mmap.PAGESIZE, -(-size // mmap.PAGESIZE)


def in_huge_pages(addr: int, size: int) -> bool:
    """Whether a part of a range is in transparent huge pages."""
    return any(int(words[0]) for _, words in _mapped(addr, size, "AnonHugePages:"))


def mappings(addr: int, size: int) -> int:
    """Returns the number of mappings that contain a part of a range."""
    return len(_mapped(addr, size, "VmFlags:"))


def mapping_of(name: str) -> int:
    """Returns the address of a mapping by its name in /proc/self/maps. Raises HostLacks if there is no such mapping."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith(name):
            return int(line.partition("-")[0], 16)
    raise HostLacks(
        f"this process has no mapping {name}",
        "run the suite on a kernel that has this mapping",
    )


def kept_from_children(addr: int) -> bool:
    """Whether a forked child does not inherit the page at an address: the flag `dc` of its mapping in smaps."""
    return bool(_kept(addr, 1))


def inherited(addr: int, size: int) -> tuple[int, int]:
    """Returns the number of pages of a writable range that a forked child inherits, and the number of all its pages.
    The child tries to read a byte of each page. The first number is -1 if the flags of the mappings in smaps contradict
    what the child can read. Raises OSError."""
    pages = range(addr - addr % mmap.PAGESIZE, addr + size, mmap.PAGESIZE)

    def copy(report: Callable[[bytes], object], wait: object) -> None:
        reader, writer = os.pipe()
        report(
            b"%d"
            % sum(libc.write(writer, page, 1) == 1 == libc.read(reader, page, 1) for page in pages),
        )

    child = fork(copy)
    report_here = child.report()
    child.end()
    kept_pages = _kept(addr, size)
    expected = len(pages)
    for page in pages:
        expected -= any(page in mapping for mapping in kept_pages)
    return (expected if report_here == str(expected).encode() else -1), len(pages)


def _kept(addr: int, size: int) -> list[range]:
    """Returns the mappings that have bytes of the range and that a forked child does not inherit."""
    return [mapping for mapping, words in _mapped(addr, size, "VmFlags:") if "dc" in words]


def _mapped(addr: int, size: int, field: str) -> list[tuple[range, list[str]]]:
    """Returns each mapping in /proc/self/smaps that has bytes of a range: its addresses and the words of a field."""
    areas = []
    with open("/proc/self/smaps") as smaps:
        for line in smaps:
            # the first line; the other lines begin with a capital letter
            if line[0] in "0123456789abcdef":
                mapping = range(*(int(part, 16) for part in line.partition(" ")[0].split("-")))
                if mapping.start >= addr + size:
                    break
            elif addr < mapping.stop and line.startswith(field):
                areas.append((mapping, line.split()[1:]))
    return areas


def _check(done: bool, what: str) -> None:
    if not done:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def _whole_pages(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
