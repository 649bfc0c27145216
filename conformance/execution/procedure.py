"""Executes one case in order: creates the set-up, issues the calls (steps.py), and returns the raw observation. Its
exceptions are failures of the harness, never of the device. runner.py adds the kernel's evidence and the verdict."""

import ctypes
import itertools
import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial

from conformance.bench.calls import errno_name
from conformance.errors import HarnessFailure, PeerLost, SetupRefused
from conformance.execution.context import CaseContext, told
from conformance.execution.steps import STEPS
from conformance.execution.traffic import run_probes
from conformance.execution.windows import alloc_window
from conformance.judging.faults import DONE, fault_of, outcome_of
from conformance.kernel import paging
from conformance.model.case import Case, MrSpec, Step, WindowSpec, format_argument
from conformance.model.observation import Observation
from conformance.model.operations import PROBES
from conformance.model.vocabulary import REGISTRATIONS

_REPORT_INTERVAL = 64  # the number of calls between two reports of progress
# Calls whose requests must be in flight when something else happens.
_IN_FLIGHT = ("post_traffic", "traffic_beside", "killed_in_flight")


def each_allocation_fails(context: CaseContext, call: Callable[[], Observation]) -> Observation:
    """Repeats the judged call. Injects a failure into its first allocation, then into its second allocation, and so on,
    until the call has no further allocation.

    In the first two calls, no allocation fails. Each allocation then fails in two calls, because a page fault of this
    process may consume the injected failure. Before each call, the pages of untouched memory are removed. Returns the
    first refusal that the row does not permit, or else the last refusal, or else the result of the call.
    """
    step, last = context.case.when, None
    fresh = [
        context.memory[name]
        for name, spec in context.case.given.memory.items()
        if spec.kind == "untouched"
    ]
    for count in itertools.count():
        if count % _REPORT_INTERVAL == _REPORT_INTERVAL - 1:
            context.progress("calls", count)
        for memory in fresh:
            paging.advise(memory.addr, memory.size, "DONTNEED")
        with context.bench.failing_allocation(count // 2) as injected:
            seen = call()
        if seen["returned"] not in DONE:
            last = seen
            if fault_of(step, seen):
                break
        else:
            _release(context, step.name)
        if not injected.reached:
            break
    return last or seen


def _release(context: CaseContext, name: str) -> None:
    """Releases the region or window that the call has created, if any."""
    if name in context.mrs:
        kind, released = "mrs", context.owners[name].dereg_mr(context.mrs[name])
    elif name in context.windows:
        kind, released = "windows", context.windows[name].dealloc()
    else:
        return
    if released.value:
        raise SetupRefused(
            "releasing an object that a repeated call created",
            errno_name(released.value),
        )
    context.forget(kind, name)


_NOT_MADE: Observation = {**told("not made", rc=None), "not_made": True}


def set_up_and_call(context: CaseContext, prepare: Callable[[CaseContext], None]) -> Observation:
    """Sets up a case with `prepare`, issues its calls, and releases all objects of its context. Returns the
    observation."""
    observation: Observation
    with context.cleanup:
        try:
            prepare(context)
            observation = make_calls(context)
        except SetupRefused as refusal:
            observation = not_set_up(refusal)
    if context.left_behind:
        observation["left_behind"] = context.left_behind
    return observation


def not_set_up(refusal: SetupRefused) -> Observation:
    seen: Observation = {"setup_failed": str(refusal), "errno": refusal.code}
    if refusal.call:
        seen["setup_call"] = refusal.call
    if refusal.not_offered:
        return {**seen, "no_pair": refusal.not_offered}
    return seen


def refused_once(refusal: SetupRefused) -> Observation:
    """Returns the observation of a case whose set-up was refused once, but succeeded when it was repeated."""
    return {**not_set_up(refusal), "setup_refused_once": refusal.call}


def make_calls(context: CaseContext) -> Observation:
    """Issues the judged call, and executes the later steps. The set-up must exist. In the returned observation,
    `afterwards` has the observations of the later steps."""
    limit = context.case.given.memlock
    with (
        nullcontext() if limit is None else context.bench.locked_memory_limit(context.bytes(limit))
    ):
        call = partial(_step, context, context.case.when)
        if "failing_allocations" in context.case.needs:
            observation = each_allocation_fails(context, call)
        else:
            observation = call()
        observation |= remark_on_limit(context.case.when, observation)
    if context.case.afterwards:
        observation["afterwards"] = _afterwards(context, observation)
    return observation


# The errnos of a registration that exceeds the limit on locked memory.
_OF_LIMIT = ("ENOMEM", "EPERM", "EAGAIN")


def remark_on_limit(step: Step, seen: Observation) -> Observation:
    """Returns a remark with the limit on locked memory if it may be why a valid registration was refused."""
    refused = step.call in REGISTRATIONS and seen.get("errno") in _OF_LIMIT
    if not refused or step.then.outcome != "success":
        return {}
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if limit == resource.RLIM_INFINITY:
        value = "none"
    else:
        value = f"{limit >> 10} KiB"
    return {"remarks": [*seen.get("remarks", ()), f"RLIMIT_MEMLOCK of the process: {value}"]}


def make_all_calls(context: CaseContext, cases: Sequence[Case]) -> Iterator[Observation]:
    """Issues the calls of each case on the set-up of `context`, and yields the observations. Single RDMA operations
    (PROBES) are executed in batches, except those whose event is judged: it must be known which of them raised it."""
    first = context.case
    alone = first.afterwards or first.given.memlock is not None or first.when.then.event
    if first.when.call in PROBES and not alone:
        for seen in run_probes([(context.for_call(case), case.when) for case in cases]):
            yield not_set_up(seen) if isinstance(seen, SetupRefused) else seen
        return
    for case in cases:
        yield set_up_and_call(context.for_call(case), lambda context: None)


def _afterwards(context: CaseContext, judged: Observation) -> list[Observation]:
    """Executes the later steps. If the judged call should have created an object but has not, executes none of them.

    Skips steps that are only for a different outcome of the judged call, and steps that need a type of queue pair that
    the device does not offer. Stops before a step on an object that was released by a call that should have failed.
    Also stops if the harness fails after a wrong result: the first wrong result decides the verdict, and the state of
    the objects is then undefined.
    """
    product = context.case.when.name
    refused = product and not _is_there(context, product)
    if refused and context.case.when.then.outcome != "refused":
        return []
    seen: list[Observation] = []
    unexpected = _succeeded_unexpectedly(context.case.when, judged)
    outcome = outcome_of(context.case.when, judged)
    failed = fault_of(context.case.when, judged) is not None
    for step in context.case.afterwards:
        if step.then.after not in ("", outcome):
            seen.append(_NOT_MADE)
            continue
        if unexpected and any(step.arguments.get(key) in context.released for key in ("mr", "mw")):
            break
        try:
            seen.append(_step(context, step))
        except SetupRefused as refusal:
            if refusal.not_offered:
                seen.append({**_NOT_MADE, "no_pair": refusal.not_offered})
                continue
            if not failed:
                raise
            break
        except HarnessFailure as failure:
            if not failed or isinstance(failure, PeerLost):
                raise
            break
        failed = failed or fault_of(step, seen[-1], later=True) is not None
        unexpected = unexpected or _succeeded_unexpectedly(step, seen[-1])
        if step.name and not _is_there(context, step.name) and step.then.outcome == "success":
            break  # later steps use the object that this step should have created
    return seen


def _is_there(context: CaseContext, product: str) -> bool:
    return any(
        product in objects
        for objects in (
            context.mrs,
            context.windows,
            context.buffers,
            context.held,
            context.fields,
            context.pds,
        )
    )


def _succeeded_unexpectedly(step: Step, seen: Observation) -> bool:
    return step.then.outcome != "success" and seen["returned"] in DONE


def set_up(context: CaseContext) -> None:
    """Creates the set-up of the case. Raises SetupRefused."""
    set_up_base(context)
    set_up_objects(context)


def set_up_base(context: CaseContext) -> None:
    """Creates the base objects of a case: protection domains, memory and queue pairs."""
    set_up_memory(context)
    set_up_pairs(context)


def set_up_memory(context: CaseContext) -> None:
    set_up = context.case.given
    for name in ("pd", *set_up.pds):
        context.pds[name] = pd = context.bench.alloc_pd()
        context.cleanup.callback(context.release, f"PD {name}", pd.close)
    for name, spec in set_up.memory.items():
        size = max(context.bytes(spec.size), _bytes_in_flight(context, name))
        context.memory[name] = memory = context.bench.allocate(spec.kind, size)
        context.cleanup.callback(memory.close)
    for name, spec in set_up.dmabufs.items():
        context.dmabufs[name] = dmabuf = context.bench.dmabuf(spec.kind, context.bytes(spec.size))
        context.cleanup.callback(dmabuf.close)


def set_up_pairs(context: CaseContext) -> None:
    for name, qp in context.case.given.qps.items():
        context.pairs[name] = context.pair(qp)


def set_up_try(context: CaseContext) -> None:
    """Creates the set-up of a further try of a race on the memory of the tries before it: requests of an earlier try
    cannot reach new queue pairs. Raises SetupRefused."""
    for memory in context.memory.values():
        ctypes.memset(memory.addr, 0, memory.size)
    set_up_pairs(context)
    set_up_objects(context)


def _bytes_in_flight(context: CaseContext, memory: str) -> int:
    """Returns the size that a memory needs so that requests on all of it are in flight during the judged call; 0 if the
    case posts no such requests."""
    for step in (*context.case.before, context.case.when):
        if (
            step.call in _IN_FLIGHT
            and format_argument(step.arguments["length"]) == f"{memory}.size"
        ):
            return context.bench.in_flight_bytes
    return 0


def set_up_objects(context: CaseContext) -> None:
    """Creates regions and windows, and issues the calls before the judged call. Raises SetupRefused."""
    set_up = context.case.given
    for name, mr in set_up.mrs.items():
        _set_up_mr(context, name, mr)
    for name, window in set_up.windows.items():
        _set_up_window(context, name, window)
    for step in context.case.before:
        succeeded_step(context, step)


def _set_up_mr(context: CaseContext, name: str, spec: MrSpec) -> None:
    entry = context.entry
    if any(
        window.bound and window.bound["mr"] == name
        for window in context.case.given.windows.values()
    ):
        # a bind needs a region that libibverbs registered
        context.entry = context.bench.entry("libibverbs")
    observed = _step(context, Step(spec.call, spec.arguments, context.case.when.then, name))
    context.entry = entry
    if observed["returned"] != "MR":
        raise SetupRefused(f"registering the MR {name!r}", observed["errno"], spec.call)
    if spec.gone:
        released = context.owners[name].dereg_mr(context.mrs.pop(name))
        if released.value:
            raise SetupRefused(f"deregistering the MR {name!r}", errno_name(released.value))


def _set_up_window(context: CaseContext, name: str, spec: WindowSpec) -> None:
    observed = alloc_window(context, name, spec.pd, spec.type)
    if observed["returned"] != "MW":
        raise SetupRefused(f"allocating the window {name!r}", observed["errno"], "ibv_alloc_mw")
    if spec.bound is not None:
        if spec.type == 1:
            call = "ibv_bind_mw"
        else:
            call = "post_bind_mw"
        observed = _step(context, Step(call, spec.bound, context.case.when.then))
        if observed["returned"] != "0" or observed["wc"] != ["SUCCESS"]:
            raise SetupRefused(f"binding the window {name!r}", _codes(observed), call)


def succeeded_step(context: CaseContext, step: Step) -> Observation:
    """Issues a call that must succeed. Raises SetupRefused."""
    observed = _step(context, step)
    if observed["returned"] not in DONE or observed.get("wc", ["SUCCESS"]) != ["SUCCESS"]:
        raise SetupRefused(str(step), _codes(observed), step.call)
    return observed


def _codes(observed: Observation) -> str:
    """Returns the errno and the completion statuses of a refusal."""
    return " ".join(filter(None, [observed["errno"], *observed.get("wc", ())]))


def _step(context: CaseContext, step: Step) -> Observation:
    return STEPS[step.call](context, step)
