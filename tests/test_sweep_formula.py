"""Tests of points, predicates over points, and the formulas that describe deviating points."""

from array import array
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance import cache
from conformance.model import predicate
from conformance.model.record import Axes, PointsFile
from conformance.model.space import Axis, Space
from conformance.older_python import zip
from conformance.results.conclusions import format_points
from conformance.results.points import deviations
from conformance.sweeps import formula
from conformance.sweeps.outcome import OUTSIDE, Outcome, Points
from conformance.verbs import ENUMS

FLAGS = ENUMS["ibv_access_flags"].short_names
BITS = ("none", "bit10", "bit11", "bit30")
SMALL = Space(
    (Axis("access", flags=FLAGS[:4]), Axis("unknown", BITS, tuple((bit,) for bit in BITS))),
)
WHOLE = Space((Axis("access", flags=FLAGS), SMALL.axes[1]))


def column(text: str, space: Space = SMALL) -> int:
    return predicate.column(predicate.parse(text, space, {}), space, lambda name: name == "odp")


def table(text: str, care: str = "", space: Space = SMALL) -> bytes:
    if care:
        counts = column(care, space)
    else:
        counts = space.everywhere()
    return space.bytes_of(counts + (counts & column(text, space)))


@given(st.integers(0, SMALL.size - 1))
def test_a_point_is_found_by_its_text(point):
    assert SMALL.parse(SMALL.text(point)) == point
    assert SMALL.point(SMALL.values(point)) == point


@pytest.mark.parametrize(
    "text, access, unknown, expected",
    [
        ("REMOTE_WRITE & !LOCAL_WRITE", "REMOTE_WRITE", "none", True),
        ("REMOTE_WRITE & !LOCAL_WRITE", "LOCAL_WRITE+REMOTE_WRITE", "none", False),
        ("LOCAL_WRITE | bit10 & REMOTE_READ", "LOCAL_WRITE", "none", True),
        ("(LOCAL_WRITE | bit10) & REMOTE_READ", "LOCAL_WRITE", "none", False),
        ("access.REMOTE_READ", "REMOTE_READ", "bit10", True),
        ("access=REMOTE_READ", "REMOTE_READ+LOCAL_WRITE", "bit10", False),
        ("unknown!=none", "none", "bit30", True),
        ("unknown={bit10, bit30}", "none", "bit30", True),
        ("unknown!={bit10, bit30}", "none", "bit11", True),
        ("odp", "none", "none", True),
        ("atomics", "none", "none", False),
        ("!!odp", "none", "none", True),
    ],
)
def test_a_predicate_is_true_at_the_expected_points(text, access, unknown, expected):
    point = SMALL.parse(f"access={access},unknown={unknown}")
    assert bool(column(text) >> 8 * point & 1) is expected


def test_a_flag_that_no_axis_has_is_false_in_a_named_predicate():
    named = {"writes_atomically": "REMOTE_ATOMIC | REMOTE_WRITE"}
    narrow = Space((Axis("access", flags=("REMOTE_WRITE", "REMOTE_READ")),))
    parsed = predicate.parse("writes_atomically", narrow, named)
    assert predicate.column(parsed, narrow, bool) == column("REMOTE_WRITE", narrow)


@pytest.mark.parametrize(
    "text, named, why",
    [
        ("(" * 100 + "odp" + ")" * 100, {}, "nested too deeply"),
        ("!" * 100 + "odp", {}, "nested too deeply"),
        ("ON_DEMAND", {"writes": "ON_DEMAND"}, "unknown word 'ON_DEMAND'"),
        ("wrong", {"wrong": "REMOTE_ATOMC"}, "unknown word 'REMOTE_ATOMC'"),
        ("one", {"one": "two & odp", "two": "one"}, "refers to itself"),
    ],
    ids=range(5),
)
def test_an_invalid_predicate_is_refused(text, named, why):
    with pytest.raises(ValueError, match=why):
        predicate.parse(text, SMALL, named)


@pytest.mark.slow
@settings(max_examples=20)
@given(st.lists(st.integers(0, 2), min_size=SMALL.size, max_size=SMALL.size))
def test_a_formula_describes_exactly_the_marked_points(marks):
    text, _ = formula.describe(SMALL, bytes(marks))
    if text in (formula.ALWAYS, formula.NEVER):
        assert (1 if text == formula.ALWAYS else 2) not in marks
        return
    marked = SMALL.bytes_of(column(text))
    assert all(bool(marked[point]) == (mark == 2) for point, mark in enumerate(marks) if mark)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text, care",
    [
        ("MW_BIND & RELAXED_ORDERING", ""),
        ("ZERO_BASED", "!(REMOTE_WRITE & !LOCAL_WRITE) & unknown=none"),
        ("HUGETLB & unknown!=none", ""),
        ("HUGETLB & unknown=bit10 | MW_BIND & unknown=none", ""),
        ("ON_DEMAND & !HUGETLB | FLUSH_GLOBAL", ""),
        (" | ".join(FLAGS), ""),
        (" & ".join(FLAGS), ""),
    ],
)
def test_a_formula_over_all_flags_is_as_short_as_possible(text, care):
    output, minimal = formula.describe(WHOLE, table(text, care, WHOLE))
    assert minimal
    assert {frozenset(term.split("&")) for term in output.replace(" ", "").split("|")} == {
        frozenset(term.split("&")) for term in text.replace(" ", "").split("|")
    }


def test_a_set_without_a_pattern_is_reported_exactly_and_not_called_minimal():
    pairs = zip(FLAGS[0:10:2], FLAGS[1:10:2], strict=True)
    text = " | ".join(f"{first} & {other}" for first, other in pairs)
    output, minimal = formula.describe(WHOLE, table(text, "", WHOLE))
    assert not minimal
    assert column(output, WHOLE) == column(text, WHOLE)


def test_a_flag_that_two_axes_have_is_reported_with_its_axis():
    two = Space(
        (
            Axis("old", ("none", "LOCAL_WRITE"), ((), ("LOCAL_WRITE",))),
            Axis("new", flags=("LOCAL_WRITE",)),
        ),
    )
    assert formula.describe(two, bytes([1, 2, 1, 2])) == ("new.LOCAL_WRITE", True)
    assert formula.describe(two, bytes([1, 1, 2, 2])) == ("old=LOCAL_WRITE", True)


def points(*marks: str) -> Points:
    """Returns four points of two flags: P passes, F fails, U is unsupported, R expects a refusal, - is left out."""
    kinds = {
        "P": Outcome("PASS", "success", "fine", "REG-17"),
        "F": Outcome("FAIL", "success", "refused", "REG-17"),
        "U": Outcome("UNSUPPORTED", "success", "refused", "REG-17"),
        "R": Outcome("PASS", "refused", "fine", "REG-15"),
    }
    used = [kind for kind in kinds if kind in marks]
    index = array("H", [OUTSIDE if mark == "-" else used.index(mark) for mark in marks])
    return Points(Space((Axis("access", flags=("A", "B")),)), [kinds[kind] for kind in used], index)


@pytest.mark.parametrize(
    "marks, when, of",
    [
        ("PFPF", "A", 4),
        ("PFRF", "A", 3),
        ("PFUU", "A", 2),
        ("PF-R", "A", 2),
        ("FFFF", "always", 4),
        ("PPPF", "A & B", 4),
    ],
)
def test_points_with_another_expectation_or_without_support_do_not_count(marks, when, of):
    points_read = points(*marks)
    number = [outcome.verdict for outcome in points_read.outcomes].index("FAIL")
    explained = formula.explain(points_read, number)
    assert (explained.when, explained.of) == (when, of)
    assert points_read.index[explained.smallest] == number


def test_the_smallest_point_has_the_fewest_flags():
    points_read = points(*"PPFF")
    assert points_read.space.text(formula.explain(points_read, 1).smallest) == "access=B"


def test_formulas_are_cached_for_the_next_process(monkeypatch, tmp_path):
    monkeypatch.setenv(cache.DIRECTORY, str(tmp_path))
    formula._found_before.cache_clear()
    description = formula.describe(SMALL, table("LOCAL_WRITE"))
    formula._found_before.cache_clear()
    monkeypatch.setattr(
        formula._Set,
        "_products",
        lambda _: pytest.fail("the formula was searched again"),
    )
    assert formula.describe(SMALL, table("LOCAL_WRITE")) == description
    formula._found_before.cache_clear()


def test_without_sympy_the_formula_says_that_sympy_is_missing(monkeypatch):
    monkeypatch.setattr(formula, "find_spec", lambda _: None)
    output, minimal = formula.describe(SMALL, table("LOCAL_WRITE"))
    assert "sympy is not installed" in output
    assert not minimal


@given(st.lists(st.sampled_from("PFUR-"), min_size=4, max_size=4))
def test_points_are_read_as_they_were_written(marks):
    points_read = points(*marks)
    assert Points.of_data(points_read.as_data("reg_mr/a/b")) == points_read


@pytest.mark.parametrize(
    "change",
    [{"index": "AAAA"}, {"axes": {}}, {"outcomes": []}, {"index": "?"}],
)
def test_points_that_do_not_fit_are_refused(change):
    with pytest.raises(ValueError, match=r"points that|padding|base64|character|data"):
        Points.of_data(cast(PointsFile, {**points(*"PFPF").as_data("a")} | change))


@pytest.mark.parametrize(
    "marks, text",
    [
        ("P-- -F- --P", "those with pd=own; pd=own and flags=domain always occur together"),
        ("F-- -F- --P", "those with pd!=other; pd=other and flags=both always occur together"),
        ("P-- -FF --P", "those with pd=own"),
        ("P-- -F- -P-", "those with pd=own"),
        ("P-P -F- P-P", "those with pd=own; pd=own and flags=domain always occur together"),
        ("PPP FFF PPP", "those with pd=own"),
    ],
)
def test_values_that_no_point_separates_from_those_of_the_formula_are_named(marks, text):
    axes: Axes = {"pd": ["same", "own", "other"], "flags": ["none", "domain", "both"]}
    outcomes = [Outcome(verdict, "", "", "REG-17") for verdict in ("PASS", "FAIL")]
    numbers = {"P": 0, "F": 1, "-": OUTSIDE}
    index = array("H", [numbers[mark] for mark in marks if mark != " "])
    (deviation,) = deviations(Points(Space.of_data(axes), outcomes, index), "")
    assert format_points(deviation).partition(": ")[2] == text
