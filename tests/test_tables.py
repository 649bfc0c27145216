"""Tests of reading tables: the cases of valid tables, and the location and message of each mistake in invalid ones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import corpus
from conformance.errors import UserError
from conformance.model.case import Case, Flags, Table
from conformance.tables import arguments, expansion
from conformance.tables.loader import parse_table
from conformance.tables.suite import CASES, load_suite
from conformance.verbs import ENUMS, EnumValue
from conformance.yamldoc.nodes import Location, Node
from conformance.yamldoc.parsing import read_bytes
from conformance.yamldoc.reader import Reader
from samples import laid, registry

HEAD = "verb: ibv_reg_mr\ncases: {cases}\ngiven: {{memory: {{buf: {{kind: anonymous, size: 4 pages}}}}}}\nrows:\n"
NOWHERE = Location("f", 1, 1)
ROW = "  - {id: a, rules: [REG-01], when: {access: [LOCAL_WRITE]}, then: success}\n"
TABLE = HEAD.format(cases=1) + ROW


def parsed(rows: str, cases: int, name: str = "sample") -> tuple[Table | None, list[str]]:
    """Returns the table of these rows, or its mistakes as `line:column: message`; rows begin in line 5."""
    text = HEAD.format(cases=cases) + rows
    table, mistakes = parse_table(
        read_bytes(text.encode(), "f"),
        Path("reg_mr") / f"{name}.yaml",
        registry(),
    )
    return table, [str(mistake).removeprefix("f:") for mistake in mistakes]


def cases_of(rows: str, cases: int) -> Sequence[Case]:
    table, mistakes = parsed(rows, cases)
    assert mistakes == []
    assert table is not None
    return table.cases


@pytest.mark.parametrize("name", corpus.DOCUMENTS)
def test_a_malformed_document_is_refused_with_the_place_of_each_mistake(name, tmp_path):
    expected = corpus.expectations(corpus.DOCUMENTS[name])
    assert expected, "the document has no `# expect` lines"
    messages = corpus.mistakes(name, tmp_path)
    for message in expected:
        assert any(
            text.startswith(f"{message.location}: ") and message.fragment in text
            for text in messages
        ), (message, messages)
    assert len(messages) == len(expected), messages


def test_a_row_becomes_a_case_with_all_defaults():
    (case,) = cases_of(ROW, 1)
    assert case.id == "reg_mr/sample/a"
    assert str(case.when) == "ibv_reg_mr(pd=pd, addr=buf.addr, length=buf.size, access=LOCAL_WRITE)"
    assert case.when.then.outcome == "success"
    assert (case.entry, case.rules) == ("libibverbs", ("REG-01",))
    assert str(case.location) == "f:5:10"


def test_a_case_has_the_location_of_its_row_and_not_of_its_axis():
    cases = cases_of(
        "  - id: a-$bit\n    rules: [REG-18]\n    each:\n      bit: [bit 21, bit 22]\n"
        "    when: {access: [$bit]}\n    then: open\n",
        2,
    )
    assert [(case.id, str(case.location)) for case in cases] == [
        ("reg_mr/sample/a-bit-21", "f:5:9"),
        ("reg_mr/sample/a-bit-22", "f:5:9"),
    ]
    assert [case.when.arguments["access"] for case in cases] == [
        Flags(1 << 21, ("bit 21",)),
        Flags(1 << 22, ("bit 22",)),
    ]


def test_the_parts_of_an_axis_value_belong_together():
    one, two = cases_of(
        "  - id: a-$kind\n    rules: [REG-01]\n    needs: $kind.needs\n    tier: $kind.tier\n    each:\n      kind:\n"
        "        plain: {needs: [], tier: default, more: []}\n"
        "        odp: {needs: [odp], tier: exhaustive, more: [ON_DEMAND, MW_BIND]}\n"
        "    when: {access: [LOCAL_WRITE, $kind.more]}\n    then: success\n",
        2,
    )
    assert (one.id, one.needs, one.tier) == ("reg_mr/sample/a-plain", (), "default")
    assert (two.id, two.needs, two.tier) == ("reg_mr/sample/a-odp", ("odp",), "exhaustive")
    assert str(two.when.arguments["access"]) == "LOCAL_WRITE|ON_DEMAND|MW_BIND"


def test_a_row_can_have_its_own_entries_needs_and_memory():
    cases = cases_of(ROW.replace("id: a,", "id: a, entries: [libibverbs, uverbs],"), 2)
    assert [case.id for case in cases] == ["reg_mr/sample/a@libibverbs", "reg_mr/sample/a@uverbs"]
    (case,) = cases_of(ROW.replace("REG-01]", "REG-07], needs: [odp]"), 1)
    assert case.needs == ("odp", "atomics")  # REG-07 needs atomics
    (case,) = cases_of(
        ROW.replace("id: a,", "id: a, given: {memory: {buf: {kind: shared, size: 1 page}}},"),
        1,
    )
    assert case.given.memory["buf"].kind == "shared"


@pytest.mark.parametrize("stem", ["Access", "access-flags", "_x", "two words"])
def test_a_table_with_an_invalid_name_is_refused(stem):
    _, (only,) = parsed(ROW, 1, stem)
    assert only == f"1:1: invalid name of a table's file: {stem!r}; use a-z, 0-9 and _"


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose only table is reg_mr/first.yaml, with the real rules of ibv_reg_mr."""
    cases = laid(tmp_path / "project", {"reg_mr/first.yaml": TABLE})
    for name in ("rules.yaml", "test_reg_mr.py"):
        (cases / "reg_mr" / name).write_bytes((CASES / "reg_mr" / name).read_bytes())
    monkeypatch.setattr("conformance.tables.suite.CASES", cases)
    return cases


@pytest.mark.usefixtures("own")
def test_a_vendors_tables_and_rules_are_added_once_to_those_of_the_project(tmp_path):
    rule = "verb: ibv_reg_mr\nrules:\n  - {id: VND-01, statement: s, document: d, section: s, level: must, "
    rule += "layer: kernel, needs: [], since: '1', failure_means: f, quote: q}\n"
    folder = laid(
        tmp_path / "own",
        {"reg_mr/rules.yaml": rule, "reg_mr/own.yaml": TABLE.replace("REG-01", "VND-01")},
    )
    suite = load_suite([folder, folder / ".." / "own"])
    assert sorted(case.id for case in suite.cases) == ["reg_mr/first/a", "reg_mr/own/a"]
    assert "VND-01" in suite.registry


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    "name, message",
    [
        ("reg_mr/flags.yml", ":1:1: would be ignored: a table's name ends in .yaml, not in .yml"),
        ("reg_mr/flags.YAML", ":1:1: would be ignored: a table's name ends in .yaml, not in .YAML"),
        ("reg_mr/rules.yml", ":1:1: would be ignored: a table's name ends in .yaml"),
        ("flags.yaml", ":1:1: would be ignored: a table belongs in the folder of its verb"),
        ("reg_mr/deep/flags.yaml", ":1:1: would be ignored: .*not deeper"),
        ("README.md", "no table in this folder"),
    ],
)
def test_a_file_that_would_be_ignored_is_a_mistake(tmp_path, name, message):
    folder = laid(tmp_path / "own", {name: TABLE})
    if message[0] == ":":
        place = re.escape(str(folder / name))
    else:
        place = ""
    with pytest.raises(UserError, match=place + message):
        load_suite([folder])


@pytest.mark.usefixtures("own")
def test_a_case_of_the_same_id_in_another_folder_is_a_mistake(tmp_path):
    table_folder = laid(tmp_path / "own", {"reg_mr/own.yaml": TABLE})
    other = laid(tmp_path / "b", {"reg_mr/own.yaml": TABLE})
    expected = re.escape(
        f"{other}/reg_mr/own.yaml:5:10: duplicate case id reg_mr/own/a (first at {table_folder}",
    )
    with pytest.raises(UserError, match=expected):
        load_suite([table_folder, other])


@pytest.mark.usefixtures("own")
def test_a_table_with_the_name_of_another_is_one_mistake(tmp_path):
    rows = TABLE.replace("cases: 1", "cases: 3") + ROW.replace("id: a", "id: b")
    rows += ROW.replace("id: a", "id: c")
    folders = [laid(tmp_path / name, {"reg_mr/own.yaml": rows}) for name in ("own", "b")]
    with pytest.raises(UserError) as raised:
        load_suite(folders)
    assert str(raised.value).count("duplicate") == 1
    assert "and 2 more: two tables have this name" in str(raised.value)


@pytest.mark.usefixtures("own")
def test_a_broken_link_is_a_located_mistake(tmp_path):
    folder = laid(tmp_path / "own", {"reg_mr/own.yaml": TABLE})
    (folder / "reg_mr" / "gone.yaml").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"gone\.yaml: cannot be read"):
        load_suite([folder])


@pytest.mark.parametrize(
    "module, fragment",
    [
        (
            "",
            "nothing runs this table: {cases}/reg_mr/test_reg_mr.py has no test function with the argument `case`",
        ),
        ("def test_other(run): ...", "nothing runs this table"),
        ("def helper(case): ...", "nothing runs this table"),
        ("def test_broken(case:", "nothing runs this table"),
        (
            "def test_p(case): ...\ndef test_q(case): ...",
            "test_reg_mr.py:2:1: a second test function",
        ),
    ],
)
def test_a_table_without_exactly_one_test_function_is_a_mistake(own, module, fragment):
    (own / "reg_mr" / "test_reg_mr.py").write_text(module)
    with pytest.raises(UserError) as caught:
        load_suite()
    assert fragment.format(cases=own) in str(caught.value)


@pytest.mark.parametrize(
    "written, slip",
    [
        ("\nretired:", "\nretired: []\n  - id: REG-99"),
        ("    statement: ", "    statement: Note: "),
        ("level: must", "level: MUST"),
    ],
)
def test_a_table_is_not_blamed_for_a_rule_that_cannot_be_read(own, written, slip):
    rules = own / "reg_mr" / "rules.yaml"
    rules.write_text(rules.read_text().replace(written, slip))
    with pytest.raises(UserError) as caught:
        load_suite()
    assert str(rules) in str(caught.value)
    assert "first.yaml" not in str(caught.value)
    assert "unknown rule" not in str(caught.value)


def test_a_rule_is_not_blamed_for_a_table_that_cannot_be_read(own):
    rules, table = own / "reg_mr" / "rules.yaml", own / "reg_mr" / "first.yaml"
    shown = '    evidence: ["a: success"]\n    level'
    rules.write_text(rules.read_text().replace("    level", shown, 1))
    table.write_text(TABLE.replace("LOCAL_WRITE", "LOCAL_WIRTE"))
    with pytest.raises(UserError) as caught:
        load_suite()
    assert str(caught.value).splitlines() == [
        f"{table}:5:46: unknown access flag 'LOCAL_WIRTE' (did you mean LOCAL_WRITE?)",
    ]


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("command", [["list"], ["list", "coverage"]])
def test_the_mistakes_of_all_files_are_printed_one_per_line(command, tmp_path, cli):
    files = {
        "p": TABLE.replace("LOCAL_WRITE", "LOCAL_WIRTE, REMOTE_REED"),
        "q": TABLE.replace("REG-01", "STAT-1"),
    }
    folder = laid(tmp_path / "own", {f"reg_mr/{name}.yaml": text for name, text in files.items()})
    captured = cli(2, *command, "--cases", folder)
    assert captured.out == ""
    assert captured.err.splitlines() == [
        f"rdma-cts: {folder}/reg_mr/p.yaml:5:46: unknown access flag 'LOCAL_WIRTE' (did you mean LOCAL_WRITE?)",
        f"rdma-cts: {folder}/reg_mr/p.yaml:5:59: unknown access flag 'REMOTE_REED' (did you mean REMOTE_READ?)",
        f"rdma-cts: {folder}/reg_mr/q.yaml:5:21: unknown rule 'STAT-1' (did you mean STAT-01?)",
    ]


def test_a_bit_that_is_given_a_name_leaves_the_axis_of_unknown_bits(monkeypatch):
    def bits(which: str, number: int) -> list[str]:
        axis = f"{{bit: {{unknown bits of: ibv_access_flags, which: {which}}}}}"
        row = f"  - {{id: a-$bit, rules: [REG-18], each: {axis}, when: {{access: [$bit]}}, then: open}}\n"
        return [case.id.removeprefix("reg_mr/sample/a-bit-") for case in cases_of(row, number)]

    access = ENUMS["ibv_access_flags"]
    optional = [str(bit) for bit in access.unnamed_bits if bit in range(20, 30)]
    first, *later = (str(bit) for bit in access.unnamed_bits if bit not in range(20, 30))
    assert bits("mandatory", len(later) + 1) == [first, *later]
    assert bits("optional", len(optional)) == optional
    named = replace(
        access,
        values=(*access, EnumValue("IBV_ACCESS_NEW", 1 << int(first), "of a later release")),
    )
    monkeypatch.setattr(expansion, "ENUMS", {**ENUMS, access.name: named})
    assert bits("mandatory", len(later)) == later


def test_an_axis_can_name_its_values_in_ids():
    row = (
        "  - {id: a-$bit, rules: [REG-18], each: {bit: {bit-10: unknown bit, more: [unknown bit, LOCAL_WRITE]}},"
        " when: {access: [$bit]}, then: refused}\n"
    )
    plain, more = cases_of(row, 2)
    assert [plain.id, more.id] == ["reg_mr/sample/a-bit-10", "reg_mr/sample/a-more"]
    bit = ENUMS["ibv_access_flags"].unknown_bit
    unknown = 1 << bit
    assert plain.when.arguments["access"] == Flags(unknown, (f"bit {bit}",))
    assert more.when.arguments["access"] == Flags(unknown | 1, (f"bit {bit}", "LOCAL_WRITE"))


@pytest.mark.parametrize("enum", [enum for enum in ENUMS.values() if enum.flags])
def test_only_bits_without_a_name_can_be_written_by_their_number(enum):
    reader = Reader()
    for bit in range(32):
        written = Node((Node(f"bit {bit}", NOWHERE),), NOWHERE)
        before = len(reader.mistakes)
        arguments.read_flags(reader, written, enum.name)
        assert (len(reader.mistakes) > before) == (
            1 << bit in [constant.value for constant in enum]
        )
