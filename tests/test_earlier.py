"""Defects and cases of an earlier run are found again: for `explain` and `reproducer`, and for a run of the same
cases."""

import os
import re
from pathlib import Path

import pytest

from commands.__main__ import main
from commands.cli import run_arguments
from conformance.errors import UserError
from conformance.run_options import RunOptions
from made_history import SUITE, run_of, write_run
from reports.digest import read
from reports.terminal import summary
from runs.earlier import run_about, with_earlier

CASE = SUITE.cases[2].id


@pytest.fixture(autouse=True)
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs: the first has two violations and an undecided case; the second has no violation."""
    monkeypatch.chdir(tmp_path)
    runs = {"first": {2: "FAIL", 4: "FAIL", 5: "MISSED"}, "second": {}}
    for at, (name, verdicts) in enumerate(runs.items(), 1):
        folder = tmp_path / "out" / name
        write_run(folder, run_of(verdicts))
        os.utime(folder / "results.jsonl", (at, at))
    return tmp_path / "out"


def fingerprint(out: Path) -> str:
    return read(out / "first").defects[0].fingerprint


def test_a_defect_is_found_in_the_run_that_has_shown_it(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", fingerprint(out)]) == 0
    assert f"defect {fingerprint(out)}  (fake0, host, kernel 7.2.0; out/first)" in capsys.readouterr().out


def test_the_latest_run_that_has_a_case_is_asked_about_it() -> None:
    assert run_about(CASE) == Path("out/second")
    assert run_about("REG-01") == Path("out/second")
    assert run_about("reg_mr/never/run") == Path("out/second")


def test_a_run_of_other_cases_hides_nothing(out: Path) -> None:
    later = out / "third"
    write_run(later, run_of({}))
    kept = [line for line in (later / "results.jsonl").read_text().splitlines() if CASE not in line]
    (later / "results.jsonl").write_text("\n".join(kept) + "\n")
    assert run_about(CASE) == Path("out/second")


def test_list_shows_the_cases_of_a_fingerprint(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_arguments, "suite_from", lambda _: SUITE)
    assert main(["list", "--only", fingerprint(out)[:6]]) == 0
    assert read(out / "first").defects[0].cases[0] in capsys.readouterr().out


def test_failed_are_the_cases_that_failed_or_were_not_decided(out: Path) -> None:
    expected = tuple(SUITE.cases[number].id for number in (2, 4, 5))
    assert with_earlier(RunOptions(), out / "first").only == expected
    os.utime(out / "first/results.jsonl", (9, 9))
    assert with_earlier(RunOptions(), Path("out")).only == expected


def test_a_run_without_failures_has_none_to_run_again(out: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no case of .*second has failed"):
        with_earlier(RunOptions(), out / "second")
    with pytest.raises(UserError, match=r"there is no run in .*nowhere"):
        with_earlier(RunOptions(), tmp_path / "nowhere")
    with pytest.raises(UserError, match="has no defect abcdef"):
        with_earlier(RunOptions(only=("abcdef",)), None)


@pytest.mark.parametrize("target", ["--guest --stack trixie", "--host root@node1 --device mlx5_0", ""])
def test_the_last_lines_name_the_program_and_the_next_run_on_its_target(out: Path, target: str) -> None:
    file = out / "first/results.jsonl"
    run = f"./rdma-cts run {target}".strip()
    file.write_text(re.sub(r'"repro":"[^"]*--only', f'"repro":"{run} --only', file.read_text()))
    text = summary(read(out / "first"), Path("out/first"))
    assert f"again: {run} --failed out/first runs" in text
    assert f"C program: ./rdma-cts reproducer {fingerprint(out)} --run out/first" in text


def test_printed_commands_are_quoted_for_a_shell(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named = (out / "first").rename(out / "a b&c")
    assert f"reproducer {read(named).open_defects[0].fingerprint} --run '{named}' shows" in summary(read(named), named)
    assert main(["report", str(named), "--out", "page.html"]) == 0
    assert f"--run &#39;{named}&#39;</code>".replace("&c", "&amp;c") in Path("page.html").read_text()
