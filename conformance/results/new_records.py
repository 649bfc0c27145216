"""Creates the records of a results file: the result of a case, and the footer of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from conformance.judging import Judgement
from conformance.judging.answering_layer import answering_layer
from conformance.judging.wire import REPORTS
from conformance.model.case import Case
from conformance.model.fault import REPEATED, Effect, Fault
from conformance.model.kind import Kind
from conformance.model.observation import KernelEvidence, Observation
from conformance.model.record import (
    ConfirmationRecord,
    FooterRecord,
    Occurrence,
    ResultRecord,
)
from conformance.model.rules import NAK_CODES, Registry
from conformance.model.set_up import set_up_of
from conformance.model.verdict import VIOLATIONS, Verdict
from conformance.model.vocabulary import WIRE
from conformance.results.combined import with_points, without_points
from conformance.results.rule_conclusions import conclude_rules
from conformance.tables.suite import Suite


def result_record(
    case: Case,
    registry: Registry,
    judgement: Judgement,
    observed: Observation,
    *,
    kernel: KernelEvidence | None = None,
    duration_us: int | None = None,
) -> ResultRecord:
    levels = {registry[rule].level for rule in case.rules}
    record: ResultRecord = {
        "type": "result",
        "case": case.id,
        "rules": list(case.rules),
        "level": next(level for level in ("must", "should", "may") if level in levels),
        "entry": case.entry,
        "layer": answering_layer(case, observed),
        "verdict": Verdict(judgement.verdict),
        "effective": Verdict(judgement.verdict),
        "waiver": None,
        "reason": judgement.reason,
        **({"fault": judgement.fault.as_data()} if judgement.fault else {}),  # type: ignore[typeddict-item]
        "call": str(case.when),
        "expected": expected(case),
        "observed": observed,
        "source": {"file": case.location.file, "line": case.location.line},
        "kernel": kernel or {},
        "duration_us": duration_us,
        "repro": f"./rdma-cts run --only {case.id}",
    }
    if judgement.notes:
        record["notes"] = list(judgement.notes)
    if judgement.verdict in (*VIOLATIONS, Verdict.BROKEN) and case.kind is not Kind.SWEEP:
        record["set_up"] = set_up_of(case)
    if judgement.fault and (kept := _kept_rules(case, registry, judgement.fault, observed)):
        verdicts = dict.fromkeys(case.rules, Verdict(judgement.verdict))
        record["rule_verdicts"] = {**verdicts, **kept}
    if "combinations" in observed:
        return with_points(record, case)
    if case.array is not None:
        return without_points(record, case)
    return record


def _kept_rules(
    case: Case, registry: Registry, fault: Fault, observed: Observation
) -> dict[str, Verdict]:
    """Returns the verdict on each rule whose statement a fault with packets does not break. Only rules of level `should`
    demand reports, and that a request which was granted is answered again. What is not refused has no code."""
    if case.when.call != WIRE:
        return {}
    should = [rule for rule in case.rules if registry[rule].level == "should"]
    exchange = observed.get("exchange", [])
    events = [event for event in exchange if event["operation"] == fault.operation]
    granted = fault.check == REPEATED and events and events[0]["seen"] in events[0]["expected"]
    again = granted and fault.effect is Effect.REFUSED
    if should and (again or fault.kind in REPORTS):
        return {rule: Verdict.PASS for rule in case.rules if rule not in should}
    if fault.effect in (Effect.MOVED, Effect.ACCEPTED) and case.rules != (NAK_CODES,):
        return {rule: Verdict.UNREACHABLE for rule in case.rules if rule == NAK_CODES}
    return {}


def occurrence(record: ResultRecord) -> Occurrence:
    """Returns the violation of a result, for the record of its confirmation. A sweep has no `observed`; its points have
    the observations."""
    occurrence: Occurrence = {"verdict": record["verdict"], "reason": record["reason"]}
    if record.get("fault"):
        occurrence["fault"] = record["fault"]
    if record["observed"]:
        return {**occurrence, "observed": record["observed"]}
    return occurrence


def expected(case: Case) -> dict[str, Any]:
    data = case.when.then.as_data()
    if case.afterwards:
        data["afterwards"] = [
            {"call": str(step), **step.then.as_data()} for step in case.afterwards
        ]
    return data


def plan_facts(suite: Suite, planned: Sequence[str]) -> dict[str, Any]:
    """Returns the part of a header that follows from the suite and from the ids of the planned cases."""
    return {
        "rules": suite.registry.as_data(),
        "controls": dict(suite.registry.needs.controls),
        "planned": list(planned),
        "left_out": len(suite.left_out(planned)),
    }


def footer_record(
    planned: Sequence[str],
    results: Iterable[ResultRecord],
    registry: Registry,
    *,
    duration_s: float,
    boots: int | None = None,
    resumed: int | None = None,
) -> FooterRecord:
    """Returns the footer. `complete` is true only if every planned case has a result other than MISSED. `boots` is the
    number of workers in all sessions, `resumed` the number of resumptions; both are None without a supervisor."""
    records = {record["case"]: record for record in results}
    by_case = {case: records[case] for case in planned if case in records}
    by_case |= records
    effective = [record["effective"] for record in by_case.values()]
    concluded = conclude_rules(list(by_case.values()), registry.needs)
    rules = {rule: concluded[rule].verdict for rule in registry if rule in concluded}
    footer: FooterRecord = {
        "type": "footer",
        "complete": all(
            case in by_case and by_case[case]["verdict"] != Verdict.MISSED for case in planned
        ),
        "verdicts": dict(Counter(effective)),
        "rules": rules,
        "rule_totals": {
            **dict(Counter(rules.values())),
            "without_case": len(registry) - len(rules),
        },
        "points": sum(
            sum(record["points"].values()) if "points" in record else 1
            for record in by_case.values()
        ),
        "duration_s": round(duration_s, 3),
    }
    restricted = {rule: concluded[rule].absent for rule in rules if concluded[rule].absent}
    if restricted:
        footer["not_offered"] = restricted
    if partial := {
        rule: concluded[rule].as_data() for rule in rules if rules[rule] == Verdict.PARTIAL
    }:
        footer["rule_evidence"] = partial
    if boots is not None:
        footer["boots"] = boots
    if resumed is not None:
        footer["resumed"] = resumed
    return footer


def account_of(confirmations: Sequence[ConfirmationRecord], not_tried: int) -> dict[str, int]:
    """Returns the part of the footer about the repeated violations."""
    confirmed = sum(record["confirmed"] for record in confirmations)
    return {
        "confirmed": confirmed,
        "not_confirmed": len(confirmations) - confirmed,
        "not_tried": not_tried,
    }
