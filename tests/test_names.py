"""Tests that each name at the top level of a module is assigned only once, and that no key of an observation is
misspelt; mypy does not detect misspelt keys."""

import ast
from collections import Counter
from collections.abc import Iterator

from conformance.model.observation import AccessSeen, Observation
from conformance.tables.suite import ROOT
from kinds import words

FOLDERS = words(
    "conformance fixtures reports trial commands ci tests",
)
FILES = sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))


def assigned(source: str) -> Iterator[str]:
    """Yields the names that top-level statements of a module assign, define or declare, one for each statement."""
    for statement in ast.parse(source).body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            yield statement.name
        if isinstance(statement, ast.Assign):
            targets = statement.targets
        else:
            targets = []
        if isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        for target in targets:
            yield from (
                node.id
                for node in ast.walk(target)
                if isinstance(node, ast.Name) and type(node.ctx) is ast.Store
            )


def test_no_module_assigns_a_name_twice():
    times = {str(file.relative_to(ROOT)): Counter(assigned(file.read_text())) for file in FILES}
    assert [
        (file, name) for file, names in times.items() for name in names if names[name] > 1
    ] == []


KEYS = {*Observation.__annotations__, *AccessSeen.__annotations__}
OBSERVATIONS = ("observed", "observation", "seen", "judged", "made")
JUDGING = [
    file
    for folder in ("conformance/judging", "conformance/execution", "conformance/sweeps", "trial")
    for file in sorted((ROOT / folder).glob("*.py"))
]


def used_keys(source: str) -> Iterator[str]:
    """Yields the keys in `observation.get("key")`, `observation.pop("key")` and `"key" in observation`."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr="get" | "pop" | "setdefault"),
                args=[ast.Constant(value=str(key)), *_],
            ) if name in OBSERVATIONS:
                yield key
            case ast.Compare(
                left=ast.Constant(value=str(key)),
                ops=[ast.In() | ast.NotIn()],
                comparators=[ast.Name(id=name)],
            ) if name in OBSERVATIONS:
                yield key


def test_a_key_that_is_read_is_a_key_of_an_observation():
    keys_read = {
        (str(file.relative_to(ROOT)), key)
        for file in JUDGING
        for key in used_keys(file.read_text())
    }
    assert {(file, key) for file, key in keys_read if key not in KEYS} == set()
