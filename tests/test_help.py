"""Tests of what describes the commands: their help, the list of variables, former spellings, and lines for a terminal."""

import io
import os
import re

import pytest

from commands.__main__ import main
from commands.cli.catalogue import COMMANDS, GROUPS
from commands.variables import VARIABLES
from conformance.tables.suite import ROOT
from launched import ended
from reports.text import fitted

# Variables for the suite's parts and its tests, not for users.
INTERNAL = {
    "DRIVER",
    "MODULE",
    "BARE",
    "DEVICES",
    "PROGRAM",
    "FUZZED",
    "MOMENTS",
    "KERNEL_LOG",
    "SYSTEM",
    "NEEDED",
    "DOUBTED",
}


def test_every_variable_is_printed_and_on_its_page(cli):
    files = ended("git", "ls-files", "-z", cwd=ROOT, check=True).stdout
    parts = ("commands", "conformance", "fixtures", "reports", "rdma-cts")
    paths = [ROOT / name for name in files.split("\0") if name.startswith(parts)]
    read = {
        names
        for path in paths
        if path.is_file()
        for names in re.findall(r"RDMA_CTS_([A-Z_]*[A-Z])\b", path.read_text(errors="replace"))
    }
    names = {name.removeprefix("RDMA_CTS_") for name in VARIABLES if name.startswith("RDMA_CTS_")}
    assert read - INTERNAL == names
    page = (ROOT / "docs" / "variables.md").read_text()
    assert re.findall(r"^\| `(\w+)`", page, re.MULTILINE) == list(VARIABLES)
    assert [
        line.split()[0] for line in cli(0, "list", "variables").out.splitlines() if line[0] != " "
    ] == list(VARIABLES)


FORMER = {
    "completion bash": "list completion bash",
    "coverage": "list coverage",
    "describe": "list verbs",
    "describe ibv_reg_mr": "explain ibv_reg_mr",
    "describe ibv_rereg_mr --dialect experimental": "explain ibv_rereg_mr --dialect experimental",
    "fleet nowhere --out o": "compare --nodes nowhere --out o",
    "schema rules": "list schema rules",
    "site --history nowhere --out s": "report --history nowhere --site s",
    "variables": "list variables",
    "verify nowhere": "judge nowhere",
}


@pytest.mark.parametrize("former, today", FORMER.items())
def test_a_former_spelling_works_and_tells_the_spelling_of_today(former, today, capsys):
    status = main(today.split())
    expected = capsys.readouterr()
    assert main(former.split()) == status
    output = capsys.readouterr()
    note, _, rest = output.err.partition("\n")
    assert note.startswith(f"rdma-cts: `{former.split()[0]}` is now `{today.split()[0]}")
    assert (output.out, rest) == (expected.out, expected.err)


def test_the_help_text_has_at_most_18_commands_in_groups(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    shown = re.findall(r"^(?:  ([a-z][a-z-]+) |([a-z ]+):$)", text, re.MULTILINE)
    names = [name for name, _ in shown if name]
    titles = [title for _, title in shown if title]
    assert sorted(names) == sorted(COMMANDS)
    assert len(names) <= 18
    assert titles == [*GROUPS, "options"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_80_columns_and_breaks_no_word(command, monkeypatch, capsys):
    said = []
    for columns in ("80", "1000"):
        monkeypatch.setenv("COLUMNS", columns)
        with pytest.raises(SystemExit):
            main([command, "--help"])
        said.append(capsys.readouterr().out)
    assert max(map(len, said[0].splitlines())) <= 80
    assert said[0].split() == said[1].split()


@pytest.mark.parametrize(
    "line, shown",
    [
        ("  FAIL a/b: 1234567890 123456", "  FAIL a/b: 1234567890\n    123456"),
        (
            "again: ./rdma-cts run --failed out/x runs it",
            "again: ./rdma-cts run --failed out/x runs it",
        ),
        ("a-very-long-word-in-one-piece", "a-very-long-word-in-one-piece"),
    ],
)
def test_a_terminal_line_is_broken_between_words_and_not_in_a_command(line, shown, monkeypatch):
    monkeypatch.setenv("COLUMNS", "24")
    master, slave = os.openpty()
    with open(master, "rb"), open(slave, "w") as terminal:
        assert fitted(line, terminal) == shown
    assert fitted(line, io.StringIO()) == line


@pytest.mark.parametrize("value", ["\n", "a\nb", "\x1b[2J"])
def test_variables_of_the_guest_are_printable_lines(value, tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    said = cli(2, "run", "--guest", "--guest-env", f"COLOUR={value}", "--out", "out/x").err
    assert said.endswith("a value is one line of printable characters\n")
    assert list(tmp_path.iterdir()) == []


def test_the_rules_of_a_verb_are_those_with_a_case_of_it(cli):
    *rules, last = cli(0, "list", "--rules", "--verb", "alloc_null_mr").out.splitlines()
    assert {line.split()[0].partition("-")[0] for line in rules} >= {"NUL"}
    assert last.endswith(f" rules, {len(rules)} with a selected case")
    *every, last = cli(0, "list", "--rules").out.splitlines()
    assert last == f"{len(every)} rules, {len(every)} with a selected case"


def test_list_prints_how_many_of_its_cases_are_in_a_run(cli):
    *cases, last = cli(0, "list").out.splitlines()
    *default, short = cli(0, "list", "--tier", "default").out.splitlines()
    assert (
        last
        == f"{len(cases)} cases; a run without --tier has {len(default)} of them (tier default)"
    )
    assert short == f"{len(default)} cases"
    assert len(default) < len(cases)
