"""Tests of waivers of defects: they are made from recorded runs, read again, and applied to the same run, to another run
and to a worse run."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from functools import cache
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jsonschema
import pytest
import yaml

from conformance.defects import Severity, cause_of
from conformance.errors import UserError
from conformance.model.record import HeaderRecord, ResultRecord
from conformance.model.verdict import VIOLATIONS
from conformance.results.new_records import footer_record
from conformance.results.waiver_file import KernelRange, Run, read_waivers, waivers_text
from conformance.results.waivers import Waivers, symptoms
from conformance.tables.suite import ROOT, Suite, load_suite
from reports.compared import text as comparison_text
from reports.compared.comparison import compare
from reports.digest import Digest, read
from reports.html import render as page
from reports.markdown import render
from reports.novelty import CHANGED, novelty
from reports.run_summary import lines_of
from reports.terminal import summary
from samples import changed, registry

TODAY = date(2026, 11, 22)
SCHEMA = json.loads((ROOT / "docs" / "waivers.schema.json").read_text())
RUNS = Path(__file__).with_name("recorded_violations")
EXPIRES = date(2027, 3, 1)
NO_SUITE = Suite(registry(), (), "0" * 64)
ISSUE = "https://bugs.example.org/{defect}"


@cache
def recorded(name: str) -> Digest:
    return read(RUNS / f"{name}.jsonl")


@cache
def text_of(*names: str) -> str:
    """Returns the text of the waiver file that is made from these runs."""
    runs = [Run(name, recorded(name).header, recorded(name).results) for name in names]
    text = waivers_text(runs, "the rdma team", ISSUE, EXPIRES)
    jsonschema.validate(json.loads(json.dumps(yaml.safe_load(text), default=str)), SCHEMA)
    return text


def made(tmp_path: Path, *names: str) -> Waivers:
    """Makes a waiver file from these runs, and returns its waivers."""
    path = tmp_path / "waivers.yaml"
    path.write_text(text_of(*names))
    return read_waivers(path, NO_SUITE, TODAY)


def test_waivers_of_every_defect_of_a_recorded_run_can_be_read_and_cover_it(tmp_path):
    digest = read(ROOT / "docs/runs/rxe.jsonl.xz")
    run = Run("rxe", digest.header, digest.results)
    path = tmp_path / "waivers.yaml"
    path.write_text(waivers_text([run], "the rdma team", ISSUE, EXPIRES))
    waivers = read_waivers(path, NO_SUITE, TODAY)
    assert 'severity: "remote: memory"' in path.read_text()
    applied = [waivers.applied(record, digest.header) for record in digest.results]
    assert not [record["case"] for record in applied if record["effective"] in VIOLATIONS]


@pytest.fixture
def waivers(tmp_path: Path) -> Waivers:
    return made(tmp_path, "forky")


def left(
    waivers: Waivers,
    results: Sequence[ResultRecord] = (),
    run: str = "forky",
) -> tuple[list[str], list[str]]:
    """Returns the violations of a run, or of some of its results, that are not waived, and the waivers' problems."""
    header, results = recorded(run).header, results or recorded(run).results
    applied = [waivers.applied(record, header) for record in results]
    open_ = [record["case"] for record in applied if record["effective"] in VIOLATIONS]
    return open_, list(waivers.account(applied, header)["problems"])


def test_the_waivers_of_a_run_cover_all_its_violations_in_rows_and_sweeps(waivers):
    run = recorded("forky")
    assert len(waivers.defects) == 23
    assert left(waivers) == ([], [])
    waived = waivers.applied(
        next(record for record in run.results if record["deviations"]),
        run.header,
    )["waiver"]
    assert waived is not None
    assert waived["for"].startswith("defect ")
    assert waived["issue"] == f"https://bugs.example.org/{waived['for'].removeprefix('defect ')}"


@cache
def partly_waived() -> tuple[Digest, str, str]:
    """Returns a run in which a case shows a waived defect and one that no waiver covers, with the fingerprints of both."""
    run = recorded("forky")
    several = (run.violations.defects_in(case) for case in run.violations.symptoms)
    waived, other, *_ = next(defects for defects in several if len(defects) > 1)
    text = waivers_text(
        [Run("forky", run.header, run.results)], "owner", ISSUE, EXPIRES, [waived.fingerprint]
    )
    with TemporaryDirectory() as folder:
        path = Path(folder) / "waivers.yaml"
        path.write_text(text)
        waivers = read_waivers(path, NO_SUITE, TODAY)
    results = [waivers.applied(record, run.header) for record in run.results]
    footer = footer_record(run.header["planned"], results, registry(), duration_s=1.0)
    footer["waivers"] = waivers.account(results, run.header)
    shown = replace(run, results=tuple(results), footer=footer)
    return shown, waived.fingerprint, other.fingerprint


def test_a_defect_of_which_some_cases_are_waived_counts_only_the_others():
    run, fingerprint, _ = partly_waived()
    (defect,) = (d for d in run.violations.defects if d.fingerprint == fingerprint)
    counted, waived = len(defect.counted_cases), len(defect.cases) - len(defect.counted_cases)
    assert counted
    assert waived
    share = f"{counted} count{'s' if counted == 1 else ''}, {waived} waived, the worst not refused"
    assert defect.severity.label == "wrong report"
    assert defect.first.record["effective"] == "FAIL"
    said = summary(run, Path("out"))
    assert f"x{len(defect.cases)}: {share}\n" in said
    assert f"| {len(defect.cases)}: {share} |" in render([run])
    assert f"({share})" in page([run])
    everything = {case for d in run.violations.open_defects for case in d.counted_cases}
    assert f" in {len(everything)} cases" in said


def test_the_symptom_that_no_waiver_covers_is_named():
    run, _, other = partly_waived()
    said = summary(run, Path("out"))
    assert re.search(rf"^waiver: \d+ cases? of waived defects counts?, .* {other}: \w", said, re.M)


# options of the range, the ranges of the waivers of defects that only trixie, only forky, and both show
RANGES = {
    "the runs": ({}, ("6.12", "6.12"), ("7.2", "7.2"), ("6.12", "7.2")),
    "an open end": ({"last": "any"}, ("6.12", "6.12"), ("7.2", ""), ("6.12", "")),
    "both ends": ({"first": "6.1", "last": "7.4"}, ("6.1", "6.12"), ("7.2", "7.4"), ("6.1", "7.4")),
    "no limit": ({"first": "any", "last": "any"}, ("", "6.12"), ("7.2", ""), ("", "")),
}


def fingerprints_in(name: str) -> set[str]:
    return {defect.fingerprint for defect in recorded(name).violations.defects}


@pytest.mark.parametrize("end", ["", "any"])
def test_a_defect_of_rdma_core_is_waived_for_the_rdma_core_of_the_runs_that_showed_it(
    end, tmp_path
):
    digests = [read(ROOT / f"docs/runs/{name}.jsonl.xz") for name in ("trixie", "rxe")]
    runs = [Run("run", run.header, run.results) for run in digests]
    path = tmp_path / "waivers.yaml"
    path.write_text(waivers_text(runs, "o", ISSUE, EXPIRES, kernels=KernelRange(last=end)))
    jsonschema.validate(
        json.loads(json.dumps(yaml.safe_load(path.read_text()), default=str)), SCHEMA
    )
    waivers = read_waivers(path, NO_SUITE, TODAY)
    where = {waiver.defect: waiver.where for waiver in waivers.defects}
    fixed = where["40d0db806016"]
    assert fixed.ranges == "from 6.12 to 6.12, rdma-core from 56 to 56"
    shown = where["e69bdb49af78"].ranges
    assert shown == (
        "from 6.12, rdma-core from 56" if end else "from 6.12 to 7.2, rdma-core from 56 to 65"
    )
    assert where["de19cd258c26"].rdma_core_from == ""  # the device answers
    newer: HeaderRecord = {
        **digests[0].header,
        "env": {**digests[0].header["env"], "rdma_core": "64.0"},
    }
    names = waivers.account(digests[0].results, newer)["out_of_range"]
    assert f"defect 40d0db806016 ({fixed.ranges})" in names
    (line,) = (
        line for line in lines_of({"out_of_range": names}, "6.12") if "without effect" in line
    )
    assert "because kernel 6.12 or the rdma-core is not in the range" in line


@pytest.mark.parametrize("options, old, new, both", RANGES.values(), ids=RANGES)
def test_a_range_has_the_given_ends_unless_a_run_lacks_the_defect(
    options, old, new, both, tmp_path
):
    runs = [
        Run(name, recorded(name).header, recorded(name).results) for name in ("trixie", "forky")
    ]
    path = tmp_path / "waivers.yaml"
    kernels = KernelRange(**options)
    path.write_text(waivers_text(runs, "o", ISSUE, EXPIRES, kernels=kernels))
    old_names, new_names = map(fingerprints_in, ("trixie", "forky"))
    expected = {(True, False): old, (False, True): new, (True, True): both}
    for waiver in read_waivers(path, NO_SUITE, TODAY).defects:
        names = {waiver.defect, *waiver.also}
        in_old, in_new = not names.isdisjoint(old_names), not names.isdisjoint(new_names)
        assert (waiver.where.kernel_from, waiver.where.kernel_to) == expected[in_old, in_new]
    for name in ("trixie", "forky"):
        path.write_text(waivers_text(runs, "o", ISSUE, EXPIRES, kernels=kernels))
        assert left(read_waivers(path, NO_SUITE, TODAY), run=name) == ([], [])


@pytest.mark.parametrize(
    "first, last, said",
    [
        ("", "7.x", "--to '7.x' is not a kernel version such as 6.12, nor any"),
        ("x", "", "--from 'x' is not"),
        ("", "7.1", "kernel 7.2.* of forky is not in the range of --to 7.1"),
        ("7.3", "", "kernel 7.2.* of forky is not in the range"),
    ],
)
def test_a_range_without_a_run_or_a_version_is_refused(first, last, said):
    runs = [Run("forky", recorded("forky").header, recorded("forky").results)]
    with pytest.raises(UserError, match=said):
        waivers_text(runs, "o", ISSUE, EXPIRES, kernels=KernelRange(first, last))


def test_a_new_waiver_covers_what_was_waived():
    """The severity of a defect of which some cases are waived is that of the others."""
    run, fingerprint, _ = partly_waived()
    runs = [Run("partly", run.header, run.results)]
    assert waivers_text(runs, "o", ISSUE, EXPIRES, [fingerprint]) == waivers_text(
        [Run("partly", run.header, recorded("forky").results)], "o", ISSUE, EXPIRES, [fingerprint]
    )


LISTED_CASES = {
    "unlisted": (0, 0, "regressed", 1),
    "listed": (2, 0, "changed", 0),
    "unsteady": (2, 2, "changed", 0),
}


def waived(waivers: Waivers) -> Digest:
    """Returns the recorded run with these waivers."""
    run = recorded("forky")
    results = [waivers.applied(record, run.header) for record in run.results]
    footer = footer_record(run.header["planned"], results, registry(), duration_s=1.0)
    footer["waivers"] = waivers.account(results, run.header)
    return replace(run, results=tuple(results), footer=footer)


def test_a_defect_that_only_the_new_run_has_and_that_is_waived_is_named(waivers):
    new = waived(waivers)
    defect = new.violations.defects[0]
    changes: Any = {"verdict": "PASS", "effective": "PASS", "deviations": [], "fault": {}}
    old = replace(
        recorded("forky"),
        results=tuple(
            changed(record, changes) if record["case"] in defect.cases else record
            for record in new.results
        ),
    )
    lines = [*comparison_text.text(compare(old, new), None)]
    assert lines[0].endswith(
        "nothing that both runs tried has regressed: 1 defect newly waived (exit status 0)"
    )
    count = len(new.violations.defects)
    heading = f"newly waived: 1 of {count} waived defects of the new run is not in the old run"
    entry = lines[lines.index(heading) + 1]
    assert defect.fingerprint in entry
    assert entry.endswith(f"(the rdma team, {ISSUE.format(defect=defect.fingerprint)})")
    assert "newly waived" not in "".join(comparison_text.text(compare(new, new), None))


@pytest.mark.parametrize("listed, unsteady, kind, status", LISTED_CASES.values(), ids=LISTED_CASES)
def test_a_case_that_passed_is_new_unless_its_waiver_names_it(
    listed, unsteady, kind, status, waivers
):
    """A row and a sweep of a defect that another case has in both runs."""
    run = recorded("forky")
    several = (defect for defect in run.violations.defects if len(defect.cases) > 2)
    defect = next(
        defect for defect in several if [*filter(attrgetter("deviation"), defect.symptoms[1:])]
    )
    row = next(symptom.case for symptom in defect.symptoms[1:] if not symptom.deviation)
    sweep = next(symptom.case for symptom in defect.symptoms[1:] if symptom.deviation)
    passed = row, sweep
    listed_cases = [case for case in defect.cases if case not in passed]
    items = tuple(
        replace(
            waiver,
            cases=(*listed_cases, *passed[:listed]),
            unsteady=passed[:unsteady],
        )
        if waiver.defect == defect.fingerprint
        else waiver
        for waiver in waivers.defects
    )
    new = waived(replace(waivers, defects=items))
    changes: Any = {"verdict": "PASS", "effective": "PASS", "deviations": []}
    old = replace(
        run,
        results=tuple(
            changed(record, changes) if record["case"] in passed else record
            for record in run.results
        ),
    )
    comparison = compare(old, new)
    kinds = {change.case: change.kind for change in comparison.changes if change.new == "WAIVED"}
    assert ({kinds[case] for case in passed}, comparison.status) == ({kind}, status)
    assert compare(new, new).status == 0
    news = novelty(new, old)
    assert news is not None
    said = summary(new, Path("out"), news=news)
    beyond = f"waiver: {defect.fingerprint} covers 2 cases that it does not list, such as"
    shown = [item.defect.fingerprint for item in news.by_kind.get(CHANGED, ())]
    assert news.status == status
    if status:
        assert shown == [defect.fingerprint]
        assert "in 2 cases that passed before" in said
        assert "that their waivers do not name (exit status 1)" in said
        assert beyond in summary(new, Path("out"))
        link = f'<a class="id" href="#defect%3A{defect.fingerprint}">{defect.fingerprint}</a>'
        assert link + beyond.partition(defect.fingerprint)[2] in page([new])
    else:
        assert shown == []
        assert "(exit status 0)" in said
        assert "does not list" not in said


def test_waivers_of_several_runs_name_unsteady_defects_and_cover_each_run(tmp_path):
    """In the second run, a different case has the verdict CRASH."""
    waivers = made(tmp_path, "forky", "forky-again", "trixie")
    assert left(waivers, run="forky-again") == ([], [])
    data = yaml.safe_load((tmp_path / "waivers.yaml").read_text())
    unsteady = {
        entry["case"]: entry["seen"]
        for waiver in data["waivers"]
        for entry in waiver.get("unsteady", ())
    }
    assert unsteady == {
        "reg_mr_iova/on_demand/every-byte-at-buf-+-7-pages-+-104": "CRASH or FAIL, FAIL seen 1 of 2",
        "reg_mr_iova/on_demand/every-byte-at-9223372036854775912": "FAIL or CRASH, CRASH seen 1 of 2",
    }


def test_a_waiver_applies_to_the_kernels_of_the_runs_that_showed_the_defect(tmp_path):
    kernels = {
        waiver.defect: (waiver.where.kernel_from, waiver.where.kernel_to)
        for waiver in made(tmp_path, "forky", "trixie").defects
    }
    assert kernels["85c569cb8aca"] == ("6.12", "7.2")
    assert kernels["251ad0de44ec"] == ("7.2", "7.2")
    open_, _ = left(made(tmp_path, "forky"), run="trixie")
    assert len(open_) == 108


def test_the_waiver_of_a_defect_that_no_longer_occurs_is_reported(waivers):
    mended: list[ResultRecord] = [
        {**record, "verdict": record["verdict"].PASS, "deviations": []}
        if record["rules"] == ["REG-25"]
        else record
        for record in recorded("forky").results
    ]
    open_, (problem,) = left(waivers, mended)
    assert open_ == []
    assert "the waiver of defect 885a6ada681b (the rdma team, " in problem
    assert problem.endswith("is no longer needed: none of its cases shows the defect")
    only_one_case = [record for record in mended if record["case"].endswith("on-demand-of-2-gib")]
    assert left(waivers, only_one_case) == ([], [])


def test_a_defect_that_has_become_worse_is_not_waived(waivers):
    served = next(
        record
        for record in recorded("forky").results
        if record["rules"] == ["REG-12"] and not record["deviations"]
    )
    died: Any = {
        "log": [
            "RIP: 0010:__rxe_put+0x12/0x60 [rdma_rxe]",
            "Call Trace:",
            " rxe_invalidate_mw+0x9d/0x110 [rdma_rxe]",
        ],
    }
    died_in = {
        **served["fault"],
        "kind": "kernel-died",
        "step": 0,
        "verb": "ibv_reg_mr",
        "used": True,
    }
    died_in |= {
        "call": "ibv_reg_mr(access=ON_DEMAND)",
        "seen": ["the kernel under test died", *[""] * 4],
    }
    died_in["site"] = ["__rxe_put", "rxe_invalidate_mw", "rdma_rxe", "rdma_rxe"]
    same = changed(served, {"fault": {**served["fault"], "kind": "moved"}})
    worse = changed(served, {"verdict": served["verdict"].CRASH, "fault": died_in, "kernel": died})
    assert left(waivers, [same])[0] == []
    open_, problems = left(waivers, [worse])
    assert open_ == [served["case"]]
    assert problems[0].endswith(f"does not fit: {served['case']} is worse, kernel crash")


def test_a_waiver_without_cases_whose_defect_no_case_shows_is_named(waivers):
    mistyped = replace(waivers.defects[0], defect="0" * 12, also=(), cases=(), unsteady=())
    run = recorded("forky")
    account = replace(waivers, defects=(mistyped, waivers.defects[1])).account(
        run.results, run.header
    )
    line = "1 waiver without effect, because no case shows defect 000000000000"
    assert line in lines_of(account, "7.2")
    assert account["problems"] == []


def test_a_waiver_with_a_case_of_another_rule_has_one_line(waivers):
    several = next(waiver for waiver in waivers.defects if len(waiver.cases) > 2)
    other = replace(several, cases=("x",), unsteady=(), rules=frozenset({"NONE-01"}))
    (line,) = left(replace(waivers, defects=(other,)))[1]
    assert line.endswith(f"which none of its cases tests; and {len(several.cases) - 1} more")


def test_a_result_with_a_second_defect_is_not_waived_for_the_first(waivers):
    sweep = next(
        record
        for record in recorded("forky").results
        if record["case"] == "bind_mw/data_path/several-packets"
    )
    (deviation,) = sweep["deviations"]
    new: Any = {
        **deviation,
        "observed": "ibv_dereg_mr should succeed, but returned EBUSY",
        "fault": {"kind": "refused", "verb": "ibv_dereg_mr", "errno": "EBUSY"},
        "rules": ["DEREG-01"],
    }
    assert left(waivers, [changed(sweep, {"deviations": [deviation, new]})])[0] == [sweep["case"]]


def test_an_expired_waiver_of_a_defect_waives_nothing_and_is_reported(tmp_path):
    made(tmp_path, "forky")
    open_, problems = left(read_waivers(tmp_path / "waivers.yaml", NO_SUITE, date(2027, 3, 2)))
    assert len(open_) == 189
    assert len(problems) == 23
    assert problems[0].endswith("expired on 2027-03-01")


WRONG = {
    "no-fingerprint": (
        '"885a6ada681b"',
        "REG-25",
        "'REG-25' is not a fingerprint, which has 12 hexadecimal digits",
    ),
    "no-severity": ('severity: "kernel crash"', 'severity: "bad"', "unknown severity 'bad'"),
    "both": (
        "title:",
        "rule: REG-25\n    about:",
        "a waiver is for one defect or for one rule, not for both",
    ),
    "twice": ('"85c569cb8aca"', '"6c8e18b350a5"', "defect 6c8e18b350a5 is waived twice"),
    "unsteady": (
        "    cases:",
        "    unsteady: [{case: x}]\n    cases:",
        "an unsteady case lacks the key 'seen'",
    ),
}


@pytest.mark.parametrize("old, new, message", WRONG.values(), ids=WRONG)
def test_a_mistake_in_the_file_is_reported_with_its_location(tmp_path, old, new, message):
    made(tmp_path, "forky")
    path = tmp_path / "waivers.yaml"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(UserError) as caught:
        read_waivers(path, NO_SUITE, TODAY)
    assert any(
        message in line and line.startswith(f"{path}:") for line in str(caught.value).splitlines()
    )


def command(
    *more: str,
    run: str = "forky",
    expires: str = "",
    issue: str = ISSUE,
) -> tuple[str, ...]:
    # Tomorrow, because midnight may pass before the waiver is used.
    latest = expires or (date.today() + timedelta(days=1)).isoformat()
    of_file = ("--owner", "me", "--issue", issue, "--expires", latest)
    return ("waivers", "--run", str(RUNS / f"{run}.jsonl"), *of_file, *more)


@pytest.mark.parametrize("character", ["\x85", "\u2028", "\n"])
def test_an_owner_that_no_file_could_have_is_refused(character, cli):
    said = cli(2, *command("--owner", f"the{character}team")).err
    assert said == "rdma-cts: --owner has a character that cannot be printed\n"


def test_judge_counts_the_waived_verdicts_before_it_lists_the_changes(tmp_path, cli):
    path, old = tmp_path / "made.yaml", str(RUNS / "forky.jsonl")
    cli(0, *command("--out", str(path)))
    first, *said = cli(1, "judge", old, "--waivers", path).out.splitlines()
    counts = re.search(
        r"judged again: (\d+) verdicts changed, \d+ verdicts waived \(-v lists them\)$", first
    )
    assert counts
    assert not any("-> WAIVED" in line for line in said)
    hidden = [line for line in said if "more change" in line]
    assert len(hidden) == (int(counts[1]) > 20)
    same, *every = cli(1, "judge", old, "--waivers", path, "-v").out.splitlines()
    assert first == f"{same} (-v lists them)"
    assert any(line.startswith("FAIL -> WAIVED  ") for line in every)


def test_a_defect_that_is_waived_beside_one_that_counts_is_newly_waived():
    run, fingerprint, _ = partly_waived()
    (defect,) = (d for d in run.violations.defects if d.fingerprint == fingerprint)
    assert not defect.waived
    unsupported: Any = {
        "verdict": "UNSUPPORTED",
        "effective": "UNSUPPORTED",
        "deviations": [],
        "rule_verdicts": {},
    }
    results = tuple(
        changed(record, unsupported) if record["case"] in defect.cases else record
        for record in run.results
    )
    comparison = compare(replace(run, results=results), run)
    assert comparison.defects.newly_waived == [defect]
    assert defect not in comparison.defects.newly_found


def test_an_option_of_several_runs_can_be_given_again(cli):
    one = cli(0, *command()).out
    both = cli(0, *command("--run", str(RUNS / "trixie.jsonl"))).out
    assert "trixie" in both
    assert one != both


def test_one_defect_alone_can_be_waived(tmp_path, cli):
    every = re.findall(r'defect: "([0-9a-f]{12})"', cli(0, *command()).out)
    for digits in (every[3], every[3][:4].upper()):
        text = cli(0, *command("--defect", digits)).out
        assert re.findall(r'defect: "([0-9a-f]{12})"', text) == [every[3]]
    for digits in ("000000000000", every[3][:3]):
        said = cli(2, *command("--defect", digits)).err
        assert said.startswith(f"rdma-cts: no run has the defect {digits}; ./rdma-cts report ")
    said = cli(2, *command("--issue", "https://x/{defekt}")).err
    assert said == (
        "rdma-cts: --issue has '{defekt}', which stands for nothing; "
        "{defect} stands for the defect's fingerprint\n"
    )


def test_the_command_writes_a_file_that_run_and_judge_accept(tmp_path, cli):
    path = tmp_path / "made.yaml"
    assert cli(0, *command("--out", str(path))).out == f"waivers: {path}\n"
    assert cli(0, *command()).out == path.read_text()
    assert len(read_waivers(path, NO_SUITE, date.today()).defects) == 23


@pytest.mark.parametrize(
    "arguments, message",
    [
        (command(expires="soon"), "--expires 'soon' is not a date such as 20"),
        (command(expires="2020-01-01"), "--expires 2020-01-01 is not between today and 20"),
        (command(expires="2999-01-01"), "180 days ahead"),
        (command(issue=""), "argument --issue: its value is empty"),
        ([*command(), "--expires", ""], "argument --expires: its value is empty"),
        (command(issue="4711"), "--issue '4711' is not an address; it begins with https://"),
        (command(run="none"), "none.jsonl cannot be read: No such file or directory"),
    ],
    ids=["no-date", "past", "far", "no-issue", "empty-date", "issue", "no-run"],
)
def test_a_wrong_argument_is_reported_in_one_line(arguments, message, cli):
    (line,) = cli(2, *arguments).err.splitlines()
    assert message in line


def lines_with(beginning: str, text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(beginning)]


def test_runs_of_one_stack_are_named_once_with_their_number():
    siw, trixie = lines_with("#   ", text_of("siw", "trixie"))
    assert lines_with("#   ", text_of("siw", "trixie", "siw")) == [f"{siw} (2 runs)", trixie]


def test_the_shipped_waivers_of_soft_roce_have_the_head_that_the_command_writes():
    text = (ROOT / "ci/rxe/waivers.yaml").read_text()
    shipped, of_command = lines_with("#", text), lines_with("#", text_of("siw"))
    of_runs = lines_with("#   ", text)
    assert [line for line in shipped if line not in of_runs] == [of_command[0], *of_command[2:]]
    assert len({*of_runs}) == len(of_runs)


def test_the_shipped_waivers_of_soft_roce_cover_the_severe_defects_of_its_recorded_runs():
    path = ROOT / "ci/rxe/waivers.yaml"
    data = yaml.safe_load(path.read_text())
    jsonschema.validate(json.loads(json.dumps(data, default=str)), SCHEMA)
    waivers = read_waivers(path, NO_SUITE, TODAY)
    waived = {
        fingerprint for waiver in waivers.defects for fingerprint in (waiver.defect, *waiver.also)
    }
    assert {waiver.where.driver for waiver in waivers.defects} == {"rxe"}
    severe = {
        defect.fingerprint
        for name in ("forky", "trixie")
        for defect in recorded(name).violations.defects
        if defect.severity in (Severity.KERNEL_CRASH, Severity.MEMORY, Severity.PROCESS_CRASH)
    }
    assert len(severe) == 5
    assert severe <= waived
    today = read(ROOT / "docs/runs/rxe.jsonl.xz").violations.defects
    assert {defect.fingerprint for defect in today} <= waived


@pytest.mark.parametrize("stack", ["rxe", "trixie"])
def test_the_shipped_waivers_of_soft_roce_fit_its_recorded_runs(stack):
    waivers = read_waivers(ROOT / "ci/rxe/waivers.yaml", load_suite(), TODAY)
    run = read(ROOT / f"docs/runs/{stack}.jsonl.xz")
    assert waivers.account(run.results, run.header)["problems"] == []


@pytest.mark.parametrize("rule, verdict", [("REG-15", "FAIL"), ("IOVA-02a", "WAIVED")])
def test_a_refusal_of_the_kernels_core_is_waived_only_for_the_rules_of_the_waivers_cases(
    rule, verdict
):
    """The cause of such a refusal, and so its fingerprint, is the same for every rule."""
    waivers = read_waivers(ROOT / "ci/rxe/waivers.yaml", load_suite(), TODAY)
    run = read(ROOT / "docs/runs/rxe.jsonl.xz")
    refused = next(
        record
        for record in run.results
        if record["case"] == "reg_mr_iova/translation/other-page-offset-registers@libibverbs"
    )
    unlisted = changed(refused, {"case": "reg_mr/own/unlisted", "rules": [rule]})
    assert [cause_of(symptom).fingerprint for symptom in symptoms(unlisted)] == ["ff6941f7e668"]
    applied = [waivers.applied(record, run.header) for record in (refused, unlisted)]
    assert [record["effective"] for record in applied] == ["WAIVED", verdict]
    problems = waivers.account(applied, run.header)["problems"]
    said = "does not fit: reg_mr/own/unlisted violates REG-15, which none of its cases tests"
    assert [problem.endswith(said) for problem in problems] == [True] * (verdict == "FAIL")
