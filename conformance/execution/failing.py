"""A call whose allocations of memory in the kernel fail one after the other.

Not for how one is made to fail (device/failing.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from conformance.bench.calls import errno_name
from conformance.errors import SetupRefused
from conformance.execution.context import CaseContext
from conformance.judging.faults import DONE, fault_of
from conformance.kernel import paging
from conformance.model.observation import Observation

_TOLD = 64  # after this many calls progress is reported


def each_allocation_fails(context: CaseContext, call: Callable[[], Observation]) -> Observation:
    """Makes the judged call again and again, its first allocation failing, then its second, until there is no more.

    Each fails twice, and it is made twice without failure (number 0) before, because a page fault of this process may
    take the failure. Untouched memory is so again before each call. Returns the first refusal that the row does not
    allow, else the last one, else what the call gave.
    """
    step, last = context.case.when, None
    fresh = [context.memory[name] for name, spec in context.case.given.memory.items() if spec.kind == "untouched"]
    for count in itertools.count():
        if count % _TOLD == _TOLD - 1:
            context.progress("calls", count)
        for memory in fresh:
            paging.let_go(memory.addr, memory.size, "DONTNEED")
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
    """Releases the region or window that a call has made nevertheless."""
    if name in context.mrs:
        kind, released = "mrs", context.owners[name].dereg_mr(context.mrs[name])
    elif name in context.windows:
        kind, released = "windows", context.windows[name].dealloc()
    else:
        return
    if released.value:
        raise SetupRefused("releasing an object that was made all the same", errno_name(released.value))
    context.forget(kind, name)
