"""The objects of a case before one of its calls: regions, windows and keys, what has changed them last, and what has ended
them. Not for their ranges (extents.py)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass

from conformance.judging.checks import packets_of
from conformance.judging.extents import Extents
from conformance.judging.operands import key_quantities, operands, uses_key
from conformance.judging.regions import Region, changed, registered
from conformance.model.case import Case, MrSpec, Step, mask_of
from conformance.model.fault import (
    DECISIONS,
    HUGE,
    NEWER_COMMAND,
    OF_DOMAIN,
    OF_RANGE,
    OF_RIGHTS,
    ON_DEMAND,
    OWN_ADDRESSES,
    PERSISTENT,
    REGION,
    WINDOW,
)
from conformance.model.operations import SENDS, WRITES
from conformance.model.quantity import Quantity
from conformance.model.vocabulary import AWAITED, BINDS, PRODUCTS, REGISTRATIONS
from conformance.verbs import ENUMS

_ACCESS = ENUMS["ibv_access_flags"]
_CHANGES = ENUMS["ibv_rereg_mr_flags"]
# Calls that destroy an object, each with the name of the argument for that object.
_ENDS = {"ibv_dereg_mr": "mr", "ibv_dealloc_mw": "mw"}
_INVALIDATIONS = ("post_local_inv", "post_send_with_inv")
# By operation: the right that the region needs whose rkey a request has.
_RIGHT_OF = {
    "RDMA_WRITE": "REMOTE_WRITE",
    "RDMA_WRITE_WITH_IMM": "REMOTE_WRITE",
    "ATOMIC_WRITE": "REMOTE_WRITE",
    "RDMA_READ": "REMOTE_READ",
    "ATOMIC_CMP_AND_SWP": "REMOTE_ATOMIC",
    "ATOMIC_FETCH_AND_ADD": "REMOTE_ATOMIC",
    "FLUSH_GLOBAL": "FLUSH_GLOBAL",
    "FLUSH_PERSISTENT": "FLUSH_PERSISTENT",
}
# Operations that only read the memory of their elements.
_READING = (*SENDS, *WRITES)
_REREGISTRATIONS = ("ibv_rereg_mr", "ibv_rereg_mr_experimental")


@dataclass(frozen=True)
class Key:
    """The object whose key an operation uses. `ended` is the call that ended the key before the use; empty if the key is
    valid."""

    kind: str
    name: str
    ended: str


class Scene:
    """The objects of a case before the judged call, or before the later step `number`."""

    def __init__(self, case: Case, number: int) -> None:
        set_up = case.given
        self._entry = case.entry
        self._memory = set_up.memory
        self._places = {**set_up.memory, **set_up.dmabufs}
        self._queues = set_up.qps
        self._windows = {*set_up.windows}
        self._bound = {name: spec.bound for name, spec in set_up.windows.items()}
        specs = {name: spec for name, spec in set_up.mrs.items() if isinstance(spec, MrSpec)}
        self._regions = {
            name: registered(spec.call, spec.arguments, case.entry) for name, spec in specs.items()
        }
        self._destroyed_by = {
            name: "ibv_dereg_mr" for name, spec in set_up.mrs.items() if spec.gone
        }
        # Windows that are not bound, each with the last call about the window.
        self._unbound = {
            name: "ibv_alloc_mw" for name, spec in set_up.windows.items() if not spec.bound
        }
        # The last call that may have given an object a new key.
        self._changed_by: dict[str, str] = {}
        # By region: the flags of its last re-registration, and the region before.
        self._rereg: dict[str, tuple[int, Region]] = {}
        self._posted: dict[str, Step] = {}
        for step in (*case.before, *case.judged_steps[:number]):
            self._make(step)

    def _make(self, step: Step) -> None:
        """Creates, changes or destroys the objects of a step. A step that must be refused changes
        and destroys nothing; the object that it would create is added."""
        arguments, name = step.arguments, step.name
        if step.call in AWAITED.values():
            self._posted[step.call] = step
        elif step.call in REGISTRATIONS:
            self._regions[name] = registered(step.call, arguments, self._entry)
        elif step.call in PRODUCTS and PRODUCTS[step.call][0] == WINDOW:
            self._windows.add(name)
            self._unbound[name] = step.call
        elif step.then.outcome == "refused":
            return
        elif step.call in _REREGISTRATIONS and (
            region := self._regions.get(str(arguments.get("mr")))
        ):
            self._rereg[str(arguments["mr"])] = mask_of(arguments, "flags"), region
            self._regions[str(arguments["mr"])] = changed(region, step)
            self._changed_by[str(arguments["mr"])] = step.call
        elif step.call in BINDS:
            self._bound[str(arguments.get("mw"))] = arguments
            self._unbound.pop(str(arguments.get("mw")), None)
            self._changed_by[str(arguments.get("mw"))] = step.call
        elif step.call in _INVALIDATIONS:
            key = self.key_of(step)
            if key and key.kind == WINDOW:
                self._unbound[key.name] = step.call
        elif step.call in _ENDS:
            self._destroyed_by[str(arguments.get(_ENDS[step.call]))] = step.call

    @property
    def _extents(self) -> Extents:
        return Extents(self._places, self._regions, self._windows, self._bound)

    def request_of(self, step: Step) -> Step:
        """Returns the step that posted the requests for which `step` waits; for other steps, the step itself."""
        return self._posted.get(AWAITED.get(step.call, ""), step)

    def key_of(self, step: Step) -> Key | None:
        """Returns the key that a step uses; None if it uses no key. A number as the key counts as a region's key."""
        names = [name for quantity in key_quantities(step.arguments) for name in quantity.names]
        if "mw" in step.arguments and step.call == "bind_and_send":
            names = [(str(step.arguments["mw"]), "rkey")]
        for name, property_ in names:
            if name in self._windows:
                kind = WINDOW
            else:
                kind = REGION
            end = self._end_of(name, property_)
            if step.call in _INVALIDATIONS:
                end = end or self._unbound.get(name, "")
            return Key(kind, name, end)
        if uses_key(step):
            return Key(REGION, "", "")
        return None

    def _end_of(self, name: str, property_: str) -> str:
        """Returns the call that has ended a key; empty if the key is valid."""
        if name in self._destroyed_by:
            return self._destroyed_by[name]
        if property_.startswith("old_"):
            return self._changed_by.get(name, "a bind")
        return ""

    def changes_before(self, step: Step) -> tuple[str, ...]:
        """Returns the flags of the last re-registration of the region whose key a request has."""
        flags, _ = self._rereg.get(self._region_of(step), (0, None))
        return tuple(name for name in _CHANGES.short_names if flags & _CHANGES.value_of(name))

    def decided_by_change(self, step: Step, permitted: bool) -> str:
        """Returns the check of DECISIONS whose result the last re-registration changed to `permitted`; empty if none."""
        name = self._region_of(step)
        if name not in self._rereg:
            return ""
        past = copy(self)
        past._regions = {**self._regions, name: self._rereg[name][1]}
        before, now = past._permits(step, name), self._permits(step, name)
        return next((what for what in DECISIONS if before[what] != permitted == now[what]), "")

    def _permits(self, step: Step, name: str) -> Mapping[str, bool]:
        """Returns whether domain, range and rights of a region permit a request."""
        region, operation = self._regions[name], str(step.arguments.get("op", ""))
        if isinstance(step.arguments.get("rkey"), Quantity):
            right = _RIGHT_OF.get(operation, "")
        else:
            right = "" if operation in _READING else "LOCAL_WRITE"
        queue = self._queues.get(str(step.arguments.get("qp", "")))
        domain = queue.pd if queue else str(step.arguments.get("pd", region.pd))
        return {
            OF_DOMAIN: domain == region.pd,
            OF_RANGE: not self.is_outside(step),
            OF_RIGHTS: not right or bool(region.access & _ACCESS.value_of(right)),
        }

    def _region_of(self, step: Step) -> str:
        key = self.key_of(step)
        return key.name if key and key.kind == REGION else ""

    def uses(self, step: Step) -> bool:
        return uses_key(step) and step.call != "ibv_advise_mr"

    def kinds_of(self, step: Step) -> set[str]:
        regions = [
            *self._own_region(step),
            *filter(None, map(self._regions.get, self._names_of(step))),
        ]
        return {kind for region in regions for kind in self._kinds(region)}

    def is_outside(self, step: Step) -> bool:
        """Whether an operation addresses bytes outside of the range of its key."""
        extents = self._extents
        return any(extents.exceeds(step.arguments, *operand) for operand in operands(step))

    def exceeds_window(self, step: Step) -> bool:
        """Whether a packet names bytes outside of the window whose key it has."""
        for event in packets_of(step):
            numbers = event.numbers
            length = numbers.get("length") or numbers.get("data")
            if length is None or not {"rkey", "addr"} <= {*numbers}:
                continue
            is_of_window = any(name in self._windows for name, _ in numbers["rkey"].names)
            if is_of_window and self._extents.exceeds(
                numbers, numbers["rkey"], numbers["addr"], length
            ):
                return True
        return False

    def _names_of(self, step: Step) -> Iterator[str]:
        key = self.key_of(step)
        if key and key.kind == WINDOW:
            bound = self._bound.get(key.name)
            yield from [str(bound["mr"])] if bound else []
        elif key:
            yield from (
                name for quantity in key_quantities(step.arguments) for name, _ in quantity.names
            )
        if "mr" in step.arguments:
            yield str(step.arguments["mr"])

    def _own_region(self, step: Step) -> list[Region]:
        """Returns the region that a step registers, or a region with only the new rights; empty for other steps."""
        if step.call in REGISTRATIONS:
            return [registered(step.call, step.arguments, self._entry)]
        if "access" in step.arguments and step.call not in BINDS:
            return [Region("", None, None, None, mask_of(step.arguments, "access"), False)]
        return []

    def _kinds(self, region: Region) -> Iterator[str]:
        memory = self._memory.get(region.memory)
        if region.access & _ACCESS.value_of("ON_DEMAND"):
            yield ON_DEMAND
        if region.own_addresses or region.access & _ACCESS.value_of("ZERO_BASED"):
            yield OWN_ADDRESSES
        if memory is not None and memory.kind == "persistent":
            yield PERSISTENT
        if region.access & _ACCESS.value_of("HUGETLB"):
            yield HUGE
        if region.newer_command:
            yield NEWER_COMMAND
