"""Waivers: known violations with an owner and an expiry date. Pure functions.

A waiver changes the effective verdict of a result, never its verdict, and only if the device fails exactly as the
waiver describes. Not for the file of waivers (waiver_file.py).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from conformance.defects.symptom import fault_of
from conformance.model.record import HeaderRecord, ResultRecord, WaiverFacts, WaiversAccount
from conformance.model.record_shape import completed
from conformance.model.verdict import INCOMPLETE, VIOLATIONS, Verdict
from conformance.results.conclusions import verdict_on
from conformance.results.defect_waivers import DefectWaiver, covering
from conformance.results.waiver_scope import WaiverScope
from conformance.yamldoc.nodes import Location


@dataclass(frozen=True)
class KnownOutcome:
    """The outcome that a waiver describes; what is empty may be anything.

    `returned`, `errno` and `wc` are of the judged call, of a sweep of each deviation; `reason` is part of the result's
    reason, `when` are the formulas of a sweep's deviations.
    """

    verdict: str
    returned: str = ""
    errno: str = ""
    wc: tuple[str, ...] = ()
    reason: str = ""
    when: tuple[str, ...] = ()

    def differs(self, record: ResultRecord) -> str:
        """How a violation differs from the known one; empty if it is that one."""
        if record["verdict"] != self.verdict:
            return f"verdict is {record['verdict']}, not {self.verdict}"
        return (self._differs_in_points(record) if record.get("deviations") else self._differs_in_call(record)) or (
            "" if self.reason in record["reason"] else f"its reason is another: {record['reason']}"
        )

    def _differs_in_call(self, record: ResultRecord) -> str:
        observed = record.get("observed") or {}
        for what, known, came in (
            ("returned", self.returned, observed.get("returned", "")),
            ("errno", self.errno, observed.get("errno", "")),
            ("wc", list(self.wc), observed.get("wc", [])),
        ):
            if known and known != came:
                return f"{what} is {_format_value(came)}, not {_format_value(known)}"
        return ""

    def _differs_in_points(self, record: ResultRecord) -> str:
        """The faults of deviations hold their answers; the record has no observation of a point."""
        answer = self.errno or " ".join(self.wc)
        record = completed(record, "")
        for each in record["deviations"]:
            fault = fault_of(record, each)
            if self.when and each["when"] not in self.when:
                return f"it also departs when {each['when']}"
            if answer and fault.answer != answer:
                return f"the answer is {fault.answer or 'nothing'}, not {answer}, when {each['when']}"
            if self.returned and fault.returned != self.returned:
                return f"it did not return {self.returned} when {each['when']}"
        return ""


@dataclass(frozen=True)
class Waiver:
    """One waiver, for the exact `case` or for every case of `rule`; the other is empty."""

    case: str
    rule: str
    where: WaiverScope
    known: KnownOutcome
    issue: str
    owner: str
    expires: date
    location: Location

    @property
    def target(self) -> str:
        return self.case or self.rule

    def covers(self, record: ResultRecord) -> bool:
        """Whether the result is of what it is for, and says something of the device."""
        if record["verdict"] in INCOMPLETE:
            return False
        return record["case"] == self.case if self.case else self.rule in record["rules"]

    def violated(self, record: ResultRecord) -> bool:
        """Whether a result that it covers violates what it is for."""
        return (verdict_on(self.rule, _raw(record)) if self.rule else record["verdict"]) in VIOLATIONS

    def differs(self, record: ResultRecord) -> str:
        """How a violation that it covers differs from the one that it describes; empty if it is that one."""
        if more := record.get("deviations_left_out"):
            return f"it departs in {more:,} more ways, which the result does not have"
        others = {rule for each in record.get("deviations", ()) for rule in each["rules"]} - {self.rule}
        if self.rule and others:
            return f"it also violates {', '.join(sorted(others))}"
        return self.known.differs(record)

    def as_data(self) -> WaiverFacts:
        return {
            "for": self.target,
            "issue": self.issue,
            "owner": self.owner,
            "expires": self.expires.isoformat(),
            "place": str(self.location),
        }


@dataclass(frozen=True)
class Waivers:
    """The waivers of a run on the day `today`, the exact ones first, and those of defects."""

    file: str
    sha256: str
    items: tuple[Waiver, ...]
    today: date
    defects: tuple[DefectWaiver, ...] = ()

    def applied(self, record: ResultRecord, header: HeaderRecord) -> ResultRecord:
        """The result with the waiver that fits it, or without any."""
        record = {**record, "effective": record["verdict"], "waiver": None}
        if record["verdict"] not in VIOLATIONS:
            return record
        for waiver in self._applicable(header):
            if waiver.expires >= self.today and waiver.covers(record) and waiver.violated(record):
                if waiver.differs(record):
                    continue
                return {**record, "effective": Verdict.WAIVED, "waiver": waiver.as_data()}
        valid = [each for each in self.defects if each.where.holds(header) and each.expires >= self.today]
        of_defect = covering(valid, record)
        return {**record, "effective": Verdict.WAIVED, "waiver": of_defect.as_data()} if of_defect else record

    def account(self, results: Iterable[ResultRecord], header: HeaderRecord) -> WaiversAccount:
        """What the footer holds: how many results are waived, and whatever is wrong with a waiver."""
        records = list(results)
        defects = [each for each in self.defects if each.where.holds(header)]
        problems = [
            problem
            for waiver in self._applicable(header)
            for problem in self._problems(waiver, records, whole=bool(waiver.case) or "shard" not in header)
        ]
        problems += [problem for waiver in defects for problem in waiver.problems(records, self.today)]
        return {
            "file": self.file,
            "waived": sum(record["effective"] == Verdict.WAIVED for record in records),
            "elsewhere": len(self.items) + len(self.defects) - len(self._applicable(header)) - len(defects),
            "problems": problems,
        }

    def _applicable(self, header: HeaderRecord) -> list[Waiver]:
        return [waiver for waiver in self.items if waiver.where.holds(header)]

    def _problems(self, waiver: Waiver, results: Sequence[ResultRecord], whole: bool) -> Iterator[str]:
        """What is wrong with a waiver in this run; nothing where what it is for was not judged.

        A run without the `whole` of it does not show that it is no longer needed.
        """
        subject = f"{waiver.location}: the waiver of {waiver.target} ({waiver.owner}, {waiver.issue})"
        covered = [record for record in results if waiver.covers(record)]
        violations = [record for record in covered if waiver.violated(record)]
        if covered and waiver.expires < self.today:
            yield f"{subject} expired on {waiver.expires}"
        if covered and not violations and whole:
            yield f"{subject} is not needed any more: {covered[0]['case']} is {covered[0]['verdict']}"
        for record in violations:
            difference = waiver.differs(record)
            if difference and record["effective"] != Verdict.WAIVED:
                yield f"{subject} does not fit: {record['case']} fails differently, {difference}"


def _raw(record: ResultRecord) -> ResultRecord:
    return {**record, "effective": record["verdict"]}


def _format_value(value: object) -> str:
    return (" ".join(map(str, value)) if isinstance(value, list) else str(value)) or "nothing"
