"""Tests of shards: the division of cases, violations and cells, and the merging of recorded shards into one run."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from bad_places import full_disk
from commands import nightly
from commands.cli import choice, run_arguments
from commands.cli.arguments import Parser
from conformance.results.records import Recorded, read_written
from conformance.results.waiver_file import read_waivers
from conformance.run_options import RunOptions
from conformance.supervision.run import Target
from conformance.tables.suite import load_suite
from conformance.tables.tiers import DEFAULT, OTHER_S, Shard, of_tier, shipped_durations
from kinds import Folders
from recorded_reference import record
from reports.bundles.archive import SUFFIX
from reports.compared.comparison import compare
from reports.digest import read
from reports.evidence import read_points
from samples import footer_of, lines_of, written_records
from test_waivers import WAIVER
from trial.catalogue import VIOLATIONS

SUITE = load_suite()
IDS = [case.id for case in SUITE.cases]
# Rows and small sweeps of verbs whose rules have cases in every shard.
_OF_VERBS = [case for case in SUITE.cases if case.verb in ("ibv_advise_mr", "ibv_dereg_mr")]
WHOLE = [case for case in _OF_VERBS if case.sweep is None or case.sweep.space.size <= 64][::3]
OF = 3


def seconds(ids: Sequence[str]) -> float:
    """Returns the total of the shipped durations of these cases."""
    return sum(shipped_durations().get(id_, OTHER_S) for id_ in ids)


@pytest.mark.parametrize("of", [1, 2, 3, 7, 40])
def test_shards_contain_each_case_once_and_take_equally_long(of):
    parts = [Shard(number, of).part(IDS, str, shipped_durations()) for number in range(1, of + 1)]
    assert sorted(id_ for part in parts for id_ in part) == sorted(IDS)
    for part in parts:
        assert part == [id_ for id_ in IDS if id_ in set(part)]
    times = list(map(seconds, parts))
    assert max(times) - min(times) <= max(shipped_durations().values())


@pytest.mark.parametrize("of", [3, 8, 16])
def test_shards_of_a_default_run_take_about_the_same_time(of):
    ids = [case.id for case in of_tier(SUITE.cases, DEFAULT)]
    times = [
        seconds(Shard(number, of).part(ids, str, shipped_durations()))
        for number in range(1, of + 1)
    ]
    longest = max(shipped_durations().values())  # one shard has this case, and perhaps no other
    assert max(times) <= max(1.1 * min(times), 1.01 * longest)


def test_a_run_plans_its_shard_and_records_the_whole():
    options = RunOptions(guest=True, verbs=("dereg_mr",), shard=Shard(2, 3))
    chosen_whole = choice.choose(options)
    run = replace(choice.of_target(chosen_whole, print), target=Target("forky"))
    assert run.facts["stack"] == "forky"
    assert run.facts["shard"] == {"number": 2, "of": 3, "whole": list(chosen_whole.planned)}
    assert list(run.planned) == Shard(2, 3).part(
        run.facts["shard"]["whole"],
        str,
        shipped_durations(),
    )
    assert run_arguments.recorded_options(options.arguments(), Path("plan.json")) == options
    assert "--shard" not in run.reproduction(run.cases[0], "")


def test_a_night_divides_its_cells(tmp_path):
    (tmp_path / "kernel").write_text("")
    cells: list[str] = []
    for part in ("1/2", "2/2"):
        parser = Parser(prog="x")
        nightly.add_arguments(parser)
        arguments = parser.parse_args(
            ["--history", str(tmp_path), "--stack", "forky,trixie,bookworm", "--shard", part],
        )
        cells += nightly._cells(arguments, RunOptions())
    assert sorted(cells) == ["bookworm", "forky", "trixie"]


def test_a_trial_divides_its_violations(cli):
    listed = []
    for part in ("1/2", "2/2"):
        listed += cli(0, "trial", "reference", "--list", "--shard", part).out.splitlines()
    assert sorted(listed) == sorted(cli(0, "trial", "reference", "--list").out.splitlines())


def shards(folder: Path, **head: Any) -> list[Path]:
    """Records the run of each shard on a reference that violates a rule."""
    folders = []
    for number in range(1, OF + 1):
        facts = {"number": number, "of": OF, "whole": [case.id for case in WHOLE]}
        cases = Shard(number, OF).part(WHOLE, lambda case: case.id, shipped_durations())
        argv = ["run", "--shard", f"{number}/{OF}", "--guest"]
        # the clocks differ by hours
        header_fields = {"started": f"2026-01-02T0{4 - number}:00:00+00:00", **head}
        path = folder / f"shard-{number}"
        folders.append(
            record(path, SUITE, cases, broken(), shard=facts, argv=argv, **header_fields)
        )
    return folders


def broken() -> Any:
    return next(
        violation for violation in VIOLATIONS if violation.name == "keys-outlive-the-region"
    ).kind()


@pytest.fixture(scope="module")
def parts(tmp_path_factory: Folders) -> list[Path]:
    return shards(tmp_path_factory.mktemp("parts"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: Folders) -> Path:
    """The same run without shards."""
    return record(
        tmp_path_factory.mktemp("whole") / "run",
        SUITE,
        WHOLE,
        broken(),
        argv=["run", "--guest"],
    )


def stable(recorded: Recorded) -> list[dict[str, Any]]:
    """Returns the results without the keys that differ in each run."""
    changing = ("duration_us", "observed", "worker")
    results = []
    for result in recorded.results:
        results.append({key: value for key, value in result.items() if key not in changing})
    return results


def test_the_merged_run_equals_the_unsharded_run(parts, whole, tmp_path, cli):
    out = tmp_path / "out"
    assert cli(read(whole).summary.status, "merge", *reversed(parts), "--out", out).err == ""
    merged_here, other = read_written(out), read_written(whole)
    assert stable(merged_here) == stable(other)
    footer_fields = {"duration_s": 0.0, "boots": 0, "resumed": 0}  # these keys differ
    assert {**footer_of(merged_here), **footer_fields} == {**footer_of(other), **footer_fields}
    assert merged_here.header["planned"] == other.header["planned"]
    assert merged_here.header["argv"] == other.header["argv"]
    assert merged_here.header["started"] == "2026-01-02T01:00:00+00:00"
    assert [(facts["number"], facts["complete"]) for facts in merged_here.header["shards"]] == [
        (1, True),
        (2, True),
        (3, True),
    ]
    merged, unsharded = read(out), read(whole)
    assert merged.summary.sentence == unsharded.summary.sentence
    assert merged.summary.conclusion == unsharded.summary.conclusion
    assert [defect.fingerprint for defect in merged.violations.defects] == [
        defect.fingerprint for defect in unsharded.violations.defects
    ]
    assert list(compare(unsharded, merged).changes) == []
    assert merged.summary.facts["shard"] == "3, merged"
    for result in merged.results:
        if result["points_file"]:
            assert read_points(out, result) == read_points(whole, result)


def test_a_merged_run_is_judged_and_bundled_as_any_other(parts, tmp_path, cli):
    out = tmp_path / "out"
    cli(1, "merge", *parts, "--out", out)
    assert (
        f"{len(WHOLE)} of {len(WHOLE)} results judged again: 0 verdicts changed"
        in cli(1, "judge", out).out
    )
    cli(0, "bundle", out)
    cli(1, "judge", f"{out}{SUFFIX}")


def test_a_shard_that_is_missing_is_named_and_the_run_incomplete(parts, tmp_path, cli):
    out = tmp_path / "out"
    lost = len(read_written(parts[1]).header["planned"])
    said = cli(1, "merge", parts[0], parts[2], "--out", out)
    assert said.err == f"without shard 2/3: {lost} cases have no result\n"
    assert "--resume" not in said.out
    assert "next: run the missing shards" in said.out
    recorded = read_written(out)
    assert footer_of(recorded)["complete"] is False
    assert recorded.header["planned"] == [case.id for case in WHOLE]
    assert len(read(out).unrecorded) == lost


def test_a_shard_cut_short_is_named_and_lacks_only_its_cases(parts, tmp_path, cli):
    cut = shutil.copytree(parts[0], tmp_path / "cut")
    *lines, _, _ = (cut / "results.jsonl").read_bytes().splitlines(keepends=True)
    (cut / "results.jsonl").write_bytes(b"".join(lines) + b'{"type":"res')
    said = cli(1, "merge", cut, *parts[1:], "--out", tmp_path / "out").err
    planned = len(read_written(cut).header["planned"])
    assert said == f"shard 1/3 ({cut}) was cut short: 1 of its {planned} cases have no result\n"
    assert len(read(tmp_path / "out").unrecorded) == 1


def test_a_shard_cut_short_after_its_last_case_lacks_no_result(parts, tmp_path, cli):
    cut = shutil.copytree(parts[0], tmp_path / "cut")
    *lines, _ = (cut / "results.jsonl").read_bytes().splitlines(keepends=True)
    (cut / "results.jsonl").write_bytes(b"".join(lines))
    said = cli(1, "merge", cut, *parts[1:], "--out", tmp_path / "out").err
    planned = len(read_written(cut).header["planned"])
    ended = f"was cut short after its last case; all {planned} cases have results"
    assert said == f"shard 1/3 ({cut}) {ended}\n"


def test_workers_and_confirmations_of_all_shards_are_kept(parts, tmp_path, cli):
    changed, confirmed = [], 0
    for number, part in enumerate(parts):
        lines = lines_of(part)
        failed = [
            line["case"]
            for line in lines[1:-1]
            if line["verdict"] == "FAIL" and not line.get("deviations")
        ]
        for line in lines[1:-1]:
            line["worker"] = 2
        more = [
            {"type": "confirmation", "case": case, "confirmed": True, "by": "worker"}
            for case in failed
        ]
        tried = {"confirmed": len(more), "not_confirmed": 0, "not_tried": number}
        lines[-1:] = [*more, {**lines[-1], "boots": 2, "confirmation": tried}]
        confirmed += len(more)
        changed.append(written_records(lines, tmp_path / f"{number}"))
    cli(1, "merge", *changed, "--out", tmp_path / "out")
    recorded = read_written(tmp_path / "out")
    assert confirmed
    assert {result["worker"] for result in recorded.results} == {2, 4, 6}
    assert footer_of(recorded)["boots"] == 6
    assert footer_of(recorded)["confirmation"] == {
        "confirmed": confirmed,
        "not_confirmed": 0,
        "not_tried": 3,
    }


def test_a_full_disk_leaves_no_run_and_the_merge_can_be_repeated(parts, tmp_path, cli):
    out = tmp_path / "out"
    with full_disk(20_000):
        said = cli(3, "merge", *parts, "--out", out).err
    assert said == f"rdma-cts: {out}/results.jsonl cannot be written: File too large\n"
    assert not out.exists()
    cli(1, "merge", *parts, "--out", out)


def test_only_the_merged_run_reports_an_unneeded_waiver_of_a_rule(tmp_path, cli):
    path = tmp_path / "waivers.yaml"
    expires = f"{datetime.now() + timedelta(days=30):%Y-%m-%d}"
    unneeded = {**WAIVER, "rule": "ADV-01", "where": {"driver": "reference"}, "expires": expires}
    path.write_text(yaml.safe_dump({"waivers": [unneeded]}))
    waivers = read_waivers(path, SUITE, datetime.now().date())
    parts = shards(tmp_path, started=datetime.now().isoformat())
    for part in parts:
        lines: list[Any] = lines_of(part)
        lines[0]["waivers"] = {"file": str(path), "sha256": waivers.sha256}
        lines[-1]["waivers"] = waivers.account(lines[1:-1], lines[0])
        assert lines[-1]["waivers"]["problems"] == []
        written_records(lines, part)
    cli(1, "merge", *parts, "--out", tmp_path / "out")
    (problem,) = read(tmp_path / "out").summary.waivers["problems"]
    assert (
        "the waiver of ADV-01 (the rdma team, https://bugs.example.org/1) is no longer needed"
        in problem
    )
    path.write_text(path.read_text() + "\n")
    said = cli(2, "merge", *parts, "--out", tmp_path / "again").err
    assert f"{path} is not the file of waivers that the shards had" in said
