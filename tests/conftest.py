"""Fixtures for the tests of the suite itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from conformance.tables import suite
from conformance.tables.suite import CASES, ROOT
from project import TABLE, Project

# How fast a machine is decides no test: neither how long an example takes nor how long it takes to make them.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with guests come first: they take longest, and wait more than they compute."""
    with_guests = {item.path for item in items if item.get_closest_marker("guest")}
    items.sort(key=lambda item: item.path not in with_guests)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with one table, on the device in Python, and the rules of its verb alone."""
    root = tmp_path / "project"
    (root / "cases" / "reg_mr").mkdir(parents=True)
    (root / "tables" / "reg_mr").mkdir(parents=True)
    for name in ("test_reg_mr.py", "rules.yaml"):
        (root / "cases" / "reg_mr" / name).write_text((CASES / "reg_mr" / name).read_text())
    (root / "tables" / "reg_mr" / "fake.yaml").write_text(TABLE)
    plugins = "pytest_plugins = ['conformance.pytest_plugin.plugin']"
    (root / "conftest.py").write_text(f"from fake_bench import *\n\n{plugins}\n")
    monkeypatch.setattr(suite, "CASES", root / "cases")
    (root / "tox.ini").write_text("[pytest]\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "tests")]))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    return Project(root, dict(os.environ))
