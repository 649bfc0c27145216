"""Tests of the text with which a user disputes a violation."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from commands.__main__ import main
from conformance.tables.suite import ROOT
from reports.digest import read

RUNS = Path(__file__).with_name("recorded_violations")
FINGERPRINT = "85c569cb8aca"
SIW = ROOT / "docs/runs/siw.jsonl.xz"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "a run"
    folder.mkdir()
    shutil.copy(RUNS / "forky.jsonl", folder / "results.jsonl")
    return folder


def text_of(word: str, run: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["explain", word, "--dispute", "--run", str(run)]) == 0
    return capsys.readouterr().out


def test_the_text_has_the_rule_the_row_the_observation_and_the_stack(run, capsys):
    text = text_of(FINGERPRINT, run, capsys)
    (defect,) = [item for item in read(run).violations.defects if item.fingerprint == FINGERPRINT]
    assert text.splitlines()[1].endswith(defect.title)
    for needed in (defect.first.name, defect.first.line, defect.first.repro, "kernel 7.2.12"):
        assert needed in text
    assert "BIND-10 (must): " in text
    for claim in ("THE RULE IS WRONG", "THE ROW IS WRONG", "THE OBSERVATION IS WRONG", "KNOWN"):
        assert text.count(claim) == 1
    assert f"bundle {shlex.quote(str(run))}" in text
    of_run = re.escape(f"waivers --run {shlex.quote(str(run))} --defect ")
    assert re.search(rf"{of_run}[0-9a-f]{{12}} --owner NAME", text)


@pytest.mark.parametrize("word", ["bind-10", "bind_mw/type_1/part-from-buf"])
def test_a_violation_can_be_named_by_its_rule_or_its_case(word, run, capsys):
    text = text_of(word, run, capsys)
    assert word.upper() in text.upper()
    assert FINGERPRINT in text


def test_what_a_text_tells_to_attach_can_be_made_of_a_file_of_results(tmp_path, capsys):
    text = text_of("34c7", SIW, capsys)
    assert f"Attach {SIW} and what is written by:" in text
    assert " bundle " not in text
    assert "\nrepeated:  confirmed" in text
    (line,) = [line for line in text.splitlines() if " reproducer " in line]
    out = str(tmp_path / "text")
    assert main([*shlex.split(line)[1:], "--out", out]) == 0
    unrepeated = text_of("reg_mr/modified_access/taken-away-for-rdma-read", SIW, capsys)
    said = r"\nrepeated:  this violation was not repeated, but [1-9]\d* other violations? of this defect "
    assert re.search(f"{said}occurred again when repeated\n", unrepeated)


def test_only_a_violation_can_be_disputed(run, capsys):
    assert main(["explain", "DEREG-02", "--dispute", "--run", str(run)]) == 2
    assert "has no violation of DEREG-02" in capsys.readouterr().err


def test_the_text_says_that_the_stack_was_an_own_build(run, capsys):
    assert "own build:" not in text_of(FINGERPRINT, run, capsys)
    file = run / "results.jsonl"
    header, *rest = file.read_text().splitlines()
    changed = json.loads(header)
    changed["under_test"]["given"] = {
        "linux": {"sha256": "9af1" * 16, "commit": "3577" * 10},
        "modules": {"sha256": "9af1" * 16},
        "rdma_core": {"sha256": "7c01" * 16},
        "rdma_core_tree": {"sha256": "55aa" * 16, "commit": "8d0e" * 10, "uncommitted": 1},
    }
    file.write_text("\n".join([json.dumps(changed), *rest, ""]))
    text = text_of(FINGERPRINT, run, capsys)
    parts = "linux, commit 357735773577 (files 9af19af1); modules, files 9af19af1; "
    parts += "rdma-core, commit 8d0e8d0e8d0e with 1 uncommitted file (files 7c017c01)"
    assert f"\nown build: the stack under test was changed: {parts}\n" in text
    facts = read(run).environment.named_under_test
    assert facts["commit of --linux"] == "357735773577"
    assert facts["commit of --rdma-core"] == "8d0e8d0e8d0e with 1 uncommitted file"


def test_the_text_shows_the_worst_violation_first_that_of_a_peer(capsys):
    run = ROOT / "docs/runs/rxe.jsonl.xz"
    for defect in read(run).violations.defects:
        if defect.severity.advice:
            text = text_of(defect.fingerprint, run, capsys)
            (case,) = re.findall("^case: +(.*)$", text, re.MULTILINE)
            assert case.startswith("wire/") or case.endswith("@wire")
            assert text.startswith("A remote peer can trigger this.")


def test_the_text_has_the_judged_call_and_those_after_it_up_to_the_violation(capsys):
    run = ROOT / "docs/runs/rxe.jsonl.xz"
    every = [symptom for defect in read(run).violations.defects for symptom in defect.symptoms]
    later = [
        symptom
        for symptom in every
        if symptom.fault.step and not symptom.fault.call.startswith("wire(")
    ]
    assert {bool(symptom.deviation) for symptom in later} == {True, False}
    for is_point in (True, False):
        symptom = next(symptom for symptom in later if bool(symptom.deviation) == is_point)
        text = text_of(symptom.name, run, capsys)
        judged = (symptom.deviation or symptom.record)["call"]
        assert f"\ncall:      {judged}\n" in text
        (*_, last) = re.findall("^then: +(.*)$", text, re.MULTILINE)
        assert last == symptom.fault.call


def test_what_is_expected_has_no_word_of_a_table(capsys):
    run = ROOT / "docs/runs/rxe.jsonl.xz"
    every = [symptom for defect in read(run).violations.defects for symptom in defect.symptoms]
    symptom = next(
        symptom for symptom in every if symptom.expected.endswith(" otherwise unreachable")
    )
    assert "\nexpected:  refused\n" in text_of(symptom.name, run, capsys)


def test_texts_about_a_remote_defect_say_what_the_peer_needs(capsys):
    run = ROOT / "docs/runs/rxe.jsonl.xz"
    for word, is_remote in (("6c8e18b350a5", True), (FINGERPRINT, True), ("e0871e3013a8", False)):
        dispute = text_of(word, run, capsys)
        assert main(["reproducer", word, "--run", str(run), "--mail"]) == 0
        mail = capsys.readouterr().out
        for text in (dispute, mail):
            plain = " ".join(text.split())
            assert ("the peer is the connected peer of the queue pair; " in plain) is is_remote
            assert ("the program had granted REMOTE_" in plain) is is_remote
            assert ("a program without privileges on the machine" in plain) is is_remote


def test_texts_name_a_call_between_packets_as_its_entry_issued_it(capsys):
    run = ROOT / "docs/runs/rxe.jsonl.xz"
    for command in (["explain"], ["explain", "--dispute"], ["reproducer", "--mail"]):
        assert main([*command, "3c3d16491849", "--run", str(run)]) == 0
        text = capsys.readouterr().out
        assert "2. uverbs REREG_MR(mr=mr," in text
        assert "2. ibv_rereg_mr(" not in text
