"""How many cases a run has, and in which order: tiers and seeds.

Each tier contains the cases of the smaller ones. The cases of the smallest tier depend on the tables
only, so that two runs of it are the same. Not for other criteria of a selection (selection.py).
"""

import hashlib
from collections.abc import Iterable, Sequence

from conformance.model.case import Case
from conformance.model.evidence import shown_of_rules
from conformance.model.kind import Kind
from conformance.model.vocabulary import TIERS

DEFAULT = "default"
SEQUENCES_S = 60.0  # default time for random sequences at each entry, in seconds
SMOKE, EXHAUSTIVE = "smoke", "exhaustive"
assert tuple(TIERS) == (SMOKE, DEFAULT, EXHAUSTIVE)

_PROBES = ("traffic", "local_traffic", "bind_and_send")
# Estimated costs in units of one plain call, used to choose the cheapest case that proves a rule.
_TRAFFIC, _GUEST = 5.0, 10_000.0
_POINT = 0.1
_OPEN = 40.0  # a case with an open outcome proves little, so that others are preferred


def of_tier(cases: Sequence[Case], tier: str) -> list[Case]:
    if tier == EXHAUSTIVE:
        return list(cases)
    moderate = [case for case in cases if case.tier != EXHAUSTIVE]
    return moderate if tier == DEFAULT else _every_direction_once(moderate)


def left_out(cases: Sequence[Case], planned: Iterable[str]) -> list[str]:
    """The cases of the default tier that are not planned."""
    chosen = set(planned)
    return [case.id for case in of_tier(cases, DEFAULT) if case.id not in chosen]


def _every_direction_once(cases: Sequence[Case]) -> list[Case]:
    """For each rule, the cases of tier smoke and, if these lack a granting or a refusing case, the cheapest one.

    A rule whose cases all have an open outcome gets one of them.
    """
    chosen = {case.id for case in cases if case.tier == SMOKE}
    showing: dict[tuple[str, str], list[Case]] = {}
    for case in cases:
        own = {(rule, each.direction) for rule, each in shown_of_rules(case)}
        for key in own | {(rule, "") for rule in case.rules}:
            showing.setdefault(key, []).append(case)
    # Items that few cases show come first: the cases chosen for them may also show other items.
    for key in sorted(showing, key=lambda key: (not key[1], len(showing[key]), key)):
        if not any(case.id in chosen for case in showing[key]):
            chosen.add(min(showing[key], key=lambda case: (cost(case), len(case.needs), case.id)).id)
    return [case for case in cases if case.id in chosen]


def cost(case: Case) -> float:
    """Returns the estimated cost of running a case, in units of one plain call."""
    calls = [case.when, *case.before, *case.afterwards]
    cost = sum(_TRAFFIC if step.call in _PROBES else 1.0 for step in calls)
    cost += len(case.given.qps) * _TRAFFIC + len(case.given.windows)
    if case.sweep and case.kind is Kind.SWEEP:
        cost *= case.sweep.size * _POINT
    if case.sweep is None and case.when.then.outcome == "open":
        cost += _OPEN
    return cost + case.kind.traits.cost + _GUEST * case.alone


def ordered(cases: Sequence[Case], seed: int | None) -> list[Case]:
    """Returns the cases shuffled by `seed`, or in their own order if it is None.

    The relative order of two cases depends only on the seed and their ids, not on which other cases there are.
    """
    if seed is None:
        return list(cases)
    return sorted(cases, key=lambda case: hashlib.sha256(f"{seed} {case.id}".encode()).digest())
