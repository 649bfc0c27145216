"""Tests of `rdma-cts judge`, which judges recorded runs again: if the rules are unchanged, no verdict changes; if they
have changed, the present rules decide."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from bad_places import full_disk
from conformance.errors import UserError
from conformance.model.capability import JUDGED_BY
from conformance.model.case import Case
from conformance.model.kind import Kind
from conformance.model.record import ResultRecord
from conformance.model.verdict import Verdict
from conformance.results.records import read_written
from conformance.results.rejudge import rejudge
from conformance.sweeps.outcome import OUTSIDE, Points
from conformance.tables.suite import ROOT, Suite, load_suite
from kinds import Folders
from recorded_reference import record
from reports.digest import read
from samples import consistent, lines_of, written_records
from trial.catalogue import VIOLATIONS
from trial.reference.device import Device
from trial.reference.stack import OPTIONAL, without

SUITE = load_suite()
SOME = [case for case in SUITE.cases if case.kind is Kind.ROW and not case.hazardous][::15]
SOME += [case for case in SUITE.cases if case.id == "access/model/pairs"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: Folders) -> Path:
    """A run of some cases and a sweep, with several verdicts, because the device lacks two capabilities."""
    sweeps = [case for case in SUITE.cases if case.sweep and case.sweep.size <= 2048]
    device = Device(without("odp", "rereg_mr"))
    return record(tmp_path_factory.mktemp("judge") / "run", SUITE, [*SOME, *sweeps[:1]], device)


def again(suite: Suite, directory: Path) -> dict[str, tuple[ResultRecord, str]]:
    """Judges a run again; returns the results by case."""
    return {
        result.record["case"]: (result.record, result.kept)
        for result in rejudge(suite, read_written(directory), directory)
    }


def plain(run: Path) -> ResultRecord:
    """Returns the first result of a run that is about a single call and has an observation."""
    return next(line for line in read_written(run).results if line["observed"])


def edited(run: Path, to: Path, **changes: object) -> Path:
    """Writes the run with these changes of the result that `plain` returns; returns its folder."""
    lines, case = lines_of(run), plain(run)["case"]
    next(line for line in lines if line.get("case") == case).update(changes)
    shutil.copytree(run / "points", to / "points")
    return written_records(consistent(lines), to)


def test_the_same_rules_give_the_same_lines(run):
    results = again(SUITE, run)
    for line in read_written(run).results:
        new, old_result = results[line["case"]]
        assert new["verdict"] == line["verdict"]
        assert new["reason"].partition("; ")[0] == line["reason"].partition("; ")[0]
        assert new.get("notes") == line.get("notes")
        assert old_result == (
            "" if line["observed"] or line.get("points") else "nothing was observed"
        )
        assert new.get("points") == line.get("points")
    assert {line["verdict"] for line, _ in results.values()} >= {"PASS", "UNSUPPORTED"}


def lacking_sweeps(name: str) -> list[Case]:
    """Returns the sweeps with points that need a capability, without the largest ones and without tries."""
    found = []
    for case in SUITE.cases:
        if case.sweep is None or case.sweep.size > 20_000 or case.sweep.tries:
            continue
        needs = [case.needs, *case.sweep.needs_of.values()]
        needs += [clause.needs for clause in case.sweep.clauses]
        if any(name in of for of in needs):
            found.append(case)
    return found


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in JUDGED_BY else pytest.mark.nightly)
        for name in OPTIONAL
        if lacking_sweeps(name)
    ],
)
def test_a_sweep_alone_shows_what_the_device_lacks(name, tmp_path):
    """A run with only this sweep, so that no other result shows that the device lacks the capability."""
    for number, case in enumerate(lacking_sweeps(name)):
        alone = record(tmp_path / str(number), SUITE, [case], Device(without(name)))
        (line,) = read_written(alone).results
        new, kept = again(SUITE, alone)[case.id]
        assert (new["verdict"], new["points"], kept) == (line["verdict"], line["points"], "")
        if name in JUDGED_BY:
            assert line["points"][Verdict.UNREACHABLE]


@pytest.mark.parametrize("name", JUDGED_BY)
def test_a_sweep_whose_set_up_other_rows_judge_supports_its_verdict(name, tmp_path, cli):
    chosen = lacking_sweeps(name)
    alone = record(tmp_path / "alone", SUITE, chosen[-1:], Device(without(name)))
    assert "1 of 1 results judged again: 0 verdicts changed" in cli(0, "judge", alone).out
    cli(0, "bundle", alone, "--out", tmp_path / "bundle")


def test_a_capability_in_points_that_is_no_name_is_refused(tmp_path, cli):
    sweep = next(
        case for case in SUITE.cases if case.id == "reg_mr/access_space/huge-pages@libibverbs"
    )
    alone = record(tmp_path / "alone", SUITE, [sweep], Device(without("hugetlb")))
    (points,) = (alone / "points").iterdir()
    data = json.loads(points.read_text())
    next(example for example in data["examples"] if "lacking" in example["observed"])["observed"][
        "lacking"
    ] = [{"x": 1}]
    points.write_text(json.dumps(data))
    assert "not the points of a sweep" in cli(2, "judge", alone).err


def test_the_present_rules_decide(run):
    """The expectation of a row is inverted, so that a PASS becomes a FAIL with a reason."""
    before = {line["case"]: line for line in read_written(run).results}
    refused = {"outcome": "refused"}
    passed = next(
        id_
        for id_, line in before.items()
        if (line["verdict"], line["expected"]) == ("PASS", refused)
    )

    def turned(case: Case) -> Case:
        when = replace(case.when, then=replace(case.when.then, outcome="success"))
        if case.id == passed:
            return replace(case, when=when)
        return case

    tables = tuple(replace(table, cases=tuple(map(turned, table.cases))) for table in SUITE.tables)
    results = again(replace(SUITE, tables=tables), run)
    changed = {
        case: line
        for case, (line, _) in results.items()
        if line["verdict"] != before[case]["verdict"]
    }
    assert list(changed) == [passed]
    assert changed[passed]["verdict"] == Verdict.FAIL
    assert "should succeed" in changed[passed]["reason"]


def test_a_forged_verdict_is_corrected(run, tmp_path, cli):
    forged = edited(run, tmp_path / "forged", verdict="FAIL", effective="FAIL", reason="made up")
    said = cli(0, "judge", forged).out
    first = plain(run)
    assert f"FAIL -> {first['verdict']}  {first['case']}" in said
    assert "was: made up" in said
    assert "1 verdict changed" in said


def test_a_rejudged_run_can_be_written(run, tmp_path, cli):
    out = tmp_path / "again"
    cli(0, "judge", run, "--out", out)
    assert "nothing has changed" in cli(0, "compare", run, out).out
    assert {file.name for file in out.iterdir()} >= {"report.html", "junit.xml", "summary.json"}
    assert read_written(out).header["judged_again"]["suite"] == read_written(run).header["suite"]
    cli(2, "judge", run, "--out", out)


@pytest.mark.parametrize("room", [0, 20_000])
def test_a_full_disk_leaves_no_rejudged_run(run, room, tmp_path, cli):
    out = tmp_path / "again"
    with full_disk(room):
        said = cli(3, "judge", run, "--out", out).err
    assert said.startswith(f"rdma-cts: {out}")
    assert said.count("\n") == 1
    assert not out.exists()
    cli(0, "judge", run, "--out", out)


def test_a_run_of_which_only_the_results_were_kept_is_judged_without_its_sweeps(run, tmp_path, cli):
    alone = written_records(lines_of(run), tmp_path / "alone")
    swept = sum(bool(record.get("points_file")) for record in read_written(run).results)
    out = tmp_path / "again"
    said = cli(0, "judge", alone, "--out", out).out
    note = f"{swept} sweep not judged again: their points are not with the results"
    assert (swept, note in said.splitlines()) == (1, True)
    assert said.endswith("(exit status 0)\n")
    assert "recorded with the tables" in read(out).summary.facts["judged again"]
    assert read(out).verdicts.of_rules == read(alone).verdicts.of_rules


def test_if_a_report_cannot_be_written_the_conclusion_is_still_printed(
    run, tmp_path, cli, monkeypatch
):
    def write_beside(out: Path) -> None:
        raise UserError(f"{out / 'report.html'}: No space left on device")

    monkeypatch.setattr("commands.judge.report.write_beside", write_beside)
    out, err = cli(2, "judge", run, "--out", tmp_path / "new")
    assert "now: " in out
    assert "report.html" in err


def test_a_result_of_another_call_than_the_present_one_is_not_judged(run, tmp_path):
    first = plain(run)["case"]
    assert (
        again(SUITE, edited(run, tmp_path / "edited", call="ibv_other()"))[first][1]
        == "its calls are different now"
    )


def test_points_of_another_model_keep_the_verdicts_of_their_rules(run, tmp_path):
    lines = lines_of(run)
    (pairs,) = (line for line in lines if line.get("case") == "access/model/pairs")
    pairs["observed"]["combinations"]["model"] = "that of last year"
    record, kept = again(SUITE, written_records(lines, tmp_path / "old"))["access/model/pairs"]
    assert kept == "its model is different now"
    assert record["rule_verdicts"] == pairs["rule_verdicts"]
    assert len(set(record["rule_verdicts"].values())) > 1


def test_a_run_that_names_no_tables_is_judged(run, tmp_path, cli):
    lines = lines_of(run)
    del lines[0]["suite"]
    shutil.copytree(run / "points", tmp_path / "points")
    assert cli(0, "judge", written_records(lines, tmp_path)).err == ""


def test_a_malformed_observation_is_reported_in_one_line(run, tmp_path, cli):
    first = plain(run)["case"]
    (line,) = cli(
        2,
        "judge",
        edited(run, tmp_path / "edited", observed={"nothing": 3}),
    ).err.splitlines()
    assert f"the observation of {first} cannot be judged" in line


def test_a_point_that_was_removed_from_a_sweep_is_reported(run, tmp_path, cli):
    forged = edited(run, tmp_path / "forged")
    (line,) = (line for line in read_written(run).results if line.get("points_file"))
    file = forged / line["points_file"]
    data = json.loads(file.read_text())
    points = Points.of_data(data)
    points.index[
        next(number for number, outcome in enumerate(points.index) if outcome != OUTSIDE)
    ] = OUTSIDE
    file.write_text(json.dumps(points.as_data(line["case"])))
    said = cli(1, "judge", forged).out
    assert f"{line['verdict']} of {line['case']}: its space is different now" in said
    assert "nothing: 1 recorded verdict not supported by the observations (exit status 1)" in said
    file.write_text(json.dumps(points.as_data("reg_mr/another/sweep")))
    assert (
        f"the points of reg_mr/another/sweep, and not of {line['case']}"
        in cli(2, "judge", forged).err
    )


def test_a_run_that_was_cut_short_during_its_confirmation_can_be_judged(tmp_path, cli):
    chosen = [
        case
        for case in SUITE.cases
        if "REG-15" in case.rules and case.kind is Kind.ROW and not case.hazardous
    ]
    wrong = next(violation for violation in VIOLATIONS if violation.rule == "REG-15").kind()
    *lines, _ = lines_of(record(tmp_path / "run", SUITE, chosen, wrong))
    violating = next(line["case"] for line in lines if line.get("verdict") == "FAIL")
    tried = {"type": "confirmation", "case": violating, "confirmed": True, "by": "repetition"}
    cli(
        1,
        "judge",
        written_records([*lines, tried], tmp_path / "cut"),
        "--out",
        tmp_path / "judged",
    )
    judged = read_written(tmp_path / "judged")
    assert judged.footer is None
    assert [confirmation["case"] for confirmation in judged.confirmations] == [violating]


def test_rules_that_pass_only_in_part_by_other_tables_have_a_line_with_the_reason(cli):
    said = cli(1, "judge", ROOT / "docs" / "runs" / "rxe-ppc64el.jsonl.xz").out
    before, now = (
        re.search(rf"{name}: .* (\d+) passed in part", said) for name in ("before", "now")
    )
    line = re.search(r"\n(\d+) rules pass only in part now, judged by other tables: \d+ ", said)
    assert before
    assert now
    assert line
    assert int(now[1]) - int(before[1]) == int(line[1])


def test_what_only_a_new_profile_requires_is_no_regression_and_in_the_commands(run, tmp_path, cli):
    driver = read_written(run).header["device"]["driver"]
    profile, out = tmp_path / "profile.yaml", tmp_path / "out"
    profile.write_text(f"device: {driver}\npresent:\n  odp: sold\n  rereg_mr: sold\n")
    cli(1, "judge", run, "--profile", profile, "--out", out)
    for judged in read(out).results:
        assert f" --profile {profile} --only {judged['case']}" in judged["repro"]
        for item in judged["deviations"]:
            assert f" --profile {profile} " in item["repro"]
    said = cli(1, "compare", run, out).out
    first, *_ = said.splitlines()
    assert re.search(r"requires what the device lacks: \d+ newly required by the profile", first)
    assert "the profiles differ" in first
    assert re.search(r"^  profile: none -> profile\.yaml [0-9a-f]{12}$", said, re.M)
    assert not re.search("new defect|regressed|newly supported|waive all|report the worst", said)
    back = tmp_path / "back"
    cli(0, "judge", out, "--out", back)
    assert not any("--profile" in record["repro"] for record in read(back).results)
