"""Kills at random moments of a run on a device of this host, and of its pytest; then --resume.

The guest stands for the host. RDMA_CTS_MOMENTS says how many of each there are.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from own_guest import told_by

# By day test_kills.py kills the same processes of runs in a guest, and test_supervision.py those of a worker on a host.
pytestmark = [pytest.mark.guest, pytest.mark.nightly]
MOMENTS = int(os.environ.get("RDMA_CTS_MOMENTS", "1"))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What tests/on_a_host.py saw."""
    return told_by("on_a_host.py", tmp_path_factory.mktemp("host"), str(MOMENTS), settings="PYTHONDONTWRITEBYTECODE=")


@pytest.mark.parametrize("who", ["supervisor", "pytest"])
def test_a_kill_at_any_moment_loses_nothing(found: dict[str, Any], who: str) -> None:
    assert len(found[who]) == MOMENTS
    for output in found[who]:
        assert output["same"], output
