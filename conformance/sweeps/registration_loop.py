"""Registrations and re-registrations at many points by loop.c, with the same calls and checks that execution/steps.py
makes for a row.

Only the first of several equal results is recorded in full. The loop is not used without a compiler, and not for entry
points other than the device's (the reference implementation, injected violations). Re-registrations are run in Python
if an axis of the sweep occurs in anything but the old access, the flags and the new access.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol, cast

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
_CHANGE_TRANSLATION, _CHANGE_PD = (
    ENUMS["ibv_rereg_mr_flags"].value_of(name) for name in ("CHANGE_TRANSLATION", "CHANGE_PD")
)


def rereg_loop_for(case: Case, sweep: Sweep, entry: Entry) -> ReregLoop | None:
    """The loop for a sweep of re-registrations, or None if loop.c cannot run it."""
    if sweep.size < MIN_POINTS or type(entry) not in (Libibverbs, Uverbs):
        return None
    given, row = case.given, sweep.row
    if case.before or case.afterwards or given.qps or given.windows or given.memlock or list(given.mrs) != ["mr"]:
        return None
    region = given.mrs["mr"]
    if region.call != "ibv_reg_mr" or region.gone or case.when.arguments["mr"] != "mr":
        return None
    old = row.objects("mrs").get("mr", Composed(region, {}))
    if not isinstance(old, Composed) or row.base_axes or row.objects("windows"):
        return None
    if old.arguments.keys() - {"access"} or row.when.arguments.keys() - {"flags", "access"}:
        return None
    return ReregLoop(sweep, entry, old) if native.available() else None  # type: ignore[arg-type]


class ReregLoop:
    def __init__(self, sweep: Sweep, entry: Libibverbs | Uverbs, old: Composed[MrSpec]) -> None:
        self.outer: list[str] = []
        self._sweep, self._entry, self._old = sweep, entry, old
        self._numbers: dict[int, int] = {}
        self._descriptor = native.descriptor(entry)

    def given(self, given: Given) -> Given:
        """The set-up without the region, which each point registers itself."""
        return replace(given, mrs={})

    def run(
        self, context: CaseContext, group: Group, record: PointObservations, observe: Callable[[int], Observation]
    ) -> list[str]:
        """Makes the calls of a group; returns a text for each region that could not be deregistered."""
        region, template = self._old.first, self._sweep.row.when
        when, columns = template.first, Columns(self._sweep.space, {}, context)
        new = {**when.arguments, **template.arguments}
        flags, access = (columns.column(new[key], group.inner_points) for key in ("flags", "access"))
        old = columns.column({**region.arguments, **self._old.arguments}["access"], group.inner_points)
        addr, length = context.numbers(region.arguments, "addr", "length")
        new_addr, new_length = context.numbers(when.arguments, "addr", "length")
        pd = context.pds[str(region.arguments["pd"])]
        new_pd = None if when.arguments["pd"] == NULL else context.pds[str(when.arguments["pd"])]
        before = self._before(pd, addr, length)
        span = (ctypes.c_uint64 * 2)(new_addr, new_length)
        arguments = (ctypes.addressof(before), old, flags, self._pd_argument(new_pd), ctypes.addressof(span), access)
        codes = array("H", bytes(2 * len(group.points)))
        name = "rdma_cts_rereg" if isinstance(self._entry, Libibverbs) else "rdma_cts_write_rereg"
        call = native.Call(native.function(name), arguments)
        if isinstance(self._entry, Libibverbs):
            ibv_context, release = pd.context_pointer, self._entry.raw("ibv_dereg_mr")
            expected = {
                "pd": _either(flags, _CHANGE_PD if new_pd else 0, new_pd.pointer if new_pd else 0, pd.pointer),
                "addr": _either(flags, _CHANGE_TRANSLATION, new_addr, addr),
                "length": _either(flags, _CHANGE_TRANSLATION, new_length, length),
            }
        else:
            ibv_context, release = 0, native.function("rdma_cts_write_dereg")
            expected = {"pd": 0, "addr": addr, "length": length}
        loop = native.Loop(codes, call, call, 0, release, ibv_context, access=0, **expected)

        def alone(at: int, region: int) -> int:
            release(ctypes.c_void_p(region))
            return record.number(observe(group.points[at]))

        not_released, unexpected = _run_to_end(loop, "MR mr", alone)

        def number_of(code: int, point: int) -> int:
            if code not in self._numbers:
                self._numbers[code] = record.number(observe(point))
            return self._numbers[code]

        _record(codes, group, record, number_of, unexpected)
        return not_released

    def _pd_argument(self, pd: Pd | None) -> int:
        """The PD as an argument of this entry point: a struct ibv_pd *, or the kernel's handle."""
        if pd is None:
            return 0
        return pd.pointer if isinstance(self._entry, Libibverbs) else pd.handle

    def _before(self, pd: Pd, addr: int, length: int) -> native.Before:
        if isinstance(self._entry, Uverbs):
            on = ctypes.addressof(self._descriptor)
            return native.Before(on=on, pd=pd.handle, addr=addr, length=length)
        raw = self._entry.raw
        return native.Before(
            pd=pd.pointer,
            addr=addr,
            length=length,
            reg=native.address(raw("ibv_reg_mr")),
            reg_optional=native.address(raw("ibv_reg_mr_iova2")),
            rereg=native.address(raw("ibv_rereg_mr")),
            dereg=native.address(raw("ibv_dereg_mr")),
            optional_mask=OPTIONAL_ACCESS,
        )


def _either(flags: int | array[int], flag: int, if_set: int, if_not: int) -> int | array[int]:
    if isinstance(flags, int):
        return if_set if flags & flag else if_not
    if if_set == if_not:
        return if_set
    return array("Q", (if_set if each & flag else if_not for each in flags))


# The functions of loop.c that make a registration by ibv_reg_mr_ex.
_BY_DOOR = {"ibv_reg_mr": "rdma_cts_ex_reg_mr", "ibv_reg_mr_iova": "rdma_cts_ex_reg_mr_iova"}
_NO_CODE = 0xFFFF  # the value in `codes` of points at which the loop stopped


class Loop(Protocol):
    """Makes the calls of a sweep, one group of points at a time.

    The points of a group have the same values on the axes in `outer`, and the set-up that `given` returns.
    """

    outer: list[str]

    def given(self, given: Given) -> Given: ...
    def run(
        self, context: CaseContext, group: Group, record: PointObservations, observe: Callable[[int], Observation]
    ) -> list[str]: ...


def loop_for(case: Case, sweep: Sweep, entry: Entry) -> Loop | None:
    """The loop for a sweep with an entry point, or None if loop.c cannot run it."""
    call = case.when.call
    if call == "ibv_rereg_mr":
        return rereg_loop_for(case, sweep, entry)
    if sweep.size < MIN_POINTS or case.afterwards or call not in REGISTRATIONS:
        return None
    if not _is_of_device(entry) or (isinstance(entry, Uverbs) and not entry.driver_id):
        return None
    if isinstance(entry, RegMrEx) and (call not in _BY_DOOR or not entry.offers("reg_mr_ex")):
        return None
    if "fd" in case.when.arguments and case.when.arguments["fd"] not in case.given.dmabufs:
        return None
    if {"pd", "fd"} & sweep.row.when.arguments.keys() or not native.available():
        return None
    return RegistrationLoop(sweep, entry)  # type: ignore[arg-type]


def _is_of_device(entry: Entry) -> bool:
    """Whether an entry point is an unaltered entry point of a device or, for one of bench/doors.py, is based on one."""
    return type(entry.library if isinstance(entry, RegMrEx) else entry) in (Libibverbs, Uverbs)


class RegistrationLoop:
    def __init__(self, sweep: Sweep, entry: Libibverbs | Uverbs | RegMrEx) -> None:
        self._sweep, self._entry = sweep, entry
        self.outer = setup_axes(sweep)
        self._success_number: int | None = None
        self._descriptor = native.descriptor(entry)

    def given(self, given: Given) -> Given:
        return given

    def run(
        self, context: CaseContext, group: Group, record: PointObservations, observe: Callable[[int], Observation]
    ) -> list[str]:
        """Makes the calls of a group on an existing set-up; returns a text for each object that could not be released.

        `observe` runs one point as a row and returns the observation.
        """
        pd = context.pds[str(context.case.when.arguments["pd"])]
        column = self._columns(context, group)
        addr, length = column["addr" if "addr" in column else "offset"], column["length"]
        codes = array("H", [_NO_CODE]) * len(group.points)
        plain, optional, release = self._calls(context, pd, column)
        ibv_context, named = (pd.context_pointer, pd.pointer) if not isinstance(self._entry, Uverbs) else (0, 0)
        columns = {"pd": named, "access": column["access"], "addr": addr, "length": length}
        loop = native.Loop(codes, plain, optional, OPTIONAL_ACCESS, release, ibv_context, **columns)
        left_behind: list[str] = []

        def as_made(at: int, region: int) -> int:
            branch = context.branch(context.case)
            with branch.cleanup:
                values = (_value_at(addr, at), _value_at(length, at))
                returned = Return(0, 0, self._region(region, pd))
                number = record.number(registered(branch, context.case.when, returned, *values))
            left_behind.extend(branch.left_behind)
            return number

        def number_of(code: int, point: int) -> int:
            if code == _NO_CODE:
                return 0
            return record.number(null_result(Return(0, code - 1))) if code else self._success(point, record, observe)

        not_released, unexpected = _run_to_end(loop, "MR", as_made)
        _record(codes, group, record, number_of, unexpected)
        return left_behind + not_released

    def _success(self, point: int, record: PointObservations, observe: Callable[[int], Observation]) -> int:
        """Returns the index of the observation of regions that are as requested; only the first region is observed in
        full."""
        if self._success_number is None:
            self._success_number = record.number(observe(point))
        return self._success_number

    def _columns(self, context: CaseContext, group: Group) -> dict[str, int | array[int]]:
        values = self._sweep.space.values(group.points[0])
        outer = {axis: values[axis] for axis in self.outer}
        columns = Columns(self._sweep.space, outer, context)
        arguments = {**context.case.when.arguments, **self._sweep.row.when.arguments}
        return {
            key: columns.column(argument, group.inner_points)
            for key, argument in arguments.items()
            if not isinstance(argument, str)
        }

    def _calls(
        self, context: CaseContext, pd: Pd, column: Mapping[str, int | array[int]]
    ) -> tuple[native.Call, native.Call, Callable[..., object]]:
        """Returns the call that registers, the call that registers with an optional flag, and the call that
        deregisters."""
        call, access, length, entry = context.case.when.call, column["access"], column["length"], self._entry
        if isinstance(entry, RegMrEx):
            library = cast(Libibverbs, entry.library)
            made = (native.address(library.raw("ibv_reg_mr_ex")), pd.pointer, column["addr"], length)
            ways = {"ibv_reg_mr": (*made, access), "ibv_reg_mr_iova": (*made, column.get("hca_va", 0), access)}
            door = native.Call(native.function(_BY_DOOR[call]), ways[call])
            return door, door, library.raw("ibv_dereg_mr")
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
        if not isinstance(self._entry, Uverbs):
            return Mr.at(address)
        struct = IbvMr.from_buffer_copy(IbvMr.from_address(address))
        struct.context, struct.pd = pd.context_pointer, pd.pointer
        return Mr(struct)


def _run_to_end(loop: native.Loop, name: str, observe: Callable[[int, int], int]) -> tuple[list[str], dict[int, int]]:
    """Runs the loop to its end. `observe` gets the index of a point whose struct ibv_mr was not as expected, and the
    address of the region, which it releases; it returns the index of the observation.

    Returns texts about regions that could not be deregistered, and the results of `observe`, by point.
    """
    not_released: list[str] = []
    unexpected: dict[int, int] = {}
    while (ended := loop.run()) != native.DONE:
        if ended == native.UNEXPECTED:
            unexpected[loop.at] = observe(loop.at, loop.region)
        else:
            not_released.append(f"{name}: deregistering it returned {errno_name(loop.error)}")
        loop.skip()
    return not_released, unexpected


def _record(
    codes: array[int],
    group: Group,
    record: PointObservations,
    number_of: Callable[[int, int], int],
    unexpected: Mapping[int, int],
) -> None:
    """Records the points of a group. `number_of` gets a code and the first point with it."""
    found = combinations(byte_planes(codes))
    firsts = [(low | high << 8, group.points[found.first(id_)]) for id_, (low, high) in enumerate(found.values)]
    recorded = found.renumbered([number_of(code, point) for code, point in firsts])
    for index, number in unexpected.items():
        recorded[index] = number
    record.record_all(group.points, recorded)


def _value_at(column: int | array[int], index: int) -> int:
    return column if isinstance(column, int) else column[index]
