"""Creates the record of a sweep that was judged. It imports nothing that runs cases, because `judge` needs it too."""

from dataclasses import replace

from conformance.judging import Judgement
from conformance.model.case import Case
from conformance.model.record import ResultRecord, SpaceFacts
from conformance.model.rules import Registry
from conformance.model.verdict import Verdict
from conformance.results.new_records import result_record
from conformance.sweeps.judging import SweepResult, clauses


def sweep_record(
    case: Case,
    registry: Registry,
    result: SweepResult,
    duration_us: int,
) -> ResultRecord:
    assert case.sweep is not None
    judgement = Judgement(result.verdict, result.reason, fault=result.fault)
    by_rule = result.points.by_rule()
    # A set-up that is first refused and then succeeds violates a rule, even if the row does not name the rule.
    rules = tuple(dict.fromkeys([*case.rules, *(rule for rule in by_rule if rule in registry)]))
    record = result_record(
        replace(case, rules=rules),
        registry,
        judgement,
        {},
        kernel=result.kernel,
        duration_us=duration_us,
    )
    tries: SpaceFacts = {"tries": True} if case.sweep.tries else {}
    record |= {
        "expected": {"clauses": clauses(case)},
        "space": {"axes": case.sweep.space.as_data(), "size": case.sweep.size, **tries},
        "points": result.points.by_verdict(),
        "unreached": result.points.unreached(),
        # The points of any rule may have caused the error of the kernel.
        "rule_verdicts": dict.fromkeys(by_rule, Verdict.FAIL) if result.alarms else by_rule,
        "points_data": result.points.as_data(case.id),
    }
    if result.alarms:
        record["alarms"] = result.alarms
    return record
