"""Finds in the kernel's evidence that something went wrong in it, whatever a call returned. Not for reading its log."""

from __future__ import annotations

import re
from collections.abc import Sequence

from conformance.model.observation import KernelEvidence

# How a kernel says that something went wrong in it, whatever the call returned.
_KERNEL_ALARMS = ("WARNING:", "BUG:", "Oops", "general protection", "UBSAN:", "KASAN:", "refcount_t:")


def kernel_alarm(kernel: KernelEvidence) -> str:
    """How the kernel's evidence tells of trouble in it; empty if it does not."""
    if kernel.get("taint", 0) != kernel.get("taint_before", kernel.get("taint", 0)):
        return f"the kernel became tainted ({kernel['taint_before']} to {kernel['taint']})"
    line = first_alarm(kernel.get("log", ()))
    return f"the kernel complained: {line}" if line else ""


def first_alarm(log: Sequence[str]) -> str:
    """The first line in which a kernel says that something went wrong in it; empty if there is none.

    On a console it can stand behind what a program was writing; the kernel's part begins at its time stamp.
    """
    line = next((line for line in log if any(alarm in line for alarm in _KERNEL_ALARMS)), "")
    return line[max(0, line.rfind("[ ")) :]


# Where the kernel's processor was: the instruction pointer of x86, the program counter of Arm.
_AT = re.compile(r"(?:\bRIP: [0-9a-f]{4}:|\bpc : )(?P<function>\w[\w.]*\+0x[0-9a-f]+/0x[0-9a-f]+(?: \[\w+\])?)")
_FRAME = re.compile(r"^(?:\[[^\]]*\])?\s*(?P<function>\w[\w.]*\+0x[0-9a-f]+/0x[0-9a-f]+(?: \[\w+\])?)")


def crash_location(log: Sequence[str]) -> str:
    """Where a kernel that died was executing, and the caller, as far as its log says so; else empty.

    Frames that the kernel itself marks as uncertain (`?`) are passed over.
    """
    found = next(((number, match["function"]) for number, line in enumerate(log) if (match := _AT.search(line))), None)
    if found is None:
        return ""
    start, function = found
    trace = next((number for number, line in enumerate(log) if number > start and "all trace:" in line.lower()), None)
    frames = [] if trace is None else [match["function"] for line in log[trace + 1 :] if (match := _FRAME.match(line))]
    caller = next((frame for frame in frames if _name(frame) != _name(function)), "")
    return f"in {function}, called by {caller}" if caller else f"in {function}"


def _name(frame: str) -> str:
    return frame.partition("+")[0]
