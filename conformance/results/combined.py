"""Adds to the record of a case with combinations what its points show: verdicts of rules, and deviations that are
explained by values of parameters. The process that writes the results file computes them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from string import Template

from conformance.combinations.explanation import explained
from conformance.judging.combinations import Group, Judged, is_granted, verdicts_of_rules
from conformance.judging.sentences import sentence
from conformance.model.case import Case
from conformance.model.combinations import (
    CALLED,
    GRANTED,
    REFUSED,
    USE,
    CoveringArray,
    Point,
    check_of,
    circumstance,
    has_own_addresses,
    is_of_call,
    is_on_demand,
)
from conformance.model.fault import (
    ON_DEMAND,
    OWN_ADDRESSES,
    REGION,
    WINDOW,
    Effect,
    FaultKind,
    verdict_of,
)
from conformance.model.observation import Observation
from conformance.model.operations import BUILT_INLINE
from conformance.model.record import Deviation as DeviationFacts
from conformance.model.record import ResultRecord
from conformance.older_python import zip
from conformance.results import reached
from conformance.results.conclusions import format_counts, format_lacking

# The beginnings of the ids of rules about the addresses in requests.
_OF_ADDRESSES = ("IOVA-", "EX-", "REG-11")


def deviations(judged: Judged, case: Case) -> list[DeviationFacts]:
    """Returns the deviations, the most frequent first."""
    ordered = sorted(judged.groups.items(), key=lambda pair: -len(pair[1].points))
    return [_facts(judged, case, str(key[1]), group) for key, group in ordered]


def deviation_at(judged: Judged, case: Case, point: Point) -> DeviationFacts | None:
    """Returns what is wrong at one point of a model; None if nothing is."""
    for key, group in judged.groups.items():
        if point in group.points:
            return _facts(judged, case, str(key[1]), replace(group, points=[point]))
    return None


def _facts(judged: Judged, case: Case, rule: str, group: Group) -> DeviationFacts:
    model, aspect = judged.array.model, group.deviation.aspect
    smallest = min(group.points, key=lambda point: (model.weight(point), point))
    values, text = dict(zip(model.names, smallest, strict=True)), model.text(smallest)
    key, table = values.get("key", ""), model.name.rpartition("/")[2]
    bound = table == "binds"
    dead = key in ("ended", "deallocated")
    faults = judged.conditions.faults(smallest)
    refused_bind = bound and is_of_call(faults)
    called = _verb(Template(model.verb).substitute(values), group)
    if refused_bind and group.deviation.fault.effect is Effect.ACCEPTED:
        called = "ibv_bind_mw"
    fault = replace(
        group.deviation.fault,
        verb=called,
        call=f"{'access' if table == 'model' else table}({text})",
        entry=case.entry,
        operation=_operation(values, group.deviation.fault.effect),
        allowed_by="ibv_bind_mw" if refused_bind else "",
        check=check_of(values) if refused_bind else "",
        key=WINDOW if bound or key.startswith(("window", "rebound")) else REGION,
        outside=(f"{USE}range" if bound else "range") in faults,
        dead=dead,
        ended="ibv_dereg_mr" if dead and not bound else "",
        region=tuple(_properties(values, rule)),
    )
    if is_granted(group.found["answer"]):
        expected = GRANTED
    else:
        expected = REFUSED
    others = judged.passed.get((aspect, rule), [])
    return {
        "when": explained(model, judged.conditions, group.points, others),
        "minimal": False,
        "clause": "",
        "verdict": verdict_of(fault.kind),
        "expected": " ".join([expected, *fault.expected]),
        "observed": sentence(fault),
        "fault": fault.as_data(),
        "count": len(group.points),
        "of": len(group.points) + len(others),
        "smallest": dict(part.split("=", 1) for part in text.split(",")),
        "rules": [rule],
        "repro": shlex.join(["./rdma-cts", "run", "--only", f"{case.id}#{text}"]),
    }


def _properties(values: Mapping[str, str], rule: str) -> Iterator[str]:
    """Yields the special properties of the region of a point that explain a violation of the rule."""
    if is_on_demand(values):
        yield ON_DEMAND
    if rule.startswith(_OF_ADDRESSES) and has_own_addresses(values):
        yield OWN_ADDRESSES


def _verb(call: str, group: Group) -> str:
    """Returns the verb that shows a deviation: the call of the model, the look at pages, or the use."""
    deviation = group.deviation
    of_call = deviation.aspect == CALLED or group.found["answer"].get("called", "0") != "0"
    if of_call and deviation.fault.kind is not FaultKind.MOVED:
        return deviation.fault.verb or call or "traffic"
    return deviation.fault.verb or "traffic"


def with_command(record: ResultRecord, command: str) -> ResultRecord:
    """Returns the record with the command that runs its case, which ends with the case's id. The commands of its points
    get the same target."""
    record = {**record, "repro": command}
    if "deviations" in record:
        record["deviations"] = [_on_target(item, command) for item in record["deviations"]]
    return record


def _on_target(deviation: DeviationFacts, command: str) -> DeviationFacts:
    point = shlex.split(deviation.get("repro", ""))[-1:]
    if point:
        return {**deviation, "repro": shlex.join([*shlex.split(command)[:-1], *point])}
    return deviation


def _operation(values: Mapping[str, str], effect: Effect) -> str:
    """Returns the operation of a point, or that the failed requests of a builder had inline data."""
    reported = effect in (Effect.REFUSED, Effect.STATUS)
    if reported and circumstance(values, effect) == BUILT_INLINE:
        return BUILT_INLINE
    return values["operation"]


def with_points(record: ResultRecord, case: Case) -> ResultRecord:
    """Returns the record with the deviations and the verdicts of rules."""
    observed = record["observed"].get("combinations")
    if observed is None or case.array is None or not is_of_model(record["observed"], case.array):
        return record
    judged = Judged(case.array, observed)
    found = deviations(judged, case)
    pairs = reached.pairs(judged)
    reason = format_counts(pairs["points"])
    if found:
        first = found[0]
        reason += f"; {first['observed']}: {first['when']} ({first['count']} points)"
    if pairs["lacking"]:
        reason += f"; {format_lacking(pairs)}"
    kept = record.copy()
    kept["reason"] = reason
    return {
        **kept,
        "pairs": pairs,
        "unreached": reached.unseen(judged),
        "deviations": found,
        "rule_verdicts": verdicts_of_rules(case.rules, record["verdict"], _kind(record), judged),
    }


def is_of_model(observed: Observation, array: CoveringArray) -> bool:
    """Whether the points that were observed, if any, are those of the array's model as it is now."""
    return observed.get("combinations", {}).get("model", array.model.digest) == array.model.digest


def without_points(record: ResultRecord, case: Case) -> ResultRecord:
    """Returns the record of a case that has no observation, because the process or the kernel died."""
    verdicts = verdicts_of_rules(case.rules, record["verdict"], _kind(record), None)
    return {**record, "rule_verdicts": verdicts}


def _kind(record: ResultRecord) -> str:
    return str(record.get("fault", {}).get("kind", ""))
