"""Compares what a worker reports about a call of the kernel with the calls that the kernel under test has traced. The
library under test can change the memory of its process, but the kernel's trace is written outside of the process."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass

from conformance.model.case import Case
from conformance.model.observation import Observation

# The commands of enum ib_uverbs_write_cmds that the rows of these verbs issue with write().
_COMMANDS = {
    "ibv_reg_mr": 9,
    "ibv_reg_mr_iova": 9,
    "ibv_rereg_mr": 11,
    "ibv_dereg_mr": 13,
    "ibv_alloc_mw": 14,
    "ibv_dealloc_mw": 16,
}


@dataclass(frozen=True)
class Call:
    """A call on the descriptor of a device: the number of the command that was written, None for an ioctl; and the
    result, which is negative for an errno."""

    command: int | None
    result: int


def contradiction(case: Case, observed: Observation, calls: Sequence[Call] | None) -> str:
    """Returns why the traced calls do not support the observation of a row whose result comes from the kernel; empty if
    they do. libibverbs may issue the command of a verb by write() or by ioctl(), a row at the entry uverbs only by
    write(). A refusal of libibverbs is not compared: it refuses many calls itself."""
    if observed.get("layer") != "kernel" or "errno" not in observed:
        return ""
    if observed["errno"] and case.entry != "uverbs":
        return ""
    if calls is None:
        return "the kernel's trace of the calls of this case is missing"
    command = _COMMANDS.get(case.when.call)
    commands = {command}
    if case.entry != "uverbs":
        commands.add(None)
    name = observed["errno"]
    for call in calls:
        if command is not None and call.command not in commands:
            continue
        if name and call.result == -getattr(errno, name, 0):
            return ""
        if not name and call.result >= 0:
            return ""
    said = "success"
    if name:
        said = f"the errno {name}"
    count = len(calls)
    return f"the worker reports {said}, but none of its {count} calls that the kernel has traced had this result"
