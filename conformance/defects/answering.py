"""Who answered where a symptom shows: device with driver, provider, libibverbs, the kernel's core, or a program.

Only the evidence of the result counts; without any, the layer is unknown, and counts as the device's. An answer that
only the core or libibverbs can give is the stack's: it is the same on every device. Not for verdicts: where a run
passes judgement on a device, results/effective.py takes such violations out.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from conformance.defects.cause import ACCESS, from_core, group_of
from conformance.defects.kernel_site import site_of
from conformance.defects.symptom import Symptom, symptoms_of
from conformance.model.fault import Effect, Fault, FaultKind
from conformance.model.record import ResultRecord

DEVICE, PROVIDER, LIBIBVERBS, CORE, PROGRAM = "device", "provider", "libibverbs", "kernel core", "program"
UNKNOWN = "not known"
_CORE_MODULES = ("ib_core", "ib_uverbs", "ib_umad", "rdma_cm", "iw_cm", "ib_cm", "rdma_ucm")
# A line in which a driver reports a request, beginning with the name of the device: `rxe0: pd#1 rxe_reg_user_mr: …`.
_OWN_LINE = re.compile(r"^(?:\[[^\]]*\] )?(?P<device>[a-z]\w*\d): (?:\S+ )?(?P<function>\w+): \S")
_LAYERS = {
    "libibverbs": (LIBIBVERBS, "it checks this itself, before a system call"),
    "library": (LIBIBVERBS, "it checks this itself, before a system call"),
    "header": (LIBIBVERBS, "it depends on the installed header"),
    "provider": (PROVIDER, "the answer is one that it gives without the kernel"),
}
# Frames of a process that died: those of faulthandler, or what the kernel says of the instruction.
_FRAME = re.compile(r'^\s*Binary file "(?P<file>[^"]+)"')
_SEGFAULT = re.compile(r"\bsegfault at \S+ ip .* in (?P<file>[^\s\[]+)\[")
_LIBC = re.compile(r"\blib(?:c|pthread)[.-]")
_PROVIDERS = re.compile(r"-rdmav\d+\.so|\blib(?:mlx4|mlx5|efa|hns|mana)\.so")
# The faults that are answers of the stack; a death, a hang, a kernel warning or a leak is not an answer.
_ANSWERS = (Effect.ACCEPTED, Effect.REFUSED, Effect.CODE, Effect.REMARK)


@dataclass(frozen=True)
class Answering:
    """The layer that answered, and the evidence for it."""

    layer: str
    because: str = ""

    def __str__(self) -> str:
        return f"{self.layer} ({self.because})" if self.because else self.layer


def answering_of(symptom: Symptom) -> Answering:
    """Who answered, by the step that failed."""
    fault = symptom.fault
    log = symptom.record["kernel"].get("log", ())
    if fault.effect in (Effect.KERNEL_DIED, Effect.KERNEL_ALARM):
        return _of_kernel(fault)
    if fault.effect is Effect.PROCESS_DIED:
        return _of_process(log)
    if fault.effect is Effect.HUNG:
        return Answering(UNKNOWN, "nothing was returned")
    if from_core(fault):
        return Answering(CORE, "it answers this before it asks a driver, whatever the driver")
    if fault.kind is FaultKind.CARRIED_OUT:
        return Answering(PROVIDER, "it writes the queue, in which the request stayed although its posting failed")
    layer = fault.layer
    if layer in _LAYERS:
        return Answering(*_LAYERS[layer])
    if group_of(fault.verb) == ACCESS or layer == "device" or fault.statuses:
        return Answering(DEVICE, "the request was posted, and carried out or completed by it or its driver")
    own = next(filter(None, map(_OWN_LINE.match, log)), None)
    if own and not fault.later and fault.effect in (Effect.REFUSED, Effect.CODE):
        return Answering(DEVICE, f"{own['function']} of its driver reports it in the kernel's log")
    if layer == "kernel" or symptom.record["entry"] == "uverbs":
        return Answering(UNKNOWN, "the answer came from the system call: of the kernel's core or of the driver")
    return Answering(UNKNOWN)


def is_of_stack(record: ResultRecord) -> bool:
    """Whether a result shows only what the kernel's core or libibverbs answers on every device."""
    symptoms = list(symptoms_of(record))
    return bool(symptoms) and all(
        symptom.fault.effect in _ANSWERS and answering_of(symptom).layer in (CORE, LIBIBVERBS) for symptom in symptoms
    )


def _of_kernel(fault: Fault) -> Answering:
    site = site_of(fault)
    if site is None or not site.module:
        return Answering(UNKNOWN, str(site) if site else "the kernel's log does not say where it was")
    return Answering(CORE if site.module in _CORE_MODULES else DEVICE, f"the kernel was in {site}")


def _of_process(log: Sequence[str]) -> Answering:
    """By the file of the first frame behind the signal's own ones, which end in the C library."""
    frames = [match["file"] for line in log if (match := _FRAME.match(line))]
    signal = next((number for number, file in enumerate(frames) if _LIBC.search(file)), len(frames))
    file = next((file for file in frames[signal:] if not _LIBC.search(file)), "")
    file = file or next((match["file"] for line in log if (match := _SEGFAULT.search(line))), "")
    if not file or _LIBC.search(file):
        return Answering(UNKNOWN, "nothing shows where the process was")
    because = f"the process was in {file.rpartition('/')[2]}"
    if "libibverbs.so" in file:
        return Answering(LIBIBVERBS, because)
    return Answering(PROVIDER if _PROVIDERS.search(file) else PROGRAM, because)
