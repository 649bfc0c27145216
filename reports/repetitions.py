"""Applies the repetitions of violations to the defects of a run. A defect may not be seen again, or be more severe.

confirmation.py has the texts about single violations, and conformance/supervision/ tries violations again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from conformance.defects import Defect, severity_of_fault, symptoms_of
from conformance.model.fault import Fault
from conformance.model.record import ConfirmationRecord, ResultRecord
from conformance.model.verdict import VERDICTS, Verdict
from conformance.tables.suite import POINT


class Repetitions:
    """The repetitions of one run. The name of a violation is the argument of `--only` that repeats it."""

    def __init__(self, records: Iterable[ConfirmationRecord]) -> None:
        self.of_case: dict[str, list[ConfirmationRecord]] = {}
        for record in records:
            self.of_case.setdefault(record["case"], []).append(record)
        by_name = {name_of(record): record for each in self.of_case.values() for record in each}
        self.unconfirmed = frozenset(
            name for name, each in by_name.items() if not each["confirmed"] and not each.get("after")
        )
        seen = {name: each["alone"].get("fault") for name, each in by_name.items() if "alone" in each}
        self._alone = {name: Fault.of_data(fault) for name, fault in seen.items() if fault}

    def is_unconfirmed(self, record: ResultRecord) -> bool:
        """Returns whether no violation in a result was seen again, neither alone nor after other cases."""
        return bool(self.unconfirmed) and all(each.name in self.unconfirmed for each in symptoms_of(record))

    def decided(self, record: ResultRecord) -> ResultRecord:
        """Returns the result, in which a hang that did not occur again is undecided: on a busy host an answer may be
        late.

        In a sweep, the rules of points with such hangs are undecided, unless other points violate these rules too.
        """
        if record["effective"] != Verdict.HANG or not self.unconfirmed:
            return record
        if self.is_unconfirmed(record):
            return {**record, "effective": Verdict.BROKEN}
        again = [
            each for each in symptoms_of(record) if each.verdict != Verdict.HANG or each.name not in self.unconfirmed
        ]
        verdicts = dict(record.get("rule_verdicts", {}))
        for rule in [rule for rule, verdict in verdicts.items() if verdict == Verdict.HANG]:
            own = [Verdict(each.verdict) for each in again if rule in each.rules]
            verdicts[rule] = min(own, key=VERDICTS.index, default=Verdict.BROKEN)
        return {**record, "rule_verdicts": verdicts}

    def applied(self, defects: Sequence[Defect]) -> tuple[Defect, ...]:
        """Returns the defects with the results of their repetitions. Unconfirmed defects come last."""
        found = [self._applied(each) for each in defects]
        return tuple(sorted(found, key=lambda each: (each.of_stack, each.waived, each.unconfirmed)))

    def _applied(self, defect: Defect) -> Defect:
        for symptom in defect.symptoms:
            if symptom.name in self._alone:
                defect = defect.at_least(severity_of_fault(self._alone[symptom.name]))
        return replace(defect, unconfirmed=all(each.name in self.unconfirmed for each in defect.symptoms))


def name_of(record: ConfirmationRecord) -> str:
    """Returns the argument of `--only` that repeats a violation."""
    return f"{record['case']}{POINT}{record['point']}" if record.get("point") else record["case"]
