"""Definitions for both entry points: the result of a call, and the structures that C programs use.

The calls themselves are in device/libibverbs.py (the library) and device/uverbs.py (the kernel).
"""

import ctypes
import errno as errno_module
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class IbvPd(ctypes.Structure):
    _fields_ = (("context", ctypes.c_void_p), ("handle", ctypes.c_uint32))


class IbvDm(ctypes.Structure):
    """struct ibv_dm of <infiniband/verbs.h>. Inline functions of the header call the functions in this structure."""

    _fields_ = (
        ("context", ctypes.c_void_p),
        ("memcpy_to_dm", ctypes.c_void_p),
        ("memcpy_from_dm", ctypes.c_void_p),
        ("comp_mask", ctypes.c_uint32),
        ("handle", ctypes.c_uint32),
    )


class IbvMr(ctypes.Structure):
    _fields_ = (
        ("context", ctypes.c_void_p),
        ("pd", ctypes.c_void_p),
        ("addr", ctypes.c_void_p),
        ("length", ctypes.c_size_t),
        ("handle", ctypes.c_uint32),
        ("lkey", ctypes.c_uint32),
        ("rkey", ctypes.c_uint32),
    )


class IbvMw(ctypes.Structure):
    _fields_ = (
        ("context", ctypes.c_void_p),
        ("pd", ctypes.c_void_p),
        ("rkey", ctypes.c_uint32),
        ("handle", ctypes.c_uint32),
        ("type", ctypes.c_int),
    )


class IbvMrInitAttr(ctypes.Structure):
    _fields_ = (
        ("length", ctypes.c_size_t),
        ("access", ctypes.c_uint),
        ("comp_mask", ctypes.c_uint64),
        ("iova", ctypes.c_uint64),
        ("addr", ctypes.c_void_p),
        ("fd", ctypes.c_int),
        ("fd_offset", ctypes.c_uint64),
        ("dmah", ctypes.c_void_p),
        ("buf", ctypes.c_void_p),
    )


class IbvAh(ctypes.Structure):
    _fields_ = (("context", ctypes.c_void_p), ("pd", ctypes.c_void_p), ("handle", ctypes.c_uint32))


class IbvSrq(ctypes.Structure):
    """The beginning of struct ibv_srq of <infiniband/verbs.h>."""

    _fields_ = (("context", ctypes.c_void_p), ("srq_context", ctypes.c_void_p), ("pd", ctypes.c_void_p))


class Mr:
    """A memory region, as the struct ibv_mr that a program has.

    With the entry point libibverbs, the library makes the structure. With uverbs, the suite makes it from the kernel's
    answer.
    """

    def __init__(self, struct: IbvMr, pointer: int = 0) -> None:
        """`pointer` is the library's struct ibv_mr *, or 0 for a region that the library does not know."""
        self.struct = struct
        self.pointer = pointer

    @classmethod
    def at(cls, pointer: int) -> "Mr":
        """Returns the region whose struct ibv_mr the library returned at `pointer`."""
        return cls(IbvMr.from_address(pointer), pointer)

    @property
    def handle(self) -> int:
        return int(self.struct.handle)

    def fields(self) -> dict[str, int]:
        """Returns the fields of the structure, pointers as numbers."""
        names = ("addr", "length", "handle", "lkey", "rkey")
        return {name: int(getattr(self.struct, name) or 0) for name in names}


@dataclass(frozen=True)
class Buffer:
    """A buffer of ibv_alloc_buf: its memory, and its handle, which is a pointer from the library."""

    handle: int
    addr: int
    size: int
    free: Callable[[], object]

    def close(self) -> None:
        self.free()

    @property
    def pointer(self) -> int:
        return self.handle


class Held(Protocol):
    """An object that a program knows by a pointer and releases by a verb: memory of ibv_alloc_dm, or a dma handle."""

    @property
    def pointer(self) -> int: ...
    @property
    def handle(self) -> int: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Told:
    """The kernel's report about a region."""

    lkey: int
    rkey: int
    length: int
    iova: int


@dataclass(frozen=True)
class Return:
    """The result of a call: the returned value, errno (0 if the call did not set it), and the object it created.

    `release` releases an object that is not a memory region. `layer` is the layer that answered; it is `kernel` unless
    the result shows a different layer.
    """

    value: int
    errno: int
    mr: Mr | None = None
    layer: str = "kernel"
    buffer: Buffer | None = None
    told: Told | None = None
    pd: "Pd | None" = None
    held: Held | None = None
    release: Callable[[], object] | None = None


@dataclass
class Injected:
    """A failure of an allocation that a case injects. `reached` is whether a call has made this allocation."""

    reached: bool = False


class Sge(NamedTuple):
    """One SGE: address, length in bytes, lkey.

    `rkey` is the key of the same memory for a peer, or 0.
    """

    addr: int
    length: int
    lkey: int
    rkey: int = 0


class Pd(Protocol):
    """A protection domain that was allocated for a case."""

    @property
    def pointer(self) -> int: ...
    @property
    def handle(self) -> int: ...
    @property
    def context_pointer(self) -> int: ...
    def naming(self, handle: int) -> AbstractContextManager[None]: ...
    def close(self) -> None: ...


class PdAt:
    """A PD by the library's struct ibv_pd *; `release` releases it."""

    def __init__(self, pointer: int, release: Callable[[], object]) -> None:
        self.pointer, self._release = pointer, release
        self._struct = IbvPd.from_address(pointer)

    @property
    def handle(self) -> int:
        return int(self._struct.handle)

    @property
    def context_pointer(self) -> int:
        return self._struct.context or 0

    @contextmanager
    def naming(self, handle: int) -> Iterator[None]:
        """Within the block, struct ibv_pd has this handle."""
        own = self._struct.handle
        self._struct.handle = handle
        try:
            yield
        finally:
            self._struct.handle = own

    def forget(self) -> None:
        """Notes that the PD is released already."""
        self._release = lambda: None

    def close(self) -> None:
        self._release()


class Window(Protocol):
    """A memory window: `rkey` is the key in its struct ibv_mw, `old_rkey` the key before the latest bind."""

    rkey: int
    old_rkey: int

    @property
    def pointer(self) -> int: ...
    @property
    def handle(self) -> int: ...
    def dealloc(self) -> Return: ...


def errno_name(number: int) -> str:
    """Returns the name of an errno: `EINVAL` for 22, `errno 524` for a number without a name, an empty text for 0."""
    if number == 0:
        return ""
    if number == errno_module.EOPNOTSUPP:  # the same number as ENOTSUP on Linux
        return "EOPNOTSUPP"
    return errno_module.errorcode.get(number, f"errno {number}")


# The errnos by which library, kernel or driver report a call that they do not implement; kernels report the last one
# for ioctl methods.
ABSENT = (errno_module.EOPNOTSUPP, errno_module.ENOSYS, errno_module.EPROTONOSUPPORT)
