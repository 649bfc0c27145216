"""Compares the results of one case in two runs. Effective verdicts are compared, because a waived violation is known,
unless the case passed before and its waiver does not name it. Points have only raw verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from conformance.defects import Symptom, cause_of, symptoms_of
from conformance.defects.symptom import violated_rules
from conformance.model.fault import FaultKind
from conformance.model.record import LISTED, UNLISTED, UNSTEADY, Deviation, ResultRecord
from conformance.model.verdict import KEPT, NOT_TESTABLE, UNJUDGED, VIOLATIONS, Verdict
from conformance.results.conclusions import headline, verdict_on
from conformance.results.points import points_path
from conformance.sweeps.outcome import Points
from reports.compared import changed_points
from reports.compared.changes import (
    CHANGED,
    DEATHS,
    FAILING,
    FIXED,
    MOST_EXAMPLES,
    NEWLY_JUDGED,
    NEWLY_WRONG,
    NOT_JUDGED,
    REGRESSED,
    REQUIRED,
    UNCONFIRMED,
    UNKNOWN,
    UNNEEDED,
    UNSUPPORTED,
    Change,
    kind_of,
)
from reports.digest import Digest
from reports.earlier_points import EarlierPoints, counts_of, unjudged
from reports.evidence import read_points


@dataclass(frozen=True)
class CasePair:
    """The results of a case in the old and in the new run."""

    old: Digest
    new: Digest
    before: ResultRecord
    after: ResultRecord

    @property
    def effective(self) -> tuple[str, str]:
        return self.before["effective"], self.after["effective"]

    def changes(self) -> Iterator[Change]:
        """Yields the change of the case, and those of its points or rules."""
        for change in self._changes():
            if change.kind in FAILING and self._is_required(change.rule):
                yield replace(change, kind=REQUIRED)
            else:
                yield change

    def _is_required(self, rule: str) -> bool:
        """Whether only the new profile makes a violation of what the old run has seen as well."""
        if not has_other_profile(self.old, self.new):
            return False
        before = {*map(cause_of, symptoms_of(self.before))}
        new = [
            symptom
            for symptom in symptoms_of(self.after)
            if cause_of(symptom) not in before and (not rule or rule in symptom.rules)
        ]
        return bool(new) and all(map(is_of_profile, new))

    def _changes(self) -> Iterator[Change]:
        of_points = self._changes_of_points()
        kind = self._kind(of_points)
        failing_points: set[str] = set()
        if kind in (FIXED, UNNEEDED) and self.after["effective"] in KEPT:
            failing_points = self.not_judged()
        if kind == FIXED and failing_points:
            kind = UNSUPPORTED
        if kind in FAILING and self._is_unconfirmed:
            kind = UNCONFIRMED
            of_points = _excused(of_points, kind)
        if kind:
            yield Change(
                kind,
                self.before["case"],
                *self.effective,
                self.after,
                old_points=counts_of(self.before) if kind in FAILING else "",
                failing_points=tuple(sorted(failing_points)),
            )
        elif self.after["effective"] in VIOLATIONS:
            yield from self._changes_of_sequences()
        yield from of_points
        if not kind and not of_points:
            yield from self._changes_of_rules()

    def _kind(self, of_points: Sequence[Change]) -> str:
        kind = kind_of(*self.effective)
        is_elsewhere = all(change.kind != REGRESSED for change in of_points)
        if is_unlisted(self.after) and self.before["verdict"] in KEPT:
            kind = REGRESSED
        if kind == REGRESSED and not of_points:
            kind = self.kind_without_points()
        elif kind == REGRESSED and self.after["effective"] not in DEATHS and is_elsewhere:
            kind = NEWLY_WRONG  # violated only at points that the old stack did not support
        if (
            kind == NEWLY_WRONG
            and self.after.get("fault", {}).get("kind") == FaultKind.NOT_PROVIDED
        ):
            kind = REGRESSED  # a profile requires what the device still lacks
        if kind in FAILING and self.before["effective"] in VIOLATIONS and self.has_no_new_cause:
            kind = CHANGED
        return kind

    def kind_without_points(self, rule: str = "") -> str:
        """Returns the kind of a new violation, of one rule if `rule` is given, without a comparison by point."""
        judged = EarlierPoints(self.old, self.new, self.before, self.after).judged_any(rule)
        return kind_where(judged, self.before, [rule] if rule else violated_rules(self.after))

    @property
    def _is_unconfirmed(self) -> bool:
        return self.new.violations.repetitions.is_unconfirmed(self.after)

    @property
    def has_no_new_cause(self) -> bool:
        """Whether the earlier violation has all causes of the later violation. A worse verdict is then no regression: by
        chance, the same cause can crash a process in one run and not in another."""
        before, after = (map(cause_of, symptoms_of(record)) for record in (self.before, self.after))
        causes = {*after}
        return bool(causes) and causes <= {*before}

    @property
    def is_waived_as_before(self) -> bool:
        """Whether the waiver of the later result names the case, as one that varies or, after a PASS, in any way."""
        names = {UNSTEADY, LISTED} if self.before["effective"] in KEPT else {UNSTEADY}
        return self.after["effective"] == Verdict.WAIVED and _listed(self.after) in names

    def points(self) -> tuple[Points, Points] | None:
        """Returns the points of a sweep in both runs; None if a run has no file of them."""
        before, after = self.before, self.after
        if not before["space"] or not after["space"] or after["space"]["tries"]:
            return None
        points = read_points(self.old.directory, before), read_points(self.new.directory, after)
        return (points[0], points[1]) if points[0] and points[1] else None

    @property
    def lacks_points(self) -> bool:
        """Whether a run has no file of the points of this case."""
        return any(
            record["points_file"] and not points_path(run.directory, record).exists()
            for run, record in ((self.old, self.before), (self.new, self.after))
        )

    def _changes_of_points(self) -> Sequence[Change]:
        points = self.points()
        changes = list(changed_points.changes(*points, self.after)) if points else []
        return _excused(changes, CHANGED) if self.is_waived_as_before else changes

    def not_judged(self, rule: str = "") -> set[str]:
        """Returns the verdicts that the points which violated a rule, or `rule`, in the old run have in the new run, if
        these are none on the device: one defect can hide another in this way. Without files of points they are the
        verdicts that such points can have. The number of judged tries of one race differs by chance."""
        before, after = self.before, self.after
        now = verdict_on(rule, after) if rule else after["effective"]
        if now in UNJUDGED:
            return {now}
        if after["space"] and after["space"]["tries"]:
            return set()
        points = self.points()
        if points and points[0].space == points[1].space:
            return changed_points.not_judged(*points, rule)
        points_now = EarlierPoints(self.new, self.old, after, before)
        if unjudged(after) > unjudged(before) or points_now.lacks_violation(rule):
            return {verdict for verdict in NOT_TESTABLE if verdict in (counts_of(after) or verdict)}
        return set()

    @property
    def is_judged(self) -> bool | None:
        """What the new run has judged of the violations of the old run, as in absence.py: all, nothing, or perhaps none."""
        if self.after["effective"] in UNJUDGED:
            return False
        return None if self.not_judged() else True

    def _changes_of_sequences(self) -> Iterator[Change]:
        """Yields the new violations that a random sequence has found."""
        conditions = {deviation["when"] for deviation in self.before["deviations"]}
        for deviation in self.after["deviations"]:
            if deviation["row"] and deviation["when"] not in conditions:
                record: ResultRecord = {**self.after, "reason": deviation["observed"]}
                yield Change(REGRESSED, self.before["case"], *self.effective, record)

    def _changes_of_rules(self) -> Iterator[Change]:
        """Yields the changes of the rules that only one run violates and that a case of the same verdict hides: in a
        result that names the verdict on each rule, other rules can be violated in both runs."""
        verdicts = self.old.verdicts.of_rules, self.new.verdicts.of_rules
        for rule in self.after["rules"]:
            is_violated = [of_rules.get(rule) in VIOLATIONS for of_rules in verdicts]
            if rule in self.before["rules"] and is_violated[0] != is_violated[1]:
                yield from self._changes_of_rule(rule)

    def _changes_of_rule(self, rule: str) -> Iterator[Change]:
        pair = verdict_on(rule, self.before), verdict_on(rule, self.after)
        kind = kind_of(*pair)
        if not kind or not set(pair) & {*VIOLATIONS}:
            return
        if kind == REGRESSED:
            kind = self.kind_without_points(rule)
        record = self.after if pair[1] in VIOLATIONS else self.before
        if kind in NOT_JUDGED:
            # the verdict of the rule's points, and not that of its other points
            lacking = Verdict.UNREACHABLE if kind == NEWLY_JUDGED else Verdict.UNSUPPORTED
            pair = pair[0] if pair[0] in UNJUDGED else lacking, pair[1]
            if is_waived(rule, self.after, self.new):
                kind, pair = CHANGED, (pair[0], Verdict.WAIVED)
        failing_points = self.not_judged(rule) if kind == FIXED else set()
        if failing_points:
            kind = UNSUPPORTED
        old_points = counts_of(self.before) if kind in (REGRESSED, UNKNOWN) else ""
        if kind in FAILING and self._is_unconfirmed:
            kind = UNCONFIRMED
        deviations = [deviation for deviation in record["deviations"] if rule in deviation["rules"]]
        reason, repro = headline(rule, record)
        yield Change(
            kind,
            self.after["case"],
            *pair,
            {**self.after, "rules": [rule], "reason": reason, "repro": repro},
            sum(deviation["count"] for deviation in deviations),
            tuple(map(_smallest, deviations[:MOST_EXAMPLES])),
            rule,
            old_points,
            tuple(sorted(failing_points)),
        )


def has_other_profile(old: Digest, new: Digest) -> bool:
    return old.environment.profile_sha256 != new.environment.profile_sha256


def is_of_profile(symptom: Symptom) -> bool:
    """Whether the device lacks what a profile requires, and no document: no call of a case has shown it."""
    fault = symptom.fault
    return fault.kind is FaultKind.NOT_PROVIDED and not fault.verb


def kind_where(judged: bool | None, before: ResultRecord, rules: Sequence[str]) -> str:
    """Returns the kind of a violation of these rules, at points that the old run judged, did not judge, or perhaps."""
    if judged is None:
        return UNKNOWN
    if judged:
        return REGRESSED
    verdicts = {before["rule_verdicts"].get(rule) for rule in rules}
    return NEWLY_JUDGED if verdicts == {Verdict.UNREACHABLE} else NEWLY_WRONG


def is_unlisted(record: ResultRecord) -> bool:
    """Whether a result is waived, and its waiver does not name the case: that it is violated was not known."""
    return record["effective"] == Verdict.WAIVED and _listed(record) == UNLISTED


def is_waived(rule: str, record: ResultRecord, run: Digest) -> bool:
    """Whether waivers cover each symptom of a rule, in a result that has further ones."""
    symptoms = [symptom for symptom in symptoms_of(record) if rule in symptom.rules]
    return bool(symptoms) and all(map(run.violations.is_waived, symptoms))


def _listed(record: ResultRecord) -> str:
    return (record["waiver"] or {}).get("listed", "")


def _excused(changes: Sequence[Change], kind: str) -> Sequence[Change]:
    """Returns the changes, those with a failing kind with this kind instead."""
    return [replace(change, kind=kind) if change.kind in FAILING else change for change in changes]


def _smallest(deviation: Deviation) -> str:
    return ",".join(f"{axis}={label}" for axis, label in deviation["smallest"].items())
