"""Waivers: known violations with an owner and an expiry date. Pure functions.

A waiver changes the effective verdict of a result, never its verdict, and only if the device fails exactly as the
waiver describes. Not for the file of waivers (waiver_file.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from conformance.model.record import HeaderRecord, ResultRecord, WaiverFacts, WaiversAccount
from conformance.model.verdict import INCOMPLETE, VIOLATIONS, Verdict
from conformance.results.conclusions import verdict_on
from conformance.yamldoc.nodes import Location


@dataclass(frozen=True)
class WaiverScope:
    """Where a waiver holds: the driver, and kernels from one to another, both included; empty: any.

    "7.2" as the last one includes every 7.2.x. `firmware` is the whole text that the device gives.
    """

    driver: str
    kernel_from: str = ""
    kernel_to: str = ""
    firmware: str = ""

    def holds(self, header: HeaderRecord) -> bool:
        """Whether the run is on such a stack."""
        device, kernel = header["device"], version(str(header["env"].get("kernel", "")))
        first, last = version(self.kernel_from), version(self.kernel_to)
        return (
            device.get("driver") == self.driver
            and (not self.firmware or device.get("fw") == self.firmware)
            and first <= kernel
            and (not last or kernel[: len(last)] <= last)
        )


@dataclass(frozen=True)
class KnownOutcome:
    """The outcome that a waiver describes; what is empty may be anything.

    `returned`, `errno` and `wc` are of the judged call, `reason` is part of the result's reason, `when`
    are the formulas of a sweep's deviations.
    """

    verdict: str
    returned: str = ""
    errno: str = ""
    wc: tuple[str, ...] = ()
    reason: str = ""
    when: tuple[str, ...] = ()

    def differs(self, record: ResultRecord) -> str:
        """How a violation differs from the known one; empty if it is that one."""
        observed = record.get("observed") or {}
        for what, known, came in (
            ("verdict", self.verdict, record["verdict"]),
            ("returned", self.returned, observed.get("returned", "")),
            ("errno", self.errno, observed.get("errno", "")),
            ("wc", list(self.wc), observed.get("wc", [])),
        ):
            if known and known != came:
                return f"{what} is {_format_value(came)}, not {_format_value(known)}"
        if self.reason not in record["reason"]:
            return f"its reason is another: {record['reason']}"
        strange = [each["when"] for each in record.get("deviations", ()) if self.when and each["when"] not in self.when]
        return f"it also departs when {strange[0]}" if strange else ""


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
        """What it is for."""
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
        others = {rule for each in record.get("deviations", ()) for rule in each["rules"]} - {self.rule}
        if self.rule and others:
            return f"it also violates {', '.join(sorted(others))}"
        return self.known.differs(record)

    def as_data(self) -> WaiverFacts:
        """What a result says of the waiver that it has."""
        return {"for": self.target, "issue": self.issue, "owner": self.owner, "expires": self.expires.isoformat(),
                "place": str(self.location)}  # fmt: skip


@dataclass(frozen=True)
class Waivers:
    """The waivers of a run on the day `today`, the exact ones first."""

    file: str
    sha256: str
    items: tuple[Waiver, ...]
    today: date

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
        return record

    def account(self, results: Iterable[ResultRecord], header: HeaderRecord) -> WaiversAccount:
        """What the footer holds: how many results are waived, and whatever is wrong with a waiver."""
        records = list(results)
        return {
            "file": self.file,
            "waived": sum(record["effective"] == Verdict.WAIVED for record in records),
            "elsewhere": len(self.items) - len(self._applicable(header)),
            "problems": [problem for waiver in self._applicable(header) for problem in self._problems(waiver, records)],
        }

    def _applicable(self, header: HeaderRecord) -> list[Waiver]:
        return [waiver for waiver in self.items if waiver.where.holds(header)]

    def _problems(self, waiver: Waiver, results: Sequence[ResultRecord]) -> Iterator[str]:
        """What is wrong with a waiver in this run; nothing where what it is for was not judged."""
        subject = f"{waiver.location}: the waiver of {waiver.target} ({waiver.owner}, {waiver.issue})"
        covered = [record for record in results if waiver.covers(record)]
        violations = [record for record in covered if waiver.violated(record)]
        if covered and waiver.expires < self.today:
            yield f"{subject} expired on {waiver.expires}"
        if covered and not violations:
            yield f"{subject} is not needed any more: {covered[0]['case']} is {covered[0]['verdict']}"
        for record in violations:
            difference = waiver.differs(record)
            if difference and record["effective"] != Verdict.WAIVED:
                yield f"{subject} does not fit: {record['case']} fails differently, {difference}"


def version(text: str) -> tuple[int, ...]:
    """The numbers at the beginning of a kernel's version: 7.2.12+deb14 is (7, 2, 12)."""
    found = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(number) for number in found[0].split(".")) if found else ()


def _raw(record: ResultRecord) -> ResultRecord:
    return {**record, "effective": record["verdict"]}


def _format_value(value: object) -> str:
    return (" ".join(map(str, value)) if isinstance(value, list) else str(value)) or "nothing"
