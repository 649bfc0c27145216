"""Reads the tables of cases that people write, into frozen cases or located mistakes.

A table is one YAML file in a verb's folder. Every mistake found is reported with file, line and
column; a table with a mistake gives no cases. Not for rules (rules.py) or running (execution.py).
"""

from __future__ import annotations

import errno
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from conformance import capability, language, quantity
from conformance.case import (
    Argument, Case, Expectation, Flags, Given, MemorySpec, MrSpec, Step,
)
from conformance.expansion import bindings, slug, substitute
from conformance.reading import Reader, suggestion
from conformance.rules import FILE_NAME as RULES_FILE
from conformance.rules import Registry
from conformance.verbs import ENUMS
from conformance.yamltext import Mistake, Node, TextError, read_file

_TABLE_KEYS = ("verb", "about", "cases", "entries", "given", "rows")
_ROW_KEYS = ("id", "about", "rules", "needs", "each", "entries", "given", "when", "then", "afterwards")
_GIVEN_KEYS = ("memory", "pds", "mrs", "memlock")
_THEN_KEYS = ("outcome", "errno", "mr")
_NAME = re.compile(r"[a-z0-9][a-z0-9_]*")
_ROW_ID = re.compile(r"[a-z0-9][a-z0-9+.-]*")
_BIT = re.compile(r"bit ([0-9]+)")
ERRNO_NAMES = frozenset(errno.errorcode.values()) | {"ENOTSUP", "EOPNOTSUPP"}


@dataclass(frozen=True)
class Table:
    """A table that was read without a mistake. `name` is `<folder>/<file stem>`."""

    name: str
    verb: str
    path: Path
    cases: tuple[Case, ...]


def read_tables(
    folders: Iterable[Path], registry: Registry, root: Path
) -> tuple[list[Table], list[Mistake]]:
    """All tables in the verb folders under each of `folders`, sorted by path, and all mistakes."""
    tables: list[Table] = []
    mistakes: list[Mistake] = []
    seen: dict[str, Case] = {}
    for folder in folders:
        for path in sorted(folder.glob("*/*.yaml")):
            if path.name == RULES_FILE:
                continue
            shown = str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
            table, found = read_table(path, shown, registry)
            for case in table.cases if table else ():
                if case.id in seen:
                    found.append(Mistake(case.place, f"case {case.id} stands twice (first at {seen[case.id].place})"))
                seen.setdefault(case.id, case)
            mistakes += found
            if table and not found:
                tables.append(table)
    return tables, mistakes


def read_table(path: Path, shown: str, registry: Registry) -> tuple[Table | None, list[Mistake]]:
    """The table in the file `path`, called `shown` in messages; None beside its mistakes."""
    try:
        root = read_file(path, shown)
    except TextError as error:
        return None, [error.mistake]
    return parse_table(root, path, registry)


def parse_table(root: Node, path: Path, registry: Registry) -> tuple[Table | None, list[Mistake]]:
    """The table that `root` holds, or its mistakes."""
    reader = Reader()
    fields = reader.mapping(root, "a table", _TABLE_KEYS, ("verb", "cases", "rows"))
    if not _NAME.fullmatch(path.stem):
        reader.note(root.place, f"a table's file name is of a-z, 0-9 and _, not {path.stem!r}")
    verb = reader.word(fields.get("verb"), "verb", language.CALLS)
    if verb and path.parent.name != verb.removeprefix("ibv_"):
        folder = verb.removeprefix("ibv_")
        reader.note(fields["verb"].place, f"tables of {verb} stand in the folder {folder!r}, not {path.parent.name!r}")
    if "about" in fields:
        reader.text(fields["about"], "about")
    stated = reader.count(fields.get("cases"), "cases")
    cases: list[Case] = []
    if verb:
        rows = _Rows(reader, registry, verb, f"{path.parent.name}/{path.stem}", fields)
        for node in reader.items(fields.get("rows"), "rows"):
            cases += rows.expand(node)
    if not reader.mistakes and stated != len(cases):
        reader.note(fields["cases"].place, f"the table states {stated} cases and expands to {len(cases)}")
    if reader.mistakes:
        return None, sorted(reader.mistakes, key=lambda mistake: (mistake.place.line, mistake.place.column))
    return Table(f"{path.parent.name}/{path.stem}", str(verb), path, tuple(cases)), []


class _Rows:
    """Turns the rows of one table into cases."""

    def __init__(
        self, reader: Reader, registry: Registry, verb: str, table: str, fields: Mapping[str, Node]
    ) -> None:
        self.reader = reader
        self.registry = registry
        self.verb = verb
        self.table = table
        self.given = fields.get("given")
        self.entries = fields.get("entries")
        self.ids: dict[str, Node] = {}

    def expand(self, row: Node) -> list[Case]:
        """The cases of one row, one for each combination of its axes and each entry."""
        fields = self.reader.mapping(row, "a row", _ROW_KEYS, ("id", "rules", "then"))
        axes = self.reader.named(fields.get("each"), "each")
        rest = Node({key: node for key, node in fields.items() if key != "each"}, row.place)
        used: set[str] = set()
        cases: list[Case] = []
        for binding in bindings(axes, self.reader, row):
            body = substitute(rest, binding, self.reader, used)
            assert isinstance(body.value, dict)
            cases += self._cases(row, body.value)
        for name in axes:
            if name not in used:
                self.reader.note(axes[name].place, f"axis {name!r} is not used in the row")
        return cases

    def _cases(self, row: Node, fields: Mapping[str, Node]) -> list[Case]:
        reader = self.reader
        row_id = reader.text(fields.get("id"), "id")
        if row_id is not None and not _ROW_ID.fullmatch(slug(row_id)):
            reader.note(fields["id"].place, f"{row_id!r} is no row id; use a-z, 0-9 and -")
        about = reader.text(fields["about"], "about") if "about" in fields else ""
        rules = reader.words(fields.get("rules"), "rule", self.registry)
        if "rules" in fields and not rules:
            reader.note(fields["rules"].place, "a case must prove a rule; name at least one")
        needs = list(reader.words(fields.get("needs"), "capability", capability.NAMES))
        needs += [need for rule in rules for need in self.registry[rule].needs if need not in needs]
        given = self._given(fields.get("given"))
        names = _names(given)
        when = self._step(fields.get("when"), fields.get("then"), row, names, self.verb)
        steps = [when]
        for node in reader.items(fields.get("afterwards"), "afterwards"):
            names |= _product(steps[-1])
            steps.append(self._afterwards(node, names))
        entries = reader.words(fields.get("entries", self.entries), "entry", language.ENTRIES) or ("libibverbs",)
        cases = []
        for entry in entries:
            suffix = f"@{entry}" if len(entries) > 1 else ""
            case_id = f"{self.table}/{slug(row_id or 'row')}{suffix}"
            if case_id in self.ids:
                reader.note(fields["id"].place, f"id {case_id!r} stands twice (first in line {self.ids[case_id].place.line})")
            self.ids.setdefault(case_id, fields.get("id", row))
            cases.append(Case(
                id=case_id, verb=self.verb, rules=rules, needs=tuple(needs), entry=entry, given=given,
                when=when, afterwards=tuple(steps[1:]), place=fields.get("id", row).place, about=about or "",
            ))
        return cases

    def _given(self, own: Node | None) -> Given:
        reader = self.reader
        parts: dict[str, dict[str, Node]] = {"memory": {}, "mrs": {}}
        pds: tuple[str, ...] = ()
        memlock = None
        for node in (self.given, own):
            if node is None:
                continue
            fields = reader.mapping(node, "given", _GIVEN_KEYS)
            for section, content in parts.items():
                content.update(reader.named(fields.get(section), section))
            for item in reader.items(fields.get("pds"), "pds"):
                name = reader.text(item, "a PD's name")
                if name and name not in pds:
                    pds += (name,)
            if "memlock" in fields:
                memlock = reader.parsed(fields["memlock"], quantity.parse)
        memory = {name: spec for name, node in parts["memory"].items() if (spec := self._memory(node))}
        names = {"pd": "pd", **dict.fromkeys(pds, "pd"), **dict.fromkeys(memory, "memory")}
        mrs = {}
        for name, node in parts["mrs"].items():
            fields = reader.mapping(node, f"MR {name!r}", language.CALLS["ibv_reg_mr"])
            mrs[name] = MrSpec(self._arguments("ibv_reg_mr", fields, node, names))
        return Given(memory, pds, mrs, memlock)

    def _memory(self, node: Node) -> MemorySpec | None:
        fields = self.reader.mapping(node, "memory", ("kind", "size"), ("kind", "size"))
        kind = self.reader.word(fields.get("kind"), "kind of memory", language.MEMORY_KINDS)
        size = self.reader.parsed(fields["size"], quantity.parse) if "size" in fields else None
        if size and size.names:
            self.reader.note(fields["size"].place, "a size of memory cannot rest on another object")
            return None
        return MemorySpec(kind, size) if kind and size else None

    def _afterwards(self, node: Node, names: dict[str, str]) -> Step:
        value = node.value if isinstance(node.value, dict) else {}
        call = self.reader.word(value.get("call"), "call", language.CALLS) if "call" in value else None
        if isinstance(node.value, dict) and "call" not in value:
            self.reader.note(node.place, "a step afterwards lacks the key 'call'")
        known = ("call", "then", *language.CALLS.get(call or "", ()))
        fields = self.reader.mapping(node, "a step afterwards", known, ("then",)) if call or not value else {}
        arguments = Node({key: item for key, item in fields.items() if key not in ("call", "then")}, node.place)
        return self._step(arguments, fields.get("then"), node, names, call)

    def _step(
        self, node: Node | None, then: Node | None, owner: Node, names: Mapping[str, str], call: str | None
    ) -> Step:
        if call is None:
            return Step("", {}, Expectation("open"))
        fields: Mapping[str, Node] = {}
        if node is not None:
            fields = self.reader.mapping(node, f"a call of {call}", language.CALLS[call])
        arguments = self._arguments(call, fields, node or owner, names)
        expectation = self._then(then) if then is not None else Expectation("open")
        return Step(call, arguments, expectation, language.PRODUCTS.get(call, ("", ""))[1])

    def _arguments(
        self, call: str, fields: Mapping[str, Node], owner: Node, names: Mapping[str, str]
    ) -> dict[str, Argument]:
        arguments: dict[str, Argument] = {}
        for key, parameter in language.CALLS[call].items():
            node = fields.get(key)
            if node is None and parameter.default is None:
                self.reader.note(owner.place, f"{call} lacks the argument {key!r}")
                continue
            node = node or Node(parameter.default, owner.place)
            argument = self._argument(parameter, key, node, names)
            if argument is not None:
                arguments[key] = argument
        return arguments

    def _argument(
        self, parameter: language.Parameter, key: str, node: Node, names: Mapping[str, str]
    ) -> Argument | None:
        if parameter.kind == "flags":
            return self._flags(node, parameter.of)
        if parameter.kind == "object":
            known = [name for name, kind in names.items() if kind == parameter.of]
            return self.reader.word(node, f"{parameter.of} for {key}", known)
        if parameter.kind == "word":
            return self.reader.word(node, key, parameter.words)
        value = self.reader.parsed(node, quantity.parse)
        for name, property_ in value.names if value else ():
            kind = names.get(name)
            if kind not in quantity.PROPERTIES:
                known = [known for known, kind in names.items() if kind in quantity.PROPERTIES]
                self.reader.note(node.place, f"unknown object {name!r}{suggestion(name, known)}")
            elif property_ and property_ not in quantity.PROPERTIES[kind]:
                known = list(quantity.PROPERTIES[kind])
                self.reader.note(node.place, f"{name} has no {property_!r}{suggestion(property_, known)}")
        return value

    def _flags(self, node: Node, enum: str) -> Flags:
        mask = 0
        names: list[str] = []
        for item in self.reader.items(node, "flags"):
            bit = self._bit(item, enum)
            if bit is None:
                continue
            if mask & bit:
                self.reader.note(item.place, f"flag {item.value} stands twice")
            mask |= bit
            names.append(str(item.value))
        return Flags(mask, tuple(names))

    def _bit(self, item: Node, enum: str) -> int | None:
        unknown = _BIT.fullmatch(item.value) if isinstance(item.value, str) else None
        if unknown:
            number = int(unknown[1])
            if number > 31:
                self.reader.note(item.place, f"bit {number} is beyond an int's 32 bits")
                return None
            return 1 << number
        what = "access flag" if enum == "ibv_access_flags" else f"name of {enum}"
        word = self.reader.word(item, what, ENUMS[enum].short_names)
        return ENUMS[enum].value_of(word) if word else None

    def _then(self, node: Node) -> Expectation:
        if isinstance(node.value, str):
            return Expectation(self.reader.word(node, "outcome", language.OUTCOMES) or "open")
        fields = self.reader.mapping(node, "then", _THEN_KEYS, ("outcome",))
        outcome = self.reader.word(fields.get("outcome"), "outcome", language.OUTCOMES) or "open"
        names = _errnos(self.reader, fields.get("errno"))
        shape = self.reader.word(fields.get("mr"), "expectation of the MR", ("as_asked",)) or ""
        if names and outcome != "refused":
            self.reader.note(fields["errno"].place, "errno is only expected of a refused call")
        if shape and outcome != "success":
            self.reader.note(fields["mr"].place, "an MR is only expected of a successful call")
        return Expectation(outcome, names, shape)


def _product(step: Step) -> dict[str, str]:
    """The name and kind of what a step makes."""
    return {step.name: language.PRODUCTS[step.call][0]} if step.name else {}


def _errnos(reader: Reader, node: Node | None) -> tuple[str, ...]:
    if node is None:
        return ()
    nodes: Collection[Node] = node.value if isinstance(node.value, tuple) else (node,)
    found = [reader.word(item, "errno", sorted(ERRNO_NAMES | {"any"})) for item in nodes]
    return tuple(name for name in found if name)


def _names(given: Given) -> dict[str, str]:
    """Every name that a call may use, with its kind."""
    return {
        "pd": "pd",
        **dict.fromkeys(given.pds, "pd"),
        **dict.fromkeys(given.memory, "memory"),
        **dict.fromkeys(given.mrs, "mr"),
    }
