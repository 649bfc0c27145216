"""How much a run takes on, and in which order: tiers and seeds.

A tier has the cases of those before it. Which cases the smallest one takes follows from the tables
alone, so that two runs of it do the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from conformance.model.case import Case
from conformance.model.kind import Kind
from conformance.model.vocabulary import TIERS

DEFAULT = "default"
SEQUENCES_S = 60.0  # how long random sequences are tried at each entry, if nothing is said
SMOKE, EXHAUSTIVE = "smoke", "exhaustive"
assert tuple(TIERS) == (SMOKE, DEFAULT, EXHAUSTIVE)

_PROBES = ("traffic", "local_traffic", "bind_and_send")
# Costs of a case beside that of a plain call, for choosing among those that prove the same rule.
_TRAFFIC, _GUEST = 5.0, 10_000.0
_POINT = 0.1
_OPEN = 40.0  # proves little


def of_tier(cases: Sequence[Case], tier: str) -> list[Case]:
    """The cases of a tier, in the order of `cases`."""
    if tier == EXHAUSTIVE:
        return list(cases)
    moderate = [case for case in cases if case.tier != EXHAUSTIVE]
    return moderate if tier == DEFAULT else _every_rule_once(moderate)


def _every_rule_once(cases: Sequence[Case]) -> list[Case]:
    """Those marked for the smallest tier, and the cheapest ones that prove the rules these do not."""
    chosen = {case.id: case for case in cases if case.tier == SMOKE}
    proving: dict[str, list[Case]] = {}
    for case in cases:
        for rule in case.rules:
            proving.setdefault(rule, []).append(case)
    # What few cases prove is settled first: those cases may prove other rules as well.
    for rule in sorted(proving, key=lambda rule: (len(proving[rule]), rule)):
        if not any(rule in case.rules for case in chosen.values()):
            cheapest = min(proving[rule], key=lambda case: (_cost(case), case.id))
            chosen[cheapest.id] = cheapest
    return [case for case in cases if case.id in chosen]


def _cost(case: Case) -> float:
    """What running a case costs, about, in plain calls."""
    calls = [case.when, *case.before, *case.afterwards]
    cost = sum(_TRAFFIC if step.call in _PROBES else 1.0 for step in calls)
    cost += len(case.given.qps) * _TRAFFIC + len(case.given.windows)
    if case.sweep and case.kind is Kind.SWEEP:
        cost *= case.sweep.size * _POINT
    if case.sweep is None and case.when.then.outcome == "open":
        cost += _OPEN
    return cost + case.kind.traits.cost + _GUEST * case.hazardous


def ordered(cases: Sequence[Case], seed: int | None) -> list[Case]:
    """The cases in the order that a seed gives them, which of two cases comes first not resting on the others."""
    if seed is None:
        return list(cases)
    return sorted(cases, key=lambda case: hashlib.sha256(f"{seed} {case.id}".encode()).digest())
