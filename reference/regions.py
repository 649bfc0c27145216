"""Registering and deregistering memory, as ibv_reg_mr(3) has it.

Every decision is a method of its own, so that a violation can replace just that. A method named for a fault gives
whether it is there; those that return an errno give 0 for none.
"""

from __future__ import annotations

import errno
import random

from conformance.verbs import OPTIONAL_ACCESS
from reference.memory import PAGE, SPACE, Memory
from reference.objects import (
    ACCESS,
    FLUSH_GLOBAL,
    FLUSH_PERSISTENT,
    HUGETLB,
    LOCAL_WRITE,
    MW_BIND,
    ON_DEMAND,
    RELAXED_ORDERING,
    REMOTE_ATOMIC,
    REMOTE_READ,
    REMOTE_WRITE,
    WORD,
    ZERO_BASED,
    Domain,
    Refused,
    Region,
    Window,
)  # fmt: skip
from reference.stack import WHOLE, Stack

_SIZE_MAX = SPACE - 1
_KNOWN = ACCESS.mask_of(*ACCESS.short_names)
# What the device's memory must be able to take, for a region that has one of these rights.
_WRITING = LOCAL_WRITE | REMOTE_WRITE | REMOTE_ATOMIC
_DMABUF = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | RELAXED_ORDERING
_NEEDS = (
    (REMOTE_ATOMIC, "atomics"), (ON_DEMAND, "odp"), (FLUSH_GLOBAL, "flush_global"),
    (FLUSH_PERSISTENT, "flush_persistent"),
)  # fmt: skip


class Regions:
    """The memory side of a device: domains, regions, and the keys of both regions and windows."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        self.stack = stack
        self.memory = Memory()
        self.context = 0x1000
        self.locked_limit: int | None = None  # bytes; None: none
        self.domains: dict[int, Domain] = {}
        self.regions: dict[int, Region] = {}
        self.windows: list[Window] = []
        self.keys: dict[int, Region | Window] = {}
        self._random = random.Random(seed)
        self._next = 1

    # Numbers

    def new_handle(self) -> int:
        """A handle that was never given out before."""
        self._next += 1
        return self._next

    def new_key(self) -> int:
        """A key whose index was never given out before; the lowest eight bits are its tag."""
        return (self.new_handle() << 8 | self._random.randrange(1, 255)) & WORD

    def next_key(self, key: int) -> int:
        """The key that follows one of the same index."""
        return key & ~0xFF | (key + 1) & 0xFF

    # Domains

    def alloc_pd(self) -> Domain:
        """A protection domain."""
        domain = Domain(self.new_handle(), self.context, self.dealloc_pd)
        self.domains[domain.handle] = domain
        return domain

    def dealloc_pd(self, domain: Domain) -> None:
        """Gives a domain back. Raises Refused while something is left in it."""
        if domain.users:
            raise Refused(errno.EBUSY)
        del self.domains[domain.handle]

    def domain_of(self, handle: int) -> Domain:
        """The domain of a handle. Raises Refused."""
        if handle not in self.domains:
            raise Refused(errno.EINVAL)
        return self.domains[handle]

    # What is refused

    def unknown_bits(self, access: int) -> int:
        """Bits that have to be refused: undefined ones outside of the optional range."""
        return access & WORD & ~_KNOWN & ~OPTIONAL_ACCESS

    def unsupported(self, access: int) -> bool:
        """Whether a flag asks for what the device has not."""
        windows = self.stack.has("mw_type_1") or self.stack.has("mw_type_2")
        missing = [bit for bit, name in _NEEDS if not self.stack.has(name)] + ([] if windows else [MW_BIND])
        return any(access & bit for bit in missing)

    def write_alone(self, access: int) -> bool:
        """REMOTE_WRITE without LOCAL_WRITE."""
        return bool(access & REMOTE_WRITE) and not access & LOCAL_WRITE

    def atomic_alone(self, access: int) -> bool:
        """REMOTE_ATOMIC without LOCAL_WRITE."""
        return bool(access & REMOTE_ATOMIC) and not access & LOCAL_WRITE

    def access_fault(self, access: int) -> int:
        """The errno for access flags that no region can have."""
        if self.unknown_bits(access) or self.write_alone(access) or self.atomic_alone(access):
            return errno.EINVAL
        return errno.EOPNOTSUPP if self.unsupported(access) else 0

    def is_implicit(self, addr: int, length: int, access: int) -> bool:
        """Whether the whole address space is asked for."""
        return bool(access & ON_DEMAND) and addr == 0 and length == _SIZE_MAX

    def wraps(self, addr: int, length: int) -> bool:
        """Whether a range ends beyond the last address."""
        return addr + length > SPACE

    def over_limit(self, addr: int, length: int) -> bool:
        """Whether pinning a range would exceed the limit of locked memory."""
        pinned = sum(region.pinned for region in self.regions.values())
        return self.locked_limit is not None and pinned + self.pages(addr, length) > self.locked_limit

    def pages(self, addr: int, length: int) -> int:
        """The bytes of all pages that a range touches."""
        return -(-(addr % PAGE + length) // PAGE) * PAGE

    def not_there(self, addr: int, length: int, access: int) -> bool:
        """Whether memory that has to be pinned is not mapped, or does not allow what the rights ask for."""
        return not self.memory.fault_in(addr, length, self.writes(access))

    def writes(self, access: int) -> bool:
        """Whether a region with these rights writes its memory."""
        return bool(access & _WRITING)

    def range_fault(self, addr: int, length: int, access: int) -> int:
        """The errno for memory that cannot be registered."""
        if self.is_implicit(addr, length, access):
            fits = self.stack.has("odp_implicit") and not access & HUGETLB
            return 0 if fits else errno.EOPNOTSUPP
        if access & HUGETLB and access & ON_DEMAND and not self.memory.is_special("huge", addr, length):
            return errno.EINVAL
        if length == 0 or self.wraps(addr, length):
            return errno.EINVAL
        if access & ON_DEMAND:
            return 0
        if self.over_limit(addr, length):
            return errno.ENOMEM
        return errno.EFAULT if self.not_there(addr, length, access) else 0

    def dmabuf_fault(self, offset: int, length: int, iova: int, access: int, size: int) -> int:
        """The errno for a part of a dma-buf of `size` bytes that cannot be registered."""
        if self.dmabuf_unsupported(access):
            return errno.EOPNOTSUPP
        return self.dmabuf_range_fault(offset, length, size) or self.dmabuf_offset_fault(offset, iova)

    def dmabuf_unsupported(self, access: int) -> bool:
        """Whether a flag is none of the five that the page has for dma-bufs."""
        return bool(access & WORD & ~_DMABUF & ~OPTIONAL_ACCESS)

    def dmabuf_range_fault(self, offset: int, length: int, size: int) -> int:
        """The errno for a range that is empty or reaches beyond the buffer."""
        return errno.EINVAL if length == 0 or offset + length > size else 0

    def dmabuf_offset_fault(self, offset: int, iova: int) -> int:
        """The errno for an iova with another offset within a page than `offset` has."""
        return errno.EINVAL if offset % PAGE != iova % PAGE else 0

    # What is granted

    def base(self, hca_va: int, access: int) -> int:
        """The address at which keys reach the region's first byte."""
        return 0 if access & ZERO_BASED else hca_va

    def register(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        """A region of this process's memory. Raises Refused."""
        domain = self.domain_of(pd)
        fault = self.access_fault(access) or self.range_fault(addr, length, access)
        if fault:
            raise Refused(fault)
        pinned = 0 if access & ON_DEMAND else self.pages(addr, length)
        return self.keep(Region(self.new_handle(), self.new_key(), domain, addr, length, self.base(hca_va, access),
                                access, pinned))  # fmt: skip

    def register_dmabuf(self, pd: int, offset: int, length: int, iova: int, fd: int, access: int) -> Region:
        """A region of a dma-buf. Raises Refused."""
        if not self.stack.has("reg_dmabuf_mr"):
            raise Refused(errno.EOPNOTSUPP)
        domain = self.domain_of(pd)
        fault = self.access_fault(access)
        if fault:
            raise Refused(fault)
        addr, size = self.dmabuf(fd)
        fault = self.dmabuf_fault(offset, length, iova, access, size)
        if fault:
            raise Refused(fault)
        return self.keep(Region(self.new_handle(), self.new_key(), domain, addr + offset, length, iova, access))

    def dmabuf(self, fd: int) -> tuple[int, int]:
        """Where a dma-buf's bytes are and how many. Raises Refused for what is none."""
        try:
            found = self.memory.dmabuf_of(fd)
        except OSError as error:
            raise Refused(errno.EBADF) from error
        if found is None:
            raise Refused(errno.EINVAL)
        return found.addr, found.size

    def keep(self, region: Region) -> Region:
        """Lets a region's handle and key be found."""
        region.domain.users += 1
        self.regions[region.handle] = region
        self.keys[region.key] = region
        return region

    # What is given back

    def deregister(self, handle: int) -> None:
        """Ends a region and its keys. Raises Refused."""
        if handle not in self.regions:
            raise Refused(errno.EINVAL)
        region = self.regions[handle]
        if self.busy(region):
            raise Refused(errno.EBUSY)
        del self.regions[handle]
        self.forget_key(region)
        region.domain.users -= 1

    def busy(self, region: Region) -> bool:
        """Whether a window is bound to the region."""
        return bool(region.windows)

    def forget_key(self, region: Region) -> None:
        """From here on the region's key opens nothing."""
        del self.keys[region.key]

    def counts(self) -> dict[str, int]:
        """What is held, as the kernel's account has it."""
        return {"mr": len(self.regions), "pd": len(self.domains)}
