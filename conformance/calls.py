"""Exact calls of the verbs under test: the arguments as given, the return value and errno as they came.

ctypes on the exported symbols of libibverbs, because the bindings hide what a conformance suite must
see: they turn codes into exceptions and address 0 into an allocation of their own. Not for setting
up (device.py does that with pyverbs) and not for judging.
"""

from __future__ import annotations

import ctypes
import errno as errno_module
from dataclasses import dataclass

# Bits 20 to 29 of the access flags are optional: enum ibv_access_flags, IBV_ACCESS_OPTIONAL_RANGE.
OPTIONAL_RANGE = 0x3FF00000


class IbvPd(ctypes.Structure):
    """struct ibv_pd of <infiniband/verbs.h>."""

    _fields_ = (("context", ctypes.c_void_p), ("handle", ctypes.c_uint32))


class IbvMr(ctypes.Structure):
    """struct ibv_mr of <infiniband/verbs.h>."""

    _fields_ = (
        ("context", ctypes.c_void_p),
        ("pd", ctypes.c_void_p),
        ("addr", ctypes.c_void_p),
        ("length", ctypes.c_size_t),
        ("handle", ctypes.c_uint32),
        ("lkey", ctypes.c_uint32),
        ("rkey", ctypes.c_uint32),
    )


@dataclass(frozen=True)
class Return:
    """What a call returned: `value` (a pointer or an int) and errno, 0 when the call left it alone."""

    value: int
    errno: int


def errno_name(number: int) -> str:
    """`EINVAL` for 22; `errno 524` for what user space has no name for; empty for 0."""
    if number == 0:
        return ""
    if number == errno_module.EOPNOTSUPP:  # the same number as ENOTSUP on Linux
        return "EOPNOTSUPP"
    return errno_module.errorcode.get(number, f"errno {number}")


class Libibverbs:
    """The libibverbs entry. Pointers are ints; a pointer of 0 is NULL."""

    name = "libibverbs"

    def __init__(self) -> None:
        """Loads the library the dynamic linker finds. Raises OSError where there is none."""
        self._library = ctypes.CDLL("libibverbs.so.1", use_errno=True)
        pointer, size, word = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        self._reg_mr = self._function("ibv_reg_mr", pointer, pointer, pointer, size, word)
        self._reg_mr_iova2 = self._function(
            "ibv_reg_mr_iova2", pointer, pointer, pointer, size, ctypes.c_uint64, ctypes.c_uint
        )
        self._dereg_mr = self._function("ibv_dereg_mr", word, pointer)

    def _function(self, name: str, result: type, *arguments: type) -> ctypes._NamedFuncPointer:
        function = self._library[name]
        function.restype = result
        function.argtypes = arguments
        return function

    def _call(self, function: ctypes._NamedFuncPointer, *arguments: int) -> Return:
        ctypes.set_errno(0)
        value = function(*arguments)
        return Return(value or 0, ctypes.get_errno())

    def reg_mr(self, pd: int, addr: int, length: int, access: int) -> Return:
        """ibv_reg_mr as a C program gets it: with optional flags the header's macro takes ibv_reg_mr_iova2."""
        if access & OPTIONAL_RANGE:
            return self._call(self._reg_mr_iova2, pd, addr, length, addr, access)
        return self._call(self._reg_mr, pd, addr, length, access)

    def dereg_mr(self, mr: int) -> Return:
        """ibv_dereg_mr: 0, or the value of errno."""
        return self._call(self._dereg_mr, mr)


def mr_at(pointer: int) -> IbvMr:
    """The structure that a registration returned."""
    return IbvMr.from_address(pointer)
