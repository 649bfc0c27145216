"""Applies waivers, which are known violations with an owner and an expiry date, and determines effective verdicts.

The functions are pure. A waiver changes only the effective verdict of a result, and only if the device fails exactly as
the waiver describes. The waiver of a defect names the fingerprint of the defect, and applies to all rows and sweeps
that show the defect with at most the severity in the waiver. waiver_file.py reads waivers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from conformance.defects import Severity, Symptom, cause_of, is_of_stack, severity_of, symptoms_of
from conformance.defects.symptom import fault_of
from conformance.errors import format_count
from conformance.model.record import (
    LISTED,
    UNLISTED,
    UNSTEADY,
    HeaderRecord,
    ResultRecord,
    WaiverFacts,
    WaiversAccount,
)
from conformance.model.record_shape import completed
from conformance.model.verdict import INCOMPLETE, VIOLATIONS, Verdict
from conformance.results.conclusions import verdict_on
from conformance.yamldoc.nodes import Location


@dataclass(frozen=True)
class WaiverScope:
    """The stacks to which a waiver applies: the driver, and the first and the last kernel and rdma-core. An empty field
    allows any value. The last kernel "7.2" includes every 7.2.x. `firmware` is the whole firmware version that the
    device reports."""

    driver: str
    kernel_from: str = ""
    kernel_to: str = ""
    firmware: str = ""
    rdma_core_from: str = ""
    rdma_core_to: str = ""

    def holds(self, header: HeaderRecord) -> bool:
        return self.is_of_device(header) and self.has_versions(header)

    def is_of_device(self, header: HeaderRecord) -> bool:
        device = header["device"]
        return device.get("driver") == self.driver and (
            not self.firmware or device.get("fw") == self.firmware
        )

    def has_kernel(self, header: HeaderRecord) -> bool:
        return _is_between(header["env"].get("kernel", ""), self.kernel_from, self.kernel_to)

    def has_versions(self, header: HeaderRecord) -> bool:
        rdma_core = header["env"].get("rdma_core", "")
        has_rdma_core = _is_between(rdma_core, self.rdma_core_from, self.rdma_core_to)
        return self.has_kernel(header) and has_rdma_core

    @property
    def ranges(self) -> str:
        """The range of kernels and that of rdma-core: `from 6.12 to 7.2, rdma-core to 63`."""
        kernels = _ends(self.kernel_from, self.kernel_to)
        rdma_core = _ends(self.rdma_core_from, self.rdma_core_to)
        return ", ".join(filter(None, (kernels, rdma_core and f"{OF_RDMA_CORE} {rdma_core}")))


OF_RDMA_CORE = "rdma-core"


def _is_between(text: object, first: str, last: str) -> bool:
    tested, end = version(str(text)), version(last)
    return version(first) <= tested and (not end or tested[: len(end)] <= end)


def _ends(first: str, last: str) -> str:
    return " ".join(f"{word} {end}" for word, end in (("from", first), ("to", last)) if end)


def version(text: str) -> tuple[int, ...]:
    """Returns the numbers at the beginning of a version, such as (7, 2, 12) for 7.2.12+deb14."""
    match = re.match(r"\d+(?:\.\d+)*", text)
    if match:
        return tuple(int(number[:9]) for number in match[0].split("."))
    return ()


@dataclass(frozen=True)
class Terms:
    """The parts that all waivers have: the stacks, the owner, the issue and the expiry date. `target` names the case,
    the rule or the defect."""

    where: WaiverScope
    issue: str
    owner: str
    expires: date
    location: Location

    @property
    def target(self) -> str:
        raise NotImplementedError

    def concerns(self, record: ResultRecord) -> bool:
        """Whether a result violates what the waiver is for, in whatever way."""
        raise NotImplementedError

    def misfit(self, misfits: Mapping[str, str]) -> Iterator[str]:
        """Yields one line if there are cases, by id, that the waiver does not fit: the first and the number of others."""
        if misfits:
            case, difference = next(iter(misfits.items()))
            more = f"; and {len(misfits) - 1:,} more" if len(misfits) > 1 else ""
            yield f"{self} does not fit: {case} {difference}{more}"

    def __str__(self) -> str:
        return f"{self.location}: the waiver of {self.target} ({self.owner}, {self.issue})"

    def as_data(self) -> WaiverFacts:
        return {
            "for": self.target,
            "issue": self.issue,
            "owner": self.owner,
            "expires": self.expires.isoformat(),
            "place": str(self.location),
        }


@dataclass(frozen=True)
class KnownOutcome:
    """The outcome that a waiver describes; an empty field allows any value. `returned`, `errno` and `wc` are the
    results of the judged call, or of each deviation of a sweep. `reason` is a text that the result's reason must
    contain. `when` has the conditions, as reports name them, under which the points of a sweep may deviate."""

    verdict: str
    returned: str = ""
    errno: str = ""
    wc: tuple[str, ...] = ()
    reason: str = ""
    when: tuple[str, ...] = ()

    def differs(self, record: ResultRecord) -> str:
        """Returns the difference between a violation and the known outcome; empty if there is none."""
        if record["verdict"] != self.verdict:
            return f"verdict is {record['verdict']}, not {self.verdict}"
        return (
            self._differs_in_points(record)
            if record.get("deviations")
            else self._differs_in_call(record)
        ) or (
            ""
            if self.reason in record["reason"]
            else f"its reason is different: {record['reason']}"
        )

    def _differs_in_call(self, record: ResultRecord) -> str:
        observed = record.get("observed") or {}
        if self.when and not (self.returned or self.errno or self.wc or self.reason):
            return "it is no sweep, and `when` alone describes one"
        for what, expected, came in (
            ("returned", self.returned, observed.get("returned", "")),
            ("errno", self.errno, observed.get("errno", "")),
            ("wc", list(self.wc), observed.get("wc", [])),
        ):
            if expected and expected != came:
                return f"{what} is {_format_value(came)}, not {_format_value(expected)}"
        return ""

    def _differs_in_points(self, record: ResultRecord) -> str:
        """Compares the faults of the deviations, because the record has no observations of single points."""
        answer = self.errno or " ".join(self.wc)
        record = completed(record)
        for deviation in record["deviations"]:
            fault = fault_of(record, deviation)
            if self.when and deviation["when"] not in self.when:
                return f"it also deviates when {deviation['when']}"
            if answer and fault.answer != answer:
                return f"the result is {fault.answer or 'nothing'}, not {answer}, when {deviation['when']}"
            if self.returned and fault.returned != self.returned:
                return f"it did not return {self.returned} when {deviation['when']}"
        return ""


@dataclass(frozen=True)
class Waiver(Terms):
    """A waiver for one `case`, or for every case of `rule`. One of the two fields is empty."""

    case: str
    rule: str
    known: KnownOutcome

    @property
    def target(self) -> str:
        return self.case or self.rule

    def concerns(self, record: ResultRecord) -> bool:
        return self.covers(record) and self.violated(record)

    def covers(self, record: ResultRecord) -> bool:
        """Whether the result belongs to the waiver's case or rule, and has a verdict about the device."""
        if record["verdict"] in INCOMPLETE:
            return False
        if self.case:
            return record["case"] == self.case
        return self.rule in record["rules"]

    def violated(self, record: ResultRecord) -> bool:
        """Whether a result that the waiver covers is a violation of the waiver's case or rule."""
        raw: ResultRecord = {**record, "effective": record["verdict"]}
        return (verdict_on(self.rule, raw) if self.rule else record["verdict"]) in VIOLATIONS

    def differs(self, record: ResultRecord) -> str:
        """Returns how a violation differs from the violation that the waiver describes; empty if it does not differ."""
        if more := record.get("deviations_left_out"):
            return f"it has {more:,} more deviations, which are not in the result"
        further_rules = {
            rule for deviation in record.get("deviations", ()) for rule in deviation["rules"]
        } - {
            self.rule,
        }
        if self.rule and further_rules:
            return f"it also violates {', '.join(sorted(further_rules))}"
        return self.known.differs(record)


@dataclass(frozen=True)
class DefectWaiver(Terms):
    """The waiver of a defect that is at most as severe as `worst`. `also` has further fingerprints of the defect.
    `cases` are the cases in which the defect was observed; the waiver also covers other cases of their `rules`, which
    remain new for a comparison. Without known rules it covers every case. `unsteady` are the cases that do not always
    show the defect."""

    defect: str
    also: tuple[str, ...]
    worst: Severity
    cases: tuple[str, ...]
    unsteady: tuple[str, ...]
    rules: frozenset[str] = frozenset()

    @property
    def target(self) -> str:
        return f"defect {self.defect}"

    def concerns(self, record: ResultRecord) -> bool:
        return any(map(self.is_of, symptoms(record)))

    def covers(self, symptom: Symptom) -> bool:
        """Whether the symptom belongs to the defect and to its rules, and is not more severe than the waiver allows."""
        return (
            self.is_of(symptom)
            and self.is_of_rules(symptom)
            and severity_of(symptom).rank >= self.worst.rank
        )

    def is_of(self, symptom: Symptom) -> bool:
        """Whether the symptom, of any severity, belongs to the defect."""
        return not {self.defect, *self.also}.isdisjoint(cause_of(symptom).fingerprints)

    def is_of_rules(self, symptom: Symptom) -> bool:
        """Whether the waiver names the case, or one of the rules that the symptom breaks."""
        is_listed = self.listing(symptom.case) != UNLISTED
        return is_listed or not self.rules or not self.rules.isdisjoint(symptom.rules)

    def listing(self, case: str) -> str:
        if case in self.unsteady:
            return UNSTEADY
        return LISTED if case in self.cases else UNLISTED

    def problems(
        self,
        symptoms_left: Sequence[Symptom],
        judged: Collection[str],
        today: date,
    ) -> Iterator[str]:
        """Yields the problems of the waiver in a run with these symptoms. `judged` are the judged cases."""
        shown = [symptom for symptom in symptoms_left if self.is_of(symptom)]
        if shown and self.expires < today:
            yield f"{self} expired on {self.expires}"
        misfits: dict[str, str] = {}
        for symptom in shown:
            if not self.is_of_rules(symptom):
                said = f"violates {', '.join(symptom.rules)}, which none of its cases tests"
                misfits.setdefault(symptom.case, said)
            elif not self.covers(symptom):
                misfits.setdefault(symptom.case, f"is worse, {severity_of(symptom).label}")
        yield from self.misfit(misfits)
        steady = set(self.cases) - set(self.unsteady)
        if not shown and steady and steady.issubset(judged):
            yield f"{self} is no longer needed: none of its cases shows the defect"


def symptoms(record: ResultRecord) -> list[Symptom]:
    """Returns the symptoms of a stored result; empty unless the result is a violation."""
    if record["verdict"] not in VIOLATIONS:
        return []
    return list(symptoms_of(completed(record)))


def is_covered(symptom: Symptom, waivers: Sequence[DefectWaiver]) -> bool:
    """Whether one of the waivers covers the symptom."""
    return any(waiver.covers(symptom) for waiver in waivers)


def covering(waivers: Sequence[DefectWaiver], record: ResultRecord) -> DefectWaiver | None:
    """Returns the waiver of the first symptom if all symptoms are recorded and each has a waiver; else None."""
    covers = []
    for symptom in symptoms(record):
        covering_waivers = (waiver for waiver in waivers if waiver.covers(symptom))
        covers.append(next(covering_waivers, None))
    if covers and all(covers) and not record.get("deviations_left_out"):
        return covers[0]
    return None


def listing(waivers: Sequence[DefectWaiver], record: ResultRecord) -> str:
    """Returns UNLISTED if the case of a symptom is in no waiver that covers the symptom; else UNSTEADY, if it is
    unsteady in one of them; else LISTED."""
    of_symptoms = set()
    for symptom in symptoms(record):
        names = {waiver.listing(record["case"]) for waiver in waivers if waiver.covers(symptom)}
        of_symptoms.add(next(name for name in (UNSTEADY, LISTED, UNLISTED) if name in names))
    return next(name for name in (UNLISTED, UNSTEADY, LISTED) if name in of_symptoms)


@dataclass(frozen=True)
class Waivers:
    """The waivers of a run on the day `today`: for cases and rules, and for defects."""

    file: str
    sha256: str
    items: tuple[Waiver, ...]
    today: date
    defects: tuple[DefectWaiver, ...] = ()

    def applied(self, record: ResultRecord, header: HeaderRecord) -> ResultRecord:
        """Returns the result with the waiver that fits, or without a waiver."""
        record = {**record, "effective": record["verdict"], "waiver": None}
        if record["verdict"] not in VIOLATIONS:
            return record
        fitting = (
            waiver
            for waiver in self._applicable(header)
            if waiver.expires >= self.today
            and waiver.covers(record)
            and waiver.violated(record)
            and not waiver.differs(record)
        )
        valid = self._valid_defects(header)
        facts: WaiverFacts | None = None
        if waiver := next(fitting, None):
            facts = {**waiver.as_data(), "listed": LISTED if waiver.case else UNLISTED}
        elif of_defect := covering(valid, record):
            facts = {**of_defect.as_data(), "listed": listing(valid, record)}
        if facts:
            return {**record, "effective": Verdict.WAIVED, "waiver": facts}
        return record

    def account(self, results: Iterable[ResultRecord], header: HeaderRecord) -> WaiversAccount:
        """Returns the part of the footer about waivers: the number of waived results, and the problems of waivers."""
        records = list(results)
        defects = [defect for defect in self.defects if defect.where.holds(header)]
        problems = [
            problem
            for waiver in self._applicable(header)
            for problem in self._problems(
                waiver,
                records,
                whole=bool(waiver.case) or "shard" not in header,
            )
        ]
        if defects:
            all_symptoms = [symptom for record in records for symptom in symptoms(record)]
        else:
            all_symptoms = []
        judged = {record["case"] for record in records if record["verdict"] not in INCOMPLETE}
        problems += [
            problem
            for waiver in defects
            for problem in waiver.problems(all_symptoms, judged, self.today)
        ]
        return {
            "file": self.file,
            "waived": sum(record["effective"] == Verdict.WAIVED for record in records),
            "elsewhere": len(self.items)
            + len(self.defects)
            - len(self._applicable(header))
            - len(defects),
            "problems": problems,
            "unseen": [
                waiver.target
                for waiver in defects
                if not waiver.cases
                and "shard" not in header
                and not any(map(waiver.is_of, all_symptoms))
            ],
            "out_of_range": list(self._out_of_range(records, header)),
            "partly": list(self._partly(records, header)),
            "covered": dict(self._covered(records, header)),
        }

    def _covered(
        self,
        records: Sequence[ResultRecord],
        header: HeaderRecord,
    ) -> Iterator[tuple[str, list[str]]]:
        """Yields each violation that counts though waivers cover some of its symptoms, with their fingerprints."""
        valid = self._valid_defects(header)
        for record in records:
            if record["effective"] not in VIOLATIONS or not valid:
                continue
            covered: dict[str, bool] = {}
            for symptom in symptoms(record):
                name = cause_of(symptom).fingerprint
                covered[name] = covered.get(name, True) and is_covered(symptom, valid)
            if names := sorted(name for name, is_so in covered.items() if is_so):
                yield record["case"], names

    def _partly(self, records: Sequence[ResultRecord], header: HeaderRecord) -> Iterator[str]:
        """Yields a line for each defect without a waiver because of which cases of waived defects count."""
        valid = self._valid_defects(header)
        uncovered: dict[str, list[Symptom]] = {}
        for record in records:
            violations = symptoms(record) if record["effective"] in VIOLATIONS else []
            open_symptoms = [symptom for symptom in violations if not is_covered(symptom, valid)]
            if len(open_symptoms) < len(violations):
                for symptom in open_symptoms:
                    uncovered.setdefault(cause_of(symptom).fingerprint, []).append(symptom)
                if more := record.get("deviations_left_out"):
                    yield f"{record['case']} counts, because {more:,} of its deviations are not recorded"
        for fingerprint, open_symptoms in uncovered.items():
            number = len({symptom.case for symptom in open_symptoms})
            counted = f"{format_count(number, 'case')} of waived defects count{'s' * (number == 1)}"
            first = f"{open_symptoms[0].case}: {open_symptoms[0].line}"
            yield f"{counted}, because no waiver covers its symptom {fingerprint}: {first}"

    def _valid_defects(self, header: HeaderRecord) -> list[DefectWaiver]:
        return [
            waiver
            for waiver in self.defects
            if waiver.where.holds(header) and waiver.expires >= self.today
        ]

    def _out_of_range(self, records: Sequence[ResultRecord], header: HeaderRecord) -> Iterator[str]:
        """Yields the waivers of this device that concern a violation and whose versions do not include those of the run."""
        counted = [record for record in records if record["effective"] in VIOLATIONS]
        for waiver in (*self.items, *self.defects):
            if waiver.where.has_versions(header) or not waiver.where.is_of_device(header):
                continue
            if any(map(waiver.concerns, counted)):
                yield f"{waiver.target} ({waiver.where.ranges})"

    def _applicable(self, header: HeaderRecord) -> list[Waiver]:
        return [waiver for waiver in self.items if waiver.where.holds(header)]

    def _problems(
        self,
        waiver: Waiver,
        results: Sequence[ResultRecord],
        whole: bool,
    ) -> Iterator[str]:
        """Yields the problems of a waiver. `whole` is whether the run can show that the waiver is no longer needed."""
        covered = [record for record in results if waiver.covers(record)]
        violations = [record for record in covered if waiver.violated(record)]
        if covered and waiver.expires < self.today:
            yield f"{waiver} expired on {waiver.expires}"
        if covered and not violations and whole:
            yield f"{waiver} is no longer needed: {covered[0]['case']} is {covered[0]['verdict']}"
        yield from waiver.misfit(
            {
                record["case"]: f"fails differently, {difference}"
                for record in violations
                if record["effective"] != Verdict.WAIVED and (difference := waiver.differs(record))
            }
        )


def _format_value(value: object) -> str:
    return (" ".join(map(str, value)) if isinstance(value, list) else str(value)) or "nothing"


def with_effective(
    record: ResultRecord,
    header: HeaderRecord,
    waivers: Waivers | None,
) -> ResultRecord:
    """Returns the result with its effective verdict in the run of this header: the verdict itself, WAIVED, or STACK.
    A result can count as STACK only if the subject of the run is a device, which includes its driver, firmware and
    provider. The other possible subject is the whole stack."""
    if waivers:
        record = waivers.applied(record, header)
    elif record["effective"] == Verdict.STACK:
        record = {**record, "effective": record["verdict"]}
    if (
        header.get("subject") == "device"
        and record["effective"] in VIOLATIONS
        and is_of_stack(record)
    ):
        return {**record, "effective": Verdict.STACK}
    return record
