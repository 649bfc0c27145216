"""Memory that cannot be registered."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os

from reference.access import RIGHTS
from reference.device import Device
from reference.memory import PAGE
from reference.objects import ON_DEMAND, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE, Domain, Refused, Region
from reference.reregistration import CHANGE_ACCESS, CHANGE_TRANSLATION
from trial.violation import permits, plain, violates

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class _Careless(Device):
    """A device that does not look at memory when only the access changes, and then writes it past its protection."""

    def change_fault(self, addr: int, length: int, access: int, flags: int) -> int:
        """The errno for what could not be registered again."""
        if flags & CHANGE_TRANSLATION or not flags & CHANGE_ACCESS:
            return super().change_fault(addr, length, access, flags)
        return self.access_fault(access)


def forced(addr: int, content: bytes) -> bool:
    """Writes this process's memory past its protection; False where that cannot be."""
    try:
        memory = os.open("/proc/self/mem", os.O_RDWR)
        try:
            return os.pwrite(memory, content, addr) == len(content)
        finally:
            os.close(memory)
    except (OSError, OverflowError):
        return False


class _RightsUnchecked(Device):
    """A device that grants rights to write over read-only memory by a change of access, and writes by force."""

    def change_fault(self, addr: int, length: int, access: int, flags: int) -> int:
        """Looks at the memory only for a new translation."""
        if flags & CHANGE_TRANSLATION:
            return super().change_fault(addr, length, access, flags)
        return self.access_fault(access)

    def make_writable(self, addr: int, length: int) -> None:
        """Removes the protection of the pages of a range."""
        start = addr // PAGE * PAGE
        _libc.mprotect(start, addr + length - start, mmap.PROT_READ | mmap.PROT_WRITE)


@violates("REG-23", Device.not_there)
def unmapped_accepted(self: Device, addr: int, length: int, access: int) -> bool:
    """It is not checked whether the memory is mapped."""
    return False


@violates("REG-23", name="only-the-first-page-is-looked-at", written="blind")
@violates("REG-23", Device.not_there)
def first_page_only(self: Device, addr: int, length: int, access: int) -> bool:
    """Only the first page of the memory is checked."""
    return plain(self).not_there(addr, min(length, PAGE - addr % PAGE), access)


@violates("REG-23", Device.not_there)
def whole_pages_only(self: Device, addr: int, length: int, access: int) -> bool:
    """Whole pages are checked, including those beside the range."""
    return plain(self).not_there(addr - 1, length + 2, access)


@violates("REG-23", Device.writes)
def read_only_made_writable(self: Device, access: int) -> bool:
    """Read-only memory is registered for writing."""
    return False


@violates("REG-23", Device.writes)
def read_only_refused(self: Device, access: int) -> bool:
    """Read-only memory is refused without write access too."""
    return True


@violates("REG-23")
class RangeWraps(Device):
    """A range that ends beyond the last address is cut off there."""

    def wraps(self, addr: int, length: int) -> bool:
        return False

    def not_there(self, addr: int, length: int, access: int) -> bool:
        return addr + length <= 1 << 64 and super().not_there(addr, length, access)


@violates("REG-23", Device.over_limit)
def no_limit(self: Device, addr: int, length: int) -> bool:
    """The locked-memory limit is not enforced."""
    return False


@violates("REG-23", Device.over_limit)
def quarter_of_the_limit(self: Device, addr: int, length: int) -> bool:
    """Only a quarter of the locked-memory limit can be used."""
    return self.locked_limit is not None and length > self.locked_limit // 4


@violates("REG-23", Device.not_there, written="blind")
def holes_in_the_middle_overlooked(self: Device, addr: int, length: int, access: int) -> bool:
    """Only the first and the last page of a range are looked at."""
    last = (addr + length - 1) // PAGE * PAGE
    first = plain(self).not_there(addr, min(length, PAGE - addr % PAGE), access)
    return first or plain(self).not_there(max(addr, last), addr + length - max(addr, last), access)


@violates("REG-23", Device.writes, written="blind")
def read_only_memory_for_local_write(self: Device, access: int) -> bool:
    """Memory mapped read-only registers with LOCAL_WRITE as long as no remote right writes."""
    return bool(access & (REMOTE_WRITE | REMOTE_ATOMIC))


@violates("REG-23", Device.writes, written="blind")
def read_only_memory_refused_for_remote_read(self: Device, access: int) -> bool:
    """Memory mapped read-only is refused for a region with REMOTE_READ and no right that writes."""
    return plain(self).writes(access) or bool(access & REMOTE_READ)


@violates("REG-23", Device.over_limit, written="blind")
def locked_memory_of_this_call_only(self: Device, addr: int, length: int) -> bool:
    """The limit of locked memory is held against each registration alone, not against their sum."""
    return self.locked_limit is not None and self.pages(addr, length) > self.locked_limit


@violates("REG-23", Device.pages, written="blind")
def locked_memory_counted_in_bytes(self: Device, addr: int, length: int) -> int:
    """The limit of locked memory counts bytes instead of the pages that are pinned."""
    return length


@violates("REG-23", Device.range_fault, written="blind")
def wrapping_on_demand(self: Device, addr: int, length: int, access: int) -> int:
    """An on-demand range that wraps around the end of the address space registers."""
    wrapping = access & ON_DEMAND and not self.is_implicit(addr, length, access) and self.wraps(addr, length)
    return 0 if wrapping else plain(self).range_fault(addr, length, access)


@violates("REG-23", Device.register, written="blind")
def refused_memory_keeps_the_domain(self: Device, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
    """A registration that is refused for its memory leaves the PD in use for ever."""
    try:
        return plain(self).register(pd, addr, length, hca_va, access)
    except Refused as refused:
        if refused.errno == errno.EFAULT:
            self.domains[pd].users += 1
        raise


@violates("REG-23", Device.register, written="blind")
def refused_memory_stays_registered(self: Device, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
    """A registration over the locked-memory limit is reported to have failed, but the region stays in the account."""
    try:
        return plain(self).register(pd, addr, length, hca_va, access)
    except Refused as refused:
        if refused.errno == errno.ENOMEM:
            handle = self.new_handle()
            self.regions[handle] = Region(handle, self.new_key(), self.domains[pd], addr, length, addr, access)
        raise


@permits("REG-23", Device.range_fault)
def nothing_registered(self: Device, addr: int, length: int, access: int) -> int:
    """A region of length 0 can be registered."""
    return plain(self).range_fault(addr, length, access) if length else 0


@permits("REG-23", Device.range_fault, written="blind")
def unmapped_memory_is_enomem(self: Device, addr: int, length: int, access: int) -> int:
    """Memory that is not there is refused with ENOMEM."""
    fault = plain(self).range_fault(addr, length, access)
    return errno.ENOMEM if fault == errno.EFAULT else fault


@permits("REG-23", Device.range_fault, written="blind")
def locked_limit_is_eagain(self: Device, addr: int, length: int, access: int) -> int:
    """Exceeding the limit of locked memory is refused with EAGAIN."""
    fault = plain(self).range_fault(addr, length, access)
    return errno.EAGAIN if fault == errno.ENOMEM else fault


@violates("REREG-16", _RightsUnchecked.put)
def read_only_memory_opens_to_writes(self: _RightsUnchecked, addr: int, content: bytes) -> bool:
    """After a change of access a peer's write arrives in read-only memory."""
    self.make_writable(addr, len(content))
    return plain(self).put(addr, content)


@violates("REREG-16", _RightsUnchecked.allows_local_write)
def read_only_memory_opens_to_receives(self: _RightsUnchecked, region: Region) -> bool:
    """After a change of access a message is received into read-only memory."""
    allowed = plain(self).allows_local_write(region)
    if allowed:
        self.make_writable(region.addr, region.length)
    return allowed


@violates("REREG-16", _RightsUnchecked.remote)
def read_only_memory_opens_to_atomics(
    self: _RightsUnchecked, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int
) -> int | None:
    """After a change of access an atomic changes read-only memory."""
    found = plain(self).remote(rkey, domain, queue, addr, length, right)
    if found is not None and right == RIGHTS["ATOMIC_FETCH_AND_ADD"]:
        self.make_writable(found, length)
    return found


@violates("REREG-16", _Careless.put, written="blind")
def peers_write_read_only_memory(self: _Careless, addr: int, content: bytes) -> bool:
    """After a change of access over memory that is mapped read-only peers write it."""
    return plain(self).put(addr, content) or forced(addr, content)


@violates("REREG-16", _Careless.put, written="blind")
def peers_write_one_byte_of_read_only_memory(self: _Careless, addr: int, content: bytes) -> bool:
    """After a change of access over memory that is mapped read-only a peer's write is refused behind its first byte."""
    done = plain(self).put(addr, content)
    if not done and self.memory.fault_in(addr, len(content), write=False):
        forced(addr, content[:1])
    return done
