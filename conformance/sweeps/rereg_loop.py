"""Re-registrations at many points through loop.c: each registers a region, re-registers it and gives it up.

Only for sweeps in which nothing but the old access, the flags, the new access and a domain or range
named outright makes a difference; others go the slow way.
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
from conformance.sweeps.byte_columns import kinds, planes
from conformance.sweeps.grouping import Group
from conformance.sweeps.point_observations import PointObservations
from conformance.verbs import ENUMS, OPTIONAL_ACCESS

_LEAST_POINTS = 2048
_TRANSLATION, _PD = (ENUMS["ibv_rereg_mr_flags"].value_of(name) for name in ("CHANGE_TRANSLATION", "CHANGE_PD"))


def rereg_loop_for(case: Case, swept: Sweep, entry: Entry) -> ReregLoop | None:
    """The loop for a sweep of re-registrations, where there is one."""
    if swept.size < _LEAST_POINTS or type(entry) not in (Libibverbs, Uverbs):
        return None
    given, row = case.given, swept.row
    if case.before or case.afterwards or given.qps or given.windows or given.memlock or list(given.mrs) != ["mr"]:
        return None
    region = given.mrs["mr"]
    if region.call != "ibv_reg_mr" or region.gone or case.when.arguments["mr"] != "mr":
        return None
    old = row.given.mrs.get("mr", MrTemplate(region, {}))
    if not isinstance(old, MrTemplate) or row.given.ground_axes or row.given.windows:
        return None
    if old.arguments.keys() - {"access"} or row.when.arguments.keys() - {"flags", "access"}:
        return None
    return ReregLoop(swept, entry, old) if native.available() else None  # type: ignore[arg-type]


class ReregLoop:
    """Registers, re-registers and deregisters at each point of a group."""

    def __init__(self, swept: Sweep, entry: Libibverbs | Uverbs, old: MrTemplate) -> None:
        self.outer: list[str] = []
        self._swept, self._entry, self._old = swept, entry, old
        self._known: dict[tuple[int, ...], int] = {}
        self._descriptor = native.descriptor(entry)

    def given(self, given: Given) -> Given:
        """What is given but the region, which each point makes for itself."""
        return replace(given, mrs={})

    def run(
        self, context: CaseContext, group: Group, record: PointObservations, observe: Callable[[int], Observation]
    ) -> list[str]:
        """Makes the calls of a group; gives what could not be given back, in words."""
        region, template = self._old.first, self._swept.row.when
        when, columns = template.first, Columns(self._swept.space, {}, context)
        new = {**when.arguments, **template.arguments}
        flags, access = (columns.column(new[key], group.picks) for key in ("flags", "access"))
        old = columns.column({**region.arguments, **self._old.arguments}["access"], group.picks)
        addr, length = context.numbers(region.arguments, "addr", "length")
        new_addr, new_length = context.numbers(when.arguments, "addr", "length")
        pd = context.pds[str(region.arguments["pd"])]
        new_pd = None if when.arguments["pd"] == NULL else context.pds[str(when.arguments["pd"])]
        before = self._before(pd, addr, length)
        span = (ctypes.c_uint64 * 2)(new_addr, new_length)
        arguments = (ctypes.addressof(before), old, flags, self._name(new_pd), ctypes.addressof(span), access)
        codes = array("H", bytes(2 * len(group.points)))
        call = native.Call(self._function, arguments)
        if isinstance(self._entry, Libibverbs):
            ibv_context, undo = pd.context_pointer, self._entry.raw("ibv_dereg_mr")
            where = (
                _either(flags, _PD if new_pd else 0, new_pd.pointer if new_pd else 0, pd.pointer),
                _either(flags, _TRANSLATION, new_addr, addr), _either(flags, _TRANSLATION, new_length, length),
            )  # fmt: skip
        else:
            ibv_context, undo, where = 0, native.function("rdma_cts_write_dereg"), (0, addr, length)
        loop = native.Loop(codes, call, call, 0, undo, ibv_context, where[0], 0, *where[1:])
        left, odd = self._through(loop, group, record, observe, undo)
        found = kinds(planes(codes))
        for kind, code in enumerate(found.values):
            if code not in self._known:
                self._known[code] = record.number(observe(group.points[found.first(kind)]))
        noted = found.renumbered([self._known[code] for code in found.values])
        for place, number in odd.items():
            noted[place] = number
        record.take(group.points, noted)
        return left

    @staticmethod
    def _through(
        loop: native.Loop, group: Group, record: PointObservations, observe: Callable[[int], Observation],
        undo: Callable[..., object],
    ) -> tuple[list[str], dict[int, int]]:  # fmt: skip
        """Runs the loop to its end; a region that is not as asked for is looked at again, as a row would."""
        left: list[str] = []
        odd: dict[int, int] = {}
        while (ended := loop.run()) != native.DONE:
            if ended == native.ODD:
                undo(ctypes.c_void_p(loop.region))
                odd[loop.at] = record.number(observe(group.points[loop.at]))
            else:
                left.append(f"MR mr: deregistering it returned {errno_name(loop.error)}")
            loop.skip()
        return left, odd

    @property
    def _function(self) -> Callable[..., object]:
        return native.function("rdma_cts_rereg" if isinstance(self._entry, Libibverbs) else "rdma_cts_write_rereg")

    def _name(self, pd: Pd | None) -> int:
        """What names a domain at this entry."""
        if pd is None:
            return 0
        return pd.pointer if isinstance(self._entry, Libibverbs) else pd.handle

    def _before(self, pd: Pd, addr: int, length: int) -> native.Before:
        if isinstance(self._entry, Uverbs):
            on = ctypes.addressof(self._descriptor)
            return native.Before(on=on, pd=pd.handle, addr=addr, length=length)
        raw = self._entry.raw
        return native.Before(
            pd=pd.pointer, addr=addr, length=length, reg=native.address(raw("ibv_reg_mr")),
            reg_optional=native.address(raw("ibv_reg_mr_iova2")), rereg=native.address(raw("ibv_rereg_mr")),
            dereg=native.address(raw("ibv_dereg_mr")), optional_mask=OPTIONAL_ACCESS,
        )  # fmt: skip


def _either(flags: int | array[int], flag: int, yes: int, no: int) -> int | array[int]:
    """`yes` where the flag is set, else `no`."""
    if isinstance(flags, int):
        return yes if flags & flag else no
    if yes == no:
        return yes
    return array("Q", (yes if each & flag else no for each in flags))
