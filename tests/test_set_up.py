"""The set-up of a case is shown with its violation: in results, in every report, and by `explain`."""

from pathlib import Path

import pytest

from commands.__main__ import main
from conformance.model.kind import Kind
from conformance.model.set_up import set_up_of
from conformance.results.records import read_results
from conformance.tables.suite import load_suite
from kinds import Cli, Folders
from recorded_reference import record
from trial.catalogue import named

SUITE = load_suite()
ROW = "bind_mw/type_1/byte-before-the-window"
SWEEP = "bind_mw/data_path/type-1-operation-by-access-by-place"
POINT = "op=RDMA_WRITE,access=write,place=before"
GIVEN = "mr: ibv_reg_mr(pd=pd, addr=buf.addr, length=buf.size, access=LOCAL_WRITE|REMOTE_WRITE|REMOTE_READ|MW_BIND)"


def test_every_case_and_its_first_point_have_a_set_up_of_printable_lines() -> None:
    for case in SUITE.cases:
        if case.kind is Kind.SWEEP:
            continue
        set_up = set_up_of(case)
        assert len(set_up["before"]) == len(case.before)
        assert all(line.isprintable() for line in (*set_up["given"], *set_up["before"]))
        names = {line.partition(":")[0] for line in set_up["given"]}
        assert {*case.given.memory, *case.given.mrs, *case.given.windows, *case.given.qps, *case.given.pds} <= names


@pytest.fixture(scope="module")
def run(tmp_path_factory: Folders) -> Path:
    """A run on a device whose windows are not bounded: a row and a sweep that fail, and a row that passes."""
    cases = [case for case in SUITE.cases if case.id in (ROW, SWEEP, "bind_mw/type_1/part-from-buf")]
    assert len(cases) == 3
    return record(tmp_path_factory.mktemp("run"), SUITE, cases, named("window-of-the-whole-region").kind())


def test_a_violation_has_its_set_up_and_each_deviation_that_of_its_smallest_point(run: Path) -> None:
    results = {result["case"]: result for result in read_results(run).results}
    assert GIVEN in results[ROW]["set_up"]["given"]
    (deviation,) = results[SWEEP]["deviations"]
    point = SUITE.find(f"{SWEEP}#{','.join(f'{axis}={label}' for axis, label in deviation['smallest'].items())}")
    assert point is not None
    assert deviation["set_up"] == set_up_of(point)
    assert deviation["call"] == str(point.when)
    assert "$" not in deviation["call"]
    assert "set_up" not in results[SWEEP]


@pytest.mark.parametrize("format_", ["html", "junit", "ktap", "markdown"])
def test_every_report_has_the_set_up(run: Path, format_: str, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["report", str(run), "--format", format_, "--out", "-"]) == 0
    said = capsysbinary.readouterr().out.decode().replace("\\", "").replace("&#39;", "'")
    assert GIVEN in said


@pytest.mark.parametrize("format_", ["ktap", "junit"])
def test_a_sweep_is_reported_with_call_rule_and_clause(
    run: Path, format_: str, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["report", str(run), "--format", format_, "--out", "-"]) == 0
    said = capsysbinary.readouterr().out.decode()
    assert "points where beyond_the_range: those with " in said
    assert "  call: traffic(op=RDMA_WRITE, rkey=mw.rkey, addr=buf + 1 page + 100, length=200, position=before" in said
    assert "  expected by BIND-10: refused" in said


def explained(cli: Cli, *arguments: object) -> str:
    return cli(0, "explain", *arguments).out


def test_explain_has_the_set_up_of_a_row_and_of_a_point(run: Path, cli: Cli) -> None:
    assert f"given:      {GIVEN}\n" in explained(cli, ROW, "--run", run)
    said = explained(cli, f"{SWEEP}#{POINT}", "--run", run)
    assert f"given:      {GIVEN}\n" in said
    assert "call:       traffic(op=RDMA_WRITE, rkey=mw.rkey" in said
    assert "Last verdict: FAIL" in said
    assert "BIND-10 expects refused: traffic returned 0, completed with SUCCESS, and moved bytes" in said
    assert f"--only {SWEEP}#{POINT}" in said
    assert "Last verdict: PASS" in explained(cli, f"{SWEEP}#{POINT.replace('before', 'first')}", "--run", run)


def test_a_sweep_says_how_to_see_the_set_up_of_a_point(run: Path, cli: Cli) -> None:
    assert f"./rdma-cts explain {SWEEP}#AXIS=VALUE,..." in explained(cli, SWEEP, "--run", run)
