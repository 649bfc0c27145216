"""A seeded violation: a reference with one promise broken, by name, with the rule that it breaks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import TypeVar

from reference.device import Device

_RULE = "violated_rule"
_Kind = TypeVar("_Kind", bound=Device)


@dataclass(frozen=True)
class Violation:
    """`kind` is the reference with the promise of `rule` broken, `about` one line on what it does."""

    name: str
    rule: str
    about: str
    kind: type[Device]


def violates(rule: str) -> Callable[[type[_Kind]], type[_Kind]]:
    """Marks a class as a seeded violation of a rule; its docstring says what it does."""

    def mark(kind: type[_Kind]) -> type[_Kind]:
        setattr(kind, _RULE, rule)
        return kind

    return mark


def violations_in(modules: Iterable[ModuleType]) -> Iterator[Violation]:
    """The violations that modules define, in the order of their definition."""
    for module in modules:
        for found in vars(module).values():
            if isinstance(found, type) and _RULE in vars(found) and found.__module__ == module.__name__:
                name = re.sub(r"(?<!^)(?=[A-Z])", "-", found.__name__).lower()
                yield Violation(name, getattr(found, _RULE), (found.__doc__ or "").strip(), found)
