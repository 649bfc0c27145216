"""Who answered where a symptom shows: the library, the provider, the kernel's core, the driver or the device.

Only what the evidence of the result shows; otherwise the layer is not known. No verdict depends on it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from conformance.defects.cause import ACCESS, from_core, group_of
from conformance.defects.kernel_site import site_of
from conformance.defects.symptom import Symptom
from conformance.model.fault import Effect, Fault

LIBRARY, PROVIDER, CORE, DRIVER = "library", "provider", "uverbs core", "driver"
ON_THE_WIRE, KERNEL, UNKNOWN = "driver or device", "kernel, core or driver", "not known"
_CORE_MODULES = ("ib_core", "ib_uverbs", "ib_umad", "rdma_cm", "iw_cm", "ib_cm", "rdma_ucm")
# A line in which a driver tells of a request, beginning with the name of the device: `rxe0: pd#1 rxe_reg_user_mr: …`.
_OWN_LINE = re.compile(r"^(?:\[[^\]]*\] )?(?P<device>[a-z]\w*\d): (?:\S+ )?(?P<function>\w+): \S")
_LAYERS = {
    "libibverbs": (LIBRARY, "it checks this itself, before a system call"),
    "library": (LIBRARY, "it checks this itself, before a system call"),
    "header": (LIBRARY, "it is a matter of the installed header"),
    "provider": (PROVIDER, "the answer is one that it gives without the kernel"),
}


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
    if fault.effect in (Effect.KERNEL_DIED, Effect.KERNEL_ALARM):
        return _of_kernel(fault)
    if fault.effect in (Effect.PROCESS_DIED, Effect.HUNG):
        return Answering(UNKNOWN, "nothing was returned")
    if from_core(fault):
        return Answering(CORE, "it answers this before it asks a driver, whatever the driver")
    layer = fault.layer
    if layer in _LAYERS:
        return Answering(*_LAYERS[layer])
    if group_of(fault.verb) == ACCESS or layer == "device" or fault.statuses:
        return Answering(ON_THE_WIRE, "the request was posted, and carried out or completed by it")
    own = next(filter(None, map(_OWN_LINE.match, symptom.record["kernel"].get("log", ()))), None)
    if own and not fault.later and fault.effect in (Effect.REFUSED, Effect.CODE):
        return Answering(DRIVER, f"its {own['function']} tells of it in the kernel's log")
    if layer == "kernel" or symptom.record["entry"] == "uverbs":
        return Answering(KERNEL, "the answer came from the system call")
    return Answering(UNKNOWN)


def _of_kernel(fault: Fault) -> Answering:
    site = site_of(fault)
    if site is None or not site.module:
        return Answering(UNKNOWN, str(site) if site else "the kernel's log does not say where it was")
    return Answering(CORE if site.module in _CORE_MODULES else DRIVER, f"the kernel was in {site}")
