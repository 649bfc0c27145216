"""The violations of a run: its defects, their severity, and the repetitions of violations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from conformance.defects import (
    Defect,
    Severity,
    Symptom,
    answering_of,
    cause_of,
    count_by_severity,
    defects_of,
    severity_of,
    shorts_in,
)
from conformance.defects.owner import Answering
from conformance.errors import format_count
from conformance.model.record import ResultRecord
from conformance.model.verdict import VERDICTS, VIOLATIONS, Verdict
from conformance.older_python import zip
from conformance.results.conclusions import verdict_on
from reports.repetitions import Repetitions
from reports.upstream import another_than_fixed

if TYPE_CHECKING:
    from reports.digest import Digest


def format_apart(of_stack: int, waived: int, unconfirmed: int) -> str:
    """Returns the numbers of the defects that are not open, by the reason; empty if all are open."""
    reasons = {"of the stack": of_stack, "waived": waived, "not confirmed": unconfirmed}
    return ", ".join(f"{number:,} {reason}" for reason, number in reasons.items() if number)


def reasons_apart(
    defects: Sequence[Defect],
    is_waived: Callable[[Defect], bool] = lambda defect: defect.waived,
) -> str:
    """Returns the numbers of those of the defects that are not open, by the reason; empty if all are open."""
    ours = [defect for defect in defects if not defect.of_stack]
    waived = sum(map(is_waived, ours))
    unconfirmed = sum(defect.unconfirmed and not is_waived(defect) for defect in ours)
    return format_apart(len(defects) - len(ours), waived, unconfirmed)


def _cases(defects: Iterable[Defect]) -> int:
    return len({case for defect in defects for case in defect.counted_cases})


class Violations:
    def __init__(self, run: Digest) -> None:
        self._run = run

    @cached_property
    def defects(self) -> tuple[Defect, ...]:
        """The defects, the most severe first. Unconfirmed and waived defects and defects of the stack come last."""
        shorts, again = shorts_in(self._run.header), self.repetitions
        defects = defects_of(self._run.results, shorts, again.is_lost, again.is_confirmed)
        env = self._run.header["env"]
        others = [another_than_fixed(defect.fingerprints, env) for defect in defects]
        pairs = zip(defects, others, strict=True)
        return again.applied([replace(of, another=other) if other else of for of, other in pairs])

    def answering_of(self, symptom: Symptom) -> Answering:
        """Returns the layer whose defect a symptom is; that of its defect if this is another than a known one."""
        of_case, cause = self.defects_in(symptom.case), cause_of(symptom)
        others = (of.answering for of in of_case if of.another and cause in of.causes)
        return next(others, answering_of(symptom))

    @cached_property
    def repetitions(self) -> Repetitions:
        footer = self._run.footer
        if footer is None:
            return Repetitions(self._run.confirmations)
        figures, why_not = footer.get("confirmation") or {}, footer.get("not_repeated", "")
        return Repetitions(self._run.confirmations, figures, why_not)

    @property
    def open_defects(self) -> tuple[Defect, ...]:
        """The defects that are neither waived, nor of the stack, nor unconfirmed."""
        return tuple(
            defect
            for defect in self.defects
            if not (defect.waived or defect.of_stack or defect.unconfirmed)
        )

    @cached_property
    def apart(self) -> str:
        """The numbers of the defects that are not open, by the reason; empty if all are open."""
        return reasons_apart(self.defects)

    @cached_property
    def apart_on_page(self) -> str:
        """Like `apart`, with the number of cases of open defects that show only what did not occur again."""
        defects = self.open_defects
        lost = {symptom.case for defect in defects for symptom in defect.lost}
        lost -= {case for defect in defects for case in defect.cases}
        cases = f"{format_count(len(lost), 'case')} not confirmed" if lost else ""
        return ", ".join(filter(None, (self.apart, cases)))

    @cached_property
    def tally(self) -> Mapping[Severity, tuple[int, int]]:
        """The numbers of open defects, and of cases that show one of them, by the severity of the defects."""
        tally = {}
        for severity in Severity:
            defects = [defect for defect in self.open_defects if defect.severity is severity]
            if defects:
                tally[severity] = len(defects), _cases(defects)
        return tally

    @cached_property
    def by_layer(self) -> Mapping[str, int]:
        """The numbers of open defects by the layer that answered, the greatest first."""
        return dict(Counter(defect.answering.layer for defect in self.open_defects).most_common())

    @property
    def count(self) -> str:
        """The numbers of all open defects, and of cases that show one of them."""
        defects = self.open_defects
        return f"{format_count(len(defects), 'defect')} in {format_count(_cases(defects), 'case')}"

    @cached_property
    def severities(self) -> Mapping[Severity, int]:
        """The numbers of results by their worst severity, without waived and unconfirmed results."""
        return count_by_severity(
            self._worst[result["case"]]
            for result in self._run.results
            if result["effective"] in VIOLATIONS and not self.repetitions.is_unconfirmed(result)
        )

    @cached_property
    def _worst(self) -> Mapping[str, Severity]:
        """The worst severity of each result that violates a rule, by case."""
        return {
            result["case"]: min(
                map(severity_of, self.symptoms[result["case"]]),
                key=lambda severity: severity.rank,
            )
            for result in self._run.results
            if result["effective"] in VIOLATIONS
        }

    def by_severity(self) -> tuple[ResultRecord, ...]:
        """Returns first the violations, the most severe first, and then the other results in the order of the run."""
        rank = {case: severity.rank for case, severity in self._worst.items()}
        return tuple(
            sorted(self._run.results, key=lambda record: rank.get(record["case"], len(Severity))),
        )

    def is_waived(self, symptom: Symptom) -> bool:
        """Whether a waiver covers the symptom, even if its result counts because of another symptom."""
        if symptom.record["effective"] == Verdict.WAIVED:
            return True
        covered = self._run.footer and self._run.footer.get("waivers", {}).get("covered", {})
        return cause_of(symptom).fingerprint in (covered or {}).get(symptom.case, ())

    def defects_in(self, case: str) -> list[Defect]:
        """Returns the defects that occur in a case, the most severe first."""
        return self._by_case.get(case, [])

    @cached_property
    def symptoms(self) -> Mapping[str, list[Symptom]]:
        """The symptoms of each case; symptoms of the most severe defect come first."""
        by_case: dict[str, list[Symptom]] = {}
        for defect in self.defects:
            for symptom in defect.all_symptoms:
                by_case.setdefault(symptom.case, []).append(symptom)
        return by_case

    @cached_property
    def _by_case(self) -> Mapping[str, list[Defect]]:
        by_case: dict[str, list[Defect]] = {}
        for defect in self.defects:
            for case in dict.fromkeys(symptom.case for symptom in defect.all_symptoms):
                by_case.setdefault(case, []).append(defect)
        return by_case

    def by_rule(self) -> dict[str, list[ResultRecord]]:
        """Returns the violated rules in order, each with the results that violate it, the worst verdicts first."""
        by_rule: dict[str, list[ResultRecord]] = {}
        for record in sorted(
            self._run.results, key=lambda record: VERDICTS.index(record["effective"])
        ):
            for rule in record["rules"]:
                if verdict_on(rule, record) in VIOLATIONS:
                    by_rule.setdefault(rule, []).append(record)
        order = list(self._run.verdicts.rules)
        return dict(
            sorted(
                by_rule.items(),
                key=lambda item: order.index(item[0]) if item[0] in order else len(order),
            ),
        )
