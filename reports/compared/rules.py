"""Finds the rules whose verdicts differ between two runs, by the comparison of their cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from conformance.model.record import ResultRecord
from conformance.model.verdict import INCOMPLETE, KEPT, VIOLATIONS, Verdict
from conformance.older_python import zip
from conformance.results.conclusions import verdict_on
from conformance.results.rule_conclusions import NO_CONTROL, NOT_RUN, RuleConclusion
from reports.compared.case_pair import CasePair, is_waived
from reports.compared.changes import (
    CHANGED,
    FAILING,
    FIXED,
    GONE,
    KINDS,
    NEW,
    NOT_HIT,
    UNDECIDED,
    UNSUPPORTED,
    WORSE,
    Change,
    hidden_points,
    kind_of,
    worst_of,
)
from reports.digest import Digest


@dataclass(frozen=True)
class ComparedRules:
    """The rules of both runs. `changes` are those of their cases, points and rules; `untried` has the numbers of cases that
    only the old and only the new run tried."""

    old: Digest
    new: Digest
    changes: Sequence[Change]
    untried: tuple[int, int]

    @cached_property
    def changed(self) -> Sequence[str]:
        """The rules that only one of the runs violates by a case that both tried, in the order of KINDS."""
        before, after = self.old.verdicts.of_rules, self.new.verdicts.of_rules
        changed = {
            rule
            for change in self.changes
            if change.kind not in (NEW, GONE)
            for rule in change.record["rules"]
        }
        both = [rule for rule in after if rule in before and rule in changed and self._shows(rule)]
        differ = [
            rule for rule in both if (after[rule] in VIOLATIONS) != (before[rule] in VIOLATIONS)
        ]
        order = list(KINDS)
        return sorted(
            differ,
            key=lambda rule: (order.index(self.kind(rule)), after[rule] not in VIOLATIONS),
        )

    def _shows(self, rule: str) -> bool:
        """Whether the new run tried all cases that violated the rule, or the old run one that violates it now."""
        before, after = (violating.get(rule, ()) for violating in self._violating)
        if after:
            return any(record["case"] in self.old.by_case for record in after)
        return all(record["case"] in self.new.by_case for record in before)

    def of_one_run(self, rule: str) -> Sequence[str]:
        """Returns the cases that violate a rule in one of the runs and that the other run did not try."""
        pairs = zip(self._violating, (self.new, self.old), strict=True)
        return [
            record["case"]
            for violating, other in pairs
            for record in violating.get(rule, ())
            if record["case"] not in other.by_case
        ]

    @cached_property
    def _violating(self) -> Sequence[Mapping[str, Sequence[ResultRecord]]]:
        """The violations of each rule in the old and in the new run."""
        return [run.violations.by_rule() for run in (self.old, self.new)]

    @cached_property
    def others(self) -> Sequence[str]:
        """The rules whose verdicts differ, and that are not among `changed`: the summaries count them differently."""
        before, after = self.old.verdicts.labels, self.new.verdicts.labels
        return [
            rule
            for rule in after
            if rule in before and before[rule] != after[rule] and rule not in self.changed
        ]

    @cached_property
    def by_fewer_cases(self) -> Mapping[str, str]:
        """Those of the other rules whose verdicts differ only because a run left out cases, each with this run: old or
        new. A violation in a case that only the new run tried is not left to its number."""
        runs = [("old", self.old, self.new), ("new", self.new, self.old)]
        left_out = dict(zip(("new", "old"), self.untried, strict=True))
        now = self.new.verdicts.labels
        lost = self._violating[0].keys() - self._violating[1].keys()
        lost = {rule for rule in lost if now.get(rule) != Verdict.PASS}
        return {
            rule: name
            for name, run, other in runs
            if left_out[name]
            for rule in self.others
            if (name == "new" and rule in lost)
            or _has_fewer_cases(run.verdicts.concluded[rule], other.verdicts.concluded[rule])
        }

    def kind(self, rule: str) -> str:
        """Returns the kind of the change of a rule's verdict."""
        before, after = (run.verdicts.of_rules[rule] for run in (self.old, self.new))
        kind = kind_of(before, after)
        changes = [change for change in self.changes if rule in change.record["rules"]]
        if kind in FAILING:
            kinds = {
                change.kind for change in changes if verdict_on(rule, change.record) in VIOLATIONS
            }
            if kinds.isdisjoint(WORSE) and self._is_waived(rule):
                return CHANGED
            return worst_of(kinds) or kind
        if kind != FIXED:
            return kind
        if any(change.kind == NOT_HIT for change in changes):
            return NOT_HIT
        now = self.failing_points.get(rule, set())
        if not now.isdisjoint(INCOMPLETE):
            return UNDECIDED
        return UNSUPPORTED if now else FIXED

    @cached_property
    def failing_points(self) -> Mapping[str, set[str]]:
        """For each rule that only the old run violates, the verdicts that what violated it has now, if these are none on
        the device."""
        now = self.new.verdicts.of_rules
        verdicts: dict[str, set[str]] = {}
        for rule, records in self._violating[0].items():
            if now.get(rule) not in VIOLATIONS:
                cases = (record["case"] for record in records if record["case"] in self.new.by_case)
                judged = (self._pair(case).not_judged(rule) for case in cases)
                verdicts[rule] = set().union(*judged)
        return verdicts

    def hidden(self, rule: str) -> str:
        """Says that a rule which is no longer violated is not shown to be kept; empty for any other rule."""
        is_kept = self.new.verdicts.of_rules[rule] in KEPT
        return hidden_points(self.failing_points.get(rule, ())) if is_kept else ""

    def verdicts_of(self, rule: str) -> tuple[str, str]:
        """Returns both verdicts on a rule: the new one is WAIVED if the rule is violated only by waived symptoms, in results
        that count because of others, and has not become worse."""
        before, after = (run.verdicts.of_rules[rule] for run in (self.old, self.new))
        if kind_of(before, after) in FAILING and self.kind(rule) == CHANGED:
            return before, Verdict.WAIVED
        return before, after

    def _is_waived(self, rule: str) -> bool:
        violating = self._violating[1].get(rule, ())
        return bool(violating) and all(is_waived(rule, record, self.new) for record in violating)

    def _pair(self, case: str) -> CasePair:
        return CasePair(self.old, self.new, self.old.by_case[case], self.new.by_case[case])


def _has_fewer_cases(here: RuleConclusion, other: RuleConclusion) -> bool:
    """Whether one run misses only cases that it left out, also as controls of refusals, beside what the other run, which
    passed too, also misses."""
    passed = here.verdict == Verdict.PARTIAL and other.verdict in KEPT
    further = {part["why"] for name, part in here.missing.items() if name not in other.missing}
    return passed and NOT_RUN in further and further <= {NOT_RUN, NO_CONTROL}
