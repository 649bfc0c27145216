"""Reads the tables of cases that people write, into frozen cases or located mistakes.

A table is one YAML file in a verb's folder. Every mistake found is reported with file, line and
column; a table with a mistake gives no cases. Not for rules (model/rules.py) or running (execution/procedure.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from conformance.model import capability, vocabulary
from conformance.model.case import Case
from conformance.model.rules import Registry
from conformance.tables.expansion import MAX_CASES, bindings, slug, substitute
from conformance.tables.retired import check_unused, read_retired
from conformance.tables.row import KEYS as PART_KEYS
from conformance.tables.row import read_row_body
from conformance.tables.rules_file import FILE_NAME as RULES_FILE
from conformance.tables.sweep import told
from conformance.tables.sweep_reader import read_sweep
from conformance.yamldoc.nodes import Mistake, Node, TextError, quoted, read_file
from conformance.yamldoc.reader import Reader

_TABLE_KEYS = ("verb", "about", "cases", "entries", "given", "rows", "retired")
_ROW_KEYS = (
    "id", "about", "rules", "needs", "each", "entries", "given", "before", "call", "when", "then", "afterwards",
    "note", "hazardous", "tier", "sweep",
)  # fmt: skip
_INSTEAD = {"each": "its axes stand in the sweep", "then": "what must come stands in the sweep's expect"}
_NAME = re.compile(r"[a-z0-9][a-z0-9_]*")
_ROW_ID = re.compile(r"[a-z0-9][a-z0-9+.-]{0,199}")


@dataclass(frozen=True)
class Table:
    """A table that was read without a mistake. `name` is `<folder>/<file stem>`."""

    name: str
    verb: str
    path: Path
    cases: tuple[Case, ...]


def read_tables(folders: Iterable[Path], registry: Registry, root: Path) -> tuple[list[Table], list[Mistake]]:
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
                    found.append(
                        Mistake(case.location, f"case {case.id} stands twice (first at {seen[case.id].location})")
                    )
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
        return None, list(error.mistakes)
    return parse_table(root, path, registry)


def parse_table(root: Node, path: Path, registry: Registry) -> tuple[Table | None, list[Mistake]]:
    """The table that `root` holds, or its mistakes."""
    reader = Reader()
    fields = reader.mapping(root, "a table", _TABLE_KEYS, ("verb", "cases", "rows"))
    if not _NAME.fullmatch(path.stem):
        reader.note(root.location, f"a table's file name is of a-z, 0-9 and _, not {path.stem!r}")
    verb = reader.word(fields.get("verb"), "verb", vocabulary.VERBS)
    if verb and path.parent.name != verb.removeprefix("ibv_"):
        folder = verb.removeprefix("ibv_")
        reader.note(
            fields["verb"].location, f"tables of {verb} stand in the folder {folder!r}, not {path.parent.name!r}"
        )
    if "about" in fields:
        reader.text(fields["about"], "about")
    stated = reader.count(fields.get("cases"), "cases")
    cases: list[Case] = []
    reader.words(fields.get("entries"), "entry", vocabulary.ENTRIES)
    nodes = reader.items(fields.get("rows"), "rows")
    if "rows" in fields and fields["rows"].value == ():
        reader.note(fields["rows"].location, "a table without rows proves nothing")
    if verb:
        rows = _Rows(reader, registry, verb, f"{path.parent.name}/{path.stem}", fields)
        for node in nodes:
            cases += rows.expand(node)
            if len(cases) > MAX_CASES:
                reader.note(node.location, f"up to here the table expands to more than {MAX_CASES} cases; split it")
                break
        check_unused(reader, read_retired(reader, fields.get("retired"), rows.table), rows.ids)
    if not reader.mistakes and stated != len(cases):
        reader.note(fields["cases"].location, f"the table states {stated} cases and expands to {len(cases)}")
    if reader.mistakes:
        return None, sorted(reader.mistakes, key=lambda mistake: (mistake.location.line, mistake.location.column))
    return Table(f"{path.parent.name}/{path.stem}", str(verb), path, tuple(cases)), []


class _Rows:
    """Turns the rows of one table into cases."""

    def __init__(self, reader: Reader, registry: Registry, verb: str, table: str, fields: Mapping[str, Node]) -> None:
        self.reader = reader
        self.registry = registry
        self.verb = verb
        self.call = vocabulary.DEFAULT_CALLS.get(verb, verb)
        self.table = table
        self.given = fields.get("given")
        self.entries = fields.get("entries")
        self.ids: dict[str, Node] = {}

    def expand(self, row: Node) -> list[Case]:
        """The cases of one row, one for each combination of its axes and each entry."""
        swept = isinstance(row.value, dict) and "sweep" in row.value
        fields = self.reader.mapping(row, "a row", _ROW_KEYS, ("id", "rules", "sweep" if swept else "then"))
        if not isinstance(row.value, dict):
            return []
        for key in ("each", "then") if swept else ():
            if key in fields:
                self.reader.note((row.keys or {})[key], f"a row with a sweep has no {key!r}: {_INSTEAD[key]}")
        if swept:
            return self._cases(row, fields)
        axes = self.reader.named(fields.get("each"), "each")
        rest = Node({key: node for key, node in fields.items() if key != "each"}, row.location)
        used: set[str] = set()
        cases: list[Case] = []
        before = len(self.reader.mistakes)
        for binding in bindings(axes, self.reader, row):
            body = substitute(rest, binding, self.reader, used)
            for name in axes:
                if name not in used:
                    location = (fields["each"].keys or {})[name]
                    self.reader.note(location, f"axis {name!r} is not used in the row")
            if len(self.reader.mistakes) > before and not cases:
                break  # what a row with a wrong axis would mean is not worth complaining about
            assert isinstance(body.value, dict)
            cases += self._cases(row, body.value)
        return cases

    def _cases(self, row: Node, fields: Mapping[str, Node]) -> list[Case]:
        reader = self.reader
        row_id = reader.text(fields.get("id"), "id")
        if row_id is not None and not _ROW_ID.fullmatch(slug(row_id)):
            reader.note(
                fields["id"].location, f"{quoted(row_id)} is no row id; use a-z, 0-9 and -, at most 200 of them"
            )
        about = reader.text(fields["about"], "about") if "about" in fields else ""
        rules = reader.words(fields.get("rules"), "rule", self.registry)
        if "rules" in fields and fields["rules"].value == ():
            reader.note(fields["rules"].location, "a case must prove a rule; name at least one")
        needs = list(reader.words(fields.get("needs"), "capability", capability.NAMES))
        if "sweep" not in fields:  # whose points need what the one rule needs that decides them
            needs = list(dict.fromkeys([*needs, *(need for rule in rules for need in self.registry[rule].needs)]))
        sweep = None
        if "sweep" in fields:
            own = {key: fields[key] for key in PART_KEYS if key in fields}
            sweep = read_sweep(reader, fields["sweep"], (self.call, self.given, own, row), self.registry, rules)
            parts = sweep.template.parts(sweep.space.values(0), Reader()) if sweep else None
        else:
            parts = read_row_body(reader, self.call, self.given, fields, row)
            if parts.when.call == vocabulary.RANDOM_SEQUENCES:  # which make no call that the device does not have
                needs = []
        note = reader.text(fields["note"], "note") if "note" in fields else ""
        hazardous = reader.truth(fields.get("hazardous"), "hazardous")
        tier = reader.word(fields.get("tier"), "tier", vocabulary.TIERS)
        chosen = fields.get("entries", self.entries)
        if chosen is not None and chosen.value == ():
            reader.note(chosen.location, "a list of no entries; leave it out to call at libibverbs")
        entries = reader.words(chosen, "entry", vocabulary.ENTRIES) or ("libibverbs",)
        # The row's own place: that of an expanded id is where its axis's value stands.
        own_location = row.value["id"].location if isinstance(row.value, dict) and "id" in row.value else row.location
        cases = []
        for entry in entries:
            suffix = f"@{entry}" if len(entries) > 1 else ""
            case_id = f"{self.table}/{slug(row_id or 'row')}{suffix}"
            if case_id in self.ids and "id" in fields:
                first = self.ids[case_id].location
                how = f"twice (first in line {first.line})"
                if first == fields["id"].location:
                    how = "for several cases of the row; put its axes into the id"
                reader.note(fields["id"].location, f"id {case_id!r} stands {how}")
            self.ids.setdefault(case_id, fields.get("id", row))
            if parts is None:
                continue
            cases.append(
                Case(
                    id=case_id,
                    verb=self.verb,
                    rules=rules,
                    needs=tuple(needs),
                    entry=entry,
                    given=parts.given,
                    before=parts.before,
                    when=replace(parts.when, arguments=told(parts, sweep.template)) if sweep else parts.when,
                    afterwards=parts.afterwards,
                    location=own_location,
                    about=about or "",
                    note=note or "",
                    hazardous=hazardous,
                    tier=tier or "default",
                    sweep=sweep,
                )
            )
        return cases
