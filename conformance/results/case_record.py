"""The record of a case that has been run, for every kind of case. Not for writing it (writer.py)."""

from conformance.execution.runner import CaseRun
from conformance.model.record import ResultRecord
from conformance.model.rules import Registry
from conformance.results.records import result_record
from conformance.results.sweep_record import sweep_record
from conformance.sweeps.run import SweepRun


def case_record(run: CaseRun, registry: Registry) -> ResultRecord:
    """The record of a case. That of a sweep has its points under `points_data`."""
    if isinstance(run, SweepRun):
        return sweep_record(run.case, registry, run.result, run.duration_us)
    return result_record(
        run.case, registry, run.judgement, run.observation, kernel=run.kernel, duration_us=run.duration_us
    )
