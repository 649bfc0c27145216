"""Draws the conclusion about each rule: the verdict, and the evidence that a run has not shown. The functions are pure.
model/rules.py defines the evidence that a rule needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from conformance.model.capability import OF_TEST_KERNELS
from conformance.model.record import EvidenceFacts, Missing, ResultRecord, Shows
from conformance.model.record_shape import precondition_of
from conformance.model.rules import GRANTED, REFUSED, Needs, is_evidence, named
from conformance.model.verdict import NOT_TESTABLE, VERDICTS, VIOLATIONS, Verdict
from conformance.older_python import zip
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
# The labels of a rule that is verified for what the device offers, and of a rule whose every outcome is open.
OFFERED, LEFT_OPEN = "OFFERED", "OPEN"
# These reasons remain in a further run: the device does not offer the operation, or no document defines its outcome.
_NOT_OFFERED = (NOT_OFFERED, CONTROL_NOT_OFFERED)
_SETTLED = (*_NOT_OFFERED, OPEN)
_WHY = {Verdict.UNSUPPORTED: NOT_OFFERED, Verdict.UNREACHABLE: NOT_REACHED}
# By its text: twice as fast as the constructor, which is called for each part of the evidence.
_VERDICTS: Mapping[str, Verdict] = {str(verdict): verdict for verdict in Verdict}
_LABELS = {
    Standing.OFFERED: OFFERED,
    Standing.LEFT_OPEN: LEFT_OPEN,
    Standing.UNSUPPORTED: Verdict.UNSUPPORTED,
}


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
        the device does not offer what is missing; it is unsupported if this is all its evidence. It is left open if no
        result shows an outcome that the documents define."""
        if self.verdict != Verdict.PARTIAL:
            return STANDING[self.verdict]
        reasons = {part["why"] for part in self.missing.values()}
        if reasons == {OPEN} and self.needed == 1:
            return Standing.LEFT_OPEN
        if self.needed > len(self.missing) and reasons.issubset(_NOT_OFFERED):
            return Standing.OFFERED
        if self.needed == len(self.missing) and reasons == {NOT_OFFERED}:
            return Standing.UNSUPPORTED
        return Standing.IN_PART

    @property
    def label(self) -> str:
        """The verdict as one word for cells, which tells the standings of a PARTIAL rule apart."""
        return _LABELS.get(self.standing, self.verdict)

    @property
    def restriction(self) -> str:
        """The missing evidence of a rule that was not verified completely, as a clause; empty for any other rule."""
        if self.verdict != Verdict.PARTIAL:
            return ""
        if self.standing == Standing.LEFT_OPEN:
            return f"{self.standing.phrase}: no case that ran shows a documented outcome"
        reasons: dict[str, list[str]] = {}
        for name, item in self.missing.items():
            if item["because"] not in ("", name):
                because = f" ({item['because']})"
            else:
                because = ""
            reasons.setdefault(item["why"] + because, []).append(name)
        parts = "; ".join(f"{why}: {', '.join(names)}" for why, names in reasons.items())
        seen = self.needed - len(self.missing)
        return f"{self.standing.phrase} ({seen} of {self.needed}); {parts}"

    @property
    def settled(self) -> bool:
        """Whether no further run on this stack can show more evidence of the rule."""
        return all(reasons["why"] in _SETTLED for reasons in self.missing.values())

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


def touched(conclusion: RuleConclusion) -> RuleConclusion:
    """Returns the conclusion about a rule in a run of the smallest tier, which verifies no rule."""
    if conclusion.verdict != Verdict.PASS:
        return conclusion
    missing: dict[str, Missing] = {"the cases of the default tier": {"why": NOT_RUN, "because": ""}}
    return replace(
        conclusion, verdict=Verdict.PARTIAL, needed=conclusion.needed + 1, missing=missing
    )


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
    granted: dict[str, str] = {}
    for record in results:
        for verdict, shows in _shows(record):
            if shows["shows"].startswith(GRANTED):
                name = named(shows["shows"], shows["on"])
                granted[name] = max(granted.get(name, verdict), verdict, key=VERDICTS.index)
    return granted


def _shows(record: ResultRecord, rule: str = "") -> Iterator[tuple[Verdict, Shows]]:
    """Yields each part of the evidence in a result, for all rules or for one rule, with the verdict on this part. A
    waiver covers only violations: in a waived sweep, points that passed remain evidence."""
    if record["effective"] != record["verdict"]:
        exclusion = _VERDICTS[record["effective"]]
    else:
        exclusion = None
    for item in record.get("evidence", ()):
        if not rule or item.get("rule", rule) == rule:
            verdict = _VERDICTS[item.get("verdict", record["verdict"])]
            if verdict in VIOLATIONS:
                yield exclusion or verdict, item
            else:
                yield verdict, item


def _conclude(
    rule: str,
    records: Sequence[ResultRecord],
    needs: Needs,
    granted: Mapping[str, str],
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
            needed=1 + any(map(_shows_later, records)),
            missing={"a documented outcome": {"why": OPEN, "because": ""}},
        )
    if worst not in (*NOT_TESTABLE, Verdict.PASS) or not verified:
        return RuleConclusion(worst)
    missing = {}
    for item in needs.items.get(rule, ()):
        if not any(_is_seen(rule, item, record, needs, granted) for record in records):
            missing[item] = _why_missing(rule, item, records, needs, granted)
    needed = len(needs.items.get(rule, ()))
    count: Counter[str] = Counter()
    for verdict, record in zip(verdicts, records, strict=True):
        if not is_evidence(rule, record["call"]):
            continue
        if verdict in NOT_TESTABLE and not _needs_test_kernel(record):
            name = _absent(verdict, record)
            count[name] += 1
            why = _why(verdict, record)
            before = missing.get(name)
            if before and before["why"] not in _NOT_OFFERED:
                # Two results have one text: what the device offers was not seen.
                why = before["why"]
            if name in missing or not any(
                evidence["shows"] in missing for _, evidence in _shows(record, rule)
            ):
                missing[name] = {
                    "why": why,
                    "because": counted(count[name], "case"),
                }
        if verdict == Verdict.PASS and (unreached := _unreached(rule, record)):
            # Where points violate another rule, what they would have shown about this one is hidden.
            of_model = _is_of_model(record)
            blocked = of_model and record["verdict"] in VIOLATIONS
            missing[record["case"]] = {
                "why": BLOCKED if blocked else NOT_REACHED,
                "because": counted(unreached, "combination" if of_model else "point"),
            }
    run = len({record["case"] for record in records if POINT not in record["case"]})
    if (not_run := needs.cases.get(rule, 0) - run) > 0:
        missing[counted(not_run, "other case")] = {"why": NOT_RUN, "because": ""}
    needed += len([name for name in missing if name not in needs.items.get(rule, ())])
    return RuleConclusion(
        Verdict.PARTIAL if missing else Verdict.PASS,
        dict(count),
        needed,
        missing,
    )


def _shows_later(record: ResultRecord) -> bool:
    """Whether the documents define the outcome of a step that was made after the judged call."""
    steps = zip(
        record["expected"].get("afterwards", ()),
        record["observed"].get("afterwards", ()),
        strict=False,
    )
    return any(expected.get("outcome") != "open" for expected, _ in steps)


def _unreached(rule: str, record: ResultRecord) -> int:
    """Returns how many points of a sweep show nothing about a rule, because they were UNREACHABLE, or how many
    combinations of values of a model; 0 for older results, which do not count them by rule. The tries of a race repeat
    one experiment, so that one is enough."""
    if record.get("space", {}).get("tries"):
        return 0
    return record.get("unreached", {}).get(rule, 0)


def _needs_test_kernel(record: ResultRecord) -> bool:
    """Whether a case was not run only because this kernel is not built for tests."""
    return list(precondition_of(record["observed"])) == [OF_TEST_KERNELS]


def _is_seen(
    rule: str,
    item: str,
    record: ResultRecord,
    needs: Needs,
    granted: Mapping[str, str],
) -> bool:
    return any(
        verdict == Verdict.PASS
        and evidence["shows"] == item
        and (
            item.startswith(GRANTED)
            or granted.get(needs.control_of(named(item, evidence["on"]))) == Verdict.PASS
        )
        for verdict, evidence in _shows(record, rule)
    )


def _why_missing(
    rule: str,
    item: str,
    records: Sequence[ResultRecord],
    needs: Needs,
    granted: Mapping[str, str],
) -> Missing:
    """Returns the reason why a part of the evidence is missing, from a result that could have shown this part."""
    reasons: dict[Verdict, tuple[ResultRecord, Shows]] = {}
    for record in records:
        for verdict, evidence in _shows(record, rule):
            if evidence["shows"] == item:
                reasons.setdefault(verdict, (record, evidence))
    if Verdict.PASS in reasons:
        control = needs.control_of(named(item, reasons[Verdict.PASS][1]["on"]))
        offered = granted.get(control) != Verdict.UNSUPPORTED
        return {"why": NO_CONTROL if offered else CONTROL_NOT_OFFERED, "because": control}
    for lacks in NOT_TESTABLE:
        if lacks in reasons:
            return {
                "why": _why(lacks, reasons[lacks][0]),
                "because": _absent(lacks, *reasons[lacks]),
            }
    return {"why": NOT_RUN, "because": ""}


def _why(verdict: Verdict, record: ResultRecord) -> str:
    """Returns why a result shows nothing. A row that is UNREACHABLE although its situation was set up was blocked: the
    device did not refuse what it must refuse, or refused what it must not."""
    set_up = record["observed"].keys().isdisjoint({"unreachable", "no_binding", "setup_failed"})
    if verdict == Verdict.UNREACHABLE and set_up:
        return BLOCKED
    return _WHY[verdict]


def _absent(verdict: Verdict, record: ResultRecord, shows: Shows | None = None) -> str:
    """Returns the missing capabilities that a result, or the points of a sweep, report; else the result's reason."""
    if shows:
        points = [shows]
    else:
        points = [evidence for verdict_here, evidence in _shows(record) if verdict_here == verdict]
    reported = ", ".join(
        record["observed"].get("lacking")
        or dict.fromkeys(filter(None, (p.get("lacking") for p in points))),
    )
    if verdict == Verdict.UNSUPPORTED and reported:
        if record["entry"]:
            return f"{reported} at {record['entry']}"
        return reported
    return reported or _short(record)


def _is_of_model(record: ResultRecord) -> bool:
    return bool(record.get("pairs", {}).get("states"))


def _short(record: ResultRecord) -> str:
    """Returns the reason of a result. The reason of a sweep or of a model is only its numbers, because its points follow
    them."""
    if record.get("space") or _is_of_model(record):
        return f"{record['case']}, {record['reason'].partition(';')[0]}"
    return record["reason"]
