"""Determines whose defect a symptom is: the layer of the stack that returned the result or caused it, with the evidence.

A violation counts as the device's, unless the evidence names another layer. What only the kernel's core or libibverbs
can return counts as the stack's, because it is the same on every device. The evidence is the layer that returned the
result, the function in which the kernel or the process died, and what the sources of the core and of libibverbs do for
every driver: judging/answering_layer.py has the checks of the core.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from conformance.defects.cause import ACCESS, from_core, group_of, is_of_newer_command
from conformance.defects.symptom import Symptom, site_of, symptoms_of
from conformance.model.combinations import circumstance
from conformance.model.fault import Effect, Fault, FaultKind
from conformance.model.operations import BUILT, BUILT_INLINE, BUILT_LIST
from conformance.model.record import ResultRecord
from conformance.model.vocabulary import REGISTRATIONS

DEVICE, PROVIDER, LIBIBVERBS, CORE, PROGRAM = (
    "device",
    "provider",
    "libibverbs",
    "kernel core",
    "program",
)
UNKNOWN = "not known"
LAYERS = (DEVICE, PROVIDER, LIBIBVERBS, CORE, PROGRAM, UNKNOWN)
# the reason for UNKNOWN of a Defect with `another`
ALIKE = "same fingerprint as a defect fixed in "
_CORE_MODULES = (
    *("ib_core", "ib_uverbs", "ib_uverbs_support", "ib_umad"),
    *("rdma_cm", "iw_cm", "ib_cm", "rdma_ucm"),
)
# A line of a driver in the kernel's log, such as `rxe0: pd#1 rxe_reg_user_mr: …`; it begins with the device's name.
_OWN_LINE = re.compile(r"^(?:\[[^\]]*\] )?(?P<device>[a-z]\w*\d): (?:\S+ )?(?P<function>\w+): \S")
# A line about a queue pair is about a request, such as one that a later step of the case posts, not about a system call.
_OF_REQUEST = re.compile(r"\bqp\W?\d", re.IGNORECASE)
_LAYERS = {
    "libibverbs": (LIBIBVERBS, "it checks this itself, before a system call"),
    "library": (LIBIBVERBS, "it checks this itself, before a system call"),
    "header": (LIBIBVERBS, "it depends on the installed header"),
    "provider": (PROVIDER, "it returned this without calling the kernel"),
}
_BUILT = "its builders wrote the request"
# Lines about a process that died: the frames that faulthandler prints, and the kernel's line about the instruction.
_FRAME = re.compile(r'^\s*Binary file "(?P<file>[^"]+)"')
_SEGFAULT = re.compile(r"\bsegfault at \S+ ip .* in (?P<file>[^\s\[]+)\[")
_LIBC = re.compile(r"\blib(?:c|pthread)[.-]")
_PROVIDERS = re.compile(r"-rdmav\d+\.so|\blib(?:mlx4|mlx5|efa|hns|mana)\.so")
# A frame of the kernel's stack in a module, such as `rxe_mr_init_user+0x1a/0x90 [rdma_rxe]`.
_KERNEL_FRAME = re.compile(r"\b(?P<function>\w+)\+0x[0-9a-f]+/0x[0-9a-f]+ \[(?P<module>\w+)\]")
# The effects of faults in a returned result. A death, a hang, a kernel warning or a leak is not a returned result.
_ANSWERS = (Effect.ACCEPTED, Effect.REFUSED, Effect.CODE, Effect.REMARK)
# Commands that the kernel's core passes on to the driver, after the checks of answering_layer.py.
_PASSED_ON = (*REGISTRATIONS, "ibv_rereg_mr", "ibv_advise_mr")


@dataclass(frozen=True)
class Answering:
    layer: str
    because: str = ""

    def __str__(self) -> str:
        if self.because:
            return f"{self.layer} ({self.because})"
        return self.layer


def answering_of(symptom: Symptom) -> Answering:
    """Returns the layer whose defect a symptom is, and the evidence."""
    fault = symptom.fault
    log = symptom.record["kernel"].get("log", ())
    if fault.effect in (Effect.KERNEL_DIED, Effect.KERNEL_ALARM):
        return _of_kernel(fault, log)
    if fault.effect is Effect.PROCESS_DIED:
        return _of_process(log)
    if fault.effect is Effect.HUNG and group_of(fault.verb) == ACCESS:
        return Answering(DEVICE, "it or its driver did not complete the posted request")
    if fault.effect is Effect.HUNG:
        return Answering(UNKNOWN, "nothing was returned")
    if from_core(fault):
        return Answering(CORE, "it refuses the call before it calls a driver")
    if fault.kind is FaultKind.CARRIED_OUT:
        return Answering(PROVIDER, "it left the request in the queue although the posting failed")
    if circumstance(symptom.smallest, fault.effect) in (BUILT_INLINE, BUILT_LIST):
        return Answering(PROVIDER, _BUILT)
    return (
        _of_known_code(fault)
        or _of_layer(fault)
        or _of_own_line(fault, log)
        or _of_system_call(fault, symptom.record["entry"])
    )


def is_of_stack(record: ResultRecord) -> bool:
    """Whether all symptoms of a result are results that the kernel's core or libibverbs returns on every device."""
    symptoms = list(symptoms_of(record))
    return bool(symptoms) and all(
        symptom.fault.effect in _ANSWERS and answering_of(symptom).layer in (CORE, LIBIBVERBS)
        for symptom in symptoms
    )


def _of_known_code(fault: Fault) -> Answering | None:
    """Returns the layer of a fault that only one place in the sources can cause, whatever the driver is."""
    if fault.verb in ("inherited", "ibv_fork_init"):
        return Answering(LIBIBVERBS, "only it keeps pages from children, by madvise(2)")
    if is_of_newer_command(fault):
        return Answering(CORE, "its newer command REG_MR sets neither iova nor length of a region")
    if fault.verb == "query_mr":
        return Answering(CORE, "its command QUERY_MR calls no driver")
    if fault.operation in (BUILT, BUILT_INLINE):
        return Answering(PROVIDER, _BUILT)
    if fault.verb == "ibv_rereg_mr" and fault.returned.startswith("ERR_"):
        return Answering(LIBIBVERBS, "it chooses this code, whatever the provider returns")
    of_header = fault.layer in ("header", "provider")  # runs of older versions name the provider
    if fault.verb == "ibv_bind_mw" and fault.errno == "EPERM" and of_header:
        return Answering(
            LIBIBVERBS,
            "ibv_bind_mw of <infiniband/verbs.h> compares the pointers of the domains",
        )
    return None


def _of_layer(fault: Fault) -> Answering | None:
    if fault.layer in _LAYERS:
        return Answering(*_LAYERS[fault.layer])
    if group_of(fault.verb) == ACCESS or fault.layer == "device" or fault.statuses:
        return Answering(DEVICE, "it or its driver executed or completed the posted request")
    return None


def _of_own_line(fault: Fault, log: Iterable[str]) -> Answering | None:
    of_calls = (line for line in log if not _OF_REQUEST.search(line))
    line = next(filter(None, map(_OWN_LINE.match, of_calls)), None)
    if line and not fault.later and fault.effect in (Effect.REFUSED, Effect.CODE):
        return Answering(DEVICE, f"{line['function']} of its driver reports it in the kernel's log")
    return None


def _of_system_call(fault: Fault, entry: str) -> Answering:
    if fault.layer != "kernel" and entry != "uverbs":
        return Answering(UNKNOWN)
    # A call that the core must refuse, such as one with rights that contradict each other, is not always passed on.
    refused = fault.effect in (Effect.REFUSED, Effect.CODE)
    if fault.verb == "ibv_advise_mr" or (refused and fault.verb in _PASSED_ON):
        return Answering(DEVICE, "the kernel's core passes such a call on to its driver")
    return Answering(UNKNOWN, "the system call returned this: the kernel's core or the driver")


def _of_kernel(fault: Fault, log: Iterable[str]) -> Answering:
    site = site_of(fault)
    frame = frame_of_driver(log)
    if site is not None and site.module in _CORE_MODULES:
        because = f"the kernel was in {site}"
        if frame:  # either of the two can have passed on a wrong argument
            return Answering(UNKNOWN, f"{because}; {frame[0]} of {frame[1]} is on the stack")
        return Answering(CORE, because)
    if site is not None and site.module:
        return Answering(DEVICE, f"the kernel was in {site}")
    if frame:
        return Answering(DEVICE, f"{frame[0]} of {frame[1]} is on the stack")
    return Answering(UNKNOWN, str(site) if site else "the kernel's log does not show the location")


def frame_of_driver(log: Iterable[str]) -> tuple[str, str] | None:
    """Returns the innermost function of a driver on the kernel's stack, and its module; None if there is none."""
    frames = filter(None, map(_KERNEL_FRAME.search, log))
    frame = next((frame for frame in frames if frame["module"] not in _CORE_MODULES), None)
    if frame:
        return frame["function"], frame["module"]
    return None


def _of_process(log: Sequence[str]) -> Answering:
    """Returns the layer of the file in the first frame after the frames of the signal handler. The last frame of the
    handler is in the C library."""
    frames = [match["file"] for line in log if (match := _FRAME.match(line))]
    signal = next((number for number, file in enumerate(frames) if _LIBC.search(file)), len(frames))
    file = next((file for file in frames[signal:] if not _LIBC.search(file)), "")
    file = file or next((match["file"] for line in log if (match := _SEGFAULT.search(line))), "")
    if not file or _LIBC.search(file):
        return Answering(UNKNOWN, "the log does not show the location in the process")
    because = f"the process was in {file.rpartition('/')[2]}"
    if "libibverbs.so" in file:
        return Answering(LIBIBVERBS, because)
    return Answering(PROVIDER if _PROVIDERS.search(file) else PROGRAM, because)
