"""Registers and re-registers memory at many points by loop.c, with the calls and checks of execution/steps.py.

Of several points with equal results, only the first is recorded in full. The loop needs a compiler and an entry of a
device; the reference and injected violations are run in Python. Re-registrations are also run in Python if an axis of
the sweep determines an argument other than the old access, the flags or the new access.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from conformance.bench.calls import IbvMr, Mr, Pd, Return, errno_name
from conformance.bench.doors import RegMrEx
from conformance.bench.interface import Entry
from conformance.device.libibverbs import Libibverbs
from conformance.device.uverbs import Uverbs
from conformance.execution.context import CaseContext, null_result
from conformance.execution.steps import registered
from conformance.model.case import Case, Given, MrSpec
from conformance.model.observation import Observation
from conformance.model.row_template import Composed
from conformance.model.sweep import Sweep
from conformance.model.vocabulary import NULL, REGISTRATIONS
from conformance.sweeps import native
from conformance.sweeps.argument_columns import Columns
from conformance.sweeps.byte_columns import byte_planes, combinations
from conformance.sweeps.grouping import Group, setup_axes
from conformance.sweeps.outcome import PointObservations
from conformance.verbs import ENUMS, OPTIONAL_ACCESS

MIN_POINTS = 2048  # for fewer points, Python takes less time than compiling the loop
_FLAGS = ENUMS["ibv_rereg_mr_flags"]
_CHANGE_TRANSLATION = _FLAGS.value_of("CHANGE_TRANSLATION")
_CHANGE_PD = _FLAGS.value_of("CHANGE_PD")
# The functions of loop.c that call ibv_reg_mr_ex in place of these verbs.
_BY_DOOR = {"ibv_reg_mr": "rdma_cts_ex_reg_mr", "ibv_reg_mr_iova": "rdma_cts_ex_reg_mr_iova"}
_NO_CODE = 0xFFFF  # the initial value in `codes`, which remains at points at which the loop stopped
Observe = Callable[[int], Observation]  # runs one point as a row


def loop_for(case: Case, sweep: Sweep, entry: Entry) -> Loop | None:
    """Returns the loop for a sweep at an entry; None if the sweep has few points, or if loop.c cannot run it."""
    call = case.when.call
    if isinstance(entry, RegMrEx):
        library = entry.library
    else:
        library = entry
    # Entries of the reference and entries with injected violations have different types.
    if sweep.size < MIN_POINTS or type(library) not in (Libibverbs, Uverbs):
        return None
    if call == "ibv_rereg_mr":
        return _rereg_loop(case, sweep, entry)
    if (
        case.afterwards
        or call not in REGISTRATIONS
        or (isinstance(entry, Uverbs) and not entry.driver_id)
    ):
        return None
    if isinstance(entry, RegMrEx) and (call not in _BY_DOOR or not entry.offers("reg_mr_ex")):
        return None
    if "fd" in case.when.arguments and case.when.arguments["fd"] not in case.given.dmabufs:
        return None
    if {"pd", "fd"} & sweep.row.when.arguments.keys() or not native.compiled():
        return None
    return RegistrationLoop(sweep, entry)


def _rereg_loop(case: Case, sweep: Sweep, entry: Entry) -> Loop | None:
    set_up, row = case.given, sweep.row
    if (
        case.before
        or case.afterwards
        or set_up.qps
        or set_up.windows
        or set_up.memlock
        or list(set_up.mrs) != ["mr"]
    ):
        return None
    region = set_up.mrs["mr"]
    if (
        isinstance(entry, RegMrEx)
        or region.call != "ibv_reg_mr"
        or region.gone
        or case.when.arguments["mr"] != "mr"
    ):
        return None
    old = row.objects("mrs").get("mr", Composed(region, {}))
    if not isinstance(old, Composed) or row.base_axes or row.objects("windows"):
        return None
    if old.arguments.keys() - {"access"} or row.when.arguments.keys() - {"flags", "access"}:
        return None
    if native.compiled():
        return ReregLoop(sweep, entry, old)
    return None


class Loop:
    """Executes the calls of a sweep, one group of points at a time. All points of a group have the same values on the
    axes in `outer`, and the set-up that `given` returns."""

    outer: list[str]
    region = "MR"  # the name of the region in messages

    def __init__(self, sweep: Sweep, entry: Any) -> None:
        self._sweep, self._entry = sweep, entry
        self._descriptor = native.descriptor(entry)
        self._by_kernel = isinstance(entry, Uverbs)
        self._numbers = {_NO_CODE: 0}  # the index of the observation for each code

    def given(self, given: Given) -> Given:
        return given

    def run(
        self,
        context: CaseContext,
        group: Group,
        record: PointObservations,
        observe: Observe,
    ) -> None:
        """Executes the calls of a group on an existing set-up. For each object that could not be released, adds a text
        to `context.left_behind`."""
        codes = array("H", [_NO_CODE]) * len(group.points)
        loop, as_made = self._prepared(context, group, codes, observe)
        unexpected: dict[int, int] = {}
        for at, region, error in loop.stops():
            if region:
                unexpected[at] = record.number(as_made(at, region))
            else:
                context.left_behind.append(
                    f"{self.region}: deregistering it returned {errno_name(error)}",
                )
        combined = combinations(byte_planes(codes))
        for id_, (low, high) in enumerate(combined.values):
            code = low | high << 8
            if code not in self._numbers:
                observed = self._refusal(code) or observe(group.points[combined.first(id_)])
                self._numbers[code] = record.number(observed)
        recorded = combined.renumbered(
            [self._numbers[low | high << 8] for low, high in combined.values]
        )
        for index, number in unexpected.items():
            recorded[index] = number
        record.record_all(group.points, recorded)

    def _prepared(
        self,
        context: CaseContext,
        group: Group,
        codes: array[int],
        observe: Observe,
    ) -> tuple[native.Loop, Callable[[int, int], Observation]]:
        """Returns the loop in C, and a function for points whose struct ibv_mr is not as requested. The function takes
        the index of the point and the address of the region, releases the region, and returns the observation."""
        raise NotImplementedError

    def _refusal(self, code: int) -> Observation | None:
        """Returns the observation for a code; None if the code does not determine the observation."""


class ReregLoop(Loop):
    region = "MR mr"

    def __init__(self, sweep: Sweep, entry: Entry, old: Composed[MrSpec]) -> None:
        super().__init__(sweep, entry)
        self.outer, self._old = [], old

    def given(self, given: Given) -> Given:
        """Returns the set-up without the region, because each point registers its own region."""
        return replace(given, mrs={})

    def _prepared(
        self,
        context: CaseContext,
        group: Group,
        codes: array[int],
        observe: Observe,
    ) -> tuple[native.Loop, Callable[[int, int], Observation]]:
        region, template = self._old.first, self._sweep.row.when
        when, columns = template.first, Columns(self._sweep.space, {}, context)
        new = {**when.arguments, **template.arguments}
        earlier = {**region.arguments, **self._old.arguments}
        points = group.inner_points
        flags, access = (columns.column(new[key], points) for key in ("flags", "access"))
        old = columns.column(earlier["access"], points)
        addr, length = context.numbers(region.arguments, "addr", "length")
        new_addr, new_length = context.numbers(when.arguments, "addr", "length")
        pd = context.pds[str(region.arguments["pd"])]
        if when.arguments["pd"] == NULL:
            new_pd = None
        else:
            new_pd = context.pds[str(when.arguments["pd"])]
        span = (ctypes.c_uint64 * 2)(new_addr, new_length)
        if self._by_kernel:
            before = native.Before(
                on=ctypes.addressof(self._descriptor),
                pd=pd.handle,
                addr=addr,
                length=length,
            )
            function = native.function("rdma_cts_write_rereg")
            release = native.function("rdma_cts_write_dereg")
            pd_argument, ibv_context = new_pd.handle if new_pd else 0, 0
            expected: dict[str, int | array[int]] = {"pd": 0, "addr": addr, "length": length}
        else:
            before = self._before(pd, addr, length)
            function, release = native.function("rdma_cts_rereg"), self._entry.raw("ibv_dereg_mr")
            pd_argument, ibv_context = new_pd.pointer if new_pd else 0, pd.context_pointer
            expected = {
                "pd": _either(flags, _CHANGE_PD if new_pd else 0, pd_argument, pd.pointer),
                "addr": _either(flags, _CHANGE_TRANSLATION, new_addr, addr),
                "length": _either(flags, _CHANGE_TRANSLATION, new_length, length),
            }
        call = function, (before, old, flags, pd_argument, span, access)

        def alone(at: int, region: int) -> Observation:
            release(ctypes.c_void_p(region))
            return observe(group.points[at])

        return native.Loop(codes, call, call, 0, release, ibv_context, access=0, **expected), alone

    def _before(self, pd: Pd, addr: int, length: int) -> native.Before:
        verbs = {
            "reg": "reg_mr",
            "reg_optional": "reg_mr_iova2",
            "rereg": "rereg_mr",
            "dereg": "dereg_mr",
        }
        functions = {
            name: native.address(self._entry.raw(f"ibv_{verb}")) for name, verb in verbs.items()
        }
        return native.Before(
            pd=pd.pointer,
            addr=addr,
            length=length,
            optional_mask=OPTIONAL_ACCESS,
            **functions,
        )


def _at(column: int | array[int], point: int) -> int:
    """Returns the value of an argument at a point."""
    if isinstance(column, int):
        return column
    return column[point]


def _either(flags: int | array[int], flag: int, if_set: int, if_not: int) -> int | array[int]:
    if isinstance(flags, int):
        if flags & flag:
            return if_set
        return if_not
    if if_set == if_not:
        return if_set
    return array("Q", (if_set if item & flag else if_not for item in flags))


class RegistrationLoop(Loop):
    def __init__(self, sweep: Sweep, entry: Entry) -> None:
        super().__init__(sweep, entry)
        self.outer = setup_axes(sweep)

    def _prepared(
        self,
        context: CaseContext,
        group: Group,
        codes: array[int],
        observe: Observe,
    ) -> tuple[native.Loop, Callable[[int, int], Observation]]:
        pd = context.pds[str(context.case.when.arguments["pd"])]
        column = self._columns(context, group)
        addr, length = column["addr" if "addr" in column else "offset"], column["length"]
        ibv_context, named = (0, 0) if self._by_kernel else (pd.context_pointer, pd.pointer)
        columns = {"pd": named, "access": column["access"], "addr": addr, "length": length}
        plain, optional, release = self._calls(context, pd, column)

        def as_made(at: int, region: int) -> Observation:
            branch = context.branch(context.case)
            with branch.cleanup:
                returned = Return(0, 0, self._region(region, pd))
                values = (_at(addr, at), _at(length, at))
                observed = registered(branch, context.case.when, returned, *values)
            context.left_behind.extend(branch.left_behind)
            return observed

        mask = OPTIONAL_ACCESS
        loop = native.Loop(codes, plain, optional, mask, release, ibv_context, **columns)
        return loop, as_made

    def _refusal(self, code: int) -> Observation | None:
        if code:
            return null_result(Return(0, code - 1))
        return None

    def _columns(self, context: CaseContext, group: Group) -> dict[str, int | array[int]]:
        values = self._sweep.space.values(group.points[0])
        columns = Columns(self._sweep.space, {axis: values[axis] for axis in self.outer}, context)
        arguments = {**context.case.when.arguments, **self._sweep.row.when.arguments}
        return {
            key: columns.column(argument, group.inner_points)
            for key, argument in arguments.items()
            if not isinstance(argument, str)
        }

    def _calls(
        self,
        context: CaseContext,
        pd: Pd,
        column: Mapping[str, int | array[int]],
    ) -> tuple[native.Call, native.Call, Callable[..., object]]:
        """Returns the calls for an access without and with optional flags, and the function that deregisters."""
        call, entry = context.case.when.call, self._entry
        access, length, is_dmabuf = column["access"], column["length"], call == "ibv_reg_dmabuf_mr"
        start = column["offset" if is_dmabuf else "addr"]
        fd, iova = 0, column.get("hca_va", start)
        if is_dmabuf:
            fd = context.dmabufs[str(context.case.when.arguments["fd"])].fd
            iova = column["iova"]
        if self._by_kernel:
            name = "rdma_cts_ioctl_reg_dmabuf" if is_dmabuf else "rdma_cts_write_reg"
            register = native.function(name)
            command = (
                register,
                (self._descriptor, pd.handle | fd << 32, start, length, iova, access),
            )
            return command, command, native.function("rdma_cts_write_dereg")
        library = cast(Libibverbs, entry.library if isinstance(entry, RegMrEx) else entry)
        raw, release = library.raw, library.raw("ibv_dereg_mr")
        translated = (pd.pointer, start, length, iova, access)
        call_arguments = (pd.pointer, start, length, access) if call == "ibv_reg_mr" else translated
        if isinstance(entry, RegMrEx):
            address = native.address(raw("ibv_reg_mr_ex"))
            door = native.function(_BY_DOOR[call]), (address, *call_arguments)
            return door, door, release
        if is_dmabuf:
            plain = raw(call), (pd.pointer, start, length, iova, fd, access)
            return plain, plain, release
        return (raw(call), call_arguments), (raw("ibv_reg_mr_iova2"), translated), release

    def _region(self, address: int, pd: Pd) -> Mr:
        if not self._by_kernel:
            return Mr.at(address)
        struct = IbvMr.from_buffer_copy(IbvMr.from_address(address))
        struct.context, struct.pd = pd.context_pointer, pd.pointer
        return Mr(struct)
