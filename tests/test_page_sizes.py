"""No expectation depends on pages of 4 KiB: every case also passes on the reference with other page sizes."""

import json
import os
import sys

import pytest

from conformance.tables.suite import ROOT
from launched import ended


@pytest.mark.parametrize(
    ("size", "every"), [(64 << 10, 4), *(pytest.param(size << 10, 1, marks=pytest.mark.nightly) for size in (16, 64))]
)
def test_cases_pass_with_larger_pages(size: int, every: int) -> None:
    """By day, every fourth case is tried."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = ended(sys.executable, "tests/on_large_pages.py", size, every, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["wrong"] == []
    assert found["cases"] == found["planned"] > 1000 // every
