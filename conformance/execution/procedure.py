"""The order of one case: sets up what is given, makes the calls, records raw what came of them.

What each call does is in steps.py. An exception here is the harness's failure, never the device's. Not for what
surrounds a case, as the kernel's evidence and its verdict (runner.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

from conformance.bench.calls import errno_name
from conformance.errors import SetupRefused
from conformance.execution.context import CaseContext
from conformance.execution.steps import STEPS, alloc_window
from conformance.execution.traffic import run_probes
from conformance.model.case import Case, MrSpec, Step, WindowSpec
from conformance.model.observation import Observation
from conformance.model.vocabulary import PROBES

_DONE = ("MR", "MW", "0")


def set_up_and_call(context: CaseContext, prepare: Callable[[CaseContext], None]) -> Observation:
    """What a case gives once `prepare` has set it up. All that the context itself has made is given back."""
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
    """What is recorded of a case that could not be set up."""
    return {"setup_failed": str(refusal), "errno": refusal.code}


def make_calls(context: CaseContext) -> Observation:
    """Makes the judged call and the later steps of a case that is set up; these are in `afterwards`, in their order."""
    limit = context.case.given.memlock
    with ExitStack() as limited:
        if limit is not None:
            limited.enter_context(context.bench.locked_memory_limit(context.bytes(limit)))
        observation = _step(context, context.case.when)
    if context.case.afterwards:
        observation["afterwards"] = _afterwards(context, observation)
    return observation


def make_all_calls(context: CaseContext, cases: Sequence[Case]) -> Iterator[Observation]:
    """Makes the calls of each case on the set-up of `context`; yields their observations.

    Probes are made in batches.
    """
    first = context.case
    if first.when.call in PROBES and not first.afterwards and first.given.memlock is None:
        yield from map(_probed, run_probes([(context.for_call(case), case.when) for case in cases]))
        return
    for case in cases:
        yield set_up_and_call(context.for_call(case), _is_there)


def _probed(seen: Observation | SetupRefused) -> Observation:
    return not_set_up(seen) if isinstance(seen, SetupRefused) else seen


def _is_there(context: CaseContext) -> None:
    """The set-up of a case that shares one with others: nothing is left to do."""


def _afterwards(context: CaseContext, judged: Observation) -> list[Observation]:
    """The later steps, none of them when the judged call did not make what they are about.

    They end where a call that was not to succeed has taken what the next one is about: that one cannot be made.
    """
    made = context.case.when.name
    if made and made not in context.mrs and made not in context.windows:
        return []
    seen: list[Observation] = []
    taken = _took(context.case.when, judged)
    for step in context.case.afterwards:
        if taken and any(step.arguments.get(key) in context.released for key in ("mr", "mw")):
            break
        seen.append(_step(context, step))
        taken = taken or _took(step, seen[-1])
    return seen


def _took(step: Step, seen: Observation) -> bool:
    """Whether a call has succeeded that was not expected to."""
    return step.then.outcome != "success" and seen["returned"] in _DONE


def set_up(context: CaseContext) -> None:
    """Makes what the case gives. Raises SetupRefused."""
    set_up_base(context)
    set_up_objects(context)


def set_up_base(context: CaseContext) -> None:
    """Creates the base objects of a case: protection domains, memory and queue pairs."""
    given = context.case.given
    for name in ("pd", *given.pds):
        context.pds[name] = pd = context.bench.alloc_pd()
        context.cleanup.callback(context.give_back, f"PD {name}", pd.close)
    for name, spec in given.memory.items():
        context.memory[name] = memory = context.bench.allocate(spec.kind, context.bytes(spec.size))
        context.cleanup.callback(memory.close)
    for name, spec in given.dmabufs.items():
        context.dmabufs[name] = dmabuf = context.bench.dmabuf(spec.kind, context.bytes(spec.size))
        context.cleanup.callback(dmabuf.close)
    for name, qp in given.qps.items():
        context.pairs[name] = context.pair(qp)


def set_up_objects(context: CaseContext) -> None:
    """Creates regions and windows, and makes the calls that the case makes before the judged one.

    Raises SetupRefused.
    """
    given = context.case.given
    for name, mr in given.mrs.items():
        _set_up_mr(context, name, mr)
    for name, window in given.windows.items():
        _set_up_window(context, name, window)
    for step in context.case.before:
        observed = _step(context, step)
        if observed["returned"] not in _DONE or observed.get("wc", ["SUCCESS"]) != ["SUCCESS"]:
            raise SetupRefused(str(step), " ".join([observed["errno"], *observed.get("wc", ())]))


def _set_up_mr(context: CaseContext, name: str, spec: MrSpec) -> None:
    observed = _step(context, Step(spec.call, spec.arguments, context.case.when.then, name))
    if observed["returned"] != "MR":
        raise SetupRefused(f"registering the MR {name!r}", observed["errno"])
    if spec.gone:
        released = context.owners[name].dereg_mr(context.mrs.pop(name))
        if released.value:
            raise SetupRefused(f"deregistering the MR {name!r}", errno_name(released.value))


def _set_up_window(context: CaseContext, name: str, spec: WindowSpec) -> None:
    observed = alloc_window(context, name, spec.pd, spec.type)
    if observed["returned"] != "MW":
        raise SetupRefused(f"allocating the window {name!r}", observed["errno"])
    if spec.bound is not None:
        call = "ibv_bind_mw" if spec.type == 1 else "post_bind_mw"
        observed = _step(context, Step(call, spec.bound, context.case.when.then))
        if observed["returned"] != "0" or observed["wc"] != ["SUCCESS"]:
            raise SetupRefused(f"binding the window {name!r}", " ".join([observed["errno"], *observed["wc"]]))


def _step(context: CaseContext, step: Step) -> Observation:
    """Makes one call and gives what was observed."""
    return STEPS[step.call](context, step)
