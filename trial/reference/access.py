"""Executes the verbs of memory windows of both types (ibv_alloc_mw(3), ibv_bind_mw(3)). Also translates a key and an
address to bytes of this process, with all access checks.

A bind with arguments that are never valid is refused when it is posted. A bind that the region does not allow fails in
its completion. The manual page permits both kinds of failure for both kinds of binds.
"""

from __future__ import annotations

import errno

from trial.reference.objects import (
    FLUSH_GLOBAL,
    FLUSH_PERSISTENT,
    LOCAL_WRITE,
    MW_BIND,
    REMOTE_ATOMIC,
    REMOTE_READ,
    REMOTE_WRITE,
    ZERO_BASED,
    Domain,
    Region,
    Window,
    refuse_if,
)
from trial.reference.regions import Regions

_OF_A_WINDOW = REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | ZERO_BASED
BINDING_QUEUES = ("UC", "RC", "RC_SRQ", "XRC_SEND")


class Windows(Regions):
    def alloc_mw(self, pd: int, kind: int) -> Window:
        """Returns a new window. The window is not bound. Raises Refused."""
        domain = self.domain_of(pd)
        refuse_if(self.no_such_type(kind), errno.EINVAL)
        self.has(f"mw_type_{kind}")
        self.allocate()
        window = Window(kind, domain, self.new_key())
        domain.users += 1
        self.windows.append(window)
        self.keys[window.key] = window
        return window

    def no_such_type(self, kind: int) -> bool:
        return kind not in (1, 2)

    def dealloc_mw(self, window: Window) -> None:
        """Deallocates a window, which may be bound. Raises Refused."""
        refuse_if(window not in self.windows, errno.EINVAL)
        self.unbind(window)
        self.windows.remove(window)
        self.end_window_key(window)
        window.domain.users -= 1

    def end_window_key(self, window: Window) -> None:
        del self.keys[window.key]

    def unbind(self, window: Window) -> None:
        if window.region:
            self.release_region(window, window.region)
        window.region, window.length, window.access, window.queue = None, 0, 0, 0

    def release_region(self, window: Window, region: Region) -> None:
        region.windows.remove(window)

    # What is refused

    def wrong_queue(self, kind: str) -> bool:
        return kind not in BINDING_QUEUES

    def wrong_type(self, window: Window, posted: bool) -> bool:
        """Returns whether the way of binding is wrong: type 1 needs ibv_bind_mw, and type 2 needs a posted request."""
        return window.kind != (2 if posted else 1)

    def bind_argument_fault(
        self,
        queue: Domain,
        window: Window,
        region: Region | None,
        length: int,
        access: int,
    ) -> int:
        """Returns the errno for arguments that are never valid for a bind, or 0."""
        if access & ~_OF_A_WINDOW:
            return errno.EINVAL
        if region is None:
            if length:
                return errno.EINVAL
            return 0
        if self.other_domain(queue, window, region):
            return errno.EPERM
        return 0

    def other_domain(self, queue: Domain, window: Window, region: Region) -> bool:
        return window.domain is not region.domain or queue is not region.domain

    def bind_refused(
        self,
        window: Window,
        region: Region | None,
        addr: int,
        length: int,
        access: int,
    ) -> bool:
        if region is None or length == 0:
            return False
        if not region.usable or self.forbids_binding(region):
            return True
        return self.lacks_local_write(region, access) or self.beyond(region, addr, length)

    def forbids_binding(self, region: Region) -> bool:
        return not region.access & MW_BIND

    def lacks_local_write(self, region: Region, access: int) -> bool:
        """Returns whether the window would permit writes to a region without LOCAL_WRITE."""
        return bool(access & (REMOTE_WRITE | REMOTE_ATOMIC)) and not region.access & LOCAL_WRITE

    def beyond(self, region: Region, addr: int, length: int) -> bool:
        return addr < region.iova or addr + length > region.iova + region.length

    # What is done

    def bind(
        self,
        window: Window,
        region: Region | None,
        addr: int,
        length: int,
        access: int,
        key: int,
        queue: int,
    ) -> None:
        """Binds a window, or unbinds it if `length` is 0. Afterwards the window has the key `key`."""
        self.unbind(window)
        self.replace_key(window, key)
        if region is not None and length:
            window.region, window.addr, window.length, window.access = region, addr, length, access
            window.queue = queue if window.kind == 2 else 0
            region.windows.append(window)

    def replace_key(self, window: Window, key: int) -> None:
        del self.keys[window.key]
        window.key = key
        self.keys[key] = window

    def invalidate(self, key: int, queue: int, domain: Domain) -> bool:
        """Unbinds the window of type 2 with this key if this queue pair has bound it. Returns whether it did."""
        window = self.keys.get(key)
        if not isinstance(window, Window) or window.kind != 2 or window.region is None:
            return False
        if window.queue != queue or window.domain is not domain:
            return False
        self.unbind(window)
        return True


# The access flag that each operation of a peer needs.
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
    "FLUSH_GLOBAL_MR": FLUSH_GLOBAL,
    "FLUSH_PERSISTENT_MR": FLUSH_PERSISTENT,
}


class Access(Windows):
    """Resolves keys. A result of None means that the access is refused."""

    def found(self, key: int) -> Region | Window | None:
        return self.keys.get(key)

    def remote(
        self,
        rkey: int,
        domain: Domain,
        queue: int,
        addr: int,
        length: int,
        right: int,
    ) -> int | None:
        """Returns the address in this process of the bytes of a peer's operation, or None."""
        target = self.found(rkey)
        if isinstance(target, Window):
            return self.through_window(target, domain, queue, addr, length, right)
        if target is None or not self.opens(target, domain) or not self.allows(target, right):
            return None
        return self.place(target, addr, length)

    def local(self, lkey: int, domain: Domain, addr: int, length: int, write: bool) -> int | None:
        """Returns the address in this process of the bytes of a local work request, or None."""
        target = self.found(lkey)
        if not isinstance(target, Region) or not self.opens_locally(target, domain):
            return None
        if write and not self.allows_local_write(target):
            return None
        return self.place(target, addr, length)

    # Regions

    def opens(self, region: Region, domain: Domain) -> bool:
        """Returns whether the queue pairs of a PD can access a region with its rkey."""
        return region.usable and region.domain is domain

    def opens_locally(self, region: Region, domain: Domain) -> bool:
        """Returns whether the queue pairs of a PD can access a region with its lkey."""
        return self.opens(region, domain)

    def allows(self, region: Region, right: int) -> bool:
        return region.access & right == right

    def allows_local_write(self, region: Region) -> bool:
        return bool(region.access & LOCAL_WRITE)

    def place(self, region: Region, addr: int, length: int) -> int | None:
        """Returns the address in this process of a range in a region, or None if a byte is outside the region."""
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
        self,
        window: Window,
        domain: Domain,
        queue: int,
        addr: int,
        length: int,
        right: int,
    ) -> int | None:
        """Returns the address in this process of the bytes of a request with a window's key, or None."""
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
        """Returns whether a queue pair has a window's PD and, for a window of type 2, has posted the window's bind."""
        return window.domain is domain and window.queue in (0, queue)

    def window_allows(self, window: Window, right: int) -> bool:
        """Returns whether a window has an access flag. The flags of its region are ignored."""
        return window.access & right == right

    def no_longer_fits(self, window: Window, region: Region, right: int) -> bool:
        """Returns whether the region was changed after the bind, so that the same bind would now be refused."""
        if region.domain is not window.domain or self.forbids_binding(region):
            return True
        return self.lacks_local_write(region, right) or self.beyond(
            region,
            window.addr,
            window.length,
        )

    def window_base(self, window: Window) -> int:
        """Returns the address of the window's first byte in requests with the window's key."""
        if window.access & ZERO_BASED:
            return 0
        return window.addr

    def window_contains(self, window: Window, offset: int, length: int) -> bool:
        """Returns whether a range is in the window; `offset` counts from the window's start."""
        return offset >= 0 and offset + length <= window.length
