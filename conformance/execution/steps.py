"""Implements the calls of the table language. Each function issues one call and returns the observation.
model/observation.py describes the keys of an observation."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any, cast

from conformance.bench.calls import (
    Held,
    IbvPd,
    Mr,
    Pd,
    QueriedMr,
    Return,
    errno_name,
)
from conformance.bench.doors import start_of
from conformance.errors import SetupRefused
from conformance.execution import (
    batches,
    beside,
    bursts,
    completion_fields,
    element_lists,
    elsewhere,
    exports,
    in_flight,
    lists,
    memory_events,
    notified,
    side_by_side,
    traffic,
    windows,
    wire,
)
from conformance.execution.context import CaseContext, compared, null_result, result_of, told
from conformance.execution.exports import INVENTED_HANDLE
from conformance.model.case import Argument, Step
from conformance.model.observation import MrFields, Observation
from conformance.model.operations import PROBES
from conformance.model.quantity import CONSTANTS
from conformance.model.vocabulary import CALLS, EXPORTED, NULL, PRODUCTS
from conformance.older_python import zip
from conformance.verbs import ENUMS, VERBS, ArgumentSpec

_REREG = ENUMS["ibv_rereg_mr_flags"]
_REREG_CODES = ENUMS["ibv_rereg_mr_err_code"]
_CHANGE_TRANSLATION, _CHANGE_PD = (
    _REREG.value_of("CHANGE_TRANSLATION"),
    _REREG.value_of("CHANGE_PD"),
)


def registered(
    context: CaseContext,
    step: Step,
    returned: Return,
    addr: int,
    length: int,
) -> Observation:
    """Returns the observation of a registration, and adds the region to the context. If the call has no argument `pd`,
    the region has to be in the PD of the argument `mr`."""
    if returned.mr is None:
        return null_result(returned)
    arguments = step.arguments
    if "pd" in arguments:
        pd = context.pds[str(arguments["pd"])].pointer
    else:
        pd = context.mrs[str(arguments["mr"])].struct.pd
    context.keep_mr(step.name, returned.mr, context.entry)
    return {
        "rc": None,
        "returned": "MR",
        "errno": errno_name(returned.errno),
        "layer": returned.layer,
        "mr": _fields(context, returned.mr, pd),
        "asked": {"addr": addr, "length": length},
    }


def _fields(context: CaseContext, mr: Mr, pd: int | None) -> MrFields:
    """Returns the fields of struct ibv_mr. `pd` is the pointer that the field `pd` must contain (None: NULL)."""
    right_context = mr.struct.context == context.pds["pd"].context_pointer
    return cast(
        MrFields,
        {**mr.fields(), "pd_is_the_asked": mr.struct.pd == pd, "context_is_the_pds": right_context},
    )


def call_verb(context: CaseContext, step: Step) -> Observation:
    """Calls a verb with the arguments of its prototype. Interprets the result as the manual page specifies."""
    verb = VERBS[step.call]
    with ExitStack() as opened:
        values = {
            key: _value(context, spec, step.arguments[key], opened)
            for key, spec in CALLS[step.call].items()
        }
        returned = getattr(context.entry, verb.method)(*values.values())
    if verb.product:
        # A verb without the argument `length` registers the memory of its argument `mr` again.
        of = values if "length" in values else cast(Mr, values["mr"]).fields()
        return registered(context, step, returned, start_of(of), cast(int, of["length"]))
    return result_of(returned)


def _value(context: CaseContext, spec: ArgumentSpec, given: Argument, opened: ExitStack) -> object:
    """Returns the value of an argument. `opened` closes the argument's file descriptor after the call."""
    if spec.kind == "word":
        return given
    if spec.kind != "object":
        return context.number(given)
    if spec.of == "dmabuf":
        return _descriptor(context, str(given), opened)
    if spec.of in ("dm", "dmah"):
        return context.held.get(str(given), given)
    if given == NULL:
        return None
    return _objects(context, spec.of)[str(given)]


def _objects(context: CaseContext, kind: str) -> dict[str, Any]:
    objects: dict[str, dict[str, Any]] = {
        "pd": context.pds,
        "mr": context.mrs,
        "buffer": context.buffers,
    }
    return objects.get(kind, context.held)


def _make_object(context: CaseContext, step: Step) -> Observation:
    """Calls a verb that creates an object other than a region or a window."""
    verb, arguments = VERBS[step.call], CALLS[step.call].items()
    unused = ExitStack()  # no argument of these verbs is a file descriptor
    values = [
        _value(context, spec, step.arguments[key], unused)
        for key, spec in arguments
        if spec.kind != "word"
    ]
    if step.call.startswith("ibv_import"):  # the only argument is the handle of an object
        values = [_handle_of(context, value, step) for value in values]
    if step.arguments.get("more_than") == "max_dm_size":
        values[0] = cast(int, values[0]) + context.bench.max_dm_size
    if verb.parameters[0].name == "context":
        values.insert(0, context.pds["pd"].context_pointer)
    returned: Return = getattr(context.entry, verb.method)(*values)
    held = returned.buffer or returned.pd or returned.held
    if held is None:
        return null_result(returned)
    kind, _ = PRODUCTS[step.call]
    _objects(context, kind)[step.name] = held
    if kind != "buffer":
        kind = kind.upper()
    context.cleanup.callback(context.release, f"{kind} {step.name}", held.close)
    return told(kind, "provider", None)


def _handle_of(context: CaseContext, value: Any, step: Step) -> int:
    """Returns the handle with which an object is imported."""
    which = step.arguments.get("handle", "own")
    if which == "invented":
        return INVENTED_HANDLE
    if which == "stale":
        return _stale_handle(context, value)
    if which == "of_a_domain":
        return context.pds["pd"].handle
    return cast(Held, value).handle if value else 0


def _descriptor(context: CaseContext, name: str, opened: ExitStack) -> int:
    """Returns the file descriptor of a dma-buf, or an invalid descriptor (vocabulary.BAD_FDS)."""
    if name in context.dmabufs:
        return context.dmabufs[name].fd
    if name == "minus_one":
        return -1
    if name == EXPORTED:
        return context.exported_fd
    fd = os.memfd_create("rdma-cts")
    opened.callback(os.close, fd)
    if name == "closed":
        opened.close()
    return fd


def ibv_dereg_mr(context: CaseContext, step: Step) -> Observation:
    name = str(step.arguments["mr"])
    mr = context.mrs[name]
    handle, which = mr.handle, str(step.arguments["handle"])
    imported = which.startswith("imported")
    if which != "own" and not imported:
        mr.struct.handle = INVENTED_HANDLE if which == "invented" else _stale_handle(context, mr)
    if imported:
        returned = context.bench.dereg_import(context.pds["pd"], mr, which == "imported_elsewhere")
    else:
        returned = context.owners[name].dereg_mr(mr)
    if returned.value == 0:
        context.forget("mrs", name)
    else:
        mr.struct.handle = handle
    return result_of(returned)


def _stale_handle(context: CaseContext, mr: Mr) -> int:
    """Registers the memory of `mr` a second time, deregisters the second region, and returns the stale handle."""
    entry = context.entry
    returned = entry.reg_mr(context.pds["pd"], mr.struct.addr or 0, mr.struct.length, 0)
    if returned.mr is None:
        raise SetupRefused(
            "registering a second region of the same memory",
            errno_name(returned.errno),
        )
    handle = returned.mr.handle
    if entry.dereg_mr(returned.mr).value != 0:
        raise SetupRefused("deregistering the second region", "")
    return handle


def _change(
    context: CaseContext, step: Step
) -> tuple[str, Mr, tuple[int, Pd | None, int, int, int]]:
    """Returns the name of the region that a step changes, the region, and the other arguments of the call."""
    name, pd_name = str(step.arguments["mr"]), str(step.arguments["pd"])
    pd = None
    if pd_name != NULL:
        pd = context.pds[pd_name]
    keys = ("flags", "addr", "length", "access")
    flags, addr, length, access = context.numbers(step.arguments, *keys)
    return name, context.mrs[name], (flags, pd, addr, length, access)


def ibv_rereg_mr(context: CaseContext, step: Step) -> Observation:
    name, mr, change = _change(context, step)
    flags, pd, addr, length, _ = change
    before = mr.fields()
    old_pd = mr.struct.pd
    returned = context.entry.rereg_mr(mr, *change)
    observation = result_of(returned)
    if context.entry.name == "libibverbs" and returned.value:
        observation |= {"returned": _REREG_CODES.name_of(returned.value), "enumerated": True}
    moved = bool(flags & _CHANGE_TRANSLATION)
    # updates struct ibv_mr, like libibverbs
    if returned.value == 0 and context.entry.name == "uverbs":
        if moved:
            mr.struct.addr, mr.struct.length = addr, length
        if pd and flags & _CHANGE_PD:
            mr.struct.pd = pd.pointer
    # Also needed after a failed call: with ERR_DO_FORK_OLD, the kernel has already changed the region.
    context.fields[name] = {**mr.fields(), "old_lkey": before["lkey"], "old_rkey": before["rkey"]}
    if returned.value == 0:
        if not moved:
            addr, length = before["addr"], before["length"]
        observation["asked"] = {"addr": addr, "length": length}
        observation["keys"] = {
            "before": [before["lkey"], before["rkey"]],
            "after": [mr.struct.lkey, mr.struct.rkey],
        }
        observation["mr"] = _fields(
            context,
            mr,
            pd.pointer if flags & _CHANGE_PD and pd else old_pd,
        )
    return observation


def ibv_rereg_mr_experimental(context: CaseContext, step: Step) -> Observation:
    name, mr, change = _change(context, step)
    before = mr.fields()
    returned = context.bench.entry("libibverbs").experimental_rereg_mr(mr, *change)
    context.fields[name] = {**mr.fields(), "old_lkey": before["lkey"], "old_rkey": before["rkey"]}
    return result_of(returned)


def ibv_advise_mr(context: CaseContext, step: Step) -> Observation:
    pd = context.pd_of(step)
    advice, flags = context.numbers(step.arguments, "advice", "flags")
    sg_list = context.sges(step.arguments["sg_list"])
    struct = IbvPd.from_address(pd.pointer)
    handle = struct.handle
    if step.arguments["pd_handle"] == "invented":
        struct.handle = INVENTED_HANDLE
    try:
        return result_of(context.entry.advise_mr(pd, advice, flags, sg_list))
    finally:
        struct.handle = handle


def query_mr(context: CaseContext, step: Step) -> Observation:
    name = str(step.arguments["mr"])
    fields = context.mrs[name].fields()
    returned = context.bench.entry("uverbs").query_mr(context.mrs[name])
    observation = result_of(returned)
    if returned.queried:
        numbers = context.numbers(step.arguments, "length", "iova")
        expected = QueriedMr(fields["lkey"], fields["rkey"], *numbers)
        pairs = zip(asdict(expected).items(), asdict(returned.queried).values(), strict=True)
        different = [
            f"{key} {actual:#x} instead of {value:#x}"
            for (key, value), actual in pairs
            if actual != value
        ]
        return compared(observation, different)
    return observation


def forged(context: CaseContext, step: Step) -> Observation:
    mr = context.mrs["mr"]
    handles = {
        "nobodys": INVENTED_HANDLE,
        "ended": _stale_handle(context, mr),
        "pd": context.pds["pd"].handle,
        "mr": mr.handle,
        "mw": context.windows["mw"].handle,
        "qp": context.pairs["qp"].responder.handle,
    }
    command, handle = str(step.arguments["command"]), handles[str(step.arguments["handle"])]
    observation = result_of(context.entry.forged(command, handle, mr))
    # the control of DESTROY_QP needs a new queue pair, which one command cannot create
    if command != "DESTROY_QP":
        control = context.entry.by_right_handle(command, handles["pd"], mr)
        observation |= {"no_control": errno_name(control.errno)} if control.value else {}
    return observation


def ibv_alloc_null_mr(context: CaseContext, step: Step) -> Observation:
    returned = context.entry.alloc_null_mr(context.pd_of(step))
    return registered(context, step, returned, 0, CONSTANTS["SIZE_MAX"])


_MODULES = (
    batches,
    bursts,
    completion_fields,
    element_lists,
    elsewhere,
    exports,
    in_flight,
    lists,
    memory_events,
    notified,
    beside,
    side_by_side,
    traffic,
    windows,
    wire,
    sys.modules[__name__],
)
# A function for only one call has the name of this call.
STEPS: dict[str, Callable[[CaseContext, Step], Observation]] = {
    **dict.fromkeys(VERBS, call_verb),
    **{
        call: step
        for module in _MODULES
        for call, step in vars(module).items()
        if call in CALLS and callable(step)
    },
    **dict.fromkeys(
        ("ibv_alloc_buf", "ibv_alloc_dm", "ibv_alloc_dmah", "ibv_alloc_td", "ibv_import_dm"),
        _make_object,
    ),
    **dict.fromkeys(("ibv_import_pd", "ibv_alloc_parent_domain"), _make_object),
    **dict.fromkeys(("ibv_bind_mw", "post_bind_mw"), windows.bind_window),
    **dict.fromkeys(PROBES, traffic.probe),
}
