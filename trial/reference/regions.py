"""Registers and deregisters memory as ibv_reg_mr(3) defines. A method named after a fault returns whether the arguments
have this fault. A method named `..._fault` returns an errno, or 0 for arguments without a fault."""

from __future__ import annotations

import errno
import random
import threading
from collections import Counter
from typing import Any

from conformance.kernel.paging import libc
from conformance.kernel.resources import PINNED
from conformance.model.needs import FLAG_NEEDS
from conformance.verbs import OPTIONAL_ACCESS
from trial.reference.memory import PAGE, SPACE, Memory
from trial.reference.objects import (
    ACCESS,
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
    Held,
    Refused,
    Region,
    Window,
    check,
    refuse_if,
)
from trial.reference.stack import WHOLE, Stack

_SIZE_MAX = SPACE - 1
_MADV_DONTFORK, _MADV_DOFORK = 10, 11
_KNOWN = ACCESS.mask_of(*ACCESS.short_names)
# The access flags for which the memory must be writable.
_WRITING = LOCAL_WRITE | REMOTE_WRITE | REMOTE_ATOMIC
_DMABUF = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | RELAXED_ORDERING
# The capability that each access flag needs. MW_BIND is left out, because windows of either type suffice for this flag.
_NEEDS = tuple(
    (ACCESS.value_of(flag), need) for flag, need in FLAG_NEEDS.items() if need and flag != "MW_BIND"
)


class Forking:
    """Fork protection: the pages that forked children do not inherit if the library protects regions, and the results
    of the library when fork protection is turned on in a new process."""

    late_code = errno.EINVAL  # the result of ibv_fork_init after a registration
    # with RDMAV_HUGEPAGES_SAFE; if False, the registration is refused
    marks_part_of_huge_page = True

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        # for each page, the number of regions that contain it
        self.marked: Counter[int] = Counter()

    def dont_fork(self, addr: int, length: int) -> bool:
        """Marks a range as not inherited on fork, and returns whether this succeeded. Does nothing and returns
        True if the stack does not meet the precondition `dontfork`, or if it meets `fork_race`."""
        if not self.stack.reach("dontfork") or self.stack.reach("fork_race"):
            return True
        done = 0
        for page in self.pages_kept(addr, length):
            if not self.marked[page] and not _advise(page, _MADV_DONTFORK):
                self.do_fork(addr, done)
                return False
            self.marked[page] += 1
            done = page + PAGE - addr
        return True

    def do_fork(self, addr: int, length: int) -> bool:
        """Marks a range, except pages of other regions, as inherited on fork again. Returns whether this succeeded."""
        if not self.stack.reach("dontfork"):
            return True
        pages = [page for page in self.pages_kept(addr, length) if self.ends(page)]
        return sum(_advise(page, _MADV_DOFORK) for page in pages) == len(pages)

    def pages_kept(self, addr: int, length: int) -> range:
        return range(addr // PAGE * PAGE, addr + length, PAGE)

    def ends(self, page: int) -> bool:
        """Removes one region from the count of a page. Returns whether no region is left in the page."""
        self.marked[page] = max(0, self.marked[page] - 1)
        return not self.marked[page]

    # In a new process

    def fork_setting(self, setting: str, kernel: str) -> tuple[int, dict[str, str]]:
        """Returns the result of ibv_fork_init, and the observations of a region in the new process."""
        copies = kernel == "asked" and self.stack.reach("copy_on_fork")
        if setting == "late" and not copies:
            code = self.late_code
        else:
            code = 0
        enabled = self.turns_on(setting)
        if enabled and not copies:
            registered = "kept"
        else:
            registered = "inherited"
        if setting == "RDMAV_HUGEPAGES_SAFE" and not self.marks_part_of_huge_page:
            registered = "refused"
        return code, {
            "status": self.fork_status(copies, enabled),
            "registered": registered,
            "deregistered": "inherited",
        }

    def fork_status(self, copies: bool, enabled: bool) -> str:
        """Returns the result of ibv_is_fork_initialized. If `copies`, the kernel reports that it copies on fork."""
        if copies:
            return "UNNEEDED"
        if enabled:
            return "ENABLED"
        return "DISABLED"

    def turns_on(self, setting: str) -> bool:
        return setting not in ("none", "late")


def _advise(page: int, advice: int) -> bool:
    return bool(libc.madvise(page, PAGE, advice) == 0)


class Regions(Forking):
    """The memory of a device: domains, regions, and the keys of regions and windows."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack)
        self.memory = Memory()
        self.context = 0x1000
        self.locked_limit: int | None = None  # in bytes; None means no limit
        # with N, the Nth allocation from now fails; None means no failure
        self.allocations_left: int | None = None
        self.domains: dict[int, Domain] = {}
        self.regions: dict[int, Region] = {}
        self.windows: list[Window] = []
        self.keys: dict[int, Region | Window] = {}
        self.tds: dict[int, Held] = {}
        self.unprotected: set[int] = set()  # parent domains whose buffers are dma-bufs
        self.dmahs: dict[int, Held] = {}
        self.steered: dict[Region, int | str] = {}  # the dma handles of regions
        self.dms: dict[int, Any] = {}  # device memory of ibv_alloc_dm, by handle
        self.buffers: dict[int, Any] = {}  # buffers of ibv_alloc_buf, by handle
        self._random = random.Random(seed)
        self.turn = threading.RLock()  # only one thread at a time can execute a call
        self._next = 1
        self.setup()

    def setup(self) -> None:
        """Initializes the data of a subclass. The constructor calls this method at its end."""

    def has(self, verb: str) -> None:
        """Raises Refused if the stack does not have a verb or other capability."""
        refuse_if(not self.stack.has(verb), errno.EOPNOTSUPP)

    # Numbers

    def new_handle(self) -> int:
        """Returns a handle that has never been used."""
        self._next += 1
        return self._next

    def new_key(self) -> int:
        """Returns a key whose index has never been used; the lowest eight bits are its tag."""
        return (self.new_handle() << 8 | self._random.randrange(1, 255)) & WORD

    def next_key(self, key: int) -> int:
        """Returns the key with the same index and the next tag."""
        return key & ~0xFF | (key + 1) & 0xFF

    # Domains

    def alloc_pd(self, context: int | None = None) -> Domain:
        """Returns a new domain of this process, or of the process with another `context`."""
        domain = Domain(self.new_handle(), context or self.context, self.dealloc_pd)
        self.domains[domain.handle] = domain
        return domain

    def dealloc_pd(self, domain: Domain) -> None:
        """Deallocates a domain. Raises Refused if an object still uses it."""
        refuse_if(domain.users, errno.EBUSY)
        del self.domains[domain.handle]

    def domain_of(self, handle: int) -> Domain:
        refuse_if(handle not in self.domains, errno.EINVAL)
        return self.domains[handle]

    # What is refused

    def unknown_bits(self, access: int) -> int:
        """Returns the bits that must be refused: bits without a name that are outside of the optional range."""
        return access & WORD & ~_KNOWN & ~OPTIONAL_ACCESS

    def unsupported(self, access: int) -> bool:
        """Returns whether a flag needs a capability that the device does not have."""
        if any(access & bit and not self.stack.has(name) for bit, name in _NEEDS):
            return True
        has_windows = self.stack.has("mw_type_1") or self.stack.has("mw_type_2")
        return bool(access & MW_BIND) and not has_windows

    def write_alone(self, access: int) -> bool:
        return bool(access & REMOTE_WRITE) and not access & LOCAL_WRITE

    def atomic_alone(self, access: int) -> bool:
        return bool(access & REMOTE_ATOMIC) and not access & LOCAL_WRITE

    def access_fault(self, access: int) -> int:
        if self.unknown_bits(access) or self.write_alone(access) or self.atomic_alone(access):
            return errno.EINVAL
        if self.unsupported(access):
            return errno.EOPNOTSUPP
        return 0

    def is_implicit(self, addr: int, length: int, access: int) -> bool:
        """Returns whether the arguments are those of an implicit on-demand region."""
        return bool(access & ON_DEMAND) and addr == 0 and length == _SIZE_MAX

    def wraps(self, addr: int, length: int) -> bool:
        """Returns whether a range ends beyond the last address."""
        return addr + length > SPACE

    def over_limit(self, addr: int, length: int) -> bool:
        if self.locked_limit is None:
            return False
        pinned = sum(region.pinned for region in self.regions.values())
        return pinned + self.pages(addr, length) > self.locked_limit

    def allocate(self) -> None:
        """Allocates memory for a call. Raises Refused if this allocation is the failing one."""
        if self.allocations_left:
            self.allocations_left -= 1
            refuse_if(not self.allocations_left, errno.ENOMEM)

    def pages(self, addr: int, length: int) -> int:
        """Returns the size in bytes of all pages of a range."""
        return -(-(addr % PAGE + length) // PAGE) * PAGE

    def not_there(self, addr: int, length: int, access: int) -> bool:
        """Returns whether memory that must be pinned is not mapped, or is read-only but must be writable."""
        return not self.memory.fault_in(addr, length, self.writes(access))

    def writes(self, access: int) -> bool:
        return bool(access & _WRITING)

    def range_fault(self, addr: int, length: int, access: int) -> int:
        """Returns the errno for memory that cannot be registered, or 0."""
        if self.is_implicit(addr, length, access):
            fits = self.stack.has("odp_implicit") and not access & HUGETLB
            if fits:
                return 0
            return errno.EOPNOTSUPP
        if (
            access & HUGETLB
            and access & ON_DEMAND
            and not self.memory.is_special("huge", addr, length)
        ):
            return errno.EINVAL
        if length == 0 or self.wraps(addr, length):
            return errno.EINVAL
        if access & ON_DEMAND:
            return 0
        if self.over_limit(addr, length):
            return errno.ENOMEM
        if self.not_there(addr, length, access):
            return errno.EFAULT
        return 0

    def dmabuf_access_fault(self, access: int) -> int:
        return self.access_fault(access)

    def dmabuf_fault(self, offset: int, length: int, iova: int, access: int, size: int) -> int:
        """Returns the errno for a part of a dma-buf of `size` bytes that cannot be registered, or 0."""
        if self.dmabuf_unsupported(access):
            return errno.EOPNOTSUPP
        return self.dmabuf_range_fault(offset, length, size) or self.dmabuf_offset_fault(
            offset,
            iova,
        )

    def dmabuf_unsupported(self, access: int) -> bool:
        """Returns whether `access` has a flag that the manual page does not allow for dma-bufs."""
        return bool(access & WORD & ~_DMABUF & ~OPTIONAL_ACCESS)

    def dmabuf_range_fault(self, offset: int, length: int, size: int) -> int:
        """Returns the errno for a range that is empty or extends beyond the buffer, or 0."""
        if length == 0 or offset + length > size:
            return errno.EINVAL
        return 0

    def dmabuf_offset_fault(self, offset: int, iova: int) -> int:
        """Returns the errno if `iova` and `offset` have different offsets within a page, or 0."""
        if offset % PAGE != iova % PAGE:
            return errno.EINVAL
        return 0

    # What is granted

    def base(self, hca_va: int, access: int) -> int:
        """Returns the address of the region's first byte in requests with the region's keys."""
        if access & ZERO_BASED:
            return 0
        return hca_va

    def register(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        """Registers memory of this process. Raises Refused."""
        domain = self.domain_of(pd)
        check(self.access_fault(access) or self.range_fault(addr, length, access))
        refuse_if(not access & ON_DEMAND and not self.dont_fork(addr, length), errno.ENOMEM)
        self.allocate()
        if access & ON_DEMAND:
            pinned = 0
        else:
            pinned = self.pages(addr, length)
        return self.keep(
            Region(
                self.new_handle(),
                self.new_key(),
                domain,
                addr,
                length,
                self.base(hca_va, access),
                access,
                pinned,
            ),
        )

    def reg_dmabuf_mr(
        self,
        pd: int,
        offset: int,
        length: int,
        iova: int,
        fd: int,
        access: int,
    ) -> Region:
        """Registers a part of a dma-buf. Raises Refused."""
        self.has("reg_dmabuf_mr")
        domain = self.domain_of(pd)
        check(self.dmabuf_access_fault(access))
        addr, size = self.dmabuf(fd)
        check(self.dmabuf_fault(offset, length, iova, access, size))
        return self.keep(
            Region(self.new_handle(), self.new_key(), domain, addr + offset, length, iova, access),
        )

    def dmabuf(self, fd: int) -> tuple[int, int]:
        """Returns address and size of a dma-buf. Raises Refused if the descriptor is not a dma-buf."""
        try:
            buffer = self.memory.dmabuf_of(fd)
        except OSError as error:
            raise Refused(errno.EBADF) from error
        if buffer is None:
            raise Refused(errno.EINVAL)
        refuse_if(buffer.revoked, errno.ENODEV)
        return buffer.addr, buffer.size

    def exporter(self, request: str, addr: int, size: int) -> int:
        """Moves or revokes a dma-buf, or returns a number of the exporter. A buffer of the reference keeps its address
        when it moves, so regions follow it, and nothing is left."""
        if request == "revoke":
            self.end_access(addr, size)
        if request == "attachments":
            return len(self.regions_of(addr, size))
        return 0

    def regions_of(self, addr: int, size: int) -> list[Region]:
        """Returns the regions of a dma-buf."""
        return [region for region in self.regions.values() if addr <= region.addr < addr + size]

    def end_access(self, addr: int, size: int) -> None:
        """Ends the access to the regions of a dma-buf. Their keys stay allocated."""
        for region in self.regions_of(addr, size):
            region.usable = False

    def keep(self, region: Region) -> Region:
        region.domain.users += 1
        self.regions[region.handle] = region
        self.keys[region.key] = region
        return region

    def reported_keys(self, region: Region) -> tuple[int, int]:
        """Returns lkey and rkey in the structures of a program."""
        return region.key, region.key

    # Other processes

    def left_by_a_killed_process(self) -> dict[str, int]:
        """Returns the number of this device's objects, by kind, that the kernel counts after the process was killed."""
        return {}

    # What is deregistered

    def dereg_mr(self, handle: int) -> None:
        """Deregisters a region and invalidates its keys. Raises Refused."""
        refuse_if(handle not in self.regions, errno.EINVAL)
        region = self.regions[handle]
        refuse_if(self.busy(region), errno.EBUSY)
        del self.regions[handle]
        if region.pinned:
            self.do_fork(region.addr, region.length)
        self.forget_key(region)
        region.domain.users -= 1

    def busy(self, region: Region) -> bool:
        return bool(region.windows)

    def forget_key(self, region: Region) -> None:
        del self.keys[region.key]

    def counts(self) -> dict[str, int]:
        """Returns the number of objects by kind, as the kernel counts them."""
        pinned = sum(region.pinned for region in self.regions.values())
        return {"mr": len(self.regions), "pd": len(self.domains), PINNED: pinned >> 10}
