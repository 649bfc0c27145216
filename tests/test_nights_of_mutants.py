"""Tests of the trial of mutants at night: which mutants it tries, and what it keeps of earlier nights."""

import argparse
from typing import Any

import pytest

from conformance.errors import UserError
from conformance.tables.suite import load_suite
from conformance.tables.tiers import Shard
from test_kernel_trial import finding
from trial import kernel_runs
from trial.kernel import report
from trial.kernel.mutant import read_mutants
from trial.kernel.outcome import ACCEPTED, BY_ITS_RULE, SURVIVED


def test_the_history_keeps_mutants_that_were_not_tried_and_reports_those_no_longer_killed(tmp_path):
    report.write(tmp_path, [finding("one", BY_ITS_RULE), finding("two", BY_ITS_RULE)], {})
    before = report.read_history(tmp_path)
    now = [finding("one", SURVIVED)]
    assert [regression.name for regression in report.regressions(now, before)] == ["one"]
    report.write(tmp_path, now, before)
    after = {name: entry["outcome"] for name, entry in report.read_history(tmp_path).items()}
    assert after == {"one": SURVIVED, "two": BY_ITS_RULE}
    assert "| range | 1 | 1 |" in (tmp_path / "kernel.md").read_text()
    assert "0 of 1 mutants killed" in report.summary(now, now, 1.0)
    (tmp_path / "kernel.json").write_text("[]")
    with pytest.raises(UserError, match=r"kernel.json cannot be read"):
        report.read_history(tmp_path)


def test_a_night_tries_the_mutants_that_survived_or_are_new_and_a_tenth_of_all(monkeypatch):
    mutants = read_mutants()
    before: report.History = {
        mutant.name: {"outcome": ACCEPTED if mutant.permitted else BY_ITS_RULE}
        for mutant in mutants
    }
    before[mutants[0].name] = {"outcome": SURVIVED}
    del before[mutants[1].name]
    of_all: dict[str, Any] = {
        "driver": "rxe",
        "mutant": [],
        "rule": [],
        "file": [],
        "permitted": False,
    }
    suite = load_suite()
    arguments = argparse.Namespace(**of_all, night=True, shard=None)
    chosen = kernel_runs._chosen(arguments, before, suite)
    assert set(mutants[:2]) <= set(chosen)
    assert -(-len(mutants) // 10) <= len(chosen) <= -(-len(mutants) // 10) + 2
    shards = [
        argparse.Namespace(**of_all, night=False, shard=Shard(number, 2)) for number in (1, 2)
    ]
    halves = [kernel_runs._chosen(shard, {}, suite) for shard in shards]
    assert sorted(name.name for half in halves for name in half) == sorted(
        mutant.name for mutant in mutants
    )
    assert abs(len(halves[0]) - len(halves[1])) <= 1
