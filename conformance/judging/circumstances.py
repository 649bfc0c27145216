"""Adds to a fault its location: the call that failed, the kind of region, and the object whose key was used. The
location is derived only from the case, and not from the observation. scene.py has the objects of the case."""

from __future__ import annotations

from dataclasses import replace

from conformance.judging.checks import check_of
from conformance.judging.scene import Scene
from conformance.model.case import Case, Flags, Step, mask_of
from conformance.model.fault import REGIONS, WINDOW, Effect, Fault, FaultKind
from conformance.model.operations import BUILDERS, BUILT, BUILT_INLINE
from conformance.model.vocabulary import ELSEWHERE, REGISTRATIONS, WIRE
from conformance.verbs import ENUMS

_ACCESS = ENUMS["ibv_access_flags"]
_NOT_REFUSED = (Effect.MOVED, Effect.ACCEPTED)


def located(fault: Fault, case: Case, number: int = 0) -> Fault:
    """Returns the fault with its location: in the judged call if `number` is 0, else in the later step `number`."""
    step = case.judged_steps[number]
    scene = Scene(case, number)
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
