"""A results file of an earlier version: every command accepts it, and its records are written unchanged. `old_results`
is a part of a real run in the Soft-RoCE guest, made by the version before records had types. Only the directory in
`argv` was replaced, and header and footer were reduced to that part."""

import json
import shutil
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from actors import Audience
from commands.__main__ import main
from commands.report import FORMATS
from conformance.model.verdict import Verdict
from conformance.results.records import decode, encode, read_results
from conformance.results.writer import ResultsFile
from conformance.supervision import Recording, RunPlan, Supervisor, Worker
from conformance.tables.suite import load_suite
from kinds import Cli, words
from reports.digest import read
from samples import footer_of

OLD = Path(__file__).with_name("old_results")
VERDICTS = words("FAIL PASS FAIL UNREACHABLE PASS PASS FAIL UNSUPPORTED PASS UNSUPPORTED CRASH")
SWEEP = "advise_mr/advice_space/advice-and-flags@libibverbs"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the run that may be changed."""
    return Path(shutil.copytree(OLD, tmp_path / "old"))


def test_each_record_is_written_byte_for_byte_as_it_was_read() -> None:
    lines = (OLD / "results.jsonl").read_bytes().splitlines(keepends=True)
    assert [encode(decode(line)) for line in lines] == lines


def test_an_old_file_is_read_as_recorded() -> None:
    recorded = read_results(OLD)
    assert [record["verdict"] for record in recorded.results] == VERDICTS
    assert all(isinstance(record["effective"], Verdict) for record in recorded.results)
    assert recorded.header["device"]["driver"] == "rxe"
    assert footer_of(recorded)["verdicts"]["CRASH"] == 1
    assert not recorded.torn
    assert [record["type"] for record in recorded.others] == ["worker"]


@pytest.mark.parametrize("format_", FORMATS)
def test_a_report_in_each_format_is_made(format_: str, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["report", str(OLD), "--format", format_, "--out", "-"]) == 0
    assert SWEEP.partition("@")[0].encode() in capsysbinary.readouterr().out.replace(b"\\", b"")


def test_an_old_run_has_severities_and_defects() -> None:
    """Severities and defects follow only from the verdicts, because the records have no faults until they are judged
    again."""
    assert read(OLD).headline == "6 defects in 4 results: 1 kernel crash, 3 wrong codes"


def test_an_old_run_can_be_rejudged(cli: Cli, tmp_path: Path) -> None:
    text = cli(1, "judge", OLD, "--out", tmp_path / "judged").out
    assert "of 11 results judged again" in text
    judged = read_results(tmp_path / "judged")
    assert read(tmp_path / "judged").headline == (
        "4 defects in 4 results: 1 kernel crash, 1 memory-safety, 2 valid calls refused"
    )
    assert [record["observed"] for record in judged.results] == [
        record["observed"] for record in read_results(OLD).results
    ]


@pytest.mark.parametrize(
    ("id_", "expected"), [("ADV-01", "Last verdict: FAIL"), (SWEEP, "32 of 96 points: those with !LOCAL_WRITE")]
)
def test_a_rule_and_a_case_of_it_are_explained(id_: str, expected: str, cli: Cli) -> None:
    assert expected in cli(0, "explain", id_, "--run", OLD).out


def test_an_old_run_can_be_resumed(copy: Path) -> None:
    suite = load_suite()
    path = copy / "results.jsonl"
    before = path.read_bytes()
    footer = before.splitlines(keepends=True)[-1]
    ids = [record["case"] for record in read_results(copy).results]

    def no_worker(cases: Sequence[str]) -> Worker:
        raise AssertionError(f"every case has a result, yet {cases} are started")

    with closing(ResultsFile(path, carry_on=True)) as results:
        prior = results.cut_back(results.recorded())
        assert prior is not None
        assert prior.seconds == json.loads(footer)["duration_s"]
        cases = [case for case in suite.cases if case.id in ids]
        recording = Recording(RunPlan(suite, cases, {}), results, Audience(), prior)
        Supervisor(recording, copy / "console.log").run(no_worker)
    assert path.read_bytes().startswith(before.removesuffix(footer))
    recorded = read_results(copy)
    assert footer_of(recorded)["complete"] is True
    assert footer_of(recorded)["verdicts"] == {"FAIL": 3, "PASS": 4, "UNREACHABLE": 1, "UNSUPPORTED": 2, "CRASH": 1}
