"""Tests of the texts of tables: YAML with locations, the expansion of axes, and sums such as `buf + 1 page`."""

from __future__ import annotations

import os
import re

import pytest

import corpus
from conformance.model.quantity import parse
from conformance.tables.expansion import bindings, label, slug, substitute
from conformance.tables.suite import ROOT
from conformance.yamldoc import parsing
from conformance.yamldoc.nodes import Node, TextError, plain
from conformance.yamldoc.parsing import MAX_BYTES, MAX_DEPTH, read_bytes, read_file
from conformance.yamldoc.reader import Reader, suggestion
from kinds import rows


def mistakes(text: str) -> list[str]:
    """Returns the mistakes in the text, each as `line:column: message`."""
    with pytest.raises(TextError) as caught:
        read_bytes(text.encode(), "f")
    return [str(mistake).removeprefix("f:") for mistake in caught.value.mistakes]


def test_values_have_the_types_that_the_writer_expects():
    text = "a: [1, -2, 0x10, word, 'yes', \"12\", true, null, ~]\nb:\n  c: >-\n    two\n    lines\n"
    assert plain(read_bytes(text.encode(), "f")) == {
        "a": [1, -2, 16, "word", "yes", "12", True, None, None],
        "b": {"c": "two lines"},
    }


def test_every_value_and_key_has_its_location():
    root = read_bytes(b"a: 1\nbc:\n  - x\n  -  z\n", "f")
    assert isinstance(root.value, dict)
    assert str(root.keys["bc"] if root.keys else "") == "f:2:1"
    assert [str(item.location) for item in root.value["bc"].value] == ["f:3:5", "f:4:6"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "text",
    ["08", "1.5", "1e3", "2026-01-02", "12:30", "0o17", "1_000", "NULL", ".inf"],
)
def test_words_that_only_some_yaml_readers_convert_stay_text(text):
    assert plain(read_bytes(f"- {text}".encode(), "f")) == [text]


@pytest.mark.parametrize("word", ["yes", "No", "on", "OFF", "y", "N", "True", "FALSE"])
def test_a_word_that_some_readers_convert_to_a_boolean_is_refused(word):
    (only,) = mistakes(f"a: {word}")
    assert only.startswith("1:4: ")
    assert "write true or false, or a text in quotes" in only


@pytest.mark.parametrize(
    "text, expected",
    [
        ("a: ! 12", "1:4: tags are not allowed (!)"),
        ("x: {a: 1, a: 2}", "1:11: duplicate key 'a' (first in line 1)"),
        ("a: {b: c\n", "1:4: this quote or bracket is never closed"),
        ("a: b\nc\nd: e", "2:1: not valid YAML: a ':' or indentation is missing after this"),
        ("a: b: c", "1:5: not valid YAML: a second ': '; put a text that has one in quotes"),
        ("a: @b", "1:4: a text cannot begin with '@'; put it in quotes"),
        ("a:\n  - `b`", "2:5: a text cannot begin with '`'; put it in quotes"),
        (
            "- a: 1\n \N{NO-BREAK SPACE}b: 2",
            "2:2: a space that YAML does not take for one (U+00A0); write a plain one",
        ),
        ("a: b\N{NO-BREAK SPACE}c: d", "1:7: not valid YAML: a second ': '"),
        ("é: [\n", "1:4: this quote or bracket is never closed"),
    ],
)
def test_a_mistake_has_its_location_and_message(text, expected):
    """The other mistakes are in tests/malformed."""
    (only,) = mistakes(text)
    assert only.startswith(expected)


def test_windows_line_ends_are_read_and_counted():
    assert plain(read_bytes(b"a: 1\r\nb: 2\r\n", "f")) == {"a": 1, "b": 2}
    assert mistakes("a: 1\r\nb: *x\r\n")[0].startswith("2:4: ")


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_nesting_is_bounded(opening):
    (only,) = mistakes(opening * 100_000)
    assert only == f"1:{MAX_DEPTH * len(opening) + 1}: nested deeper than {MAX_DEPTH} levels"


def test_a_long_value_is_cut_in_messages():
    assert len(Node("x" * 1000, read_bytes(b"a", "f").location).kind) < 80


def test_only_files_of_bounded_size_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large.yaml").write_text("#" * (MAX_BYTES + 1))
    for name in (".", "pipe"):
        with pytest.raises(TextError, match="cannot be read: not a regular file"):
            read_file(tmp_path / name)
    with pytest.raises(TextError, match=f"larger than {MAX_BYTES:,} bytes; split it"):
        read_file(tmp_path / "large.yaml")


@pytest.mark.slow
def test_libyaml_and_pure_pyyaml_read_documents_alike(monkeypatch):
    def read(name: str, data: bytes) -> object:
        try:
            return parsing.read_bytes(data, name)
        except TextError as error:
            return error.mistakes

    assert parsing._FAST is not None, (
        "this PyYAML is built without libyaml: use that of python3-yaml"
    )
    tables = {
        str(path): path.read_bytes() for path in sorted((ROOT / "cases").rglob("*.yaml"))[::4]
    }
    assert tables
    texts = {**tables, **corpus.DOCUMENTS}
    with_libyaml = {name: read(name, data) for name, data in texts.items()}
    monkeypatch.setattr(parsing, "_FAST", None)
    assert {name: read(name, data) for name, data in texts.items()} == with_libyaml


def expand(text: str) -> tuple[list[Node], list[str]]:
    """Returns the rows to which a row with `each` expands, and the mistakes."""
    row, reader = read_bytes(text.encode(), "f"), Reader()
    assert isinstance(row.value, dict)
    axes = reader.named(row.value.get("each"), "each")
    rest = Node({key: value for key, value in row.value.items() if key != "each"}, row.location)
    expanded = [substitute(rest, binding, reader) for binding in bindings(axes, reader, row)]
    return expanded, [str(mistake).removeprefix("f:") for mistake in reader.mistakes]


def field_x(row: Node) -> Node:
    assert isinstance(row.value, dict)
    return row.value["x"]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("x: $a-$b\neach: {a: [1, 2], b: [p, q]}", ["1-p", "1-q", "2-p", "2-q"]),
        ("x: word", ["word"]),
        ("x: $a\neach: {a: [1, [p], {k: v}, word]}", [1, ["p"], {"k": "v"}, "word"]),
        (
            "x: [A, $a, B]\neach: {a: [[], [C, D], E]}",
            [["A", "B"], ["A", "C", "D", "B"], ["A", "E", "B"]],
        ),
    ],
    ids=["the last axis varies fastest", "no axis", "values of each kind", "lists in a list"],
)
def test_a_row_is_expanded_by_its_axes(text, expected):
    node_here, mistakes = expand(text)
    assert mistakes == []
    assert [plain(field_x(node)) for node in node_here] == expected


def test_a_value_has_its_own_location_and_a_composed_text_also_names_the_whole_text():
    node_here, _ = expand("x: $a\neach:\n  a: [p,\n      q]\n")
    assert [str(field_x(node).location) for node in node_here] == ["f:3:7", "f:4:7"]
    (first, _), _ = expand("x: $a pages\neach:\n  a: [p, q]\n")
    location = field_x(first).location
    assert (str(location), location.within) == ("f:3:7", " (in '$a pages' of line 1)")


MANY_AXES = "\n".join(f"  a{number}: [0, 1]" for number in range(15000))


@pytest.mark.parametrize(
    "text, expected",
    [
        ("x: $b\neach: {aa: [1]}", "1:4: unknown axis $b (known: aa)"),
        ("x: $a\neach: {a: [[p, $b]]}", "2:16: a value of axis 'a' cannot contain $"),
        (f"x: word\neach:\n{MANY_AXES}\n", "1:1: expands to more than"),
        (f"x: {'$a' * 300}\neach: {{a: [{'w' * 300}]}}", "1:4: becomes longer than"),
        (
            f"x: [{', '.join(['$a'] * 300)}]\neach: {{a: [[{', '.join('pqrst')}]]}}",
            "1:4: a list of more than",
        ),
        (
            f"x: $a\nz: [{', '.join('p' * 3000)}]\neach: {{a: {[*range(500)]}}}",
            "1:1: the row is too long to be expanded 500 times",
        ),
    ],
    ids=range(6),
)
def test_a_mistake_in_an_axis_has_the_location_of_its_cause(text, expected):
    _, (only,) = expand(text)
    assert only.startswith(expected)


@pytest.mark.parametrize(
    "written, expected",
    [
        ("[]", "none"),
        ("[A, B]", "A+B"),
        ("~", "none"),
        ("{k: v}", "k-v"),
        ("12", "12"),
        ("buf + 1", "buf + 1"),
    ],
)
def test_an_axis_value_has_a_readable_label_in_ids(written, expected):
    assert label(read_bytes(written.encode(), "f")) == expected


@pytest.mark.parametrize(
    "text, expected",
    [
        ("REMOTE_WRITE alone", "remote-write-alone"),
        ("buf + 1 page", "buf-+-1-page"),
        ("--x--", "x"),
        ("é", ""),
    ],
)
def test_an_id_is_lower_case_words_joined_by_dashes(text, expected):
    assert slug(text) == expected


PAGE, HUGE = 4096, 2 << 20


def value(text: str | int, page: int = PAGE) -> int:
    objects = {
        ("buf", ""): 0x10000,
        ("buf", "addr"): 0x10000,
        ("buf", "size"): 0x2000,
        ("mr", "rkey"): 7,
    }
    return parse(text).evaluate(page, HUGE, lambda name, property_: objects[name, property_])


@pytest.mark.parametrize("text, expected", rows("quantities"))
def test_a_sum_of_terms_is_evaluated_or_refused_with_a_message(text, expected):
    if expected.startswith("refused: "):
        with pytest.raises(ValueError, match=re.escape(expected.removeprefix("refused: "))):
            parse(text)
    else:
        assert value(text) == int(expected, 0)


def test_a_number_is_a_quantity_and_the_size_of_pages_is_that_of_the_machine():
    assert [value(number) for number in (0, 4097)] == [0, 4097]
    assert value("2 pages", page=65536) == 131072


def test_the_objects_of_a_sum_are_known_before_its_evaluation():
    assert parse("buf.size + SIZE_MAX - mr.rkey").names == [("buf", "size"), ("mr", "rkey")]


@pytest.mark.parametrize(
    "text, why",
    [("1 " * 1000, "not a sum"), ("9" * 10000, "more than 64 bits")],
)
def test_a_long_text_is_cut_in_the_message(text, why):
    with pytest.raises(ValueError, match=why) as caught:
        parse(text)
    assert len(str(caught.value)) < 250


def test_a_part_of_a_name_is_answered_with_the_names_that_have_it():
    names = ["blind-odd-region-one-byte-longer", "bind-beyond-region", "reg_mr"]
    assert suggestion("odd-region", names) == f" (did you mean {names[0]}?)"
    assert suggestion("reg_m", names) == " (did you mean reg_mr?)"
    padded = [f"{letter}-without-padding" for letter in "abcde"]
    parts = "a-without-padding or b-without-padding or c-without-padding"
    assert (
        suggestion("atomic", ["odp_atomic", "odp_ud_atomic", "atomics"])
        == " (did you mean atomics?)"
    )
    assert suggestion("DEREG-10", ["REREG-10", "DEREG-01"]) == " (did you mean DEREG-01?)"
    assert suggestion("padding", padded) == f" (did you mean {parts}?)"


@pytest.mark.parametrize(
    "written, hint",
    [
        ("PD", "; write [PD]"),
        ("PD | ACCESS", "; write [PD, ACCESS]"),
        ("PD, ACCESS", "; write [PD, ACCESS]"),
        ("PD | OTHER", ""),
        ("12", ""),
    ],
)
def test_a_text_of_known_words_is_shown_as_the_list_that_is_meant(written, hint):
    reader = Reader()
    node = read_bytes(written.encode(), "f")
    assert reader.items(node, "flags", ("PD", "ACCESS")) == ()
    assert reader.words(node, "flag", ("PD", "ACCESS")) == ()
    assert [mistake.message for mistake in reader.mistakes] == [
        f"flags must be a list, not {node.kind}{hint}",
        f"expected a list of flags, not {node.kind}{hint}",
    ]
