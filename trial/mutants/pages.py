"""Has classes and functions for mutants about pages: memory that cannot be registered, pages of on-demand regions, and
pages after a fork."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path
from typing import NamedTuple

from conformance.kernel.paging import libc
from trial.reference.device import Device
from trial.reference.memory import PAGE, Memory
from trial.reference.objects import ON_DEMAND, REMOTE_ATOMIC, REMOTE_READ, Domain, Region
from trial.reference.reregistration import CHANGE_ACCESS, CHANGE_TRANSLATION

_MADV_SEQUENTIAL = 2

# Memory that cannot be registered


class UncheckedMemory(Device):
    """Does not check the memory if a re-registration changes the access and not the translation."""

    def change_fault(self, addr: int, length: int, access: int, flags: int) -> int:
        """Returns the errno with which a change is refused, or 0."""
        if flags & CHANGE_TRANSLATION or not flags & CHANGE_ACCESS:
            return super().change_fault(addr, length, access, flags)
        return self.access_fault(access)


def forced(addr: int, content: bytes) -> bool:
    """Writes to protected memory of this process; returns whether all bytes were written."""
    try:
        memory = os.open("/proc/self/mem", os.O_RDWR)
        try:
            return os.pwrite(memory, content, addr) == len(content)
        finally:
            os.close(memory)
    except (OSError, OverflowError):
        return False


def make_writable(addr: int, length: int) -> None:
    """Makes the pages of a range readable and writable."""
    start = addr // PAGE * PAGE
    libc.mprotect(start, addr + length - start, mmap.PROT_READ | mmap.PROT_WRITE)


# Accesses that use other memory than the region's


class Use(NamedTuple):
    """One access to a region; `addr` is the address of the first accessed byte in this process."""

    addr: int
    length: int
    writes: bool
    atomic: bool


class Placing(Device):
    """Chooses the address of each permitted access to a region."""

    def setup(self) -> None:
        self.kept: list[object] = []  # memory that only the device uses

    def remote(
        self,
        rkey: int,
        domain: Domain,
        queue: int,
        addr: int,
        length: int,
        right: int,
    ) -> int | None:
        target = super().remote(rkey, domain, queue, addr, length, right)
        return self.seen(
            self.found(rkey),
            target,
            length,
            right != REMOTE_READ,
            right == REMOTE_ATOMIC,
        )

    def local(self, lkey: int, domain: Domain, addr: int, length: int, write: bool) -> int | None:
        return self.seen(
            self.found(lkey),
            super().local(lkey, domain, addr, length, write),
            length,
            write,
            False,
        )

    def seen(
        self,
        region: object,
        found: int | None,
        length: int,
        writes: bool,
        atomic: bool,
    ) -> int | None:
        """Returns the address for an access to a region. The access is permitted if `found` is an address."""
        permitted = found is not None and isinstance(region, Region)
        return self.placed(Use(found, length, writes, atomic), region) if permitted else found  # type: ignore[arg-type]

    def placed(self, use: Use, region: Region) -> int | None:
        """Returns the address that the device uses, or None to refuse the access."""
        raise NotImplementedError

    def elsewhere(self, content: bytes) -> int:
        """Returns the address of memory that only the device uses, with these contents."""
        buffer = ctypes.create_string_buffer(content, len(content))
        self.kept.append(buffer)
        return ctypes.addressof(buffer)


class AfterFork(Placing):
    """While the process has a child, accesses to pinned regions use the addresses that `stale` returns."""

    def placed(self, use: Use, region: Region) -> int | None:
        pinned = not region.access & ON_DEMAND
        forked = pinned and Path(f"/proc/self/task/{os.getpid()}/children").read_text()
        if forked:
            return self.stale(use)
        return use.addr

    def stale(self, use: Use) -> int:
        """Returns the address that the device uses for an access after a fork."""
        raise NotImplementedError


def set_apart(addr: int) -> None:
    """Makes the page of an address a separate mapping, by a madvise of only this page."""
    libc.madvise(addr // PAGE * PAGE, PAGE, _MADV_SEQUENTIAL)


class DevicePages(Placing):
    """Records which pages of an on-demand region the device has used, and which of these it has written."""

    def setup(self) -> None:
        super().setup()
        self.uses: dict[int, dict[int, bool]] = {}
        self.copies: dict[tuple[int, int], int] = {}

    def used(self, region: Region) -> dict[int, bool]:
        """Returns, for the address of each used page of a region, whether the page has been written."""
        return self.uses.setdefault(region.handle, {})

    def seen(
        self,
        region: object,
        found: int | None,
        length: int,
        writes: bool,
        atomic: bool,
    ) -> int | None:
        if found is None or not isinstance(region, Region) or not region.access & ON_DEMAND:
            return found
        place = super().seen(region, found, length, writes, atomic)
        for page in self.pages_of(found, length):
            self.used(region)[page] = self.used(region).get(page, False) or writes
        return place

    def pages_of(self, addr: int, length: int) -> range:
        """Returns the addresses of the pages of a range."""
        return range(addr // PAGE * PAGE, addr + length, PAGE)

    def copied(self, use: Use) -> int:
        """Returns the address of a copy of the bytes of an access."""
        return self.elsewhere(self.memory.read(use.addr, use.length) or bytes(use.length))


class Stale(DevicePages):
    """Looks up some pages only once: later reads return the bytes of the lookup, and later writes are lost."""

    def placed(self, use: Use, region: Region) -> int | None:
        page = use.addr // PAGE * PAGE
        if not self.misses(page, region) or use.addr + use.length > page + PAGE:
            return use.addr
        if (region.handle, page) in self.copies:
            return self.copies[region.handle, page] + use.addr - page
        self.copies[region.handle, page] = self.copied(Use(page, PAGE, use.writes, use.atomic))
        return use.addr

    def misses(self, page: int, region: Region) -> bool:
        """Whether the device is not notified when the page is removed."""
        raise NotImplementedError


class RememberingMemory(Memory):
    """If `region` is set, repeated reads of a range return the bytes of the first read, until a write to any range."""

    region = 0

    def __init__(self) -> None:
        super().__init__()
        self._read: dict[tuple[int, int, int], bytes] = {}

    def read(self, addr: int, length: int) -> bytes | None:
        name = (self.region, addr, length)
        if self.region and name in self._read:
            return self._read[name]
        content = super().read(addr, length)
        if content is not None and self.region:
            self._read[name] = content
        return content

    def write(self, addr: int, content: bytes) -> bool:
        self._read.clear()
        return super().write(addr, content)
