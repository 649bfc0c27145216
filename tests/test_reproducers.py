"""Tests of C programs of cases: which cases have a program, its form, its compilation, mails, the page of findings."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from commands.__main__ import main
from conformance.defects import answering_of, symptoms_of
from conformance.defects.symptom import Symptom
from conformance.model.fault import Effect
from conformance.model.kind import Kind
from conformance.older_python import zip
from conformance.results.records import Recorded
from conformance.tables.suite import ROOT, load_suite
from kinds import Cli, Patch, Says
from launched import ended
from reports.digest import Digest, digest, read
from reports.reproducers.layout import WIDTH
from reports.reproducers.mail import WIDTH as MAIL_WIDTH
from reports.reproducers.mail import mail
from reports.reproducers.of_runs import (
    basis_of,
    cut,
    programs_of,
    reproducer,
    unknown_device,
)
from reports.reproducers.program import MOST_LINES, Program, file_name
from reports.reproducers.writer import Inexpressible
from samples import changed, laid, result, written_records
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

SUITE = load_suite()
RECORDED = Path(__file__).with_name("recorded_violations")
ROWS = [case for case in SUITE.cases if case.kind is Kind.ROW]
ADVICE = "advise_mr/codes/invalid-pd@libibverbs"
DEFECT = "6c8e18b350a5"  # bind_mw/invalidation/local-inv-twice has it
FORKY = RECORDED / "forky.jsonl"
DEADLY = "reg_mr_iova/on_demand/every-byte-at-buf-+-7-pages-+-104"
WRITE = "reg_mr/on_demand/rdma-write-at-buf-+-100"


@cache
def programs() -> tuple[dict[str, Program], Counter[str]]:
    """Returns the programs by the ids of their rows, and counts the reasons why the other rows have no program."""
    programs_made, reasons = {}, Counter[str]()
    for case in ROWS:
        try:
            programs_made[case.id] = reproducer(case.id, SUITE, unknown_device())
        except Inexpressible as reason:
            reasons[str(reason)] += 1
    return programs_made, reasons


@cache
def forky() -> Digest:
    return read(FORKY)


def records() -> list[dict[str, Any]]:
    return [json.loads(line) for line in FORKY.read_text().splitlines()]


def symptom_named(name: str) -> Symptom:
    return next(
        symptom
        for defect in forky().violations.defects
        for symptom in defect.symptoms
        if symptom.name == name
    )


def text_of(id_: str) -> str:
    return programs()[0][id_].text


def mail_of(symptom: Symptom, *others: Digest) -> str:
    return mail([symptom], forky(), SUITE, basis_of(FORKY), others)


def spaced(text: str) -> str:
    return " ".join(text.split())


def page_of(folder: Path, *arguments: object) -> str:
    assert main(["findings", *map(str, arguments), "--out", str(folder)]) == 0
    return (folder / "findings.md").read_text()


def test_programs_have_a_limited_size_and_include_no_header_of_the_suite() -> None:
    programs_made, reasons = programs()
    assert len(programs_made) >= 450, reasons.most_common(5)
    for id_, program in programs_made.items():
        lines = program.text.splitlines()
        assert len(lines) <= MOST_LINES, id_
        assert max(map(len, lines)) <= WIDTH, (id_, max(lines, key=len))
        headers = set(re.findall(r"^#include (.*)$", program.text, re.MULTILINE))
        assert not any(header.startswith('"') for header in headers)
        assert "<infiniband/verbs.h>" in headers
        assert id_ in program.text.replace("\n * ", "")


def test_programs_compile_without_a_warning(tmp_path: Path) -> None:
    """Compiles a subset of the programs. For helpers, verbs or opcodes A and B: if any program uses A and B, one of the
    subset does too; if any program uses A without B, one of the subset does too."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "the project's tests need gcc"
    header = Path("/usr/include/infiniband/verbs.h").read_text()
    recorded = programs_of(forky().results, SUITE, basis_of(FORKY))
    texts_here = {
        program.program.text
        for program in recorded
        if program.program and program.symptom.deviation
    }
    texts = sorted(
        texts_here | {program.text for program in programs()[0].values()},
        key=lambda text: (-len(text), text),
    )
    # these programs must compile with headers that lack wr_flush
    assert any("wr_flush" in text for text in texts)
    word = re.compile(
        r"\b(?:static \w[\w ]*\**(\w+)\(|(ibv_\w+|uverbs_\w+)\(|(IBV_WR_\w+|IBV_\w*FLUSH\w*)\b)",
    )
    words = {text: set(map("".join, word.findall(text))) for text in texts}
    every = set().union(*words.values())
    seen: set[tuple[str, str, bool]] = set()
    for number, text in enumerate(texts):
        pairs = {(name, other, other in words[text]) for name in words[text] for other in every}
        if not pairs <= seen:
            seen |= pairs
            (tmp_path / f"p{number}.c").write_text(text)
    flags = ["-fsyntax-only", "-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Werror"]
    if "ibv_reg_mr_ex" not in header:
        flags += ["-include", str(Path(__file__).with_name("newer_verbs.h"))]
    done = ended(compiler, *flags, *sorted(map(str, tmp_path.glob("*.c"))))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_program_that_finds_no_device_exits_with_status_2(tmp_path: Path) -> None:
    (tmp_path / "repro.c").write_text(text_of(WRITE))
    built = ended("cc", "repro.c", "-libverbs", cwd=tmp_path)
    assert (built.returncode, built.stderr) == (0, "")
    done = ended("./a.out", "no-such-device", cwd=tmp_path)
    assert done.returncode == 2
    assert "a.out: failed: all && *all" in done.stderr


@pytest.mark.parametrize(
    ("id_", "has", "lacks"),
    [
        (
            ADVICE,
            [
                "struct ibv_mr *odp = ibv_reg_mr(pd, buf, buf_size, IBV_ACCESS_ON_DEMAND",
                "pd->handle = 0xfffffff0;",
                "int error = ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, list, 1);",
                "CHECK(error == EINVAL,",
            ],
            "RDMA_VERBS_IOCTL",
        ),
        ("advise_mr/codes/invalid-pd@uverbs", ["RDMA_VERBS_IOCTL"], "ibv_advise_mr(pd"),
        (
            "reg_mr_iova/translation/none-registers@uverbs",
            ["IB_USER_VERBS_CMD_REG_MR"],
            "ibv_reg_mr_iova(pd",
        ),
        (
            WRITE,
            [
                "if (!(device.odp_caps.per_transport_caps.rc_odp_caps & IBV_ODP_SUPPORT_WRITE))",
                "errx(77, ",
            ],
            "RDMA_VERBS_IOCTL",
        ),
    ],
)
def test_the_program_makes_the_calls_of_the_case_at_its_entry(
    id_: str,
    has: list[str],
    lacks: str,
) -> None:
    text = spaced(text_of(id_))
    assert [part for part in has if part not in text] == []
    assert lacks not in text


def test_a_program_keeps_only_the_steps_up_to_the_violation() -> None:
    case = next(
        row
        for row in ROWS
        if len(row.afterwards) > 2
        and row.when.then.outcome == "success"
        and row.when.call == "ibv_bind_mw"
    )
    bound = {
        "rc": 0,
        "returned": "0",
        "errno": "",
        "wc": ["SUCCESS"],
        "rkey": {"before": 1, "after": 2},
    }
    refused = {**bound, "wc": ["WR_FLUSH_ERR"]}
    assert cut(case, refused).afterwards == ()
    assert cut(case, {"setup_failed": "no"}) == case
    completed = {"rc": 0, "returned": "0", "errno": "", "wc": ["REM_ACCESS_ERR"]}
    wrong = {**completed, "moved": "nothing", "changed": [], "qp_type": "RC", "side": "remote"}
    first = next(
        step
        for step in case.afterwards
        if step.call == "traffic" and step.then.outcome == "success"
    )
    number = case.afterwards.index(first)
    seen = [wrong] * (number + 1)
    steps = cut(case, {**bound, "afterwards": seen}).afterwards
    assert steps[-1] is first
    assert len(steps) <= number + 1


def test_the_program_of_a_kernel_warning_mentions_the_kernels_log() -> None:
    deallocated = [row for row in ROWS if row.when.call == "ibv_dealloc_mw" and not row.before]
    case = next(program for program in deallocated if program.when.then.outcome == "success")
    record = result(
        case,
        "FAIL",
        observed={"rc": 0, "returned": "0", "errno": ""},
        call="ibv_dealloc_mw(mw=mw)",
        fault={
            "kind": "kernel-tainted",
            "verb": "ibv_dealloc_mw",
            "expected": ["0"],
            "seen": ["512"],
        },
    )
    [symptom] = symptoms_of(record)
    text = reproducer(case.id, SUITE, unknown_device(), symptom).text
    assert "warning in the kernel's log" in re.sub(r"\s+\*?\s*", " ", text)
    assert "kernel's log" not in reproducer(case.id, SUITE, unknown_device()).text


def test_a_point_is_expressed_and_a_sweep_is_not() -> None:
    sweep = next(
        case
        for case in SUITE.cases
        if case.sweep and case.id.startswith("reg_mr/access_space/every")
    )
    assert (
        "ibv_reg_mr(pd, buf, buf_size, 0)"
        in reproducer(f"{sweep.id}#access=none", SUITE, unknown_device()).text
    )
    with pytest.raises(Inexpressible, match="name one of its points"):
        reproducer(sweep.id, SUITE, unknown_device())


def test_most_violations_of_a_recorded_run_are_expressed() -> None:
    programs_made = list(programs_of(forky().results, SUITE, basis_of(FORKY)))
    expressed = [program for program in programs_made if program.program]
    assert len(expressed) >= 0.9 * len(programs_made), Counter(
        program.why_not for program in programs_made
    )
    names = [file_name(program.symptom.name) for program in expressed]
    assert all(re.fullmatch(r"[A-Za-z0-9-]+\.c", name) for name in names)


def test_a_mail_has_every_part_in_72_columns() -> None:
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
    ("layer", "part"),
    [("device", "rxe"), ("provider", "rdma-core, providers/rxe"), ("kernel core", "RDMA/core")],
)
def test_the_subject_of_a_mail_names_the_part_of_the_stack(layer: str, part: str) -> None:
    symptom = next(
        defect.symptoms[0]
        for defect in forky().violations.defects
        if answering_of(defect.symptoms[0]).layer == layer
    )
    text = mail_of(symptom)
    assert text.startswith(f"Subject: {part}: ")


def test_a_mail_has_the_kernels_messages_unchanged_and_the_function_that_crashed() -> None:
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


def test_a_mail_about_a_process_that_died_has_no_frame_of_this_suite() -> None:
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


def test_the_command_writes_a_program_a_mail_and_all_programs(
    tmp_path: Path,
    monkeypatch: Patch,
    capsys: Says,
    cli: Cli,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "repro.c: " in cli(0, "reproducer", ADVICE).out
    assert "; cc 'of mine.c' -libverbs" in cli(0, "reproducer", ADVICE, "--out", "of mine.c").out
    assert (tmp_path / "repro.c").read_text() == text_of(ADVICE)
    assert "repro.c: " in cli(0, "reproducer", ADVICE).out
    assert (
        "repro.c exists, and its content differs; give --out FILE"
        in cli(2, "reproducer", WRITE).err
    )
    assert (tmp_path / "repro.c").read_text() == text_of(ADVICE)
    assert "repro.c: " in cli(0, "reproducer", WRITE, "--out", "repro.c").out
    run = str(FORKY)
    defect = next(defect for defect in forky().violations.defects if WRITE in defect.cases)
    assert cli(0, "reproducer", defect.fingerprint.upper(), "--run", run, "--mail").out.startswith(
        "Subject: rxe: ",
    )
    assert main(["reproducer", "--all", "--run", run, "--out", "all"]) == 0
    count = len(list((tmp_path / "all").glob("*.c")))
    assert f"{count} of " in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize(
    ("digits", "shown"),
    [
        ("34c7", "reg_mr/rights/remote-read-refused-by-none"),  # not by its first case
        ("85a6", ""),  # needs list_traffic
        ("86c7", ""),  # points of a model
    ],
)
def test_every_defect_has_a_mail_and_a_program_if_one_of_its_cases_has_one(
    digits: str, shown: str, tmp_path: Path, cli: Cli
) -> None:
    run = ("--run", ROOT / "docs/runs/siw.jsonl.xz")
    said = cli(0 if shown else 2, "reproducer", digits, *run, "--out", tmp_path / "shown.c")
    text = cli(0, "reproducer", digits, *run, "--mail").out
    if shown:
        assert f" lines that show {shown}; cc " in said.out
        assert (tmp_path / "shown.c").read_text().partition("*/")[2]
    else:
        assert said.err.endswith("; --mail writes a report without a program\n")
        assert "This command repeats it: ./rdma-cts run " in spaced(text)
    assert ("int main(" in text) == bool(shown)
    title, _, body = text.removeprefix("Subject: ").partition("\n\n")
    assert spaced(body).startswith(spaced(title).partition(": ")[2] + ".")


def test_a_defect_is_reproduced_by_a_case_that_the_tables_still_have(
    tmp_path: Path,
    capsys: Says,
) -> None:
    symptoms = next(
        defect for defect in forky().violations.defects if defect.fingerprint == DEFECT
    ).symptoms
    cases = dict.fromkeys(symptom.case for symptom in symptoms)
    text, old = FORKY.read_text(), tmp_path / "results.jsonl"
    for remaining, case in zip(range(len(cases) - 1, -1, -1), cases, strict=True):
        text = text.replace(f'"{case}"', f'"{case}-of-old"')
        old.write_text(text)
        out = tmp_path / f"{remaining}.c"
        assert main(["reproducer", DEFECT, "--run", str(old), "--out", str(out)]) == (
            0 if remaining else 2
        )
        assert out.exists() == bool(remaining)
    assert (
        f"{old} was made with other tables; the present tables have no case '"
        in capsys.readouterr().err
    )


def test_a_mail_distinguishes_builds_of_the_same_versions(tmp_path: Path, cli: Cli) -> None:
    built, *later = records()
    built["under_test"]["given"]["linux"] = {"sha256": "e4" * 32}
    built["under_test"]["modules"]["rdma_rxe"]["build_id"] = "ce" * 20
    mine = written_records([built, *later], tmp_path)
    said = spaced(cli(0, "reproducer", DEFECT, "--run", mine, "--mail", "--others", FORKY).out)
    assert "rdma-core 65.0 (the stack under test was changed: linux e4e4e4e4). " in said
    assert "rdma-core 65.0, with modules.rdma_rxe.build_id a6d6b4de9dc2: has the defect" in said


@pytest.mark.parametrize(
    ("verdict", "says"),
    [
        ("PASS", "does not have the defect (the case is PASS)"),
        ("UNSUPPORTED", "leaves the defect undecided (the case is UNSUPPORTED)"),
        ("MISSED", "was not tested for the defect"),
    ],
)
def test_a_mail_describes_another_stack_by_the_verdict_of_its_run(
    tmp_path: Path,
    verdict: str,
    says: str,
) -> None:
    symptom, run = symptom_named(WRITE), forky()
    head = changed(run.header, {"device": {**run.header["device"], "driver": "siw"}})
    case = next(row for row in ROWS if row.id == symptom.case)
    other = digest(Recorded(head, [result(case, verdict)], None).shown(), tmp_path)
    said = spaced(mail_of(symptom, other))
    assert f"- siw, kernel 7.2.12+deb14-amd64, rdma-core 65.0: {says}" in said
    assert "- rxe, kernel 7.2.12+deb14-amd64, rdma-core 65.0: has the defect" in said


def test_the_page_of_findings_has_each_defect_with_its_stacks_and_its_program(
    tmp_path: Path,
) -> None:
    fingerprint = forky().violations.defects[0].fingerprint
    places = f"{fingerprint}: rxe_mw.c, rxe_invalidate_mw\n"
    laid(tmp_path / "findings", {"old.c": "stale\n", "places.yaml": places})
    trixie = RECORDED / "trixie.jsonl"
    page = page_of(tmp_path, FORKY, trixie, "--programs")
    fingerprints = {
        defect.fingerprint
        for defect in (*forky().violations.defects, *read(trixie).violations.defects)
    }
    assert page.count("\n- fingerprint: `") == len(fingerprints)
    assert "- where: rxe_mw.c, rxe_invalidate_mw" in page
    linked = set(re.findall(r"\(findings/([^)]+\.c)\)", page))
    assert linked == {path.name for path in (tmp_path / "findings").glob("*.c")}
    twice = page_of(tmp_path / "twice", trixie, FORKY, FORKY)
    assert not re.search(r"seen on: [^\n]*forky[^\n]*forky", twice)
    assert "linked programs" not in twice
    assert "; not tried on: trixie" in page  # the recording has only the violations of the run
    assert "; not on: " not in page


@pytest.mark.parametrize(("verdict", "says"), [("PASS", "not on"), ("UNSUPPORTED", "not tried on")])
def test_the_page_of_findings_names_the_stacks_without_the_defect(
    tmp_path: Path,
    verdict: str,
    says: str,
) -> None:
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
    page = page_of(tmp_path, FORKY, written_records([head, *passing], tmp_path / "sid"))
    assert re.search(rf"- seen on: forky \(\d+ results\); {says}: sid\n- rules: BIND", page)
    assert {says} == set(re.findall("; (not.* on): ", page))


def test_unconfirmed_violations_are_not_findings(tmp_path: Path) -> None:
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
    page = page_of(tmp_path, written_records([*lines, alone, footer], tmp_path / "forky"))
    assert page.count("\n- fingerprint: `") == len(forky().violations.defects) - 1
    assert f"`{defect.fingerprint}`" not in page


def test_the_programs_of_the_documented_findings_are_up_to_date(tmp_path: Path) -> None:
    """The programs of three findings are in docs/; without --programs, the command rewrites only existing programs."""
    documented = {path.name: path.read_text() for path in (ROOT / "docs" / "findings").glob("*.c")}
    assert len(documented) == 3
    laid(tmp_path / "findings", dict.fromkeys(documented, ""))
    page_of(tmp_path, FORKY)
    assert {
        path.name: path.read_text() for path in (tmp_path / "findings").glob("*.c")
    } == documented
    page_of(tmp_path, FORKY, "--programs")
    assert len(list((tmp_path / "findings").glob("*.c"))) > 10


def test_places_that_are_not_a_mapping_of_texts_are_refused(tmp_path: Path, cli: Cli) -> None:
    laid(tmp_path / "findings", {"places.yaml": "- a list\n"})
    assert (
        "expected a mapping from fingerprints to texts"
        in cli(2, "findings", FORKY, "--out", tmp_path).err
    )


@pytest.mark.parametrize(
    ("verdict", "end", "outcome"),
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
def test_the_exit_of_a_program_is_compared_with_the_verdict_of_the_run(
    verdict: str,
    end: int | str,
    outcome: str,
) -> None:
    assert _finding(Trying("a/b/c", verdict, None), end, "last\n\n").outcome == outcome


def test_a_trial_passes_if_95_of_100_violations_are_reproduced() -> None:
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
def test_programs_have_the_results_of_the_run_in_the_guest(tmp_path: Path) -> None:
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


def test_a_row_of_packets_has_a_program_and_a_script_of_the_peer() -> None:
    name = "wire/repeated/foreign-region-by-flush-and-a-repeated-read"
    program = reproducer(name, SUITE, unknown_device())
    assert program.lines <= MOST_LINES
    compile(program.script, "script", "exec")
    imported = re.findall(r"^(?:import|from) (\w+)", program.script, re.MULTILINE)
    assert set(imported) <= sys.stdlib_module_names
    sent = re.findall(r'^op\("(\w+)"', program.script, re.MULTILINE)
    assert sent == ["RDMA_READ_REQUEST", "FLUSH", "RDMA_READ_REQUEST"]


def test_the_script_of_a_device_that_asks_answers_its_request() -> None:
    script = reproducer(
        "wire/requester/atomic-answered-by-acknowledge", SUITE, unknown_device()
    ).script
    exchange = script.partition("# The exchange.\n")[2].splitlines()
    assert [line.partition("(")[0] for line in exchange] == [
        *("device_step", "sends", "reply", "device_step", "finish"),
    ]
    assert 'sends("FETCH_ADD", rkey=77, swap=1, va=4096)' in exchange


def test_most_rows_of_packets_have_a_script_that_waits_as_often_as_its_program() -> None:
    of_packets = (case.id for case in SUITE.cases if case.verb == "wire")
    names = [name for name in of_packets if not name.startswith("wire/stream_")]
    scripts = 0
    for name in names:
        with suppress(Inexpressible):
            program = reproducer(name, SUITE, unknown_device())
            compile(program.script, name, "exec")
            exchange = program.script.partition("# The exchange.")[2]
            steps = exchange.count("turn()") + exchange.count("device_step(")
            # Also before the exchange, at its end, and for each of the two memories.
            assert program.text.count("    turn();") == steps + 4, name
            scripts += 1
    assert scripts >= 0.9 * len(names)
