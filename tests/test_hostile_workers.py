"""Tests with workers that forge results, send noise, hang or exit: none gets a PASS for a case that the device did not
pass, and every run completes. Each worker is a process that replaces QEMU and uses the protocol of the guest's virtio
port (hostile_worker.py). The first worker of a run is hostile in its second case; all later workers are honest."""

import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import hostile_worker
from actors import IDS, SUITE, Audience, StagedRun, verdicts
from commands import judge_bundle
from commands.__main__ import main
from conformance.older_python import zip
from conformance.results.conclusions import exit_status
from conformance.results.records import Recorded, read_written
from conformance.results.writer import ResultsFile
from conformance.run_options import RunOptions
from conformance.supervision.recording import Recording
from conformance.supervision.supervisor import Supervisor
from conformance.supervision.worker import Worker
from fixtures.guest.freezing import await_event
from fixtures.guest.guest import Guest
from fixtures.guest.request import MARK, ONLY, Request, encode
from fixtures.system.line_reader import new_mark
from kinds import Patch, rows
from patience import PATIENCE_S, longer_and_longer
from reports import terminal
from reports.digest import read
from samples import footer_of, header, observed_result

SCRIPT = Path(hostile_worker.__file__)
# Deadlines of a case, in seconds. A valid case takes a millisecond. Hanging cases are tried with the short deadline
# first. If valid cases exceed this deadline on a slow machine, longer deadlines follow.
DEADLINE_S, SHORT_S = 60.0, 0.4
# The verdict of the case in which the worker is hostile, by attack.
EXPECTED = {what: verdict for verdict, names in rows("hostile_workers") for what in names.split()}
# These runs are also bundled: one of each verdict, and those with the longest records.
BUNDLED = {
    "forge_the_footer",
    "report_other_rules_and_a_waiver",
    "a_huge_log",
    "infinite_number",
    "words_for_the_terminal",
    "print_on_the_console_for_ever",
}
STATUS = {"PASS": 0, "FAIL": 1, "CRASH": 1, "HANG": 1, "BROKEN": 3}


class Stand:
    """Runs four cases in guests that are stand-ins."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.console = folder / "console.log"
        self.lines = folder / "lines.json"
        self.started = 0
        script = {
            "header": header(),
            "results": {case.id: observed_result(case) for case in SUITE.cases},
        }
        self.lines.write_text(json.dumps({**script, "console": str(self.console)}))

    def start(self, what: str, cases: Sequence[str]) -> Worker:
        self.started += 1
        if self.started == 1:
            hostile = what
        else:
            hostile = "honest"
        request = Request(
            (),
            files={ONLY: "".join(f"{case}\n" for case in cases), MARK: new_mark()},
        )
        self.console.touch()
        work = Path(tempfile.mkdtemp(dir=self.folder))
        command = [sys.executable, "-I", "-S", str(SCRIPT), str(self.lines), hostile]
        guest = Guest(command, self.console, work, ends_with_job=True, mark=request.mark)
        guest.await_up(PATIENCE_S)
        assert guest.send(encode(request), PATIENCE_S)
        await_event(guest, "resumed", PATIENCE_S)
        return guest

    def run(self, what: str) -> Recorded:
        """Makes a run whose first worker is hostile, with a deadline that is long enough for every valid case."""
        for deadline_s in longer_and_longer(SHORT_S) if EXPECTED[what] == "HANG" else [DEADLINE_S]:
            recorded = self.run_once(what, deadline_s)
            if verdicts(recorded).count("HANG") <= 1:
                break
        return recorded

    def run_once(self, what: str, deadline_s: float) -> Recorded:
        self.started = 0
        path = self.folder / "results.jsonl"
        path.unlink(missing_ok=True)
        with closing(ResultsFile(path)) as file:
            run = StagedRun(RunOptions(deadline=deadline_s), SUITE, SUITE.cases)
            Supervisor(Recording(run, file, Audience()), self.console).run(
                lambda cases: self.start(what, cases),
            )
        return read_written(self.folder)


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    return Stand(tmp_path / "run")


@pytest.mark.parametrize("what", EXPECTED)
def test_a_hostile_worker_affects_only_one_case_and_gets_no_wrong_pass(stand, what, monkeypatch):
    recorded = stand.run(what)
    assert verdicts(recorded) == ["PASS", EXPECTED[what], "PASS", "PASS"]
    assert footer_of(recorded)["complete"] is True
    assert exit_status(footer_of(recorded)) == STATUS[EXPECTED[what]]
    for case, line in zip(IDS, recorded.results, strict=False):
        assert (line["rules"], line["effective"], line["waiver"]) == (
            ["REG-01"],
            line["verdict"],
            None,
        ), case
    shown = terminal.summary(read(stand.folder), stand.folder)
    assert all(text.isprintable() for text in shown.split("\n"))
    hostile = recorded.results[1]
    if what == "pass_what_fails":
        assert "the worker reports PASS" in hostile["reason"]
        assert "its observation gives FAIL" in hostile["reason"]
        assert (hostile["observed"]["errno"], hostile["claimed"]) == ("EINVAL", "PASS")
    if what == "report_other_rules_and_a_waiver":
        of = SUITE.cases[1]
        assert (hostile["level"], hostile["expected"]) == ("must", {"outcome": "success"})
        assert (hostile["call"], hostile["entry"], hostile["layer"]) == (
            str(of.when),
            "libibverbs",
            "kernel",
        )
        assert hostile["source"] == {"file": of.location.file, "line": of.location.line}
        deadline = f"--deadline {DEADLINE_S:g}"
        assert hostile["repro"] == f"./rdma-cts run {deadline} --only {of.id}"
    if what == "a_huge_log":
        log = hostile["kernel"]["log"]
        assert len(log) < 300
        assert "(4,800 lines are left out)" in log
        assert log[0].endswith("characters are left out)")
    if what in BUNDLED:
        assert_verified(stand.folder, STATUS[EXPECTED[what]], monkeypatch)


def assert_verified(run: Path, status: int, monkeypatch: Patch) -> None:
    suite = replace(SUITE, tables_sha256=header()["suite"]["tables_sha256"])
    monkeypatch.setattr(judge_bundle, "load_suite", lambda _: suite)
    bundle = run.parent / "bundle"
    assert main(["bundle", str(run), "--out", str(bundle)]) == 0
    support = judge_bundle.support_of(bundle, [])
    without_a_case = 3  # most rules of the sample have no case
    assert (list(support.unfounded), support.status) == ([], status or without_a_case)
