"""Adds to a fault its location: the call that failed, the kind of region, and the object whose key was used. The
location is derived only from the case, and not from the observation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace

from conformance.judging.checks import check_of, packets_of
from conformance.model.case import Argument, Arguments, Case, Flags, MrSpec, SgeSpec, Step, mask_of
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
    REGIONS,
    WINDOW,
    Effect,
    Fault,
    FaultKind,
)
from conformance.model.positions import locate
from conformance.model.quantity import WRAP, Quantity
from conformance.model.vocabulary import (
    AWAITED,
    BINDS,
    BUILDERS,
    BUILT,
    BUILT_INLINE,
    ELSEWHERE,
    PRODUCTS,
    REGISTRATIONS,
    SENDS,
    WIRE,
    WRITES,
)
from conformance.verbs import ENUMS

_ACCESS = ENUMS["ibv_access_flags"]
_MASK = ENUMS["ibv_mr_init_attr_mask"]
_CHANGES = ENUMS["ibv_rereg_mr_flags"]
_KEYS = ("rkey", "lkey")
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
_NOT_REFUSED = (Effect.MOVED, Effect.ACCEPTED)
# Operations that only read the memory of their elements.
_READING = (*SENDS, *WRITES)
_REREGISTRATIONS = ("ibv_rereg_mr", "ibv_rereg_mr_experimental")
# The page sizes, and the distance between two objects, that are assumed when ranges are compared. The result does not
# depend on the page sizes, because all quantities of a table scale with these sizes.
_PAGE, _HUGE_PAGE, _APART = 4096, 2 << 20, 1 << 44


def located(fault: Fault, case: Case, number: int = 0) -> Fault:
    """Returns the fault with its location: in the judged call if `number` is 0, else in the later step `number`."""
    step = case.judged_steps[number]
    scene = _Scene(case, number)
    request = scene.request_of(step)
    key = scene.key_of(request)
    access = mask_of(step.arguments, "access")
    beyond_window = (
        step.call == WIRE and fault.kind is FaultKind.MOVED and scene.exceeds_window(step)
    )
    allowed_by = case.when.call if number and case.when.then.judged == ELSEWHERE else ""
    if allowed_by or step.call == "access_elsewhere":
        decisive = case.when
    else:
        decisive = step
    return replace(
        fault,
        call=str(step),
        verb=step.call,
        entry=case.entry,
        step=number,
        operation=_operation(request) or fault.operation,
        key=WINDOW if beyond_window else key.kind if key else "",
        outside=fault.outside or beyond_window or scene.is_outside(step),
        dead=bool(key and key.ended),
        ended=key.ended if key else "",
        qp_type=_qp_type(case, step),
        allowed_by=allowed_by,
        check=check_of(case, decisive, fault),
        region=tuple(region for region in REGIONS if region in scene.kinds_of(request)),
        access=tuple(name for name in _ACCESS.short_names if access & _ACCESS.value_of(name)),
        used=step.call in REGISTRATIONS
        and any(scene.uses(later) for later in case.afterwards[number:]),
        changed=scene.changes_before(request),
        decides=scene.decided_by_change(request, fault.effect not in _NOT_REFUSED),
    )


def _qp_type(case: Case, step: Step) -> str:
    queue = case.given.qps.get(str(step.arguments.get("qp", "")))
    if queue:
        kind = queue.kind
    else:
        kind = str(step.arguments.get("qp_type", ""))
    if kind == "RC":
        return ""
    return kind


def _operation(step: Step) -> str:
    """Returns the name of an operation: its opcode, or BUILT if a builder of ibv_wr_post(3) posts it."""
    if step.call != "ibv_wr_post" and step.arguments.get("poster") not in BUILDERS:
        return str(step.arguments.get("op", ""))
    flags = step.arguments.get("with_flags")
    inline = step.arguments.get("batch") in ("reused", "reused_list", "reused_parts") or (
        isinstance(flags, Flags) and "INLINE" in flags.names
    )
    if inline:
        return BUILT_INLINE
    return BUILT


@dataclass(frozen=True)
class _Key:
    """The object whose key an operation uses. `ended` is the call that ended the key before the use; empty if the key is
    valid."""

    kind: str
    name: str
    ended: str


@dataclass(frozen=True)
class _Region:
    """A region after its registration and re-registrations: the range of its addresses, and its special properties."""

    memory: str
    addr: Quantity | None
    length: Quantity | None
    first: Quantity | None  # the address of the first byte in requests; None means 0
    access: int
    own_addresses: bool
    newer_command: bool = False
    pd: str = "pd"


class _Scene:
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
            name: _registered(spec.call, spec.arguments, case.entry) for name, spec in specs.items()
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
        self._rereg: dict[str, tuple[int, _Region]] = {}
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
            self._regions[name] = _registered(step.call, arguments, self._entry)
        elif step.call in PRODUCTS and PRODUCTS[step.call][0] == WINDOW:
            self._windows.add(name)
            self._unbound[name] = step.call
        elif step.then.outcome == "refused":
            return
        elif step.call in _REREGISTRATIONS and (
            region := self._regions.get(str(arguments.get("mr")))
        ):
            self._rereg[str(arguments["mr"])] = mask_of(arguments, "flags"), region
            self._regions[str(arguments["mr"])] = _changed(region, step)
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

    def request_of(self, step: Step) -> Step:
        """Returns the step that posted the requests for which `step` waits; for other steps, the step itself."""
        return self._posted.get(AWAITED.get(step.call, ""), step)

    def key_of(self, step: Step) -> _Key | None:
        """Returns the key that a step uses; None if it uses no key. A number as the key counts as a region's key."""
        names = [name for quantity in _key_quantities(step.arguments) for name in quantity.names]
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
            return _Key(kind, name, end)
        if _uses_key(step):
            return _Key(REGION, "", "")
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
        return _uses_key(step) and step.call != "ibv_advise_mr"

    def kinds_of(self, step: Step) -> set[str]:
        regions = [
            *self._own_region(step),
            *filter(None, map(self._regions.get, self._names_of(step))),
        ]
        return {kind for region in regions for kind in self._kinds(region)}

    def is_outside(self, step: Step) -> bool:
        """Whether an operation addresses bytes outside of the range of its key."""
        return any(self._exceeds(step.arguments, *operand) for operand in _operands(step))

    def exceeds_window(self, step: Step) -> bool:
        """Whether a packet names bytes outside of the window whose key it has."""
        for event in packets_of(step):
            numbers = event.numbers
            length = numbers.get("length") or numbers.get("data")
            if length is None or not {"rkey", "addr"} <= {*numbers}:
                continue
            is_of_window = any(name in self._windows for name, _ in numbers["rkey"].names)
            if is_of_window and self._exceeds(numbers, numbers["rkey"], numbers["addr"], length):
                return True
        return False

    def _exceeds(
        self, arguments: Arguments, quantity: Quantity, addr: Argument, length: Argument
    ) -> bool:
        name = next((name for name, _ in quantity.names), "")
        if name in self._windows:
            extent = self._window_extent(name)
        else:
            extent = self._region_extent(name)
        here, size = self._value(addr), self._value(length)
        if extent is None or here is None or size is None:
            return False
        position, operation = (
            str(arguments.get("position", "whole")),
            str(arguments.get("op", "")),
        )
        try:
            offset, size = locate(position, operation, here, size)
        except LookupError:
            return False
        start = (here + offset - extent[0]) % WRAP
        return size > 0 and start + size > extent[1]

    def _region_extent(self, name: str) -> tuple[int, int] | None:
        region = self._regions.get(name)
        if region is None or region.length is None:
            return None
        first, length = (
            0 if region.first is None else self._value(region.first),
            self._value(region.length),
        )
        if first is None or length is None:
            return None
        return (first, length)

    def _window_extent(self, name: str) -> tuple[int, int] | None:
        bound = self._bound.get(name)
        if bound is None:
            return None
        first = (
            0
            if mask_of(bound, "access") & _ACCESS.value_of("ZERO_BASED")
            else self._value(bound["addr"])
        )
        length = self._value(bound["length"])
        if first is None or length is None:
            return None
        return (first, length)

    def _names_of(self, step: Step) -> Iterator[str]:
        key = self.key_of(step)
        if key and key.kind == WINDOW:
            bound = self._bound.get(key.name)
            yield from [str(bound["mr"])] if bound else []
        elif key:
            yield from (
                name for quantity in _key_quantities(step.arguments) for name, _ in quantity.names
            )
        if "mr" in step.arguments:
            yield str(step.arguments["mr"])

    def _own_region(self, step: Step) -> list[_Region]:
        """Returns the region that a step registers, or a region with only the new rights; empty for other steps."""
        if step.call in REGISTRATIONS:
            return [_registered(step.call, step.arguments, self._entry)]
        if "access" in step.arguments and step.call not in BINDS:
            return [_Region("", None, None, None, mask_of(step.arguments, "access"), False)]
        return []

    def _kinds(self, region: _Region) -> Iterator[str]:
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

    def _value(self, argument: Argument) -> int | None:
        """Returns the value of a quantity, with an assumed address for each object; None if the value is unknown."""
        if not isinstance(argument, Quantity):
            return getattr(argument, "number", None)
        try:
            return argument.evaluate(_PAGE, _HUGE_PAGE, self._property)
        except LookupError:
            return None

    def _property(self, name: str, property_: str) -> int:
        """Returns the value of an object's property. Raises LookupError for values that the device determines."""
        if name in self._places:
            addr = _APART * (1 + list(self._places).index(name))
            size = self._places[name].size.evaluate(_PAGE, _HUGE_PAGE, self._property)
            return {"": addr, "addr": addr, "size": size, "end": addr + size}[property_]
        region = self._regions.get(name)
        value_here = region and {"addr": region.addr, "length": region.length}.get(property_)
        if value_here:
            value = self._value(value_here)
        else:
            value = None
        if value is None:
            raise LookupError(name)
        return value


def _uses_key(step: Step) -> bool:
    return next(_key_quantities(step.arguments), None) is not None


def _key_quantities(arguments: Arguments) -> Iterator[Quantity]:
    for name in _KEYS:
        value = arguments.get(name)
        if isinstance(value, Quantity):
            yield value
    yield from (element.lkey for element in _elements(arguments))


def _operands(step: Step) -> Iterator[tuple[Quantity, Argument, Argument]]:
    """Yields the keys of a step, each with the address and the length of the range for which the step uses the key."""
    for name in _KEYS:
        value = step.arguments.get(name)
        if isinstance(value, Quantity) and {"addr", "length"} <= set(step.arguments):
            yield value, step.arguments["addr"], step.arguments["length"]
    yield from (
        (element.lkey, element.addr, element.length) for element in _elements(step.arguments)
    )


def _elements(arguments: Arguments) -> Sequence[SgeSpec]:
    elements = arguments.get("sg_list")
    if isinstance(elements, tuple):
        return [element for element in elements if isinstance(element, SgeSpec)]
    return []


def _registered(call: str, arguments: Arguments, entry: str) -> _Region:
    addr = _quantity(arguments, "offset" if call == "ibv_reg_dmabuf_mr" else "addr")
    access = mask_of(arguments, "access")
    first = _quantity(arguments, "iova") or _quantity(arguments, "hca_va") or addr
    own_addresses = call == "ibv_reg_mr_iova"
    if call == "ibv_reg_mr_ex":
        mask = mask_of(arguments, "comp_mask")
        own_addresses = bool(mask & _MASK.value_of("IOVA")) and not mask & _MASK.value_of("FD")
        if not mask & _MASK.value_of("IOVA"):
            first = addr
    if addr:
        memory = next((name for name, _ in addr.names), "")
    else:
        memory = ""
    zero_based = access & _ACCESS.value_of("ZERO_BASED")
    return _Region(
        memory,
        addr,
        _quantity(arguments, "length"),
        None if zero_based else first,
        access,
        own_addresses,
        (call, entry) == ("ibv_reg_mr_ex", "uverbs"),
        str(arguments.get("pd", "pd")),
    )


def _changed(region: _Region, step: Step) -> _Region:
    flags = mask_of(step.arguments, "flags")
    if flags & _CHANGES.value_of("CHANGE_TRANSLATION"):
        addr = _quantity(step.arguments, "addr")
        region = replace(
            region,
            addr=addr,
            length=_quantity(step.arguments, "length"),
            first=addr,
            own_addresses=False,
        )
    if flags & _CHANGES.value_of("CHANGE_PD"):
        region = replace(region, pd=str(step.arguments["pd"]))
    if flags & _CHANGES.value_of("CHANGE_ACCESS"):
        region = replace(region, access=mask_of(step.arguments, "access"))
    return region


def _quantity(arguments: Mapping[str, Argument], name: str) -> Quantity | None:
    quantity = arguments.get(name)
    if isinstance(quantity, Quantity):
        return quantity
    return None
