"""Deregisters regions while a second thread unmaps their memory, or makes the kernel reclaim its pages."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from conformance.bench.calls import Mr, Return, errno_name
from conformance.bench.interface import Memory
from conformance.errors import SetupRefused
from conformance.execution.context import CaseContext
from conformance.execution.side_by_side import ended, first_fault, served
from conformance.kernel import paging
from conformance.model.case import Step
from conformance.model.fault import Fault
from conformance.model.observation import Observation

_SIZE = 5 << 20  # bytes of memory; drivers keep an implicit region in parts of 2 MiB
_USED = 64  # bytes that the device writes, once in each MiB
_APART = 1 << 20
_NAME = "beside"  # of the memory and of the region of a round
_WHOLE = (0, (1 << 64) - 1)  # address and length of an implicit region


def deregister_beside(context: CaseContext, step: Step) -> Observation:
    """In each of `rounds` rounds: registers memory, lets the device write to it, and deregisters the region. A second
    thread begins its action at the same time. `returned` is 0, or describes the first wrong result."""
    (rounds,) = context.numbers(step.arguments, "rounds")
    for number in range(rounds):
        memory = context.bench.allocate("anonymous", _SIZE)
        context.cleanup.callback(memory.close)
        context.memory[_NAME] = memory
        wrong, fault = _round(context, step, memory)
        memory.close()
        if wrong:
            return ended(f"in round {number}: {wrong}", fault)
        context.progress("rounds", number)
    return ended("0")


def _round(context: CaseContext, step: Step, memory: Memory) -> tuple[str, Fault | None]:
    """Returns what is wrong, empty if nothing is, and the fault of the traffic."""
    action = _action(context, step, memory)
    mr = _registered(context, step, memory)
    context.keep_mr(_NAME, mr, context.entry)
    starts = range(memory.addr, memory.addr + _SIZE, _APART)
    keys = [(mr.struct.lkey, mr.struct.rkey)] * len(starts)
    fault = first_fault(context, served(keys, starts, _USED, range(len(starts))))
    if fault:
        return "a fault", fault
    together = Barrier(2)

    def second() -> None:
        together.wait()
        action()

    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(second)
        together.wait()
        returned: Return = context.entry.dereg_mr(mr)
        running.result()
    if returned.value:
        return f"the deregistration returned {errno_name(returned.value)}", None
    context.forget("mrs", _NAME)
    return "", None


def _action(context: CaseContext, step: Step, memory: Memory) -> Callable[[], None]:
    """Returns the action of the second thread. Raises SetupRefused if pages cannot be swapped out."""
    if step.arguments["event"] == "unmap":
        return memory.close
    # A kernel that splits huge pages for this maps their pages of zeros to the shared page of zeros.
    ctypes.memset(memory.addr, 1, memory.size)
    if not context.bench.page_out(memory):
        raise SetupRefused("paging out", "")
    return lambda: paging.advise(memory.addr, memory.size, "PAGEOUT")


def _registered(context: CaseContext, step: Step, memory: Memory) -> Mr:
    """Registers the memory, or the whole address space. Raises SetupRefused."""
    (access,) = context.numbers(step.arguments, "access")
    pd = context.pd_of(step)
    if step.arguments["region"] == "implicit":
        returned = context.entry.reg_mr(pd, *_WHOLE, access)
    else:
        returned = context.entry.reg_mr(pd, memory.addr, memory.size, access)
    if returned.mr is None:
        raise SetupRefused("registering a region", errno_name(returned.errno))
    return returned.mr
