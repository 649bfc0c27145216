"""Pages of on-demand regions: which ones the device brings in, for what, and when."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

from reference.device import Device
from reference.memory import PAGE
from reference.objects import ON_DEMAND, REMOTE_ATOMIC, REMOTE_READ, Domain, Region
from trial.violation import plain, violates


class _Use(NamedTuple):
    """One access of an on-demand region: its first byte in this process, its length, and what it does."""

    addr: int
    length: int
    writes: bool
    atomic: bool


class _DevicePages(Device):
    """A device that knows which pages of an on-demand region it has used, and whether it has written to them."""

    def setup(self) -> None:
        self.uses: dict[int, dict[int, bool]] = {}
        self.copies: dict[tuple[int, int], int] = {}
        self.kept: list[object] = []

    def used(self, region: Region) -> dict[int, bool]:
        """By address, the pages of a region that have been used, and whether one of the uses was a write."""
        return self.uses.setdefault(region.handle, {})

    def remote(self, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int) -> int | None:
        found = super().remote(rkey, domain, queue, addr, length, right)
        region = self.found(rkey)
        return self._seen(region, found, length, right != REMOTE_READ, right == REMOTE_ATOMIC)

    def local(self, lkey: int, domain: Domain, addr: int, length: int, write: bool) -> int | None:
        return self._seen(self.found(lkey), super().local(lkey, domain, addr, length, write), length, write, False)

    def _seen(self, region: object, found: int | None, length: int, writes: bool, atomic: bool) -> int | None:
        if found is None or not isinstance(region, Region) or not region.access & ON_DEMAND:
            return found
        answer = self.placed(_Use(found, length, writes, atomic), region)
        for page in self.pages_of(found, length):
            self.used(region)[page] = self.used(region).get(page, False) or writes
        return answer

    def pages_of(self, addr: int, length: int) -> range:
        """The addresses of the pages of a range."""
        return range(addr // PAGE * PAGE, addr + length, PAGE)

    def placed(self, use: _Use, region: Region) -> int | None:
        """Where the device finds the bytes; None if it refuses."""
        raise NotImplementedError

    def elsewhere(self, use: _Use) -> int:
        """Memory of the device alone, with what the pages hold now."""
        content = self.memory.read(use.addr, use.length) or bytes(use.length)
        buffer = ctypes.create_string_buffer(content, use.length)
        self.kept.append(buffer)
        return ctypes.addressof(buffer)


@violates("REG-12", _DevicePages.placed)
def read_pages_are_written(self: _DevicePages, use: _Use, region: Region) -> int | None:
    """A page that was brought in to be read is written without another fault: the bytes go to the shared page."""
    read_only = self.used(region).get(use.addr // PAGE * PAGE) is False
    return self.elsewhere(use) if use.writes and read_only else use.addr


@violates("REG-12", _DevicePages.placed)
def first_page_decides(self: _DevicePages, use: _Use, region: Region) -> int | None:
    """Of an operation on two pages only the first is looked at; if that is there, the second has to be there too."""
    pages = self.pages_of(use.addr, use.length)
    there = [page in self.used(region) for page in pages]
    return None if there[0] and not all(there) else use.addr


@violates("REG-12", _DevicePages.placed)
def last_page_decides(self: _DevicePages, use: _Use, region: Region) -> int | None:
    """Of an operation on two pages only the last is looked at; if that is there, the first has to be there too."""
    there = [page in self.used(region) for page in self.pages_of(use.addr, use.length)]
    return None if there[-1] and not all(there) else use.addr


@violates("REG-12", _DevicePages.placed)
def atomics_bring_nothing_in(self: _DevicePages, use: _Use, region: Region) -> int | None:
    """An atomic on a page that the device has not used yet is refused."""
    return None if use.atomic and use.addr // PAGE * PAGE not in self.used(region) else use.addr


@violates("REG-12", _DevicePages.placed)
def atomic_writes_bring_nothing_in(self: _DevicePages, use: _Use, region: Region) -> int | None:
    """A write of eight bytes to a page that the device has not used yet is refused."""
    fresh = use.writes and use.length == 8 and use.addr // PAGE * PAGE not in self.used(region)
    return None if fresh else use.addr


@violates("REG-12", _DevicePages.placed)
def pages_are_brought_in_for_writing(self: _DevicePages, use: _Use, region: Region) -> int | None:
    """A page is brought in for writing also if it is to be read, which fails for read-only memory."""
    return use.addr if self.memory.fault_in(use.addr, use.length, write=True) else None


@violates("REG-12", _DevicePages.placed)
def read_only_memory_is_written_around(self: _DevicePages, use: _Use, region: Region) -> int | None:
    """A write to memory that the process may only read succeeds, and goes to a page of the device."""
    writable = self.memory.fault_in(use.addr, use.length, write=True)
    return use.addr if writable or not use.writes else self.elsewhere(use)


class _Stale(_DevicePages):
    """A page that was used once is not looked for any more: what it held then is what is read, and writes are lost."""

    def placed(self, use: _Use, region: Region) -> int | None:
        page = use.addr // PAGE * PAGE
        if not self.misses(page, region) or use.addr + use.length > page + PAGE:
            return use.addr
        if (region.handle, page) in self.copies:
            return self.copies[region.handle, page] + use.addr - page
        self.copies[region.handle, page] = self.elsewhere(_Use(page, PAGE, use.writes, use.atomic))
        return use.addr

    def misses(self, page: int, region: Region) -> bool:
        """Whether the device does not learn when the page goes away."""
        raise NotImplementedError


@violates("REG-12", _Stale.misses)
def last_pages_go_unseen(self: _Stale, page: int, region: Region) -> bool:
    """The device does not learn when the last page of a region goes away."""
    return page + PAGE >= region.addr + region.length


@violates("REG-12", _Stale.misses)
def first_pages_go_unseen(self: _Stale, page: int, region: Region) -> bool:
    """The device does not learn when the first page of a region goes away."""
    return page <= region.addr


@violates("REG-12", _Stale.misses)
def inner_pages_go_unseen(self: _Stale, page: int, region: Region) -> bool:
    """The device does not learn when a page in the middle of a region goes away."""
    return region.addr < page and page + PAGE < region.addr + region.length


@violates("REG-12", Device.put)
def writes_to_nowhere_succeed(self: Device, addr: int, content: bytes) -> bool:
    """A write to on-demand memory that is not mapped any more succeeds."""
    return plain(self).put(addr, content) or not self.memory.fault_in(addr, len(content), write=False)
