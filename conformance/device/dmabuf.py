"""Real dma-bufs without a GPU: from /dev/udmabuf and from the system's dma-buf heap."""

import fcntl
import mmap
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from conformance.device.memory import map_file, unmap
from conformance.errors import HostLacks

_UDMABUF, _HEAP = Path("/dev/udmabuf"), Path("/dev/dma_heap/system")
_UDMABUF_CREATE = 0x40187542  # _IOW('u', 0x42, struct udmabuf_create), <linux/udmabuf.h>
_HEAP_ALLOC = 0xC0184800  # _IOWR('H', 0, struct dma_heap_allocation_data), <linux/dma-heap.h>
_CLOEXEC = 1


@dataclass(frozen=True)
class DmaBuf:
    """A dma-buf: its file descriptor, the address at which it is mapped, and its size in bytes."""

    fd: int
    addr: int
    size: int

    def close(self) -> None:
        """Unmaps the dma-buf and closes its file descriptor."""
        unmap(self.addr, self.size)
        os.close(self.fd)


def _udmabuf(size: int) -> int:
    memory = os.memfd_create("rdma-cts", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(memory, size)
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)  # udmabuf requires this seal
        with _UDMABUF.open("rb", buffering=0) as device:
            # The new descriptor is the ioctl's return value; Python returns this value only if the buffer is mutable.
            return int(fcntl.ioctl(device, _UDMABUF_CREATE, bytearray(struct.pack("=IIQQ", memory, _CLOEXEC, 0, size))))
    finally:
        os.close(memory)


def _system_heap(size: int) -> int:
    with _HEAP.open("rb", buffering=0) as device:
        answer = fcntl.ioctl(device, _HEAP_ALLOC, struct.pack("=QIIQ", size, 0, os.O_RDWR | os.O_CLOEXEC, 0))
    return int(struct.unpack("=QIIQ", answer)[1])


# By the kind, which is also the name of the kernel's module: the device, the function, and the kernel's option.
_MAKE: dict[str, tuple[Path, Callable[[int], int], str]] = {
    "udmabuf": (_UDMABUF, _udmabuf, "CONFIG_UDMABUF"),
    "system_heap": (_HEAP, _system_heap, "CONFIG_DMABUF_HEAPS_SYSTEM"),
}


def allocate(kind: str, size: int) -> DmaBuf:
    """A dma-buf of a kind of vocabulary.DMABUF_KINDS, `size` bytes rounded up to whole pages.

    Raises HostLacks if this kernel cannot create dma-bufs of that kind.
    """
    device, make, option = _MAKE[kind]
    rounded = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    try:
        fd = make(rounded)
        return DmaBuf(fd, map_file(fd, rounded), rounded)
    except OSError as error:
        hint = f"modprobe {kind}, on a kernel with {option}, as root or with permission to open {device}"
        raise HostLacks(f"this host makes no dma-bufs at {device} ({error.strerror})", hint) from error
