"""The loop of loop.c, compiled once a process where there is a compiler, and the structures that it is given.

Calling C from Python costs more than most verbs take; in C a sweep costs what the calls cost. Without a compiler
sweeps take longer and give the same results. Not for choosing what is called (registration_loop.py, rereg_loop.py).
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.bench.calls import IbvMr
from conformance.device.compiled import library
from conformance.device.libibverbs import Libibverbs
from conformance.device.uverbs import Uverbs

SOURCE = Path(__file__).with_name("loop.c")
_ARGUMENTS = 6
DONE, ODD, KEPT = range(3)


class _Column(ctypes.Structure):
    _fields_ = (("values", ctypes.c_void_p), ("step", ctypes.c_uint64))


class _Call(ctypes.Structure):
    _fields_ = (("make", ctypes.c_void_p), ("arguments", _Column * _ARGUMENTS))


class _Loop(ctypes.Structure):
    _fields_ = (
        ("plain", _Call), ("other", _Call), ("access", _Column), ("other_mask", ctypes.c_uint64),
        ("undo", ctypes.c_void_p), ("context", ctypes.c_uint64), ("pd", _Column),
        ("addr", _Column), ("length", _Column), ("codes", ctypes.c_void_p),
        ("region", ctypes.c_void_p), ("error", ctypes.c_int),
    )  # fmt: skip


class Descriptor(ctypes.Structure):
    """An open uverbs descriptor, and room for the one region that the functions of loop.c make on it at a time.

    It must live as long as the region does, which is undone on it.
    """

    _fields_ = (("region", IbvMr), ("fd", ctypes.c_int32), ("driver", ctypes.c_uint32))


def descriptor(entry: Libibverbs | Uverbs) -> Descriptor:
    """The descriptor of the uverbs entry; at libibverbs one that nothing uses."""
    return Descriptor(fd=entry.fd, driver=entry.driver_id) if isinstance(entry, Uverbs) else Descriptor(fd=-1)


class Before(ctypes.Structure):
    """What re-registrations start from: a region's PD and range, and the functions that are called.

    At uverbs `on` is the address of a Descriptor and `pd` the handle of the PD, at libibverbs struct ibv_pd *.
    """

    _fields_ = (
        ("on", ctypes.c_void_p), ("pd", ctypes.c_uint64), ("addr", ctypes.c_uint64), ("length", ctypes.c_uint64),
        ("reg", ctypes.c_void_p), ("reg_optional", ctypes.c_void_p), ("rereg", ctypes.c_void_p),
        ("dereg", ctypes.c_void_p), ("optional_mask", ctypes.c_uint64),
    )  # fmt: skip


# In the order of rdma_cts_layout of loop.c.
LAYOUT = (
    ("sizeof(struct column)", ctypes.sizeof(_Column)), ("sizeof(struct call)", ctypes.sizeof(_Call)),
    ("sizeof(struct loop)", ctypes.sizeof(_Loop)), ("offset of undo", _Loop.undo.offset),
    ("offset of codes", _Loop.codes.offset), ("offset of error", _Loop.error.offset),
    ("sizeof(struct region)", ctypes.sizeof(IbvMr)), ("sizeof(struct descriptor)", ctypes.sizeof(Descriptor)),
    ("offset of fd", Descriptor.fd.offset), ("sizeof(struct before)", ctypes.sizeof(Before)),
    ("offset of optional_mask", Before.optional_mask.offset),
)  # fmt: skip


def _library() -> ctypes.CDLL | None:
    return library(SOURCE, LAYOUT)


def available() -> bool:
    """Whether the loop can be used; compiles it the first time. Raises UserError where its layout is not LAYOUT."""
    return _library() is not None


def function(name: str) -> Callable[..., object]:
    """A function of loop.c that makes or undoes a region at the kernel's ABI. LookupError without a compiler."""
    made = _library()
    if made is None:
        raise LookupError("no compiler has made the loop")
    found: Callable[..., object] = made[name]
    return found


@dataclass(frozen=True)
class Call:
    """A function and its arguments: numbers for all points, or arrays('Q') with one for each."""

    function: Callable[..., object]
    arguments: Sequence[int | array[int]]


class Loop:
    """One run of the loop. `codes` gets 0 for a region as asked for, else errno + 1."""

    def __init__(
        self, codes: array[int], plain: Call, other: Call, other_mask: int, undo: Callable[..., object],
        context: int, pd: int | array[int], access: int | array[int], addr: int | array[int], length: int | array[int],
    ) -> None:  # fmt: skip
        """`other` is called where the access has a bit of `other_mask`; a region names `context` and `pd`."""
        self._kept: list[object] = [codes]
        self._loop = _Loop(
            plain=self._call(plain), other=self._call(other), access=self._column(access), other_mask=other_mask,
            undo=address(undo), context=context, pd=self._column(pd), addr=self._column(addr),
            length=self._column(length), codes=codes.buffer_info()[0],
        )  # fmt: skip
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
        """Goes on from where it stopped: DONE, or ODD or KEPT at the point `at`."""
        made = _library()
        assert made is not None
        return int(made.rdma_cts_loop(ctypes.byref(self._loop), ctypes.byref(self._at), ctypes.c_uint64(self._size)))

    @property
    def at(self) -> int:
        """The point, counted from 0, at which it stopped."""
        return self._at.value

    @property
    def error(self) -> int:
        """The errno for which the region at `at` stayed."""
        return int(self._loop.error)

    @property
    def region(self) -> int:
        """Where the region at `at` lies, which is not as it was asked for, and which the caller is to undo."""
        return int(self._loop.region)

    def skip(self) -> None:
        """Leaves the point `at` behind."""
        self._at.value += 1


def address(function: Callable[..., object]) -> int:
    """Where a C function lies."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]
