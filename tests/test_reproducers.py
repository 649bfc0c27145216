"""Tests of C programs of cases: which cases have a program, its form, its compilation, and the command that writes it."""

import os
import re
import shutil
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from commands.__main__ import main
from conformance.defects import symptoms_of
from conformance.older_python import zip
from conformance.tables.suite import ROOT
from launched import ended
from programs import ADVICE, DEFECT, FORKY, ROWS, SUITE, WRITE, forky, programs, spaced, text_of
from reports.reproducers.layout import WIDTH
from reports.reproducers.of_runs import (
    basis_of,
    cut,
    programs_of,
    reproducer,
    unknown_device,
)
from reports.reproducers.program import MOST_LINES, file_name
from reports.reproducers.writer import Inexpressible
from samples import result


def test_programs_have_a_limited_size_and_include_no_header_of_the_suite():
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
        assert not re.search(r"CHECK\(\s*1,", program.text), f"{id_} has a check that cannot fail"


def test_programs_compile_without_a_warning(tmp_path):
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


def test_a_program_that_finds_no_device_exits_with_status_2(tmp_path):
    (tmp_path / "repro.c").write_text(text_of(WRITE))
    built = ended("cc", "repro.c", "-libverbs", cwd=tmp_path)
    assert (built.returncode, built.stderr) == (0, "")
    done = ended("./a.out", "no-such-device", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "a.out: there is no RDMA device no-such-device\n"


@pytest.mark.parametrize(
    "id_, has, lacks",
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
def test_the_program_makes_the_calls_of_the_case_at_its_entry(id_, has, lacks):
    text = spaced(text_of(id_))
    assert [part for part in has if part not in text] == []
    assert lacks not in text


def test_a_program_keeps_only_the_steps_up_to_the_violation():
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


def test_a_program_uses_an_object_no_more_that_the_device_should_not_have_released():
    programs_made, _ = programs()
    guarded = {id_: one for id_, one in programs_made.items() if "_gone)" in one.text}
    assert "dereg_mr/bound_windows/type-1" in guarded
    for id_, program in guarded.items():
        for name in re.findall(r"if \((\w+)_gone\)", program.text):
            # the error of this object's release, and not that of a later call
            assert re.search(
                rf"error = \w+_(?:dereg_mr|dealloc_mw)\({name}\);(?:(?!error = )[^§])*\b{name}_gone = !error;",
                program.text,
            ), id_


def test_the_program_of_a_case_with_a_wire_peer_says_that_it_has_none():
    said = "this program posts them to a second queue pair of the device"
    name = "bind_mw/type_1/part-from-buf"
    for id_, is_carried in ((name, False), (f"{name}@wire", True)):
        assert (said in re.sub(r"\s+\*?\s*", " ", text_of(id_))) == is_carried


def test_the_program_of_a_kernel_warning_mentions_the_kernels_log():
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


def test_a_precondition_of_a_row_is_told_by_its_meaning():
    row = next(case for case in SUITE.cases if case.needs == ("rereg_absent",))
    with pytest.raises(
        Inexpressible, match="cannot check: the provider does not have ibv_rereg_mr"
    ):
        reproducer(row.id, SUITE, unknown_device())


def test_a_point_is_expressed_and_a_sweep_is_not():
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


def test_a_call_on_which_the_check_depends_is_a_part_of_the_set_up():
    """The row leaves open whether the second bind succeeds, but without it the check would find another defect."""
    point = "before=longer,first=everything,then=nothing,op=RDMA_WRITE,place=first"
    name = f"bind_mw/bound_anew/type-1-rights-and-range#{point}"
    said = spaced(reproducer(name, SUITE, unknown_device()).text)
    second = said.partition("int error = ibv_bind_mw(qp[0], mw, &bind1);")[2]
    answer = 'printf("ibv_bind_mw: returned %d, completed with %d, %s\\n", error, status, '
    decided = "ibv_wc_status_str(status)); SET_UP(!error && status == IBV_WC_SUCCESS); area = buf"
    assert answer + decided in second


def test_most_violations_of_a_recorded_run_are_expressed():
    programs_made = list(programs_of(forky().results, SUITE, basis_of(FORKY)))
    expressed = [program for program in programs_made if program.program]
    assert len(expressed) >= 0.9 * len(programs_made), Counter(
        program.why_not for program in programs_made
    )
    names = [file_name(program.symptom.name) for program in expressed]
    assert all(re.fullmatch(r"[A-Za-z0-9-]+\.c", name) for name in names)


def test_the_command_writes_a_program_a_mail_and_all_programs(tmp_path, monkeypatch, capsys, cli):
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


def test_all_programs_replace_no_file_of_the_user_and_say_how_many_they_replace(tmp_path, cli):
    words = ("reproducer", "--all", "--run", FORKY, "--out", tmp_path / "all")
    assert "(replaces" not in cli(0, *words).out + cli(0, *words).out
    first, second, *_ = sorted((tmp_path / "all").glob("*.c"))
    first.write_text(f"{first.read_text()}// mine")
    assert cli(0, *words).out.endswith("(replaces 1 file of a different content)\n")
    assert "// mine" not in first.read_text()
    first.unlink()
    second.write_text("int main(void) {}\n")
    said = cli(2, *words).err
    assert f"{second} is a file that this command has not written" in said
    assert said.endswith("; give another directory to --out, or remove it\n")
    assert not first.exists()
    assert second.read_text() == "int main(void) {}\n"


def test_a_defect_is_reproduced_by_a_case_that_the_tables_still_have(tmp_path, capsys):
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


def test_a_row_of_packets_has_a_program_and_a_script_of_the_peer():
    name = "wire/repeated/foreign-region-by-flush-and-a-repeated-read"
    program = reproducer(name, SUITE, unknown_device())
    assert program.lines <= MOST_LINES
    compile(program.script, "script", "exec")
    imported = re.findall(r"^(?:import|from) (\w+)", program.script, re.MULTILINE)
    assert set(imported) <= sys.stdlib_module_names
    sent = re.findall(r'^op\("(\w+)"', program.script, re.MULTILINE)
    assert sent == ["RDMA_READ_REQUEST", "FLUSH", "RDMA_READ_REQUEST"]


def test_a_program_of_packets_and_its_script_say_how_they_are_started(tmp_path, cli):
    case = "wire/invalidation/twice"
    said = cli(0, "reproducer", case, "--out", tmp_path / "shown.c").out
    script = tmp_path / "shown.py"
    assert said.rstrip().endswith(
        f" && python3 {script} OWN_ADDRESS ssh root@NODE ./a.out DEVICE OWN_ADDRESS"
    )
    assert "its script starts ./a.out DEVICE ADDRESS" in spaced((tmp_path / "shown.c").read_text())
    for missing in ((), ("127.0.0.1",)):
        bare = ended(sys.executable, str(script), *missing)
        assert bare.returncode == 2
        assert "usage: python3 THIS_FILE OWN_ADDRESS PROGRAM" in bare.stderr
        assert "Traceback" not in bare.stderr
    assert ended("cc", "shown.c", "-o", "shown", "-libverbs", cwd=tmp_path).returncode == 0
    program = str(tmp_path / "shown")
    for arguments, says in (
        ((), f"usage: {program} DEVICE ADDRESS, where the script is at ADDRESS"),
        (("nowhere0", "127.0.0.1"), "there is no RDMA device nowhere0"),
    ):
        bare = ended(program, *arguments)
        assert bare.returncode == 2
        assert bare.stderr == f"shown: {says}\n"


def test_the_script_of_a_device_that_asks_answers_its_request():
    script = reproducer(
        "wire/requester/atomic-answered-by-acknowledge", SUITE, unknown_device()
    ).script
    exchange = script.partition("# The exchange.\n")[2].splitlines()
    assert [line.partition("(")[0] for line in exchange] == [
        *("device_step", "sends", "reply", "device_step", "finish"),
    ]
    assert 'sends("FETCH_ADD", rkey=77, swap=1, va=4096)' in exchange


@pytest.mark.parametrize(
    "row, device, status, said",
    [
        ("write-of-the-last-bytes", "right", 0, "kept: RDMA_WRITE should get ACK, got ACK"),
        ("write-at-the-end", "right", 0, "got DDP_BASE_BOUNDS\nkept: the state should get ERR"),
        ("write-at-the-end", "wrong", 1, "got ACK\nVIOLATED: the state should get ERR, got RTS"),
    ],
)
def test_the_script_of_a_row_of_segments_judges_what_a_device_does(
    row, device, status, said, tmp_path
):
    script = tmp_path / "repro.py"
    script.write_text(reproducer(f"wire/stream_ranges/{row}", SUITE, unknown_device()).script)
    program = (sys.executable, str(Path(__file__).with_name("stream_device.py")), device)
    done = ended(
        sys.executable,
        str(script),
        "127.0.0.1",
        *program,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "."},
    )
    assert said in done.stdout, done.stderr
    assert done.returncode == status
    assert ("8 bytes of buf are not as expected" in done.stdout) == (device == "wrong")


def test_most_rows_of_packets_have_a_script_that_waits_as_often_as_its_program():
    names = [case.id for case in SUITE.cases if case.verb == "wire"]
    scripts = 0
    for name in names:
        with suppress(Inexpressible):
            program = reproducer(name, SUITE, unknown_device())
            compile(program.script, name, "exec")
            exchange = program.script.partition("# The exchange.")[2]
            steps = exchange.count("turn()") + exchange.count("device_step(")
            # Also before the exchange, at its end, for each memory that is printed, and to accept a stream.
            memories = program.text.rpartition('puts("done')[2].partition('"')[0].split()
            around = 2 + len(memories) + name.startswith("wire/stream_")
            assert program.text.count("    turn();") == steps + around, name
            scripts += 1
    # The others need IPv6, datagrams, packets of XRC, a requester that sends again, requests of builders, a reset, the IP
    # headers or the MSN of packets, or two streams.
    assert scripts >= 0.75 * len(names)
