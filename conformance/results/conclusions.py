"""What recorded results come to: the verdict on a rule, its headline, and the exit status of a run. Pure.

Not for judging a case (judging/) and not for the layout of reports.
"""

from __future__ import annotations

from collections.abc import Iterable

from conformance.model.record import FooterRecord, ResultRecord
from conformance.model.rules import Registry
from conformance.model.verdict import INCOMPLETE, VERDICTS, VIOLATIONS, Verdict


def rule_verdicts(results: Iterable[ResultRecord], registry: Registry) -> dict[str, Verdict]:
    """For each rule that has a result, the worst verdict of its cases, in the registry's order."""
    worst: dict[str, Verdict] = {}
    for record in results:
        for rule in record["rules"]:
            both = (worst.get(rule, Verdict.PASS), verdict_on(rule, record))
            worst[rule] = min(both, key=VERDICTS.index)
    return {rule: worst[rule] for rule in registry if rule in worst}


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
        among = f" among {first['clause']}" if first.get("clause") else ""
        of = f" of {first['of']:,}" if first.get("of") else ""
        text += f": {first['when']}{among} ({first['count']:,}{of} points)"
    text += f" (and {len(own) - 1} more ways)" if len(own) > 1 else ""
    return text, first.get("repro") or record["repro"]


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
