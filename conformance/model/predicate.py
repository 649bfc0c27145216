"""Parses Boolean expressions about the points of a space: `REMOTE_WRITE & !LOCAL_WRITE`, `new.ON_DEMAND | odp`.

A word is a flag or value of an axis (`axis.WORD` if several axes have this word), a capability of the device, or a
named predicate. In a named predicate, a flag that no axis has is false. Whole values are compared by `axis=value`,
`axis!=value` and `axis={one,other}`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Union

from conformance.model import capability
from conformance.model.space import Axis, Space
from conformance.verbs import ENUMS
from conformance.yamldoc.nodes import quoted
from conformance.yamldoc.reader import suggestion

_VALUE = r"[^\s&|()!=,{}]+"
_TOKEN = re.compile(
    r"\s*(?:(?P<symbol>[&|!()])|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    rf"(?P<rest>\.\w+|\s*!?=\s*(?:{_VALUE}|\{{\s*{_VALUE}(?:\s*,\s*{_VALUE})*\s*\}}))?)",
)
_MAX_DEPTH = 40
_FLAGS = frozenset(flag for enum in ENUMS.values() if enum.flags for flag in enum.short_names)


@dataclass(frozen=True)
class Word:
    """True if the value of the axis at the point contains the word."""

    axis: str
    word: str
    exact: bool = False  # the value must be equal to the word


@dataclass(frozen=True)
class HasCapability:
    capability: str


@dataclass(frozen=True)
class Not:
    part: Expression


@dataclass(frozen=True)
class And:
    parts: tuple[Expression, ...]


@dataclass(frozen=True)
class Or:
    """True if at least one part is true; false without parts."""

    parts: tuple[Expression, ...]


Expression = Union[Word, HasCapability, Not, And, Or]


def parse(text: str, space: Space, named: Mapping[str, str]) -> Expression:
    """Returns the expression that `text` describes. `named` has the texts of named predicates. Raises ValueError with a
    message for the user."""
    return _Parser(text, space, named).read()


class _Parser:
    def __init__(self, text: str, space: Space, named: Mapping[str, str], depth: int = 0) -> None:
        if depth > _MAX_DEPTH:
            raise ValueError("nested too deeply, or a predicate refers to itself")
        self._text, self._space, self._named, self._depth = text, space, named, depth
        self._tokens = list(_tokens(text))
        self._at = 0

    def read(self) -> Expression:
        expression = self._or(0)
        if self._at < len(self._tokens):
            raise ValueError(
                f"{quoted(self._text)}: missing operator before {self._tokens[self._at][0]!r}",
            )
        return expression

    def _next(self) -> str:
        if self._at < len(self._tokens):
            return self._tokens[self._at][0]
        return ""

    def _or(self, depth: int) -> Expression:
        return self._joined("|", Or, lambda: self._joined("&", And, lambda: self._part(depth)))

    def _joined(
        self,
        symbol: str,
        kind: type[And | Or],
        read: Callable[[], Expression],
    ) -> Expression:
        parts = [read()]
        while self._next() == symbol:
            self._at += 1
            parts.append(read())
        if len(parts) == 1:
            return parts[0]
        return kind(tuple(parts))

    def _part(self, depth: int) -> Expression:
        if depth > _MAX_DEPTH:
            raise ValueError("nested too deeply")
        if self._at >= len(self._tokens):
            raise ValueError(f"{quoted(self._text)} ends where a word is expected")
        token, rest = self._tokens[self._at]
        self._at += 1
        if token == "!":
            return Not(self._part(depth + 1))
        if token == "(":
            inner = self._or(depth + 1)
            if self._next() != ")":
                raise ValueError(f"{quoted(self._text)}: missing )")
            self._at += 1
            return inner
        if token in ("&", "|", ")"):
            raise ValueError(f"{quoted(self._text)}: {token!r} where a word is expected")
        return self._word(token, rest)

    def _word(self, name: str, rest: str) -> Expression:
        axes = {axis.name: axis for axis in self._space.axes}
        if rest.startswith("."):
            return self._qualified(name, rest[1:], axes)
        if rest:
            relation, _, values = rest.partition("=")
            equal = self._equality(
                name,
                [word.strip() for word in values.strip(" {}").split(",")],
                axes,
            )
            if relation.strip() == "!":
                return Not(equal)
            return equal
        if name in self._named:
            return _Parser(self._named[name], self._space, self._named, self._depth + 1).read()
        if name in capability.NAMES:
            return HasCapability(name)
        holders = [axis.name for axis in self._space.axes if axis.knows(name)]
        if len(holders) > 1:
            raise ValueError(
                f"{name!r} is ambiguous: the axes {' and '.join(holders)} have it; write {holders[0]}.{name}",
            )
        if not holders and self._depth and name in _FLAGS:
            return Or(())
        if not holders:
            words = [
                *(word for axis in self._space.axes for word in _words(axis)),
                *self._named,
                *capability.NAMES,
            ]
            raise ValueError(f"unknown word {name!r}{suggestion(name, words)}")
        return Word(holders[0], name)

    def _qualified(self, name: str, word: str, axes: Mapping[str, Axis]) -> Expression:
        if name not in axes:
            raise ValueError(f"unknown axis {name!r}{suggestion(name, list(axes))}")
        if word in self._named:  # a named predicate, applied to this axis only
            return _Parser(
                self._named[word],
                Space((axes[name],)),
                self._named,
                self._depth + 1,
            ).read()
        if not axes[name].knows(word):
            raise ValueError(f"axis {name!r} has no {word!r}{suggestion(word, _words(axes[name]))}")
        return Word(name, word)

    def _equality(self, name: str, labels: list[str], axes: Mapping[str, Axis]) -> Expression:
        if name not in axes:
            raise ValueError(f"unknown axis {name!r}{suggestion(name, list(axes))}")
        for label in labels:
            axes[name].value(label)  # raises ValueError if the axis does not have the value
        words = tuple(Word(name, label, exact=True) for label in labels)
        if len(words) == 1:
            return words[0]
        return Or(words)


def _words(axis: Axis) -> list[str]:
    return list(axis.flags) or sorted({word for words in axis.words for word in words})


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Yields (symbol or word, qualifier of the word such as `.WORD` or `=value`). Raises ValueError."""
    position = 0
    while text[position:].strip():
        match = _TOKEN.match(text, position)
        if not match:
            rest = text[position:].strip()
            raise ValueError(
                f"{quoted(text)} is not an expression of words, &, |, ! and () (at {quoted(rest)})",
            )
        yield match["symbol"] or match["name"], (match["rest"] or "").strip()
        position = match.end()
    if position == 0:
        raise ValueError("an empty expression")


def column(expression: Expression, space: Space, declared: Callable[[str], bool]) -> int:
    """Returns the column of the points at which the expression is true. `declared` is whether the device declares a
    capability."""
    if isinstance(expression, Word):
        axis = space.axis(expression.axis)
        if expression.exact:
            value = axis.value(expression.word)
            return space.column(axis.name, bytes(index == value for index in range(axis.size)))
        return space.column(axis.name, axis.truths(expression.word))
    if isinstance(expression, HasCapability):
        if declared(expression.capability):
            return space.everywhere()
        return 0
    if isinstance(expression, Not):
        return space.everywhere() ^ column(expression.part, space, declared)
    columns = [column(part, space, declared) for part in expression.parts]
    if columns:
        result = columns[0]
    else:
        result = 0
    for item in columns[1:]:
        if isinstance(expression, And):
            result = result & item
        else:
            result = result | item
    return result


def capabilities_in(expression: Expression) -> set[str]:
    if isinstance(expression, HasCapability):
        return {expression.capability}
    if isinstance(expression, Word):
        return set()
    parts = (expression.part,) if isinstance(expression, Not) else expression.parts
    return {name for part in parts for name in capabilities_in(part)}
