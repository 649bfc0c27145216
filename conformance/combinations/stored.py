"""The memory of points. A region is in the middle of its memory, around the end of 2 MiB, where some devices divide what
they translate: the place `page` of the model is this end."""

from contextlib import ExitStack
from dataclasses import dataclass

from conformance.bench.interface import Bench, Memory
from conformance.errors import HostLacks, SetupRefused

DMABUF = "dmabuf"
_UNIT = 2 << 20
_OF_BENCH = {
    "dropped": "shared",
    "plain": "shared",
    "no_access": "anonymous",
    "read_only": "anonymous",
}


@dataclass(frozen=True)
class Stored:
    """A part of allocated memory: `size` bytes at `addr`, which begin `offset` bytes behind the start of the dma-buf `fd`,
    if it is one."""

    addr: int
    size: int
    offset: int
    fd: int = -1

    def close(self) -> None:
        """The whole memory is released with its owner."""


class Memories:
    """The memory of each kind, allocated when a point needs it first. `length` is the number of bytes of a region, and
    `margin` that of the bytes on each side of it."""

    def __init__(self, bench: Bench, cleanup: ExitStack) -> None:
        self._bench, self._cleanup = bench, cleanup
        self._kinds: dict[str, Stored] = {}
        self.length = 4 * bench.page + 10 * bench.packet + 256
        self.margin = 2 * bench.page + 4 * bench.packet + 64

    def of_kind(self, kind: str) -> Stored:
        """Returns the memory of a kind. Raises SetupRefused."""
        if kind not in self._kinds:
            self._kinds[kind] = self._allocated(kind)
        return self._kinds[kind]

    def of_region(self, how: str, memory: str) -> Stored:
        """Returns the memory of a region that is registered in the way `how`. Raises SetupRefused."""
        if how == DMABUF:
            return self.of_kind(DMABUF)
        return self.of_kind(memory)

    def _allocated(self, kind: str) -> Stored:
        bench, size = self._bench, self.length + 2 * self.margin
        # The end of a page that access.py uses is the first that is at least a page behind the start of the region.
        before = -(-(self.margin + bench.page) // bench.page) * bench.page
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
