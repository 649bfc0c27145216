"""Compares two runs, case by case and point by point. Cases are compared by their effective
verdicts, because a waived violation is known, unless the case passed before and its waiver does not name it. Points have
only raw verdicts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

from conformance.defects import Defect, Symptom, cause_of, symptoms_of
from conformance.defects.symptom import violated_rules
from conformance.errors import format_count
from conformance.model.fault import FaultKind
from conformance.model.record import LISTED, UNLISTED, UNSTEADY, Deviation, ResultRecord
from conformance.model.verdict import INCOMPLETE, NOT_TESTABLE, VERDICTS, VIOLATIONS, Verdict
from conformance.older_python import zip
from conformance.results.conclusions import headline, verdict_on
from conformance.results.points import points_path
from conformance.results.rule_conclusions import NOT_RUN, RuleConclusion
from conformance.sweeps.outcome import OUTSIDE, Points
from reports import bisection
from reports.changed_defects import Earlier
from reports.digest import Digest
from reports.earlier_points import EarlierPoints, counts_of, unjudged
from reports.environment import called
from reports.evidence import inside, read_points
from reports.races import Race, races_of

REGRESSED, UNKNOWN, FIXED, UNSUPPORTED, UNCONFIRMED = (
    "regressed",
    "regressed or newly supported",
    "fixed",
    "became unsupported",
    "not confirmed",
)
NEWLY_WRONG = "newly supported, and wrong"
NEWLY_JUDGED = "newly judged, and wrong"
NEWLY_RIGHT = "newly supported, and right"
JUDGED_RIGHT = "newly judged, and right"
IN_BOTH, NOT_DECIDED, NOT_TRIED = "in both", "not decided", "not tried by the old run"
NEWLY_WAIVED, NO_LONGER_WAIVED = "newly waived", "no longer waived"
NEW, GONE, UNNEEDED, UNDECIDED, CHANGED = (
    "new",
    "gone",
    "waiver no longer needed",
    "no longer decided",
    "changed",
)
HIT, NOT_HIT = "hit only now", "not hit again"
# The kinds of change, in the order of the output, with their meaning.
KINDS: Mapping[str, str] = {
    REGRESSED: "a new violation, or a worse one than before",
    UNKNOWN: "the old run judged only some points of the case, and its record does not tell whether these are wrong now",
    NEWLY_WRONG: "the old stack did not support the tested feature; the new stack supports it and violates a rule",
    NEWLY_JUDGED: "the old run has no verdict: the situation could not be set up, or the case was not decided or not run",
    HIT: "a race that violates a rule in tries of the new run only, too few to show that this is new",
    UNCONFIRMED: "a new violation, or a worse one, that did not occur when the case was repeated",
    UNDECIDED: "had a verdict; now the harness or the environment failed, or the case was not run",
    UNSUPPORTED: "was judged; now the device does not declare the capability, or the situation cannot be set up",
    UNNEEDED: "was waived, and is no longer a violation",
    FIXED: "was a violation, and passes now",
    NOT_HIT: "a race that violated a rule in tries of the old run only, too few to show that it is fixed",
    NEWLY_RIGHT: "the old stack did not support the tested feature; the new stack supports it, and no rule is violated",
    JUDGED_RIGHT: "the old run has no verdict, and no rule is violated now",
    CHANGED: "any other change of the verdict",
    NEW: "only in the new run",
    GONE: "only in the old run",
}
# The kinds of change for which a comparison fails.
FAILING = (REGRESSED, UNKNOWN, NEWLY_WRONG, NEWLY_JUDGED)
# The kinds of a violation where the old run judged nothing.
_NOT_JUDGED = (NEWLY_WRONG, NEWLY_JUDGED)
# The kinds of a violation that only the new run has.
WORSE = (*FAILING, HIT)
# The kinds of a defect that only the new run has.
NEW_KINDS = (NEW, UNKNOWN, NEWLY_WRONG, NEWLY_JUDGED, HIT)
# the verdicts of a case, or of a rule, without a violation
_KEPT = (Verdict.PASS, Verdict.PARTIAL)
_UNJUDGED = (*INCOMPLETE, *NOT_TESTABLE)
_DEATHS = (Verdict.CRASH, Verdict.HANG)
_MOST_EXAMPLES = 3


@dataclass(frozen=True)
class Change:
    """A changed verdict of a case, or of some points of its sweep. `points` is the number of points; it is 0 for a
    change of a whole case. `examples` has the names of some of the points, for `run --only`. `rule` is set if only the
    points of one rule changed, in a case whose points are recorded inside its result. `old_points` has the numbers of the
    old run's points by verdict, if it left some points of a newly wrong case without a verdict. `failing_points` has the
    verdicts that points which violated a rule have now, if these are none on the device."""

    kind: str
    case: str
    old: str
    new: str
    record: ResultRecord
    points: int = 0
    examples: tuple[str, ...] = ()
    rule: str = ""
    old_points: str = ""
    failing_points: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The case or, of points, the number of points and an example."""
        if self.points:
            example = f", such as {self.examples[0]}" if self.examples else ""
            return f"{format_count(self.points, 'point')} of {self.case}{example}"
        return self.case

    @property
    def arrow(self) -> str:
        """Both verdicts, the old one with the numbers of points."""
        old = f"{self.old} ({self.old_points})" if self.old_points else self.old
        return " -> ".join(verdict for verdict in (old, self.new) if verdict) + self.hidden

    @property
    def hidden(self) -> str:
        """Says that the change does not show a defect to be fixed; empty for any other change."""
        return hidden_points(self.failing_points)


@dataclass(frozen=True)
class Comparison:
    """All changes, in the order of KINDS. `compared` is the number of cases that both runs tried. `untried` has the
    number of cases that only the old run tried, and the number of cases that only the new run tried. `pointless` is the
    number of compared sweeps without a file of points. `races` are those that only one run has hit, by case."""

    old: Digest
    new: Digest
    compared: int
    changes: tuple[Change, ...] = field(default=())
    untried: tuple[int, int] = (0, 0)
    pointless: int = 0
    races: Mapping[str, Race] = field(default_factory=dict)

    @property
    def has_other_tables(self) -> bool:
        return self.old.environment.tables_sha256 != self.new.environment.tables_sha256

    @cached_property
    def defects(self) -> Mapping[str, Sequence[Defect]]:
        """The counted defects of the new run and the open defects of the old run, by kind. To decide whether a run has
        a defect, waived defects and defects of the stack count too, and in the old run also unconfirmed defects.

        - NEW: only in the new run; the old run has a case of the defect
        - UNKNOWN, NEWLY_WRONG, NEWLY_JUDGED, HIT: like NEW, but its cases changed only in this way
        - NOT_TRIED: only in the new run; the old run has no case of the defect
        - IN_BOTH: in both runs, with the data of the new run
        - NOT_DECIDED: only in the old run; the new run did not decide every case, or did not confirm the defect
        - GONE: only in the old run; the new run decided every case of the defect"""
        new = sorted(self.counted, key=lambda defect: defect.severity.rank)
        old = self.old.violations.open_defects
        now = [defect for defect in self.new.violations.defects if not defect.unconfirmed]
        tried = {record["case"] for record in self.old.results}
        unknown = [defect for defect in new if not self.earlier.has(defect)]
        of_tried = [defect for defect in unknown if not tried.isdisjoint(defect.cases)]
        unseen = [defect for defect in old if not defect.is_among(now)]
        decided = [defect for defect in unseen if self._is_decided(defect)]
        by_kind: dict[str, list[Defect]] = {kind: [] for kind in NEW_KINDS}
        for defect in of_tried:
            by_kind[self._kind(defect)].append(defect)
        return {
            **by_kind,
            GONE: decided,
            IN_BOTH: sorted(
                (_as_bad_as(defect, old) for defect in new if self.earlier.has(defect)),
                key=lambda defect: defect.severity.rank,
            ),
            NOT_DECIDED: [defect for defect in unseen if defect not in decided],
            NOT_TRIED: [defect for defect in unknown if tried.isdisjoint(defect.cases)],
        }

    @cached_property
    def counted(self) -> Sequence[Defect]:
        """The defects of the new run that are open, or waived and of a case that has become worse nevertheless. A waived
        defect that is newly supported is not open because it shares a result with others."""
        violations = self.new.violations
        return [
            defect
            for defect in violations.defects
            if (defect in violations.open_defects and not self._is_waived_beside_others(defect))
            or self._is_worse_though_waived(defect)
        ]

    def _is_waived_beside_others(self, defect: Defect) -> bool:
        newly = not self.earlier.has(defect) and self._kind(defect) in _NOT_JUDGED
        return newly and self._is_waived(defect)

    def _is_known(self, defect: Defect) -> bool:
        return self._is_waived(defect) and not self._is_worse_though_waived(defect)

    def _is_waived(self, defect: Defect) -> bool:
        """Whether waivers cover each symptom, even in a result that counts because of others."""
        return all(map(self.new.violations.is_waived, defect.symptoms))

    def _is_worse_though_waived(self, defect: Defect) -> bool:
        if not defect.waived or defect.unconfirmed:
            return False
        return bool(self.worse_cases(defect))

    @cached_property
    def foremost(self) -> Defect | None:
        """The defect that a user looks at first: a new one, or one of both runs in cases that passed before; without
        these, one of both runs with other news. Of the most severe, it has the most cases that have become worse. A waived
        defect of both runs is none, unless a waived case has become worse."""
        changed = (defect for defect, _ in self.changed_defects)
        news = [*self.new_defects, *(defect for defect in changed if not self._is_known(defect))]
        return min(news, key=self._order_of_news, default=None)

    def _order_of_news(self, defect: Defect) -> tuple[bool, int, int]:
        as_before = self.earlier.has(defect) and not self.passed_before(defect)
        return as_before, defect.severity.rank, -len(self.worse_cases(defect))

    def passed_before(self, defect: Defect) -> Sequence[Symptom]:
        """Returns the symptoms of a defect in cases that passed in the old run."""
        return [
            symptom
            for symptom in defect.symptoms
            if (before := self._before.get(symptom.case)) and before["effective"] in _KEPT
        ]

    def bisection(self, defect: Defect) -> str:
        """Returns the commands that find the commit of a defect, by a case or a point of a sweep that passed in the old run;
        empty without one, if all are races, or if the new run is not of a source tree, or of the commit of the old run."""
        passed = self.passed_before(defect) or [*filter(self._point_passed, defect.symptoms)]
        passed = [*filter(bisection.may_decide, passed)]
        if not passed or not bisection.is_of_tree(passed[0]):
            return ""
        facts = (run.environment.under_test for run in (self.new, self.old))
        return bisection.commands_at(passed[0], *facts)

    def _point_passed(self, symptom: Symptom) -> bool:
        before = self._before.get(symptom.case)
        if not before or symptom.deviation is None:
            return False
        points = EarlierPoints(self.old, self.new, before, symptom.record)
        return points.passed_at(symptom.deviation)

    def name_of(self, defect: Defect) -> str:
        """Returns the name for commands about what is new: the fingerprint or, if the old run has other cases of the
        defect, the first violation that passed there."""
        passed = self.passed_before(defect)
        if 0 < len(passed) < len(defect.symptoms):
            return passed[0].name
        return defect.fingerprint

    def worse_cases(self, defect: Defect) -> Sequence[str]:
        """Returns the cases of a defect that have become worse."""
        return [case for case in defect.cases if not self._kinds.get(case, set()).isdisjoint(WORSE)]

    @property
    def is_worse_though_waived(self) -> bool:
        """Whether a waived case is newly wrong."""
        return any(
            change.record["effective"] == Verdict.WAIVED
            for kind in FAILING
            for change in self.of(kind)
        )

    @property
    def untried_now(self) -> Sequence[str]:
        """The cases that only the old run tried, and that `untried` counts."""
        gone = {change.case for change in self.of(GONE)}
        return [case for case in self._before if case not in self._after and case not in gone]

    def why_not_waived(self, change: Change) -> str:
        """Returns why a violation counts that was waived in the old run: the problem of its waiver, or that there is none;
        empty for any other change."""
        return next(self._reasons_against(change), "")

    @cached_property
    def unwaived(self) -> Mapping[str, str]:
        """What is no longer waived, such as `defect de19cd258c26`, with the reason."""
        changes = (change for kind in FAILING for change in self.of(kind))
        reasons = (reason for change in changes for reason in self._reasons_against(change))
        return {
            reason.partition("the waiver of ")[2].partition(" (")[0]: reason for reason in reasons
        }

    def _reasons_against(self, change: Change) -> Iterator[str]:
        before = self._before.get(change.case)
        if before is None or change.kind not in FAILING or change.old != Verdict.WAIVED:
            return
        if not before["waiver"] or not _is_the_same(before, self._after[change.case]):
            return
        waiver, now = before["waiver"], self.new.summary.waivers
        targets = {waiver["for"]}
        for defect in self.defects_of(change):
            targets |= {f"defect {name}" for name in defect.fingerprints}
        of_target = re.compile(f": the waiver of (?:{'|'.join(map(re.escape, targets))}) \\(")
        reasons = [*filter(of_target.search, now.get("problems", ()))]
        out_of_range = tuple(f"{target} (" for target in targets)
        reasons += [
            f"the waiver of {name} does not cover this kernel"
            for name in now.get("out_of_range", ())
            if name.startswith(out_of_range)
        ]
        terms = f"the waiver of {waiver['for']} ({waiver['owner']}, {waiver['issue']})"
        yield from reasons or [f"the new run does not apply {terms}"]

    @cached_property
    def changed_defects(self) -> Sequence[tuple[Defect, str]]:
        """The defects of both runs that show in the new run what they did not show in the old run, each with the news
        in words, and with the new defects of the same cases."""
        pairs = ((defect, self.earlier.news(defect)) for defect in self.defects[IN_BOTH])
        return [(defect, news + self._beside(defect)) for defect, news in pairs if news]

    def _beside(self, defect: Defect) -> str:
        for other in self.new_defects:
            if shared := [case for case in other.cases if case in defect.cases]:
                return f" ({shared[0]} also shows {other.fingerprint}, perhaps of one cause)"
        return ""

    @cached_property
    def earlier(self) -> Earlier:
        return Earlier(self.old)

    def defects_of(self, change: Change) -> Sequence[Defect]:
        """Returns the defects that a changed case shows in the new run or, without one, those of the old run. If the change
        is of one rule, they violate it in this case."""
        new, old = (run.violations.defects_in(change.case) for run in (self.new, self.old))
        shown = new or old
        if not change.rule:
            return shown
        return [defect for defect in shown if change.rule in defect.rules_in(change.case)]

    @cached_property
    def rules(self) -> Sequence[str]:
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
            key=lambda rule: (order.index(self.kind_of_rule(rule)), after[rule] not in VIOLATIONS),
        )

    def _shows(self, rule: str) -> bool:
        """Whether the new run tried all cases that violated the rule, or the old run one that violates it now."""
        before, after = (violating.get(rule, ()) for violating in self._violating)
        if after:
            return any(record["case"] in self._before for record in after)
        return all(record["case"] in self._after for record in before)

    @cached_property
    def _violating(self) -> Sequence[Mapping[str, Sequence[ResultRecord]]]:
        """The violations of each rule in the old and in the new run."""
        return [run.violations.by_rule() for run in (self.old, self.new)]

    @cached_property
    def other_rules(self) -> Sequence[str]:
        """The rules whose verdicts differ, and that are not among `rules`: the summaries count them differently."""
        before, after = self.old.verdicts.labels, self.new.verdicts.labels
        return [
            rule
            for rule in after
            if rule in before and before[rule] != after[rule] and rule not in self.rules
        ]

    @cached_property
    def rules_by_fewer_cases(self) -> Mapping[str, str]:
        """Those of the other rules whose verdicts differ only because a run left out cases, each with this run: old or
        new."""
        runs = [("old", self.old, self.new), ("new", self.new, self.old)]
        left_out = dict(zip(("new", "old"), self.untried, strict=True))
        return {
            rule: name
            for name, run, other in runs
            if left_out[name]
            for rule in self.other_rules
            if _has_fewer_cases(run.verdicts.concluded[rule], other.verdicts.concluded[rule])
        }

    @property
    def to_waive(self) -> Sequence[Defect]:
        """The defects without whose waivers something is newly wrong: also known ones, of cases that are newly wrong."""
        violations = self.new.violations
        defects = [*self.new_defects]
        for change in (change for kind in FAILING for change in self.of(kind)):
            if change.rule and change.kind not in _NOT_JUDGED:
                shown: Sequence[Defect] = violations.defects_in(
                    change.case
                )  # the whole result counts
            else:
                shown = self.defects_of(change)
            defects += [defect for defect in shown if defect in self.counted]
        return list({defect.fingerprint: defect for defect in defects}.values())

    @property
    def new_defects(self) -> Sequence[Defect]:
        """The defects of NEW_KINDS, in this order."""
        return [defect for kind in NEW_KINDS for defect in self.defects[kind]]

    def _kind(self, defect: Defect) -> str:
        kinds: set[str] = set()
        for symptom in defect.symptoms:
            if before := self._before.get(symptom.case):
                kinds |= self._kinds_of(symptom, before)
        return worst_of(kinds) or NEW

    def _kinds_of(self, symptom: Symptom, before: ResultRecord) -> set[str]:
        kinds = self._kinds.get(symptom.case, {REGRESSED})
        if symptom.case in self._by_point or kinds.isdisjoint((REGRESSED, UNKNOWN)):
            return kinds
        points = EarlierPoints(self.old, self.new, before, symptom.record)
        return {_kind_where(points.judged(symptom.deviation), before, symptom.rules)}

    @cached_property
    def _by_point(self) -> set[str]:
        """The cases that were compared point by point."""
        return {change.case for change in self.changes if change.points and not change.rule}

    @cached_property
    def _kinds(self) -> Mapping[str, set[str]]:
        """The kinds of the changes of each case."""
        kinds: dict[str, set[str]] = {}
        for change in self.changes:
            if not change.rule:
                kinds.setdefault(change.case, set()).add(change.kind)
        return kinds

    def kind_of_rule(self, rule: str) -> str:
        """Returns the kind of the change of a rule's verdict."""
        before, after = (run.verdicts.of_rules[rule] for run in (self.old, self.new))
        kind = kind_of(before, after)
        changes = [change for change in self.changes if rule in change.record["rules"]]
        if kind in FAILING:
            kinds = {
                change.kind for change in changes if verdict_on(rule, change.record) in VIOLATIONS
            }
            if kinds.isdisjoint(WORSE) and self._is_waived_rule(rule):
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
                cases = (record["case"] for record in records if record["case"] in self._after)
                judged = (self._not_judged(case, rule) for case in cases)
                verdicts[rule] = set().union(*judged)
        return verdicts

    def _not_judged(self, case: str, rule: str = "") -> set[str]:
        return _not_judged(self.old, self.new, self._before[case], self._after[case], rule)

    def hidden(self, rule: str) -> str:
        """Says that a rule which is no longer violated is not shown to be kept; empty for any other rule."""
        is_kept = self.new.verdicts.of_rules[rule] in _KEPT
        return hidden_points(self.failing_points.get(rule, ())) if is_kept else ""

    def verdicts_of(self, rule: str) -> tuple[str, str]:
        """Returns both verdicts on a rule: the new one is WAIVED if the rule is violated only by waived symptoms, in results
        that count because of others, and has not become worse."""
        before, after = (run.verdicts.of_rules[rule] for run in (self.old, self.new))
        if kind_of(before, after) in FAILING and self.kind_of_rule(rule) == CHANGED:
            return before, Verdict.WAIVED
        return before, after

    def _is_waived_rule(self, rule: str) -> bool:
        violating = self._violating[1].get(rule, ())
        return bool(violating) and all(_is_waived(rule, record, self.new) for record in violating)

    def _is_decided(self, defect: Defect) -> bool:
        if defect.is_among(self._unconfirmed_now):
            return False
        if any(change.kind == NOT_HIT and change.case in defect.cases for change in self.changes):
            return False
        for case in defect.cases:
            after = self._after.get(case)
            if after is None or after["effective"] in _UNJUDGED:
                return False
            if case in self._before and self._not_judged(case):
                return False
        return True

    @cached_property
    def _unconfirmed_now(self) -> Sequence[Defect]:
        return [defect for defect in self.new.violations.defects if defect.unconfirmed]

    @cached_property
    def _before(self) -> Mapping[str, ResultRecord]:
        return {record["case"]: record for record in self.old.results}

    @cached_property
    def _after(self) -> Mapping[str, ResultRecord]:
        return {record["case"]: record for record in self.new.results}

    def of(self, kind: str) -> list[Change]:
        """Returns the changes of a kind: first those after which the kernel or the process dies, or hangs."""
        return [change for change in self.changes if change.kind == kind]

    @property
    def failing(self) -> str:
        """The worst kind of FAILING that a change has; empty if none has one."""
        return next(filter(self.of, FAILING), "")

    @property
    def has_news(self) -> bool:
        """Whether something is newly wrong, or a defect is new. A race that may not be new is neither."""
        return bool(self.failing) or any(self.defects[kind] for kind in NEW_KINDS if kind != HIT)

    @property
    def status(self) -> int:
        """The exit status: 1 if a change has a failing kind; 3 if the new run is incomplete, if a verdict of the old
        run is no longer decided, if a race was hit that may not be new, or if no case was tried by both runs; else 0."""
        if self.failing:
            return 1
        if self.of(UNDECIDED) or self.of(HIT) or self.new.footer is None or not self.compared:
            return 3
        return 0


def worst_of(kinds: set[str]) -> str:
    """Returns the first of the kinds of a violation that only the new run has; empty if it is a regression, or if there is
    none."""
    worst = next((kind for kind in WORSE if kind in kinds), "")
    return "" if worst == REGRESSED else worst


def _kind_where(judged: bool | None, before: ResultRecord, rules: Sequence[str]) -> str:
    """Returns the kind of a violation of these rules, at points that the old run judged, did not judge, or perhaps."""
    if judged is None:
        return UNKNOWN
    if judged:
        return REGRESSED
    verdicts = {before["rule_verdicts"].get(rule) for rule in rules}
    return NEWLY_JUDGED if verdicts == {Verdict.UNREACHABLE} else NEWLY_WRONG


def _has_fewer_cases(here: RuleConclusion, other: RuleConclusion) -> bool:
    """Whether one run misses only cases that it left out, beside what the other run, which passed too, also misses."""
    passed = here.verdict == Verdict.PARTIAL and other.verdict in _KEPT
    further = {part["why"] for name, part in here.missing.items() if name not in other.missing}
    return passed and further == {NOT_RUN}


def _as_bad_as(defect: Defect, others: Sequence[Defect]) -> Defect:
    """Returns the defect with at least the severity that the same defect has among `others`."""
    for other in others:
        if defect.is_same(other):
            defect = defect.at_least(other.severity)
    return defect


def _is_the_same(before: ResultRecord, after: ResultRecord) -> bool:
    """Whether the earlier violation has all causes of the later violation. A worse verdict is then no regression: by
    chance, the same cause can crash a process in one run and not in another."""
    causes_before = {cause_of(symptom) for symptom in symptoms_of(before)}
    causes_after = {cause_of(symptom) for symptom in symptoms_of(after)}
    return bool(causes_after) and causes_after <= causes_before


def compare(old: Digest, new: Digest) -> Comparison:
    """Returns the comparison. Of runs of different tables, the cases that both runs have are compared."""
    tables = [run.environment.tables_sha256 for run in (old, new)]
    before = {record["case"]: record for record in old.results}
    after = {record["case"]: record for record in new.results}
    both = before.keys() & after.keys()
    races = _races(old, new, before, after)
    by_chance = {case for case, race in races.items() if not race.is_decided}
    changes = [
        replace(change, kind=_KINDS_OF_RACES.get(change.kind, change.kind))
        if case in by_chance
        else change
        for case in before
        if case in both
        for change in _changes(old, new, before[case], after[case])
    ]
    only_old = [record for case, record in before.items() if case not in both]
    only_new = [record for case, record in after.items() if case not in both]
    untried = [len(only_old), len(only_new)]
    # If a run has left out no case, every case that the run lacks is also missing in the run's tables.
    if tables[0] != tables[1] and not new.header.get("left_out"):
        changes += [
            Change(GONE, record["case"], record["effective"], "", record) for record in only_old
        ]
        untried[0] = 0
    if tables[0] != tables[1] and not old.header.get("left_out"):
        changes += [
            Change(NEW, record["case"], "", record["effective"], record) for record in only_new
        ]
        untried[1] = 0
    order = list(KINDS)
    changes.sort(
        key=lambda change: (
            order.index(change.kind),
            change.new not in _DEATHS,
            change.points > 0,
        )
    )
    pointless = sum(
        _lacks_points(old, before[case]) or _lacks_points(new, after[case]) for case in both
    )
    compared = (untried[0], untried[1]), pointless, races
    return Comparison(old, new, len(both), tuple(changes), *compared)


# for the kind of a change, its kind if only chance decided it
_KINDS_OF_RACES = {REGRESSED: HIT, UNKNOWN: HIT, FIXED: NOT_HIT}


def _races(
    old: Digest,
    new: Digest,
    before: Mapping[str, ResultRecord],
    after: Mapping[str, ResultRecord],
) -> Mapping[str, Race]:
    """Returns the races that only one run has hit, by case. The hits of all races of a defect count together if the other
    run does not have the defect."""
    races = {
        case: race
        for case, race in races_of(before, after).items()
        if not race.is_new
        or _without_points(old, new, before[case], after[case]) in (REGRESSED, UNKNOWN)
    }
    by_defect: dict[str, list[str]] = {}
    for case, race in races.items():
        run, other = (new, old) if race.is_new else (old, new)
        for defect in run.violations.defects_in(case)[:1]:
            if not defect.is_among(other.violations.defects):
                by_defect.setdefault(defect.fingerprint, []).append(case)
    for cases in by_defect.values():
        together = prod(races[case].chance for case in cases)
        races |= {case: replace(races[case], together=together) for case in cases}
    return races


def _not_judged(
    old: Digest,
    new: Digest,
    before: ResultRecord,
    after: ResultRecord,
    rule: str = "",
) -> set[str]:
    """Returns the verdicts that the points which violated a rule, or `rule`, in the old run have in the new run, if these
    are none on the device: one defect can hide another in this way. Without files of points they are the verdicts that
    such points can have. The number of judged tries of one race differs by chance."""
    now = verdict_on(rule, after) if rule else after["effective"]
    if now in _UNJUDGED:
        return {now}
    if after["space"] and after["space"]["tries"]:
        return set()
    points = _points_of(old, new, before, after)
    if points and points[0].space == points[1].space:
        return _not_judged_points(*points, rule)
    points_now = EarlierPoints(new, old, after, before)
    if unjudged(after) > unjudged(before) or points_now.lacks_violation(rule):
        return {verdict for verdict in NOT_TESTABLE if verdict in (counts_of(after) or verdict)}
    return set()


def _not_judged_points(old: Points, new: Points, rule: str) -> set[str]:
    pairs = {pair for pair in zip(old.index, new.index, strict=True) if OUTSIDE not in pair}
    outcomes = ((old.outcomes[before], new.outcomes[after]) for before, after in pairs)
    return {
        after.verdict
        for before, after in outcomes
        if before.verdict in VIOLATIONS
        and after.verdict in _UNJUDGED
        and (not rule or rule in before.rules)
    }


def hidden_points(verdicts: Collection[str]) -> str:
    """Returns the words for what violated a rule and has no verdict on the device now; empty without such verdicts."""
    return f" (its failing points {' or '.join(sorted(verdicts))})" if verdicts else ""


def _lacks_points(run: Digest, record: ResultRecord) -> bool:
    return bool(record["points_file"]) and not points_path(run.directory, record).exists()


def kind_of(old: str, new: str) -> str:
    """Returns the kind of the change from one verdict to another; empty if they are equal."""
    if old == new:
        return ""
    if new in VIOLATIONS:
        if old == Verdict.UNSUPPORTED:
            return NEWLY_WRONG
        if old in _UNJUDGED:
            return NEWLY_JUDGED
        worse = old not in VIOLATIONS or VERDICTS.index(new) < VERDICTS.index(old)
        if worse:
            return REGRESSED
        return CHANGED
    if new in INCOMPLETE:
        if old in INCOMPLETE:
            return CHANGED
        return UNDECIDED
    if old == Verdict.WAIVED:
        return UNNEEDED
    if new in NOT_TESTABLE:
        if old in NOT_TESTABLE or old in INCOMPLETE:
            return CHANGED
        return UNSUPPORTED
    if new not in _KEPT:
        return CHANGED
    if old in VIOLATIONS:
        return FIXED
    if old == Verdict.UNSUPPORTED:
        return NEWLY_RIGHT
    if old in _UNJUDGED:
        return JUDGED_RIGHT
    return CHANGED


def _changes(
    old: Digest,
    new: Digest,
    before: ResultRecord,
    after: ResultRecord,
) -> Iterator[Change]:
    case = before["case"]
    of_points = list(_changes_of_points(old, new, before, after))
    kind = kind_of(before["effective"], after["effective"])
    if is_unlisted(after) and before["verdict"] in _KEPT:
        kind = REGRESSED
    if after["effective"] == Verdict.WAIVED and _is_waived_as(before, after):
        of_points = [
            replace(point, kind=CHANGED) if point.kind in FAILING else point for point in of_points
        ]
    if (
        kind == REGRESSED
        and after["effective"] not in _DEATHS
        and of_points
        and not any(change.kind == REGRESSED for change in of_points)
    ):
        kind = NEWLY_WRONG  # violated only at points that the old stack did not support
    if kind == REGRESSED and not of_points:
        kind = _without_points(old, new, before, after)
    if kind == NEWLY_WRONG and after.get("fault", {}).get("kind") == FaultKind.NOT_PROVIDED:
        kind = REGRESSED  # a profile requires what the device still lacks
    failing_points: set[str] = set()
    if kind in (FIXED, UNNEEDED) and after["effective"] in _KEPT:
        failing_points = _not_judged(old, new, before, after)
    if kind == FIXED and failing_points:
        kind = UNSUPPORTED
    if kind in FAILING and before["effective"] in VIOLATIONS and _is_the_same(before, after):
        kind = CHANGED
    if kind in FAILING and new.violations.repetitions.is_unconfirmed(after):
        kind = UNCONFIRMED
        of_points = [
            replace(point, kind=kind) if point.kind in FAILING else point for point in of_points
        ]
    if kind:
        old_points = counts_of(before) if kind in FAILING else ""
        pair = before["effective"], after["effective"]
        yield Change(
            kind,
            case,
            *pair,
            after,
            old_points=old_points,
            failing_points=tuple(sorted(failing_points)),
        )
    elif after["effective"] in VIOLATIONS:
        conditions = {deviation["when"] for deviation in before["deviations"]}
        for deviation in after["deviations"]:
            # a new violation that a random sequence has found
            if deviation["row"] and deviation["when"] not in conditions:
                record: ResultRecord = {**after, "reason": deviation["observed"]}
                yield Change(REGRESSED, case, before["effective"], after["effective"], record)
    yield from of_points
    if not kind and not of_points:
        yield from _changes_of_rules(old, new, before, after)


def is_unlisted(record: ResultRecord) -> bool:
    """Whether a result is waived, and its waiver does not name the case: that it is violated was not known."""
    return record["effective"] == Verdict.WAIVED and _listed(record) == UNLISTED


def _is_waived_as(before: ResultRecord, after: ResultRecord) -> bool:
    """Whether the waiver of a later result names the case, as one that varies or, after a PASS, in any way."""
    names = {UNSTEADY, LISTED} if before["effective"] in _KEPT else {UNSTEADY}
    return _listed(after) in names


def _listed(record: ResultRecord) -> str:
    return (record["waiver"] or {}).get("listed", "")


def _without_points(
    old: Digest,
    new: Digest,
    before: ResultRecord,
    after: ResultRecord,
    rule: str = "",
) -> str:
    """Returns the kind of a new violation, of one rule if `rule` is given, without a comparison by point."""
    judged = EarlierPoints(old, new, before, after).judged_any(rule)
    rules = [rule] if rule else violated_rules(after)
    return _kind_where(judged, before, rules)


def _changes_of_rules(
    old: Digest,
    new: Digest,
    before: ResultRecord,
    after: ResultRecord,
) -> Iterator[Change]:
    """Yields the changes of the rules that only one run violates and that a case of the same verdict hides: in a result
    that names the verdict on each rule, other rules can be violated in both runs."""
    verdicts = old.verdicts.of_rules, new.verdicts.of_rules
    for rule in after["rules"]:
        is_violated = [of_rules.get(rule) in VIOLATIONS for of_rules in verdicts]
        if rule not in before["rules"] or is_violated[0] == is_violated[1]:
            continue
        pair = verdict_on(rule, before), verdict_on(rule, after)
        kind = kind_of(*pair)
        if not kind or not set(pair) & {*VIOLATIONS}:
            continue
        if kind == REGRESSED:
            kind = _without_points(old, new, before, after, rule)
        record = after if pair[1] in VIOLATIONS else before
        if kind in _NOT_JUDGED:
            # the verdict of the rule's points, and not that of its other points
            lacking = Verdict.UNREACHABLE if kind == NEWLY_JUDGED else Verdict.UNSUPPORTED
            pair = pair[0] if pair[0] in _UNJUDGED else lacking, pair[1]
            if _is_waived(rule, after, new):
                kind, pair = CHANGED, (pair[0], Verdict.WAIVED)
        failing_points = _not_judged(old, new, before, after, rule) if kind == FIXED else set()
        if failing_points:
            kind = UNSUPPORTED
        old_points = counts_of(before) if kind in (REGRESSED, UNKNOWN) else ""
        if kind in FAILING and new.violations.repetitions.is_unconfirmed(after):
            kind = UNCONFIRMED
        deviations = [deviation for deviation in record["deviations"] if rule in deviation["rules"]]
        reason, repro = headline(rule, record)
        yield Change(
            kind,
            after["case"],
            *pair,
            {**after, "rules": [rule], "reason": reason, "repro": repro},
            sum(deviation["count"] for deviation in deviations),
            tuple(map(_smallest, deviations[:_MOST_EXAMPLES])),
            rule,
            old_points,
            tuple(sorted(failing_points)),
        )


def _is_waived(rule: str, record: ResultRecord, run: Digest) -> bool:
    """Whether waivers cover each symptom of a rule, in a result that has further ones."""
    symptoms = [symptom for symptom in symptoms_of(record) if rule in symptom.rules]
    return bool(symptoms) and all(map(run.violations.is_waived, symptoms))


def _smallest(deviation: Deviation) -> str:
    return ",".join(f"{axis}={label}" for axis, label in deviation["smallest"].items())


def _changes_of_points(
    old: Digest,
    new: Digest,
    before: ResultRecord,
    after: ResultRecord,
) -> Iterator[Change]:
    if points := _points_of(old, new, before, after):
        yield from _point_changes(*points, after)


def _points_of(
    old: Digest,
    new: Digest,
    before: ResultRecord,
    after: ResultRecord,
) -> tuple[Points, Points] | None:
    """Returns the points of a sweep in both runs; None if a run has no file of them."""
    if not before["space"] or not after["space"] or after["space"]["tries"]:
        return None
    old_points, new_points = read_points(old.directory, before), read_points(new.directory, after)
    return (old_points, new_points) if old_points and new_points else None


def _point_changes(old: Points, new: Points, record: ResultRecord) -> Iterator[Change]:
    """Yields the changes of points. All points with the same old and the same new verdict are one change."""
    if old.space == new.space:
        pairs = _by_number(old, new)
    else:
        pairs = _by_name(old, new)
    changes: dict[tuple[str, str, str], list[str]] = {}
    count: Counter[tuple[str, str, str]] = Counter()
    for verdicts, name, number in pairs:
        if not verdicts[0]:
            kind = NEW
        elif not verdicts[1]:
            kind = GONE
        else:
            kind = kind_of(*verdicts)
        if kind:
            key = (kind, *verdicts)
            count[key] += number
            changes.setdefault(key, []).append(name)
    for (kind, before, after), names in changes.items():
        examples = tuple(name for name in names if name)[:_MOST_EXAMPLES]
        yield Change(
            kind,
            record["case"],
            before,
            after,
            record,
            count[kind, before, after],
            examples,
        )


# the old and the new verdict, an example of a point, the number of points
Pair = tuple[tuple[str, str], str, int]


def _by_number(old: Points, new: Points) -> Iterator[Pair]:
    """Compares points of equal spaces by number. Pairs of outcomes are counted, which is fast for 100,000 points."""
    first: dict[tuple[int, int], int] = {}
    count: Counter[tuple[int, int]] = Counter()
    for point, pair in enumerate(zip(old.index, new.index, strict=True)):
        first.setdefault(pair, point)
        count[pair] += 1
    for (before, after), number in count.items():
        verdicts = _verdict(old, before), _verdict(new, after)
        if verdicts[0] != verdicts[1]:
            yield verdicts, new.space.text(first[before, after]), number


def _verdicts_by_name(points: Points) -> dict[str, str]:
    return {points.space.text(point): outcome.verdict for point, outcome in inside(points)}


def _by_name(old: Points, new: Points) -> Iterator[Pair]:
    before, after = _verdicts_by_name(old), _verdicts_by_name(new)
    for name in dict.fromkeys([*before, *after]):
        yield (before.get(name, ""), after.get(name, "")), name, 1


def _verdict(points: Points, outcome: int) -> str:
    if outcome == OUTSIDE:
        return ""
    return points.outcomes[outcome].verdict


def amount(changes: Sequence[Change]) -> str:
    """Returns the numbers of changed cases and points: `2 cases and 12 points`."""
    cases, points = (
        sum(not change.points for change in changes),
        sum(change.points for change in changes),
    )
    amounts = ((cases, "case"), (points, "point"))
    return " and ".join(format_count(number, amount) for number, amount in amounts if number)


def stacks(old: Digest, new: Digest) -> Sequence[tuple[str, str, str]]:
    """Returns the differences between the two stacks: name, old value, new value."""
    compared = (
        "device",
        "driver",
        "firmware",
        "kernel",
        "rdma-core",
        "stack",
        "tables",
        "tier",
        "seed",
    )
    pairs = [
        (name, old.summary.facts[name], new.summary.facts[name])
        for name in compared
        if old.summary.facts[name] != new.summary.facts[name]
    ]
    both = old.environment.under_test.keys() & new.environment.under_test.keys()
    differ = [
        name
        for name in old.environment.under_test
        if name in both and old.environment.under_test[name] != new.environment.under_test[name]
    ]
    return [
        *pairs,
        *(
            (called(name), old.environment.under_test[name], new.environment.under_test[name])
            for name in differ
        ),
    ]
