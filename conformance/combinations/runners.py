"""The runner of each kind of case."""

from collections.abc import Mapping

from conformance.combinations.run import run_combinations
from conformance.execution.runner import (
    KindRunner,
    run_api,
    run_calls,
)
from conformance.model.kind import Kind
from conformance.sweeps.run import run_sweep

# A point of a sweep has no runner, because it is run as a row.
RUNNERS: Mapping[Kind, KindRunner] = {
    Kind.ROW: run_calls,
    Kind.SWEEP: run_sweep,
    Kind.API: run_api,
    Kind.COMBINATIONS: run_combinations,
}
