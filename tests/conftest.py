"""Fixtures for the tests of the suite itself."""

from __future__ import annotations

import functools
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from actors import Stage
from commands.__main__ import main
from conformance import cache
from conformance.model.rules import Registry
from conformance.results import records
from conformance.tables import suite
from conformance.tables.suite import ROOT
from fixtures.system.cache import cache_directory, use_bytecode
from kinds import Cli, Said, Says
from project import TABLE, Project
from samples import laid, numbered

# While pytest collects the tests, almost no garbage is made; the search for it would take a fifth of this time.
gc.disable()

# Tests read the tables hundreds of times. All processes of a session use the tables that the first process has parsed.
if cache.DIRECTORY not in os.environ:
    _kept = tempfile.TemporaryDirectory(prefix="rdma-cts-tests-")  # removed when this process ends
    os.chmod(_kept.name, 0o755)  # also readable for processes that a test starts as another user
    os.environ[cache.DIRECTORY] = _kept.name
    _parsed = f"derived/host/suite-{suite._digest_of_sources([suite.CASES])}.pickle"
    if cache.is_own(cache_directory() / _parsed):  # a command has parsed the same tables before
        shutil.copy(cache_directory() / _parsed, _kept.name)

# The processes share bytecode too, even if the environment forbids bytecode next to the sources. Without shared
# bytecode, each process of a session, and each process that a test starts, would compile everything that it imports.
use_bytecode(["test"])
if sys.pycache_prefix:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix

# Each process unpacks a suite only once, because the data of a suite never change.
vars(suite)["_unpacked"] = functools.lru_cache(maxsize=2)(suite._unpacked)


# Each process reads a recorded run of docs/ only once, because neither tests nor commands change the records that they
# have read.
_RUNS = ROOT / "docs/runs"
_read_anew = vars(records)["_read"]
_read_once = functools.lru_cache(maxsize=3)(_read_anew)


def _read(path: Path, *, keep_written: bool) -> Any:
    file = Path(path).absolute()
    if file.parent == _RUNS:
        return _read_once(file, keep_written=keep_written)
    return _read_anew(path, keep_written=keep_written)


vars(records)["_read"] = _read

# No test depends on the speed of the machine, so Hypothesis does not limit the time for making or running an example.
# The examples are always the same, except at night.
settings.register_profile(
    "untimed",
    deadline=None,
    derandomize="RDMA_CTS_FUZZED" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("untimed")


def pytest_configure(config: pytest.Config) -> None:
    """Makes pytest report a file that needs a missing package as an error, and run all other tests."""
    config.option.continue_on_collection_errors = True
    if "not slow" in config.option.markexpr:  # not even imported
        collect_ignore.extend(f"test_{name}.py" for name in SLOW)
    if getattr(config.option, "numprocesses", None):
        suite.load_suite()  # loaded once here; otherwise all processes would parse the tables at the same time


# Test files that take more than a few seconds, or need a package that the suite does not need; --quick omits them.
_SLOW = """
accessible attacks bisect_step bundle cache changed_bundles ci combinations connection contradictions
covering_arrays damaged_nights derivation docs documented_commands evidence examiner explain extending
extending_page faults findings fleet forged_bundles formats formats_1_0 freezing header help history
hostile_host hostile_workers judge kernel_trial lab launcher loader_properties lost_connections lost_hosts
mails manners needs nightly nights_of_mutants old_results older_python one_conclusion open_outcomes own_builds
owners packages page page_of_runs patches peer_connection personas plugin preflight prepared_directories
recorded_run reference remote_host reproducers resume schema sentences shards site slices sweeps template
tests_of_peers trial tries user_environment
"""
SLOW = frozenset(_SLOW.split())
collect_ignore: list[str] = []  # read by pytest


def path_of(item: pytest.Item) -> Path:
    """Returns the file of a test; pytest 6 has no `path`."""
    return Path(item.fspath)


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    if path_of(item).stem.removeprefix("test_") in SLOW:
        item.add_marker("slow")


def pytest_collection_finish() -> None:
    """Enables the garbage collector again, but only for objects that are made from now on."""
    gc.freeze()
    gc.enable()


# The test files that take longest, in the order in which they start. The first file makes the guest's template, and the
# second waits for it; meanwhile the next two files use the processors.
_FIRST = "run host_device personas reference bad_driver own_builds kills remote_host bundle plugin page".split()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sorts the selected tests so that all processes finish at about the same time: first the files that take longest,
    then the other files with guests: while a guest waits, tests of further files use the processors."""
    of_guests = {path_of(item) for item in items if item.get_closest_marker("guest")}
    order = {f"test_{name}": number for number, name in enumerate(_FIRST)}
    items.sort(
        key=lambda item: (order.get(path_of(item).stem, len(order)), path_of(item) not in of_guests)
    )


# The number of tests that the option `-m "not nightly"` leaves out; each process of pytest-xdist counts all of them.
_LEFT: dict[str, int] = {}


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Counts the tests that run only at night. A process of pytest-xdist sends its count to the first process."""
    for item in items:
        selection = item.config.option.markexpr
        if "not slow" in selection:
            return
        if item.get_closest_marker("nightly") and "not nightly" in selection:
            left_out = getattr(item.config, "workeroutput", _LEFT)
            left_out["nightly"] = left_out.get("nightly", 0) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Stores the count of a process that has exited."""
    if "nightly" in (output := getattr(node, "workeroutput", {})):
        _LEFT["nightly"] = output["nightly"]


def pytest_unconfigure() -> None:
    if _LEFT:
        print(f"not run: {_LEFT['nightly']} nightly tests (./rdma-cts test --nightly runs them)")


@pytest.fixture
def cli(capsys: Says) -> Cli:
    """Runs a command in this process, checks its exit status, and returns its output."""

    def run(status: int, *arguments: object) -> Said:
        ended = main([*map(str, arguments)])
        said = Said(*capsys.readouterr())
        assert ended == status, said
        return said

    return run


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Returns a project with one table and only the rules of its verb; its cases run on the device of fake_bench.py."""
    plugins = "pytest_plugins = ['conformance.pytest_plugin.plugin']"
    of_verb = ("cases/reg_mr/test_reg_mr.py", "cases/reg_mr/rules.yaml")
    files = {name: (ROOT / name).read_text() for name in of_verb}
    files |= {
        "tables/reg_mr/fake.yaml": TABLE,
        "conftest.py": f"from fake_bench import *\n\n{plugins}\n",
    }
    root = laid(tmp_path / "project", {**files, "tox.ini": "[pytest]\n"})
    monkeypatch.setattr(suite, "CASES", root / "cases")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "tests")]))
    for name in ("PYTEST_ADDOPTS", cache.DIRECTORY):
        monkeypatch.delenv(name, raising=False)
    return Project(root, dict(os.environ))


@pytest.fixture
def eight_cases(monkeypatch: pytest.MonkeyPatch) -> suite.Suite:
    """Makes the commands that read a run use a suite of eight cases of one rule."""
    eight = numbered(8)
    small = replace(eight, registry=Registry([eight.registry["REG-01"]]))
    for name in ("commands.judge_bundle", "commands.cli.run_arguments", "reports.own_tables"):
        monkeypatch.setattr(f"{name}.load_suite", lambda *_: small)
    monkeypatch.setattr("reports.own_tables.tables_digest", lambda _: small.tables_sha256)
    return small
