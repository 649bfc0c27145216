"""pytest's side of random sequences: what the engine asks for when a case's call stands for them.

Every session loads this module, and few of them make sequences: the reference is loaded when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from conformance.bench.interface import Bench
from conformance.execution.context import Observation
from conformance.model.capability import Capabilities
from conformance.model.case import Case

if TYPE_CHECKING:
    from trial.searching import Tell


@pytest.fixture(scope="session")
def random_sequences(
    pytestconfig: pytest.Config, bench: Bench, capabilities: Capabilities
) -> Callable[[Case, Tell], Observation]:
    """Tries sequences at a case's entry for as long as --rdma-sequences says, from --rdma-seed on."""
    from trial.searching import FIRST_SEED, for_seconds, observe

    seed = pytestconfig.getoption("--rdma-seed")

    def search(case: Case, tell: Tell) -> Observation:
        over = for_seconds(pytestconfig.getoption("--rdma-sequences"))
        return observe(case, bench, capabilities, over, FIRST_SEED if seed is None else seed, tell)

    return search
