"""Registrations at many points through the loop of loop.c: the same calls as execution/steps.py makes for a row.

What is looked at is the same too; only the first answer of each kind is written down in full. For a
stand-in of an entry (a reference, an injected violation), and without a compiler, there is no loop.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Mapping
from typing import Protocol

from conformance.bench.calls import IbvMr, Mr, Pd, Return, errno_name
from conformance.bench.interface import Entry
from conformance.device.libibverbs import Libibverbs
from conformance.device.uverbs import Uverbs
from conformance.execution.context import CaseContext, no_pointer
from conformance.execution.steps import registered
from conformance.model.case import Case, Given
from conformance.model.observation import Observation
from conformance.model.sweep import Sweep
from conformance.model.vocabulary import REGISTRATIONS
from conformance.sweeps import native
from conformance.sweeps.argument_columns import Columns
from conformance.sweeps.byte_columns import kinds, planes
from conformance.sweeps.grouping import Group, setup_axes
from conformance.sweeps.point_observations import PointObservations
from conformance.sweeps.rereg_loop import rereg_loop_for
from conformance.verbs import OPTIONAL_ACCESS

# Compiling the loop takes as long as some of these without it.
LEAST_POINTS = 2048
_NOT_MADE = 0xFFFF  # what stands in `codes` where the loop stopped


class Loop(Protocol):
    """Makes the calls of a sweep, a group of points at a time.

    Points of a group share the values of the axes in `outer`, and what `given` makes of their set-up.
    """

    outer: list[str]

    def given(self, given: Given) -> Given: ...
    def run(
        self, context: CaseContext, group: Group, record: PointObservations, observe: Callable[[int], Observation]
    ) -> list[str]: ...


def loop_for(case: Case, swept: Sweep, entry: Entry) -> Loop | None:
    """The loop for a sweep at an entry, where there is one."""
    call = case.when.call
    if call == "ibv_rereg_mr":
        return rereg_loop_for(case, swept, entry)
    if swept.size < LEAST_POINTS or case.afterwards or call not in REGISTRATIONS:
        return None
    if type(entry) not in (Libibverbs, Uverbs):
        return None
    if "fd" in case.when.arguments and case.when.arguments["fd"] not in case.given.dmabufs:
        return None
    if {"pd", "fd"} & swept.row.when.arguments.keys() or not native.available():
        return None
    return RegistrationLoop(swept, entry)  # type: ignore[arg-type]


class RegistrationLoop:
    """Registers and deregisters at each point of a group."""

    def __init__(self, swept: Sweep, entry: Libibverbs | Uverbs) -> None:
        self._swept, self._entry = swept, entry
        self.outer = setup_axes(swept)
        self._good: int | None = None
        self._descriptor = native.descriptor(entry)

    def given(self, given: Given) -> Given:
        """All of what is given."""
        return given

    def run(
        self, context: CaseContext, group: Group, record: PointObservations, observe: Callable[[int], Observation]
    ) -> list[str]:
        """Makes the calls of a group whose set-up is there; gives what could not be given back, in words.

        `observe` makes the call of one point as a row would, and gives what came.
        """
        pd = context.pds[str(context.case.when.arguments["pd"])]
        column = self._columns(context, group)
        addr, length = column["addr" if "addr" in column else "offset"], column["length"]
        codes = array("H", [_NOT_MADE]) * len(group.points)
        plain, other, undo = self._calls(context, pd, column)
        ibv_context, named = (pd.context_pointer, pd.pointer) if isinstance(self._entry, Libibverbs) else (0, 0)
        loop = native.Loop(
            codes, plain, other, OPTIONAL_ACCESS, undo, ibv_context, named, column["access"], addr, length
        )
        left: list[str] = []
        odd: dict[int, int] = {}
        while (ended := loop.run()) != native.DONE:
            if ended == native.ODD:
                branch, made = context.branch(context.case), self._region(loop.region, pd)
                with branch.cleanup:
                    answer = Return(0, 0, made)
                    at = (_at(addr, loop.at), _at(length, loop.at))
                    odd[loop.at] = record.number(registered(branch, context.case.when, answer, *at))
                left += branch.left_behind
            else:
                left.append(f"MR: deregistering it returned {errno_name(loop.error)}")
            loop.skip()
        found = kinds(planes(codes))
        numbers = []
        for kind, (low, high) in enumerate(found.values):
            code = low | high << 8
            if code == _NOT_MADE:
                numbers.append(0)
            elif code:
                numbers.append(record.number(no_pointer(Return(0, code - 1))))
            else:
                numbers.append(self._success(group.points[found.first(kind)], record, observe))
        noted = found.renumbered(numbers)
        for place, number in odd.items():
            noted[place] = number
        record.take(group.points, noted)
        return left

    def _success(self, point: int, record: PointObservations, observe: Callable[[int], Observation]) -> int:
        """The number of a region as asked for, which is written down in full once."""
        if self._good is None:
            self._good = record.number(observe(point))
        return self._good

    def _columns(self, context: CaseContext, group: Group) -> dict[str, int | array[int]]:
        values = self._swept.space.values(group.points[0])
        outer = {axis: values[axis] for axis in self.outer}
        columns = Columns(self._swept.space, outer, context)
        arguments = {**context.case.when.arguments, **self._swept.row.when.arguments}
        return {
            key: columns.column(argument, group.picks)
            for key, argument in arguments.items() if not isinstance(argument, str)
        }  # fmt: skip

    def _calls(
        self, context: CaseContext, pd: Pd, column: Mapping[str, int | array[int]]
    ) -> tuple[native.Call, native.Call, Callable[..., object]]:
        """The call, the one that takes its place where an optional flag is set, and what undoes either."""
        call, access, length, entry = context.case.when.call, column["access"], column["length"], self._entry
        if call == "ibv_reg_dmabuf_mr":
            fd = context.dmabufs[str(context.case.when.arguments["fd"])].fd
            if isinstance(entry, Uverbs):
                both = (ctypes.addressof(self._descriptor), pd.handle | fd << 32)
                arguments = (*both, column["offset"], length, column["iova"], access)
                ioctl = native.Call(native.function("rdma_cts_ioctl_reg_dmabuf"), arguments)
                return ioctl, ioctl, native.function("rdma_cts_write_dereg")
            plain = native.Call(entry.raw(call), (pd.pointer, column["offset"], length, column["iova"], fd, access))
            return plain, plain, entry.raw("ibv_dereg_mr")
        addr = column["addr"]
        iova = column.get("hca_va", addr)
        if isinstance(entry, Uverbs):
            arguments = (ctypes.addressof(self._descriptor), pd.handle, addr, length, iova, access)
            write = native.Call(native.function("rdma_cts_write_reg"), arguments)
            return write, write, native.function("rdma_cts_write_dereg")
        translated = (pd.pointer, addr, length, iova, access)
        own = (pd.pointer, addr, length, access) if call == "ibv_reg_mr" else translated
        optional = native.Call(entry.raw("ibv_reg_mr_iova2"), translated)
        return native.Call(entry.raw(call), own), optional, entry.raw("ibv_dereg_mr")

    def _region(self, address: int, pd: Pd) -> Mr:
        """The region that the loop left."""
        if isinstance(self._entry, Libibverbs):
            return Mr.at(address)
        struct = IbvMr.from_buffer_copy(IbvMr.from_address(address))
        struct.context, struct.pd = pd.context_pointer, pd.pointer
        return Mr(struct)


def _at(column: int | array[int], place: int) -> int:
    return column if isinstance(column, int) else column[place]
