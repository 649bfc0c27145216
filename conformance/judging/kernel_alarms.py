"""Finds in the kernel's evidence that something went wrong in it, whatever a call returned. Not for reading its log."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from conformance.model.observation import KernelEvidence

# How a kernel says that something went wrong in it, whatever the call returned.
_KERNEL_ALARMS = ("WARNING:", "BUG:", "Oops", "general protection", "UBSAN:", "KASAN:", "refcount_t:")


def kernel_alarm(kernel: KernelEvidence) -> str:
    """How the kernel's evidence tells of trouble with the device under test; empty if it does not."""
    log = kernel.get("log", ())
    about = _about_device(kernel)
    return _trouble(kernel, None if about is None else [log[number] for number in about])


def decisive_lines(kernel: KernelEvidence) -> set[int]:
    """The numbers of the lines on which `kernel_alarm` rests, in the log: a complaint, and what names a suspect."""
    log = kernel.get("log", ())
    about = _about_device(kernel) or range(0)
    is_named = _naming(kernel)
    found = (next((number for number in about if fits(log[number])), None) for fits in (_is_alarm, is_named))
    return {number for number in found if number is not None}


def kernel_remark(kernel: KernelEvidence) -> str:
    """How the kernel's evidence tells of trouble with something else, which changes no verdict; else empty."""
    if _about_device(kernel) is not None:
        return ""
    trouble = _trouble(kernel, kernel.get("log", ()))
    return f"{trouble}; nothing there names the device, its driver or the RDMA core" if trouble else ""


def _trouble(kernel: KernelEvidence, log: Sequence[str] | None) -> str:
    if log is None:
        return ""
    if kernel.get("taint", 0) != kernel.get("taint_before", kernel.get("taint", 0)):
        return f"the kernel became tainted ({kernel['taint_before']} to {kernel['taint']})"
    line = first_alarm(log)
    return f"the kernel complained: {line}" if line else ""


def _about_device(kernel: KernelEvidence) -> range | None:
    """The numbers of the lines of a complaint, and what belongs to it, that names a suspect; None if no line does."""
    log = kernel.get("log", ())
    if "suspects" not in kernel:
        return range(len(log))
    is_named = _naming(kernel)
    starts = [number for number, line in enumerate(log) if _is_alarm(line)] or [0]
    for start, end in zip(starts, [*starts[1:], len(log)], strict=True):
        if any(map(is_named, log[start:end])):
            return range(start, end)
    return None


def _naming(kernel: KernelEvidence) -> Callable[[str], bool]:
    """Whether a line names a suspect, alone or in front of the name of a function.

    The list of all modules, which follows a complaint, names everybody.
    """
    named = re.compile(rf"\b(?:{'|'.join(map(re.escape, kernel.get('suspects', ())))})(?=_|\b)")
    return lambda line: _MODULES not in line and bool(named.search(line))


def _is_alarm(line: str) -> bool:
    return any(alarm in line for alarm in _KERNEL_ALARMS)


def first_alarm(log: Sequence[str]) -> str:
    """The first line in which a kernel says that something went wrong in it; empty if there is none.

    On a console it can stand behind what a program was writing; the kernel's part begins at its time stamp.
    """
    line = next(filter(_is_alarm, log), "")
    return line[max(0, line.rfind("[ ")) :]


_MODULES = "Modules linked in:"
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
