"""Memory that cannot be registered."""

import mmap
import os

from conformance.kernel.paging import libc
from reference.device import Device
from reference.memory import PAGE
from reference.reregistration import CHANGE_ACCESS, CHANGE_TRANSLATION


class _Careless(Device):
    """A device that does not check memory when only the access changes."""

    def change_fault(self, addr: int, length: int, access: int, flags: int) -> int:
        """Returns the errno for a change that could not be registered, or 0."""
        if flags & CHANGE_TRANSLATION or not flags & CHANGE_ACCESS:
            return super().change_fault(addr, length, access, flags)
        return self.access_fault(access)


def forced(addr: int, content: bytes) -> bool:
    """Writes to this process's memory despite its protection; returns False if that is impossible."""
    try:
        memory = os.open("/proc/self/mem", os.O_RDWR)
        try:
            return os.pwrite(memory, content, addr) == len(content)
        finally:
            os.close(memory)
    except (OSError, OverflowError):
        return False


def make_writable(addr: int, length: int) -> None:
    """Removes the protection of the pages of a range."""
    start = addr // PAGE * PAGE
    libc.mprotect(start, addr + length - start, mmap.PROT_READ | mmap.PROT_WRITE)
