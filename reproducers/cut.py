"""The part of a case that its recorded violation needs: up to the first step that was wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from conformance.judging.faults import fault_of
from conformance.model.case import Case, Step
from conformance.model.vocabulary import NULL, PROBES


def cut(case: Case, observed: Mapping[str, Any]) -> Case:
    """The case without the steps after the first wrong one, and without probes before it that left nothing behind.

    `observed` is its recorded observation; without a fault in it the case is returned as it is.
    """
    if "returned" not in observed:
        return case
    if fault_of(case.when, observed):  # type: ignore[arg-type]
        return replace(case, afterwards=())
    for number, (step, seen) in enumerate(zip(case.afterwards, observed.get("afterwards", ()), strict=False)):
        if fault_of(step, seen, later=True):
            kept = [each for each in case.afterwards[:number] if not _leaves_nothing(each)]
            return replace(case, afterwards=(*kept, step))
    return case


def _leaves_nothing(step: Step) -> bool:
    return step.call in PROBES and step.arguments.get("via", NULL) == NULL
