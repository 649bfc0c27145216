"""Tries the suite on seeded violations. A violation is killed if cases of the violated rule fail, misattributed if only
cases of other rules fail, and survives if no case fails. The cases of the violated rule run first. Which other cases run
is an `Extent`."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from conformance.errors import UserError
from conformance.judging import Judgement
from conformance.model.case import Case
from conformance.model.kind import Kind
from conformance.model.preflight import Findings
from conformance.model.verdict import VIOLATIONS, Verdict
from conformance.tables.carried import is_of_packets
from trial.mutant_table import Violation
from trial.processes import Waiting, in_processes
from trial.reference.stack import Stack
from trial.running import on_reference

KILLED, MISATTRIBUTED, SURVIVED = "killed", "misattributed", "survived"


class Extent(enum.Enum):
    """Which cases are run on a violation, besides the cases of its rule."""

    OWN = enum.auto()  # none
    UNTIL_DETECTED = enum.auto()  # all others, if no case of the rule fails
    WHOLE = enum.auto()  # all others


@dataclass(frozen=True)
class Finding:
    """The outcome of one violation. `by` has the cases that detected the violation, and `reason` is the reason of the
    first case. `broken` has the cases that were BROKEN with the violation; a BROKEN case does not detect it."""

    name: str
    rule: str
    about: str
    outcome: str
    by: tuple[str, ...]
    reason: str
    tried: int
    broken: tuple[str, ...] = ()


def has_points(case: Case) -> bool:
    return case.kind in (Kind.SWEEP, Kind.COMBINATIONS)


def check_baseline(cases: Sequence[Case]) -> None:
    """Raises UserError (status 3) if a case does not pass on the reference without a violation. The reference does not
    take every packet: a row of packets may be UNREACHABLE."""
    faults = []
    for case, judgement in on_reference(cases):
        expected = {Verdict.PASS}
        if is_of_packets(case):
            expected.add(Verdict.UNREACHABLE)
        if judgement.verdict not in expected:
            faults.append(f"{case.id}: {judgement.verdict} {judgement.reason}")
    if faults:
        raise UserError("the reference itself does not pass:", *faults, status=3)


def try_violation(
    violation: Violation,
    cases: Sequence[Case],
    extent: Extent = Extent.UNTIL_DETECTED,
    only: Stack | None = None,
    findings: Findings | None = None,
) -> Finding:
    """Runs cases on a mutant. The cases of rules that a permitted variant does not follow are left out. `only` and
    `findings` are as in on_reference."""
    cases = [case for case in cases if not set(case.rules) <= set(violation.departs_from)]
    stages: dict[tuple[bool, bool], list[Case]] = {}
    # spaces of points run after rows, because they take as long as hundreds of rows
    for case in cases:
        stages.setdefault((violation.rule not in case.rules, has_points(case)), []).append(case)
    by: dict[str, str] = {}
    broken: list[str] = []
    outcome, tried = SURVIVED, 0
    for (of_other_rules, _), stage in sorted(stages.items()):
        if of_other_rules and extent is Extent.OWN:
            break
        if by and extent is not Extent.WHOLE:
            break
        detected, failed = _detections(on_reference(stage, violation.kind, only, findings))
        if detected and not by:
            if of_other_rules:
                outcome = MISATTRIBUTED
            else:
                outcome = KILLED
        by, broken, tried = {**by, **detected}, broken + failed, tried + len(stage)
    return finding(violation, outcome, by, tried, broken)


def finding(
    violation: Violation,
    outcome: str,
    by: dict[str, str],
    tried: int,
    broken: Sequence[str] = (),
) -> Finding:
    """Returns a finding. `by` has the cases that detected the violation, with their reasons."""
    reason = next(iter(by.values()), "")
    return Finding(
        violation.name,
        violation.rule,
        violation.about,
        outcome,
        tuple(by),
        reason,
        tried,
        tuple(broken),
    )


def _detections(judgements: Iterable[tuple[Case, Judgement]]) -> tuple[dict[str, str], list[str]]:
    detected: dict[str, str] = {}
    broken = []
    for case, judgement in judgements:
        if judgement.verdict in VIOLATIONS:
            detected[case.id] = judgement.reason
        elif judgement.verdict == Verdict.BROKEN:
            broken.append(f"{case.id}: {judgement.reason}")
    return detected, broken


def try_all(
    violations: Sequence[Violation],
    cases: Sequence[Case],
    jobs: int = 0,
    extent: Extent = Extent.UNTIL_DETECTED,
    waiting: Waiting = lambda names: None,
) -> Iterator[Finding]:
    """Tries every violation in `jobs` processes (0: one for each processor). Yields the findings in order. `waiting` is
    as in in_processes."""

    def tried(number: int) -> Finding:
        return try_violation(violations[number], cases, extent)

    names = [violation.name for violation in violations]
    return in_processes(tried, names, jobs, waiting)
