"""No expectation depends on pages of 4 KiB: every case also passes on the reference with other page sizes."""

import json
import os
import subprocess
import sys

import pytest

from conformance.tables.suite import ROOT


@pytest.mark.parametrize("size", [pytest.param(16 << 10, marks=pytest.mark.nightly), 64 << 10])
def test_every_case_passes_with_larger_pages(size: int) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "tests/on_large_pages.py"), str(size)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["wrong"] == []
    assert found["cases"] == found["planned"] > 1000
