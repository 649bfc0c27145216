"""Tests of the page of findings, and of the trial that compares programs with the verdicts of their run."""

import re
from dataclasses import replace

import pytest

from bad_places import full_disk
from conformance.tables.suite import ROOT
from programs import ADVICE, FORKY, RECORDED, WRITE, forky, page_of, programs, records
from reports.digest import read
from samples import laid, written_records
from trial.reproduction import (
    AGREED,
    DIFFERS,
    NOT_MADE,
    REPRODUCED,
    Trying,
    _finding,
    compare,
    passed,
)


def test_the_page_of_findings_has_each_defect_with_its_stacks_and_its_program(tmp_path):
    fingerprint = forky().violations.defects[0].fingerprint
    places = f"{fingerprint}: rxe_mw.c, rxe_invalidate_mw\n"
    laid(tmp_path / "findings", {"old.c": "/* REG-01\n", "places.yaml": places})
    trixie = RECORDED / "trixie.jsonl"
    page = page_of(tmp_path, FORKY, trixie, "--programs")
    fingerprints = {
        defect.fingerprint
        for defect in (*forky().violations.defects, *read(trixie).violations.defects)
    }
    assert page.count("\n- fingerprint: `") == len(fingerprints)
    assert "- where: rxe_mw.c, rxe_invalidate_mw" in page
    linked = set(re.findall(r"\(findings/([^)]+\.c)\)", page))
    folder = tmp_path / "findings"
    assert linked == {str(path.relative_to(folder)) for path in folder.rglob("*.c")}
    again = laid(tmp_path / "again", {"results.jsonl": FORKY.read_bytes()})
    twice = page_of(tmp_path / "twice", trixie, FORKY, again)
    assert not re.search(r"seen on: [^\n]*forky[^\n]*forky", twice)
    assert "linked programs" not in twice
    assert "; not tried on: trixie" in page  # the recording has only the violations of the run
    assert "; not on: " not in page


@pytest.mark.parametrize("verdict, says", [("PASS", "not on"), ("UNSUPPORTED", "not tried on")])
def test_the_page_of_findings_names_the_stacks_without_the_defect(tmp_path, verdict, says):
    head, *passing = records()
    head["stack"] = "sid"
    for record in passing:
        if str(record.get("case", "")).startswith("bind_mw/"):
            record |= {
                "verdict": verdict,
                "effective": verdict,
                "rule_verdicts": {},
                "deviations": [],
                "fault": None,
            }
    page = page_of(tmp_path / "page", FORKY, written_records([head, *passing], tmp_path / "sid"))
    assert re.search(rf"- seen on: forky \(\d+ results\); {says}: sid\n- rules: BIND", page)
    assert {says} == set(re.findall("; (not.* on): ", page))


def test_the_page_names_and_copies_the_programs_that_were_written_by_hand(tmp_path):
    """The first of them includes the second, and one that the user has written is left as it is."""
    run = ROOT / "docs/runs/rxe.jsonl.xz"
    files = ["5c12bb81389f.c", "958a64a75930.c"]
    paths = [f"docs/findings/by-hand/{file}" for file in files]
    assert f"- shown by: written by hand: `{' and '.join(paths)}`\n" in page_of(tmp_path, run)
    assert not list(tmp_path.rglob("*.c"))
    laid(tmp_path / "findings/by-hand", {files[1]: "mine\n"})
    page = page_of(tmp_path, run, "--programs")
    links = [f"[by-hand/{file}](findings/by-hand/{file})" for file in files]
    assert f"- shown by: {', '.join(links)}\n" in page
    copied = [(tmp_path / "findings/by-hand" / file).read_text() for file in files]
    assert copied == [(ROOT / paths[0]).read_text(), "mine\n"]


def test_unconfirmed_violations_are_not_findings(tmp_path):
    defect = next(
        defect
        for defect in forky().violations.defects
        if len(defect.symptoms) == 1 and defect.first.name == defect.first.case
    )
    once = {"verdict": "FAIL", "reason": "it was seen once"}
    tried = {
        "type": "confirmation",
        "case": defect.first.case,
        "confirmed": False,
        "by": "repetition",
        "in_run": once,
    }
    *lines, footer = records()
    alone = {**tried, "alone": {"verdict": "PASS", "reason": ""}}
    run = written_records([*lines, alone, footer], tmp_path / "forky")
    page = page_of(tmp_path / "page", run)
    assert page.count("\n- fingerprint: `") == len(forky().violations.defects) - 1
    assert f"`{defect.fingerprint}`" not in page


def test_the_programs_of_the_documented_findings_are_up_to_date(tmp_path):
    """Without --programs, the command rewrites only existing programs, and none of a remote defect."""
    documented = {path.name: path.read_text() for path in (ROOT / "docs" / "findings").glob("*.c")}
    assert documented
    laid(tmp_path / "findings", dict.fromkeys(documented, ""))
    page_of(tmp_path, FORKY)
    assert {
        path.name: path.read_text() for path in (tmp_path / "findings").glob("*.c")
    } == documented
    page_of(tmp_path, FORKY, "--programs")
    assert len(list((tmp_path / "findings").glob("*.c"))) > 10


def test_places_that_are_not_a_mapping_of_texts_are_refused(tmp_path, cli):
    laid(tmp_path / "findings", {"places.yaml": "- a list\n"})
    assert (
        "expected a mapping from fingerprints to texts"
        in cli(2, "findings", FORKY, "--out", tmp_path).err
    )


@pytest.mark.parametrize(
    "verdict, end, outcome",
    [
        ("FAIL", 1, REPRODUCED),
        ("FAIL", 0, DIFFERS),
        ("FAIL", 77, DIFFERS),
        ("FAIL", 2, DIFFERS),
        ("CRASH", -11, REPRODUCED),
        ("CRASH", "the guest died", REPRODUCED),
        ("CRASH", 0, DIFFERS),
        ("PASS", 0, AGREED),
        ("PASS", 1, DIFFERS),
        ("PASS", -11, DIFFERS),
        ("FAIL", "it does not compile", DIFFERS),
    ],
)
def test_the_exit_of_a_program_is_compared_with_the_verdict_of_the_run(verdict, end, outcome):
    assert _finding(Trying("a/b/c", verdict, None), end, "last\n\n").outcome == outcome


def test_a_trial_passes_if_95_of_100_violations_are_reproduced():
    findings = [_finding(Trying(str(number), "FAIL", None), 1, "") for number in range(95)]
    lost = [
        replace(_finding(Trying(str(number), "FAIL", None), 0, ""), outcome=NOT_MADE)
        for number in range(5)
    ]
    assert passed([*findings, *lost])
    assert not passed([*findings[1:], *lost, lost[0]])
    agreed = [_finding(Trying("pass", "PASS", None), 0, "")]
    assert not passed([*findings[1:], *lost, lost[0], *agreed * 50])


@pytest.mark.guest
def test_programs_have_the_results_of_the_run_in_the_guest(tmp_path):
    verdicts = {"reg_mr/registration/last-byte": "PASS", **dict.fromkeys((ADVICE, WRITE), "FAIL")}
    verdicts["bind_mw/type_1/part-from-buf"] = "FAIL"
    programs_made = programs()[0]
    tried = [
        Trying(id_, verdict, programs_made[id_])
        for id_, verdict in verdicts.items()
        if id_ in programs_made
    ]
    assert len(tried) >= 3
    findings = list(compare(tried, "forky", tmp_path, 1, print, assume_yes=True))
    assert {finding.outcome for finding in findings} == {REPRODUCED, AGREED}, findings


def test_a_defect_that_a_peer_can_cause_is_shown_from_a_peer_and_then_without_one(tmp_path):
    page = page_of(tmp_path, ROOT / "docs/runs/rxe.jsonl.xz", "--programs", "--remote")
    (shown,) = re.findall("`6c8e18b350a5`\n(?:- .*\n)*?- shown by: (.*)$", page, re.MULTILINE)
    files = re.findall(r"\(findings/([^)]+)\.c\)", shown)
    assert ", without a peer: " in shown
    assert [name.partition("-")[0] for name in files] == ["wire", "bind"]
    scripts = [(tmp_path / "findings" / f"{name}.py").exists() for name in files]
    assert scripts == [True, False]


def test_programs_of_remote_defects_are_written_only_if_they_are_asked_for(tmp_path):
    shown = {}
    for more in ("--programs", "--remote"):
        page = page_of(tmp_path / more, ROOT / "docs/runs/rxe.jsonl.xz", "--programs", more)
        (line,) = re.findall("`6c8e18b350a5`\n(?:- .*\n)*?- shown by: (.*)$", page, re.MULTILINE)
        shown[more] = re.findall(r"\(findings/([^)]+)\)", line)
    assert not shown["--programs"]
    written = {path.name for path in (tmp_path / "--programs/findings").iterdir()}
    assert len(written) > 5
    assert shown["--remote"]
    assert written.isdisjoint(shown["--remote"])


@pytest.mark.parametrize(
    "command",
    [
        ("findings", FORKY, "--programs"),
        ("findings", FORKY, "--format", "mail"),
        ("reproducer", "--all", "--run", FORKY),
    ],
)
def test_a_full_disk_leaves_no_part_of_the_programs(command, tmp_path, cli):
    cli(0, *command, "--out", tmp_path / "whole")
    sizes = [path.stat().st_size for path in (tmp_path / "whole").rglob("*") if path.is_file()]
    mine = ["findings.md", "mine.c"][command[0] == "reproducer"]
    laid(tmp_path / "old", {mine: ""})
    for name, left in (("new", []), ("old", [mine])):
        out = tmp_path / name
        with full_disk(max(sizes) - 1):
            assert "cannot be written: File too large" in cli(3, *command, "--out", out).err
        assert out.exists() is bool(left)
        assert [path.name for path in out.rglob("*")] == left


@pytest.mark.parametrize(
    "file, more",
    [("findings.md", ()), ("findings/advise-mr-codes-invalid-pd-libibverbs.c", ("--programs",))],
)
def test_findings_replace_and_remove_no_file_of_the_user(tmp_path, cli, file, more):
    mine = {"findings.md": "", "findings/thesis.c": "int x;\n", "findings/a.py": "a = 1\n"}
    laid(tmp_path, mine)
    words = ("findings", FORKY, "--out", tmp_path, *more)
    cli(0, *words)
    laid(tmp_path, mine := {**mine, "findings.md": (tmp_path / "findings.md").read_text()})
    cli(0, *words)
    laid(tmp_path, mine := {**mine, file: "# Mine\n"})
    assert f"{tmp_path / file} is a file that this command has not written" in cli(2, *words).err
    assert all((tmp_path / name).read_text() == text for name, text in mine.items())


@pytest.mark.parametrize(
    "command",
    [
        ("findings", FORKY),
        ("findings", FORKY, "--format", "mail"),
        ("reproducer", "--all", "--run", FORKY),
    ],
)
def test_many_files_are_not_written_among_those_of_the_user(tmp_path, cli, command):
    laid(tmp_path / "run", {"results.jsonl": FORKY.read_bytes()})
    said = cli(2, *command, "--out", tmp_path / "run").err
    assert "run is not empty (it has results.jsonl), and is not a directory of " in said
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["results.jsonl"]
    for _ in range(2):
        cli(0, *command, "--out", tmp_path / "new")
