"""What happens to memory under a region: pages taken away, swapped out, moved, shared with a child by a fork.

Calls of the table language that are no verbs. Not for operations on the memory (traffic.py).
"""

from __future__ import annotations

import ctypes
import os

from conformance.bench.memory_areas import BEFORE
from conformance.errors import SetupRefused
from conformance.execution.context import CaseContext
from conformance.kernel import paging
from conformance.model.case import Step
from conformance.model.observation import Observation

_WRITTEN = 0xEE  # what a child puts into its copy
_UNHARMED, _HARMED = b"\0", b"\1"


def _done(returned: str = "0") -> Observation:
    return {"rc": 0, "returned": returned, "errno": "", "layer": "none"}


def fill(context: CaseContext, step: Step) -> Observation:
    """Writes known bytes into all of the memory."""
    memory = context.memory[str(step.arguments["memory"])]
    ctypes.memset(memory.addr, BEFORE, memory.size)
    return _done()


def unmap(context: CaseContext, step: Step) -> Observation:
    """Takes the mapping away."""
    context.memory[str(step.arguments["memory"])].close()
    return _done()


def move(context: CaseContext, step: Step) -> Observation:
    """Moves the mapping to another address (mremap); from then on the memory's name means the new place."""
    name = str(step.arguments["memory"])
    memory = context.memory[name]
    place = context.bench.allocate("unmapped", memory.size)
    context.cleanup.callback(place.close)
    paging.move(memory.addr, memory.size, place.addr)
    context.memory[name] = place
    return _done()


def discard(context: CaseContext, step: Step) -> Observation:
    """Lets the memory's pages go: for good, with the file's contents, or to swap. Raises SetupRefused if they stay."""
    memory, how = context.memory[str(step.arguments["memory"])], str(step.arguments["how"])
    if how != "PAGEOUT":
        paging.let_go(memory.addr, memory.size, how)
    elif not context.bench.page_out(memory):
        raise SetupRefused("paging out", "")
    return _done()


def resident(context: CaseContext, step: Step) -> Observation:
    """Whether the memory's pages are in core (mincore): `returned` is 0 for all, `none` or `some`."""
    memory = context.memory[str(step.arguments["memory"])]
    count, pages = paging.in_core(memory.addr, memory.size)
    returned = "0" if count == pages else "none" if count == 0 else "some"
    return {"rc": 0, "returned": returned, "errno": "", "layer": "kernel", "pages": [count, pages]}


def fork(context: CaseContext, step: Step) -> Observation:
    """A child that shares the memory's pages until one side writes.

    `child` is what it does: it writes all of its copy at once, or it waits. At `join` it reports whether its copy is
    unchanged.
    """
    name, child = str(step.arguments["memory"]), str(step.arguments["child"])
    memory = context.memory[name]
    wake, report = os.pipe(), os.pipe()
    copy = ctypes.string_at(memory.addr, memory.size)
    pid = os.fork()
    if pid == 0:
        # Nothing of this process's may run here: not its handlers, and not what it would give back.
        try:
            if child == "writes":
                ctypes.memset(memory.addr, _WRITTEN, memory.size)
                copy = bytes([_WRITTEN]) * memory.size
                os.write(report[1], _UNHARMED)
            os.read(wake[0], 1)
            same = ctypes.string_at(memory.addr, memory.size) == copy
            os.write(report[1], _UNHARMED if same else _HARMED)
        finally:
            os._exit(0)
    os.close(wake[0])
    os.close(report[1])
    context.children[name] = (pid, wake[1], report[0])
    context.cleanup.callback(_end, context, name)
    if child == "writes":
        os.read(report[0], 1)
    return _done()


def join(context: CaseContext, step: Step) -> Observation:
    """Ends the child; `returned` is 0 if its copy of the memory is as the child left it, else `differs`."""
    return _done("0" if _end(context, str(step.arguments["memory"])) == _UNHARMED else "differs")


def _end(context: CaseContext, name: str) -> bytes:
    """Ends the child and returns what it reported; nothing if it has ended before."""
    if name not in context.children:
        return b""
    pid, wake, report = context.children.pop(name)
    os.write(wake, b"\0")
    reported = os.read(report, 1)
    os.waitpid(pid, 0)
    os.close(wake)
    os.close(report)
    return reported
