"""Loads loop.c, compiled with the C compiler if there is one, and declares its structures. A call from Python to C
takes longer than most verbs; a loop in C takes only the time of the verbs. Without a compiler, sweeps have the same
results, but take longer."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Union

from conformance.bench.calls import IbvMr, members
from conformance.device.compiled import library
from conformance.device.uverbs import Uverbs

SOURCE = Path(__file__).with_name("loop.c")
_ARGUMENTS = 6
_UNEXPECTED = 1  # the loop's result if a region is not as requested; 0: no point is left, 2: a region was not released


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
    """An open uverbs file descriptor, and space for one region: loop.c registers one region at a time. The Descriptor
    must exist at least as long as the region."""

    _fields_ = (("region", IbvMr), ("fd", ctypes.c_int32), ("driver", ctypes.c_uint32))


def descriptor(entry: object) -> Descriptor:
    """Returns the Descriptor for the entry uverbs; for libibverbs, a Descriptor that is not used."""
    if isinstance(entry, Uverbs):
        return Descriptor(fd=entry.fd, driver=entry.driver_id)
    return Descriptor(fd=-1)


class Before(ctypes.Structure):
    """The data that all re-registrations of a group share: the PD and the range of the region, and the functions. For
    uverbs, `on` is a Descriptor's address and `pd` the PD's handle; for libibverbs, `pd` is a struct ibv_pd *."""

    _fields_ = members(
        "void *on; uint64_t pd, addr, length; void *reg, *reg_optional, *rereg, *dereg; uint64_t optional_mask",
    )


# The sizes and offsets in the order of rdma_cts_layout in loop.c.
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


def compiled() -> ctypes.CDLL | None:
    """Returns the compiled loop.c; None without a compiler. Raises UserError if the layout is not LAYOUT."""
    return library(SOURCE, LAYOUT)


def function(name: str) -> Callable[..., object]:
    """Returns a function of loop.c. Raises LookupError without a compiler."""
    loop = compiled()
    if loop is None:
        raise LookupError("loop.c was not compiled")
    call: Callable[..., object] = loop[name]
    return call


# An argument: an array('Q') with a number for each point, or one number or the address of a structure for all points.
Argument = Union[int, "array[int]", ctypes.Structure, "ctypes.Array[ctypes.c_uint64]"]
Call = tuple[Callable[..., object], Sequence[Argument]]  # a function and its arguments


class Loop:
    """One run of the loop. In `codes`, the loop stores 0 for an expected region, and errno + 1 for no region."""

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
        """`optional` is called at points whose access has a bit of `optional_mask`; `plain` is called at the other
        points. `columns` are pd, access, addr and length. The struct ibv_mr of each region must have this
        `context`, and these values of pd, addr and length."""
        self._kept: list[object] = [codes]
        self._loop = _Loop(
            plain=self._call(*plain),
            optional=self._call(*optional),
            optional_mask=optional_mask,
            release=address(release),
            context=context,
            codes=codes.buffer_info()[0],
            **{name: self._column(column) for name, column in columns.items()},
        )
        self._size = len(codes)

    def _call(self, function: Callable[..., object], arguments: Sequence[Argument]) -> _Call:
        padded = [*arguments, *[0] * (_ARGUMENTS - len(arguments))]
        return _Call(address(function), (_Column * _ARGUMENTS)(*map(self._column, padded)))

    def _column(self, argument: Argument) -> _Column:
        if isinstance(argument, array):
            values, step = argument, 1
        else:
            if isinstance(argument, int):
                number = argument
            else:
                number = ctypes.addressof(argument)
            values, step = array("Q", [number % (1 << 64)]), 0
        self._kept += argument, values
        return _Column(values.buffer_info()[0], step)

    def stops(self) -> Iterator[tuple[int, int, int]]:
        """Runs the loop for all points. Yields (index, address, 0) for each point whose region is not as requested; the
        caller has to release this region. Yields (index, 0, errno) for each point whose region was not released."""
        run = function("rdma_cts_loop")
        at, size = ctypes.c_uint64(0), ctypes.c_uint64(self._size)
        while ended := run(ctypes.byref(self._loop), ctypes.byref(at), size):
            yield (
                at.value,
                *((self._loop.region, 0) if ended == _UNEXPECTED else (0, self._loop.error)),
            )
            at.value += 1


def address(function: Callable[..., object]) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]
