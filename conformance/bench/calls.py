"""Defines the result of a call, and the structures that C programs use, for all entries. device/libibverbs.py calls the
library, and device/uverbs.py calls the kernel."""

from __future__ import annotations

import ctypes
import errno as errno_module
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

# The C types of members and arguments that are not pointers.
NUMBERS: Mapping[str, type] = {
    "int": ctypes.c_int,
    "uint8_t": ctypes.c_uint8,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_size_t,
}


def members(declarations: str) -> Sequence[tuple[str, Any]]:
    """Returns the members of a C struct for ctypes, from declarations such as `void *context, *pd; uint32_t handle`."""
    declared = (declaration.split(maxsplit=1) for declaration in declarations.split(";"))
    members_of_type = [
        (name.strip(), NUMBERS.get(ctype)) for ctype, names in declared for name in names.split(",")
    ]
    return [
        (name.removeprefix("*"), ctypes.c_void_p if name.startswith("*") else kind)
        for name, kind in members_of_type
    ]


class IbvPd(ctypes.Structure):
    _fields_ = members("void *context; uint32_t handle")


class IbvDm(ctypes.Structure):
    """struct ibv_dm of <infiniband/verbs.h>. Inline functions of the header call the functions of this structure."""

    _fields_ = members("void *context, *memcpy_to_dm, *memcpy_from_dm; uint32_t comp_mask, handle")


class IbvMr(ctypes.Structure):
    _fields_ = members("void *context, *pd, *addr; size_t length; uint32_t handle, lkey, rkey")


class IbvMw(ctypes.Structure):
    _fields_ = members("void *context, *pd; uint32_t rkey, handle; int type")


class KeyInStruct:
    """A window whose key is in its struct ibv_mw."""

    _struct: IbvMw

    @property
    def rkey(self) -> int:
        return int(self._struct.rkey)

    @rkey.setter
    def rkey(self, value: int) -> None:
        # ibv_bind_mw(3) requires the caller to restore the old key after a failed bind.
        self._struct.rkey = value


class IbvMrInitAttr(ctypes.Structure):
    _fields_ = members(
        "size_t length; uint32_t access; uint64_t comp_mask, iova; void *addr; int fd; uint64_t fd_offset;"
        "void *dmah, *buf",
    )


class MrInitAttr(NamedTuple):
    """The members of struct ibv_mr_init_attr as arguments of a call. `dmah` is an object, "NULL" or "invented"."""

    length: int
    access: int
    comp_mask: int
    iova: int
    addr: int
    fd: int
    fd_offset: int
    dmah: Any
    buf: Any


class IbvAh(ctypes.Structure):
    _fields_ = members("void *context, *pd; uint32_t handle")


class IbvSrq(ctypes.Structure):
    """The beginning of struct ibv_srq of <infiniband/verbs.h>."""

    _fields_ = members("void *context, *srq_context, *pd")


class Mr:
    """A memory region with its struct ibv_mr. At the entry `libibverbs`, the library creates the structure. At
    `uverbs`, the suite creates the structure from the kernel's response."""

    def __init__(self, struct: IbvMr, pointer: int = 0) -> None:
        """`pointer` is the library's struct ibv_mr *, or 0 for a region that the library did not register."""
        self.struct = struct
        self.pointer = pointer

    @classmethod
    def at(cls, pointer: int) -> Mr:
        """Returns the region with the library's struct ibv_mr at `pointer`."""
        return cls(IbvMr.from_address(pointer), pointer)

    @property
    def handle(self) -> int:
        return int(self.struct.handle)

    def fields(self) -> dict[str, int]:
        """Returns the fields of the structure as numbers."""
        names = ("addr", "length", "handle", "lkey", "rkey")
        return {name: int(getattr(self.struct, name) or 0) for name in names}


@dataclass(frozen=True)
class Buffer:
    """A buffer of ibv_alloc_buf. The handle is a pointer that the library has returned."""

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
    """An object for which a program has a pointer and which a verb releases, such as memory of ibv_alloc_dm."""

    @property
    def pointer(self) -> int: ...
    @property
    def handle(self) -> int: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class QueriedMr:
    """The result of the kernel's query of a region."""

    lkey: int
    rkey: int
    length: int
    iova: int


@dataclass(frozen=True)
class Return:
    """The result of a call: the returned value, errno (0 if the call did not set errno), and the object that the call
    created. `release` releases an imported region. `layer` is the layer that returned the result, by default
    `kernel`."""

    value: int
    errno: int
    mr: Mr | None = None
    layer: str = "kernel"
    buffer: Buffer | None = None
    queried: QueriedMr | None = None
    pd: Pd | None = None
    held: Held | None = None
    release: Callable[[], object] | None = None


@dataclass
class Injected:
    """An injected failure of an allocation. `reached` is whether the allocation has failed."""

    reached: bool = False


class Sge(NamedTuple):
    """One SGE: address, length in bytes, lkey. `rkey` is the key of the same memory for a peer, or 0."""

    addr: int
    length: int
    lkey: int
    rkey: int = 0


class Pd(Held, Protocol):
    """A protection domain that was allocated for a case."""

    @property
    def context_pointer(self) -> int: ...


class PdAt:
    """A PD with the library's struct ibv_pd *. `release` deallocates the PD."""

    def __init__(self, pointer: int, release: Callable[[], object]) -> None:
        self.pointer, self._release = pointer, release
        self._struct = IbvPd.from_address(pointer)

    @property
    def handle(self) -> int:
        return int(self._struct.handle)

    @property
    def context_pointer(self) -> int:
        return self._struct.context or 0

    def forget(self) -> None:
        """Makes `close` do nothing, because the PD is already deallocated."""
        self._release = lambda: None

    def close(self) -> None:
        self._release()


class Window(Protocol):
    """A memory window. `rkey` is the key in its struct ibv_mw, and `old_rkey` is the key before the last bind."""

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
    if number == errno_module.EOPNOTSUPP:  # on Linux, ENOTSUP is the same number
        return "EOPNOTSUPP"
    return errno_module.errorcode.get(number, f"errno {number}")


# The errnos of a call that a layer does not implement. The kernel returns EPROTONOSUPPORT for a missing ioctl method.
ABSENT = (errno_module.EOPNOTSUPP, errno_module.ENOSYS, errno_module.EPROTONOSUPPORT)
