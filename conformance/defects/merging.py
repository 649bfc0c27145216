"""Merges refused registrations that share a condition: one flag that a driver refuses violates many rules.

One errno can have many reasons, so that refused registrations have one cause for each rule at first. Registrations that
fail under one condition, which no successful call of the run meets, become one defect. Not for causes (cause.py).
"""

from collections.abc import Mapping, Sequence

from conformance.defects.cause import REGISTRATION, Cause
from conformance.defects.condition import Condition, Granted, conditions
from conformance.defects.symptom import Symptom
from conformance.model.fault import Effect

ByCause = Mapping[Cause, Sequence[Symptom]]


def merged(by_cause: ByCause, succeeded: Granted) -> list[list[Cause]]:
    """The causes of each defect, in the order of their keys."""
    groups: dict[tuple[str, ...], list[Cause]] = {}
    for cause in sorted(by_cause, key=lambda cause: cause.key):
        mergeable = cause.key[:2] == (Effect.REFUSED, REGISTRATION)
        groups.setdefault(cause.key[:3] if mergeable else cause.key, []).append(cause)
    return [found for causes in groups.values() for found in _by_condition(causes, by_cause, succeeded)]


def _by_condition(causes: Sequence[Cause], by_cause: ByCause, succeeded: Granted) -> list[list[Cause]]:
    """Groups of causes that share a condition; the condition that most of them share comes first."""
    rest = {cause: set(conditions(by_cause[cause], succeeded)) for cause in causes}
    found = []
    while rest:
        best = min(
            (each for shared in rest.values() for each in shared), key=lambda each: _rank(each, rest), default=None
        )
        together = [cause for cause, shared in rest.items() if best in shared] if best is not None else list(rest)[:1]
        found.append(together)
        for cause in together:
            del rest[cause]
    return found


def _rank(condition: Condition, causes: Mapping[Cause, set[Condition]]) -> tuple[int, int, Condition]:
    return -sum(condition in shared for shared in causes.values()), len(condition), condition
