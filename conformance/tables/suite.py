"""Loads the suite, which is all rules and tables with their cases, and selects cases: by verb, by rule, by words in the
id, or by exact ids of cases and points. tiers.py determines the order of cases and the contents of a tier."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pickle
import re
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from conformance import cache
from conformance.errors import PROGRAM, UserError
from conformance.model.case import Case, Table
from conformance.model.rules import RULE_ID, Needs, Registry, Shown, controls, shown_of_rules
from conformance.model.vocabulary import TIERS
from conformance.older_python import zip
from conformance.regular_file import read_regular
from conformance.tables.health import CASES as OF_HEALTH
from conformance.tables.health import HEALTH
from conformance.tables.stray_files import not_run_once, stray_files
from conformance.tables.tiers import DEFAULT, EXHAUSTIVE, SMOKE, of_tier
from conformance.yamldoc.nodes import Mistake, quoted
from conformance.yamldoc.reader import suggestion


def needs_of(registry: Registry, cases: Sequence[Case]) -> tuple[Needs, list[Mistake]]:
    """Returns the evidence that rules need, and a mistake for each `evidence` item that no case of its rule shows."""
    by_rule: dict[str, set[str]] = {rule: set() for rule in registry}
    everything: set[Shown] = set()
    planned = of_tier(cases, DEFAULT)
    for case in planned:
        for rule, shown in shown_of_rules(case):
            everything.add(shown)
            by_rule[rule].add(shown.item)
    mistakes = [
        Mistake(
            rule.location,
            f"no case of {rule.id} shows {quoted(item)}{suggestion(item, by_rule[rule.id])}",
        )
        for rule in registry.values()
        for item in rule.evidence
        if item not in by_rule[rule.id]
    ]
    items = {
        rule.id: rule.evidence or tuple(sorted(by_rule[rule.id])) for rule in registry.values()
    }
    number = Counter(rule for case in planned for rule in case.rules)
    conditional = frozenset(rule.id for rule in registry.values() if rule.conditional)
    return Needs(items, controls(everything), conditional, dict(number)), mistakes


POINT = "#"  # between the id of a sweep and the text of one of its points
VERSION = "1.1.0"
ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT / "cases"
# the pages: of a checkout, or of the package whose suite this is
DOCS = ROOT / "docs"
if not DOCS.is_dir():
    DOCS = ROOT.parent / "doc" / ROOT.name / "docs"
# the suffixes of the files in a folder of cases on which the suite depends
_READ = (".yaml", ".yml", ".py", ".array")
_RULES = "rules.yaml"  # as in rules_file.py, which is imported late
# The modules of conformance/ on which the content of a suite depends.
_READING = (
    "*.py",
    "yamldoc/*.py",
    "verbs/*",
    "header/*",
    "model/*.py",
    "judging/*.py",
    "tables/*.py",
)


class StoredCases(Sequence[Case]):
    """The cases of a table in the cache, which are unpickled when one of them is needed."""

    def __init__(self, planned: Sequence[str], rules: Collection[str], packed: bytes) -> None:
        self.planned = planned  # the ids of the cases of the default tier
        self.rules = rules
        self.packed = packed

    @cached_property
    def _cases(self) -> tuple[Case, ...]:
        cases: tuple[Case, ...] = pickle.loads(self.packed)
        return cases

    def __getitem__(self, number: Any) -> Any:
        return self._cases[number]

    def __iter__(self) -> Iterator[Case]:
        return iter(self._cases)

    def __len__(self) -> int:
        return len(self._cases)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._cases == tuple(other)


def _stored(cases: Sequence[Case]) -> StoredCases:
    if isinstance(cases, StoredCases):
        return cases
    rules = tuple(dict.fromkeys(rule for case in cases for rule in case.rules))
    return StoredCases(_planned(cases), rules, pickle.dumps(tuple(cases), pickle.HIGHEST_PROTOCOL))


def _planned(cases: Sequence[Case]) -> Sequence[str]:
    """Returns the ids of the cases of the default tier."""
    if isinstance(cases, StoredCases):
        return cases.planned
    return tuple(case.id for case in of_tier(cases, DEFAULT))


@dataclass(frozen=True)
class Suite:
    """Rules by id, and tables in the order of their paths."""

    registry: Registry
    tables: tuple[Table, ...]
    tables_sha256: str  # the hash of all files of tables and rules

    def find(self, case_id: str) -> Case | None:
        """Returns the case with an id, or the case of one point of a sweep, `CASE#axis=value,axis=value`. Returns None
        if no case has the id. Raises UserError if the sweep does not have the point."""
        name, hash_, point = case_id.partition(POINT)
        case = self._cases_of(name.rpartition("/")[0]).get(name)
        if case is None or not hash_:
            return case
        if case.sweep is None and case.array is None:
            raise UserError(
                f"{name} is not a sweep and has no points", hint=f"leave out {POINT}{point}"
            )
        try:
            if case.array is not None:
                return replace(case, id=case_id, array=case.array.only(point))
            assert case.sweep is not None
            return case.sweep.point_case(case, point)
        except ValueError as error:
            raise UserError(f"{case_id}: {error}") from error

    @cached_property
    def _by_name(self) -> dict[str, list[Table]]:
        tables: dict[str, list[Table]] = {}
        for table in self.tables:
            tables.setdefault(table.name, []).append(table)
        return tables

    @cached_property
    def _by_id(self) -> dict[str, dict[str, Case]]:
        """The cases by id, of each table that was needed."""
        return {}

    def _cases_of(self, table: str) -> Mapping[str, Case]:
        if table not in self._by_id:
            tables = self._by_name.get(table, ())
            self._by_id[table] = {case.id: case for same in tables for case in same.cases}
        return self._by_id[table]

    def load(self) -> None:
        """Reads and indexes all cases, so that later nothing of this remains to be done."""
        for table in self.tables:
            self._cases_of(table.name)

    def named(self, ids: Collection[str]) -> list[Case]:
        """Returns the cases with these ids, in the suite's order."""
        names = {id_.rpartition("/")[0] for id_ in ids}
        tables = [table for table in self.tables if table.name in names]
        return [case for table in tables for case in table.cases if case.id in ids]

    def of_rule(self, rule: str) -> list[Case]:
        """Returns the cases that test a rule, without reading the tables that have none."""
        tables = [
            table
            for table in self.tables
            if not isinstance(table.cases, StoredCases) or rule in table.cases.rules
        ]
        return [case for table in tables for case in table.cases if rule in case.rules]

    def left_out(self, planned: Iterable[str]) -> list[str]:
        """Returns the ids of the cases of the default tier that are not planned."""
        chosen = set(planned)
        return [id_ for table in self.tables for id_ in _planned(table.cases) if id_ not in chosen]

    @cached_property
    def smoke(self) -> frozenset[str]:
        """The ids of the cases of the smallest tier. They are stored, because computing them takes long."""
        return frozenset(case.id for case in of_tier(self.cases, SMOKE))

    @property
    def cases(self) -> tuple[Case, ...]:
        return tuple(case for table in self.tables for case in table.cases)


def load_suite(extra: Sequence[Path] = ()) -> Suite:
    """Returns the project's rules and tables together with those in the folders `extra`. If an earlier process has read
    the same files, the suite is read from the cache (cache.py), and the cases of a table only when they are needed.
    Raises UserError with one line for each mistake."""
    for folder in extra:
        if not folder.is_dir():
            raise UserError(f"{folder}: no such folder of cases")
        if not any(folder.glob("*/*.yaml")) and not stray_files(folder, ROOT):
            raise UserError(
                f"{folder}: no table in this folder",
                hint=f"tables belong in {folder}/VERB/",
            )
    folders = list(dict.fromkeys([CASES, *(folder.resolve() for folder in extra)]))
    try:
        if cache.path_of(""):
            name = f"suite-{_digest_of_sources(folders)}.pickle"
        else:
            name = ""
    except OSError:
        name = ""  # `_read_suite` reports the error
    if name:
        path = cache.lookup(name)
    else:
        path = None
    if path is not None:
        # after any error in the cached file, the tables are read again
        with contextlib.suppress(Exception):
            return _unpacked(path.read_bytes())
    if not name:
        return _read_suite(folders)
    latest = f"latest-{_digest_of_sources(folders, with_tables=False)}.json"
    digests = _digests_of_tables(folders)
    stored = _stored_tables(latest, digests)
    if len(folders) > 1 and not stored:
        # The project's tables, which come first, mean the same beside the rules of other folders.
        stored = dict(zip(digests, load_suite().tables))
    suite = _read_suite(folders, stored)
    cache.store(name, _packed(suite))
    data = {"suite": name, "tables": list(digests.values())}
    cache.store(latest, json.dumps(data).encode())
    return suite


def _digests_of_tables(folders: Sequence[Path]) -> Mapping[Path, str]:
    from conformance.tables.loader import digest_of_table, table_files

    digests = {}
    for path in table_files(folders):
        with contextlib.suppress(OSError):  # `_read_suite` reports the error
            digests[path] = digest_of_table(path, ROOT)
    return digests


def _stored_tables(latest: str, digests: Mapping[Path, str]) -> Mapping[Path, Table]:
    """Returns the unchanged tables of the suite that was read last with the same rules; none after any error."""
    stored = cache.recalled(latest)
    with contextlib.suppress(Exception):
        path = cache.lookup(stored["suite"])
        if path is not None:
            suite = _unpacked(path.read_bytes())
            tables = dict(zip(stored["tables"], suite.tables, strict=True))
            return {file: tables[digest] for file, digest in digests.items() if digest in tables}
    return {}


def _packed(suite: Suite) -> bytes:
    """Returns a suite as bytes, from which the cases of each table can be read without those of other tables."""
    tables = []
    for table in suite.tables:
        stored = _stored(table.cases)
        about = (stored.planned, stored.rules, zlib.crc32(stored.packed), stored.packed)
        tables.append((table.name, table.verb, *about))
    return pickle.dumps((suite.registry, suite.tables_sha256, tables), pickle.HIGHEST_PROTOCOL)


def _unpacked(data: bytes) -> Suite:
    """Returns the suite in bytes of `_packed`. Raises any error for other bytes."""
    registry, sha256, stored = pickle.loads(data)
    tables = []
    for name, verb, planned, rules, checksum, packed in stored:
        if zlib.crc32(packed) != checksum:
            raise ValueError(f"the stored cases of {name} are damaged")
        tables.append(Table(name, verb, StoredCases(planned, rules, packed)))
    return Suite(registry, tuple(tables), sha256)


def _digest_of_sources(folders: Sequence[Path], *, with_tables: bool = True) -> str:
    """Returns a digest of the modules that read a suite, and of the suite's files, or of its rules alone. It does not
    depend on the version of Python and on the directory of the project, so that a guest can use the suite that its host
    has read. Raises OSError."""
    parts = [os.fsencode(_from_root(folder)) for folder in folders]
    modules = [path for name in _READING for path in sorted((ROOT / "conformance").glob(name))]
    files = [(str(path), str(_from_root(path))) for path in modules]
    for folder in folders:
        shown_folder = str(_from_root(folder))
        for parent, directories, names in os.walk(folder):
            directories[:] = sorted(name for name in directories if not name.startswith("."))
            shown = shown_folder + parent[len(str(folder)) :]
            files += [
                (f"{parent}/{name}", f"{shown}/{name}")
                for name in sorted(names)
                if name.lower().endswith(_READ) and (with_tables or name == _RULES)
            ]
    for path, shown in files:
        parts.append(os.fsencode(shown))
        if os.path.isfile(path):
            with open(path, "rb", buffering=0) as file:
                parts.append(file.read())
    return cache.digest_of(parts)


def _from_root(path: Path) -> Path:
    if path.is_relative_to(ROOT):
        return path.relative_to(ROOT)
    return path


def _read_suite(folders: Sequence[Path], stored: Mapping[Path, Table] | None = None) -> Suite:
    # Imported late: not needed if the suite comes from the cache.
    from conformance.tables.loader import read_tables
    from conformance.tables.rules_file import read_registry

    registry, mistakes = read_registry(folders, ROOT)
    if mistakes:  # a table that names a rule which could not be read is right
        raise UserError(*map(str, mistakes))
    tables, mistakes = read_tables(folders, registry, ROOT, stored)
    mistakes += [mistake for folder in folders for mistake in stray_files(folder, ROOT)]
    mistakes += not_run_once(
        [(table.cases[0].location.file, table.verb) for table in tables if table.cases],
        CASES,
        ROOT,
    )
    if not mistakes:  # else cases are missing
        cases = [case for table in tables for case in table.cases]
        registry.needs, mistakes = needs_of(registry, cases)
    if mistakes:
        raise UserError(*map(str, mistakes))
    return Suite(registry, tuple(tables), tables_digest(folders))


def tables_digest(folders: Sequence[Path]) -> str:
    """Returns the SHA-256 of all files of tables and rules in these folders (Suite.tables_sha256). Raises OSError."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.glob("*/*.yaml")):
            digest.update(f"{path.parent.name}/{path.name}\0".encode())
            digest.update(read_regular(path))
    return digest.hexdigest()


# the command that lists the known names
_LISTED = {"verb": "list verbs", "rule": "list --rules", "case": "list"}


@dataclass(frozen=True)
class Selection:
    """The criteria of a selection; a selection without criteria selects every case."""

    verbs: Sequence[str] = ()
    rules: Sequence[str] = ()
    words: Sequence[str] = ()  # a case's id must contain all these words
    # the ids of cases of any tier; the other criteria select among these cases
    only: Sequence[str] = ()
    tier: str = EXHAUSTIVE  # the tier of the cases; ignored with `only`

    def apply(self, suite: Suite) -> list[Case]:
        """Returns the matching cases of `suite`, in the suite's order; single points come last. Raises UserError if a
        verb, rule or id does not exist, or if no case matches."""
        # this tier has single points, which only ids can name
        if self.tier == HEALTH and not self.only:
            return replace(self, only=OF_HEALTH).apply(suite)
        verbs = sorted({table.verb for table in suite.tables})
        verbs_named = [
            verb if verb in verbs else f"ibv_{verb.removeprefix('ibv_')}" for verb in self.verbs
        ]
        _check("verb", verbs_named, verbs)
        by_name = {rule.upper(): rule for rule in suite.registry}
        rules = [by_name.get(rule.upper(), rule) for rule in self.rules]
        _check("rule", rules, suite.registry)
        points = {case: suite.find(case) for case in self.only if POINT in case}
        names = [case for case in self.only if POINT not in case]
        if self.only:
            chosen = suite.named(frozenset(names))
        else:
            chosen = list(suite.cases)
        without = [name.partition(POINT)[0] for name, point in points.items() if point is None]
        if without or len(chosen) < len(set(names)):
            _check("case", [*names, *without], [case.id for case in suite.cases])
        chosen += filter(None, points.values())
        if verbs_named:
            chosen = [case for case in chosen if case.verb in verbs_named]
        if rules:
            chosen = [case for case in chosen if set(rules) & set(case.rules)]
        for word in self.words:
            if chosen and not any(word.lower() in case.id.lower() for case in chosen):
                raise UserError(
                    f"no chosen case has {word!r} in its id", hint=f"see {PROGRAM} list"
                )
            chosen = [case for case in chosen if word.lower() in case.id.lower()]
        larger = chosen
        if not self.only:
            in_tier = (
                suite.smoke
                if self.tier == SMOKE
                else {case.id for case in of_tier(suite.cases, self.tier)}
            )
            chosen = [case for case in larger if case.id in in_tier]
            if larger and not chosen:
                tier = min((case.tier for case in larger), key=list(TIERS).index)
                raise UserError(
                    f"no case of tier {self.tier} matches the selection",
                    hint=f"--tier {tier} has some",
                )
        if not chosen:
            raise UserError("no case matches the selection", hint=f"see {PROGRAM} list")
        return chosen


def _check(what: str, words: Sequence[str], known: object) -> None:
    names = list(known)  # type: ignore[call-overload]
    for word in words:
        if word not in names:
            near = suggestion(word, names)
            if what == "case" and RULE_ID.fullmatch(word.upper()):
                near = f" (did you mean --rule {word.upper()}?)"
            elif what == "case" and (option := cases_below(word, names)):
                near = f" (did you mean {option}?)"
            elif "," in word:
                option = {"verb": "--verb", "rule": "--rule", "case": "--only"}[what]
                parts = word.replace("ibv_", "").split(",")
                if unknown := [part for part in parts if not {part, f"ibv_{part}"} & {*names}]:
                    word = unknown[0]
                    near = suggestion(word, names)
                else:
                    repeated = " ".join(f"{option} {part}" for part in parts)
                    near = f" (did you mean {repeated}?)"
            raise UserError(
                f"unknown {what} {word!r}{near}",
                hint="" if near else f"see {PROGRAM} {_LISTED[what]}",
            )


def cases_below(text: str, names: Collection[str]) -> str:
    """Returns the option that selects the cases of a verb or a table, which a text names alone or with a pattern of file
    names; empty if it names none."""
    before, *pattern = re.split(r"[*?[]", text, maxsplit=1)
    before = before.removeprefix("ibv_")
    folder = (before.rpartition("/")[0] if pattern else before).rstrip("/")
    if not any(name.startswith(f"{folder}/") for name in names):
        return ""
    if "/" in folder and pattern and any(name.startswith(before) for name in names):
        return f"-k {before}"
    if "/" in folder:
        return f"-k {folder}/"
    return f"--verb {folder}"
