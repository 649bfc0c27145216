"""Reads tables of mutants. A mutant replaces methods of the reference by expressions or short bodies. A table is a YAML file:

    - NAME: What the mutant does, in a sentence.
      RULE METHOD: EXPRESSION

- `RULE blind METHOD` marks a mutant whose author had not seen the cases, and `RULE permitted METHOD` a mutant that
  violates no rule. METHOD is a method of the reference's device or, as CLASS.METHOD, of the class CLASS.
- The expression can use the method's parameters and the names of the vocabulary. `was` is the value that the replaced
  method returns for the same arguments, and `was(access=0)` its value for other arguments. `plain(self).other()` calls
  the method `other` of the class without the mutant. Several lines are the body of a function.
- Further methods of the class follow, as `METHOD: EXPRESSION`. Other names are attributes of the class, and `setup`
  creates the state of an instance.
- Each item of `also`, `RULE [blind] [OTHER-NAME]`, defines a further mutant with the same code.
  `departs` has the rules of the level `should` that a permitted mutant does not follow.

A behaviour of personas is a row without a rule: `METHOD: EXPRESSION` follows the sentence. `masks` has the violations
that a behaviour hides: with this behaviour, a driver returns the same results with and without the violation.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

from conformance.errors import UserError
from conformance.tables.stray_files import display_path
from conformance.tables.suite import ROOT
from conformance.yamldoc.nodes import Location, Node, TextError
from conformance.yamldoc.parsing import read_file
from conformance.yamldoc.reader import Reader, suggestion
from trial.mutant_code import member

BLIND, _PERMITTED = "blind", "permitted"
_MARKS = (BLIND, _PERMITTED)
MASKS, _ALSO, _DEPARTS = "masks", "also", "departs"
_KEYS = (MASKS, _ALSO, _DEPARTS)
_NOWHERE = Location("", 0, 0)  # of a violation that is not from a table


@dataclass(frozen=True)
class Violation:
    """A mutant. `kind`, a class of the reference, violates `rule`; `about` describes how. A
    `permitted` mutant complies with `rule`; cases of the rules of the level `should` in `departs_from` may fail.
    `written` is BLIND if the mutant's author had not seen the cases. `location` is where its table names the rule."""

    name: str
    rule: str
    about: str
    kind: type[Any]
    departs_from: tuple[str, ...] = ()
    permitted: bool = False
    written: str = ""
    location: Location = _NOWHERE


def mutants_of(
    package: ModuleType,
    base: type[Any],
    vocabulary: Sequence[ModuleType],
) -> Iterator[Violation]:
    """Yields the mutants in the tables of a package. `base` is the class of a METHOD that names no class. Raises
    UserError (status 2) with the place of each mistake."""
    reader = Reader()
    shared = _names(vocabulary, base)
    mutants: list[Violation] = []
    masks: list[Node] = []
    for table in sorted(Path(str(package.__file__)).parent.glob("[!_]*.yaml")):
        names = {**shared, "__name__": f"{package.__name__}.{table.stem}"}
        for row in _rows(reader, table):
            mutants += row.mutants(names, base.__name__)
            masks += row.items(MASKS)
    _note_used_twice(reader, mutants)
    _check(reader, masks, {mutant.name for mutant in mutants})
    yield from mutants


def behaviours_in(
    path: Path,
    base: type[Any],
    vocabulary: Sequence[ModuleType],
    violations: Collection[str],
) -> Iterator[tuple[str, type[Any]]]:
    """Yields the classes of rows without rules. In CLASS.METHOD, CLASS can be an earlier row. `violations` are the names
    that rows can mask. Raises UserError (status 2) with the place of each mistake."""
    reader = Reader()
    names = {**_names(vocabulary, base), "__name__": path.stem}
    behaviours: dict[str, type[Any]] = {}
    masks: list[Node] = []
    for row in _rows(reader, path):
        masks += row.items(MASKS)
        kind = row.kind(next(iter(row.code), ""), names, base.__name__)
        if kind:
            names[row.name] = behaviours[row.name] = kind
    _check(reader, masks, violations)
    yield from behaviours.items()


def _names(vocabulary: Sequence[ModuleType], base: type[Any]) -> dict[str, Any]:
    shared = {
        name: value
        for code in (errno, *vocabulary)
        for name, value in vars(code).items()
        if name[0] != "_"
    }
    return {**shared, base.__name__: base}


def _rows(reader: Reader, path: Path) -> Iterator[_Row]:
    try:
        document = read_file(path, display_path(path, ROOT))
    except TextError as error:
        for mistake in error.mistakes:
            reader.note(mistake.location, mistake.message)
        return
    for node in reader.items(document, "a table of mutants"):
        if isinstance(node.value, dict):
            yield _Row(reader, node)
        else:
            reader.note(node.location, f"a mutant must be a mapping, not {node.kind}")


def _note_used_twice(reader: Reader, mutants: Sequence[Violation]) -> None:
    """Notes rows that use the name of an earlier row of the same list: of violations, blind ones or permitted variants.
    The mutants of one row may share a name."""
    first: dict[tuple[str, str, bool], Violation] = {}
    for mutant in mutants:
        earlier = first.setdefault((mutant.name, mutant.written, mutant.permitted), mutant)
        if earlier.kind is not mutant.kind:
            text = f"the name {mutant.name!r} is already used (first at {earlier.location})"
            reader.note(mutant.location, text)


def _check(reader: Reader, masks: Sequence[Node], violations: Collection[str]) -> None:
    """Raises UserError if there are mistakes. `masks` have to be names of violations."""
    for item in masks if not reader.mistakes else ():  # else violations are missing
        reader.word(item, "violation", violations)
    if reader.mistakes:
        raise UserError(*map(str, reader.mistakes))


class _Row:
    """A row of a table: its name, its sentence, and its code by key. The methods note mistakes in the row."""

    def __init__(self, reader: Reader, node: Node) -> None:
        assert isinstance(node.value, dict)
        self._reader, self._node, self._keys = reader, node, node.keys or {}
        self._others = {key: node.value[key] for key in _KEYS if key in node.value}
        self.code = {key: value for key, value in node.value.items() if key not in _KEYS}
        self.name = next(iter(self.code))
        self.about = reader.text(self.code.pop(self.name), "the sentence of a mutant") or ""
        if not self.code:
            reader.note(node.location, "a mutant is NAME: SENTENCE and RULE METHOD: EXPRESSION")

    def items(self, key: str) -> Sequence[Node]:
        """Returns the items of `also`, `departs` or `masks`; one item need not be in a list."""
        if key not in self._others:
            return ()
        if isinstance(self._others[key].value, tuple):
            return self._reader.items(self._others[key], key)
        return (self._others[key],)

    def mutants(self, names: dict[str, Any], base: str) -> Iterator[Violation]:
        """Yields the mutant of the row, and those of `also`."""
        mark = next(iter(self.code), "")
        rule, *flags, method = mark.split() if " " in mark else ("", "")
        if self.code and not rule:
            self._reader.note(self._keys[mark], f"{mark!r} is not RULE METHOD")
        unknown = [flag for flag in flags if flag not in _MARKS]
        for flag in unknown:
            near = suggestion(flag, _MARKS)
            self._reader.note(self._keys[mark], f"unknown word {flag!r}{near} in {mark!r}")
        if not rule or unknown:
            return
        kind = self.kind(mark, names, base, method)
        if kind is None:
            return
        departs = [str(item.value).split() for item in self.items(_DEPARTS)]
        first = Violation(
            self.name,
            rule,
            self.about,
            kind,
            tuple(chain.from_iterable(departs)),
            _PERMITTED in flags,
            BLIND if BLIND in flags else "",
            self._keys[mark],
        )
        yield first
        for item in self.items(_ALSO):
            of, *rest = str(item.value).split() or [""]
            is_blind = rest[:1] == [BLIND]
            other = rest[is_blind:] or [self.name]
            if not of or len(other) > 1:
                text = f"{item.value!r} is not RULE [{BLIND}] [OTHER-NAME]"
                self._reader.note(item.location, text)
                continue
            written = BLIND if is_blind else ""
            yield replace(first, rule=of, written=written, name=other[0], location=item.location)

    def kind(
        self,
        first: str,
        names: dict[str, Any],
        base: str,
        first_method: str = "",
    ) -> type[Any] | None:
        """Returns a subclass with the members of the row; None after a mistake. The key `first` of the code names
        METHOD or CLASS.METHOD, at its end if it is `first_method`."""
        owner, _, method = (first_method or first).rpartition(".")
        parent = self._parent(owner or base, first, names)
        if parent is None:
            return None
        before = len(self._reader.mistakes)
        names = {**names, "plain": None}
        members: dict[str, Any] = {}
        for key, code in self.code.items():
            name = method if key == first else key
            if self._is_read(name) or self._has(parent, name, key):
                members[name] = member(self._reader, name, code, parent, names)
        if len(self._reader.mistakes) > before:
            return None
        masks = tuple(str(item.value) for item in self.items(MASKS))
        members |= {MASKS: masks, "__doc__": self.about, "__module__": names["__name__"]}
        kind = type(self.name.replace("-", "_"), (parent,), members)
        # super(), because a persona inherits from several such classes
        names["plain"] = partial(super, kind)
        return kind

    def _parent(self, name: str, key: str, names: dict[str, Any]) -> type[Any] | None:
        if isinstance(names.get(name), type):
            kind: type[Any] = names[name]
            return kind
        if self.code:
            classes = [name for name, value in names.items() if isinstance(value, type)]
            near = suggestion(name, classes)
            self._reader.note(self._keys[key], f"unknown class {name!r}{near} in {key!r}")
        return None

    def _has(self, kind: type[Any], member: str, key: str) -> bool:
        """Whether a class has a member that a key of the row names; else notes a mistake."""
        if member and hasattr(kind, member):
            return True
        if self.code:
            members = [name for name in dir(kind) if not name.startswith("__")]
            near = suggestion(member, [*members, *_KEYS])
            unread = "" if key == next(iter(self.code)) else ", and this row does not read it"
            self._reader.note(self._keys[key], f"{kind.__name__} has no {member!r}{near}{unread}")
        return False

    def _is_read(self, name: str) -> bool:
        return any(f"self.{name}" in str(code.value) for code in self.code.values())
