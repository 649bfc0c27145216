"""Mutants: references and altered real calls that break one rule, or make another choice where a rule leaves one.

`@violates` and `@permits` mark a class, or a function that takes the place of one method of the class that its first
parameter names. Not for the mutants of a driver (trial/kernel/), and not for trying them (trying.py).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any, Concatenate, ParamSpec, TypeVar, cast, overload

_MARKS, _MUTANT = "marks_of_mutants", "mutant_class"
BLIND = "blind"
_Kind = TypeVar("_Kind", bound=type[Any])
_Self = TypeVar("_Self")
_Taken = ParamSpec("_Taken")
_Given = TypeVar("_Given")


@dataclass(frozen=True)
class Violation:
    """`kind`, a reference or an alteration of real calls, violates `rule`; `about` describes how.

    A `permitted` one keeps `rule`, and does otherwise than the rules `departs_from` recommend. They are of the level
    should, and their cases fail on it rightly. `written` is BLIND if its author had not seen the cases.
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

    @overload
    def __call__(
        self, rule: str, /, *, departs_from: tuple[str, ...] = (), name: str = "", written: str = ""
    ) -> Callable[[_Kind], _Kind]: ...

    @overload
    def __call__(
        self,
        rule: str,
        replaces: Callable[Concatenate[Any, _Taken], _Given],
        /,
        *,
        departs_from: tuple[str, ...] = (),
        name: str = "",
        written: str = "",
    ) -> Callable[[Callable[Concatenate[Any, _Taken], _Given]], type[Any]]: ...

    def __call__(
        self,
        rule: str,
        replaces: Callable[..., Any] | None = None,
        /,
        *,
        departs_from: tuple[str, ...] = (),
        name: str = "",
        written: str = "",
    ) -> Callable[[Any], type[Any]]:
        def mark(made: Any) -> type[Any]:
            kind = made
            if replaces is not None:
                (taken, *_) = made.__annotations__.values()
                members = {cast(FunctionType, replaces).__name__: made}
                kind = replacing(made.__name__, taken, members, made.__doc__, made.__module__)
            about = (kind.__doc__ or "").strip()
            own = re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower().replace("_", "-")
            marked = Violation(name or own, rule, about, kind, departs_from, self.permitted, written)
            setattr(kind, _MARKS, (*vars(kind).get(_MARKS, ()), marked))
            return cast("type[Any]", kind)

        return mark


# Mark what violates a rule; the docstring describes how. `name` is for a second mark, which has another name.
violates = _Marking(permitted=False)
# Mark what makes a choice that the rule leaves open: no case may fail on it.
permits = _Marking(permitted=True)


def replacing(name: str, base: type[Any], members: Mapping[str, Any], about: str, module: str) -> type[Any]:
    """A class with other members in place of some of its base."""
    kind = type(name, (base,), dict(members))
    kind.__doc__, kind.__module__ = about, module
    setattr(kind, _MUTANT, kind)
    return kind


def plain(mutant: _Self) -> _Self:
    """What the mutant is without the function that makes it one: `plain(self).method()` calls what is replaced."""
    return cast(_Self, super(getattr(mutant, _MUTANT), mutant))


def violations_in(module: ModuleType) -> Iterator[Violation]:
    """What is marked in a module, in the order of its definition."""
    for found in vars(module).values():
        if isinstance(found, type) and found.__module__ == module.__name__:
            yield from vars(found).get(_MARKS, ())
