"""Tests of the progress of a run, on a real terminal (a pty) and elsewhere, and of the summary of a run."""

from __future__ import annotations

import io
import itertools
import os
import pty
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import pytest

from commands import run as run_command
from conformance.errors import UserError
from conformance.model.record import ResultRecord
from conformance.model.verdict import Verdict
from conformance.older_python import zip
from conformance.results.records import Recorded
from conformance.tables.suite import ROOT, load_suite
from reports.digest import digest, read
from reports.terminal import NORMAL, QUIET, VERBOSE, Progress, summary
from samples import header, laid, numbered, recorded, result, written

SUITE = numbered(5)
RUNS = Path(__file__).with_name("recorded_violations")
SIW = ROOT / "docs/runs/siw.jsonl.xz"
ESCAPE = "\x1b"
END = "<that is all>"
HOSTILE = "a\x00b\x1b[31mc\nd\re\tf <b>&amp; ]]> \"'g\u2028h\x85 \U0001f600 \ufffe \ud800"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[io.TextIOWrapper, int]]:
    """A terminal to write to, and the file descriptor of its other end."""
    for name in ("NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    other, ours = pty.openpty()
    stream = os.fdopen(ours, "w", encoding="utf-8")
    yield stream, other
    stream.close()
    os.close(other)


def summary_of(
    *lines: ResultRecord,
    folder: str = "out",
    level: int = NORMAL,
    to: TextIO | None = None,
    complete: bool = True,
) -> str:
    """Returns the summary of a run with these results in this folder."""
    run = digest(recorded(lines, complete=complete).shown(), Path(folder))
    return summary(run, Path(folder), to or io.StringIO(), level)


def seen(terminal: tuple[io.TextIOWrapper, int]) -> str:
    """Returns everything that was written to the terminal. One read() may return only a part."""
    stream, other = terminal
    stream.write(END)
    stream.flush()
    shown = b""
    while not shown.endswith(END.encode()):
        shown += os.read(other, 1 << 16)
    return shown.decode().removesuffix(END)


def clock(step: float = 0.5) -> Callable[[], float]:
    """Returns a clock that advances by `step` seconds each time it is read."""
    return itertools.count(0.0, step).__next__


def go(
    progress: Progress,
    verdicts: tuple[str, ...] = ("PASS", "FAIL", "UNSUPPORTED"),
    total: int = 100,
) -> None:
    """Shows some results of a longer run."""
    progress.run_started(header(), total)
    for done, (case, verdict) in enumerate(zip(SUITE.cases, verdicts, strict=False), 1):
        progress.result_recorded(result(case, verdict, f"it is {verdict}"), done, total)


def test_a_terminal_has_a_bar_with_pace_and_time_left(terminal):
    go(Progress(terminal[0], clock=clock()))
    shown = seen(terminal).replace("\r\n", "\n")
    bars = [part for part in re.split(r"\r\x1b\[K|\n", shown) if " of 100" in part]
    assert bars == [
        "  ........................ 1 of 100, 50 s left, 2 per second  reg_mr/sample/c0",
        "  ........................ 2 of 100, 49 s left, 2 per second  reg_mr/sample/c1",
        "  ........................ 3 of 100, 48 s left, 2 per second  reg_mr/sample/c2",
    ]
    assert f"  {ESCAPE}[31mFAIL{ESCAPE}[0m reg_mr/sample/c1: it is FAIL\n" in shown


BAR = "  ........................ 2 of 100, 49 s left"


@pytest.mark.parametrize(
    "columns, bar",
    [(30, "  ....... 2 of 100, 49 s left"), (50, BAR), (24, "  2 of 100, 49 s left")],
)
def test_a_narrow_terminal_still_has_the_time_left(columns, bar, terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    go(Progress(terminal[0], clock=clock()), ("PASS", "PASS"))
    shown = [part for part in seen(terminal).split(f"\r{ESCAPE}[K") if " of 100" in part][-1]
    assert shown == bar[: columns - 1]
    assert "49 s left" in shown


def test_the_time_left_considers_the_expected_durations_of_the_other_cases():
    """Three cases took half a second each, and the last case is expected to take a hundred times as long."""
    progress = Progress(io.StringIO(), VERBOSE, clock=clock())
    first, second, third, last, _ = SUITE.cases
    progress.expect({first.id: 0.1, second.id: 0.1, third.id: 0.1, last.id: 10.0})
    progress.run_started(header(), 4)
    for done, case in enumerate((first, second, third), 1):
        progress.result_recorded(result(case), done, 4)
    assert progress._pace(1) == ["50 s left", "2 per second"]


def test_the_bar_is_removed_at_the_end(terminal):
    go(Progress(terminal[0]), ("PASS", "PASS"), total=2)
    assert seen(terminal).endswith(f"\r{ESCAPE}[K")


@pytest.mark.parametrize("name, value", [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_are_off_if_the_environment_forbids_them(name, value, terminal, monkeypatch):
    monkeypatch.setenv(name, value)
    go(Progress(terminal[0]))
    print(summary_of(result(SUITE.cases[0], "FAIL"), to=terminal[0]), file=terminal[0])
    shown = seen(terminal)
    assert f"{ESCAPE}[3" not in shown
    assert "FAIL" in shown
    assert (ESCAPE in shown) == (name == "NO_COLOR")


def test_without_a_terminal_progress_is_a_line_for_every_50_results():
    stream = io.StringIO()
    progress = Progress(stream, clock=clock(0.1))
    progress.run_started(header(), 120)
    for done in range(1, 121):
        progress.result_recorded(result(SUITE.cases[0]), done, 120)
    progress.worker_restarted("it died")
    assert stream.getvalue().splitlines() == [
        "120 cases on fake0 (fake), kernel 7.2.0, rdma-core 65.0, stack host",
        "  50 of 120, 7 s left, 10 per second",
        "  100 of 120, 2 s left, 10 per second",
        "  starting a new worker: it died",
    ]


@pytest.mark.parametrize(
    "level, cases",
    [(QUIET, []), (NORMAL, ["FAIL"]), (VERBOSE, ["PASS", "FAIL", "UNSUPPORTED"])],
)
def test_the_verbosity_of_progress_can_be_chosen(level, cases):
    stream = io.StringIO()
    go(Progress(stream, level))
    output = [line for line in stream.getvalue().splitlines() if "sample" in line]
    assert [line.split()[0] for line in output] == cases


def test_a_waived_violation_is_reported_as_such():
    stream = io.StringIO()
    Progress(stream).result_recorded(result(SUITE.cases[0], "FAIL", effective="WAIVED"), 1, 2)
    assert stream.getvalue().startswith("  WAIVED reg_mr/sample/c0")


def test_no_control_sequence_of_a_result_reaches_the_terminal(terminal):
    progress = Progress(terminal[0])
    progress.result_recorded(
        result(SUITE.cases[0], "FAIL", HOSTILE, case=f"reg_mr/{HOSTILE}"),
        1,
        9,
    )
    progress.say(HOSTILE)
    controls = set(re.findall(r"[\x00-\x1f\x7f-\x9f](?:\[[0-9]*[A-Za-z])?", seen(terminal)))
    assert controls <= {"\r", "\n", f"{ESCAPE}[K", f"{ESCAPE}[31m", f"{ESCAPE}[0m"}


@pytest.mark.parametrize(
    "verdict, next_, status",
    [
        ("PASS", "./rdma-cts compare OLD out/x", 0),
        ("FAIL", "./rdma-cts explain ", 1),
        ("BROKEN", "./rdma-cts doctor", 3),
        ("MISSED", "./rdma-cts run --resume out/x", 3),
    ],
)
def test_the_last_lines_name_the_report_and_the_next_command(
    verdict, next_, status, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("out/x").mkdir(parents=True)
    Path("out/x/plan.json").touch()  # a run without a plan cannot be resumed
    text = summary_of(result(SUITE.cases[0], verdict), folder="out/x")
    report, *programs, what, end = text[text.index("\nreport: ") + 1 :].splitlines()
    assert report == "report: out/x/report.html (results: out/x)"
    of_failures = ["report", "again:"] * (verdict == "FAIL")
    assert [line.partition(" ")[0] for line in programs] == of_failures
    assert what.startswith(f"next: {next_}")
    assert end.endswith(f"(exit status {status})")


def test_a_reason_for_which_cases_cannot_be_reached_is_shown_once():
    stream = io.StringIO()
    progress = Progress(stream)
    for number, case in enumerate(numbered(3).cases):
        if number == 1:
            reason = "the library is another one; more"
        else:
            reason = "the library is another one"
        progress.result_recorded(result(case, "UNREACHABLE", reason), number, 3)
    assert stream.getvalue().count("UNREACHABLE") == 1


def test_cases_that_a_lost_host_has_missed_are_not_shown_one_by_one():
    stream = io.StringIO()
    progress = Progress(stream)
    for number, case in enumerate(numbered(3).cases, 1):
        progress.result_recorded(result(case, "MISSED", "not run: the host is lost"), number, 3)
    assert stream.getvalue() == ""


# The summary of a run


TABLES = load_suite()


DIED = {
    "kind": "kernel-died",
    "verb": "ibv_reg_mr",
    "seen": ["the kernel under test died", *[""] * 4],
}


REFUSED = {"kind": "refused", "verb": "ibv_reg_mr", "returned": "NULL", "errno": "EINVAL"}


def test_the_summary_has_a_line_for_each_defect_the_worst_first():
    refused = "ibv_reg_mr(pd=pd, access=0) should succeed, but returned NULL with errno EINVAL"
    lines = [
        result(SUITE.cases[0], "FAIL", refused, fault=REFUSED),
        result(SUITE.cases[1], "FAIL", refused, fault=REFUSED),
        result(SUITE.cases[2], "CRASH", "the third", rules=["REG-15"], fault=DIED),
        result(SUITE.cases[3], "UNSUPPORTED", "never shown", rules=["REG-12"]),
        result(SUITE.cases[4], "BROKEN", "the harness " + "could not " * 20, rules=["REG-12"]),
    ]
    said = summary_of(*lines, folder="out/run").splitlines()
    assert said[1].startswith("defects, most severe first: severity, number, what is wrong (rules)")
    first, second, third = said[2:5]
    assert re.fullmatch(
        r"kernel crash +[0-9a-f]{12} kernel fault during a registration: REG-15 \(REG-15\) x1",
        first,
    )
    assert re.fullmatch(
        r"valid refused +[0-9a-f]{12} a valid registration is refused with EINVAL: REG-01 \(REG-01\) x2",
        second,
    )
    assert third == f"{'BROKEN':21}REG-12 reg_mr/sample/c4: the harness {'could not ' * 20}"
    assert "never shown" not in "".join(said)
    assert "2 defects in 3 cases: 1 kernel crash (1), 1 valid refused (2)" in said
    assert "defects by the layer that answered: 2 not known" in said
    assert "5 cases in 2.5 s: 1 UNSUPPORTED, 1 BROKEN, 2 FAIL, 1 CRASH" in said
    assert "report: out/run/report.html (results: out/run)" in said
    assert said[-1].endswith("(exit status 1)")
    in_full = summary_of(*lines, folder="out/run", level=VERBOSE).splitlines()
    assert f"{'':21}{refused}" in in_full
    assert f"{'':21}./rdma-cts run --only reg_mr/sample/c0" in in_full


@pytest.mark.parametrize("columns", [80, 200])
def test_a_terminal_shows_every_word_of_each_title(columns, terminal, monkeypatch):
    """The last words are often the decisive ones."""
    monkeypatch.setenv("COLUMNS", str(columns))
    run = read(RUNS / "forky.jsonl")
    lines = summary(run, Path("out"), terminal[0]).splitlines()
    heads = [number for number, line in enumerate(lines) if line.startswith(ESCAPE)]
    shown = " ".join(map(str.strip, lines))
    for defect in run.violations.defects:
        assert f"{defect.title} ({defect.rules[0]}" in shown
    uncoloured = [re.sub(r"\x1b\[\d+m", "", line) for line in lines[heads[0] : heads[-1] + 1]]
    assert max(map(len, uncoloured)) <= columns


def test_the_quiet_summary_is_one_line():
    died = result(SUITE.cases[0], "CRASH", "the kernel under test died", fault=DIED)
    (line,) = summary_of(died, level=QUIET).splitlines()
    assert line.startswith("1 defect in 1 case: 1 kernel crash (1); ")
    assert line.endswith("(exit status 1)")


def test_a_waived_defect_comes_last_and_does_not_count():
    waived = result(
        SUITE.cases[0],
        "CRASH",
        "the kernel under test died",
        effective="WAIVED",
        waiver={"issue": "1"},
    )
    said = summary_of(
        waived,
        result(SUITE.cases[1], "FAIL", fault={**REFUSED, "kind": "accepted"}),
    ).splitlines()
    assert [line.split()[0] for line in said[2:4]] == ["not", "WAIVED"]
    assert "1 defect in 1 case: 1 not refused (1), and 1 waived" in said


def test_the_summary_mentions_that_a_run_was_cut_short():
    assert "the run was cut short" in summary_of(result(SUITE.cases[0]), complete=False)


@pytest.mark.parametrize("tables", [TABLES.tables_sha256, "other"])
def test_a_rule_of_which_a_case_has_no_result_is_not_verified(tables):
    """A case's rules are found by its permanent id, even in other tables. Cases that no longer exist do not count."""
    first, second = [case for case in TABLES.cases if case.rules == ("REG-15",)][:2]
    rules = {rule.id: rule.as_data() for rule in TABLES.registry.values()}
    head = header(
        planned=[first.id, second.id],
        suite={"version": "0", "tables_sha256": tables},
        rules=rules,
    )
    run = digest(Recorded(head, [result(first)]).shown(), Path())
    assert run.verdicts.of_rules == {"REG-15": Verdict.MISSED}
    assert "1 undecided" in run.summary.short_sentence
    head["planned"] = [first.id, "retired"]
    assert digest(Recorded(head, [result(first)]).shown(), Path()).verdicts.of_rules == {
        "REG-15": Verdict.PASS
    }


def test_hostile_text_stays_in_its_line_and_has_no_control_characters():
    text = summary_of(result(SUITE.cases[0], "FAIL", HOSTILE))
    assert all(character.isprintable() or character == "\n" for character in text)
    (shown,) = [row for row in text.splitlines() if row.startswith("wrong report")]
    assert shown.endswith("(REG-01) x1")


def test_a_report_that_was_not_written_is_not_named(tmp_path, capsys):
    judged = digest(recorded([result(SUITE.cases[0])]).shown(), tmp_path)
    (tmp_path / "report.html").mkdir()
    with pytest.raises(UserError, match=r"report\.html"):
        run_command._reported(judged, tmp_path, NORMAL, "", "")
    said = capsys.readouterr().out
    assert "report.html" not in said
    assert f"results: {tmp_path}" in said


def test_a_file_with_any_number_of_mistakes_prints_a_bounded_number_of_lines(tmp_path, cli):
    words = ", ".join(["*a"] * 2000)
    profile = laid(tmp_path, {"profile.yaml": f"requires: [{words}]\n"}) / "profile.yaml"
    run = written(recorded([]), tmp_path / "run")
    lines = cli(2, "judge", run, "--profile", profile).err.splitlines()
    assert len(lines) == 21
    assert lines[-1] == "rdma-cts: and 1,980 more mistakes"


def test_an_installed_program_names_itself_in_the_commands_of_a_checkouts_run(
    monkeypatch, tmp_path
):
    monkeypatch.setattr("conformance.recorded_command.RECORDED_PROGRAM", "rdma-cts")
    monkeypatch.setattr("reports.terminal.PROGRAM", "rdma-cts")
    # A copy: the recorded runs of docs/ are read once a session, with the name of the checkout's program.
    run = read(Path(shutil.copy(SIW, tmp_path)))
    text = summary(run, Path("out"), level=VERBOSE)
    commands = re.findall(r"(\S+) run .*--only", text)
    assert set(commands) == {"rdma-cts"}
    assert "\nagain: rdma-cts run --guest --driver siw --failed out runs" in text
    points = [item for record in run.results for item in record["deviations"]]
    assert {item["repro"].split()[0] for item in points} == {"rdma-cts"}


def test_the_command_for_the_failed_cases_calls_the_program_as_it_was_called(monkeypatch):
    monkeypatch.setattr("reports.terminal.PROGRAM", "/opt/suite/rdma-cts")
    text = summary(read(SIW), Path("out"))
    assert "\nagain: /opt/suite/rdma-cts run --guest --driver siw --failed out runs" in text
