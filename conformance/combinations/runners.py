"""The runner of each kind of case."""

from collections.abc import Callable, Mapping

from conformance.combinations.run import run_combinations
from conformance.execution.runner import (
    CaseRun,
    KindRunner,
    Progress,
    RunContext,
    run_api,
    run_calls,
    run_observing,
)
from conformance.model.case import Case
from conformance.model.kind import Kind
from conformance.model.observation import Observation
from conformance.sweeps.run import run_sweep

# A function that runs random sequences for a case. trial/ defines such a function, because trial/ has the oracle, and
# the engine does not import trial/.
RandomSequences = Callable[[Case, Progress], Observation]


def runners(random_sequences: RandomSequences) -> Mapping[Kind, KindRunner]:
    """Returns the runner of each kind of case. A point of a sweep has no runner, because it is run as a row."""

    def run_sequences(case: Case, run: RunContext, progress: Progress) -> CaseRun:
        return run_observing(case, run, lambda: random_sequences(case, progress), progress)

    return {
        Kind.ROW: run_calls,
        Kind.SWEEP: run_sweep,
        Kind.API: run_api,
        Kind.COMBINATIONS: run_combinations,
        Kind.SEQUENCES: run_sequences,
    }
