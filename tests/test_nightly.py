"""Tests of `nightly`: what is new, known, fixed or undecided in a night, and the runs that it starts."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

import bad_driver
from commands import nightly_cell
from commands.__main__ import main
from commands.cli import sendmail
from commands.cli.endings import Terminated
from conformance.errors import UserError
from conformance.model.verdict import Verdict
from conformance.results.folder import RUN_LOG, check_free
from conformance.results.records import Recorded
from conformance.run_options import RunOptions
from conformance.tables.suite import ROOT
from fixtures.targets.builds import environment_from
from made_history import SUITE, run_of
from nights import CASE, nights, option
from patience import await_true, is_running
from reports.digest import read
from reports.nights.facts import SEEN
from reports.nights.facts import UNKNOWN as NOTHING
from reports.nights.history import format_night, read_history
from reports.nights.outcome import (
    BASELINE,
    GOOD,
    NEWLY_WRONG,
    NOT_RUN,
    REGRESSED,
    RUNNING,
    UNDECIDED,
)
from reports.nights.page import HistoryPage, page_of
from samples import laid
from test_under_test import bzimage

__all__ = ["nights"]  # a fixture


def test_a_run_may_begin_where_a_night_has_begun_its_log(tmp_path):
    (tmp_path / RUN_LOG).touch()
    check_free(tmp_path)
    (tmp_path / "letter.txt").touch()
    with pytest.raises(UserError, match=r"is not empty \(it has letter\.txt\)"):
        check_free(tmp_path)


GOOD_RUN, WORSE = run_of({1: "FAIL"}), run_of({1: "FAIL", 2: "FAIL"})


def test_a_regression_is_new_in_one_night_known_in_the_next_and_fixed_in_the_third(nights):
    assert "1 baseline (exit status 0)" in nights.night(0, forky=GOOD_RUN)
    said = nights.night(1, forky=WORSE)
    assert re.search(rf"regressed, since this night: PASS -> FAIL +REG-01 +{CASE}", said)
    assert "1 regressed (exit status 1)" in said
    said = nights.night(1, forky=WORSE)
    assert re.search(rf"regressed, since [\d :-]+: PASS -> FAIL +REG-01 +{CASE}", said)
    said = nights.night(0, forky=GOOD_RUN)
    assert re.search(rf"fixed, was present since [\d :-]+: FAIL -> PASS +REG-01 +{CASE}", said)
    assert nights.outcomes("forky") == [BASELINE, REGRESSED, REGRESSED, GOOD]
    against = [cell.outcome.against for cell in nights.history.of("forky")]
    assert against == ["", *[nights.history.nights[0]] * 3]


def waived(listed: str, *failed: int) -> Recorded:
    """Returns a run in which these cases fail, and waivers of a defect cover them; the first case is listed."""
    run = run_of(dict.fromkeys(failed, "FAIL"), waivers={"file": "w", "sha256": "0" * 64})
    assert run.footer
    for number in failed:
        facts: Any = {"for": "defect 0123456789ab", "listed": listed if number > 1 else "yes"}
        run.results[number] |= {"effective": Verdict.WAIVED, "waiver": facts}
    run.footer["waivers"] = {"file": "w", "waived": len(failed), "problems": []}
    run.footer["verdicts"] = {"WAIVED": len(failed), "PASS": len(run.results) - len(failed)}
    return run


@pytest.mark.parametrize(
    "listed, status, outcome", [("no", 1, REGRESSED), ("yes", 0, GOOD), ("unsteady", 0, GOOD)]
)
def test_a_waived_case_that_passed_has_regressed_unless_it_is_named(
    listed, status, outcome, nights
):
    nights.night(0, forky=waived(listed, 1))
    said = nights.night(status, forky=waived(listed, 1, 2))
    assert nights.outcomes("forky") == [BASELINE, outcome]
    assert bool(re.search(rf"regressed, .*: PASS -> WAIVED +REG-01 +{CASE}", said)) == bool(status)
    nights.night(status, forky=waived(listed, 1, 2))


@pytest.mark.parametrize("verdict", ["FAIL", "CRASH"])
def test_what_is_newly_supported_and_wrong_has_not_regressed(verdict, nights):
    nights.night(0, forky=run_of({2: "UNSUPPORTED"}, count=3))
    said = nights.night(1, forky=run_of({2: verdict}, count=3))
    assert nights.outcomes("forky") == [BASELINE, NEWLY_WRONG]
    assert "1 newly wrong (exit status 1)" in said
    assert "1 case newly supported, and wrong since the last good night" in said
    assert "<b>In this night: newly supported, and wrong</b>" in page_of(nights.history)
    said += nights.night(3, forky="no network")
    assert "    newly supported, and wrong in an earlier night and not fixed, " in said
    assert "regressed" not in said
    page = page_of(nights.history)
    assert "newly wrong in an earlier night and not fixed:" in page
    assert "newly supported, and wrong since " in page
    assert "regressed" not in page.partition("</style>")[2]


def test_a_regression_beside_what_is_newly_supported_is_told_apart(nights):
    nights.night(0, forky=run_of({2: "UNSUPPORTED"}))
    nights.night(1, forky=run_of({2: "FAIL", 4: "CRASH"}))
    assert nights.outcomes("forky") == [BASELINE, REGRESSED]
    said = nights.night(3, forky="no network")
    assert "regressed in an earlier night and not fixed, since" in said


def test_the_mail_of_a_night_without_results_has_the_standing_regression(nights):
    nights.night(0, forky=run_of({}), sid=GOOD_RUN)
    nights.night(1, forky=GOOD_RUN, sid=WORSE)
    first = format_night(nights.history.nights[1])
    said = nights.night(3, forky="no network", sid="no network")
    assert re.search(r"^forky +not run +no network; see ", said, re.M)
    assert re.search("^sid +not run +for the same reason as forky$", said, re.M)
    still = f"    regressed in an earlier night and not fixed, since {first}"
    assert f"{still}, seen in 1 of 2 nights: valid refused  " in said
    assert f"{still}: 1 case of known defects, the first is {CASE}" in said
    said = nights.night(0, trixie=GOOD_RUN)
    assert f"forky             not chosen for this night\n{still}" in said
    assert f"sid               not chosen for this night\n{still}" in said
    nights.night(0, forky=run_of({}), sid=GOOD_RUN)
    assert "not fixed" not in nights.night(3, forky="no network", sid="no network")
    assert "not chosen" not in nights.night(0, trixie=GOOD_RUN)


def test_the_mail_of_an_interrupted_night_has_what_regressed_and_what_still_is(nights):
    nights.night(0, forky=run_of({}), sid=GOOD_RUN, trixie=run_of({}))
    nights.night(1, forky=run_of({}), sid=GOOD_RUN, trixie=GOOD_RUN)
    first = format_night(nights.history.nights[1])
    nights.sendmail("cat >{sent}")
    ended = Terminated(signal.SIGTERM)
    said = nights.night(143, *MAILED, forky=GOOD_RUN, sid=ended, trixie=GOOD_RUN)
    mail = nights.sent.read_text().replace("Subject:\n ", "Subject: ")  # a long subject is folded
    still = (
        f"    regressed in an earlier night and not fixed, since {first}, seen in 1 of 2 nights: "
    )
    ended_so = "1 regressed, 1 of 3 cells, ended by SIGTERM (exit status 143)"
    for text in (said, mail):
        assert (
            "sid               not run    cut short, ended by SIGTERM\n"
            "trixie            not run    not begun, ended by SIGTERM\n" in text
        )
        assert f"not begun, ended by SIGTERM\n{still}" in text
        assert f"\n{ended_so}\n" in text
    night = format_night(nights.history.nights[-1])
    subject = f"rdma-cts, night {night}: {ended_so}"
    assert f"Subject: {subject}\n" in mail.replace("by\n SIG", "by SIG")


def test_earlier_regressions_of_a_case_are_counted(nights):
    for status, verdicts in ((0, {}), (1, {3: "FAIL"}), (0, {}), (1, {3: "FAIL"})):
        said = nights.night(status, forky=run_of(verdicts))
    assert "since this night, and earlier in 1 of 3 nights" in said
    second = format_night(nights.history.nights[1])
    assert f"new, first seen {second}, seen in 2 of these 3 nights: valid refused" in said


def test_changed_cases_stand_below_their_defect_and_others_after_the_defects(nights):
    nights.night(0, forky=run_of({1: "FAIL"}))
    said = nights.night(1, forky=run_of({1: "FAIL", 2: "FAIL", 4: "UNSUPPORTED"}))
    lines = [line.split(":")[0] for line in said.splitlines() if line.startswith("    ")]
    (night, _) = nights.history.nights
    assert lines == [
        f"    known, and now worse, first seen {format_night(night)[:-3]}",
        "        regressed, since this night",
        "    newly unsupported",
        "    all",
    ]
    assert re.search(
        r"valid refused  [0-9a-f]{12}  .*\(REG-01\): now also in 1 case that passed", said
    )
    said = nights.night(0, forky=run_of({1: "FAIL"}))
    assert "    in fewer cases, first seen" in said
    assert "        fixed, was present since" in said


def test_a_defect_without_a_result_in_a_night_is_still_present(nights):
    nights.night(0, forky=GOOD_RUN)
    said = nights.night(3, forky=run_of({1: "MISSED"}))
    assert "no longer decided: FAIL -> MISSED" in said
    assert "no longer seen" not in said
    first, _ = nights.history.nights
    ((_, track),) = HistoryPage(nights.history).defects
    assert [lane.states for lane in track.lanes] == [(SEEN, NOTHING)]
    assert (
        f"no longer seen, first seen {format_night(first)}, last seen {format_night(first)}: "
        in nights.night(
            0,
            forky=run_of({}),
        )
    )


def test_a_night_cut_short_does_not_count_as_free_of_a_defect(nights):
    nights.night(0, forky=run_of({}))
    for status, verdict in ((1, "FAIL"), (3, "MISSED")):
        nights.night(status, forky=run_of({1: verdict}))
    _, second, _ = nights.history.nights
    said = nights.night(1, forky=run_of({1: "FAIL"}))
    assert re.search(rf"new, first seen {format_night(second)}: ", said)
    assert re.search(rf"regressed, since {format_night(second)}: PASS -> FAIL ", said)
    assert "and earlier in" not in said


def cut_after(count: int, verdicts: Mapping[int, str]) -> Recorded:
    """Returns a run of all cases that was cut short after the first `count`."""
    planned = [case.id for case in SUITE.cases]
    return run_of(verdicts, count=count, complete=False, planned=planned)


@pytest.mark.parametrize(
    "known, between, status, kinds",
    [
        ({1: "FAIL"}, cut_after(1, {}), 3, []),
        ({1: "FAIL", 2: "CRASH"}, cut_after(2, {1: "FAIL"}), 3, []),
        ({1: "FAIL"}, cut_after(2, {1: "CRASH"}), 1, ["regressed", "changed"]),
        ({1: "FAIL"}, run_of({1: "BROKEN"}), 3, ["no longer decided", "changed"]),
    ],
    ids=["cut short", "the worse case is missing", "worse", "broken"],
)
def test_a_night_that_does_not_decide_a_rule_leaves_it_as_it_was(
    known, between, status, kinds, nights
):
    changed = []
    for expected_status, run in ((0, run_of(known)), (status, between), (0, run_of(known))):
        nights.night(expected_status, forky=run)
        page = HistoryPage(nights.history)
        (rule,) = (track for track in page.rules if track.id == "REG-01")
        changed += [step.kind for _, step in rule.steps_in(page.nights[-1])]
        assert [lane.is_bad and not lane.is_intermittent for lane in rule.lanes] == [True]
        nothing = "Nothing changed in this night." in page_of(nights.history)
        assert nothing == (run is not between and not kinds and len(page.nights) > 1)
        cut = "No change is known in this night: the run of forky was cut short."
        assert (cut in page_of(nights.history)) == (run is between and not kinds)
        shown = page_of(nights.history).partition('class="described">')[2]
        assert shown.startswith("incomplete: ") is (run.footer is None)
    assert changed == kinds


def test_newly_unsupported_cases_are_named_and_cases_that_were_not_run_are_counted(nights):
    nights.night(0, forky=run_of({}))
    said = nights.night(0, forky=run_of({4: "UNSUPPORTED"}, count=7))
    assert f"newly unsupported: PASS -> UNSUPPORTED  REG-01  {SUITE.cases[4].id}" in said
    assert "; 1 case of that night not tried" in said


def test_changes_under_test_are_named(nights):
    for kernel, build_id, mutant in (("7.2.0", "a" * 40, "1"), ("7.2.1", "b" * 40, "2")):
        under_test = {
            "kernel": {"build_id": build_id},
            "given": {"environment": {"RDMAV_FORK_SAFE": mutant}},
        }
        env = {
            "kernel": kernel,
            "rdma_core": "65.0",
            "pyverbs": "65.0",
            "python": "3.14",
            "tainted": 0,
        }
        said = nights.night(0, forky=run_of({}, env=env, under_test=under_test))
    changed = "build id of the kernel aaaaaaaaaaaa -> bbbbbbbbbbbb; variable RDMAV_FORK_SAFE 1 -> 2"
    assert f"under test: kernel 7.2.0 -> 7.2.1; {changed}" in said


def test_a_cell_that_cannot_run_affects_only_itself(nights):
    nights.night(0, forky=GOOD_RUN, sid=GOOD_RUN)
    said = nights.night(3, sid="rdma-cts: the mirror cannot be reached\n", forky=GOOD_RUN)
    assert re.search(
        r"sid +not run +the mirror cannot be reached; see .*/sid/run.log\n",
        said,
    )
    assert "1 good, 1 not run (exit status 3)" in said
    nights.night(1, forky=GOOD_RUN, sid=WORSE)
    assert nights.outcomes("sid") == [BASELINE, NOT_RUN, REGRESSED]


def test_a_stack_without_results_has_no_lane(nights):
    nights.night(3, forky=GOOD_RUN, sid="rdma-cts: the mirror cannot be reached\n")
    page = HistoryPage(nights.history)
    tracks = [*page.rules, *(track for _, track in page.defects)]
    assert {lane.name for track in tracks for lane in track.lanes} == {"forky"}
    assert "never run" not in page_of(nights.history)


@pytest.mark.parametrize(
    "run",
    [run_of({1: "FAIL"}, complete=False), run_of({1: "FAIL", 5: "MISSED"})],
)
def test_a_run_cut_short_is_not_decided_and_nothing_is_compared_with_it(nights, run):
    nights.night(0, forky=GOOD_RUN)
    nights.night(3, forky=run)
    nights.night(1, forky=WORSE)
    assert nights.outcomes("forky") == [BASELINE, UNDECIDED, REGRESSED]


def test_an_image_that_cannot_be_renewed_is_reported_and_the_old_image_is_used(nights):
    nights.no_network = True
    kernel = bzimage(nights.folder.parent / "k", "7.3.0")
    said = nights.night(
        0,
        "--renew",
        "1",
        "--kernel",
        f"mine={kernel}",
        forky=GOOD_RUN,
        sid=GOOD_RUN,
    )
    assert "sid: the image could not be renewed: the mirror cannot be reached" in said
    assert nights.ages == {"forky": 1, "sid": 1}


def test_runs_of_other_cases_are_not_compared(nights):
    nights.night(0, "--tier", "smoke", forky=GOOD_RUN)
    nights.night(0, forky=WORSE)
    assert nights.outcomes("forky") == [BASELINE, BASELINE]
    nights.night(1, "--tier", "smoke", forky=WORSE)


def test_each_cell_is_a_run_with_the_options_given(nights):
    modules = nights.folder.parent
    kernel = bzimage(modules / "k", "7.3.0")
    nights.night(
        0,
        "--tier",
        "smoke",
        "--yes",
        "--kernel",
        f"mine={kernel},{modules}",
        forky=GOOD_RUN,
        sid=GOOD_RUN,
    )
    said = [" ".join(command[command.index("run") :]) for command in nights.commands]
    (night,) = nights.history.nights
    out = nights.folder / night
    assert said == [
        f"run --guest --stack forky --tier smoke --quiet --out {out}/forky --yes",
        f"run --guest --stack sid --tier smoke --quiet --out {out}/sid --yes",
        f"run --guest --kernel {kernel} --modules {modules} --tier smoke --quiet --out {out}/mine --yes",
    ]
    assert nights.history.names == ["forky", "mine", "sid"]


def test_a_cell_whose_run_failed_after_its_results_is_undecided_with_the_reason(
    nights, monkeypatch
):
    def full_disk(command: list[str], environment: Mapping[str, str], output: int) -> int:
        os.write(output, b"rdma-cts: report.html cannot be written: No space left on device\n")
        nights.finished(command, environment, output)
        return 3

    with monkeypatch.context() as disk:
        disk.setattr(nightly_cell, "_finished", full_disk)
        said = nights.night(3, forky=GOOD_RUN)
    assert re.search("forky +undecided +.*report.html cannot be written: No space left", said)
    assert "1 undecided (exit status 3)" in said
    assert "1 baseline (exit status 0)" in nights.night(0, forky=GOOD_RUN)


def test_variables_of_the_guest_have_no_effect_on_the_host(nights, monkeypatch):
    seen: list[dict[str, str]] = []

    def observed(command, environment, output):
        with monkeypatch.context() as process:
            process.setattr(os, "environ", {**environment})
            named = option(command, "--guest-env")
            options = RunOptions(guest_env=(named,), sanitize="--sanitize" in command)
            seen.extend(({**environment}, environment_from(options)))
        return nights.finished(command, environment, output)

    monkeypatch.setattr(nightly_cell, "_finished", observed)
    nights.night(0, "--sanitize", "--guest-env", "LD_DEBUG=libs", forky=run_of({}))
    host, guest = seen
    assert host.get("LD_DEBUG") != "libs"
    assert "libasan" not in host.get("LD_PRELOAD", "")
    assert guest["LD_DEBUG"] == "libs"
    assert guest["LD_PRELOAD"].startswith("libasan.so")


def test_a_running_night_is_shown_as_running(nights, monkeypatch, tmp_path):
    shown: list[str] = []

    def observed(command, environment, output):
        cell = nights.history.of("forky")[-1]
        shown.append(cell.outcome.outcome)
        assert not nights.history.problems
        assert main(["report", "--history", str(nights.folder), "--site", str(tmp_path / "s")]) == 0
        index = (tmp_path / "s" / "index.html").read_text()
        assert "Latest night: 1 running" in index
        night = tmp_path / "s" / "nights" / f"{nights.history.nights[-1]}.html"
        for page in (index, page_of(nights.history), night.read_text()):
            assert "This night has no results yet." in page
        return nights.finished(command, environment, output)

    nights.night(0, forky=GOOD_RUN)
    with monkeypatch.context() as look:
        look.setattr(nightly_cell, "_finished", observed)
        nights.night(0, forky=GOOD_RUN)
    assert shown == [RUNNING]
    assert nights.outcomes("forky") == [BASELINE, GOOD]


NIGHT_OF_ONE_RUN = """
import os, sys
from commands.nightly_cell import _finished
_finished(["sh", "-c", f"echo $$ >{sys.argv[1]}; exec sleep 36000"], os.environ, 2)
"""


def test_the_run_ends_with_a_night_that_is_killed(tmp_path):
    file = tmp_path / "pid"
    command = [sys.executable, "-c", NIGHT_OF_ONE_RUN, str(file)]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}) as night:
        await_true(lambda: file.exists() and file.read_text().endswith("\n"))
        night.kill()
    await_true(lambda: not is_running(int(file.read_text())))


def test_a_night_can_test_a_driver_from_a_source_tree(nights, tmp_path):
    laid(tmp_path, dict.fromkeys(("drivers/infiniband/sw/rxe/rxe.c", "include/rdma/x.h"), ""))
    for words in ("init --quiet", "add .", "-c user.name=a -c user.email=a@b commit --quiet -m a"):
        subprocess.run(["git", "-C", tmp_path, *words.split()], check=True)
    said = nights.night(0, "--linux", str(tmp_path), forky=GOOD_RUN)
    assert re.search(rf"^under test: --linux {tmp_path} \(commit [0-9a-f]{{12}}\)$", said, re.M)
    assert option(nights.commands[-1], "--linux") == str(tmp_path)
    (tmp_path / "drivers/infiniband/sw/rxe/rxe.c").write_text("changed")
    said = nights.night(0, "--linux", str(tmp_path), forky=GOOD_RUN)
    assert re.search(
        r"^under test: .* \(commit [0-9a-f]{12} with 1 uncommitted file\)$", said, re.M
    )
    nights.night(2, "--linux", str(tmp_path / "include"), forky=GOOD_RUN)
    nights.night(2, "--linux", str(tmp_path), "--modules", str(tmp_path), forky=GOOD_RUN)
    (tmp_path / "rdma_rxe.ko").touch()
    nights.night(0, "--modules", str(tmp_path), forky=GOOD_RUN)
    assert option(nights.commands[-1], "--modules") == str(tmp_path)


def test_the_output_of_a_night_is_also_a_message_and_the_data_of_a_webhook(nights, tmp_path):
    hook = tmp_path / "hook.json"
    sent = nights.sendmail("[ $1 = -t ] && cat >{sent}")
    said = nights.night(
        0,
        "--mail-to",
        "qa@example.org",
        "--webhook-file",
        str(hook),
        forky=GOOD_RUN,
    )
    (message,) = nights.folder.glob("*.eml")
    (cell,) = nights.history.cells
    defects = read(cell.folder).summary.headline
    assert f"\n    {defects}\n    report: {cell.folder / 'report.html'}\n" in sent.read_text()
    assert f"message: {message}, sent to qa@example.org" in said
    assert sent.read_text() == message.read_text()
    assert "To: qa@example.org\nSubject: rdma-cts, night 20" in sent.read_text()
    (line,) = (
        line for line in said.splitlines() if line.startswith("forky") and "baseline" in line
    )
    assert line in sent.read_text()
    which, *lines = json.loads(hook.read_text())["text"].splitlines()
    assert (which, lines[0]) == (said.splitlines()[0], line)
    assert which.startswith("night 20")
    assert "is not a night" not in nights.night(0, forky=GOOD_RUN)


def test_a_webhook_file_of_the_user_is_refused_before_the_night_begins(nights, tmp_path, cli):
    laid(tmp_path, {"hook.json": '{"mine": 1}'})
    words = ("nightly", "--history", nights.folder, "--webhook-file", tmp_path / "hook.json")
    said = cli(2, *words).err
    assert "is a file that this command has not written" in said
    assert said.endswith("; give another file to --webhook-file, or remove it\n")
    assert not nights.folder.exists() or not nights.history.nights


@pytest.mark.parametrize(
    "more, said",
    [
        ("--stack forky,bullseye --arch riscv64", "has no riscv64"),
        ("--stack forky --guests 1000", "--guests 1000: each guest needs"),
        ("--stack forky --profile x.yaml", "the profile is for the driver mlx5_core"),
        ("--stack forky --overlay .", "has the run's own directory"),
    ],
)
def test_a_mistake_in_the_options_of_a_cell_is_refused_before_the_night_begins(
    tmp_path, monkeypatch, cli, more, said
):
    monkeypatch.chdir(laid(tmp_path, {"x.yaml": "device: mlx5_core\n"}))
    assert said in cli(2, "nightly", "--history", "history", *more.split()).err
    assert not (tmp_path / "history").exists()


MAILED = ("--mail-to", "qa@example.org")


def test_a_night_without_sendmail_does_not_begin(nights, monkeypatch):
    monkeypatch.setattr(sendmail, "find_program", lambda name: None)
    assert "--mail-to needs sendmail, which is not installed" in nights.night(2, *MAILED, forky="")
    assert not nights.folder.exists()


REFUSALS = {
    "exited with 75: no relay": "cat >/dev/null; echo warning >&2; echo no relay >&2; exit 75",
    "exited with 1": "exit 1",
    "has not ended after 0.01 s": "exec sleep 600",
    "cannot be run: Exec format error": "",
}


@pytest.mark.parametrize("failure, text", REFUSALS.items(), ids=REFUSALS)
def test_a_message_that_is_not_sent_has_a_line_on_standard_error_and_a_status(
    failure, text, nights, tmp_path, monkeypatch, capsys
):
    nights.sendmail(text)
    if not text:
        (tmp_path / "bin" / "sendmail").write_bytes(b"\x7fELF")
    monkeypatch.setattr(sendmail, "_LONGEST_S", 0.01 if "600" in text else 300.0)
    nights.cells = {"forky": run_of({})}
    arguments = ["nightly", "--history", str(nights.folder), "--stack", "forky", *MAILED]
    assert main(arguments) == 3
    out, err = capsys.readouterr()
    assert "1 baseline (exit status 0)" in out
    assert re.fullmatch(
        rf"message: \S+\.eml, not sent to qa@example.org: \S+ {failure} \(exit status 3\)\n", err
    )
    said = nights.night(1, *MAILED, forky=WORSE)
    assert "1 regressed (exit status 1)" in said
    assert re.search(rf"not sent to .* {failure} \(exit status 1\)\n", said)


def test_a_night_in_the_future_is_reported(nights):
    (nights.folder / "99990101T000000Z").mkdir(parents=True)
    assert "the history has a later night" in nights.night(0, forky=GOOD_RUN)


def test_the_error_message_of_a_run_is_reported(tmp_path, cli, monkeypatch):
    """The run is a real process, and not a simulated run."""
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    monkeypatch.setenv("RDMA_CTS_CACHE", str(cache))
    kernel = bzimage(tmp_path / "k", "7.3.0")
    command = (
        f"nightly --history {tmp_path / 'h'} --stack forky --renew 99999 --kernel mine={kernel}"
    )
    said = cli(3, *command.split(), "--rule", "REG-15").out
    assert re.search("forky +not run +.* can be written by other users; .*; see .*run.log\n", said)
    assert re.search("mine +not run +for the same reason as forky\n", said)


@pytest.mark.guest
@pytest.mark.nightly
def test_a_regression_in_the_guest_is_reported_in_one_night_and_fixed_in_the_next(tmp_path, cli):
    case = "reg_mr/access_flags/remote-write-without-local-write+none"
    history = tmp_path / "history"
    command = f"nightly --history {history} --stack forky --only {case} --no-confirm --yes --renew 99999".split()
    overlay = ["--overlay", str(bad_driver.overlay(tmp_path / "overlay", "regression.c"))]
    assert "nothing to compare with yet" in cli(0, *command).out
    regressed = f"regressed, since this night: PASS -> FAIL  REG-15  {case}"
    assert regressed in cli(1, *command, *overlay).out
    assert f"FAIL -> PASS  REG-15  {case}" in cli(0, *command).out
    outcomes = [cell.outcome.outcome for cell in read_history(history).of("forky")]
    assert outcomes == [BASELINE, REGRESSED, GOOD]
