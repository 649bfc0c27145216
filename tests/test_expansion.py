"""Texts of tables: expansion of axes with order, splicing, locations and bounds; addresses and lengths."""

import pytest

from conformance.model.quantity import parse
from conformance.tables.expansion import MAX_CASES, bindings, label, slug, substitute
from conformance.yamldoc.nodes import Node, plain, read_bytes
from conformance.yamldoc.reader import Reader


def expand(text: str) -> tuple[list[Node], list[str]]:
    """The rows that a row with `each` expands to, and the mistakes."""
    row, reader = read_bytes(text.encode(), "f"), Reader()
    assert isinstance(row.value, dict)
    axes = reader.named(row.value.get("each"), "each")
    rest = Node({key: value for key, value in row.value.items() if key != "each"}, row.location)
    found = [substitute(rest, binding, reader, set()) for binding in bindings(axes, reader, row)]
    return found, [str(mistake).removeprefix("f:") for mistake in reader.mistakes]


def values(text: str) -> list[object]:
    """What `x` is in each expansion."""
    found, mistakes = expand(text)
    assert mistakes == []
    return [plain(field_x(node)) for node in found]


def field_x(row: Node) -> Node:
    assert isinstance(row.value, dict)
    return row.value["x"]


def test_the_last_axis_turns_fastest() -> None:
    assert values("x: $a-$b\neach: {a: [1, 2], b: [p, q]}") == ["1-p", "1-q", "2-p", "2-q"]


def test_a_row_without_axes_is_one_row() -> None:
    assert values("x: word") == ["word"]


def test_a_whole_placeholder_keeps_the_kind_of_its_value() -> None:
    assert values("x: $a\neach: {a: [1, [p], {k: v}, word]}") == [1, ["p"], {"k": "v"}, "word"]


def test_a_list_is_spliced_into_a_list() -> None:
    assert values("x: [A, $a, B]\neach: {a: [[], [C, D], E]}") == [["A", "B"], ["A", "C", "D", "B"], ["A", "E", "B"]]


def test_a_value_that_replaces_a_whole_text_keeps_its_location() -> None:
    found, _ = expand("x: $a\neach:\n  a: [p,\n      q]\n")
    assert [str(field_x(node).location) for node in found] == ["f:3:7", "f:4:7"]


def test_a_composed_text_has_the_location_of_its_value_and_names_the_whole_text() -> None:
    (first, _), _ = expand("x: $a pages\neach:\n  a: [p, q]\n")
    location = field_x(first).location
    assert str(location) == "f:3:7"
    assert location.within == " (in '$a pages' of line 1)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x: $b\neach: {aa: [1]}", "1:4: unknown axis $b (known: aa)"),
        ("x: $flga\neach: {flag: [1]}", "1:4: unknown axis $flga (did you mean flag?)"),
        ("x: ${flag}\neach: {flag: [1]}", "1:4: a $ without a name after it"),
        ("x: $5", "1:4: a $ without a name after it"),
        ("x: $a\neach: {a: []}", "2:11: axis 'a' has no values"),
        ("x: $a\neach: {a: word}", "2:11: axis 'a' must be a list, not the text 'word'"),
        ("x: $a\neach: {a: [1, 1]}", "2:15: duplicate value of axis 'a' (first in line 2)"),
        ("x: $a\neach: {a: [[p], $b]}", "2:17: a value of axis 'a' cannot contain $"),
        ("x: $a\neach: {a: [[p, $b]]}", "2:16: a value of axis 'a' cannot contain $"),
    ],
)
def test_a_mistake_in_an_axis_has_the_location_of_its_cause(text: str, expected: str) -> None:
    _, (only,) = expand(text)
    assert only.startswith(expected)


def test_the_number_of_cases_of_a_row_is_bounded() -> None:
    side = ", ".join(map(str, range(65)))
    _, (only,) = expand(f"x: $a$b\neach: {{a: [{side}], b: [{side}]}}")
    assert only.startswith(f"1:1: expands to more than {MAX_CASES} cases")


def test_a_number_of_cases_that_has_thousands_of_digits_is_a_mistake_too() -> None:
    axes = "\n".join(f"  a{number}: [0, 1]" for number in range(15000))
    _, (only,) = expand(f"x: word\neach:\n{axes}\n")
    assert only.startswith("1:1: expands to more than")


def test_text_cannot_grow_beyond_a_bound() -> None:
    _, (only,) = expand(f"x: {'$a' * 300}\neach: {{a: [{'w' * 300}]}}")
    assert only.startswith("1:4: becomes longer than")


def test_lists_cannot_grow_beyond_a_bound() -> None:
    _, (only,) = expand(f"x: [{', '.join(['$a'] * 300)}]\neach: {{a: [[{', '.join('pqrst')}]]}}")
    assert only.startswith("1:4: a list of more than")


def test_a_long_row_cannot_be_expanded_often() -> None:
    _, (only,) = expand(f"x: $a\nz: [{', '.join('p' * 3000)}]\neach: {{a: [{', '.join(map(str, range(500)))}]}}")
    assert "too long to be expanded 500 times" in only


@pytest.mark.parametrize(
    ("written", "expected"),
    [("[]", "none"), ("[A, B]", "A+B"), ("~", "none"), ("{k: v}", "k-v"), ("12", "12"), ("buf + 1", "buf + 1")],
)
def test_an_axis_value_reads_well_in_an_id(written: str, expected: str) -> None:
    assert label(read_bytes(written.encode(), "f")) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("REMOTE_WRITE alone", "remote-write-alone"), ("buf + 1 page", "buf-+-1-page"), ("--x--", "x"), ("é", "")],
)
def test_an_id_is_lower_case_words_joined_by_dashes(text: str, expected: str) -> None:
    assert slug(text) == expected


PAGE, HUGE = 4096, 2 << 20


def value(text: str | int) -> int:
    """The quantity on a machine with 4 KiB pages, where `buf` is 8 KiB at 0x10000 and `mr` has rkey 7."""
    objects = {("buf", ""): 0x10000, ("buf", "addr"): 0x10000, ("buf", "size"): 0x2000, ("mr", "rkey"): 7}
    return parse(text).evaluate(PAGE, HUGE, lambda name, property_: objects[name, property_])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (0, 0),
        (4097, 4097),
        ("0x10", 16),
        ("64 KiB", 65536),
        ("1MiB", 1 << 20),
        ("2 pages", 8192),
        ("1 hugepage", HUGE),
        ("1 byte", 1),
        ("buf", 0x10000),
        ("buf + 1 page - 1", 0x10FFF),
        ("buf.size+1", 0x2001),
        ("mr.rkey", 7),
        ("SIZE_MAX", (1 << 64) - 1),
        ("buf + -1", 0xFFFF),
        ("buf - -1", 0x10001),
        ("SIZE_MAX - 100", (1 << 64) - 101),
        ("18446744073709551615", (1 << 64) - 1),
    ],
)
def test_a_sum_of_terms_is_evaluated(text: str | int, expected: int) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(("text", "expected"), [("SIZE_MAX + 1", 0), ("-1", -1), ("buf - 128 KiB", -0x10000)])
def test_a_sum_wraps_as_size_t_does(text: str, expected: int) -> None:
    assert value(text) == expected % (1 << 64)


def test_pages_are_those_of_the_machine_that_runs_the_case() -> None:
    assert parse("2 pages").evaluate(65536, HUGE, lambda name, property_: 0) == 131072


def test_the_objects_of_a_sum_are_known_before_it_has_a_value() -> None:
    assert parse("buf.size + SIZE_MAX - mr.rkey").names == [("buf", "size"), ("mr", "rkey")]


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("", "empty"),
        ("   ", "it is blank"),
        ("buf +", "at '+'"),
        ("+ - 1", "not a sum"),
        ("1 + - - 1", "at '+ - - 1'"),
        ("1 2", "at '2'"),
        ("buf * 2", "at '* 2'"),
        ("1.5 pages", "at '.5 pages'"),
        ("buf.size.end", "at '.end'"),
        ("__import__('os')", "not a sum"),
        ("4 pagse", "unknown unit 'pagse' (did you mean page?)"),
        ("4 kib", "did you mean KiB?"),
        ("page", "a unit and needs a number"),
        ("007", "begins with 0"),
        ("18446744073709551616", "more than 64 bits"),
        ("0x10000000000000000", "more than 64 bits"),
        ("9" * 10000, "more than 64 bits"),
        ("16777216 TiB", "more than 64 bits"),
        ("18446744073709551615 pages", "more than 64 bits"),
        ("SIZE_MAX.addr", "has no property 'addr'"),
    ],
)
def test_an_invalid_quantity_is_refused_with_a_message(text: str, fragment: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as caught:
        parse(text)
    assert fragment in str(caught.value)


def test_a_long_text_is_cut_in_the_message() -> None:
    with pytest.raises(ValueError, match="not a sum") as caught:
        parse("1 " * 1000)
    assert len(str(caught.value)) < 250
