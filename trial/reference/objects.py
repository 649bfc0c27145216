"""The objects of a reference device: protection domains, regions and windows."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from conformance.bench.calls import IbvPd, Return
from conformance.verbs import ENUMS

ACCESS = ENUMS["ibv_access_flags"]
(
    LOCAL_WRITE,
    REMOTE_WRITE,
    REMOTE_READ,
    REMOTE_ATOMIC,
    MW_BIND,
    ZERO_BASED,
    ON_DEMAND,
    HUGETLB,
    RELAXED_ORDERING,
) = (
    ACCESS.value_of(name)
    for name in """
    LOCAL_WRITE REMOTE_WRITE REMOTE_READ REMOTE_ATOMIC MW_BIND ZERO_BASED ON_DEMAND HUGETLB RELAXED_ORDERING
    """.split()
)
FLUSH_GLOBAL, FLUSH_PERSISTENT = (
    ACCESS.value_of("FLUSH_GLOBAL"),
    ACCESS.value_of("FLUSH_PERSISTENT"),
)
WORD = 0xFFFFFFFF


class Refused(Exception):
    """A refusal of a call by the device, with an errno."""

    def __init__(self, errno: int) -> None:
        super().__init__(f"refused with errno {errno}")
        self.errno = self.error_code = errno


def check(fault: int) -> None:
    """Raises Refused with the errno `fault`, unless it is 0."""
    if fault:
        raise Refused(fault)


def refuse_if(fault: object, errno: int) -> None:
    """Raises Refused with an errno if there is a fault."""
    if fault:
        raise Refused(errno)


def answered(call: Callable[[], object]) -> Return:
    """Returns the result of a call: 0, or the errno of its refusal."""
    try:
        call()
    except Refused as refused:
        return Return(refused.errno, refused.errno)
    return Return(0, 0)


class Domain:
    """A protection domain. `users` is the number of objects that use the domain; with 0, it can be deallocated."""

    def __init__(self, handle: int, context: int, release: Callable[[Domain], None]) -> None:
        self._release = release
        self._struct = IbvPd(context=context, handle=handle)
        self.pointer = ctypes.addressof(self._struct)
        self.context_pointer = context
        self.users = 0
        self.gone = False

    @property
    def handle(self) -> int:
        return int(self._struct.handle)

    @property
    def pyverbs(self) -> Any:
        raise LookupError("a reference has no bindings")

    def close(self) -> None:
        """Deallocates the PD if a call has not deallocated it. Raises Refused if an object still uses the PD."""
        if not self.gone:
            self._release(self)
            self.gone = True

    def dealloc(self) -> Return:
        return answered(self.close)


@dataclass(eq=False)
class Region:
    """A memory region: `length` bytes at `addr` in this process. In requests with its keys, the first byte has the
    address `iova`. `usable` is False after a failed command of re-registration. `pinned` is the number of bytes that
    count against the limit of locked memory."""

    handle: int
    key: int
    domain: Domain
    addr: int
    length: int
    iova: int
    access: int
    pinned: int = 0
    usable: bool = True
    windows: list[Window] = field(default_factory=list)


@dataclass(eq=False)
class Held:
    """An object to which a program has a pointer. The verb `end` releases the object by its handle."""

    handle: int
    end: Callable[[int], None]
    gone: bool = False

    @property
    def pointer(self) -> int:
        return self.handle

    def close(self) -> None:
        """Releases the object if no step has released it. Raises Refused."""
        if not self.gone:
            self.end(self.handle)


@dataclass(eq=False)
class Window:
    """A memory window. `region` is None while the window is not bound. `queue` is the number of the queue pair on which
    a window of type 2 is bound."""

    kind: int
    domain: Domain
    key: int
    region: Region | None = None
    addr: int = 0
    length: int = 0
    access: int = 0
    queue: int = 0
