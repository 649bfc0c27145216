"""A seeded violation: a reference or an alteration of real calls that breaks one rule; with its name and that rule."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

_RULE, _DEPARTS_FROM = "violated_rule", "departs_from"
_Kind = TypeVar("_Kind")


@dataclass(frozen=True)
class Violation:
    """`kind`, a reference or an alteration of real calls, violates `rule`; `about` describes how.

    A permitted variant keeps `rule`, and does otherwise than the rules `departs_from` recommend. They are of the level
    should, and their cases fail on it rightly.
    """

    name: str
    rule: str
    about: str
    kind: type[Any]
    departs_from: tuple[str, ...] = ()


def violates(rule: str) -> Callable[[type[_Kind]], type[_Kind]]:
    """Marks a class as a seeded violation of a rule; the docstring of the class describes what it does."""

    def mark(kind: type[_Kind]) -> type[_Kind]:
        setattr(kind, _RULE, rule)
        return kind

    return mark


def departs_from(*rules: str) -> Callable[[type[_Kind]], type[_Kind]]:
    """Marks a permitted variant with the rules of the level should that it does not follow."""

    def mark(kind: type[_Kind]) -> type[_Kind]:
        setattr(kind, _DEPARTS_FROM, rules)
        return kind

    return mark


def violations_in(modules: Iterable[ModuleType]) -> Iterator[Violation]:
    """The violations that the modules define, in the order of their definition."""
    for module in modules:
        for found in vars(module).values():
            if isinstance(found, type) and _RULE in vars(found) and found.__module__ == module.__name__:
                name = re.sub(r"(?<!^)(?=[A-Z])", "-", found.__name__).lower()
                departs = vars(found).get(_DEPARTS_FROM, ())
                yield Violation(name, getattr(found, _RULE), (found.__doc__ or "").strip(), found, departs)
