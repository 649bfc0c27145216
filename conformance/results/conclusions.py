"""Conclusions from recorded results: the verdict on a rule, its headline, and the exit status of a run. Pure functions.

Not for judging a case (judging/) and not for the layout of reports.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from conformance.model.record import Deviation, FooterRecord, ResultRecord
from conformance.model.rules import Registry
from conformance.model.verdict import INCOMPLETE, VERDICTS, VIOLATIONS, Verdict

# What says nothing against a rule that other cases verify: the device or the stack does not offer that part.
_ABSENT = (Verdict.UNREACHABLE, Verdict.UNSUPPORTED)


@dataclass
class RuleConclusion:
    """What the results come to for one rule.

    `absent` says which part of a verified rule could not be checked: for each capability missing at an entry, or
    each reason why a case cannot be reached, the number of cases. It is empty for any other verdict.
    """

    verdict: Verdict
    absent: dict[str, int] = field(default_factory=dict)

    @property
    def restriction(self) -> str:
        """Which part of the rule was not offered, as a clause for people; empty if all of it was."""
        if not self.absent:
            return ""
        parts = "; ".join(
            f"{what} ({count:,} {'case' if count == 1 else 'cases'})" for what, count in self.absent.items()
        )
        return f"verified where the device offers it; not offered: {parts}"


def conclude_rules(results: Iterable[ResultRecord]) -> dict[str, RuleConclusion]:
    """For each rule that has a result, the worst verdict of its cases, but for what the device does not offer.

    UNSUPPORTED and UNREACHABLE do not outrank a PASS: the rule is verified where the device offers it. A PASS of a case
    that the documents leave open verifies nothing, and does not make up for a part that is absent.
    """
    by_rule: dict[str, list[ResultRecord]] = {}
    for record in results:
        for rule in record["rules"]:
            by_rule.setdefault(rule, []).append(record)
    return {rule: _conclude(rule, records) for rule, records in by_rule.items()}


def _conclude(rule: str, records: Sequence[ResultRecord]) -> RuleConclusion:
    verdicts = [verdict_on(rule, record) for record in records]
    worst = min(verdicts, key=VERDICTS.index)
    verified = any(
        verdict == Verdict.PASS and record["expected"].get("outcome") != "open"
        for verdict, record in zip(verdicts, records, strict=True)
    )
    if worst not in _ABSENT or not verified:
        return RuleConclusion(worst)
    count: Counter[str] = Counter()
    for verdict, record in zip(verdicts, records, strict=True):
        if verdict in _ABSENT:
            count[_absent(verdict, record)] += 1
    return RuleConclusion(Verdict.PASS, dict(count))


def _absent(verdict: Verdict, record: ResultRecord) -> str:
    lacking = record["observed"].get("lacking", ())
    if verdict == Verdict.UNSUPPORTED and lacking:
        return f"{', '.join(lacking)} at {record['entry']}" if record["entry"] else ", ".join(lacking)
    return record["reason"]


def rule_verdicts(results: Iterable[ResultRecord], registry: Registry) -> dict[str, Verdict]:
    """The verdict on each rule that has a result (see `conclude_rules`), in the registry's order."""
    found = conclude_rules(results)
    return {rule: found[rule].verdict for rule in registry if rule in found}


def verdict_on(rule: str, record: ResultRecord) -> Verdict:
    """The verdict of a result on one of its rules: the effective one, or of a sweep that of the rule's points."""
    points = Verdict(record.get("rule_verdicts", {}).get(rule, record["effective"]))
    waived = record["effective"] != record["verdict"] and points in VIOLATIONS
    return record["effective"] if waived else points


def headline(rule: str, record: ResultRecord) -> tuple[str, str]:
    """One line on what a result shows of one of its rules, and the command that reproduces it.

    Of a sweep, the line is about the largest group of deviating points of the rule, and the command runs the smallest
    of these; of random sequences, both are about the first one that deviates.
    """
    own = [each for each in record.get("deviations", ()) if rule in each["rules"]]
    if not own:
        return record["reason"], record["repro"]
    first = own[0]
    text = first.get("observed") or record["reason"]
    if first.get("count"):
        text += f" ({format_points(first)})"
    return text + format_more(len(own) - 1), first.get("repro") or record["repro"]


def format_points(deviation: Deviation) -> str:
    """Which points of a sweep deviate: `32 of 96 points where PREFETCH: those with !LOCAL_WRITE`."""
    count, of = deviation.get("count") or 0, deviation.get("of") or 0
    where = f" where {deviation['clause']}" if deviation.get("clause") else ""
    if deviation["when"] in ("", "always"):
        return f"the only point{where}" if count == 1 else f"all {count:,} points{where}"
    among = f" of {of:,}" if of else ""
    return f"{count:,}{among} {'point' if (of or count) == 1 else 'points'}{where}: those with {deviation['when']}"


def format_more(number: int) -> str:
    """That there are more groups of points than the one that was told; empty if there are none."""
    return f" (and {number} more way{'s' if number > 1 else ''})" if number > 0 else ""


def exit_status(footer: FooterRecord) -> int:
    """The exit status of the contract: 0 conformant, 1 violated, 3 incomplete or broken.

    A violation counts even if the run is incomplete. A waiver that has expired, is not needed or does not fit counts
    as a violation, because somebody has to look at it.
    """
    verdicts = footer["verdicts"]
    if footer.get("waivers", {}).get("problems"):
        return 1
    if any(verdicts.get(verdict) for verdict in VIOLATIONS):
        return 1
    if not footer["complete"] or any(verdicts.get(verdict) for verdict in INCOMPLETE):
        return 3
    return 0
