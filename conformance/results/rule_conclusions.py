"""Draws the conclusion about each rule: the verdict, and the evidence that a run has not shown. The functions are pure.
model/rules.py defines the evidence that a rule needs."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from conformance.model.capability import OF_TEST_KERNELS
from conformance.model.record import EvidenceFacts, Missing, ResultRecord, Shows
from conformance.model.record_shape import precondition_of
from conformance.model.rules import GRANTED, REFUSED, Needs, is_evidence, named
from conformance.model.verdict import NOT_TESTABLE, VERDICTS, VIOLATIONS, Verdict
from conformance.results.conclusions import STANDING, Standing, counted, verdict_on
from conformance.tables.suite import POINT

# The reasons why a part of a rule's evidence is missing.
NOT_OFFERED, NOT_REACHED, BLOCKED, NOT_RUN, OPEN = (
    "not offered",
    "not reachable here",
    "blocked by a defect",
    "not in this run",
    "left open",
)
NO_CONTROL, CONTROL_NOT_OFFERED = (
    "refused, but its control was not seen",
    "refused, but its control is not offered",
)
# These reasons remain in a further run: the device does not offer the operation, or no document defines its outcome.
_NOT_OFFERED = (NOT_OFFERED, CONTROL_NOT_OFFERED)
_SETTLED = (*_NOT_OFFERED, OPEN)
_WHY = {Verdict.UNSUPPORTED: NOT_OFFERED, Verdict.UNREACHABLE: NOT_REACHED}


@dataclass
class RuleConclusion:
    """The conclusion from the results about one rule.

    If the rule passed in part, `needed` is the number of parts of its evidence, and `missing` names the parts that were
    not seen. `absent` has the number of cases that could not be checked, by the capability that an entry lacks, or by
    the reason why a case is UNREACHABLE. For rules with any other verdict, `missing` and `absent` are empty.
    """

    verdict: Verdict
    absent: dict[str, int] = field(default_factory=dict)
    needed: int = 0
    missing: dict[str, Missing] = field(default_factory=dict)

    @property
    def standing(self) -> Standing:
        """The status of the rule. A rule is verified for what the device offers if some of its evidence was seen, and
        the device does not offer what is missing."""
        seen = self.needed > len(self.missing)
        offered = all(part["why"] in _NOT_OFFERED for part in self.missing.values())
        if self.verdict == Verdict.PARTIAL and seen and offered:
            return Standing.OFFERED
        return STANDING[self.verdict]

    @property
    def restriction(self) -> str:
        """The missing evidence of a rule that was not verified completely, as a clause; empty for any other rule."""
        if self.verdict != Verdict.PARTIAL:
            return ""
        found: dict[str, list[str]] = {}
        for name, each in self.missing.items():
            because = f" ({each['because']})" if each["because"] not in ("", name) else ""
            found.setdefault(each["why"] + because, []).append(name)
        parts = "; ".join(f"{why}: {', '.join(names)}" for why, names in found.items())
        seen = self.needed - len(self.missing)
        return f"{self.standing.phrase} ({seen} of {self.needed}); {parts}"

    @property
    def settled(self) -> bool:
        """Whether no further run on this stack can show more evidence of the rule."""
        return all(each["why"] in _SETTLED for each in self.missing.values())

    def as_data(self) -> EvidenceFacts:
        return {
            "needed": self.needed,
            "seen": self.needed - len(self.missing),
            "missing": self.missing,
        }


def conclude_rules(results: Sequence[ResultRecord], needs: Needs) -> dict[str, RuleConclusion]:
    """Returns the conclusion about each rule that has a result. The verdict is the worst verdict of the rule's cases.

    UNSUPPORTED and UNREACHABLE are not worse than PASS. A PASS of a case with an open outcome verifies nothing, and
    does not replace missing evidence. If all cases pass, but not all evidence was seen, the verdict is PARTIAL.
    """
    by_rule: dict[str, list[ResultRecord]] = {}
    for record in results:
        for rule in record["rules"]:
            by_rule.setdefault(rule, []).append(record)
    granted = _granted(results)
    return {rule: _conclude(rule, records, needs, granted) for rule, records in by_rule.items()}


def touched(found: RuleConclusion) -> RuleConclusion:
    """Returns the conclusion about a rule in a run of the smallest tier, which verifies no rule."""
    if found.verdict != Verdict.PASS:
        return found
    missing: dict[str, Missing] = {"the cases of the default tier": {"why": NOT_RUN, "because": ""}}
    return replace(found, verdict=Verdict.PARTIAL, needed=found.needed + 1, missing=missing)


def unproven(results: Sequence[ResultRecord], needs: Needs) -> dict[str, str]:
    """Returns a text for each case whose refusal proves nothing, because the control of the refusal was not granted."""
    granted = _granted(results)
    return {
        record[
            "case"
        ]: f"the refusal proves nothing, because its control was not seen: {', '.join(controls)}"
        for record in results
        if (controls := _lost_controls(record, needs, granted))
    }


def _lost_controls(record: ResultRecord, needs: Needs, granted: Mapping[str, str]) -> list[str]:
    refusals = [
        named(shows["shows"], shows["on"])
        for verdict, shows in _shows(record)
        if verdict == Verdict.PASS and shows["shows"].startswith(REFUSED)
    ]
    controls = dict.fromkeys(map(needs.control_of, refusals))
    return [control for control in controls if granted.get(control) != Verdict.PASS]


def _granted(results: Iterable[ResultRecord]) -> Mapping[str, str]:
    """Returns the best verdict on each operation that had to be granted, by the name of the operation."""
    found: dict[str, str] = {}
    for record in results:
        for verdict, shows in _shows(record):
            if shows["shows"].startswith(GRANTED):
                name = named(shows["shows"], shows["on"])
                found[name] = max(found.get(name, verdict), verdict, key=VERDICTS.index)
    return found


def _shows(record: ResultRecord, rule: str = "") -> Iterator[tuple[Verdict, Shows]]:
    """Yields each part of the evidence in a result, for all rules or for one rule, with the verdict on this part. A
    waiver covers only violations: in a waived sweep, points that passed remain evidence."""
    known = record["effective"] if record["effective"] != record["verdict"] else None
    for each in record.get("evidence", ()):
        if not rule or each.get("rule", rule) == rule:
            verdict = Verdict(each.get("verdict", record["verdict"]))
            yield Verdict(known or verdict) if verdict in VIOLATIONS else verdict, each


def _conclude(
    rule: str, records: Sequence[ResultRecord], needs: Needs, granted: Mapping[str, str]
) -> RuleConclusion:
    verdicts = [verdict_on(rule, record) for record in records]
    worst = min(verdicts, key=VERDICTS.index)
    verified = any(
        verdict == Verdict.PASS and record["expected"].get("outcome") != "open"
        for verdict, record in zip(verdicts, records, strict=True)
    )
    if not verified and worst == Verdict.PASS and rule in needs.items:
        return RuleConclusion(
            Verdict.PARTIAL,
            needed=1,
            missing={"a documented outcome": {"why": OPEN, "because": ""}},
        )
    if worst not in (*NOT_TESTABLE, Verdict.PASS) or not verified:
        return RuleConclusion(worst)
    missing = {
        item: _why_missing(rule, item, records, needs, granted)
        for item in needs.items.get(rule, ())
        if not any(_is_seen(rule, item, record, needs, granted) for record in records)
    }
    needed = len(needs.items.get(rule, ()))
    count: Counter[str] = Counter()
    for verdict, record in zip(verdicts, records, strict=True):
        if not is_evidence(rule, record["call"]):
            continue
        if verdict in NOT_TESTABLE and not _needs_test_kernel(record):
            name = _absent(verdict, record)
            count[name] += 1
            if name in missing or not any(
                each["shows"] in missing for _, each in _shows(record, rule)
            ):
                missing[name] = {
                    "why": _why(verdict, record),
                    "because": counted(count[name], "case"),
                }
    run = len({record["case"] for record in records if POINT not in record["case"]})
    if (others := needs.cases.get(rule, 0) - run) > 0:
        missing[counted(others, "other case")] = {"why": NOT_RUN, "because": ""}
    needed += len([name for name in missing if name not in needs.items.get(rule, ())])
    return RuleConclusion(
        Verdict.PARTIAL if missing else Verdict.PASS, dict(count), needed, missing
    )


def _needs_test_kernel(record: ResultRecord) -> bool:
    """Whether a case was not run only because this kernel is not built for tests."""
    return list(precondition_of(record["observed"])) == [OF_TEST_KERNELS]


def _is_seen(
    rule: str, item: str, record: ResultRecord, needs: Needs, granted: Mapping[str, str]
) -> bool:
    return any(
        verdict == Verdict.PASS
        and each["shows"] == item
        and (
            item.startswith(GRANTED)
            or granted.get(needs.control_of(named(item, each["on"]))) == Verdict.PASS
        )
        for verdict, each in _shows(record, rule)
    )


def _why_missing(
    rule: str, item: str, records: Sequence[ResultRecord], needs: Needs, granted: Mapping[str, str]
) -> Missing:
    """Returns the reason why a part of the evidence is missing, from a result that could have shown this part."""
    found: dict[Verdict, tuple[ResultRecord, Shows]] = {}
    for record in records:
        for verdict, each in _shows(record, rule):
            if each["shows"] == item:
                found.setdefault(verdict, (record, each))
    if Verdict.PASS in found:
        control = needs.control_of(named(item, found[Verdict.PASS][1]["on"]))
        offered = granted.get(control) != Verdict.UNSUPPORTED
        return {"why": NO_CONTROL if offered else CONTROL_NOT_OFFERED, "because": control}
    for wanted in NOT_TESTABLE:
        if wanted in found:
            return {
                "why": _why(wanted, found[wanted][0]),
                "because": _absent(wanted, *found[wanted]),
            }
    return {"why": NOT_RUN, "because": ""}


def _why(verdict: Verdict, record: ResultRecord) -> str:
    """Returns why a result shows nothing. A row that is UNREACHABLE although its situation was set up was blocked: the
    device did not refuse what it must refuse, or refused what it must not."""
    set_up = record["observed"].keys().isdisjoint({"unreachable", "setup_failed"})
    return BLOCKED if verdict == Verdict.UNREACHABLE and set_up else _WHY[verdict]


def _absent(verdict: Verdict, record: ResultRecord, shows: Shows | None = None) -> str:
    """Returns the missing capabilities that a result, or the points of a sweep, report; else the result's reason."""
    points = [shows] if shows else [each for found, each in _shows(record) if found == verdict]
    reported = ", ".join(
        record["observed"].get("lacking")
        or dict.fromkeys(filter(None, (p.get("lacking") for p in points)))
    )
    if verdict == Verdict.UNSUPPORTED and reported:
        return f"{reported} at {record['entry']}" if record["entry"] else reported
    return reported or record["reason"]
