"""Comparisons of two runs: by case. test_compared_points.py compares points."""

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from conformance.model.case import Case
from conformance.model.record import ResultRecord
from conformance.model.verdict import INCOMPLETE, VERDICTS
from conformance.older_python import zip
from conformance.tables.suite import ROOT
from reports.compared.changes import KINDS, Change, kind_of
from reports.compared.comparison import compare, stacks
from reports.compared.formats import as_markdown
from reports.compared.text import text
from reports.digest import Digest, digest, read
from samples import numbered, recorded, result, written

SUITE = numbered(4)
# Modules that only other commands need, or only some options; loading them takes longer than reading a short run.
SLOW = ("reports.fleet", "commands.compare_nodes", "fixtures.guest.build")
WAIVED: dict[str, Any] = {
    "effective": "WAIVED",
    "waiver": {"for": "REG-01", "issue": "https://bugs.example/1"},
}


def run(
    directory: Path,
    lines: Sequence[ResultRecord],
    tables: str = "0" * 64,
    complete: bool = True,
) -> Path:
    waivers: dict[str, Any] = (
        {"waivers": {"sha256": "0" * 64}} if any(line["waiver"] for line in lines) else {}
    )
    run_recorded = recorded(
        lines,
        complete=complete,
        suite={"version": "0", "tables_sha256": tables},
        **waivers,
    )
    if waivers and run_recorded.footer:
        run_recorded.footer["waivers"] = {
            "waived": sum(line["effective"] == "WAIVED" for line in lines),
            "problems": [],
        }
    return written(run_recorded, directory)


def digested(*lines: ResultRecord, tables: str, **head: Any) -> Digest:
    return digest(
        recorded(lines, suite={"version": "0", "tables_sha256": tables}, **head).shown(), Path()
    )


BY_KIND = {
    "regressed": "PASS>FAIL FAIL>CRASH PASS>CRASH WAIVED>FAIL",
    "newly judged, and wrong": "UNREACHABLE>FAIL BROKEN>HANG MISSED>FAIL UNREACHABLE>CRASH",
    "newly supported, and wrong": "UNSUPPORTED>FAIL UNSUPPORTED>CRASH",
    "newly supported, and right": "UNSUPPORTED>PASS UNSUPPORTED>PARTIAL",
    "newly judged, and right": "UNREACHABLE>PASS BROKEN>PASS",
    "changed": "CRASH>FAIL UNREACHABLE>UNSUPPORTED FAIL>WAIVED MISSED>BROKEN",
    "fixed": "FAIL>PASS CRASH>PASS FAIL>PARTIAL",
    "became unsupported": "PASS>UNSUPPORTED FAIL>UNREACHABLE",
    "waiver no longer needed": "WAIVED>PASS WAIVED>UNSUPPORTED",
    "no longer decided": "PASS>MISSED FAIL>BROKEN",
}


@pytest.mark.parametrize("kind, changes", BY_KIND.items(), ids=BY_KIND)
def test_a_change_of_verdict_is_of_one_kind(kind, changes):
    for change in changes.split():
        assert (change, kind_of(*change.split(">"))) == (change, kind)


def test_every_change_has_a_kind_and_no_change_has_none():
    for old, new in itertools.product(VERDICTS, repeat=2):
        assert (kind_of(old, new) in KINDS) == (old != new)


def changes(
    tmp_path: Path,
    old: Sequence[ResultRecord],
    new: Sequence[ResultRecord],
) -> tuple[list[Change], int]:
    """Compares two runs; returns the changes and the exit status."""
    comparison = compare(read(run(tmp_path / "old", old)), read(run(tmp_path / "new", new)))
    return list(comparison.changes), comparison.status


def test_cases_are_compared_by_their_ids(tmp_path):
    first, second, third, fourth = SUITE.cases
    old = [result(first), result(second, "FAIL"), result(third)]
    new = [result(first, "CRASH"), result(second), result(fourth)]
    comparison, status = changes(tmp_path, old, new)
    assert [(change.kind, change.case) for change in comparison] == [
        ("regressed", first.id),
        ("fixed", second.id),
    ]
    assert status == 1


def test_cases_of_only_one_run_are_neither_new_nor_gone(tmp_path):
    """The defect occurs in two cases of the old run; only one of these cases is in the new run."""
    first, second, third, fourth = SUITE.cases
    wrong = "ibv_reg_mr(access=0) should succeed, but returned NULL"
    old = read(
        run(
            tmp_path / "old",
            [result(first, "FAIL", wrong), result(second, "FAIL", wrong), result(third)],
        ),
    )
    new = read(run(tmp_path / "new", [result(first), result(fourth)]))
    comparison = compare(old, new)
    assert [change.kind for change in comparison.changes] == ["fixed"]
    assert (comparison.compared, comparison.untried, comparison.defects.by_kind["gone"]) == (
        1,
        (2, 1),
        [],
    )
    assert len(comparison.defects.by_kind["not decided"]) == 1
    conclusion, counts, *_ = text(comparison, None)
    assert (
        counts
        == "1 case compared (2 tried only by the old run, 1 tried only by the new run): 1 case fixed"
    )
    assert conclusion == "nothing that both runs tried has regressed (exit status 0)"


def test_a_new_divergence_of_a_recorded_random_sequence_is_a_regression(tmp_path):
    case = SUITE.cases[0]
    old_divergence, fresh = (
        {"when": when, "rules": ["REG-01"], "observed": f"of {when}", "row": "- id: x\n"}
        for when in "ab"
    )
    old = [result(case, "FAIL", deviations=[old_divergence])]
    comparison, status = changes(
        tmp_path, old, [result(case, "FAIL", deviations=[old_divergence, fresh])]
    )
    assert [(change.kind, change.record["reason"]) for change in comparison] == [
        ("regressed", "of b")
    ]
    assert status == 1
    assert changes(tmp_path, old, [result(case, "FAIL", deviations=[old_divergence])]) == ([], 0)


@pytest.mark.parametrize(
    "before, kind",
    [("PASS", "regressed"), ("UNSUPPORTED", "newly supported, and wrong")],
)
def test_a_rule_that_a_case_of_the_same_verdict_hides_is_a_change(before, kind, tmp_path, cli):
    """The points of a model are recorded inside its result, whose other rule is violated in both runs."""
    (case, *_) = SUITE.cases
    points = [
        {"rules": [rule], "when": "always", "smallest": {"place": "odd"}, "count": 2, "of": 2}
        for rule in ("REG-01", "REG-02")
    ]
    rules: dict[str, Any] = {"rules": ["REG-01", "REG-02"]}
    baseline = result(
        case,
        "FAIL",
        deviations=points[:1],
        rule_verdicts={"REG-01": "FAIL", "REG-02": before},
        **rules,
    )
    both = {"REG-01": "FAIL", "REG-02": "FAIL"}
    worse = result(case, "FAIL", deviations=points, rule_verdicts=both, **rules)
    old, new = run(tmp_path / "old", [baseline]), run(tmp_path / "new", [worse])
    said = cli(1, "compare", old, new).out
    assert f"\n  {kind}  {before} -> FAIL  REG-02  " in said
    assert (
        f"\n  {before} -> FAIL  REG-02  2 points of {case.id}, such as place=odd (defect " in said
    )
    data = json.loads(cli(1, "compare", old, new, "--format", "json").out)
    assert [(rule["rule"], rule["kind"]) for rule in data["rules"]] == [("REG-02", kind)]
    (change,) = data["changes"]
    assert (change["rules"], change["points"], change["kind"]) == (["REG-02"], 2, kind)
    markdown = cli(1, "compare", old, new, "--format", "markdown").out
    assert f"| {kind} | REG-02 | {before} | FAIL |" in markdown
    back = compare(read(Path(new)), read(Path(old)))
    assert (list(back.rules.changed), back.status) == (["REG-02"], 0)


def test_a_rule_has_the_kind_of_its_cases(tmp_path):
    """One case of the rule was unreachable, and the violating case was unsupported."""
    first, second = SUITE.cases[:2]
    rules: dict[str, Any] = {"rules": ["REG-01"]}
    old = [result(first, "UNREACHABLE", **rules), result(second, "UNSUPPORTED", **rules)]
    new = [result(first, "UNREACHABLE", **rules), result(second, "FAIL", **rules)]
    comparison = compare(read(run(tmp_path / "old", old)), read(run(tmp_path / "new", new)))
    assert comparison.old.verdicts.of_rules["REG-01"] == "UNREACHABLE"
    assert comparison.rules.kind("REG-01") == comparison.changes[0].kind
    assert comparison.changes[0].kind == "newly supported, and wrong"


NOW = {"PASS": ["fixed"], "UNSUPPORTED": ["became unsupported"], "MISSED": ["no longer decided"]}


@pytest.mark.parametrize("now", [*NOW, "not tried"])
def test_a_rule_is_fixed_only_by_the_cases_that_violated_it(now, tmp_path, cli):
    first, second, third = SUITE.cases[:3]
    old = [result(first, "FAIL"), result(second, "FAIL"), result(third, "UNSUPPORTED")]
    new = [result(second), result(third)]
    if now in NOW:
        new = [result(first, now), *new]
    paths = run(tmp_path / "old", old), run(tmp_path / "new", new)
    old_run, new_run = map(read, paths)
    comparison = compare(old_run, new_run)
    kinds = [comparison.rules.kind(rule) for rule in comparison.rules.changed]
    assert kinds == NOW.get(now, [])
    said = cli(comparison.status, "compare", *paths).out
    why = f"by 1 case that the new run did not try, such as {first.id}: not fixed"
    assert (why in said) == (now not in NOW)


def test_a_rule_regresses_only_by_a_case_that_both_runs_tried(tmp_path):
    first, second = SUITE.cases[:2]
    old = [result(second, "UNSUPPORTED")]
    new = [result(first, "FAIL"), result(second)]
    comparison = compare(read(run(tmp_path / "old", old)), read(run(tmp_path / "new", new)))
    assert list(comparison.rules.changed) == []
    said = "\n".join(text(comparison, 20))
    assert f"  REG-01  by 1 case that the old run did not try, such as {first.id}: no reg" in said
    (defect,) = comparison.new.violations.defects
    assert re.search(rf"^  not tried by the old run  .*  {defect.fingerprint}  ", said, re.M)
    assert comparison.status == 0


def test_the_first_line_says_that_the_tables_differ(tmp_path, cli):
    old, new = (run(tmp_path / name, [result(SUITE.cases[0])], name * 64) for name in ("a", "b"))
    first, second, *_ = cli(0, "compare", old, new).out.splitlines()
    assert first == (
        "nothing has regressed; the tables differ: only cases of both runs are compared (exit status 0)"
    )
    assert second == "1 case compared: nothing has changed"
    assert cli(0, "compare", old, new, "--unlike-tables").out.startswith(first)


def test_a_run_of_other_tables_that_left_cases_out_has_not_lost_them(tmp_path):
    old = digested(result(SUITE.cases[0]), result(SUITE.cases[1]), tables="a" * 64)
    new = digested(result(SUITE.cases[0]), tables="b" * 64)
    assert [change.kind for change in compare(old, new).changes] == ["gone"]
    part = digested(result(SUITE.cases[0]), tables="b" * 64, left_out=7)
    comparison = compare(old, part)
    assert (comparison.changes, comparison.untried) == ((), (1, 0))


@pytest.mark.parametrize("tries, kind", [(False, "became unsupported"), (True, "not hit again")])
def test_a_race_that_is_not_seen_again_is_not_unsupported(tries, kind, tmp_path):
    """By chance, more tries of the new run met no request in flight."""
    space = {"axes": {"addr": ["buf"]}, "size": 9, "tries": tries}
    old, new = {"FAIL": 3, "PASS": 5, "UNREACHABLE": 1}, {"PASS": 7, "UNREACHABLE": 2}
    (case, *_) = SUITE.cases
    comparison, status = changes(
        tmp_path,
        [result(case, "FAIL", space=space, points=old)],
        [result(case, "PASS", space=space, points=new)],
    )
    assert ([change.kind for change in comparison], status) == ([kind], 0)


def test_changes_under_test_come_before_changed_results():
    env = {
        "kernel": "6.12.1",
        "rdma_core": "56.1",
        "pyverbs": "56.1",
        "python": "3.14",
        "tainted": 0,
    }
    old = digested(result(SUITE.cases[0]), tables="a" * 64, stack="trixie", env=env)
    new = digested(result(SUITE.cases[0], "FAIL"), tables="a" * 64, stack="forky", seed=7)
    lines = [*text(compare(old, new), None)]
    assert lines[4:10] == [
        "what was under test has changed:",
        "  kernel: 6.12.1 -> 7.2.0",
        "  rdma-core: 56.1 -> 65.0",
        "  stack: trixie -> forky",
        "different settings of the suite:",
        "  seed: none -> 7",
    ]
    headings = [line.partition(" (")[0] for line in lines[10:] if line and line[0] != " "]
    assert headings[:3] == [
        "defects: 1 new; 0 gone; 0 in both",
        "rules: 1 regressed",
        "regressed: 1 case",
    ]
    assert lines[16].startswith("  regressed  PASS -> FAIL  REG-01  ")
    assert (
        "- what was under test has changed:\n  - kernel: 6\\.12\\.1 → 7\\.2\\.0\n"
        in as_markdown(compare(old, new))
    )
    assert "has changed:" not in "".join(text(compare(new, new), None))


def two_runs(tmp_path: Path) -> tuple[str, str]:
    """Writes two runs: the older run has one defect, the newer run has two other defects."""
    first, second, third, fourth = SUITE.cases

    def refused(of: Case, errno: str) -> ResultRecord:
        return result(
            of,
            "FAIL",
            "| <b>",
            fault={"kind": "refused", "verb": "ibv_reg_mr", "errno": errno},
        )

    old = [refused(first, "EINVAL"), result(second), result(third, "UNSUPPORTED"), result(fourth)]
    new = [
        result(first),
        refused(second, "EPERM"),
        refused(third, "ENOMEM"),
        result(fourth, "MISSED"),
    ]
    return str(run(tmp_path / "old", old)), str(run(tmp_path / "new", new))


def test_defects_are_compared_by_their_fingerprints(tmp_path, cli):
    said = cli(1, "compare", *two_runs(tmp_path)).out
    assert (
        "defects: 2 only in the new run: 1 new; 1 newly supported, and wrong; 1 gone; 0 in both"
        in said
    )
    listed = re.findall(
        r"(?m)^  (new|newly supported, and wrong|gone)  .* with (\w+): REG-01$", said
    )
    assert listed == [
        ("new", "EPERM"),
        ("newly supported, and wrong", "ENOMEM"),
        ("gone", "EINVAL"),
    ]
    assert "newly supported, and wrong: 1 case" in said


# The verdicts of the first cases in the old run and in the new run (`-`: not tried), the exit status, and a part of the
# output. If a defect is new, gone or not decided, the output counts the defects.
OLD_AND_NEW = [
    (
        "UNSUPPORTED",
        "CRASH",
        1,
        r"a newly supported feature is wrong: 1 newly supported, and wrong, the worst: .*crash \(exit",
    ),
    (
        "UNSUPPORTED",
        "FAIL",
        1,
        "a newly supported feature is wrong: 1 newly supported, and wrong, the worst: wrong report ",
    ),
    (
        "WAIVED WAIVED",
        "WAIVED PASS",
        0,
        r"(?s)\n2 cases compared: 1 case waiver no longer needed\n.*  reg_mr/sample/c1 \(defect ",
    ),
    ("PASS", "MISSED", 3, "no longer decided: 1 case"),
    *(
        (
            "FAIL PASS",
            f"{again} PASS",
            3 if again in INCOMPLETE else 0,
            "0 new; 0 gone; 0 in both; 1 not decided\n",
        )
        for again in ("MISSED", "BROKEN", "UNSUPPORTED", "UNREACHABLE", "-")
    ),
    ("- PASS", "FAIL PASS", 0, "0 new; 0 gone; 0 in both; 1 not tried by the old run\n"),
    ("WAIVED", "FAIL", 1, "0 new; 0 gone; 1 in both\n"),
    ("FAIL", "WAIVED", 0, "nothing has regressed"),  # a known defect needs no message
    (
        "PASS",
        "- PASS",
        3,
        r"^nothing was compared: no case was tried by both runs \(exit status 3\)\n",
    ),
]


@pytest.mark.parametrize("old, new, status, said", OLD_AND_NEW)
def test_verdicts_of_two_runs_have_a_conclusion(old, new, status, said, tmp_path, cli):
    folders: list[Path] = []
    for verdicts in (old, new):
        tried = [
            (case, verdict)
            for case, verdict in zip(SUITE.cases, verdicts.split(), strict=False)
            if verdict != "-"
        ]
        lines = [
            result(case, "FAIL", **WAIVED)
            if verdict_pair == "WAIVED"
            else result(case, verdict_pair)
            for case, verdict_pair in tried
        ]
        folders.append(run(tmp_path / str(len(folders)), lines))
    output = cli(status, "compare", *folders).out
    assert re.search(said, output)
    assert ("  gone  " in output, "defects: " in output) == (
        False,
        "worst" in said or "new; " in said,
    )


@pytest.mark.parametrize("command", ["compare", "report"])
def test_a_reader_loads_only_what_it_needs(command):
    program = f"import sys, commands.{command}, reports.markdown; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = done.stdout.split()
    assert "reports.markdown" in loaded
    assert not set(SLOW).intersection(loaded)


@pytest.mark.parametrize("own", ["new", "old", ""])
def test_what_only_one_run_was_given_has_changed(own):
    """Unlike the hash of an image, which only some runs record."""
    given = {"image": "a" * 12, "linux": {"sha256": "b" * 12, "commit": "c" * 12}}
    runs = {
        name: digest(
            recorded([], under_test={"given": given if own == name else {}}).shown(), Path()
        )
        for name in ("old", "new")
    }
    differences = stacks(runs["old"], runs["new"])
    values = {"new": ("", "c" * 12), "old": ("c" * 12, "")}
    assert [both for name, *both in differences if name == "commit of --linux"] == (
        [[*values[own]]] if own else []
    )
    assert not any("a" * 12 in both for both in differences)
