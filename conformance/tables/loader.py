"""Reads tables. Returns frozen cases, and mistakes with their locations. A table is one YAML file in the folder of its
verb. Every mistake has a file, line and column. If a table has a mistake, none of its cases is returned."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

from conformance import cache
from conformance.errors import format_count
from conformance.model import capability, vocabulary
from conformance.model.case import Case, Flags, Step, Table
from conformance.model.combinations import CoveringArray
from conformance.model.kind import BY_CALL, Kind
from conformance.model.needs import OPERATION_NEEDS, UNNAMED_FLAG_NEEDS, need_on_demand
from conformance.model.rules import Registry
from conformance.model.script import Event
from conformance.older_python import zip
from conformance.regular_file import read_regular
from conformance.tables import keys
from conformance.tables.carried import with_carried
from conformance.tables.expansion import (
    MAX_CASES,
    PLACEHOLDER,
    bindings,
    corrected,
    note_unused,
    slug,
    substitute,
)
from conformance.tables.first_psns import with_first_psns
from conformance.tables.model_reader import read_array, read_model
from conformance.tables.row import KEYS as PART_KEYS
from conformance.tables.row import RowBody, read_row_body
from conformance.tables.rules_file import FILE_NAME as RULES_FILE
from conformance.tables.stray_files import display_path
from conformance.tables.sweep_reader import read_sweep
from conformance.yamldoc.nodes import Location, Mistake, Node, TextError, quoted
from conformance.yamldoc.parsing import read_file
from conformance.yamldoc.reader import Reader

_KEYS = ("id", "why")


class Retired(NamedTuple):
    """A case that a table no longer has: where the table says so, and why."""

    location: Location
    why: str


def read_retired(reader: Reader, node: Node | None, table: str) -> Mapping[str, Retired]:
    """Returns the retired cases of the table `<folder>/<file stem>`, by id."""
    retired: dict[str, Retired] = {}
    for item in reader.items(node, "retired"):
        if isinstance(item.value, dict) and ({*keys.ROW} - {*_KEYS}) & {*item.value}:
            reader.note(item.location, "this looks like a row; rows stand before `retired:`")
            continue
        fields = reader.mapping(item, "a retired case", _KEYS, _KEYS)
        written = reader.text(fields.get("id"), "id")
        why = reader.text(fields.get("why"), "why")
        if not written:
            continue
        case, location = f"{table}/{written}", fields["id"].location
        if case in retired:
            reader.note(
                location,
                f"duplicate retired case {case} (first in line {retired[case].location.line})",
            )
        retired.setdefault(case, Retired(location, str(why)))
    return retired


def retired_case(case: str, folders: Iterable[Path], root: Path) -> Retired | None:
    """Returns what a table in `folders` says about a retired case: its id, the id without the entry, or the entry."""
    table, _, row = case.rpartition("/")
    name, _, entry = row.partition("@")
    for path in table_files(folders):
        if f"{path.parent.name}/{path.stem}" == table:
            reader = Reader()
            node = read_file(path, display_path(path, root))
            fields = reader.mapping(node, "a table", keys.TABLE, ())
            retired = read_retired(reader, fields.get("retired"), table)
            for id_ in (case, f"{table}/{name}", f"{table}/@{entry}"):
                if id_ in retired:
                    return retired[id_]
    return None


_INSTEAD = {
    "each": "write its axes in the sweep",
    "then": "write the expectations in the sweep's expect",
}
_NAME = re.compile(r"[a-z0-9][a-z0-9_]*")
_ROW_ID = re.compile(r"[a-z0-9][a-z0-9+.-]{0,199}")


def read_tables(
    folders: Iterable[Path],
    registry: Registry,
    root: Path,
    stored: Mapping[Path, Table] | None = None,
) -> tuple[list[Table], list[Mistake]]:
    """Returns all valid tables in the verb folders under `folders`, sorted by path, and all mistakes. Paths in messages
    are relative to `root` if they are below it. `stored` are unchanged tables that were read before."""
    tables: list[Table] = []
    mistakes: list[Mistake] = []
    seen: dict[str, Case] = {}
    for path in table_files(folders):
        table = (stored or {}).get(path)
        mistakes_here: list[Mistake] = []
        if table is None:
            table, mistakes_here = read_table(path, display_path(path, root), registry)
        cases = table.cases if table else ()
        if again := [case for case in cases if case.id in seen]:
            first = seen[again[0].id].location
            text = f"duplicate case id {again[0].id} (first at {first})"
            if len(again) > 1:
                text += f", and {len(again) - 1} more: two tables have this name"
            mistakes_here.append(Mistake(again[0].location, text))
        for case in cases:
            seen.setdefault(case.id, case)
        mistakes += mistakes_here
        if table and not mistakes_here:
            tables.append(table)
    return tables, mistakes


def table_files(folders: Iterable[Path]) -> list[Path]:
    """Returns the files of tables, in the order in which they are read."""
    paths = [path for folder in folders for path in sorted(folder.glob("*/*.yaml"))]
    return [path for path in paths if path.name != RULES_FILE]


def digest_of_table(path: Path, root: Path) -> str:
    """Returns the digest of a table's file and of its stored arrays. Raises OSError."""
    files = [path, *sorted(path.parent.glob(f"{path.stem}-*.array"))]
    shown = display_path(path, root).encode()
    return cache.digest_of([shown, *(read_regular(file) for file in files)])


def read_table(path: Path, shown: str, registry: Registry) -> tuple[Table | None, list[Mistake]]:
    """Returns the table in the file `path`, or None and its mistakes. Messages name the file `shown`."""
    try:
        root = read_file(path, shown)
    except TextError as error:
        return None, list(error.mistakes)
    return parse_table(root, path, registry)


def parse_table(root: Node, path: Path, registry: Registry) -> tuple[Table | None, list[Mistake]]:
    """Returns the table whose root node is `root`, or None and its mistakes. `path` determines the table's name."""
    reader = Reader()
    fields = reader.mapping(root, "a table", keys.TABLE, keys.required(keys.TABLE))
    if not _NAME.fullmatch(path.stem):
        reader.note(
            root.location,
            f"invalid name of a table's file: {path.stem!r}; use a-z, 0-9 and _",
        )
    verb = reader.word(fields.get("verb"), "verb", vocabulary.VERBS)
    if verb and path.parent.name != verb.removeprefix("ibv_"):
        folder = verb.removeprefix("ibv_")
        reader.note(
            fields["verb"].location,
            f"tables of {verb} belong in the folder {folder!r}, not {path.parent.name!r}",
        )
    if "about" in fields:
        reader.text(fields["about"], "about")
    stated = reader.count(fields.get("cases"), "cases")
    cases: list[Case] = []
    reader.words(fields.get("entries"), "entry", vocabulary.ENTRIES)
    nodes = reader.items(fields.get("rows"), "rows")
    if "rows" in fields and fields["rows"].value == ():
        reader.note(fields["rows"].location, "a table must have at least one row")
    if verb:
        rows = _Rows(reader, registry, verb, f"{path.parent.name}/{path.stem}", fields, path)
        for node in nodes:
            cases += rows.expand(node)
            if len(cases) > MAX_CASES:
                message = f"with this row the table expands to more than {MAX_CASES} cases; split the table"
                reader.note(node.location, message)
                break
        retired = read_retired(reader, fields.get("retired"), rows.table)
        for case, row in rows.ids.items():
            entry = case.partition("@")[2]
            if given_up := retired.get(case) or retired.get(f"{rows.table}/@{entry}"):
                line = given_up.location.line
                message = f"case {case} is retired (line {line}); give the row a new id"
                reader.note(row.location, message)
    reader.note_unused()
    if not reader.mistakes and stated is not None and stated != len(cases):
        message = f"the table states {format_count(stated, 'case')} and expands to {len(cases)}"
        reader.note(fields["cases"].location, message)
    if reader.mistakes:
        return None, sorted(
            reader.mistakes,
            key=lambda mistake: (mistake.location.line, mistake.location.column),
        )
    numbered = map(with_first_psns, with_carried(cases))
    return Table(f"{path.parent.name}/{path.stem}", str(verb), tuple(numbered)), []


class _Rows:
    def __init__(
        self,
        reader: Reader,
        registry: Registry,
        verb: str,
        table: str,
        fields: Mapping[str, Node],
        path: Path,
    ) -> None:
        self.reader = reader
        self.registry = registry
        self.verb = verb
        self.call = vocabulary.DEFAULT_CALLS.get(verb, verb)
        self.table = table
        self.given = fields.get("given")
        self.entries = fields.get("entries")
        self.also = self._doors(fields.get("also"))
        self.ids: dict[str, Node] = {}
        self.path = path
        self.model = (
            read_model(reader, fields["model"], table, registry) if "model" in fields else None
        )

    def _array(self, step: Step, row: Node) -> CoveringArray | None:
        """Returns the stored array that a row names."""
        name = str(step.arguments.get("array", ""))
        if self.model is None or not name:
            return None
        array = read_array(self.reader, row, self.model, self.path, name)
        if array is None:
            return None
        return array.part(str(step.arguments["points"]))

    def _doors(self, node: Node | None) -> dict[str, str]:
        """Returns the other verbs with which the rows are also run (doors, see bench/doors.py), each with its rule."""
        if node:
            fields = self.reader.mapping(node, "also", vocabulary.DOORS)
        else:
            fields = {}
        return {
            door: self.reader.word(rule, "rule", self.registry) or ""
            for door, rule in fields.items()
        }

    def expand(self, row: Node) -> list[Case]:
        """Returns the cases of one row: one for each combination of axis values and entries."""
        swept = isinstance(row.value, dict) and "sweep" in row.value
        fields = self.reader.mapping(
            row,
            "a row",
            keys.ROW,
            (*keys.required(keys.ROW), "sweep" if swept else "then"),
        )
        if not isinstance(row.value, dict):
            return []
        for key in ("each", "then") if swept else ():
            if key in fields:
                self.reader.note(
                    (row.keys or {})[key],
                    f"a row with a sweep cannot have {key!r}; {_INSTEAD[key]}",
                )
        if swept:
            return self._cases(row, fields)
        axes = self.reader.named(fields.get("each"), "each")
        rest = Node({key: node for key, node in fields.items() if key != "each"}, row.location)
        rest = corrected(rest, axes, self.reader)
        cases: list[Case] = []
        before = len(self.reader.mistakes)
        combinations = bindings(axes, self.reader, row)
        is_whole = isinstance(row.value, dict) and row.value.keys() <= set(keys.ROW)
        if axes and combinations and is_whole:  # a misspelt key can use an axis
            assert isinstance(rest.value, dict)
            note_unused(self.reader, axes, fields["each"].keys or {}, rest.value)
        for binding in combinations:
            body = substitute(rest, binding, self.reader)
            if len(self.reader.mistakes) > before and not cases:
                break  # the expanded rows would only repeat the mistakes of the axes
            assert isinstance(body.value, dict)
            cases += self._cases(row, body.value)
        return cases

    def _cases(self, row: Node, fields: Mapping[str, Node]) -> list[Case]:
        reader = self.reader
        row_id = self._id(row, fields)
        texts: dict[str, Any] = {
            key: reader.text(fields[key], key) or "" for key in ("about", "note") if key in fields
        }
        texts |= {key: reader.truth(fields.get(key), key) for key in ("hazardous", "ends_process")}
        texts["tier"] = reader.word(fields.get("tier"), "tier", vocabulary.TIERS) or "default"
        rules = reader.words(fields.get("rules"), "rule", self.registry)
        if "rules" in fields and fields["rules"].value == ():
            reader.note(fields["rules"].location, "a case must test a rule; name at least one")
        needs = [*reader.words(fields.get("needs"), "capability", capability.NAMES)]
        parts: RowBody | None
        kind = Kind.SWEEP
        if "sweep" in fields:  # the needs of a rule are added to the points of its clauses
            body = {key: fields[key] for key in PART_KEYS if key in fields}
            swept = read_sweep(
                reader,
                fields["sweep"],
                (self.call, self.given, body, row),
                self.registry,
                rules,
            )
            texts["sweep"], parts = swept or (None, None)
        else:
            parts = read_row_body(reader, self.call, self.given, fields, row)
            needs += [need for rule in rules for need in self.registry[rule].needs]
            needs += _needs_of_operations(parts)
            flags = _registered_flags(parts)
            needs += [need for flag, need in UNNAMED_FLAG_NEEDS.items() if flag in flags]
            kind = BY_CALL.get(parts.when.call, Kind.ROW)
        if kind is Kind.COMBINATIONS and parts is not None:
            texts["array"] = array = self._array(parts.when, row)
            rules = tuple(dict.fromkeys((*rules, *(array.rules if array else ()))))
        if kind is Kind.COMBINATIONS:  # it has only calls that the device offers
            needs = []
        if parts is not None and parts.when.call in BY_CALL:
            for key in ("given", "before", "afterwards", "sweep"):
                if key in fields:
                    reader.note(
                        fields[key].location,
                        f"a row that calls {parts.when.call} has no {key!r}",
                    )
        ids = self._ids_by_entry(row_id, fields, row)
        if parts is None:
            return []
        texts |= {name: getattr(parts, name) for name in ("given", "before", "when", "afterwards")}
        texts |= {
            "rules": rules,
            "needs": tuple(dict.fromkeys(needs)),
            "location": _written_id(row, row).location,
        }
        cases = [
            Case(id=id_, verb=self.verb, entry=entry, kind=kind, **texts)
            for entry, (id_, _) in ids.items()
        ]
        doors = [rule for _, rule in ids.values()]
        return [
            _through_door(case, rule, self.registry) if rule else case
            for case, rule in zip(cases, doors, strict=True)
        ]

    def _id(self, row: Node, fields: Mapping[str, Node]) -> str | None:
        row_id = self.reader.text(fields.get("id"), "id")
        # The words of an id are checked before the expansion, because `slug` converts axis values to lower case.
        words = re.sub(PLACEHOLDER, "a", str(_written_id(row, Node("", row.location)).value))
        if row_id is not None and not (
            _ROW_ID.fullmatch(words) and _ROW_ID.fullmatch(slug(row_id))
        ):
            message = f"invalid row id {quoted(row_id)}; use a-z, 0-9 and -, at most 200 characters"
            self.reader.note(fields["id"].location, message)
        return row_id

    def _ids_by_entry(
        self,
        row_id: str | None,
        fields: Mapping[str, Node],
        row: Node,
    ) -> dict[str, tuple[str, str]]:
        """Returns the id of the case at each entry and door, with the rule of a door. Duplicate ids are mistakes."""
        chosen = fields.get("entries", self.entries)
        if chosen is not None and chosen.value == ():
            message = "an empty list of entries; leave `entries` out for the entry libibverbs"
            self.reader.note(chosen.location, message)
        entries = self.reader.words(chosen, "entry", vocabulary.ENTRIES) or ("libibverbs",)
        if "also" in fields:
            doors = self._doors(fields["also"])
        else:
            doors = self.also
        ids = {}
        for entry in (*entries, *doors):
            if len(entries) > 1 or entry in doors:
                suffix = f"@{entry}"
            else:
                suffix = ""
            case_id = f"{self.table}/{slug(row_id or 'row')}{suffix}"
            if case_id in self.ids and "id" in fields:
                first = self.ids[case_id].location
                message = f"duplicate id {case_id!r} (first in line {first.line})"
                if first == fields["id"].location:
                    message = f"several cases of the row have the id {case_id!r}; put the row's axes into the id"
                self.reader.note(fields["id"].location, message)
            self.ids.setdefault(case_id, fields.get("id", row))
            ids[entry] = case_id, doors.get(entry, "")
        return ids


def _written_id(row: Node, default: Node) -> Node:
    """Returns the id as it is written in the row. After the expansion, it can have the location of an axis value."""
    if isinstance(row.value, dict):
        return row.value.get("id", default)
    return default


def _through_door(case: Case, rule: str, registry: Registry) -> Case:
    """Returns the case of a door, which calls a different verb. The case then tests only `rule`, which says that all
    rules of the row also apply to this verb. The needs of `rule` are added to the needs of the row."""
    needs = registry[rule].needs
    sweep = case.sweep
    if sweep:
        clauses = tuple(
            replace(clause, rule=rule, needs=sweep.needs_of[clause.rule], also=())
            if clause.then
            else clause
            for clause in sweep.clauses
        )
        sweep = replace(sweep, clauses=clauses, needs_of={rule: needs})
    return replace(
        case,
        rules=(rule,),
        needs=tuple(dict.fromkeys([*case.needs, *needs])),
        sweep=sweep,
    )


def _needs_of_operations(row: RowBody) -> list[str]:
    needs = []
    for step in (*row.before, row.when, *row.afterwards):
        operation = str(step.arguments.get("op"))
        keys = (step.call, operation, f"{step.call} {operation}")
        needs += [OPERATION_NEEDS.get(key) for key in keys]
        events = cast("tuple[Event, ...]", step.arguments.get("packets", ()))
        needs += [OPERATION_NEEDS.get(event.word) for event in events if event.kind == "post"]
        elements = step.arguments.get("sg_list")
        if step.call == "post_receive" and isinstance(elements, tuple) and len(elements) > 1:
            needs.append("lists")
        if "ON_DEMAND" in _registered_flags(row):
            via = row.given.qps.get(str(step.arguments.get("via")))
            if via:
                kind = via.kind
            else:
                kind = str(step.arguments.get("qp_type", "RC"))
            needs.append(need_on_demand(step.call, operation, kind))
    return [need for need in needs if need]


def _registered_flags(row: RowBody) -> set[str]:
    steps = [
        step
        for step in (*row.before, row.when, *row.afterwards)
        if step.call in vocabulary.REGISTRATIONS
    ]
    # device memory always has ZERO_BASED
    steps = [step for step in steps if step.call != "ibv_reg_dm_mr"]
    arguments = [
        *(spec.arguments for spec in row.given.mrs.values()),
        *(step.arguments for step in steps),
    ]
    access = [argument.get("access") for argument in arguments]
    return {name for flag in access if isinstance(flag, Flags) for name in flag.names}
