"""Creates the record of a case of any kind, in the process that ran the case."""

from conformance.execution.runner import CaseRun
from conformance.model.record import ObservedRecord, ResultRecord
from conformance.model.rules import Registry
from conformance.results.new_records import result_record
from conformance.results.sweep_record import sweep_record
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
