"""Applies the repetitions of violations to the verdicts and defects of a run, and describes the repetitions for all
reports. conformance/supervision/ repeats the violations."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from conformance.defects import Defect, Symptom, severity_of_fault, symptoms_of
from conformance.model.fault import OF_A_LOSS, Fault
from conformance.model.record import ConfirmationRecord, Occurrence, ResultRecord
from conformance.model.verdict import VERDICTS, VIOLATIONS, Verdict
from conformance.model.vocabulary import WIRE
from conformance.older_python import zip
from conformance.tables.carried import SUFFIX
from conformance.tables.suite import POINT

_MOST = 5  # the most names in a list of cases after which a violation occurs, and in a list of unconfirmed violations
_LONGEST = 120  # the most letters of a name in a line
_BY = {
    "run": "it was the first case of its worker, so no earlier case is its cause",
    "company": "the same when repeated with other cases, in a different order",
}
_CONFIRMED = "confirmed"  # how a text about a violation begins that occurred again
_UNKNOWN: Occurrence = {"verdict": Verdict.MISSED, "reason": "not recorded"}
_NO_FIGURES: Mapping[str, int] = {}


class Repetitions:
    """The repetitions of one run. The name of a violation is the argument of `--only` that repeats the violation.
    `figures` has the numbers of violations that were confirmed, not confirmed and not repeated; it is empty for a run
    without violations. `why_not` is the reason why violations could not be repeated; empty if they could."""

    def __init__(
        self,
        records: Sequence[ConfirmationRecord],
        figures: Mapping[str, int] = _NO_FIGURES,
        why_not: str = "",
    ) -> None:
        self._records = records
        self._figures = figures
        self._why_not = f" ({why_not})" if why_not else ""
        self._of_case: dict[str, list[ConfirmationRecord]] = {}
        for record in records:
            self._of_case.setdefault(record["case"], []).append(record)
        by_name = {
            _name_of(record): record
            for confirmations in self._of_case.values()
            for record in confirmations
        }
        self.unconfirmed = frozenset(
            name
            for name, confirmations in by_name.items()
            if not confirmations["confirmed"] and not confirmations.get("after")
        )
        seen = {
            name: confirmations["alone"].get("fault")
            for name, confirmations in by_name.items()
            if "alone" in confirmations
        }
        self._alone = {name: Fault.of_data(fault) for name, fault in seen.items() if fault}
        # The hangs that another violation replaced when they were repeated, each with the verdict of the repetition.
        self._replaced = {
            name: Verdict(record["alone"]["verdict"])
            for name, record in by_name.items()
            if _is_other_violation(record)
        }

    def is_unconfirmed(self, record: ResultRecord) -> bool:
        """Whether no violation of a result occurred again, either in isolation or after other cases."""
        return bool(self.unconfirmed) and all(
            symptom.name in self.unconfirmed for symptom in symptoms_of(record)
        )

    def decided(self, record: ResultRecord) -> ResultRecord:
        """Returns the result with BROKEN instead of a HANG that did not occur again, because a busy host may delay a
        completion, or of a violation that a packet of a wire peer which the network has lost can have caused. Points of a
        sweep that did not occur again decide no rule: it is BROKEN, unless other points violate it too. A HANG whose
        repetition showed another violation counts as that violation."""
        verdicts = dict(record.get("rule_verdicts", {}))
        violated = not {*VIOLATIONS}.isdisjoint((record["effective"], *verdicts.values()))
        if not violated or not (self.unconfirmed or self._replaced):
            return record
        delayed = record["effective"] == Verdict.HANG or _may_be_lost(record)
        if delayed and self.is_unconfirmed(record):
            return {**record, "effective": Verdict.BROKEN}
        symptoms = list(symptoms_of(record))
        again = [symptom for symptom in symptoms if symptom.name not in self.unconfirmed]
        shown = {rule for symptom in symptoms if symptom.deviation for rule in symptom.rules}
        for rule in [rule for rule in verdicts if verdicts[rule] in VIOLATIONS and rule in shown]:
            verdicts_here = [
                self._verdict_of(symptom) for symptom in again if rule in symptom.rules
            ]
            verdicts[rule] = min(verdicts_here, key=VERDICTS.index, default=Verdict.BROKEN)
        decided: ResultRecord = {**record, "rule_verdicts": verdicts}
        if record["effective"] == Verdict.HANG:
            worst = min(map(self._verdict_of, again), key=VERDICTS.index, default=Verdict.HANG)
            decided["effective"] = worst
        return decided

    def _verdict_of(self, symptom: Symptom) -> Verdict:
        return self._replaced.get(symptom.name, Verdict(symptom.verdict))

    def is_lost(self, symptom: Symptom) -> bool:
        """Whether a symptom did not occur again, or only as another violation."""
        replaced = symptom.verdict == Verdict.HANG and symptom.name in self._replaced
        return replaced or symptom.name in self.unconfirmed

    def is_confirmed(self, symptom: Symptom) -> bool:
        """Whether a symptom occurred again."""
        return self.text_about(symptom).startswith(_CONFIRMED) and not self.is_lost(symptom)

    def applied(self, defects: Sequence[Defect]) -> tuple[Defect, ...]:
        """Returns the defects with the results of the repetitions, sorted by `of_stack`, `waived` and `unconfirmed`."""
        applied = [self._applied(defect) for defect in defects]
        return tuple(
            sorted(applied, key=lambda defect: (defect.of_stack, defect.waived, defect.unconfirmed))
        )

    def _applied(self, defect: Defect) -> Defect:
        for symptom in defect.symptoms:
            if symptom.name in self._alone:
                defect = defect.at_least(severity_of_fault(self._alone[symptom.name]))
        return defect

    def share(self, defect: Defect) -> str:
        """Returns how many cases of a defect were confirmed, and how many not repeated; empty for a run that repeated
        nothing, and for a defect that did not occur again."""
        if not any(self._figures.values()) or defect.unconfirmed:
            return ""
        confirmed = len({symptom.case for symptom in defect.confirmed})
        counts = {
            "confirmed": confirmed,
            "not repeated": len(defect.cases) - confirmed,
            "not confirmed, and not counted": len({symptom.case for symptom in defect.lost}),
        }
        return ", ".join(f"{number:,} {word}" for word, number in counts.items() if number)

    def text_of(self, case: str) -> str:
        """Returns whether the violations of a case were confirmed, as a text; empty if the case was not repeated."""
        confirmations = self._of_case.get(case, [])
        bad = [record for record in confirmations if not record["confirmed"]][:_MOST]
        points = [f"{record['point']}: " if record.get("point") else "" for record in bad]
        texts = [f"{point}{_text(record)}" for point, record in zip(points, bad, strict=True)]
        return "; ".join(texts or map(_text, confirmations[:1]))

    def text_at(self, case: str, point: str) -> str:
        """Returns the text about the violation at a point of a sweep; empty if neither the point nor, for a point that
        varies, the whole sweep was repeated."""
        confirmations = self._of_case.get(case, [])
        points = [record.get("point", "") for record in confirmations]
        name = point if point in points else ""
        return _text(confirmations[points.index(name)]) if name in points else ""

    def text_about(self, symptom: Symptom) -> str:
        """Returns whether a violation was confirmed, as a text; empty if it was not repeated."""
        if symptom.point:
            return self.text_at(symptom.case, symptom.point)
        return self.text_of(symptom.case)

    def remark_on(self, symptom: Symptom) -> str:
        """Returns whether a violation was confirmed or not repeated; empty for a run that repeated nothing."""
        if not any(self._figures.values()):
            return ""
        return self.text_about(symptom) or "not repeated: it counts as it was observed"

    def summary(self) -> Iterator[str]:
        """Yields a line with the figures, and lines about the first violations that were not confirmed."""
        if not any(self._figures.values()):
            return
        confirmed, untried = self._figures["confirmed"], self._figures.get("not_tried", 0)
        tried = confirmed + self._figures["not_confirmed"]
        if not tried:
            none = f"none of {untried:,} violations was repeated{self._why_not}"
            yield f"confirmation: {none}; each counts as it was observed"
            return
        if untried:
            rest = f", {untried:,} not repeated{self._why_not}"
        else:
            rest = ""
        together = sum(record["by"] == "company" for record in self._records)
        if together:
            how = f"a fresh worker, {together:,} of them together with others"
        else:
            how = "isolation"
        yield f"confirmation: {confirmed:,} of {tried:,} violations reproduced in {how}{rest}"
        bad = [record for record in self._records if not record["confirmed"]]
        yield from (f"{_told(record)}: {_text(record)}" for record in bad[:_MOST])
        if len(bad) > _MOST:
            yield f"and {len(bad) - _MOST} more that were not confirmed"

    def as_data(self) -> dict[str, Any]:
        unconfirmed = [_name_of(record) for record in self._records if not record["confirmed"]]
        if self._figures:
            return {**self._figures, "unconfirmed": unconfirmed}
        return {}


def _may_be_lost(record: ResultRecord) -> bool:
    """Whether a packet that was lost between wire peer and device can be the cause of a violation."""
    carried = record["case"].endswith(SUFFIX) or record["call"].startswith(f"{WIRE}(")
    return carried and "fault" in record and record["fault"]["kind"] in OF_A_LOSS


def _name_of(record: ConfirmationRecord) -> str:
    if record.get("point"):
        return f"{record['case']}{POINT}{record['point']}"
    return record["case"]


def _told(record: ConfirmationRecord) -> str:
    """Returns the name of a violation for a line. A point of a model has hundreds of letters; summary.json has them."""
    name = _name_of(record)
    if len(name) > _LONGEST:
        return f"{record['case']}, at one point"
    return name


def _is_other_violation(record: ConfirmationRecord) -> bool:
    """Whether a hang was repeated as a violation that is neither a hang nor a death."""
    hung = record.get("in_run", _UNKNOWN)["verdict"] == Verdict.HANG
    return hung and record.get("alone", _UNKNOWN)["verdict"] == Verdict.FAIL


def _text(record: ConfirmationRecord) -> str:
    times, alone, after = record.get("repetitions"), record.get("alone"), record.get("after")
    if not record["confirmed"]:
        seen, alone = record.get("in_run") or _UNKNOWN, alone or _UNKNOWN
        text = f"not confirmed: {seen['verdict']} in the run, but {alone['verdict']} in isolation ({alone['reason']})"
        if after:
            if len(after) > _MOST:
                more = f" and {len(after) - _MOST} more"
            else:
                more = ""
            return f"{text}; it occurs again after {', '.join(after[:_MOST])}{more}"
        if times:
            text = f"{text}; it did not occur again in {times['of']} repetitions"
        elif after is not None:
            text = f"{text}; it did not occur again"
        if after is None:
            return f"{text}; no search was made for the cases after which it occurs"
        if untried := record.get("untried"):
            return f"{text}; the search for the cases after which it occurs had no time for {untried:,} of the cases before it"
        return text
    if times:
        return f"{_CONFIRMED}, and unsteady: seen in {times['seen']} of {times['of']} repetitions in isolation"
    if alone:
        return f"{_CONFIRMED}: {alone['verdict']} when repeated in isolation ({alone['reason']})"
    return f"{_CONFIRMED}: {_BY.get(record['by'], 'the same when repeated in isolation')}"
