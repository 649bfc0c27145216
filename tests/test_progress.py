"""The progress of a run, on a real terminal (a pty) and elsewhere."""

import io
import os
import pty
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from reports.digest import digest
from reports.terminal import NORMAL, QUIET, VERBOSE, Progress, summary
from samples import header, numbered, recorded, result
from test_reports import HOSTILE

SUITE = numbered(4)
ESCAPE = "\x1b"
END = "<that is all>"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[io.TextIOWrapper, int]]:
    """A terminal to write to, and the file descriptor of its other side."""
    for name in ("NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    other, ours = pty.openpty()
    stream = os.fdopen(ours, "w", encoding="utf-8")
    yield stream, other
    stream.close()
    os.close(other)


def seen(terminal: tuple[io.TextIOWrapper, int]) -> str:
    """Returns everything that was written to the terminal, which delivers pieces of any size."""
    stream, other = terminal
    stream.write(END)
    stream.flush()
    shown = b""
    while not shown.endswith(END.encode()):
        shown += os.read(other, 1 << 16)
    return shown.decode().removesuffix(END)


def ticking(step: float = 0.5) -> Iterator[float]:
    """A clock that advances by `step` seconds each time it is read."""
    now = 0.0
    while True:
        yield now
        now += step


def go(progress: Progress, verdicts: tuple[str, ...] = ("PASS", "FAIL", "UNSUPPORTED"), total: int = 100) -> None:
    """Shows some results of a longer run."""
    progress.run_started(header(), total)
    for done, (case, verdict) in enumerate(zip(SUITE.cases, verdicts, strict=False), 1):
        progress.result_recorded(result(case, verdict, f"it is {verdict}"), done, total)


def test_a_terminal_has_a_bar_with_pace_and_time_left(terminal: tuple[io.TextIOWrapper, int]) -> None:
    clock = ticking()
    go(Progress(terminal[0], clock=lambda: next(clock)))
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
    ("columns", "bar"), [(30, "  ....... 2 of 100, 49 s left"), (50, BAR), (24, "  2 of 100, 49 s left")]
)
def test_the_time_left_is_the_last_to_go_on_a_narrow_terminal(
    columns: int, bar: str, terminal: tuple[io.TextIOWrapper, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    clock = ticking()
    go(Progress(terminal[0], clock=lambda: next(clock)), ("PASS", "PASS"))
    shown = [part for part in seen(terminal).split(f"\r{ESCAPE}[K") if " of 100" in part][-1]
    assert shown == bar[: columns - 1]
    assert "49 s left" in shown


def test_the_time_left_counts_what_takes_longer_than_the_cases_before_it() -> None:
    """Each case has taken half a second so far, and the last case is expected to take a hundred times as long."""
    stream, clock = io.StringIO(), ticking(0.5)
    progress = Progress(stream, VERBOSE, clock=lambda: next(clock))
    first, second, third, last = SUITE.cases
    progress.expect({first.id: 0.1, second.id: 0.1, third.id: 0.1, last.id: 10.0})
    progress.run_started(header(), 4)
    for done, case in enumerate((first, second, third), 1):
        progress.result_recorded(result(case), done, 4)
    assert progress._pace(1) == ["50 s left", "2 per second"]


def test_the_bar_is_gone_at_the_end(terminal: tuple[io.TextIOWrapper, int]) -> None:
    go(Progress(terminal[0]), ("PASS", "PASS"), total=2)
    assert seen(terminal).endswith(f"\r{ESCAPE}[K")


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_are_off_where_they_are_not_wanted(
    name: str, value: str, terminal: tuple[io.TextIOWrapper, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    go(Progress(terminal[0]))
    print(
        summary(digest(recorded([result(SUITE.cases[0], "FAIL")]), Path("out")), Path("out"), terminal[0]),
        file=terminal[0],
    )
    shown = seen(terminal)
    assert f"{ESCAPE}[3" not in shown
    assert "FAIL" in shown
    assert (ESCAPE in shown) == (name == "NO_COLOR")


def test_elsewhere_there_are_plain_lines_now_and_then() -> None:
    stream, clock = io.StringIO(), ticking(0.1)
    progress = Progress(stream, clock=lambda: next(clock))
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
    ("level", "cases"), [(QUIET, []), (NORMAL, ["FAIL"]), (VERBOSE, ["PASS", "FAIL", "UNSUPPORTED"])]
)
def test_the_verbosity_of_progress_can_be_chosen(level: int, cases: list[str]) -> None:
    stream = io.StringIO()
    go(Progress(stream, level))
    output = [line for line in stream.getvalue().splitlines() if "sample" in line]
    assert [line.split()[0] for line in output] == cases


def test_a_waived_violation_is_reported_as_such() -> None:
    stream = io.StringIO()
    Progress(stream).result_recorded(result(SUITE.cases[0], "FAIL", effective="WAIVED"), 1, 2)
    assert stream.getvalue().startswith("  WAIVED reg_mr/sample/c0")


def test_nothing_hostile_reaches_the_terminal(terminal: tuple[io.TextIOWrapper, int]) -> None:
    progress = Progress(terminal[0])
    progress.result_recorded(result(SUITE.cases[0], "FAIL", HOSTILE, case=f"reg_mr/{HOSTILE}"), 1, 9)
    progress.say(HOSTILE)
    controls = set(re.findall(r"[\x00-\x1f\x7f-\x9f](?:\[[0-9]*[A-Za-z])?", seen(terminal)))
    assert controls <= {"\r", "\n", f"{ESCAPE}[K", f"{ESCAPE}[31m", f"{ESCAPE}[0m"}


@pytest.mark.parametrize(
    ("verdict", "next_", "status"),
    [
        ("PASS", "./rdma-cts compare OLD out/x", 0),
        ("FAIL", "./rdma-cts explain ", 1),
        ("BROKEN", "./rdma-cts doctor", 3),
        ("MISSED", "./rdma-cts run --resume out/x", 3),
    ],
)
def test_the_last_lines_say_where_the_report_is_and_what_to_do(
    verdict: str, next_: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("out/x").mkdir(parents=True)
    Path("out/x/plan.json").touch()  # without a plan, no run can be resumed
    text = summary(digest(recorded([result(SUITE.cases[0], verdict)]), Path("out/x")), Path("out/x"), io.StringIO())
    report, *programs, what, end = text[text.index("\nreport: ") + 1 :].splitlines()
    assert report == "report: out/x/report.html (results: out/x)"
    assert [line.partition(" ")[0] for line in programs] == ["C", "again:"] * (verdict == "FAIL")
    assert what.startswith(f"next: {next_}")
    assert end.endswith(f"(exit status {status})")


def test_a_reason_for_which_cases_cannot_be_reached_is_shown_once() -> None:
    stream = io.StringIO()
    progress = Progress(stream)
    for number, case in enumerate(numbered(3).cases):
        reason = "the library is another one; more" if number == 1 else "the library is another one"
        progress.result_recorded(result(case, "UNREACHABLE", reason), number, 3)
    assert stream.getvalue().count("UNREACHABLE") == 1
