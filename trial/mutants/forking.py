"""The pages that forked children get, and the memory of the device after a fork."""

import ctypes
import os
from pathlib import Path

from conformance.kernel.paging import libc
from reference.device import Device
from reference.memory import PAGE
from reference.objects import ON_DEMAND, REMOTE_READ, Domain, Region

_MADV_SEQUENTIAL = 2


class _Shared(Device):
    """After a fork, the device uses the child's copy of the pages of a region."""

    def setup(self) -> None:
        self.copies: list[object] = []

    def remote(self, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int) -> int | None:
        found = super().remote(rkey, domain, queue, addr, length, right)
        return self._of_child(self.found(rkey), found, length, right != REMOTE_READ)

    def local(self, lkey: int, domain: Domain, addr: int, length: int, write: bool) -> int | None:
        return self._of_child(self.found(lkey), super().local(lkey, domain, addr, length, write), length, write)

    def _of_child(self, region: object, found: int | None, length: int, write: bool) -> int | None:
        if found is None or not isinstance(region, Region) or region.access & ON_DEMAND:
            return found
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
        return self.stale(found, length, write) if children else found

    def stale(self, addr: int, length: int, write: bool) -> int:
        """Returns the address at which the device finds the bytes."""
        raise NotImplementedError

    def elsewhere(self, length: int) -> int:
        """Returns the address of new memory of this length."""
        buffer = ctypes.create_string_buffer(length)
        self.copies.append(buffer)
        return ctypes.addressof(buffer)


def set_apart(addr: int) -> None:
    """Makes the page of an address a separate mapping, by a madvise that does not cover its neighbours."""
    libc.madvise(addr // PAGE * PAGE, PAGE, _MADV_SEQUENTIAL)
