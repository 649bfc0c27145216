"""Misspelt keys of observations, which mypy does not find."""

import ast
from collections.abc import Iterator

from conformance.model.observation import Observation
from conformance.tables.suite import ROOT

KEYS = set(Observation.__annotations__)
NAMES = ("observed", "observation", "seen", "judged", "made")
FILES = [
    file
    for folder in ("conformance/judging", "conformance/execution", "conformance/sweeps", "trial")
    for file in sorted((ROOT / folder).glob("*.py"))
]


def asked_keys(source: str) -> Iterator[str]:
    """The keys in `observation.get("key")`, `observation.pop("key")` and `"key" in observation`."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr="get" | "pop" | "setdefault"),
                args=[ast.Constant(value=str(key)), *_],
            ) if name in NAMES:
                yield key
            case ast.Compare(
                left=ast.Constant(value=str(key)), ops=[ast.In() | ast.NotIn()], comparators=[ast.Name(id=name)]
            ) if name in NAMES:
                yield key


def test_a_key_that_is_asked_for_is_one_of_an_observation() -> None:
    found = {(str(file.relative_to(ROOT)), key) for file in FILES for key in asked_keys(file.read_text())}
    assert {(file, key) for file, key in found if key not in KEYS} == set()
