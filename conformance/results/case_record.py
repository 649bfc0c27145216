"""Creates the record of a case of any kind, in the process that ran the case."""

from dataclasses import replace

from conformance.execution.runner import CaseRun
from conformance.judging import Judgement
from conformance.model.case import Case
from conformance.model.record import ObservedRecord, ResultRecord, SpaceFacts
from conformance.model.rules import Registry
from conformance.model.verdict import Verdict
from conformance.results.new_records import result_record
from conformance.sweeps.judging import SweepResult, clauses
from conformance.sweeps.run import SweepRun


def case_record(run: CaseRun, registry: Registry) -> ResultRecord:
    """Returns the record of a case; for a sweep, with the points under `points_data`."""
    if isinstance(run, SweepRun):
        return sweep_record(run.case, registry, run.result, run.duration_us)
    return result_record(
        run.case,
        registry,
        run.judgement,
        run.observation,
        kernel=run.kernel,
        duration_us=run.duration_us,
    )


def observed_record(run: CaseRun) -> ObservedRecord:
    """Returns the record of a case that the supervisor judges."""
    return {
        "type": "observed",
        "case": run.case.id,
        "observed": run.observation,
        "kernel": run.kernel,
        "duration_us": run.duration_us,
    }


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
