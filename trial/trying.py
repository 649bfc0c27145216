"""Tries the suite against seeded violations: whether the cases of the violated rule see each of them.

killed: cases of the violated rule fail; misattributed: only others' do; survived: none does. The cases of the violated
rule come first, and the others only where these saw nothing, unless the whole is asked for.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from conformance.errors import UserError
from conformance.model.case import Case
from conformance.model.verdict import VIOLATIONS, Verdict
from trial.running import on_reference
from trial.violation import Violation

KILLED, MISATTRIBUTED, SURVIVED = "killed", "misattributed", "survived"


@dataclass(frozen=True)
class Finding:
    """What the suite said of one violation. `by` are the cases that saw it, `reason` what the first of them said.

    `broken` is what the harness could not run with the violation in place; no case has seen it by that.
    """

    name: str
    rule: str
    about: str
    outcome: str
    by: tuple[str, ...]
    reason: str
    tried: int
    broken: tuple[str, ...] = ()

    def as_data(self) -> dict[str, Any]:
        """The finding for a report."""
        return asdict(self)


def check_baseline(cases: Sequence[Case]) -> None:
    """Raises UserError (status 3) where a case does not pass on the sound reference."""
    faults = [f"{case.id}: {each.verdict} {each.reason}" for case, each in on_reference(cases)
              if each.verdict != Verdict.PASS]  # fmt: skip
    if faults:
        raise UserError("\n".join(["the reference itself does not pass:", *faults]), status=3)


def try_violation(violation: Violation, cases: Sequence[Case], whole: bool = False) -> Finding:
    """Runs cases against a violation."""
    stages: dict[tuple[bool, bool], list[Case]] = {}
    for case in cases:  # a sweep takes as long as hundreds of rows: those of the rule come after its rows
        stages.setdefault((violation.rule not in case.rules, case.sweep is not None), []).append(case)
    by: dict[str, str] = {}
    broken: list[str] = []
    outcome, tried = SURVIVED, 0
    for (elsewhere, _), stage in sorted(stages.items()):
        if by and not whole:
            break
        seen, failed = _seen(violation, stage)
        if seen and not by:
            outcome = MISATTRIBUTED if elsewhere else KILLED
        by, broken, tried = {**by, **seen}, broken + failed, tried + len(stage)
    return found(violation, outcome, by, tried, broken)


def found(violation: Violation, outcome: str, by: dict[str, str], tried: int, broken: Sequence[str] = ()) -> Finding:
    """A finding; `by` are the cases that saw the violation, with their reasons."""
    reason = next(iter(by.values()), "")
    return Finding(violation.name, violation.rule, violation.about, outcome, tuple(by), reason, tried, tuple(broken))


def _seen(violation: Violation, cases: Sequence[Case]) -> tuple[dict[str, str], list[str]]:
    """The cases that fail, with their reasons; and what could not be run."""
    seen: dict[str, str] = {}
    broken = []
    for case, judgement in on_reference(cases, violation.kind):
        if judgement.verdict in VIOLATIONS:
            seen[case.id] = judgement.reason
        elif judgement.verdict == Verdict.BROKEN:
            broken.append(f"{case.id}: {judgement.reason}")
    return seen, broken


_task: Callable[[int], Finding]


def _work(number: int) -> Finding:
    return _task(number)


def try_all(
    violations: Sequence[Violation], cases: Sequence[Case], jobs: int = 0, whole: bool = False
) -> Iterator[Finding]:
    """Every violation, in `jobs` processes (0: one for each processor), as they come to an end."""
    global _task

    def task(number: int) -> Finding:
        return try_violation(violations[number], cases, whole)

    _task = task  # for the processes that are forked from here on
    with multiprocessing.get_context("fork").Pool(jobs or os.cpu_count() or 1) as pool:
        yield from pool.imap(_work, range(len(violations)), chunksize=4)
