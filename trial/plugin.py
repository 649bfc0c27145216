"""pytest's side of random sequences: the fixture that the engine asks for when a case stands for them.

Every session loads this module, and few of them make sequences: the reference is loaded when it is needed.
"""

from __future__ import annotations

import pytest

from conformance.bench.interface import Bench
from conformance.execution.runner import Progress
from conformance.model.capability import Capabilities
from conformance.model.case import Case
from conformance.model.observation import Observation
from conformance.sweeps.runners import RandomSequences


@pytest.fixture(scope="session")
def random_sequences(pytestconfig: pytest.Config, bench: Bench, capabilities: Capabilities) -> RandomSequences:
    """Tries sequences at a case's entry for as long as --rdma-sequences says, from --rdma-seed on."""
    from trial.searching import FIRST_SEED, for_seconds, observe

    seed = pytestconfig.getoption("--rdma-seed")

    def search(case: Case, progress: Progress) -> Observation:
        over = for_seconds(pytestconfig.getoption("--rdma-sequences"))
        return observe(case, bench, capabilities, over, FIRST_SEED if seed is None else seed, progress)

    return search
