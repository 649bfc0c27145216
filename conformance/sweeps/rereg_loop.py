"""Re-registrations at many points by loop.c: each point registers a region, re-registers it and deregisters it.

Only for sweeps whose axes occur in nothing but the old access, the flags and the new access; other sweeps are run in
Python.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable
from dataclasses import replace

from conformance.bench.calls import Pd, errno_name
from conformance.bench.interface import Entry
from conformance.device.libibverbs import Libibverbs
from conformance.device.uverbs import Uverbs
from conformance.execution.context import CaseContext
from conformance.model.case import Case, Given
from conformance.model.observation import Observation
from conformance.model.row_template import MrTemplate
from conformance.model.sweep import Sweep
from conformance.model.vocabulary import NULL
from conformance.sweeps import native
from conformance.sweeps.argument_columns import Columns
from conformance.sweeps.byte_columns import byte_planes, combinations
from conformance.sweeps.grouping import Group
from conformance.sweeps.point_observations import PointObservations
from conformance.verbs import ENUMS, OPTIONAL_ACCESS

_MIN_POINTS = 2048
_CHANGE_TRANSLATION, _CHANGE_PD = (
    ENUMS["ibv_rereg_mr_flags"].value_of(name) for name in ("CHANGE_TRANSLATION", "CHANGE_PD")
)


def rereg_loop_for(case: Case, sweep: Sweep, entry: Entry) -> ReregLoop | None:
    """The loop for a sweep of re-registrations, or None if loop.c cannot run it."""
    if sweep.size < _MIN_POINTS or type(entry) not in (Libibverbs, Uverbs):
        return None
    given, row = case.given, sweep.row
    if case.before or case.afterwards or given.qps or given.windows or given.memlock or list(given.mrs) != ["mr"]:
        return None
    region = given.mrs["mr"]
    if region.call != "ibv_reg_mr" or region.gone or case.when.arguments["mr"] != "mr":
        return None
    old = row.given.mrs.get("mr", MrTemplate(region, {}))
    if not isinstance(old, MrTemplate) or row.given.base_axes or row.given.windows:
        return None
    if old.arguments.keys() - {"access"} or row.when.arguments.keys() - {"flags", "access"}:
        return None
    return ReregLoop(sweep, entry, old) if native.available() else None  # type: ignore[arg-type]


class ReregLoop:
    """Registers, re-registers and deregisters at each point of a group."""

    def __init__(self, sweep: Sweep, entry: Libibverbs | Uverbs, old: MrTemplate) -> None:
        self.outer: list[str] = []
        self._sweep, self._entry, self._old = sweep, entry, old
        self._numbers: dict[tuple[int, ...], int] = {}
        self._descriptor = native.descriptor(entry)

    def given(self, given: Given) -> Given:
        """The set-up without the region, which each point registers itself."""
        return replace(given, mrs={})

    def run(
        self, context: CaseContext, group: Group, record: PointObservations, observe: Callable[[int], Observation]
    ) -> list[str]:
        """Makes the calls of a group; returns a sentence for each region that could not be deregistered."""
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
            expected = (
                _either(flags, _CHANGE_PD if new_pd else 0, new_pd.pointer if new_pd else 0, pd.pointer),
                _either(flags, _CHANGE_TRANSLATION, new_addr, addr),
                _either(flags, _CHANGE_TRANSLATION, new_length, length),
            )
        else:
            ibv_context, release, expected = 0, native.function("rdma_cts_write_dereg"), (0, addr, length)
        loop = native.Loop(codes, call, call, 0, release, ibv_context, expected[0], 0, *expected[1:])
        not_released, unexpected = self._run_to_end(loop, group, record, observe, release)
        found = combinations(byte_planes(codes))
        for id_, code in enumerate(found.values):
            if code not in self._numbers:
                self._numbers[code] = record.number(observe(group.points[found.first(id_)]))
        recorded = found.renumbered([self._numbers[code] for code in found.values])
        for index, number in unexpected.items():
            recorded[index] = number
        record.record_all(group.points, recorded)
        return not_released

    @staticmethod
    def _run_to_end(
        loop: native.Loop,
        group: Group,
        record: PointObservations,
        observe: Callable[[int], Observation],
        release: Callable[..., object],
    ) -> tuple[list[str], dict[int, int]]:
        """Runs the loop to its end; points at which ibv_mr was not as expected are observed in Python.

        Returns texts about regions that could not be deregistered, and the numbers of these observations by point.
        """
        not_released: list[str] = []
        unexpected: dict[int, int] = {}
        while (ended := loop.run()) != native.DONE:
            if ended == native.UNEXPECTED:
                release(ctypes.c_void_p(loop.region))
                unexpected[loop.at] = record.number(observe(group.points[loop.at]))
            else:
                not_released.append(f"MR mr: deregistering it returned {errno_name(loop.error)}")
            loop.skip()
        return not_released, unexpected

    def _pd_argument(self, pd: Pd | None) -> int:
        """The PD as an argument at this entry: struct ibv_pd * or the kernel's handle."""
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
    """`if_set` at the points where the flag is set, else `if_not`."""
    if isinstance(flags, int):
        return if_set if flags & flag else if_not
    if if_set == if_not:
        return if_set
    return array("Q", (if_set if each & flag else if_not for each in flags))
