"""Finds in the kernel's evidence that something went wrong in it, whatever a call returned. Not for reading its log."""

from __future__ import annotations

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
