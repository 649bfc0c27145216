"""Tests of mails about defects, which have the program of a case."""

import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conformance.defects import Defect, answering_of, severity_of
from conformance.model.fault import Effect, Fault, FaultKind
from conformance.results.records import Recorded
from conformance.tables.suite import ROOT
from programs import (
    DEFECT,
    FORKY,
    RECORDED,
    ROWS,
    SUITE,
    WRITE,
    forky,
    mail_of,
    records,
    spaced,
    symptom_named,
)
from reports.digest import digest, read
from reports.dispute import violation_about
from reports.explanations import of_defect
from reports.reproducers.mail import WIDTH as MAIL_WIDTH
from reports.reproducers.mail import mail
from reports.reproducers.of_runs import Made, basis_of, first_program
from reports.reproducers.program import file_name
from reports.terminal import summary
from reports.upstream import ENTRIES
from samples import changed, result, written_records
from test_earlier_points import OF_ODP, READ, comparison, deviation, swept

DEADLY = "reg_mr_iova/on_demand/every-byte-at-buf-+-7-pages-+-104"


def test_a_mail_has_every_part_in_72_columns():
    symptom = symptom_named(WRITE)
    text = mail_of(symptom, read(RECORDED / "trixie.jsonl"))
    # the kernel log of this run has no long line
    assert max(map(len, text.splitlines())) <= MAIL_WIDTH
    output = spaced(text)
    for part in (
        "Subject: rxe: ",
        "The objects and calls:",
        "expected: success",
        "observed: ",
        "answered by: ",
        "Tested: ",
        "modules.rdma_rxe.build_id: ",
        "Stacks:",
        "int main(int argc, char **argv)",
        "IBV_ACCESS_ON_DEMAND Create an on-demand paging MR",
    ):
        assert part in output, part
    observed = output.partition("observed: ")[2]
    assert observed.startswith(symptom.line.removeprefix("afterwards ")[:40])


@pytest.mark.parametrize(
    "layer, part",
    [("device", "rxe"), ("provider", "rdma-core, providers/rxe"), ("kernel core", "RDMA/core")],
)
def test_the_subject_of_a_mail_names_the_part_of_the_stack(layer, part):
    symptom = next(
        defect.symptoms[0]
        for defect in forky().violations.defects
        if answering_of(defect.symptoms[0]).layer == layer
    )
    text = mail_of(symptom)
    assert text.startswith(f"Subject: {part}: ")


def test_a_mail_has_the_kernels_messages_unchanged_and_the_function_that_crashed():
    symptom = symptom_named(DEADLY)
    log = symptom.record["kernel"]["log"]
    first = next(number for number, line in enumerate(log) if "Oops: general protection" in line)
    text = mail_of(symptom)
    output = text.partition("The kernel's messages:\n")[2].splitlines()
    assert output[:40] == [f"  {line}".rstrip() for line in log[first : first + 40]]
    assert output[40] == f"  ({len(log) - first - 40} more lines)"
    assert any("RIP: " in line for line in output)
    subject = spaced(text.partition("\n\n")[0])
    assert subject.startswith("Subject: rxe: kernel fault in rxe_odp_mr_copy: on-demand")
    device = forky().header["device"]["name"]
    assert f"  modprobe rdma_rxe\n  rdma link add {device} type rxe netdev NETDEV" in text
    assert f"  ./shown {device}\n" in text
    assert "the program stops the kernel" in spaced(text)
    assert "\nobserved: at one of these calls, the kernel under test died\n" in text
    assert len(re.findall(r"^  - then: ", text, re.MULTILINE)) == len(
        symptom.record["expected"]["afterwards"]
    )


def test_a_mail_about_a_process_that_died_has_no_frame_of_this_suite():
    symptoms = (symptom for defect in forky().violations.defects for symptom in defect.symptoms)
    symptom = next(symptom for symptom in symptoms if symptom.fault.effect is Effect.PROCESS_DIED)
    provider = 'Binary file "/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav65.so", at +0x484f [0x7fa1d566384f]'
    frames = [
        '  File "/suite/conformance/execution/steps.py", line 264 in _bind',
        '  Binary file "python3" [0x450bc9]',
    ]
    died = replace(
        symptom,
        record={**symptom.record, "kernel": {"log": [*frames, f"  {provider}"]}},
    )
    text = mail_of(died)
    stack = text.partition("The stack of the process, innermost frame first:\n")[2]
    assert stack.startswith(f"  {provider}\n\nTested: ")
    assert "/suite/" not in text
    assert "the program is killed by a signal" in spaced(text)


@pytest.mark.parametrize(
    "name, digits, has_program",
    [
        ("siw", "34c7", True),
        ("siw", "85a6", False),  # needs list_traffic
        ("rxe", "d44d", False),  # points of a model
    ],
)
def test_every_defect_has_a_mail_and_a_program_if_one_of_its_cases_has_one(
    name, digits, has_program, tmp_path, cli
):
    run = ("--run", ROOT / f"docs/runs/{name}.jsonl.xz")
    said = cli(0 if has_program else 2, "reproducer", digits, *run, "--out", tmp_path / "shown.c")
    text = cli(0, "reproducer", digits, *run, "--mail").out
    if has_program:
        assert re.search(r" lines that show \S+; cc ", said.out)
        assert (tmp_path / "shown.c").read_text().partition("*/")[2]
    else:
        assert said.err.endswith("; --mail writes a report without a program\n")
        assert "This command repeats it: ./rdma-cts run " in spaced(text)
    assert ("int main(" in text) == has_program
    title, _, body = text.removeprefix("Subject: ").partition("\nTo: ")
    body = body.partition("\n\n")[2]
    assert spaced(body).startswith(spaced(title).partition(": ")[2] + ".")


def test_a_mail_distinguishes_builds_of_the_same_versions(tmp_path, cli):
    built, *later = records()
    built["under_test"]["given"]["linux"] = {"sha256": "e4" * 32}
    built["under_test"]["modules"]["rdma_rxe"]["build_id"] = "ce" * 20
    mine = written_records([built, *later], tmp_path)
    said = spaced(cli(0, "reproducer", DEFECT, "--run", mine, "--mail", "--others", FORKY).out)
    assert "rdma-core 65.0 (the stack under test was changed: linux, files e4e4e4e4). " in said
    assert "rdma-core 65.0, with modules.rdma_rxe.build_id a6d6b4de9dc2: has the defect" in said


def test_a_mail_says_of_another_stack_whether_it_has_the_defect_in_this_case(tmp_path):
    symptom, run = symptom_named(WRITE), forky()
    (defect,) = (item for item in run.violations.defects if symptom in item.symptoms)
    number = len(defect.cases) - 1
    passed: Any = {"verdict": "PASS", "effective": "PASS"}
    results = [
        changed(record, passed) if record["case"] == symptom.case else record
        for record in run.results
    ]
    said = spaced(mail_of(symptom, replace(run, results=tuple(results))))
    assert f": has the defect in {number} other cases; this case is PASS" in said
    results = [record for record in run.results if record["case"] != symptom.case]
    said = spaced(mail_of(symptom, replace(run, results=tuple(results))))
    assert f": has the defect in {number} other cases; this case was not tested" in said


@pytest.mark.parametrize(
    "verdict, says",
    [
        ("PASS", "does not have the defect (the case is PASS)"),
        ("FAIL", "does not show the defect (the case fails there by another defect, "),
        ("UNSUPPORTED", "leaves the defect undecided (the case is UNSUPPORTED)"),
        ("MISSED", "was not tested for the defect"),
    ],
)
def test_a_mail_describes_another_stack_by_the_verdict_of_its_run(tmp_path, verdict, says):
    symptom, run = symptom_named(WRITE), forky()
    head = changed(run.header, {"device": {**run.header["device"], "driver": "siw"}})
    case = next(row for row in ROWS if row.id == symptom.case)
    other = digest(Recorded(head, [result(case, verdict)], None).shown(), tmp_path)
    said = spaced(mail_of(symptom, other))
    assert f"- siw, kernel 7.2.12+deb14-amd64, rdma-core 65.0: {says}" in said
    assert "- rxe, kernel 7.2.12+deb14-amd64, rdma-core 65.0: has the defect" in said


@pytest.mark.parametrize(
    "other, says",
    [
        (READ, "does not have the defect (this point is PASS; the case fails there by another"),
        (OF_ODP, "does not show the defect (the case fails there by another"),
    ],
)
def test_a_mail_tells_the_point_of_a_defect_from_the_case(other, says):
    fault = Fault(FaultKind.MOVED, verb="traffic").as_data()
    here = comparison(swept(deviation(other, fault=fault)), swept(deviation(OF_ODP)))
    (defect,) = here.new.violations.defects
    said = mail(defect.symptoms, here.new, SUITE, basis_of(FORKY), [here.old]).text
    assert says in spaced(said)


def test_the_text_about_a_defect_names_the_stacks_that_have_it(tmp_path, cli):
    runs = (FORKY, RECORDED / "trixie.jsonl")
    said = cli(0, "findings", *runs, "--format", "mail", "--out", tmp_path).out
    texts = sorted((tmp_path / "findings").glob("*.txt"))
    assert f"{tmp_path}/findings: {len(texts)} texts" in said
    assert len(texts) > 5
    for text in map(Path.read_text, texts):
        assert text.startswith("Subject: ")
        assert "\nStacks:\n" in text
        shown = ["#include <infiniband/verbs.h>", "The text has no C program", "The attached file"]
        assert sum(part in text for part in shown) == 1
    assert not (tmp_path / "findings.md").exists()


def _has_script(attempt: Made) -> bool:
    return bool(attempt.program and attempt.program.script)


def test_a_mail_and_a_program_show_the_worst_violation_and_from_a_peer_if_one_can_cause_it():
    path = ROOT / "docs/runs/rxe.jsonl.xz"
    run, basis = read(path), basis_of(path)
    attached = 0
    for defect in run.violations.defects:
        alone = [first_program([symptom], SUITE, basis) for symptom in defect.symptoms]
        with_program = [attempt for attempt in alone if attempt.program]
        shown = first_program(defect.symptoms, SUITE, basis)
        written = mail(defect.symptoms, run, SUITE, basis, ())
        assert f"The case {shown.symptom.case} of rdma-cts found" in spaced(written.text)
        worst = severity_of(with_program[0].symptom if with_program else defect.first)
        assert severity_of(shown.symptom) is worst
        again = run.violations.repetitions.is_confirmed
        alike = [
            attempt
            for attempt in with_program
            if severity_of(attempt.symptom) is worst
            and again(attempt.symptom) == again(shown.symptom)
        ]
        if shown.program:
            scripts = set(map(_has_script, alike))
            assert _has_script(shown) == bool(worst.advice) or len(scripts) == 1
        if _has_script(shown):
            attached += bool(worst.advice)
            script = file_name(shown.symptom.name, ".py")
            assert f" NETDEV # an interface that is up cc -o shown {script[:-3]}.c" in spaced(
                written.text
            )
            assert (
                f"\n  python3 {script} ADDRESS \\\n    ssh root@NODE ./shown rxe0 " in written.text
            )
            written_for = [
                attempt for attempt in with_program if not severity_of(attempt.symptom).advice
            ]
            needs_no_peer = not all(map(_has_script, written_for))
            assert ("int main(" in written.text) == needs_no_peer
        private = "To: security@kernel.org\n" in written.text
        assert private == bool(severity_of(defect.first).advice)
        assert "Report it " not in written.text
    assert attached, "no defect that a peer causes has a script"


def test_the_notes_beside_a_mail_say_whom_to_add_what_to_attach_and_what_is_known(cli):
    run = ("--run", ROOT / "docs/runs/rxe.jsonl.xz")
    said = cli(0, "reproducer", DEFECT, *run, "--mail")
    notes = said.err.splitlines()
    assert notes[0].startswith("note: send it to security@kernel.org and, of others, only to ")
    assert notes[1].endswith("get_maintainer.pl -f drivers/infiniband/sw/rxe prints them")
    assert re.search(r" reproducer wire/\S+ --run \S+ --out wire-\S+\.c$", notes[2])
    assert not set(notes) & set(said.out.splitlines())
    local = cli(0, "reproducer", "7862f7654354", *run, "--mail")
    assert "\nTo: linux-rdma@vger.kernel.org\n" in local.out
    note = "note: kernel crash: linux-rdma@vger.kernel.org is public; consider security@kernel.org first, "
    assert local.err.startswith(note)
    reported = cli(0, "reproducer", "ca56", *run, "--mail")
    assert "security@kernel.org" not in reported.err
    assert f"(reported: {ENTRIES['ca5610635990']['reported']})" in reported.out.replace("\n", " ")
    assert reported.err.splitlines()[-1].startswith("note: the defect is known upstream: ")


def test_a_mail_without_a_program_attaches_one_that_was_written_by_hand(cli, tmp_path):
    """The program has an earlier fingerprint of the defect, and includes another one."""
    run = ROOT / "docs/runs/rxe.jsonl.xz"
    said = cli(0, "reproducer", "687f", "--run", run, "--mail")
    assert "The text has no C program" not in said.out
    names = re.findall(r"docs/findings/by-hand/\S+", said.err)
    files = [Path(name).name for name in names]
    assert files == ["5c12bb81389f.c", "958a64a75930.c"]
    assert f"The attached files {' and '.join(files)} show the defect" in spaced(said.out)
    for file in files:
        assert f"\n  cc -o shown {file} -libverbs\n  ./shown rxe0\n" in said.out
    assert "The exit status of the program is 1 after a violation" in said.out
    assert re.search(r"This is a race: \d+ of \d+ tries? ", said.out)
    cli(0, "findings", run, "--format", "mail", "--out", tmp_path)
    for name, file in zip(names, files, strict=True):
        assert (tmp_path / "findings" / file).read_text() == (ROOT / name).read_text()
    refused = cli(
        2, "reproducer", "687f", "--run", ROOT / "docs/runs/rxe.jsonl.xz", "--out", "-"
    ).err
    assert (
        f"written by hand: {' and '.join(names)}; --mail writes a report that attaches this"
        in refused
    )


# The verdict of the unchanged stack on the cases that fail, and whether the mail is for the list.
AS_SHIPPED = {"PASS": False, "": True, "UNREACHABLE": True, "FAIL": False}


@pytest.mark.parametrize("verdict", AS_SHIPPED)
def test_a_defect_that_only_the_own_build_shows_is_not_for_the_list(verdict, tmp_path, cli):
    header, *results = records()
    (defect,) = [item for item in forky().violations.defects if item.fingerprint == DEFECT]
    other = (
        {"kind": FaultKind.REFUSED, "errno": "EINVAL", "verb": "ibv_bind_mw"}
        if verdict == "FAIL"
        else {}
    )
    decided = {"verdict": verdict, "effective": verdict, "deviations": [], "fault": other}
    stock = [
        {**line, **decided} if verdict and line.get("case") in defect.cases else line
        for line in results
    ]
    given = {**header["under_test"]["given"], "linux": {"sha256": "e4" * 32}}
    built = {**header, "under_test": {**header["under_test"], "given": given}}
    mine = written_records([built, *results], tmp_path / "mine")
    shipped = written_records([header, *stock], tmp_path / "stock")
    said = cli(0, "reproducer", DEFECT, "--run", mine, "--mail", "--others", shipped)
    word = "only your changed build shows this; it is no report for the list"
    assert (said.err.splitlines()[0] == f"note: {word}") != AS_SHIPPED[verdict]
    assert word not in spaced(said.out)
    alone = "note: this build is changed; name a run of the stack as shipped with --others"
    assert alone not in said.err
    assert cli(0, "reproducer", DEFECT, "--run", mine, "--mail").err.splitlines()[0] == alone


def test_a_mail_about_a_point_of_a_model_has_the_meanings_of_its_values(cli):
    run = ROOT / "docs/runs/rxe.jsonl.xz"
    text = spaced(cli(0, "reproducer", "d44d4f85b168", "--run", run, "--mail").out)
    assert " memory=huge: huge pages " in text
    assert " operation=ATOMIC_WRITE: " in text


def test_no_text_passes_a_rules_words_off_as_those_of_a_document(cli):
    path = ROOT / "docs/runs/rxe.jsonl.xz"
    run = read(path)
    second_hand = 0
    for defect in run.violations.defects:
        text = cli(0, "reproducer", defect.fingerprint, "--run", path, "--mail").out
        plain = re.sub(r"\s+\*?\s*", " ", text)
        shown = re.search(r"The case (\S+) of rdma-cts found", plain)
        rules = next(
            of.rules for of in defect.symptoms if shown and of.case == shown[1].rstrip(",")
        )
        for facts in (run.verdicts.rules[id_] for id_ in rules[:3]):
            rule_text = spaced(f"The tested rule: {facts.statement}")
            assert rule_text in plain
            assert plain.partition(rule_text)[0].rstrip().endswith(('"', "."))
            if not facts.quote:
                second_hand += bool(facts.second_hand)
                assert f"(not quoted: {facts.unquoted.rstrip('.')}" in plain
                assert facts.second_hand in plain
        if defect.fingerprint == DEFECT:
            header = plain.partition("/* BIND-19, ")[2]
            assert header.partition("The tested rule:")[0].endswith("names o10-37.2.26). ")
    assert second_hand > 2


@pytest.mark.parametrize("name", ["rxe", "siw"])
def test_all_texts_show_a_confirmed_case_if_one_of_equal_severity_was_confirmed(name):
    path = ROOT / f"docs/runs/{name}.jsonl.xz"
    run, basis = read(path), basis_of(path)
    again = run.violations.repetitions.is_confirmed
    chosen = 0
    for defect in run.violations.defects:
        alike = [of for of in defect.symptoms if severity_of(of) is severity_of(defect.first)]
        assert again(defect.first) == any(map(again, alike))
        chosen += again(defect.first) and not all(map(again, alike))
        assert violation_about(defect.fingerprint, run)[1] is defect.first
        if first_program([defect.first], SUITE, basis).program:
            assert first_program(defect.symptoms, SUITE, basis).symptom is defect.first
    assert chosen


def test_a_mail_prefers_the_plainest_calls_and_the_rule_of_most_symptoms():
    path = ROOT / "docs/runs/rxe.jsonl.xz"
    run, basis = read(path), basis_of(path)
    (defect,) = Defect.called("251ad0de44ec", run.violations.defects)
    of_rule = defaultdict(list)
    for symptom in defect.symptoms:
        of_rule[" ".join(symptom.rules)].append(symptom)
    without = next(of for of in of_rule["REG-12"] if not first_program([of], SUITE, basis).program)
    newer = of_rule["EX-01"][0]
    shown = first_program([without, newer, *of_rule["REG-12"]], SUITE, basis)
    assert shown.symptom.rules == ("REG-12",)
    assert shown.program
    assert "headers" not in shown.program.text
    of_newer = first_program([newer], SUITE, basis).program
    assert of_newer
    assert "It needs the headers of rdma-core 59 or newer." in spaced(of_newer.text)
    text = mail([newer], run, SUITE, basis, ()).text
    assert "\n  # needs the headers of rdma-core 59 or newer\n  cc -o shown FILE.c " in text


def test_a_row_of_the_users_own_tables_is_doubted_first_in_all_texts(tmp_path):
    run = read(ROOT / "docs/runs/rxe.jsonl.xz")
    (defect,) = Defect.called("ff6941f7e668", run.violations.defects)
    source = {"file": "/home/user/own/reg_mr/own.yaml", "line": 4}
    results = [changed(defect.first.record, {"source": source})]
    own = replace(run, results=tuple(results), confirmations=())
    (shown,) = own.violations.defects
    doubt = "the row /home/user/own/reg_mr/own.yaml:4 is not of the suite: doubt its expect"
    written = mail(shown.symptoms, own, SUITE, basis_of(ROOT / "docs/runs/rxe.jsonl.xz"), ())
    assert written.notes[0].startswith(doubt)
    assert "of the reporter's own tables for rdma-cts found" in spaced(written.text)
    assert doubt in summary(own, tmp_path)
    assert f"note: {doubt}" in "\n".join(of_defect(shown, own, False))
    ours = replace(run, results=(defect.first.record,), confirmations=())
    (shown,) = ours.violations.defects
    written = mail(shown.symptoms, ours, SUITE, basis_of(ROOT / "docs/runs/rxe.jsonl.xz"), ())
    texts = (*written.notes, written.text, summary(ours, tmp_path), *of_defect(shown, ours, False))
    assert not any("not of the suite" in text or "own tables" in text for text in texts)
