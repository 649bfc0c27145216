"""`rdma-cts describe` with its output for people and for programs."""

import argparse
from collections.abc import Callable
from pathlib import Path

import pytest

from commands import describe
from commands.__main__ import COMMANDS
from commands.cli import run_arguments
from conformance.errors import UserError
from conformance.tables.suite import load_suite
from conformance.verbs import VERBS
from kinds import Cli, Patch
from launched import ended
from recorded_reference import record
from reference.device import Device
from reference.stack import without

Shown = Callable[..., str]


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    describe.add_arguments(parser)
    return describe.execute(parser.parse_args(arguments))


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Shown:
    """Runs a command line, which must succeed; returns its output."""

    def of(*arguments: str) -> str:
        assert run(*arguments) == 0
        return capsys.readouterr().out

    return of


def test_without_a_verb_each_is_listed_in_a_line(shown: Shown) -> None:
    lines = shown().splitlines()
    assert [line.split()[0] for line in lines] == list(VERBS)
    assert lines[0].endswith(VERBS["ibv_reg_mr"].summary)


@pytest.mark.parametrize("name", VERBS)
def test_a_description_holds_every_statement_and_fits_a_terminal(name: str, shown: Shown) -> None:
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
        *(each.meaning for each in verb.parameters),
        *(cause for code in verb.return_codes for cause in code.causes),
    ]
    assert [each for each in statements if each not in flat] == []


def test_the_prefix_may_be_left_out(shown: Shown) -> None:
    assert shown("reg_mr") == shown("ibv_reg_mr")


def test_the_other_dialect_is_mentioned_and_shown_when_asked_for(shown: Shown) -> None:
    mainline, experimental = shown("ibv_rereg_mr"), shown("ibv_rereg_mr", "--dialect", "experimental")
    assert "--dialect experimental" in mainline
    assert "ibv_rereg_mr_attr" not in mainline
    assert "struct ibv_rereg_mr_attr *attr" in experimental
    assert "--dialect mainline" in experimental
    assert ["IBV_ACCESS_ALLOCATE_MR", "?"] in [line.split()[:2] for line in experimental.splitlines()]
    assert "ialect" not in shown("ibv_reg_mr")
    assert shown("--dialect", "experimental").split()[0] == "ibv_rereg_mr"


def test_structs_behind_pointers_are_not_printed(shown: Shown) -> None:
    assert "struct ibv_device:" not in shown("ibv_reg_mr")
    assert "struct ibv_mw_bind_info:" in shown("ibv_bind_mw")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("ibv_reg_rm", "did you mean ibv_reg_mr"),
        ("bindmw", "did you mean ibv_bind_mw"),
        ("xyzzy", "`rdma-cts describe` lists them all"),
        ("", "`rdma-cts describe` lists them all"),
    ],
)
def test_an_unknown_verb_is_a_usage_error_with_a_suggestion(name: str, hint: str) -> None:
    with pytest.raises(UserError) as caught:
        run(name)
    assert caught.value.status == 2
    assert caught.value.message == f"unknown verb {name!r}"
    assert caught.value.hint.startswith(hint)


def test_a_dialect_that_a_verb_lacks_is_a_usage_error() -> None:
    with pytest.raises(UserError, match="no document describes an experimental ibv_reg_mr") as caught:
        run("ibv_reg_mr", "--dialect", "experimental")
    assert caught.value.status == 2
    assert "ibv_rereg_mr" in caught.value.hint


SUITE = load_suite()
CASE = next(case for case in SUITE.cases if "REG-15" in case.rules and not case.sweep)


def explained(cli: Cli, *arguments: object) -> str:
    return " ".join(cli(0, "explain", *arguments).out.split())


def test_every_rule_has_its_source_its_cases_and_what_a_failure_means(
    cli: Cli, monkeypatch: Patch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_arguments, "suite_from", lambda arguments: SUITE)
    for rule in SUITE.registry.values():
        said = explained(cli, rule.id)
        for text in (rule.statement, rule.document, rule.section, rule.quote or rule.unquoted, rule.failure_means):
            assert " ".join(text.split()) in said
        count = sum(rule.id in case.rules for case in SUITE.cases)
        assert (f"{count:,} cases prove it:" if count > 1 else "1 case proves it:") in said


def test_the_last_verdict_is_that_of_the_newest_run(tmp_path: Path, cli: Cli, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    record(tmp_path / "out" / "first", SUITE, [CASE], Device(without("odp")))
    assert "Last verdict: PARTIAL" in explained(cli, "reg-15")
    newest = record(tmp_path / "out" / "second", SUITE, [SUITE.cases[0]])
    assert f"Last verdict: not run (reference, host, kernel 7.2.0; out/{newest.name})" in explained(cli, "REG-15")


def test_a_case_has_its_call_its_rules_and_what_came(tmp_path: Path, cli: Cli) -> None:
    run = record(tmp_path / "run", SUITE, [CASE])
    said = explained(cli, CASE.id, "--run", run)
    for text in (str(CASE.when), "expect: outcome refused", "REG-15", "If it fails:", "observed:", "errno EINVAL"):
        assert text in said


def test_a_defect_that_the_run_does_not_have_is_one_line(cli: Cli) -> None:
    run = Path(__file__).with_name("recorded_violations")
    assert f"rdma-cts: {run} has no defect ffff; " in cli(2, "explain", "ffff", "--run", run / "forky.jsonl").err


def test_an_id_that_nothing_has_is_one_line_with_a_suggestion(cli: Cli) -> None:
    (line,) = cli(2, "explain", "REG-155").err.splitlines()
    assert "there is no rule or case 'REG-155' (did you mean REG-15" in line
    assert "745 is too short for a defect; give at least 4 digits" in cli(2, "explain", "745").err


def test_a_case_of_other_tables_is_explained_with_those(tmp_path: Path, cli: Cli) -> None:
    ours = record(tmp_path / "run", SUITE, [CASE])
    path = ours / "results.jsonl"
    path.write_text(path.read_text().replace(CASE.id, "reg_mr/mine/own").replace(SUITE.tables_sha256, "0" * 64))
    said = cli(2, "explain", "reg_mr/mine/own", "--run", ours).err
    assert said == (
        "rdma-cts: the run has the case 'reg_mr/mine/own', but the suite's tables do not; "
        "give the folder of its table in --cases DIR\n"
    )


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("rdma-cts nig", ["nightly"]),
        ("rdma-cts run --ti", ["--tier"]),
        ("rdma-cts run --tier ", ["smoke", "default", "exhaustive"]),
        ("rdma-cts run --quiet --tier ex", ["exhaustive"]),
        ("rdma-cts compare /etc/passw", ["/etc/passwd"]),
        ("rdma-cts compare --device", []),
        ("rdma-cts run --verb rere", ["rereg_mr", "rereg_mr_experimental"]),
        ("rdma-cts run --rule REG-09", ["REG-09", "REG-09a"]),
        ("rdma-cts run --port ", []),
        ("rdma-cts run /etc/passw", []),
        ("rdma-cts completion fi", ["fish"]),
        ("rdma-cts trial ker", ["kernel"]),
        ("rdma-cts trial kernel --mut", ["--mutant"]),
        ("rdma-cts trial reference --rule REG-09", ["REG-09", "REG-09a"]),
        ("rdma-cts trial mended --list --cha", ["--change"]),
        ("rdma-cts trial reference --mut", []),
    ],
)
def test_bash_offers_what_fits(line: str, offered: list[str], cli: Cli) -> None:
    script = cli(0, "completion", "bash").out
    words = line.split(" ")
    ask = f"COMP_WORDS=({' '.join(words[:-1])} '{words[-1]}'); COMP_CWORD={len(words) - 1}; _rdma_cts"
    text = f'{script}\n{ask}; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = ended("bash", "-uc", text, check=True)
    found = [each for each in done.stdout.splitlines() if each not in ("", "/etc/passwd-")]
    assert (found, done.stderr) == (offered, "")


@pytest.mark.parametrize(("shell", "sign"), [("zsh", "#compdef rdma-cts\n"), ("fish", "complete -c rdma-cts")])
def test_other_shells_know_all_commands(shell: str, sign: str, cli: Cli) -> None:
    script = cli(0, "completion", shell).out
    assert sign in script
    assert all(f"{name} " in script for name in COMMANDS)
