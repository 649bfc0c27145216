"""The bench of rows whose calls are commands of the kernel: a context that this process opens itself. The process loads
neither libibverbs nor a provider, so that no library under test can change what it reports. Not for traffic, which
needs the queue pairs of a provider."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path

from conformance.bench.calls import IbvPd, PdAt, errno_name
from conformance.device import limits, memory
from conformance.device.uverbs import Uverbs
from conformance.errors import SetupRefused
from conformance.kernel.log import text_of
from conformance.kernel.netlink import RdmaNetlink
from conformance.kernel.resources import OwnQueuePairs, ResourceCounter

_SYSFS, _DEV = Path("/sys/class/infiniband_verbs"), Path("/dev/infiniband")
_CONTEXT = 1  # stands for the pointer to struct ibv_context, which this process does not have
# Kinds of memory whose pages no case pins completely.
_NEVER_PINNED = ("sparse", "unmapped", "no_access")


class HostMemory:
    """What a bench needs of the host, and not of a library."""

    page = memory.PAGE
    dmabuf = staticmethod(memory.allocate_dmabuf)
    locked_memory_limit = staticmethod(limits.locked_memory_limit)
    failing_allocation = staticmethod(limits.failing_allocation)

    def __init__(self) -> None:
        self.hugepage = memory.hugepage_size()

    def allocate(self, kind: str, size: int) -> memory.Memory:
        """Allocates memory of `kind`, one of memory_kinds.MEMORY_KINDS. Raises HostLacks if the host has none."""
        if kind not in _NEVER_PINNED:
            limits.check_lockable(size)
        return memory.allocate(kind, size)


class KernelPd(PdAt):
    """A PD that the command ALLOC_PD has created."""

    def __init__(self, uverbs: Uverbs) -> None:
        """Raises SetupRefused."""
        self._uverbs = uverbs
        error, response = uverbs.command("ALLOC_PD")
        if error:
            raise SetupRefused("allocating a PD", errno_name(error))
        self._memory = IbvPd(_CONTEXT, *response)
        super().__init__(ctypes.addressof(self._memory), self._dealloc)

    def _dealloc(self) -> None:
        """Raises OSError."""
        error, _ = self._uverbs.command("DEALLOC_PD", self.handle)
        if error:
            raise OSError(error, os.strerror(error))


class KernelBench(HostMemory):
    """The part of bench.interface.Bench that the rows of Case.is_of_the_kernel use."""

    def __init__(self, device: str, port: int = 1) -> None:
        """Opens the device. Raises OSError, or SetupRefused if its driver needs data of its provider."""
        super().__init__()
        netlink = RdmaNetlink(device)
        self._fd = os.open(_node(device), os.O_RDWR | os.O_CLOEXEC)
        self._uverbs = Uverbs(self._fd, netlink.driver_id() or 0)
        error, _ = self._uverbs.command("GET_CONTEXT")
        if error:
            os.close(self._fd)
            raise SetupRefused("opening a context without a provider", errno_name(error))
        self._counter = ResourceCounter(device, netlink, OwnQueuePairs(netlink, port), alone=True)
        self.resources = self._counter.count

    def close(self) -> None:
        os.close(self._fd)

    def entry(self, name: str) -> Uverbs:
        return self._uverbs

    def alloc_pd(self) -> KernelPd:
        return KernelPd(self._uverbs)


def opens_without_provider(device: str) -> bool:
    """Whether a process that has loaded no provider can open the device."""
    with suppress(OSError, SetupRefused):
        KernelBench(device).close()
        return True
    return False


def _node(device: str) -> Path:
    """Returns the character device. Raises FileNotFoundError."""
    for entry in _SYSFS.glob("uverbs*"):
        if text_of(entry / "ibdev") == device:
            return _DEV / entry.name
    raise FileNotFoundError(f"no uverbs device of {device}")
