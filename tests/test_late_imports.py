"""Tests that a run on a device of this host loads nothing after its first worker has started: the library under test could
have changed it."""

import json
import os
import shutil
import sys
from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from conformance import cache
from conformance.results.records import read_written
from conformance.tables.suite import ROOT
from launched import ended
from project import TABLE
from samples import footer_of, laid

TESTS = Path(__file__).parent
CONFTEST = """
from fake_bench import *

pytest_plugins = ["conformance.pytest_plugin.plugin"]


class Bench(FakeBench):
    def allocate(self, kind: str, size: int) -> Range:
        return ReferenceBench.allocate(self, kind, size) if kind == "huge" else super().allocate(kind, size)


@pytest.fixture(scope="session")
def bench() -> Bench:
    return Bench(Accepting())


@pytest.fixture(scope="session")
def capabilities(bench: Bench) -> Capabilities:
    return bench.capabilities()


FACTS["caps"] = dict(Accepting().stack.declared)
"""
WAIVERS = """
waivers:
  - case: reg_mr/fake/wrongly-accepted
    where: {driver: fake}
    observed: {verdict: FAIL, returned: an MR}
    issue: https://example.org/1
    owner: somebody
    expires: EXPIRES
"""
# A sweep and a model with deviations, packets, a violation, a crash, and a case that passes.
CASES = {
    "reg_mr/access_space/every-combination@libibverbs": "FAIL",
    "access/registrations/slice": "FAIL",
    "wire/atomics/fetch-add-misaligned-by-1": "PASS",
    "reg_mr/fake/wrongly-accepted": "FAIL",
    "reg_mr/fake/dies": "CRASH",
    "reg_mr/fake/works": "PASS",
}
CHOSEN = [word for case in CASES for word in ("--only", case)]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a project that has the cases of the suite, and with the files that the options name."""
    files = {
        "project/conftest.py": CONFTEST,
        "project/tox.ini": "[pytest]\n",
        "tables/reg_mr/fake.yaml": TABLE,
        "waivers.yaml": WAIVERS.replace("EXPIRES", str(date.today() + timedelta(days=9))),
        "profile.yaml": "device: fake\npresent: {atomics: the driver has them}\n",
    }
    laid(tmp_path, files)
    shutil.copytree(ROOT / "cases", tmp_path / "project/cases")
    # formulas that an earlier process has found would hide what finding one loads
    (tmp_path / "derived").mkdir()
    for tables in Path(os.environ[cache.DIRECTORY]).glob("suite-*"):
        shutil.copy(tables, tmp_path / "derived")
    return tmp_path


def ran(place: Path, *arguments: str, signalled: int = -1) -> Mapping[str, Any]:
    """Makes a run in `place`; returns its status, and what it has loaded late."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(TESTS)]),
        cache.DIRECTORY: str(place / "derived"),
    }
    command = [sys.executable, TESTS / "late_imports.py", "project", signalled, *arguments]
    done = ended(*command, cwd=place, env=environment)
    assert done.returncode == 0, done.stderr
    answer: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.mark.slow
def test_a_run_beside_its_library_loads_nothing_after_its_first_worker_has_started(place):
    earlier = str(TESTS / "recorded_violations/forky.jsonl")
    options = ["--cases", "tables", "--waivers", "waivers.yaml", "--profile", "profile.yaml"]
    answer = ran(place, *CHOSEN, *options, "--against", earlier, "-v", "--out", "out")
    recorded = read_written(place / "out")
    assert {line["case"]: line["verdict"] for line in recorded.results} == CASES
    footer = footer_of(recorded)
    assert footer["confirmation"]["confirmed"]
    assert answer == {"status": 1, "late": []}
    assert (place / "out/report.html").exists()


@pytest.mark.nightly
def test_nor_does_a_run_that_is_interrupted_and_resumed(place):
    options = [*CHOSEN, "--cases", "tables", "--out", "out"]
    assert ran(place, *options, signalled=6) == {"status": 128 + 15, "late": []}
    assert ran(place, "--resume", "out") == {"status": 1, "late": []}
    recorded = read_written(place / "out")
    assert {line["case"]: line["verdict"] for line in recorded.results} == CASES
