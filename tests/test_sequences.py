"""Tests of random sequences of calls on a device and on the reference. If the results of the calls diverge, the
sequence is shortened and reported as a row of a table. If a guest dies in a sequence, the result has the sequence."""

from __future__ import annotations

import itertools
import os
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

import bad_driver
import samples
from actors import HEADER, Stage, ran, start
from conformance import judging
from conformance.errors import UserError
from conformance.model import capability
from conformance.model.kind import Kind
from conformance.model.observation import Observation
from conformance.model.verdict import Verdict
from conformance.results.records import encode, read_written, result_record
from conformance.tables.suite import ROOT, load_suite
from kinds import Cli, Patch
from launched import ended
from samples import footer_of
from trial import sequences, violation_runs
from trial.catalogue import named
from trial.comparison import Comparison, Divergence, Subject
from trial.nearest import nearest_rule
from trial.reference.bench import ReferenceBench
from trial.reference.device import Device
from trial.running import judgement_on, on_the_reference
from trial.searching import divergences, for_sequences, observe

SUITE = load_suite()
SEARCHING = next(
    case for case in SUITE.cases if case.kind is Kind.SEQUENCES and case.entry == "libibverbs"
)
AT_MOST = 3000  # the number of sequences that must suffice to find the violation; most seeds need a few dozen
ROW = "- id: found-by-random-sequences\n"


def subject_of(kind: type[Device], entry: str = "libibverbs") -> Subject:
    return Subject(ReferenceBench(), ReferenceBench(kind()), frozenset(capability.NAMES), entry)


def searched(
    kind: type[Device],
    number: int,
    entry: str = "libibverbs",
    seed: int = 1,
) -> Divergence | None:
    return next(divergences(subject_of(kind, entry), seed, for_sequences(number)), None)


def rows_of(seed: int) -> list[str]:
    """Returns the sequences of a seed as rows."""
    subject, said = subject_of(Device), list[str]()
    subject.begins = lambda row, rule: said.append(row)
    assert list(divergences(subject, seed, for_sequences(15))) == []
    return said


def verdict_of(row: str, kind: type[Device]) -> str:
    with closing(ReferenceBench(kind())) as bench:
        return judgement_on(samples.case(row), on_the_reference(bench)).verdict


@pytest.mark.parametrize("number", [40, pytest.param(200, marks=pytest.mark.nightly)])
def test_two_references_never_diverge(number: int) -> None:
    assert searched(Device, number) is None
    assert searched(Device, number // 2, "uverbs") is None


@pytest.mark.parametrize(
    ("name", "seed", "steps"),
    [
        ("busy-for-ever", 6, 4),
        ("one-byte-too-long", 5, 2),
        ("old-key-stays", 1, 2),
        # The violations that take the longest to find.
        pytest.param("keys-outlive-the-region", 1, 2, marks=pytest.mark.nightly),
        pytest.param("rights-are-only-added", 3, 3, marks=pytest.mark.nightly),
        pytest.param("old-key-of-the-unbound-stays", 1, 3, marks=pytest.mark.nightly),
        pytest.param("only-the-first-element-is-checked", 1, 1, marks=pytest.mark.nightly),
    ],
)
def test_a_violation_is_found_and_reported_in_few_steps_that_repeat_it(
    name: str,
    seed: int,
    steps: int,
) -> None:
    divergence = searched(named(name).kind, AT_MOST, seed=seed)
    assert divergence is not None
    assert len(divergence.taken) <= steps
    assert divergence.row.startswith(ROW)
    assert verdict_of(divergence.row, Device) == Verdict.PASS
    assert verdict_of(divergence.row, named(name).kind) == Verdict.FAIL


def test_a_seed_always_has_the_same_sequences() -> None:
    assert rows_of(3) == rows_of(3) != rows_of(4)


@pytest.fixture
def hardly_shrunk(monkeypatch: Patch) -> None:
    """Limits shrinking, for tests that do not depend on the length of the divergences."""
    monkeypatch.setattr(sequences, "_SHRINKS", 10)


@pytest.mark.usefixtures("hardly_shrunk")
def test_a_divergence_is_found_only_once() -> None:
    subject = subject_of(named("one-byte-too-long").kind)
    divergences_seen = list(itertools.islice(divergences(subject, 1, for_sequences(AT_MOST)), 2))
    assert (
        len({divergence.signature for divergence in divergences_seen}) == len(divergences_seen) == 2
    )


def test_a_sequence_that_ends_early_releases_a_region_to_which_a_window_is_bound() -> None:
    subject = subject_of(Device)
    set_up = {"mrs": {}, "qps": {"qp": "{type: RC}"}, "windows": {"mw": "{type: 1}"}}
    before = subject.device.resources()
    comparison = Comparison(subject, set_up)
    region = {"pd": "pd", "addr": "buf", "length": "1 page", "access": "[LOCAL_WRITE, MW_BIND]"}
    bind = {"qp": "qp", "mw": "mw", "mr": "new", "addr": "buf", "length": "64", "access": "[]"}
    assert (
        comparison.take("ibv_reg_mr", region) == comparison.take("ibv_bind_mw", bind) == "success"
    )
    comparison.close()
    assert (subject.left_behind, subject.device.resources()) == (set(), before)


def test_the_nearest_rule_to_a_refused_atomic_depends_on_the_access_of_the_window() -> None:
    arguments = {"op": "ATOMIC_FETCH_AND_ADD", "rkey": "mw.rkey"}
    rules = [
        nearest_rule("traffic", arguments, "refused", access)
        for access in ("[REMOTE_ATOMIC]", "[REMOTE_READ]")
    ]
    assert rules == ["BIND-10", "BIND-09"]


@pytest.mark.usefixtures("hardly_shrunk")
def test_a_finding_violates_only_the_nearest_rule() -> None:
    with closing(ReferenceBench(named("one-byte-too-long").kind())) as bench:
        progress = Mock()
        observed = observe(SEARCHING, bench, bench.capabilities(), for_sequences(60), 5, progress)
    line = result_record(
        SEARCHING,
        SUITE.registry,
        judging.judge(SEARCHING, [], observed),
        observed,
    )
    assert (line["verdict"], line["observed"]["seed"]) == (Verdict.FAIL, 5)
    rules = {rule for deviation in line["deviations"] for rule in deviation["rules"]}
    assert {
        rule for rule, verdict in line["rule_verdicts"].items() if verdict == Verdict.FAIL
    } == rules
    assert rules < set(SEARCHING.rules) == set(line["rule_verdicts"])
    assert all(deviation["row"].startswith(ROW) for deviation in line["deviations"])
    assert progress.call_args.kwargs["row"].startswith(ROW)
    assert "from seed 5" in progress.call_args.args[0]


def test_a_report_of_the_kernel_during_sequences_counts_for_every_rule() -> None:
    observed: Observation = {
        "returned": "differs",
        "errno": "",
        "differences": ["this"],
        "divergences": [{"when": "x", "rule": "REG-15", "fault": "this", "row": ROW}],
    }
    judgement = judging.judge(SEARCHING, [], observed, {"log": ["[ 1.0] BUG: bad page state"]})
    assert "rule_verdicts" not in result_record(SEARCHING, SUITE.registry, judgement, observed)


def test_without_hypothesis_the_missing_package_is_named(monkeypatch: Patch) -> None:
    monkeypatch.delitem(sys.modules, "trial.sequences", raising=False)
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    bench = ReferenceBench()
    with pytest.raises(UserError, match="random sequences need Hypothesis") as error:
        observe(SEARCHING, bench, bench.capabilities(), for_sequences(1), 1)
    assert "python3-hypothesis" in str(error.value.hint)


def test_a_worker_that_dies_in_a_sequence_names_the_sequence_and_the_rule_of_its_last_step(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path)
    text = "- {id: c0, rules: [REG-01, REG-15], when: {access: []}, then: success}"
    table = samples.table("reg_mr/sample", text, 1)
    suite_made = samples.suite(
        [replace(table, cases=(replace(table.cases[0], kind=Kind.SEQUENCES),))]
    )
    point = {"point": "sequence 3 from seed 1", "done": 3, "row": ROW, "rule": "REG-15"}
    recorded = stage.play(
        [HEADER, start(0), encode({"type": "progress", "case": "reg_mr/sample/c0", **point})],
        suite=suite_made,
    )
    [line] = recorded.results
    assert line["verdict"] == Verdict.CRASH
    assert "died, in sequence 3 from seed 1" in line["reason"]
    assert line["deviations"] == [{"when": point["point"], "rules": ["REG-15"], "row": ROW}]
    assert line["rule_verdicts"] == {"REG-01": Verdict.PASS, "REG-15": Verdict.CRASH}
    assert footer_of(recorded)["rules"] == {"REG-01": Verdict.PASS, "REG-15": Verdict.CRASH}


def test_the_progress_of_sequences_is_accepted(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    point = {
        "type": "progress",
        "case": "reg_mr/sample/c0",
        "point": "sequence 1 from seed 1",
        "row": ROW,
    }
    lines = [
        *ran(),
        start(0),
        *(encode({**point, "done": number}) for number in range(5)),
        *ran(0)[2:],
        *ran(1, 2, 3),
    ]
    assert [line["verdict"] for line in stage.play(lines).results] == ["PASS"] * 4


@pytest.mark.usefixtures("hardly_shrunk")
def test_a_trial_reports_the_sequence_that_shows_a_violation(cli: Cli, monkeypatch: Patch) -> None:
    monkeypatch.setattr(violation_runs, "for_seconds", lambda seconds: for_sequences(100))
    command = ["trial", "sequences", "9", "--seed", "5", "--violation", "one-byte-too-long"]
    assert ROW in cli(1, *command).out


@pytest.mark.guest
@pytest.mark.nightly
def test_a_guest_crash_in_a_sequence_affects_one_case_and_names_the_sequence(
    tmp_path: Path,
) -> None:
    overlay = bad_driver.overlay(tmp_path / "overlay")
    # The kernel panics at the third deallocation of a window. The first two occur before the first case, when the
    # session tries both types of window. So the third is in a sequence.
    command = (
        "./rdma-cts run --guest --yes --tier exhaustive --verb sequences --sequences 10 "
        f"--overlay {overlay} --guest-env RDMA_CTS_PANIC_AT=3 --out {tmp_path / 'out'}"
    ).split()
    environment = {**os.environ, "RDMA_CTS_PYTHON": sys.executable}
    done = ended(*command, cwd=ROOT, env=environment)
    assert done.returncode == 1, done.stdout + done.stderr
    run = read_written(tmp_path / "out")
    assert (footer_of(run)["complete"], footer_of(run)["boots"]) == (True, 2)
    crash = next(line for line in run.results if line["entry"] == "libibverbs")
    other = next(line for line in run.results if line["entry"] == "uverbs")
    assert crash["verdict"] == Verdict.CRASH
    assert "from seed 1" in crash["reason"]
    assert any("sysrq triggered crash" in text for text in crash["kernel"]["log"])
    [flight] = crash["deviations"]
    assert verdict_of(flight["row"], Device) == Verdict.PASS
    assert [
        rule for rule, verdict in crash["rule_verdicts"].items() if verdict == Verdict.CRASH
    ] == flight["rules"]
    # The sequences at the other entry ran for their whole time.
    assert other["verdict"] in (Verdict.PASS, Verdict.FAIL)
    assert other["observed"]["steps"] > other["observed"]["sequences"] > 0
