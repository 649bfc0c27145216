"""Tests of `rdma-cts explain`, `list verbs` and `list completion`, of the set-up of a case in results and reports, and of the
search for an earlier run with a defect or a case."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

import pytest

from commands.cli import run_arguments
from commands.cli.catalogue import COMMANDS
from conformance.errors import UserError
from conformance.judging.combinations import Judged
from conformance.model.combinations import Conditions
from conformance.model.kind import Kind
from conformance.model.set_up import set_up_of
from conformance.results.records import read_written
from conformance.run_options import RunOptions
from conformance.tables.suite import ROOT, load_suite
from conformance.verbs import VERBS
from kinds import Cli, Folders, Patch, rows
from launched import ended
from made_history import SUITE as EIGHT
from made_history import run_of, write_run
from recorded_reference import record
from reports.digest import read
from reports.earlier import run_about, with_earlier
from reports.explanations import MOST_CASES
from reports.terminal import summary
from samples import laid
from trial.catalogue import named
from trial.reference.device import Device
from trial.reference.stack import without

Shown = Callable[..., str]


@pytest.fixture
def shown(cli: Cli) -> Shown:
    """Runs `explain` with these arguments; returns its output."""
    return lambda *arguments: cli(0, "explain", *arguments).out


def test_each_verb_is_listed_in_a_line(cli):
    lines = cli(0, "list", "verbs").out.splitlines()
    assert [line.split()[0] for line in lines] == list(VERBS)
    assert lines[0].endswith(VERBS["ibv_reg_mr"].summary)


@pytest.mark.parametrize("name", VERBS)
def test_a_description_has_every_statement_and_fits_into_100_columns(name, shown):
    text = shown(name)
    assert max(map(len, text.splitlines())) <= 100
    verb, flat = VERBS[name], " ".join(text.split())
    statements = [
        verb.signature,
        verb.summary,
        verb.document,
        verb.success,
        verb.failure,
        *verb.notes,
        *verb.discrepancies,
        *(parameter.meaning for parameter in verb.parameters),
        *(cause for code in verb.return_codes for cause in code.causes),
    ]
    assert [statement for statement in statements if statement not in flat] == []


def test_the_prefix_may_be_left_out(shown):
    assert shown("reg_mr") == shown("ibv_reg_mr")


def test_the_other_dialect_is_mentioned_and_is_described_with_its_option(shown, cli):
    mainline, experimental = (
        shown("ibv_rereg_mr"),
        shown("ibv_rereg_mr", "--dialect", "experimental"),
    )
    assert "--dialect experimental" in mainline
    assert "ibv_rereg_mr_attr" not in mainline
    assert "struct ibv_rereg_mr_attr *attr" in experimental
    assert "--dialect mainline" in experimental
    assert ["IBV_ACCESS_ALLOCATE_MR", "?"] in [
        line.split()[:2] for line in experimental.splitlines()
    ]
    assert "ialect" not in shown("ibv_reg_mr")
    assert cli(0, "list", "verbs", "--dialect", "experimental").out.split()[0] == "ibv_rereg_mr"


def test_structs_behind_pointers_are_not_printed(shown):
    assert "struct ibv_device:" not in shown("ibv_reg_mr")
    assert "struct ibv_mw_bind_info:" in shown("ibv_bind_mw")


SUITE = load_suite()
CASE = next(case for case in SUITE.cases if "REG-15" in case.rules and case.kind is Kind.ROW)


def explained(cli: Cli, *arguments: object) -> str:
    return " ".join(cli(0, "explain", *arguments).out.split())


def test_every_rule_has_its_source_its_cases_and_what_a_failure_means(cli, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_arguments, "load_suite", lambda *_: SUITE)
    for rule in SUITE.registry.values():
        said = explained(cli, rule.id)
        for text in (
            rule.statement,
            rule.document,
            rule.section,
            rule.quote or rule.unquoted,
            rule.failure_means,
        ):
            assert " ".join(text.split()) in said
        count = sum(rule.id in case.rules for case in SUITE.cases)
        assert (
            f"{count:,} cases test this rule:" if count > 1 else "1 case tests this rule:"
        ) in said


def test_the_last_verdict_is_that_of_the_newest_run(tmp_path, cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    record(tmp_path / "out" / "first", SUITE, [CASE], Device(without("odp")))
    assert "Last verdict: PARTIAL" in explained(cli, "reg-15")
    newest = record(tmp_path / "out" / "second", SUITE, [SUITE.cases[0]])
    said = explained(cli, "REG-15")
    assert "Last verdict: not run (reference, host, kernel 7.2.0; " in said
    assert f"; {read(newest).environment.when}; out/{newest.name})" in said


def test_a_case_has_its_call_its_rules_and_its_observation(tmp_path, cli):
    run = record(tmp_path / "run", SUITE, [CASE])
    said = explained(cli, CASE.id, "--run", run)
    for text in (
        str(CASE.when),
        "expect: outcome refused",
        "REG-15",
        "If it fails:",
        "observed:",
        "errno EINVAL",
    ):
        assert text in said


def test_a_case_of_other_tables_is_explained_only_with_the_option_cases(tmp_path, cli):
    ours = record(tmp_path / "run", SUITE, [CASE])
    path = ours / "results.jsonl"
    path.write_text(
        path.read_text().replace(CASE.id, "reg_mr/mine/own").replace(SUITE.tables_sha256, "0" * 64),
    )
    said = cli(2, "explain", "reg_mr/mine/own", "--run", ours).err
    assert said == (
        "rdma-cts: the run has the case 'reg_mr/mine/own', but the suite's tables do not; "
        "--cases DIR names the folder of its table\n"
    )


@pytest.mark.parametrize("entry", ["@uverbs", "@libibverbs"])
def test_a_retired_case_has_its_reason_and_its_recorded_verdict(entry, cli, tmp_path):
    case = f"rereg_mr/revocation/shorter-translation{entry}"
    ours = record(tmp_path / "ours", SUITE, [CASE])
    path = ours / "results.jsonl"
    path.write_text(path.read_text().replace(CASE.id, case).replace(SUITE.tables_sha256, "0" * 64))
    said = explained(cli, case, "--run", ours)
    assert said.startswith(f"{case} retired at cases/rereg_mr/revocation.yaml:")
    assert "points of access/changes/slice with a new range replace it" in said
    assert "Last verdict: " in said
    assert "rdma-cts run" not in said  # the case can no longer be run
    other = record(tmp_path / "run", SUITE, [CASE])
    assert "Last verdict" not in explained(cli, case, "--run", other)


@pytest.mark.parametrize("line, offered", rows("completions"))
def test_bash_offers_the_words_that_fit(line, offered, cli):
    script = cli(0, "list", "completion", "bash").out
    words = line.split(" ")
    ask = (
        f"COMP_WORDS=({' '.join(words[:-1])} '{words[-1]}'); COMP_CWORD={len(words) - 1}; _rdma_cts"
    )
    text = f'{script}\n{ask}; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = ended("bash", "-uc", text, check=True)
    words_here = [word for word in done.stdout.splitlines() if word not in ("", "/etc/passwd-")]
    assert (words_here, done.stderr) == (offered.split(), "")


@pytest.mark.parametrize(
    "shell, sign",
    [("zsh", "#compdef rdma-cts\n"), ("fish", "complete -c rdma-cts")],
)
def test_other_shells_know_all_commands(shell, sign, cli):
    script = cli(0, "list", "completion", shell).out
    assert sign in script
    assert all(f"{name} " in script for name in COMMANDS)


# The set-up of a case with its violation, in results, in every report, and by `explain`

ROW = "bind_mw/type_1/byte-before-the-window"
SWEEP = "bind_mw/data_path/type-1-operation-by-access-by-place"
POINT = "op=RDMA_WRITE,access=write,place=before"
GIVEN = "mr: ibv_reg_mr(pd=pd, addr=buf.addr, length=buf.size, access=LOCAL_WRITE|REMOTE_WRITE|REMOTE_READ|MW_BIND)"


def test_every_case_and_its_first_point_have_a_set_up_of_printable_lines():
    for case in SUITE.cases:
        if case.kind is Kind.SWEEP:
            continue
        set_up = set_up_of(case)
        assert len(set_up["before"]) == len(case.before)
        assert all(line.isprintable() for line in (*set_up["given"], *set_up["before"]))
        names = {line.partition(":")[0] for line in set_up["given"]}
        assert {
            *case.given.memory,
            *case.given.mrs,
            *case.given.windows,
            *case.given.qps,
            *case.given.pds,
        } <= names


@pytest.fixture(scope="module")
def run(tmp_path_factory: Folders) -> Path:
    """A run on a device whose windows grant access to the whole region: a row and a sweep fail, and a row passes."""
    cases = [
        case for case in SUITE.cases if case.id in (ROW, SWEEP, "bind_mw/type_1/part-from-buf")
    ]
    assert len(cases) == 3
    return record(
        tmp_path_factory.mktemp("run"),
        SUITE,
        cases,
        named("window-of-the-whole-region").kind(),
    )


def test_a_violation_has_its_set_up_and_each_deviation_that_of_its_smallest_point(run):
    results = {result["case"]: result for result in read_written(run).results}
    assert GIVEN in results[ROW]["set_up"]["given"]
    (deviation,) = results[SWEEP]["deviations"]
    point = SUITE.find(
        f"{SWEEP}#{','.join(f'{axis}={label}' for axis, label in deviation['smallest'].items())}",
    )
    assert point is not None
    assert deviation["set_up"] == set_up_of(point)
    assert deviation["call"] == str(point.when)
    assert "$" not in deviation["call"]
    assert "set_up" not in results[SWEEP]


@pytest.mark.parametrize("format_", ["html", "junit", "ktap", "markdown"])
def test_every_report_has_the_set_up(run, format_, cli):
    text = reported(run, format_, cli).replace("\\", "").replace("&#39;", "'")
    assert GIVEN in text.replace("<wbr>", "")  # where a line of the page may break


def reported(run: Path, format_: str, cli: Cli) -> str:
    return cli(0, "report", run, "--format", format_, "--out", "-").out


@pytest.mark.parametrize("format_", ["ktap", "junit"])
def test_a_sweep_is_reported_with_call_rule_and_clause(run, format_, cli):
    said = reported(run, format_, cli)
    assert "points where beyond_the_range: those with " in said
    assert (
        "  call: traffic(op=RDMA_WRITE, rkey=mw.rkey, addr=buf + 1 page + 100, length=200, position=before"
        in said
    )
    assert "  expected by BIND-10: refused" in said


def test_explain_has_the_set_up_of_a_row_and_of_a_point(run, cli):
    assert f"given: {GIVEN}" in explained(cli, ROW, "--run", run)
    said = explained(cli, f"{SWEEP}#{POINT}", "--run", run)
    assert f"given: {GIVEN}" in said
    assert "call: traffic(op=RDMA_WRITE, rkey=mw.rkey" in said
    assert "Last verdict: FAIL" in said
    assert (
        "BIND-10 expects refused: traffic returned 0, completed with SUCCESS, and moved bytes"
        in said
    )
    assert f"--only {SWEEP}#{POINT}" in said
    assert "Last verdict: PASS" in explained(
        cli,
        f"{SWEEP}#{POINT.replace('before', 'first')}",
        "--run",
        run,
    )


def test_the_explanation_of_a_sweep_has_the_command_that_explains_a_point(run, cli):
    assert f"./rdma-cts explain {SWEEP}#AXIS=VALUE,..." in explained(cli, SWEEP, "--run", run)


# Earlier runs


TRIED = EIGHT.cases[2].id


@pytest.fixture
def out(tmp_path: Path, monkeypatch: Patch) -> Path:
    """Two runs: the first has two violations and an undecided case; the second has no violation."""
    monkeypatch.chdir(tmp_path)
    runs = {"first": {2: "FAIL", 4: "FAIL", 5: "MISSED"}, "second": {}}
    for at, (name, verdicts) in enumerate(runs.items(), 1):
        folder = tmp_path / "out" / name
        write_run(folder, run_of(verdicts))
        os.utime(folder / "results.jsonl", (at, at))
    return tmp_path / "out"


def earlier(options: RunOptions, failed: Optional[Path]) -> RunOptions:
    return with_earlier(options, failed, EIGHT, print)


def fingerprint(out: Path) -> str:
    return read(out / "first").violations.defects[0].fingerprint


def test_a_defect_is_found_in_the_run_in_which_it_occurred(out, cli):
    fingerprint_seen = fingerprint(out)
    assert (
        f"defect {fingerprint_seen}  (fake0, host, kernel 7.2.0; 2026-01-02 03:04; out/first)"
        in cli(0, "explain", fingerprint_seen).out
    )


@pytest.mark.parametrize(
    "name, said, verdicts",
    [
        ("de19cd258c26", "new", {"PASS -> FAIL"}),
        ("251ad0de44ec", "newly supported, and wrong", {"UNSUPPORTED -> FAIL"}),
        ("6c8e18b350a5", "not new", set()),
    ],
)
def test_a_defect_is_explained_against_an_earlier_run(name, said, verdicts, cli):
    runs = [ROOT / f"docs/runs/{stack}.jsonl.xz" for stack in ("rxe", "trixie")]
    words = ("explain", name, "--run", runs[0], "--against", runs[1])
    first, *cases = cli(0, *words, "--all").out.rpartition("\nagainst ")[2].splitlines()
    assert first == f"{runs[1]}: {said}"
    assert verdicts <= {case.strip().partition("  ")[0] for case in cases}
    assert bool(cases) is bool(verdicts)
    _, *shown = cli(0, *words).out.rpartition("\nagainst ")[2].splitlines()
    assert shown[:MOST_CASES] == cases[:MOST_CASES]
    assert shown[MOST_CASES:] == [
        f"  and {len(cases) - MOST_CASES} more, which explain --all lists"
    ] * (len(cases) > MOST_CASES)


def test_only_a_defect_is_explained_against_an_earlier_run(out, cli):
    assert "and REG-01 is none" in cli(2, "explain", "REG-01", "--against", "out/first").err
    words = ("explain", fingerprint(out), "--against", "out/first", "--dispute")
    assert "exclude each other" in cli(2, *words).err


def test_a_case_is_looked_up_in_the_latest_run_that_has_it(out):
    for about in (TRIED, "REG-01", "reg_mr/never/run"):
        assert run_about(about) == Path("out/second")
    write_run(out / "third", run_of({}, count=2))
    assert run_about(TRIED) == Path("out/second")


@pytest.mark.parametrize("dead", ["", '{"type":"header","schema":"rdma', "\0\0"])
@pytest.mark.parametrize("at", [0, 9])
def test_only_a_named_run_is_refused_for_its_missing_header(dead, at, out, cli):
    fingerprint_seen = fingerprint(out)
    file = laid(out / "dead", {"results.jsonl": dead}) / "results.jsonl"
    os.utime(file, (at, at))
    assert run_about(TRIED) == run_about("reg_mr/never/run") == Path("out/second")
    assert run_about(fingerprint_seen) == Path("out/first")
    assert earlier(RunOptions(only=(fingerprint_seen,)), None).only
    assert "header" in cli(2, "explain", fingerprint_seen, "--run", "out/dead").err


def test_list_shows_the_cases_of_a_fingerprint(out, monkeypatch, cli):
    monkeypatch.setattr(run_arguments, "load_suite", lambda *_: EIGHT)
    (defect, *_) = read(out / "first").violations.defects
    assert defect.cases[0] in cli(0, "list", "--only", defect.fingerprint[:6]).out


def test_failed_selects_the_cases_that_failed_or_were_not_decided(out):
    expected = tuple(EIGHT.cases[number].id for number in (2, 4, 5))
    assert earlier(RunOptions(), out / "first").only == expected
    os.utime(out / "first/results.jsonl", (9, 9))
    assert earlier(RunOptions(), Path("out")).only == expected


def without_cases(*gone: str) -> Any:
    return SimpleNamespace(find=lambda case: None if case in gone else EIGHT.find(case))


@pytest.mark.parametrize("by_failed", [False, True])
def test_cases_of_an_earlier_run_that_no_longer_exist_are_left_out(by_failed, out):
    said: list[str] = []
    failed = out / "first" if by_failed else None
    options = RunOptions(only=() if by_failed else (fingerprint(out),))
    gone, *rest = earlier(options, failed).only
    suite = without_cases(gone)
    assert [*with_earlier(options, failed, suite, said.append).only] == rest
    assert len(said) == 1
    assert said[0].startswith(f"left out: 1 case of {failed or 'out/first'}, of rdma-cts 0,")
    assert said[0].endswith(f"no longer exists: {gone}")
    suite = without_cases(gone, *rest)
    count = 1 + len(rest)
    with pytest.raises(
        UserError, match=f"^{count} cases of .*first, of .* no longer exist: .*, …;"
    ):
        with_earlier(options, failed, suite, said.append)
    assert len(said) == 1


def test_a_run_without_failures_a_missing_run_and_an_unknown_defect_are_refused(out, tmp_path):
    with pytest.raises(UserError, match=r"no case of .*second has failed"):
        earlier(RunOptions(), out / "second")
    with pytest.raises(UserError, match=r"there is no run in .*nowhere"):
        earlier(RunOptions(), tmp_path / "nowhere")
    options = RunOptions(only=("abcdef",), against=out / "first")
    said = r"^no run in out or .*second or .*first has the defect abcdef; only these runs are sea"
    with pytest.raises(UserError, match=said):
        earlier(options, out / "second")


@pytest.mark.parametrize("option", ["--failed", "--against"])
@pytest.mark.parametrize("file", ["", "results.jsonl"])
def test_a_defect_is_also_searched_in_the_named_runs(option, file, out, monkeypatch, tmp_path):
    defect, named_run = fingerprint(out), out / "first" / file
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    cases = read(named_run).violations.defects[0].cases
    failed = named_run if option == "--failed" else None
    options = RunOptions(only=(defect,), against=None if failed else named_run)
    assert set(cases) <= set(earlier(options, failed).only)


@pytest.mark.parametrize(
    "target",
    ["--guest --stack trixie", "--host root@node1 --device mlx5_0", ""],
)
def test_the_last_lines_name_the_program_and_the_next_run_on_the_same_target(out, target):
    file = out / "first/results.jsonl"
    run = f"./rdma-cts run {target}".strip()
    file.write_text(re.sub(r'"repro":"[^"]*--only', f'"repro":"{run} --only', file.read_text()))
    text = summary(read(out / "first"), Path("out/first"))
    assert f"again: {run} --failed out/first runs" in text
    assert f"report it: ./rdma-cts reproducer {fingerprint(out)} --run out/first --mail" in text


def test_printed_commands_are_quoted_for_a_shell(out, cli):
    named = (out / "first").rename(out / "a b&c")
    assert (
        f"reproducer {read(named).violations.open_defects[0].fingerprint} --run '{named}' --mail"
        in summary(
            read(named),
            named,
        )
    )
    cli(0, "report", named, "--out", "page.html")
    assert (
        f"--run &#39;{named}&#39;</code>".replace("&c", "&amp;c") in Path("page.html").read_text()
    )


def test_a_point_of_a_model_is_explained_by_its_values_its_fault_and_its_answer(cli):
    (case,) = (case for case in load_suite().cases if case.id == "access/model/slice")
    assert case.array is not None
    refused = case.array.part("refused")
    point = refused.points[0]
    said = cli(0, "explain", f"{case.id}#{refused.model.text(point)}").out
    conditions = Conditions(refused.model)
    (fault,) = conditions.faults(point)
    assert f"fault:      {fault}: " in said
    statuses = [words[0] for words in refused.answer(0)["requester"]]
    assert f"requester:  {statuses[0] if statuses else 'no completion'}" in said
    rules = re.findall(r"^([A-Z]+-[0-9]+[a-z]?)  ", said, re.MULTILINE)
    assert rules == conditions.all_rules(point)


def test_a_recorded_point_has_its_own_verdict_and_no_other_has_that_of_its_case(cli):
    """A single file has the points of a model, and of a sweep the smallest point of each deviation."""
    path = ROOT / "docs/runs/rxe.jsonl.xz"
    results = {record["case"]: record for record in read(path).results}
    for name in ("access/model/slice", "reg_mr/rights_space/remote"):
        for deviation in results[name]["deviations"][:3]:
            point = ",".join("=".join(pair) for pair in deviation["smallest"].items())
            said = cli(0, "explain", f"{name}#{point}", "--run", path).out
            last = said.partition("Last verdict: ")[2]
            assert last.startswith(f"{deviation.get('verdict', 'FAIL')}  ")
            assert f"  {deviation['rules'][0]} expects {deviation['expected']}" in last
            assert "points: " not in last
    other = "reg_mr/rights_space/remote#access=none,op=RDMA_READ"
    assert (
        "Last verdict: not recorded for this point  " in cli(0, "explain", other, "--run", path).out
    )
    case = load_suite().find("access/model/slice")
    assert case is not None
    assert case.array is not None
    judged = Judged(case.array, results["access/model/slice"]["observed"]["combinations"])
    (lacking, why), *_ = judged.skipped.items()
    said = cli(0, "explain", f"{case.id}#{case.array.model.text(lacking)}", "--run", path).out
    assert "Last verdict: UNSUPPORTED  " in said
    assert why in said


def test_explain_shortens_the_kernels_log_to_what_says_where_it_died(cli):
    rxe = ROOT / "docs/runs/rxe.jsonl.xz"
    short, full_text = (
        cli(0, "explain", "6c8e", "--run", rxe, *more).out for more in ((), ("--all",))
    )
    of_kernel = [line for line in short.splitlines() if line.startswith("  kernel: ")]
    for needed in ("BUG: kernel NULL pointer", "RIP: ", "rxe_invalidate_mw+"):
        assert any(needed in line for line in of_kernel), needed
    assert len(of_kernel) < 25
    assert of_kernel[-1].endswith(" more lines; explain --all shows the whole log)")
    assert " R13: " not in short
    assert " R13: " in full_text
    assert "--all shows" not in full_text


def test_explain_says_of_a_crash_what_was_sent_what_is_asked_and_what_happened(cli):
    said = cli(0, "explain", "0928", "--run", ROOT / "docs/runs/rxe.jsonl.xz").out
    assert "\n  call: wire(qp=qp)\n    1. op FLUSH(" in said
    assert "\n    op: the peer sends a request, and gets one of these answers\n" in said
    assert "\n  expected: the kernel goes on, and each packet has the effect " in said
    assert re.search(
        r"\n  observed: the kernel under test died: .*BUG: .*; in free_rd_atomic", said
    )


def test_a_recorded_point_that_the_present_tables_lack_is_no_error_of_an_axis(tmp_path, cli):
    name = "bind_mw/data_path/type-2-operation-by-access-by-place"
    text = (Path(__file__).parent / "recorded_violations/forky.jsonl").read_text()
    old = tmp_path / "results.jsonl"
    old.write_text(text.replace("place=before", "place=beyond").replace('"before"', '"beyond"'))
    (point,) = {
        symptom.name
        for defect in read(old).violations.defects
        for symptom in defect.symptoms
        if symptom.case == name and "place=beyond" in symptom.name
    }
    said = cli(2, "explain", point, "--run", old).err
    assert "has no value" not in said
    assert f"{old} was made with other tables; the present tables do not have the point " in said


def test_a_case_against_an_earlier_run_is_refused_with_the_command_about_its_defect(cli):
    run, other = (ROOT / f"docs/runs/{name}.jsonl.xz" for name in ("rxe", "trixie"))
    case = "access/model/slice"
    defects = [defect.fingerprint for defect in read(run).violations.defects_in(case)]
    refused = cli(2, "explain", case, "--run", run, "--against", other).err
    assert (
        f"explain {defects[0]} --run {run} --against {other} is about the first defect" in refused
    )
    assert f"its other defects are {', '.join(defects[1:])}" in refused
