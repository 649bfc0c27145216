"""Mutants: references and altered real calls that break one rule, or make a choice that a rule leaves open.

`@violates` and `@permits` mark a class; most mutants are rows of tables instead (mutant_table.py). The mutants of a
driver are in trial/kernel/; trying.py tries the mutants.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar, cast

_MARKS, _MUTANT = "marks_of_mutants", "mutant_class"
BLIND = "blind"
_Kind = TypeVar("_Kind", bound=type[Any])
_Self = TypeVar("_Self")


@dataclass(frozen=True)
class Violation:
    """`kind`, a reference or an alteration of real calls, violates `rule`; `about` describes how.

    A `permitted` mutant keeps `rule`, but not the recommendations (rules of the level `should`) in `departs_from`,
    whose cases rightly fail. `written` is BLIND if the mutant's author had not seen the cases.
    """

    name: str
    rule: str
    about: str
    kind: type[Any]
    departs_from: tuple[str, ...] = ()
    permitted: bool = False
    written: str = ""


@dataclass(frozen=True)
class _Marking:
    permitted: bool

    def __call__(self, rule: str, *, name: str = "", written: str = "") -> Callable[[_Kind], _Kind]:
        def mark(kind: _Kind) -> _Kind:
            own = re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower()
            marked = Violation(name or own, rule, (kind.__doc__ or "").strip(), kind, (), self.permitted, written)
            setattr(kind, _MARKS, (*vars(kind).get(_MARKS, ()), marked))
            return kind

        return mark


# Marks a class that violates a rule; the class's docstring describes how. A second mark of a class needs another
# `name`.
violates = _Marking(permitted=False)
# Marks a class that makes a choice that the rule leaves open. No case may fail on this class.
permits = _Marking(permitted=True)


def replacing(name: str, base: type[Any], members: Mapping[str, Any], about: str, module: str) -> type[Any]:
    """Returns a subclass of `base` with these members."""
    kind = type(name, (base,), dict(members))
    kind.__doc__, kind.__module__ = about, module
    setattr(kind, _MUTANT, kind)
    return kind


def plain(mutant: _Self) -> _Self:
    """Returns the mutant without its replacements: `plain(self).method()` calls the original method."""
    return cast(_Self, super(getattr(mutant, _MUTANT), mutant))


def violations_in(module: ModuleType) -> Iterator[Violation]:
    """Yields the mutants that are marked in a module, in the order of their definition."""
    for found in vars(module).values():
        if isinstance(found, type) and found.__module__ == module.__name__:
            yield from vars(found).get(_MARKS, ())
