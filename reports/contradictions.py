"""Finds rules that a run calls passed although one of its violations may contradict them: a request moved bytes in the
situation in which cases of the passed rule require a refusal, and the violation does not name the rule.

A situation is what a request addressed: the call that posted or awaited it, the operation, the kind of key, whether the
object was destroyed, whether the bytes are outside of its range, the properties of the region, and the call that was
judged before.
A person decides for each candidate whether the rule's statement covers the violation: then the row names the rule too,
else the reason is listed in contradictions.yaml.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.defects import Symptom
from conformance.judging.circumstances import located
from conformance.model.case import Case
from conformance.model.fault import Effect, Fault, FaultKind
from conformance.model.kind import Kind
from conformance.model.verdict import KEPT
from conformance.model.vocabulary import AWAITED
from conformance.tables.suite import Suite
from conformance.yamldoc.nodes import plain
from reports.digest import Digest

_FILE = Path(__file__).with_suffix(".yaml")
# After these calls, no byte may move although the step itself succeeds.
_AWAITING = (*(call for call, by in AWAITED.items() if by == "post_traffic"), "traffic_beside")

Situation = tuple[object, ...]


@dataclass(frozen=True, order=True)
class Candidate:
    """A passed rule, and the case whose violation may contradict it."""

    rule: str
    case: str


@functools.cache
def explained() -> Mapping[str, Mapping[str, str]]:
    """Returns, by rule and by case, the reason why a violation of the case does not contradict the rule."""
    from conformance.yamldoc.parsing import read_bytes  # imported late: most commands need no YAML

    content: Any = plain(read_bytes(_FILE.read_bytes(), _FILE.name))
    return dict(content)


def candidates(run: Digest, suite: Suite, only: str = "") -> list[Candidate]:
    """Returns the candidates of a run that are not explained; with `only`, those of this rule, which takes less time. A
    row that names the rule today is no candidate, even if the run is older."""
    cases: Sequence[Case] = suite.of_rule(only) if only else suite.cases
    required: dict[Situation, set[str]] = {}
    for case in cases:
        rules = {only} if only else set(case.rules)
        for situation in _required(case):
            required.setdefault(situation, set()).update(rules)
    contradicted = set()
    for symptom in _moved(run):
        case_here = suite.find(symptom.case)
        if case_here is None:
            continue
        case = case_here
        for rule in required.get(_situation(case, symptom.fault.step), ()):
            passed = run.verdicts.of_rules.get(rule) in KEPT
            named = rule in symptom.rules or rule in case.rules
            if passed and not named and not _is_explained(rule, case.id):
                contradicted.add(Candidate(rule, case.id))
    return sorted(contradicted)


def _is_explained(rule: str, case: str) -> bool:
    return any(case.startswith(prefix) for prefix in explained().get(rule, ()))


def _moved(run: Digest) -> Iterator[Symptom]:
    for symptoms in run.violations.symptoms.values():
        for symptom in symptoms:
            if symptom.fault.effect is Effect.MOVED:
                yield symptom


def _required(case: Case) -> Iterator[Situation]:
    """Yields the situations in which a case requires that no byte moves."""
    if case.kind not in (Kind.ROW, Kind.SWEEP):
        return
    for number, step in enumerate(case.judged_steps):
        refused = step.then.outcome == "refused" and "op" in step.arguments
        if refused or step.call in _AWAITING:
            yield _situation(case, number)


def _situation(case: Case, number: int) -> Situation:
    fault = located(Fault(FaultKind.MOVED), case, number)
    if number:
        judged = case.when.call
    else:
        judged = ""
    # Requests in flight are posted before the step, and any of them may move bytes.
    if fault.verb in _AWAITING:
        operation = ""
    else:
        operation = fault.operation
    return (fault.verb, operation, fault.key, fault.dead, fault.outside, fault.region, judged)
