"""Divides the defects of two runs by what the comparison of their cases says about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from conformance.defects import Defect, Symptom
from conformance.defects.owner import LAYERS
from conformance.model.record import ResultRecord
from conformance.model.verdict import KEPT
from reports import bisection
from reports.absence import NOT_DECIDED, NOT_SEEN, absence, is_judged
from reports.compared.case_pair import CasePair, has_other_profile, is_of_profile, kind_where
from reports.compared.changed_defects import Earlier
from reports.compared.changes import (
    GONE,
    IN_BOTH,
    NEW,
    NEW_KINDS,
    NOT_HIT,
    NOT_JUDGED,
    NOT_TRIED,
    REGRESSED,
    REQUIRED,
    UNKNOWN,
    WORSE,
    Change,
    worst_of,
)
from reports.digest import Digest
from reports.earlier_points import EarlierPoints


@dataclass(frozen=True)
class ComparedDefects:
    """The defects of both runs. `changes` are those of their cases, points and rules."""

    old: Digest
    new: Digest
    changes: Sequence[Change]

    @cached_property
    def by_kind(self) -> Mapping[str, Sequence[Defect]]:
        """The counted defects of the new run and the open defects of the old run, by kind. To decide whether a run has
        a defect, waived defects and defects of the stack count too, and in the old run also unconfirmed defects.

        - NEW: only in the new run; the old run has a case of the defect
        - UNKNOWN, NEWLY_WRONG, NEWLY_JUDGED, REQUIRED, HIT: like NEW, but its cases changed only in this way
        - NOT_TRIED: only in the new run; the old run has no case of the defect
        - IN_BOTH: in both runs, with the data of the new run
        - NOT_DECIDED: only in the old run; the new run did not decide every case, or did not confirm the defect
        - GONE: only in the old run; the new run decided every case of the defect"""
        new = sorted(self.counted, key=lambda defect: defect.severity.rank)
        old = self.old.violations.open_defects
        now = [defect for defect in self.new.violations.defects if not defect.unconfirmed]
        unknown = [defect for defect in new if not self.earlier.has(defect)]
        unseen = [defect for defect in old if not defect.is_among(now)]
        decided = [defect for defect in unseen if self.absence_now(defect) == NOT_SEEN]
        by_kind: dict[str, list[Defect]] = {kind: [] for kind in (*NEW_KINDS, NOT_TRIED)}
        for defect in unknown:
            by_kind[self.kind_of_new(defect)].append(defect)
        untried = by_kind.pop(NOT_TRIED)
        return {
            **by_kind,
            GONE: decided,
            IN_BOTH: sorted(
                (_as_bad_as(defect, old) for defect in new if self.earlier.has(defect)),
                key=lambda defect: defect.severity.rank,
            ),
            NOT_DECIDED: [defect for defect in unseen if defect not in decided],
            NOT_TRIED: untried,
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
        newly = not self.earlier.has(defect) and self._kind(defect) in NOT_JUDGED
        return newly and self.is_waived(defect)

    def _is_known(self, defect: Defect) -> bool:
        return self.is_waived(defect) and not self._is_worse_though_waived(defect)

    def is_waived(self, defect: Defect) -> bool:
        """Whether waivers cover each symptom, even in a result that counts because of others."""
        return all(map(self.new.violations.is_waived, defect.symptoms))

    def _is_worse_though_waived(self, defect: Defect) -> bool:
        if not defect.waived or defect.unconfirmed:
            return False
        return bool(self.worse_cases(defect))

    @cached_property
    def foremost(self) -> Defect | None:
        """The defect that a user looks at first: a new one, or one of both runs in cases that passed before; without
        these, one of both runs with other news. Of the most severe, it is a regression if one
        is, and it has the most cases that have become worse. What only a profile requires comes last. A waived
        defect of both runs is none, unless a waived case has become worse."""
        changed = (defect for defect, _ in self.changed)
        news = [*self.newly_found, *(defect for defect in changed if not self._is_known(defect))]
        return min(news, key=self._order_of_news, default=None)

    def _order_of_news(self, defect: Defect) -> tuple[bool, bool, int, bool, int]:
        as_before = self.earlier.has(defect) and not self.passed_before(defect)
        is_new_feature = defect not in self.by_kind[NEW] and not self.passed_before(defect)
        worse = -len(self.worse_cases(defect))
        is_required = defect in self.by_kind[REQUIRED]
        return is_required, as_before, defect.severity.rank, is_new_feature, worse

    def passed_before(self, defect: Defect) -> Sequence[Symptom]:
        """Returns the symptoms of a defect in cases that passed in the old run."""
        return [
            symptom
            for symptom in defect.symptoms
            if (before := self.old.by_case.get(symptom.case)) and before["effective"] in KEPT
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
        before = self.old.by_case.get(symptom.case)
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

    @cached_property
    def changed(self) -> Sequence[tuple[Defect, str]]:
        """The defects of both runs that show in the new run what they did not show in the old run, each with the news
        in words, and with the new defects of the same cases."""
        pairs = ((defect, self.earlier.news(defect)) for defect in self.by_kind[IN_BOTH])
        return [
            (defect, news + self._beside(defect))
            for defect, news in pairs
            if news and defect not in self.uncovered
        ]

    @cached_property
    def uncovered(self) -> Sequence[Defect]:
        """The defects of both runs whose news are points that the old run found wrong by defects which the new run does not
        show in these cases: they are no longer hidden."""
        hidden = Counter[str]()
        for case in {case for defect in self.by_kind[IN_BOTH] for case in defect.cases}:
            if self._has_no_newly_wrong_point(case):
                now = self.new.violations.defects_in(case)
                for defect in self.old.violations.defects_in(case):
                    if not defect.is_among(now):
                        own = (of.points for of in defect.symptoms if of.case == case)
                        hidden[case] += sum(own)
        return [
            defect
            for defect in self.by_kind[IN_BOTH]
            if self.earlier.news(defect) and not self.earlier.news(defect, hidden)
        ]

    def _has_no_newly_wrong_point(self, case: str) -> bool:
        before, after = self.old.by_case.get(case), self.new.by_case.get(case)
        if before is None or after is None:
            return False
        if any(change.case == case and change.kind in WORSE for change in self.changes):
            return False
        newly_wrong = EarlierPoints(self.old, self.new, before, after).newly_wrong
        return newly_wrong == 0 or (newly_wrong is None and case in self._by_point)

    def _beside(self, defect: Defect) -> str:
        for other in self.newly_found:
            if shared := [case for case in other.cases if case in defect.cases]:
                return f" ({shared[0]} also shows {other.fingerprint}, perhaps of one cause)"
        return ""

    @cached_property
    def earlier(self) -> Earlier:
        return Earlier(self.old)

    def of_change(self, change: Change) -> Sequence[Defect]:
        """Returns the defects that a changed case shows in the new run or, without one, those of the old run. If the change
        is of one rule, they violate it in this case."""
        new, old = (run.violations.defects_in(change.case) for run in (self.new, self.old))
        shown = new or old
        if not change.rule:
            return shown
        return [defect for defect in shown if change.rule in defect.rules_in(change.case)]

    def part_of(self, defect: Defect, change: Change) -> Change:
        """Returns the change of points with only those of one of the defects that the case shows: of the rule, or all that
        a new defect has in the case. Of a defect of both runs, the points that are new are not known one by one."""
        if not change.points or (not change.rule and self.earlier.has(defect)):
            return change
        own = [
            symptom
            for symptom in defect.symptoms
            if symptom.case == change.case
            and symptom.deviation
            and (not change.rule or change.rule in symptom.rules)
        ]
        if not own:
            return change
        points = sum(symptom.points for symptom in own)
        names = tuple(symptom.point for symptom in own)
        return replace(change, points=points, examples=names)

    @property
    def regressed_by_layer(self) -> Mapping[str, int]:
        """How many defects have regressed, by the layer that answers: new ones, and those of regressed cases."""
        regressed = {id(defect) for defect in self.by_kind[NEW]}
        for change in self.changes:
            if change.kind == REGRESSED:
                regressed.update(map(id, self.of_change(change)))
        counts = Counter(
            defect.answering.layer
            for defect in self.new.violations.defects
            if id(defect) in regressed
        )
        return {layer: counts[layer] for layer in LAYERS}

    @property
    def newly_waived(self) -> Sequence[Defect]:
        """The defects that only the new run has, and that waivers cover, also in results that count because of others."""
        return [
            defect
            for defect in self.waived
            if defect not in self.counted and not self.earlier.has(defect)
        ]

    @property
    def waived(self) -> Sequence[Defect]:
        """The defects of the new run that waivers cover."""
        return [*filter(self.is_waived, self.new.violations.defects)]

    @property
    def newly_found(self) -> Sequence[Defect]:
        """The defects of NEW_KINDS, in this order."""
        return [defect for kind in NEW_KINDS for defect in self.by_kind[kind]]

    def _kind(self, defect: Defect) -> str:
        kinds: set[str] = set()
        for symptom in defect.symptoms:
            if before := self.old.by_case.get(symptom.case):
                kinds |= self._kinds_of(symptom, before)
        return worst_of(kinds) or NEW

    def _kinds_of(self, symptom: Symptom, before: ResultRecord) -> set[str]:
        if has_other_profile(self.old, self.new) and is_of_profile(symptom):
            return {REQUIRED}
        kinds = self._kinds.get(symptom.case, {REGRESSED})
        if symptom.case in self._by_point or kinds.isdisjoint((REGRESSED, UNKNOWN)):
            return kinds
        points = EarlierPoints(self.old, self.new, before, symptom.record)
        return {kind_where(points.judged(symptom.deviation), before, symptom.rules)}

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

    def kind_of_new(self, defect: Defect) -> str:
        """Returns the kind of a defect that only the new run has: one of NEW_KINDS, or NOT_TRIED."""
        if self.old.by_case.keys().isdisjoint(defect.cases):
            return NOT_TRIED
        return self._kind(defect)

    def absence_now(self, defect: Defect) -> str:
        """Returns the word of absence.py for the new run, which does not show a defect of the old run: it is gone only if
        all of its cases were judged."""
        judged = [self._judged_now(case) for case in defect.cases]
        is_race = any(
            change.kind == NOT_HIT and change.case in defect.cases for change in self.changes
        )
        if is_race or defect.is_among(self._unconfirmed_now):
            judged.append(None)
        return absence(judged)

    def _judged_now(self, case: str) -> bool | None:
        before, after = self.old.by_case.get(case), self.new.by_case.get(case)
        if before is None or after is None:
            return is_judged(after)
        return CasePair(self.old, self.new, before, after).is_judged

    @cached_property
    def _unconfirmed_now(self) -> Sequence[Defect]:
        return [defect for defect in self.new.violations.defects if defect.unconfirmed]


def _as_bad_as(defect: Defect, others: Sequence[Defect]) -> Defect:
    """Returns the defect with at least the severity that the same defect has among `others`."""
    for other in others:
        if defect.is_same(other):
            defect = defect.at_least(other.severity)
    return defect
