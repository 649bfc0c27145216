"""Groups the symptoms of a run into defects, the most severe first. owner.py determines whose defect it is.

One errno can have many reasons. Refused registrations are therefore first separated into one cause for each rule.
Several causes are then merged into one defect if a condition, such as a flag, is true for all their calls and for no
successful call of the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import TypeVar

from conformance.defects.cause import CHANGED, OF_CHANGE, REGISTRATION, Cause, cause_of
from conformance.defects.conditions import Condition, Granted, conditions, granted
from conformance.defects.owner import UNKNOWN, Answering, answering_of
from conformance.defects.severity import Severity, severity_of
from conformance.defects.symptom import Symptom, symptoms_of
from conformance.defects.words import Shorts, title_of, title_of_family
from conformance.errors import format_count
from conformance.model.fault import Effect
from conformance.model.record import ResultRecord
from conformance.model.verdict import EXCUSED, VERDICTS, Verdict
from conformance.model.vocabulary import WIRE

_NONE: Shorts = {}
_STATES = 2  # the last parts of a family: whether its defects are waived, and of the stack
_DEATHS = (Effect.KERNEL_DIED, Effect.KERNEL_ALARM, Effect.PROCESS_DIED, Effect.HUNG)
_Item = TypeVar("_Item")
_ByCause = Mapping[Cause, Sequence[Symptom]]


@dataclass(frozen=True)
class Defect:
    """The symptoms of one or several causes. Those that count come first, then the most severe; of equally severe
    symptoms, those that were confirmed, in the order of the run.

    `title` says what is wrong, in one line. `lost` are symptoms that did not occur again: nothing about the defect is
    derived from them, unless `symptoms` are the same because none occurred again. `confirmed` are those of `symptoms`
    that occurred again. `known` is the worst severity that was
    observed in a repetition or in a different run. `another` says that the defect is not the one which is known by this
    fingerprint, because the tested stack has its fix.
    """

    causes: tuple[Cause, ...]
    symptoms: tuple[Symptom, ...]
    title: str
    lost: tuple[Symptom, ...] = ()
    confirmed: tuple[Symptom, ...] = ()
    known: Severity | None = None
    another: str = ""

    @property
    def unconfirmed(self) -> bool:
        """Whether no symptom occurred again."""
        return self.symptoms == self.lost

    @property
    def all_symptoms(self) -> tuple[Symptom, ...]:
        """The symptoms with those that did not occur again, which come last."""
        return self.symptoms if self.unconfirmed else (*self.symptoms, *self.lost)

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the first cause, which identifies the defect in all runs."""
        return self.causes[0].fingerprint

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """The fingerprints of all causes of the defect, also those of earlier versions. A run of fewer cases may show
        only some of these causes."""
        return tuple(name for cause in self.causes for name in cause.fingerprints)

    def is_same(self, other: Defect) -> bool:
        """Whether a defect of another run is this one: both have a common cause; or a fingerprint that one has, and that
        the other had in an earlier version, with a common rule or layer. Else today's cause with this fingerprint is not
        the one that had it earlier."""
        here = {cause.fingerprint for cause in self.causes}
        there = {cause.fingerprint for cause in other.causes}
        shared = {*self.fingerprints}.intersection(other.fingerprints)
        if here & there or shared - here - there:
            return True
        agree = self.answering.layer == other.answering.layer or {*self.rules} & {*other.rules}
        return bool(shared and agree)

    def is_among(self, others: Iterable[Defect]) -> bool:
        """Whether one of the defects of another run is this one."""
        return any(map(self.is_same, others))

    @staticmethod
    def called(digits: str, defects: Iterable[Defect]) -> list[Defect]:
        """Returns the defects with a fingerprint that begins with these digits, at least 4. A whole fingerprint names
        the defect whose first one it is, even if another defect has it, too."""
        called = []
        for defect in defects:
            if defect.fingerprint == digits:
                return [defect]
            if len(digits) > 3 and any(name.startswith(digits) for name in defect.fingerprints):
                called.append(defect)
        return called

    @cached_property
    def severity(self) -> Severity:
        """The worst severity of the symptoms and of `known`."""
        shown = severity_of(self.symptoms[0])
        if self.known is None or shown.rank < self.known.rank:
            return shown
        return self.known

    def at_least(self, severity: Severity) -> Defect:
        """Returns the same defect with `severity` as `known`, if `severity` is worse than the severity in this run."""
        if severity.rank >= self.severity.rank:
            return self
        return replace(self, known=severity)

    @property
    def family(self) -> tuple[object, ...]:
        """What a defect has in common with those that one line of the stack may explain; empty for most defects. A death
        in the cases of ibv_rereg_mr has its place as its cause, and belongs to the family of this call."""
        family = self.causes[0].family or (
            OF_CHANGE if all(map(_is_death_of_change, self.symptoms)) else ()
        )
        return family and (*family, self.waived, self.of_stack)

    @property
    def first(self) -> Symptom:
        """The best example of the defect: if possible one that counts, then of the worst severity, confirmed,
        of packets if a peer causes it, of a row, and with the fewest special objects."""
        return self.symptoms[0]

    def examples(self, most: int) -> list[Symptom]:
        """Returns the first symptom and one of each further case, at most so many; one was confirmed, if any was."""
        of_case = {symptom.case: symptom for symptom in reversed(self.symptoms)}
        of_case |= {symptom.case: symptom for symptom in reversed(self.confirmed)}
        examples = [of_case[case] for case in self.cases if case != self.first.case]
        examples = [self.first, *examples][:most]
        if self.confirmed and not {*map(id, examples)} & {*map(id, self.confirmed)}:
            examples = [*examples[: most - 1], self.confirmed[0]]
        return examples

    @cached_property
    def rules(self) -> tuple[str, ...]:
        return tuple(sorted({rule for symptom in self.symptoms for rule in symptom.rules}))

    @property
    def ordered_rules(self) -> tuple[str, ...]:
        """The rules, those that the first symptom violates first."""
        return tuple(dict.fromkeys((*self.first.rules, *self.rules)))

    def rules_in(self, case: str) -> set[str]:
        """Returns the rules that the defect violates in one of its cases."""
        symptoms = (symptom for symptom in self.all_symptoms if symptom.case == case)
        return {rule for symptom in symptoms for rule in symptom.rules}

    @cached_property
    def cases(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(symptom.case for symptom in self.symptoms))

    @cached_property
    def counted_cases(self) -> tuple[str, ...]:
        """The cases that count against the device; all cases if none counts."""
        counted = (
            symptom.case for symptom in self.symptoms if symptom.record["effective"] not in EXCUSED
        )
        return tuple(dict.fromkeys(counted)) or self.cases

    @cached_property
    def share(self) -> str:
        """How many of the cases count, why the others do not, and the worst severity of those if it is worse: `1 counts, 39
        waived, the worst remote: memory`; empty if all or none count."""
        if len(self.counted_cases) == len(self.cases):
            return ""
        number = Counter(
            {symptom.case: symptom.record["effective"] for symptom in self.symptoms}.values()
        )
        reasons = {"waived": number[Verdict.WAIVED], "of the stack": number[Verdict.STACK]}
        counted = len(self.counted_cases)
        parts = [f"{counted:,} count{'s' * (counted == 1)}"]
        parts += [f"{count:,} {reason}" for reason, count in reasons.items() if count]
        worst = min(map(severity_of, self.symptoms), key=lambda severity: severity.rank)
        if worst.rank < self.severity.rank:
            parts.append(f"the worst {worst.label}")
        return ", ".join(parts)

    @property
    def points(self) -> int:
        """The number of calls that show the defect: points of sweeps, and one call for each other case."""
        return sum(symptom.points for symptom in self.symptoms)

    @cached_property
    def answering(self) -> Answering:
        if self.another:
            return Answering(UNKNOWN, self.another)
        answers = map(answering_of, self.symptoms)
        return next(
            (answer for answer in answers if answer.layer != UNKNOWN), answering_of(self.first)
        )

    @cached_property
    def waived(self) -> bool:
        return all(symptom.record["effective"] == Verdict.WAIVED for symptom in self.symptoms)

    @cached_property
    def of_stack(self) -> bool:
        """Whether the run is about a device, and every result that shows the defect is attributed to the stack."""
        return all(symptom.record["effective"] == Verdict.STACK for symptom in self.symptoms)


def defects_of(
    results: Iterable[ResultRecord],
    shorts: Shorts = _NONE,
    is_lost: Callable[[Symptom], bool] = lambda symptom: False,
    is_confirmed: Callable[[Symptom], bool] = lambda symptom: False,
) -> list[Defect]:
    """Returns the defects in results that have every key of record_shape.RESULT, the most severe first. `shorts` are
    the short names of the rules, for titles. `is_lost` tells whether a symptom did not occur again, and `is_confirmed` whether it did."""
    records = list(results)
    by_cause: dict[Cause, list[Symptom]] = {}
    for record in records:
        for symptom in symptoms_of(record):
            by_cause.setdefault(cause_of(symptom), []).append(symptom)
    succeeded = granted(records)
    place = {id(record): number for number, record in enumerate(records)}
    defects = []
    for causes in _merged(by_cause, succeeded):
        symptoms = [symptom for cause in causes for symptom in by_cause[cause]]
        symptoms.sort(
            key=lambda symptom: (
                symptom.record["effective"] in EXCUSED,
                severity_of(symptom).rank,
                not is_confirmed(symptom),
                bool(severity_of(symptom).advice) != (symptom.fault.verb == WIRE),
                bool(symptom.smallest),
                symptom.special_objects,
                place[id(symptom.record)],
            ),
        )
        lost = tuple(filter(is_lost, symptoms))
        symptoms = [symptom for symptom in symptoms if symptom not in lost] or symptoms
        title = title_of(causes, symptoms, succeeded, shorts)
        again = tuple(filter(is_confirmed, symptoms))
        defects.append(Defect(tuple(causes), tuple(symptoms), title, lost, again))
    return sorted(defects, key=_order)


def families_of(
    items: Iterable[_Item],
    defect_of: Callable[[_Item], Defect],
    elsewhere: Iterable[Defect] = (),
) -> Iterator[tuple[str, list[_Item]]]:
    """Yields items, such as defects, in their order; those of one family together, with a heading. A family consists of
    neighbours with the same severity, so that an order by severity remains; the heading counts the others, and those
    `elsewhere` in the same report."""
    items = list(items)
    apart = Counter(defect.family[:-_STATES] for defect in elsewhere)
    sizes = Counter(defect_of(item).family for item in items)
    for _, alike in groupby(items, key=lambda item: defect_of(item).severity):
        families: dict[object, list[_Item]] = {}
        for item in alike:
            defect = defect_of(item)
            families.setdefault(defect.family or defect.fingerprint, []).append(item)
        for members in families.values():
            family = defect_of(members[0]).family
            others = sizes[family] - len(members) if family[:2] == OF_CHANGE else 0
            further = apart[family[:-_STATES]] if family else 0
            heading = ""
            if len(members) + others + further > 1:
                heading = _heading(family, [defect_of(item) for item in members])
                parts = {"of another severity": others, "under another heading": further}
                counts = [f"{count} {where}" for where, count in parts.items() if count]
                heading += f" with {' and '.join(counts)}" if counts else ""
            yield heading, members


def _heading(family: Sequence[object], members: Sequence[Defect]) -> str:
    """Returns the heading above these defects of a family. A single one says itself what it is."""
    title = title_of_family(family, [defect.causes[0] for defect in members])
    if len(members) > 1:
        return f"{title}: {format_count(len(members), 'symptom')}, perhaps of one cause"
    if family[:2] == OF_CHANGE:
        title = CHANGED
    return f"{title}: perhaps of one cause"


def _is_death_of_change(symptom: Symptom) -> bool:
    fault = symptom.fault
    return fault.effect in _DEATHS and bool(fault.changed or fault.verb == CHANGED)


def _merged(by_cause: _ByCause, succeeded: Granted) -> list[list[Cause]]:
    """Returns a list of causes for each defect, in the order of the causes' keys."""
    groups: dict[tuple[str, ...], list[Cause]] = {}
    for cause in sorted(by_cause, key=lambda cause: cause.key):
        mergeable = cause.key[:2] == (Effect.REFUSED, REGISTRATION)
        groups.setdefault(cause.key[:3] if mergeable else cause.key, []).append(cause)
    return [
        groups
        for causes in groups.values()
        for groups in _by_condition(causes, by_cause, succeeded)
    ]


def _by_condition(
    causes: Sequence[Cause],
    by_cause: _ByCause,
    succeeded: Granted,
) -> list[list[Cause]]:
    """Groups causes that share a condition. The condition that most causes share is used first."""
    rest = {cause: set(conditions(by_cause[cause], succeeded)) for cause in causes}
    groups = []
    while rest:
        best = min(
            (symptom for shared in rest.values() for symptom in shared),
            key=lambda symptom: _shared_by(symptom, rest),
            default=None,
        )
        if best is not None:
            together = [cause for cause, shared in rest.items() if best in shared]
        else:
            together = list(rest)[:1]
        groups.append(together)
        for cause in together:
            del rest[cause]
    return groups


def _shared_by(
    condition: Condition,
    causes: Mapping[Cause, set[Condition]],
) -> tuple[int, int, Condition]:
    return -sum(condition in shared for shared in causes.values()), len(condition), condition


def _order(defect: Defect) -> tuple[bool, bool, int, int, int, tuple[str, ...]]:
    verdict = VERDICTS.index(Verdict(defect.first.verdict))
    return (
        defect.of_stack,
        defect.waived,
        defect.severity.rank,
        verdict,
        -len(defect.cases),
        defect.rules,
    )
