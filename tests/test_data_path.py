"""The alterations of the data path, on the provider in Python that carries out requests on the reference."""

import ctypes
import types
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, cast

import pytest

from conformance.errors import UserError
from conformance.model.case import Case
from conformance.tables.suite import load_suite
from conformance.tables.tiers import DEFAULT, of_tier
from kinds import rows as rows_of_text
from reference.bench import ReferenceBench
from trial.data_path.alteration import DataPath
from trial.data_path.emulated import altered_bench
from trial.data_path.memory import content_at, put
from trial.mutant_table import mutants_of
from trial.mutants.data_path import DATA_PATH_ALTERATIONS
from trial.running import on_reference
from trial.trying import KILLED, SURVIVED, try_violation
from trial.violation import Violation


@cache
def rows() -> list[Case]:
    return [case for case in of_tier(load_suite().cases, DEFAULT) if not case.sweep]


@pytest.mark.parametrize("violation", DATA_PATH_ALTERATIONS, ids=lambda each: each.name)
def test_no_alteration_fails_by_itself(violation: Violation) -> None:
    """An alteration that fails by itself raises its exception after the first row of its rule."""
    own = (case for case in rows() if violation.rule in case.rules)
    assert list(on_reference(islice(own, 1), violation.kind))


def test_the_real_functions_are_put_back() -> None:
    with closing(ReferenceBench()) as bench:
        alteration = DataPath()
        provider = cast(Any, altered_bench(alteration, bench)).real.provider
        real = [ctypes.cast(function, ctypes.c_void_p).value for function in provider._kept]
        assert set(real).isdisjoint(provider._context)
        alteration.restore()
        assert set(real) <= set(provider._context)


def test_absent_memory_is_neither_read_nor_written() -> None:
    assert content_at(16, 4) is None
    assert put(16, b"abcd") is False


def _tried(violation: Violation, *rules: str) -> str:
    cases = [case for case in rows() if set(rules) & set(case.rules)]
    assert cases
    return try_violation(violation, cases).outcome


def test_cases_pass_on_the_reference_behind_unaltered_functions() -> None:
    nothing = Violation("nothing", "REG-20", "Nothing is altered.", DataPath)
    assert _tried(nothing, "REG-20", "BIND-02", "BIND-15", "REG-07") == SURVIVED


@pytest.mark.parametrize(
    "name",
    ["writes-arrive-late", "new-value-returned", "ended-key-reads", "refused-reads-leak", "failed-binds-succeed"],
)
def test_alterations_on_the_reference_are_seen_by_the_cases_of_their_rule(name: str) -> None:
    violation = next(each for each in DATA_PATH_ALTERATIONS if each.name == name)
    assert _tried(violation, violation.rule) == KILLED


class Made:
    """The class that the rows of these tests change."""

    size = 1

    def __init__(self) -> None:
        self.setup()

    def setup(self) -> None:
        """Does nothing: the class has no state."""

    def answer(self, number: int, unit: int = 1) -> int:
        """Returns a multiple of the size."""
        return number * unit * self.size


def made(folder: Path, text: str) -> Iterator[Violation]:
    """The mutants of a package that has only this table."""
    (folder / "topic.yaml").write_text(text)
    package = types.ModuleType("package")
    package.__file__ = str(folder / "__init__.py")
    return mutants_of(package, Made, ())


def row_of(text: str) -> str:
    return f"- some-name: A sentence.\n  {text}\n".replace("\\n", "\n")


@pytest.mark.parametrize(("row", "answer"), [row for row in rows_of_text("mutants_in_tables") if row[1].isdigit()])
def test_a_row_replaces_members(tmp_path: Path, row: str, answer: str) -> None:
    (violation,) = made(tmp_path, row_of(row))
    assert (violation.name, violation.rule, violation.about) == ("some-name", "R-1", "A sentence.")
    assert violation.kind().answer(10, 3) == int(answer)


def test_marks_of_a_row(tmp_path: Path) -> None:
    row = "- one: A sentence.\n  R-1 permitted answer: 7\n- two: Another.\n  R-2 blind answer: 8\n"
    found = list(made(tmp_path, row + "  also: [R-3, R-4 blind three]\n"))
    assert [(each.name, each.rule, each.written, each.permitted) for each in found] == [
        ("one", "R-1", "", True),
        ("two", "R-2", "blind", False),
        ("two", "R-3", "", False),
        ("three", "R-4", "blind", False),
    ]


@pytest.mark.parametrize(("row", "said"), [row for row in rows_of_text("mutants_in_tables") if row[1][0] == ":"])
def test_a_mistake_is_located(tmp_path: Path, row: str, said: str) -> None:
    place, _, message = said.partition(" ")
    with pytest.raises(UserError) as raised:
        list(made(tmp_path, row_of(row)))
    assert place in raised.value.message
    assert message in raised.value.message
