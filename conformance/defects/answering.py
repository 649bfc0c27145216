"""Who answered where a symptom shows: the library, the provider, the kernel's core, the driver or the device.

Only what the evidence of the result shows; otherwise the layer is not known. No verdict depends on it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from conformance.defects.cause import ACCESS, from_core, group_of
from conformance.defects.fault import Fault
from conformance.defects.kernel_site import site_of
from conformance.defects.symptom import Symptom, later_steps

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
    if symptom.fault in (Fault.KERNEL_DIED, Fault.KERNEL_ALARM):
        return _of_kernel(symptom)
    if symptom.fault in (Fault.PROCESS_DIED, Fault.HUNG):
        return Answering(UNKNOWN, "nothing was returned")
    if from_core(symptom):
        return Answering(CORE, "it answers this before it asks a driver, whatever the driver")
    seen = _step(symptom)
    layer = str(seen.get("layer", ""))
    if layer in _LAYERS:
        return Answering(*_LAYERS[layer])
    if group_of(symptom.verb) == ACCESS or layer == "device" or seen.get("wc"):
        return Answering(ON_THE_WIRE, "the request was posted, and carried out or completed by it")
    own = next(filter(None, map(_OWN_LINE.match, symptom.record["kernel"].get("log", ()))), None)
    if own and symptom.call == symptom.judged and symptom.fault in (Fault.REFUSED, Fault.CODE):
        return Answering(DRIVER, f"its {own['function']} tells of it in the kernel's log")
    if layer == "kernel" or symptom.record["entry"] == "uverbs":
        return Answering(KERNEL, "the answer came from the system call")
    return Answering(UNKNOWN)


def _of_kernel(symptom: Symptom) -> Answering:
    site = site_of(symptom.record)
    if site is None or not site.module:
        return Answering(UNKNOWN, str(site) if site else "the kernel's log does not say where it was")
    return Answering(CORE if site.module in _CORE_MODULES else DRIVER, f"the kernel was in {site}")


def _step(symptom: Symptom) -> Mapping[str, Any]:
    """The observation of the step that failed; empty if the result does not have it."""
    record = symptom.record
    if not symptom.line.startswith("afterwards "):
        return record["observed"]
    later = zip(later_steps(record["expected"]), later_steps(record["observed"]), strict=False)
    return next((seen for step, seen in later if step.get("call") == symptom.call), {})
