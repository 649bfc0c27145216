"""Located YAML: what is read, what is refused, and the location of each mistake."""

import os
from pathlib import Path

import pytest

import corpus
from conformance.tables.suite import ROOT
from conformance.yamldoc import nodes
from conformance.yamldoc.nodes import MAX_BYTES, MAX_DEPTH, Node, TextError, plain, read_bytes, read_file


def mistakes(text: str | bytes) -> list[str]:
    """The mistakes in the text, each as `line:column: message`."""
    data = text.encode() if isinstance(text, str) else text
    with pytest.raises(TextError) as caught:
        read_bytes(data, "f")
    return [str(mistake).removeprefix("f:") for mistake in caught.value.mistakes]


def test_values_have_the_types_that_the_writer_expects() -> None:
    text = "a: [1, -2, 0x10, word, 'quoted', \"12\", true, null, ~]\nb:\n  c: >-\n    two\n    lines\n"
    assert plain(read_bytes(text.encode(), "f")) == {
        "a": [1, -2, 16, "word", "quoted", "12", True, None, None],
        "b": {"c": "two lines"},
    }


def test_every_value_and_key_has_its_location() -> None:
    root = read_bytes(b"a: 1\nbc:\n  - x\n  -  z\n", "f")
    assert isinstance(root.value, dict)
    assert str(root.keys["bc"] if root.keys else "") == "f:2:1"
    assert [str(item.location) for item in root.value["bc"].value] == ["f:3:5", "f:4:6"]  # type: ignore[union-attr]


@pytest.mark.parametrize("text", ["08", "1.5", "1e3", "2026-01-02", "12:30", "0o17", "1_000", "NULL", ".inf"])
def test_what_only_some_yaml_readers_convert_stays_text(text: str) -> None:
    assert plain(read_bytes(f"- {text}".encode(), "f")) == [text]


@pytest.mark.parametrize("word", ["yes", "No", "on", "OFF", "y", "N", "True", "FALSE"])
def test_a_word_that_some_readers_convert_to_a_boolean_is_refused(word: str) -> None:
    (only,) = mistakes(f"a: {word}")
    assert only.startswith("1:4: ")
    assert "write it in quotes" in only


def test_such_a_word_in_quotes_is_text() -> None:
    assert plain(read_bytes(b"a: 'yes'", "f")) == {"a": "yes"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "1:1: the file is empty"),
        ("# nothing but a remark\n", "1:1: the file is empty"),
        ("a: &x 1", "1:4: anchors are not allowed (&x); write the value out"),
        ("a: *x", "1:4: aliases are not allowed (*x); write the value out"),
        ("a: !!python/object:os.system {}", "1:4: tags are not allowed (!!python/object:os.system)"),
        ("a: !mine x", "1:4: tags are not allowed (!mine)"),
        ("a: !!str 12", "1:4: tags are not allowed (!!str)"),
        ("a: ! 12", "1:4: tags are not allowed (!)"),
        ("<<: {a: 1}", "1:1: merge keys (<<) are not allowed"),
        ("%YAML 1.1\n---\na: 1", "1:1: directives"),
        ("a: 1\n---\nb: 2", "2:1: a second document"),
        ("a: 1\na: 2", "2:1: duplicate key 'a' (first in line 1)"),
        ("x: {a: 1, a: 2}", "1:11: duplicate key 'a' (first in line 1)"),
        ("1: x", "1:1: a key must be a word, not the number 1; write it in quotes"),
        ("[a]: x", "1:1: a key must be a word, not a list"),
        ("a:\n\t- b", "2:1: a tab; indent with spaces"),
        ("a: 'b\nc: d\n", "1:4: this quote or bracket is never closed"),
        ("a: [b, c\n", "1:4: this quote or bracket is never closed"),
        ("a: {b: c\n", "1:4: this quote or bracket is never closed"),
        ("a: b\nc\nd: e", "2:1: not valid YAML: a ':' or indentation is missing after this"),
        ("a: 18446744073709551616", "1:4: a number of more than 64 bits"),
        ("a: " + "9" * 5000, "1:4: a number of more than 64 bits"),
        ('a: "\\UFFFFFFFF"', "1:5: not valid YAML"),
        ('a: "\\ud800"', "1:4: an escape for U+D800, which is not a printable character"),
        ('a: "\\e[31m"', "1:4: an escape for U+001B, which is not a printable character"),
        ("a: b\x07", "1:5: a control character that YAML forbids (U+0007)"),
        ("a: b\u2028c", "1:5: a line break that most editors do not show (U+2028)"),
        ("a: b\rc: d", "1:5: a line break that most editors do not show (U+000D)"),
        ("\ufeffa: b", "1:1: a byte order mark"),
        (b"a: b\nc: \xff", "2:4: byte 0xff is not UTF-8 text"),
        ("é: [\n", "1:4: this quote or bracket is never closed"),
    ],
)
def test_a_mistake_has_its_location_and_message(text: str | bytes, expected: str) -> None:
    (only,) = mistakes(text)
    assert only.startswith(expected)


def test_windows_line_ends_are_read_and_counted() -> None:
    assert plain(read_bytes(b"a: 1\r\nb: 2\r\n", "f")) == {"a": 1, "b": 2}
    assert mistakes("a: 1\r\nb: *x\r\n")[0].startswith("2:4: ")


def test_mistakes_that_leave_the_structure_readable_are_reported_together() -> None:
    found = mistakes("a: &x 1\na: yes\nb: !t [*x]\n1: 2\n")
    assert [one.split(" ")[0] for one in found] == ["1:4:", "2:1:", "2:4:", "3:4:", "3:8:", "4:1:"]


def test_an_alias_bomb_costs_nothing() -> None:
    rows = [f"a{number}: &a{number} [{', '.join([f'*a{number - 1}'] * 9)}]" for number in range(1, 10)]
    assert all("not allowed" in one for one in mistakes("a0: &a0 x\n" + "\n".join(rows)))


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_nesting_is_bounded(opening: str) -> None:
    (only,) = mistakes(opening * 100_000)
    assert only == f"1:{MAX_DEPTH * len(opening) + 1}: nested deeper than {MAX_DEPTH} levels"


def test_a_long_value_is_cut_in_messages() -> None:
    assert len(Node("x" * 1000, read_bytes(b"a", "f").location).kind) < 80


def test_a_file_that_is_missing_is_named_without_a_line(tmp_path: Path) -> None:
    with pytest.raises(TextError, match=r"^gone\.yaml: cannot be read: No such file"):
        read_file(tmp_path / "gone.yaml", "gone.yaml")


def test_a_directory_and_a_pipe_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(TextError, match="cannot be read: not a regular file"):
            read_file(path)


def test_a_file_beyond_the_bound_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_text("#" * (MAX_BYTES + 1))
    with pytest.raises(TextError, match=f"larger than {MAX_BYTES:,} bytes; split it"):
        read_file(path)


@pytest.mark.slow
def test_libyaml_and_pyyaml_read_everything_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(name: str, data: bytes) -> object:
        try:
            return nodes.read_bytes(data, name)
        except nodes.TextError as error:
            return error.mistakes

    assert nodes._FAST is not None, "this PyYAML is built without libyaml: use that of python3-yaml"
    tables = {str(path): path.read_bytes() for path in sorted((ROOT / "cases").rglob("*.yaml"))}
    assert tables
    texts = {**tables, **corpus.DOCUMENTS}
    both = {name: read(name, data) for name, data in texts.items()}
    monkeypatch.setattr(nodes, "_FAST", None)
    assert {name: read(name, data) for name, data in texts.items()} == both
