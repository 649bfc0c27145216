"""Tests of nights whose files are damaged, removed or foreign, or that are terminated."""

import errno
import fcntl
import html
import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from commands import nightly, nightly_cell
from commands.__main__ import main
from commands.cli import sendmail
from commands.cli.endings import Terminated
from conformance.results.files import writing
from conformance.results.writer import ResultsFile
from made_history import run_of, write_run
from nights import nights, option
from reports.nights.history import format_night
from reports.nights.morning import Morning
from reports.nights.outcome import (
    BASELINE,
    ENDED,
    GOOD,
    NO_OUTCOME,
    NOT_RUN,
    REGRESSED,
    UNDECIDED,
    Outcome,
)
from reports.nights.page import HistoryPage, page_of
from test_nightly import GOOD_RUN, WORSE

__all__ = ["nights"]  # a fixture


def test_two_nights_at_once_are_refused(nights):
    nights.night(0, forky=GOOD_RUN)
    with (nights.folder / "lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert "another night is running" in nights.night(2, forky=GOOD_RUN)
    assert len(nights.history.nights) == 1


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:50] + b"\n")


def cut(path: Path) -> None:
    """Removes the second half of the lines."""
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: len(lines) // 2]))


def removed(path: Path) -> Path:
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    return path


NOISE = bytes(range(256)) + b"\n"
DAMAGE: dict[str, Callable[[Path], object]] = {
    "the outcome is not JSON": lambda cell: (cell / "cell.json").write_text("{"),
    "the outcome has an unknown schema": lambda cell: (cell / "cell.json").write_text(
        '{"schema": "x"}',
    ),
    "the outcome is a FIFO": lambda cell: os.mkfifo(removed(cell / "cell.json")),
    "the results are torn": lambda cell: torn(cell / "results.jsonl"),
    "the results are gone": lambda cell: removed(cell / "results.jsonl"),
    "the results are cut at the end of a record": lambda cell: cut(cell / "results.jsonl"),
    "the results are cut, and the summary is gone": lambda cell: cut(
        removed(cell / "summary.json").with_name("results.jsonl"),
    ),
    "results and summary are gone": lambda cell: [
        removed(cell / name) for name in ("results.jsonl", "summary.json")
    ],
    "the last good night is a path": lambda cell: (cell / "cell.json").write_bytes(
        Outcome(GOOD, against="../../etc").encoded(),
    ),
    "results and summary are noise": lambda cell: [
        (cell / name).write_bytes(NOISE) for name in ("results.jsonl", "summary.json")
    ],
    "it is a link to another place": lambda cell: removed(cell).symlink_to("/"),
    "it is a file": lambda cell: removed(cell).write_text(""),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_cell_affects_only_itself_and_is_named_in_one_line(nights, how):
    nights.night(0, forky=GOOD_RUN, sid=GOOD_RUN)
    (night,) = nights.history.nights
    DAMAGE[how](nights.folder / night / "forky")
    said = nights.night(1, forky=WORSE, sid=WORSE)
    named = [
        line
        for line in said.splitlines()
        if night in line and "forky" in line and not line.lstrip().startswith(("all: ", "report: "))
    ]
    assert len(named) == 1, said
    assert nights.outcomes("sid") == [BASELINE, REGRESSED]
    # A damaged cell may have been good, so the night is undecided. A link or a file is not a cell, and is ignored.
    assert nights.outcomes("forky")[-1] == (BASELINE if how.startswith("it is") else UNDECIDED)
    assert main(["report", "--history", str(nights.folder)]) == 0
    if how == "the results are gone":  # the page does not need them
        return
    assert night in nights.says.readouterr().err
    assert named[0].partition(": ")[2] in html.unescape(page_of(nights.history))


def test_a_defect_of_a_lost_good_night_keeps_its_kind_or_says_that_it_is_unknown(nights):
    nights.night(0, forky=run_of({3: "UNSUPPORTED"}))
    nights.night(1, forky=run_of({1: "CRASH"}))
    nights.night(1, forky=run_of({1: "CRASH", 3: "FAIL"}))
    good, *wrong = (nights.folder / night / "forky" for night in nights.history.nights)
    removed(good / "summary.json")
    cut(good / "results.jsonl")
    standing = "in an earlier night and not fixed, since"
    said = nights.night(3, forky="no network")
    assert f"regressed {standing}" in said
    assert f"newly supported, and wrong {standing}" in said
    for folder in wrong:
        outcome = json.loads((folder / "cell.json").read_bytes())
        del outcome["kinds"]  # as earlier versions have written it
        (folder / "cell.json").write_text(json.dumps(outcome))
    said = nights.night(3, forky="no network")
    assert f"wrong (regressed or newly supported: unknown) {standing}" in said


def test_a_damaged_summary_beside_results_is_reported_and_computed_again(nights):
    nights.night(0, forky=GOOD_RUN)
    cell = nights.folder / nights.history.nights[0] / "forky"
    (cell / "summary.json").write_bytes(NOISE)
    (problem,) = nights.history.problems
    assert problem.startswith(f"{cell}/summary.json is damaged or cannot be read; its facts are ")
    nights.night(1, forky=WORSE)
    assert nights.outcomes("forky") == [BASELINE, REGRESSED]
    (cell / "summary.json").unlink()
    assert not nights.history.problems, "a run that was killed has no summary"


@pytest.mark.parametrize(
    "since_boot_s, cause",
    [
        (0, "; this machine was started again at "),
        (
            10**6,
            ": a signal or a kill ended the night, for example for lack of memory, or the disk was full",
        ),
    ],
)
def test_the_next_night_tells_that_a_night_was_killed_and_why(
    nights, monkeypatch, tmp_path, since_boot_s, cause
):
    nights.night(0, forky=GOOD_RUN, sid=GOOD_RUN)
    cell = nights.folder / nights.history.nights[0] / "sid"
    (cell / "cell.json").unlink()
    monkeypatch.setattr(time, "clock_gettime", lambda clock: since_boot_s - 60)
    hook = tmp_path / "hook.json"
    nights.night(0, "--webhook-file", str(hook), forky=GOOD_RUN)
    text = json.loads(hook.read_text())["text"]
    no_outcome = f"the last night, {format_night(cell.parent.name)}, has no cell.json of sid"
    assert f"{no_outcome}{cause}" in text
    nights.night(0, "--webhook-file", str(hook), forky=GOOD_RUN)
    assert "the last night" not in json.loads(hook.read_text())["text"]


def test_results_that_another_program_has_written_again_are_not_cut(nights):
    nights.night(0, forky=GOOD_RUN)
    path = nights.history.cells[0].folder / "results.jsonl"
    records = map(json.loads, path.read_text().splitlines())
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    assert nights.outcomes("forky") == [BASELINE]
    cut(path)
    assert nights.outcomes("forky") == [NOT_RUN]


def test_a_night_is_compared_with_the_good_night_before_a_damaged_one(nights):
    for _ in range(2):
        nights.night(0, forky=run_of({}))
    first, second = nights.history.nights
    torn(nights.folder / second / "forky" / "results.jsonl")
    nights.night(1, forky=run_of({2: "FAIL"}))
    assert nights.history.of("forky")[-1].outcome.against == first


def test_a_night_does_not_become_the_baseline_because_results_were_removed(nights):
    nights.night(0, forky=GOOD_RUN)
    (night,) = nights.history.nights
    (nights.folder / night / "forky" / "results.jsonl").unlink()
    said = nights.night(3, forky=WORSE)
    assert f"the results of {format_night(night)}, the last good night, cannot be read" in said
    assert nights.outcomes("forky") == [BASELINE, UNDECIDED]


def test_a_regression_against_a_good_night_that_is_damaged_stays_in_the_mail_by_its_defect(nights):
    nights.night(0, forky=run_of({}))
    nights.night(1, forky=GOOD_RUN)
    good, regressed = nights.history.nights
    (nights.folder / good / "forky" / "cell.json").write_text("{")
    still = f"regressed in an earlier night and not fixed, since {format_night(regressed)}"
    assert f"{still}, seen in 1 of 1 night: valid refused" in nights.night(3, forky=GOOD_RUN)
    assert "not fixed" not in nights.night(3, forky=run_of({}))


def test_a_regression_does_not_become_the_baseline_because_earlier_nights_were_removed(nights):
    nights.night(0, forky=GOOD_RUN)
    nights.night(1, forky=WORSE)
    good = nights.history.nights[0]
    for _ in range(2):
        shutil.rmtree(nights.folder / nights.history.nights[0])
        lost = f"the results of {format_night(good)}, the last good night, cannot be read"
        assert f"{lost}; remove {nights.folder}/*/forky" in nights.night(3, forky=WORSE)
    for cell in nights.history.of("forky"):
        shutil.rmtree(cell.folder)
    nights.night(0, forky=WORSE)
    assert nights.outcomes("forky") == [BASELINE]


def test_only_the_last_nights_and_the_last_good_night_keep_their_results(nights):
    nights.night(0, forky=run_of({}))
    nights.night(1, forky=GOOD_RUN)
    sweeps = nights.history.of("forky")[1].folder / "points"
    sweeps.mkdir(exist_ok=True)
    (sweeps / "a.sweep.json").write_text("{}")
    for _ in range(3):
        nights.night(1, "--keep", "2", forky=WORSE)
    runs = [cell.folder / "results.jsonl" for cell in nights.history.of("forky")]
    assert [path.exists() for path in runs] == [True, False, False, True, True]
    assert {path.name for path in runs[1].parent.iterdir()} == {"cell.json", "summary.json"}
    assert nights.outcomes("forky")[2:] == [REGRESSED] * 3


@pytest.mark.parametrize(
    "damage",
    [
        lambda cell: (cell / "summary.json").write_bytes(NOISE),
        lambda cell: removed(cell / "summary.json"),
        lambda cell: removed(cell / "cell.json"),
        lambda cell: cut(removed(cell / "cell.json").with_name("results.jsonl")),
        lambda cell: cut(cell / "results.jsonl"),
        lambda cell: torn(removed(cell / "summary.json").with_name("results.jsonl")),
    ],
    ids=[
        "damaged summary",
        "no summary",
        "no outcome",
        "no outcome, and cut results",
        "cut results",
        "no summary, and damaged results",
    ],
)
def test_a_damaged_night_says_the_same_after_the_results_of_old_nights_are_removed(damage, nights):
    for _ in range(2):
        nights.night(0, forky=GOOD_RUN)
    folder = nights.history.cells[0].folder
    damage(folder)

    def says() -> tuple[object, ...]:
        cell = nights.history.of("forky")[0]
        facts = cell.facts and (cell.facts.defects, cell.facts.complete, cell.facts.rules)
        return cell.outcome, cell.damaged, facts

    before = says()
    nights.night(0, "--keep", "1", forky=GOOD_RUN)
    assert says() == before
    is_removed = not (folder / "results.jsonl").exists()
    assert is_removed == ((folder / "cell.json").exists() and before[2] is not None)


def test_a_night_whose_outcome_a_full_disk_does_not_take_is_undecided_and_says_so_in_its_message(
    nights, tmp_path, monkeypatch
):

    def full(path: Path, content: bytes) -> None:
        with writing(path):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(nightly_cell, "write_atomically", full)
    monkeypatch.setattr(sendmail, "write_atomically", full)
    sent = nights.sendmail("cat >{sent}")
    said = nights.night(3, "--mail-to", "qa@example.org", forky=GOOD_RUN)
    line = r"\.eml cannot be written: No space left on device; message, sent to qa@example.org$"
    assert re.search(line, said, re.MULTILINE)
    said = r"forky +undecided +\S+cell.json cannot be written: No space left on device; make room: "
    assert re.search(said, sent.read_text())
    assert "1 undecided (exit status 3)" in sent.read_text()


@pytest.mark.parametrize("step", ["make_directory", "new_directory"])
def test_a_night_that_a_full_disk_does_not_let_begin_sends_its_message(
    step, nights, tmp_path, monkeypatch
):
    def full(path: Path, *_: object) -> None:
        with writing(path):
            raise OSError(errno.ENOSPC, "No space left on device")

    sent = nights.sendmail("cat >{sent}")
    monkeypatch.setattr(sendmail, "write_atomically", full)
    monkeypatch.setattr(nightly, step, full)
    said = nights.night(3, "--mail-to", "qa@example.org", forky=GOOD_RUN)
    headers, _, text = sent.read_text().partition("\n\n")
    outcome, remedy, *_ = text.splitlines()
    assert outcome.startswith("the night has not run: ")
    assert outcome.endswith("No space left on device (exit status 3)")
    assert remedy.startswith("make room: directories of old nights may be removed")
    assert "the night has not run: " in headers
    last = said.splitlines()[-1]
    assert "cannot be written: No space left on device; make room: " in last


@pytest.mark.parametrize(
    "line, reason",
    [
        (
            "results.jsonl cannot be written: No space left on device\n",
            "cannot be written: No space",
        ),
        (
            "",
            r"exit status 3, and \S+run.log is empty, as on a full disk; make room: .*; "
            r"\S+results.jsonl ends within its header: no case was recorded",
        ),
    ],
)
def test_a_run_whose_results_a_full_disk_has_cut_has_its_own_line_as_the_reason(
    nights, monkeypatch, line, reason
):
    def full(command: list[str], environment: object, output: int) -> int:
        folder = Path(command[command.index("--out") + 1])
        (folder / "results.jsonl").write_text('{"type": "header", "sche')
        os.write(output, line.encode())
        return 3

    monkeypatch.setattr(nightly_cell, "_finished", full)
    assert re.search(f"(?m)forky +not run +.*{reason}", nights.night(3, forky=GOOD_RUN))


def test_foreign_files_are_named_and_not_changed(nights):
    nights.night(0, forky=GOOD_RUN)
    (nights.folder / "notes\n.txt").write_text("mine")
    (nights.folder / "20261122T031700Z").symlink_to("/etc")
    for name in ("20261399T031700Z", "99999999T999999Z", "\u0662\u0660261122T031700Z"):
        (nights.folder / name).mkdir()
    said = nights.night(0, forky=GOOD_RUN)
    assert "notes?.txt is not a night of a history" in said
    assert "20261122T031700Z is not a night of a history" in said
    assert "20261399T031700Z is not a night of a history" in said
    assert "99999999T999999Z is not a night of a history" in said
    assert "\u0662\u0660261122T031700Z is not a night of a history" in said
    assert (nights.folder / "notes\n.txt").read_text() == "mine"


def test_a_fifo_in_the_place_of_the_lock_is_refused(tmp_path, cli):
    os.mkfifo(tmp_path / "lock")
    said = cli(3, "nightly", "--history", tmp_path, "--stack", "forky").err
    assert said == f"rdma-cts: {tmp_path}/lock cannot be written: No such device or address\n"


DAMAGES = {
    '{"schema": 1': "not JSON: ",
    "[]": "not an object",
    '{"schema": "x"}': 'its schema is "x"',
    '{"schema": "rdma-cts-cell/1"}': "its outcome is null",
    '{"schema": "rdma-cts-cell/1", "outcome": []}': r"its outcome is \[\]",
    '{"schema": "rdma-cts-cell/1", "outcome": "good", "against": 3}': "its against is 3, not a text",
    '{"schema": "rdma-cts-cell/1", "outcome": "good", "reason": {}}': "its reason is {}, not a text",
    '{"schema": "rdma-cts-cell/1", "outcome": "good", "selection": [1]}': r"its selection is \[1\], not",
    '{"schema": "' + "x" * 99 + '"}': "its schema is .{41}$",
}


@pytest.mark.parametrize("content, key", DAMAGES.items(), ids=DAMAGES)
def test_the_damage_of_an_outcome_is_named_by_its_key(content, key, nights):
    nights.night(0, forky=GOOD_RUN)
    (cell,) = nights.history.cells
    (cell.folder / "cell.json").write_text(content)
    (problem,) = nights.history.problems
    assert re.search(f"cell.json is damaged, or not of this version: {key}", problem)


def test_a_cell_that_was_killed_has_its_reason_on_every_page(nights, tmp_path):
    nights.night(0, forky=GOOD_RUN, sid=GOOD_RUN)
    (with_results, without) = (cell.folder for cell in nights.history.cells)
    (with_results / "cell.json").unlink()
    for path in without.iterdir():
        path.unlink()
    site = tmp_path / "site"
    assert main(["report", "--history", str(nights.folder), "--site", str(site)]) == 0
    pages = [(site / "index.html").read_text(), *(p.read_text() for p in site.glob("nights/*"))]
    for page in (page_of(nights.history), *pages):
        described = page.replace('title="its cell.json', "")
        assert described.count(f"its cell.json is missing: {ENDED}") >= 2
        assert 'title="its cell.json is missing' in page


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_night_that_is_terminated_leaves_no_temporary_directory(nights, number):
    nights.night(128 + number, forky=Terminated(number))
    assert {path.name for path in nights.folder.glob("*/*/*")} == {"run.log", "cell.json"}


def test_a_night_that_is_interrupted_shows_also_the_cells_that_it_has_not_reached(nights):
    runs = {"forky": GOOD_RUN, "sid": Terminated(signal.SIGTERM), "trixie": GOOD_RUN}
    nights.sendmail("cat >{sent}")
    said = nights.night(143, "--mail-to", "qa@example.org", **runs)
    assert "rdma-cts: ended by SIGTERM: 1 of 3 cells have run\n" in said
    assert "1 baseline, 1 of 3 cells, ended by SIGTERM (exit status 143)" in nights.sent.read_text()
    assert [(cell.name, cell.outcome.outcome) for cell in nights.history.cells] == [
        ("forky", BASELINE),
        ("sid", NOT_RUN),
        ("trixie", NOT_RUN),
    ]
    assert HistoryPage(nights.history).last_outcomes == "1 baseline, 2 not run"
    reasons = {cell.name: cell.outcome.reason for cell in nights.history.cells}
    assert reasons["sid"] == "cut short, ended by SIGTERM"
    assert reasons["trixie"] == "not begun, ended by SIGTERM"
    folders = {cell.name: cell.folder for cell in nights.history.cells}
    for name in ("sid", "trixie"):
        (folders[name] / "cell.json").unlink()
    (folders["sid"] / "results.jsonl").touch()
    reasons = {cell.name: cell.outcome.reason for cell in nights.history.cells}
    assert reasons["sid"] == f"no case was recorded, and {NO_OUTCOME}"
    assert reasons["trixie"] == NO_OUTCOME
    assert nights.history.problems == ()


@pytest.mark.parametrize("options", [(), ("--tier", "smoke")], ids=["all cases", "smoke"])
def test_a_cell_with_results_that_a_signal_cuts_short_keeps_the_reason(
    nights, monkeypatch, options
):
    nights.night(0, *options, forky=GOOD_RUN)

    def cut_short(command, environment, output):
        write_run(Path(option(command, "--out")), run_of({}, complete=False))
        raise Terminated(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(nightly_cell, "_finished", cut_short)
        nights.night(143, *options, forky="")
    baseline, cell = nights.history.cells
    assert cell.outcome.outcome == UNDECIDED
    assert cell.outcome.reason == "cut short, ended by SIGTERM"
    assert cell.outcome.selection == baseline.outcome.selection == tuple(options)
    assert "cut short, ended by SIGTERM" in page_of(nights.history)
    said = nights.night(0, *options, forky=GOOD_RUN)
    assert "the last night" not in said


def test_an_outcome_that_a_signal_finds_is_kept(nights, monkeypatch):
    def told_late(self):
        raise Terminated(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(Morning, "lines", told_late)
        nights.night(143, forky=GOOD_RUN)
    assert nights.outcomes("forky") == [BASELINE]


def test_files_of_a_killed_night_are_removed_unless_its_run_is_still_running(nights):
    nights.night(3, forky=GOOD_RUN, sid=GOOD_RUN, trixie="the machine has lost power")
    cells = {cell.name: cell.folder for cell in nights.history.cells}
    for folder in cells.values():
        (folder / "work-a" / "stage").mkdir(parents=True)
    before = (cells["forky"] / "results.jsonl").read_bytes()
    with closing(ResultsFile(cells["sid"] / "results.jsonl", carry_on=True)):
        nights.night(0, forky=GOOD_RUN)
    assert [name for name, folder in cells.items() if (folder / "work-a").exists()] == ["sid"]
    assert (cells["forky"] / "results.jsonl").read_bytes() == before
    assert not (cells["trixie"] / "results.jsonl").exists()


def test_many_foreign_files_are_reported_in_few_lines(nights):
    nights.night(0, forky=GOOD_RUN)
    for number in range(300):
        (nights.folder / f"file-{number}").write_text("")
    said = nights.night(0, forky=GOOD_RUN)
    assert len(said.splitlines()) < 30
    assert "280 more in" in said
