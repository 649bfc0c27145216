"""Pages of on-demand regions: the pages that the device faults in, for which access, and when."""

import ctypes
from typing import NamedTuple

from reference.device import Device
from reference.memory import PAGE
from reference.objects import ON_DEMAND, REMOTE_ATOMIC, REMOTE_READ, Domain, Region


class _Use(NamedTuple):
    """One access to an on-demand region: its first byte in this process, its length, and its kind."""

    addr: int
    length: int
    writes: bool
    atomic: bool


class _DevicePages(Device):
    """A device that records the pages of an on-demand region that it has used, and whether it has written to them."""

    def setup(self) -> None:
        self.uses: dict[int, dict[int, bool]] = {}
        self.copies: dict[tuple[int, int], int] = {}
        self.kept: list[object] = []

    def used(self, region: Region) -> dict[int, bool]:
        """Returns the addresses of the pages of a region that have been used, each with whether a use was a write."""
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
        """Returns the addresses of the pages of a range."""
        return range(addr // PAGE * PAGE, addr + length, PAGE)

    def placed(self, use: _Use, region: Region) -> int | None:
        """Returns the address at which the device finds the bytes; None if it refuses."""
        raise NotImplementedError

    def elsewhere(self, use: _Use) -> int:
        """Returns memory that only the device uses, with the present contents of the pages."""
        content = self.memory.read(use.addr, use.length) or bytes(use.length)
        buffer = ctypes.create_string_buffer(content, use.length)
        self.kept.append(buffer)
        return ctypes.addressof(buffer)


class _Stale(_DevicePages):
    """The device looks up a page only once: later reads return the contents of that time, and writes are lost."""

    def placed(self, use: _Use, region: Region) -> int | None:
        page = use.addr // PAGE * PAGE
        if not self.misses(page, region) or use.addr + use.length > page + PAGE:
            return use.addr
        if (region.handle, page) in self.copies:
            return self.copies[region.handle, page] + use.addr - page
        self.copies[region.handle, page] = self.elsewhere(_Use(page, PAGE, use.writes, use.atomic))
        return use.addr

    def misses(self, page: int, region: Region) -> bool:
        """Whether the device is not notified when the page goes away."""
        raise NotImplementedError
