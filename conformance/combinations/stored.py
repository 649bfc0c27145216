"""The memory of points. A region is in the middle of its memory, around the end of 2 MiB, where some devices divide what
they translate: the place `page` of the model is this end."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from conformance.bench.calls import Held, Pd, Return, errno_name
from conformance.bench.interface import Bench, Memory
from conformance.errors import HostLacks, SetupRefused

DMABUF, DEVICE_MEMORY, NULL = "dmabuf", "device_memory", "null"
FORKED = "forked"  # memory of which a child has a copy since the registration
_NOWHERE = (
    0x7B00_0000_0000  # in place of the address of device memory, which the process cannot access
)
_ALIGNED_FOR_ATOMICS = 6  # log_align_req of ibv_alloc_dm
_UNIT = 2 << 20
_OF_BENCH = {
    "dropped": "shared",
    "plain": "shared",
    "no_access": "anonymous",
    "read_only": "anonymous",
    FORKED: "anonymous",
}


@dataclass(frozen=True)
class Stored:
    """A part of allocated memory: `size` bytes at `addr`, which begin `offset` bytes behind the start of the dma-buf `fd`,
    if it is one."""

    addr: int
    size: int
    offset: int
    fd: int = -1

    def write(self, content: bytes) -> None:
        ctypes.memmove(self.addr, content, self.size)

    def read(self) -> bytes:
        return ctypes.string_at(self.addr, self.size)

    def close(self) -> None:
        """The whole memory is released with its owner."""


@dataclass(frozen=True)
class OfDevice(Stored):
    """Device memory `dm`, which the process reads and writes by the verbs of the entry. Its address is invented."""

    bench: Bench | None = None
    dm: Held | None = None

    def write(self, content: bytes) -> None:
        source = ctypes.create_string_buffer(content, self.size)
        self._copy("memcpy_to_dm", self.dm, 0, ctypes.addressof(source))

    def read(self) -> bytes:
        copied = ctypes.create_string_buffer(self.size)
        self._copy("memcpy_from_dm", ctypes.addressof(copied), self.dm, 0)
        return copied.raw

    def _copy(self, verb: str, *arguments: object) -> None:
        """Raises SetupRefused."""
        assert self.bench is not None
        call: Callable[..., Return] = getattr(self.bench.entry("libibverbs"), verb)
        if refused := call(*arguments, self.size).value:
            raise SetupRefused(f"ibv_{verb}", errno_name(refused))


class Memories:
    """The memory of each kind, allocated when a point needs it first. `length` is the number of bytes of a region, and
    `margin` that of the bytes on each side of it."""

    def __init__(self, bench: Bench, pd: Pd, cleanup: ExitStack) -> None:
        self._bench, self._pd, self._cleanup = bench, pd, cleanup
        self._kinds: dict[str, Stored] = {}
        self.length = 4 * bench.page + 10 * bench.packet + 256
        self.margin = 2 * bench.page + 4 * bench.packet + 64
        # The end of a page that access.py uses is the first that is at least a page behind the start of the region.
        self.before_boundary = -(-(self.margin + bench.page) // bench.page) * bench.page

    def of_kind(self, kind: str) -> Stored:
        """Returns the memory of a kind. Raises SetupRefused."""
        if kind not in self._kinds:
            self._kinds[kind] = self._allocated(kind)
        return self._kinds[kind]

    def of_region(self, how: str, memory: str) -> Stored:
        """Returns the memory of a region that is registered in the way `how`. Raises SetupRefused."""
        if how in (DMABUF, DEVICE_MEMORY):
            return self.of_kind(how)
        return self.of_kind(memory)

    def _allocated(self, kind: str) -> Stored:
        bench, size = self._bench, self.length + 2 * self.margin
        if kind == DEVICE_MEMORY:
            return self._of_device(size)
        before = self.before_boundary
        memory: Memory
        try:
            if kind == DMABUF:
                memory = buffer = bench.dmabuf("udmabuf", size + _UNIT)
                fd = buffer.fd
            else:
                memory, fd = bench.allocate(_OF_BENCH.get(kind, kind), size + _UNIT), -1
        except HostLacks as lack:
            raise SetupRefused(str(lack), "") from lack
        self._cleanup.callback(memory.close)
        start = -(-(memory.addr + before) // _UNIT) * _UNIT - before
        return Stored(start, size, start - memory.addr, fd)

    def _of_device(self, size: int) -> OfDevice:
        """Returns device memory of `size` bytes. Raises SetupRefused."""
        context = self._pd.context_pointer
        returned = self._bench.entry("libibverbs").alloc_dm(context, size, _ALIGNED_FOR_ATOMICS)
        if returned.held is None:
            raise SetupRefused("ibv_alloc_dm", errno_name(returned.errno))
        self._cleanup.callback(returned.held.close)
        return OfDevice(_NOWHERE, size, 0, bench=self._bench, dm=returned.held)
