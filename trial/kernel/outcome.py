"""The outcome of a mutant of a driver, and the cases that may determine it. trying.py tries the mutants."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Any

from conformance.model.case import Case
from conformance.model.kind import Kind
from conformance.tables.tiers import DEFAULT, of_tier, ordered
from trial.kernel.mutant import Mutant

BY_ITS_RULE, ELSEWHERE, SURVIVED, BROKEN = (
    "killed by its rule",
    "killed elsewhere",
    "survived",
    "BROKEN",
)
HANG, NOT_LOADED, NOT_COMPILED, NO_FIT = "hang", "does not load", "does not compile", "does not fit"
EQUIVALENT, ACCEPTED, FALSE_ALARM = "equivalent", "accepted", "false alarm"
UNDECIDED = "undecided"  # a case fails with a combined module, but with neither half of it
UNCHECKED = "unchecked"  # a case fails with the mutant, and has not been run without it yet
_KINDS = (Kind.ROW, Kind.SWEEP, Kind.COMBINATIONS)  # of cases that a driver can fail


@dataclass(frozen=True)
class Finding:
    """The outcome of a mutant. `by` has the cases that detected the mutant; `reason` and `verdict` belong to the first
    of these cases (or to a guest lost between cases). `tried` is the number of cases that were run, and `seconds` their
    duration. `peer` is the first of rdma-core's own tests that detected the mutant, empty if none did, and None if
    these tests were not run; `unit_test` is the same for Google's rdma-unit-test. `violated` has the rules that the first
    of the cases reports."""

    name: str
    file: str
    kind: str
    rules: tuple[str, ...]
    about: str
    outcome: str
    by: tuple[str, ...] = ()
    reason: str = ""
    verdict: str = ""
    tried: int = 0
    seconds: float = 0.0
    peer: str | None = None
    unit_test: str | None = None
    violated: tuple[str, ...] = ()


def finding(mutant: Mutant, outcome: str, **more: Any) -> Finding:
    return Finding(
        mutant.name,
        mutant.file,
        mutant.kind,
        mutant.rules,
        mutant.about,
        outcome,
        **more,
    )


def suited(cases: Sequence[Case], seed: int | None = None) -> list[Case]:
    """Returns the cases of the default tier that a driver can fail, without those of the header or of fork protection.
    Cases that may crash a kernel are last. With a seed, the order is otherwise random. Without a seed, rows are before
    sweeps, and these before points of a model; the first case of each table is before all second cases, because
    neighbouring cases are similar."""
    fitting = [
        case
        for case in of_tier(cases, DEFAULT)
        if case.kind in _KINDS and not case.needs_kept_memory
    ]
    if seed is not None:
        return sorted(ordered(fitting, seed), key=lambda case: case.hazardous)
    before = collections.Counter[str]()
    places = {}
    for case in fitting:
        table = case.id.rpartition("/")[0]
        places[case.id] = before[table]
        before[table] += 1
    return sorted(
        fitting,
        key=lambda case: (case.hazardous, _KINDS.index(case.kind), places[case.id]),
    )


def _violated(mutant: Mutant, rules: Iterable[str]) -> bool:
    """Whether a mutant violates one of the rules, or a rule that contains one of them (REG-09 for REG-09a)."""
    return any(
        rule in mutant.rules or rule.rstrip(ascii_lowercase) in mutant.rules for rule in rules
    )


def outcome_of(mutant: Mutant, rules: Iterable[str]) -> str:
    """Returns the outcome of a mutant with which a case reports these rules as violated."""
    if mutant.permitted:
        return FALSE_ALARM
    if _violated(mutant, rules):
        return BY_ITS_RULE
    return ELSEWHERE


def own_cases(mutant: Mutant, cases: Sequence[Case]) -> list[str]:
    """Returns the cases of the rules that a mutant violates; all cases for a permitted mutant."""
    return [case.id for case in cases if mutant.permitted or _violated(mutant, case.rules)]
