"""Waivers: violations that somebody knows of, answers for, and has a date for. Pure.

A waiver changes what a result counts as (`effective`), never its verdict, and only where the device
fails in just the way that the waiver tells of. How the file is written: waiver_file.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from conformance.model.verdict import INCOMPLETE, VIOLATIONS, Verdict
from conformance.results.records import Record, verdict_on
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

    def holds(self, header: Record) -> bool:
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
    """The outcome that a waiver tells of; what is empty may be anything.

    `returned`, `errno` and `wc` are of the judged call, `reason` is part of the result's reason, `when`
    are the formulas of a sweep's deviations.
    """

    verdict: str
    returned: str = ""
    errno: str = ""
    wc: tuple[str, ...] = ()
    reason: str = ""
    when: tuple[str, ...] = ()

    def differs(self, line: Record) -> str:
        """In what a violation is another than the known one; empty if it is that one."""
        observed = line.get("observed", {})
        for what, known, came in (
            ("verdict", self.verdict, line["verdict"]),
            ("returned", self.returned, observed.get("returned", "")),
            ("errno", self.errno, observed.get("errno", "")),
            ("wc", list(self.wc), observed.get("wc", [])),
        ):
            if known and known != came:
                return f"{what} is {_said(came)}, not {_said(known)}"
        if self.reason not in line["reason"]:
            return f"its reason is another: {line['reason']}"
        strange = [each["when"] for each in line.get("deviations", ()) if self.when and each["when"] not in self.when]
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

    def covers(self, line: Record) -> bool:
        """Whether the result is of what it is for, and says something of the device."""
        if line["verdict"] in INCOMPLETE:
            return False
        return line["case"] == self.case if self.case else self.rule in line["rules"]

    def violated(self, line: Record) -> bool:
        """Whether a result that it covers violates what it is for."""
        return (verdict_on(self.rule, _raw(line)) if self.rule else line["verdict"]) in VIOLATIONS

    def differs(self, line: Record) -> str:
        """In what a violation that it covers is another than the one that it tells of; empty if it is that one."""
        others = {rule for each in line.get("deviations", ()) for rule in each["rules"]} - {self.rule}
        if self.rule and others:
            return f"it also violates {', '.join(sorted(others))}"
        return self.known.differs(line)

    def as_data(self) -> dict[str, Any]:
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

    def applied(self, line: Record, header: Record) -> Record:
        """The result with the waiver that fits it, or without any."""
        line = {**line, "effective": line["verdict"], "waiver": None}
        if line["verdict"] not in VIOLATIONS:
            return line
        for waiver in self._here(header):
            if waiver.expires >= self.today and waiver.covers(line) and waiver.violated(line):
                if waiver.differs(line):
                    continue
                return {**line, "effective": Verdict.WAIVED, "waiver": waiver.as_data()}
        return line

    def account(self, results: Iterable[Record], header: Record) -> dict[str, Any]:
        """What the footer says: how many results are waived, and whatever is wrong with a waiver."""
        lines = list(results)
        return {
            "file": self.file,
            "waived": sum(line["effective"] == Verdict.WAIVED for line in lines),
            "elsewhere": len(self.items) - len(self._here(header)),
            "problems": [problem for waiver in self._here(header) for problem in self._problems(waiver, lines)],
        }

    def _here(self, header: Record) -> list[Waiver]:
        return [waiver for waiver in self.items if waiver.where.holds(header)]

    def _problems(self, waiver: Waiver, lines: Sequence[Record]) -> Iterator[str]:
        """What is wrong with a waiver in this run; nothing where what it is for was not judged."""
        told = f"{waiver.location}: the waiver of {waiver.target} ({waiver.owner}, {waiver.issue})"
        covered = [line for line in lines if waiver.covers(line)]
        violations = [line for line in covered if waiver.violated(line)]
        if covered and waiver.expires < self.today:
            yield f"{told} expired on {waiver.expires}"
        if covered and not violations:
            yield f"{told} is not needed any more: {covered[0]['case']} is {covered[0]['verdict']}"
        for line in violations:
            difference = waiver.differs(line)
            if difference and line["effective"] != Verdict.WAIVED:
                yield f"{told} does not fit: {line['case']} fails differently, {difference}"


def version(text: str) -> tuple[int, ...]:
    """The numbers at the beginning of a kernel's version: 7.2.12+deb14 is (7, 2, 12)."""
    found = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(number) for number in found[0].split(".")) if found else ()


def _raw(line: Record) -> Record:
    return {**line, "effective": line["verdict"]}


def _said(value: object) -> str:
    return (" ".join(map(str, value)) if isinstance(value, list) else str(value)) or "nothing"
