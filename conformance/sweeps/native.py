"""The loop of loop.c, compiled once per process if there is a compiler, and its structures.

A call from Python to C takes longer than most verbs; a loop in C takes only the time of the verbs. Without a compiler,
sweeps have the same results, but take longer.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.bench.calls import IbvMr, members
from conformance.device.compiled import library
from conformance.device.uverbs import Uverbs

SOURCE = Path(__file__).with_name("loop.c")
_ARGUMENTS = 6
DONE, UNEXPECTED, NOT_RELEASED = range(3)


class _Column(ctypes.Structure):
    _fields_ = members("void *values; uint64_t step")


class _Call(ctypes.Structure):
    _fields_ = (("make", ctypes.c_void_p), ("arguments", _Column * _ARGUMENTS))


class _Loop(ctypes.Structure):
    _fields_ = (
        ("plain", _Call),
        ("optional", _Call),
        ("access", _Column),
        *members("uint64_t optional_mask; void *release; uint64_t context"),
        ("pd", _Column),
        ("addr", _Column),
        ("length", _Column),
        *members("void *codes, *region; int error"),
    )


class Descriptor(ctypes.Structure):
    """An open uverbs file descriptor, and space for the only region that loop.c registers on it at a time.

    The Descriptor must live at least as long as the region.
    """

    _fields_ = (("region", IbvMr), ("fd", ctypes.c_int32), ("driver", ctypes.c_uint32))


def descriptor(entry: object) -> Descriptor:
    """The Descriptor for the entry point uverbs; for libibverbs, a Descriptor that is not used."""
    return Descriptor(fd=entry.fd, driver=entry.driver_id) if isinstance(entry, Uverbs) else Descriptor(fd=-1)


class Before(ctypes.Structure):
    """The constant part of re-registrations: the PD and the range of the region, and the functions.

    For uverbs, `on` is the address of a Descriptor and `pd` the handle of the PD; for libibverbs, `pd` is a struct
    ibv_pd *.
    """

    _fields_ = members(
        "void *on; uint64_t pd, addr, length; void *reg, *reg_optional, *rereg, *dereg; uint64_t optional_mask"
    )


# In the order of rdma_cts_layout of loop.c.
LAYOUT = (
    ("sizeof(struct column)", ctypes.sizeof(_Column)),
    ("sizeof(struct call)", ctypes.sizeof(_Call)),
    ("sizeof(struct loop)", ctypes.sizeof(_Loop)),
    ("offset of release", _Loop.release.offset),
    ("offset of codes", _Loop.codes.offset),
    ("offset of error", _Loop.error.offset),
    ("sizeof(struct region)", ctypes.sizeof(IbvMr)),
    ("sizeof(struct descriptor)", ctypes.sizeof(Descriptor)),
    ("offset of fd", Descriptor.fd.offset),
    ("sizeof(struct before)", ctypes.sizeof(Before)),
    ("offset of optional_mask", Before.optional_mask.offset),
)


def _library() -> ctypes.CDLL | None:
    return library(SOURCE, LAYOUT)


def available() -> bool:
    """Whether the loop can be used; the first call compiles it. Raises UserError if the layout of loop.c is not
    LAYOUT."""
    return _library() is not None


def function(name: str) -> Callable[..., object]:
    """Returns a function of loop.c that registers or releases regions by the kernel's ABI. Raises LookupError without a
    compiler."""
    compiled = _library()
    if compiled is None:
        raise LookupError("loop.c was not compiled")
    found: Callable[..., object] = compiled[name]
    return found


@dataclass(frozen=True)
class Call:
    """A function and its arguments. An argument is one number for all points, or an array('Q') with a number for
    each."""

    function: Callable[..., object]
    arguments: Sequence[int | array[int]]


class Loop:
    """One run of the loop. For each point, `codes` gets 0 if the region is as requested, else errno + 1."""

    def __init__(
        self,
        codes: array[int],
        plain: Call,
        optional: Call,
        optional_mask: int,
        release: Callable[..., object],
        context: int,
        **columns: int | array[int],
    ) -> None:
        """`optional` is called at points whose access has a bit of `optional_mask`. `columns` are pd, access, addr and
        length.

        The struct ibv_mr of each region must have this `context` and `pd`.
        """
        self._kept: list[object] = [codes]
        self._loop = _Loop(
            plain=self._call(plain),
            optional=self._call(optional),
            optional_mask=optional_mask,
            release=address(release),
            context=context,
            codes=codes.buffer_info()[0],
            **{name: self._column(column) for name, column in columns.items()},
        )
        self._at, self._size = ctypes.c_uint64(0), len(codes)

    def _call(self, call: Call) -> _Call:
        padded = [*call.arguments, *[0] * (_ARGUMENTS - len(call.arguments))]
        return _Call(address(call.function), (_Column * _ARGUMENTS)(*(self._column(each) for each in padded)))

    def _column(self, values: int | array[int]) -> _Column:
        step = 0 if isinstance(values, int) else 1
        kept = array("Q", [values % (1 << 64)]) if isinstance(values, int) else values
        self._kept.append(kept)
        return _Column(kept.buffer_info()[0], step)

    def run(self) -> int:
        """Continues after the last stop. Returns DONE, or UNEXPECTED or NOT_RELEASED for the point `at`."""
        compiled = _library()
        assert compiled is not None
        return int(
            compiled.rdma_cts_loop(ctypes.byref(self._loop), ctypes.byref(self._at), ctypes.c_uint64(self._size))
        )

    @property
    def at(self) -> int:
        """The index of the point at which the loop stopped."""
        return self._at.value

    @property
    def error(self) -> int:
        """The errno of releasing the region of the point `at`."""
        return int(self._loop.error)

    @property
    def region(self) -> int:
        """The address of the unexpected region of the point `at`, which the caller has to release."""
        return int(self._loop.region)

    def skip(self) -> None:
        self._at.value += 1


def address(function: Callable[..., object]) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]
