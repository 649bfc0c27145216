"""The pytest fixture with which the engine runs cases of random sequences. Every session loads this module, but few
sessions run sequences. Therefore the reference is imported only when it is needed."""

from __future__ import annotations

import pytest

from conformance.bench.interface import Bench
from conformance.combinations.runners import RandomSequences
from conformance.execution.runner import Progress
from conformance.model.capability import Capabilities
from conformance.model.case import Case
from conformance.model.observation import Observation


@pytest.fixture(scope="session")
def random_sequences(
    pytestconfig: pytest.Config,
    bench: Bench,
    capabilities: Capabilities,
) -> RandomSequences:
    """Returns the function that runs random sequences at a case's entry, for --rdma-sequences seconds, from the seed
    --rdma-seed."""
    from trial.searching import FIRST_SEED, for_seconds, observe

    seed = pytestconfig.getoption("--rdma-seed")

    def search(case: Case, progress: Progress) -> Observation:
        over = for_seconds(pytestconfig.getoption("--rdma-sequences"))
        return observe(
            case,
            bench,
            capabilities,
            over,
            FIRST_SEED if seed is None else seed,
            progress,
        )

    return search
