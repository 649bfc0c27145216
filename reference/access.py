"""Resolves a key and an address to bytes in this process, with all checks. Not for the operations (work.py)."""

from reference.objects import (
    FLUSH_GLOBAL,
    FLUSH_PERSISTENT,
    LOCAL_WRITE,
    REMOTE_ATOMIC,
    REMOTE_READ,
    REMOTE_WRITE,
    ZERO_BASED,
    Domain,
    Region,
    Window,
)
from reference.windows import Windows

# The right that each operation of a peer needs.
RIGHTS = {
    "RDMA_WRITE": REMOTE_WRITE,
    "RDMA_WRITE_WITH_IMM": REMOTE_WRITE,
    "ATOMIC_WRITE": REMOTE_WRITE,
    "RDMA_READ": REMOTE_READ,
    "ATOMIC_CMP_AND_SWP": REMOTE_ATOMIC,
    "ATOMIC_FETCH_AND_ADD": REMOTE_ATOMIC,
    "FLUSH_GLOBAL": FLUSH_GLOBAL,
    "FLUSH_PERSISTENT": FLUSH_PERSISTENT,
    "FLUSH_BOTH": FLUSH_GLOBAL | FLUSH_PERSISTENT,
    "FLUSH_REGION": FLUSH_PERSISTENT,
}


class Access(Windows):
    """Resolves keys. A result of None means that the access is refused."""

    def found(self, key: int) -> Region | Window | None:
        return self.keys.get(key)

    def remote(self, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int) -> int | None:
        """Returns the address in this process of the bytes of a peer's operation, or None."""
        found = self.found(rkey)
        if isinstance(found, Window):
            return self.through_window(found, domain, queue, addr, length, right)
        if found is None or not self.opens(found, domain) or not self.allows(found, right):
            return None
        return self.place(found, addr, length)

    def local(self, lkey: int, domain: Domain, addr: int, length: int, write: bool) -> int | None:
        """Returns the address in this process of the bytes of a local work request, or None."""
        found = self.found(lkey)
        if not isinstance(found, Region) or not self.opens_locally(found, domain):
            return None
        if write and not self.allows_local_write(found):
            return None
        return self.place(found, addr, length)

    # Regions

    def opens(self, region: Region, domain: Domain) -> bool:
        """Returns whether the queue pairs of a domain can use a region by its rkey."""
        return region.usable and region.domain is domain

    def opens_locally(self, region: Region, domain: Domain) -> bool:
        """Returns whether the queue pairs of a domain can use a region by its lkey."""
        return self.opens(region, domain)

    def allows(self, region: Region, right: int) -> bool:
        return region.access & right == right

    def allows_local_write(self, region: Region) -> bool:
        return bool(region.access & LOCAL_WRITE)

    def place(self, region: Region, addr: int, length: int) -> int | None:
        """Returns the address in this process for an address by key, or None if a byte lies outside the region."""
        if not self.contains(region, addr, length):
            return None
        return self.translate(region, addr)

    def contains(self, region: Region, addr: int, length: int) -> bool:
        return addr >= region.iova and addr + length <= region.iova + region.length

    def translate(self, region: Region, addr: int) -> int:
        """Returns addr + (iova - hca_va), as ibv_reg_mr(3) defines it."""
        return region.addr + (addr - region.iova)

    # Windows

    def through_window(
        self, window: Window, domain: Domain, queue: int, addr: int, length: int, right: int
    ) -> int | None:
        """Returns the address in this process for an address by a window's key, or None."""
        region = window.region
        if region is None or not region.usable or not self.window_opens(window, domain, queue):
            return None
        if not self.window_allows(window, right) or self.no_longer_fits(window, region, right):
            return None
        offset = addr - self.window_base(window)
        if not self.window_contains(window, offset, length):
            return None
        return self.translate(region, window.addr + offset)

    def window_opens(self, window: Window, domain: Domain, queue: int) -> bool:
        """Returns whether a queue pair can use a window: type 1 in its domain, type 2 on the queue pair of its bind."""
        return window.domain is domain and window.queue in (0, queue)

    def window_allows(self, window: Window, right: int) -> bool:
        """Returns whether a window has a right. Further rights of its region do not count."""
        return window.access & right == right

    def no_longer_fits(self, window: Window, region: Region, right: int) -> bool:
        """Returns whether the region was changed after the bind, and can no longer be bound to the window."""
        if region.domain is not window.domain or self.forbids_binding(region):
            return True
        return self.lacks_local_write(region, right) or self.beyond(region, window.addr, window.length)

    def window_base(self, window: Window) -> int:
        """Returns the address by which the window's key reaches its first byte."""
        return 0 if window.access & ZERO_BASED else window.addr

    def window_contains(self, window: Window, offset: int, length: int) -> bool:
        """Returns whether a range lies in the window; `offset` counts from the window's start."""
        return offset >= 0 and offset + length <= window.length
