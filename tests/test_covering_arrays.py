"""Tests of the stored arrays of a model: each combination of a valid point occurs in them."""

import functools
import operator
import random
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conformance.errors import UserError
from conformance.model.combinations import Conditions, CoveringArray, Model, Point
from conformance.tables.model_reader import (
    ARRAYS,
    SLICE,
    array_path,
    format_array,
    points_in,
    read_array,
    read_model,
)
from conformance.yamldoc.nodes import Location, Node
from conformance.yamldoc.parsing import read_file
from conformance.yamldoc.reader import Reader
from samples import registry
from test_combinations import PAIRS, _combinations, array
from trial import answers
from trial.answers import TABLE, TABLES, answered, current_model, refuse_unused


@pytest.mark.parametrize(
    "name, strength",
    [
        ("pairs", 2),
        ("triples", 3),
        ("binds", 3),
        ("changes", 3),
        ("advice", 3),
        ("registrations", 3),
    ],
)
def test_each_combination_of_a_valid_point_occurs_in_the_stored_array(name, strength):
    points = array(name)
    conditions = Conditions(points.model)
    faultless = [point for point in points.points if not conditions.faults(point)]
    covered = {False: _Occurrences(points.points), True: _Occurrences(faultless)}
    for point in _valid_points(points, conditions):
        granted = not conditions.faults(point)
        combinations = _combinations([point], strength)
        assert all(combination in covered[granted] for combination in combinations)


class _Occurrences:
    """The points in which each value of a parameter occurs, as the bits of an integer."""

    def __init__(self, points: Sequence[Point]) -> None:
        self._points: dict[tuple[int, str], int] = {}
        for number, point in enumerate(points):
            for value in enumerate(point):
                self._points[value] = self._points.get(value, 0) | 1 << number

    def __contains__(self, combination: tuple[Any, ...]) -> bool:
        """Whether a point has all values of the combination."""
        points = [self._points.get(value, 0) for value in zip(*combination, strict=True)]
        return functools.reduce(operator.and_, points) != 0


def _valid_points(points: CoveringArray, conditions: Conditions) -> list[Point]:
    """Returns points that are not in the array: stored points with a few values drawn anew. Half of them have no
    fault."""
    chance = random.Random(7)
    drawn: dict[bool, list[Point]] = {True: [], False: []}
    while min(map(len, drawn.values())) < 150:
        point = list(chance.choice(points.points))
        for number in chance.sample(range(len(point)), 4):
            point[number] = chance.choice(points.model.parameters[number].labels)
        if conditions.valid(tuple(point)) and tuple(point) not in points.points:
            drawn[not conditions.faults(tuple(point))].append(tuple(point))
    return [*drawn[True], *drawn[False]]


STORED = [(table, name) for table in TABLES for name in ARRAYS if array_path(table, name).exists()]


def stem_or_name(value: Any) -> str:
    return str(getattr(value, "stem", value))


@pytest.mark.parametrize(
    "table, name", [stored for stored in STORED if stored[1] != SLICE], ids=stem_or_name
)
def test_the_stored_answers_are_those_of_the_reference(table, name):
    model = current_model(table)
    stored = array_path(table, name).read_text().splitlines()
    anew = answered(model, ARRAYS[name], points_in(model, stored[1:]))
    assert format_array(anew).splitlines() == stored


@pytest.mark.parametrize(
    "table", [table for table, name in STORED if name == SLICE], ids=stem_or_name
)
def test_a_slice_has_points_of_the_triples_with_their_answers(table):
    model = current_model(table)
    triples, chosen = _stored_answers(model, table, "triples"), _stored_answers(model, table, SLICE)
    assert chosen.items() <= triples.items()


def _stored_answers(model: Model, table: Path, name: str) -> dict[Point, str]:
    """Returns the points of a stored array with their answers, as text."""
    reader = Reader()
    stored = read_array(reader, Node("", Location(table.name, 1, 1)), model, table, name)
    assert stored is not None, reader.mistakes
    return {point: repr(stored.answer(number)) for number, point in enumerate(stored.points)}


def test_granted_and_refused_points_are_the_whole_array():
    conditions = Conditions(PAIRS.model)
    granted, refused = PAIRS.part("granted"), PAIRS.part("refused")
    assert {*granted.points, *refused.points} == {*PAIRS.points}
    assert not any(map(conditions.faults, granted.points))
    assert all(map(conditions.faults, refused.points))
    number = PAIRS.points.index(refused.points[3])
    assert refused.answer(3) == PAIRS.answer(number)


def test_a_value_that_no_code_carries_out_is_a_mistake_with_its_location(tmp_path):
    text = TABLE.read_text()
    changed = text.replace("      UD: datagrams\n", "      UD: datagrams\n      RD: reliable\n")
    line = changed.splitlines().index("      RD: reliable") + 1
    table = tmp_path / "model.yaml"
    table.write_text(changed)
    with pytest.raises(UserError) as raised:
        current_model(table)
    assert f"cases/access/model.yaml:{line}:" in str(raised.value)
    assert "no code carries out transport=RD; if it does, add it to conformance/" in str(
        raised.value
    )


@pytest.mark.parametrize(
    "written, slip, message",
    [
        ("      UD: datagrams\n", "      UD: datagrams\n      RD: reliable\n", "out transport=RD;"),
        ("    polling:\n", "    poling:\n", "the parameter 'poling'"),
    ],
)
def test_what_no_code_carries_out_is_named_before_the_array(tmp_path, written, slip, message):
    table = tmp_path / "model.yaml"
    table.write_text(TABLE.read_text().replace(written, slip))
    root = read_file(table)
    assert isinstance(root.value, dict)
    reader = Reader()
    assert read_model(reader, root.value["model"], "access/model", registry()) is None
    assert message in str(reader.mistakes[0])


def test_a_misspelt_capability_of_a_model_is_one_mistake(tmp_path):
    """Its right name stands in `rare`, too."""
    table = tmp_path / "model.yaml"
    table.write_text(TABLE.read_text().replace("\n    flush_global: ", "\n    flush_globalx: "))
    root, reader = read_file(table), Reader()
    assert isinstance(root.value, dict)
    assert read_model(reader, root.value["model"], "access/model", registry()) is None
    (mistake,) = reader.mistakes
    assert mistake.message == "unknown capability 'flush_globalx' (did you mean flush_global?)"


def test_an_array_of_another_version_is_named_with_the_command_that_makes_it(tmp_path):
    """That command makes only the arrays of this model: all of them take minutes."""
    model, reader = replace(current_model(), digest="0"), Reader()
    node = Node("", Location("model.yaml", 1, 1))
    assert read_array(reader, node, model, TABLE, "pairs") is None
    assert "another version of the model" in str(reader.mistakes[0])
    assert str(reader.mistakes[0]).endswith("make it anew: ./rdma-cts trial arrays --array model")


def test_arrays_are_chosen_by_their_name_or_by_their_model(monkeypatch):
    made: list[tuple[str, str]] = []
    monkeypatch.setattr(
        answers, "_make", lambda table, _, name, anew: made.append((table.stem, name))
    )
    answers.execute(Namespace(array=["advice", "slice"], anew=False))
    assert made == [
        ("model", "slice"),
        ("binds", "slice"),
        ("changes", "slice"),
        ("advice", "pairs"),
        ("advice", "triples"),
        ("registrations", "slice"),
    ]


def test_each_model_is_read_before_the_first_array_is_made(monkeypatch):
    def read(table: Path) -> None:
        if table.stem == "registrations":
            raise UserError("a mistake")

    monkeypatch.setattr(answers, "current_model", read)
    monkeypatch.setattr(answers, "_make", lambda *_: pytest.fail("an array is made"))
    with pytest.raises(UserError, match="a mistake"):
        answers.execute(Namespace(array=[], anew=False))


def test_codes_of_no_fault_are_a_mistake(tmp_path):
    table = tmp_path / "advice.yaml"
    text = TABLE.with_name("advice.yaml").read_text()
    table.write_text(text.replace("    right: [EPERM, EFAULT]\n", "    rite: [EPERM]\n"))
    with pytest.raises(UserError, match="'rite' is no fault of the model"):
        current_model(table)


def test_a_constraint_that_leaves_no_point_with_a_value_is_a_mistake(tmp_path):
    text = TABLE.read_text()
    table = tmp_path / "model.yaml"
    table.write_text(text.replace("  excluded:\n", "  excluded:\n    none: transport=UC\n"))
    model = current_model(table)
    points = [*filter(Conditions(model).valid, PAIRS.points)]
    line = text.splitlines().index("      UC: an unreliable connection") + 1
    message = rf"^cases/access/model.yaml:{line}:\d+: no valid point has transport=UC"
    with pytest.raises(UserError, match=message):
        refuse_unused(model, points, table)
    refuse_unused(PAIRS.model, PAIRS.points)


def test_a_point_about_which_model_and_reference_disagree_says_what_to_add(monkeypatch):
    model = current_model(TABLE.with_name("advice.yaml"))
    stored = (TABLE.parent / "advice-pairs.array").read_text().splitlines()
    points = points_in(model, stored[1:])
    refused = next(point for point in points if Conditions(model).faults(point))
    monkeypatch.setattr(Conditions, "faults", lambda *_: [])
    with pytest.raises(UserError, match="the reference refuses it: add a line to `excluded` or"):
        answered(model, 2, [refused])
