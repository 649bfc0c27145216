"""What a key opens: the way from a key and an address to the bytes, with every check on it."""

from __future__ import annotations

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

# The right that each operation of a peer asks for.
RIGHTS = {
    "RDMA_WRITE": REMOTE_WRITE, "RDMA_WRITE_WITH_IMM": REMOTE_WRITE, "ATOMIC_WRITE": REMOTE_WRITE,
    "RDMA_READ": REMOTE_READ, "ATOMIC_CMP_AND_SWP": REMOTE_ATOMIC, "ATOMIC_FETCH_AND_ADD": REMOTE_ATOMIC,
    "FLUSH_GLOBAL": FLUSH_GLOBAL, "FLUSH_PERSISTENT": FLUSH_PERSISTENT,
}  # fmt: skip


class Access(Windows):
    """Resolves keys; None stands for what is refused."""

    def found(self, key: int) -> Region | Window | None:
        """What has a key."""
        return self.keys.get(key)

    def remote(self, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int) -> int | None:
        """Where in this process the bytes of a peer's operation are."""
        found = self.found(rkey)
        if isinstance(found, Window):
            return self.through_window(found, domain, queue, addr, length, right)
        if found is None or not self.opens(found, domain) or not self.allows(found, right):
            return None
        return self.place(found, addr, length)

    def local(self, lkey: int, domain: Domain, addr: int, length: int, write: bool) -> int | None:
        """Where in this process the bytes of an own work request are."""
        found = self.found(lkey)
        if not isinstance(found, Region) or not self.opens_locally(found, domain):
            return None
        if write and not self.allows_local_write(found):
            return None
        return self.place(found, addr, length)

    # Regions

    def opens(self, region: Region, domain: Domain) -> bool:
        """Whether a region is there for the queue pairs of a domain."""
        return region.usable and region.domain is domain

    def opens_locally(self, region: Region, domain: Domain) -> bool:
        """The same for the lkey."""
        return self.opens(region, domain)

    def allows(self, region: Region, right: int) -> bool:
        """Whether a region has a right."""
        return region.access & right == right

    def allows_local_write(self, region: Region) -> bool:
        """Whether the own device may write."""
        return bool(region.access & LOCAL_WRITE)

    def place(self, region: Region, addr: int, length: int) -> int | None:
        """Where the bytes at a key's address lie, if all of them are the region's."""
        if not self.contains(region, addr, length):
            return None
        return self.translate(region, addr)

    def contains(self, region: Region, addr: int, length: int) -> bool:
        """Whether a range by key lies in the region."""
        return addr >= region.iova and addr + length <= region.iova + region.length

    def translate(self, region: Region, addr: int) -> int:
        """addr + (iova - hca_va), as ibv_reg_mr(3) has it."""
        return region.addr + (addr - region.iova)

    # Windows

    def through_window(
        self, window: Window, domain: Domain, queue: int, addr: int, length: int, right: int
    ) -> int | None:
        """Where the bytes are that a window shows at a key's address."""
        region = window.region
        if region is None or not region.usable or not self.window_opens(window, domain, queue):
            return None
        if not self.window_allows(window, right):
            return None
        offset = addr - self.window_base(window)
        if not self.window_contains(window, offset, length):
            return None
        return self.translate(region, window.addr + offset)

    def window_opens(self, window: Window, domain: Domain, queue: int) -> bool:
        """Whether a window is there for a queue pair: type 1 for its domain's, type 2 for the one it was bound on."""
        return window.domain is domain and window.queue in (0, queue)

    def window_allows(self, window: Window, right: int) -> bool:
        """Whether a window has a right; what its region has beyond counts for nothing."""
        return window.access & right == right

    def window_base(self, window: Window) -> int:
        """The address of the window's first byte for its key."""
        return 0 if window.access & ZERO_BASED else window.addr

    def window_contains(self, window: Window, offset: int, length: int) -> bool:
        """Whether a range from the window's start on lies in it."""
        return offset >= 0 and offset + length <= window.length
