"""Reads a history: the runs of many nights on the same cells (stacks of the guest). docs/nightly.md describes its
directory. The facts of a run are read from its summary or, if the summary cannot be read, computed from its results.
Each foreign or damaged file is reported in one line, and does not affect other cells. commands/nightly.py runs a night,
and comparison.py compares two runs."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any

from conformance.defects import Defect, Severity
from conformance.defects.owner import Answering
from conformance.errors import UserError, reading
from conformance.model.printable import one_line, plain
from conformance.model.verdict import NOT_TESTABLE, OF_RULES, VIOLATIONS
from conformance.regular_file import read_regular
from conformance.results.checked_json import parse
from conformance.results.files import write_atomically
from conformance.results.folder import OUTCOME_FILE
from conformance.results.records import FILE_NAME as RESULTS
from conformance.results.records import FOOTER, file_in
from reports import summary
from reports.absence import NOT_DECIDED, UNTRIED, absence, table_of
from reports.digest import read
from reports.environment import called
from reports.night_names import NIGHT, is_night
from reports.run_summary import lines_of
from reports.violations import format_apart

SCHEMA = "rdma-cts-cell/1"
ENDED = "a signal or a kill ended the night, for example for lack of memory, or the disk was full"
# the states of a defect in a run, beside those of absence.py
SEEN, WAIVED, UNKNOWN = "seen", "waived", ""
NO_OUTCOME = f"its {OUTCOME_FILE} is missing: {ENDED}"
# MESSAGE is the suffix of the file with a night's mail
LOCK, PAGE, MESSAGE = ("lock", "history.html", ".eml")
CELL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
_MOST_PROBLEMS = 20
_RANK = {severity.label: severity.rank for severity in Severity}
_END_BYTES = 1 << 16  # of results, in which their last line begins
_MOST_SHOWN = 40  # the most characters of a damaged value
# the errors of a file that cannot be read, or is not a summary
_FORMAT = re.compile(r"rdma-cts-summary/[0-9]{1,9}")


class _OtherFormat(ValueError):
    """A summary of another version of its format."""


_UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError)

BASELINE, GOOD, REGRESSED, NEWLY_WRONG, UNDECIDED, NOT_RUN, RUNNING = (
    "baseline",
    "good",
    "regressed",
    "newly wrong",
    "undecided",
    "not run",
    "running",
)
OUTCOMES: Mapping[str, str] = {
    BASELINE: "nothing to compare with yet",
    GOOD: "nothing has regressed since the last good night",
    REGRESSED: "something has regressed since the last good night",
    NEWLY_WRONG: "what the last good night did not support or judge is wrong, and nothing has regressed",
    UNDECIDED: "the run is incomplete, some verdicts of the last good night are no longer decided, or a race was hit that "
    "may not be new",
    NOT_RUN: "there are no results",
    RUNNING: "there are no results yet, because the night has not finished",
}
COMPARABLE = (BASELINE, GOOD)
FAILED = (REGRESSED, NEWLY_WRONG)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a cell in a night, as in cell.json. `against` is the last good night, with which the cell was
    compared. `selection` has the options that select the cases of the cell. `reason` is the reason why the cell has no
    results. `kinds` has for each defect that only this run has, by fingerprint, the kind of its change, as `compare` names
    it. `undecided` has in the same way the word for each defect of an earlier night that this run has not decided.
    `untried` has the cases of the last good night that this complete run has not tried. A text that does not apply is
    empty."""

    outcome: str
    against: str = ""
    reason: str = ""
    selection: tuple[str, ...] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)
    undecided: Mapping[str, str] = field(default_factory=dict)
    untried: tuple[str, ...] = ()

    def encoded(self) -> bytes:
        return (json.dumps({"schema": SCHEMA, **asdict(self)}, indent=1) + "\n").encode("ascii")

    @staticmethod
    def of(data: Any) -> Outcome:
        """Returns the outcome in the content of a file. Raises ValueError if `data` is not an outcome, with the key that is
        wrong."""
        if not isinstance(data, dict):
            raise ValueError("not an object")
        permitted = {"schema": (SCHEMA,), "outcome": (*OUTCOMES,)}
        for key, values in permitted.items():
            if data.get(key) not in values:  # `in` for a tuple accepts unhashable values
                raise ValueError(f"its {key} is {_shown(data.get(key))}")
        texts = {key: data.get(key, "") for key in ("against", "reason")}
        for key, text in texts.items():
            if not isinstance(text, str):
                raise ValueError(f"its {key} is {_shown(text)}, not a text")
        lists = {key: data.get(key, []) for key in ("selection", "untried")}
        for key, words in lists.items():
            if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
                raise ValueError(f"its {key} is {_shown(words)}, not a list of texts")
        of_defects = []
        for key in ("kinds", "undecided"):
            try:
                of_defects.append(_texts(data.get(key, {})))
            except (AttributeError, TypeError) as error:
                raise ValueError(f"its {key} is {_shown(data[key])}, not texts") from error
        against, reason = map(one_line, texts.values())
        if against and not is_night(against):
            raise ValueError(f"its against is {_shown(against)}, not a night")
        kinds, undecided = of_defects
        selection, untried = tuple(lists["selection"]), tuple(map(one_line, lists["untried"]))
        return Outcome(data["outcome"], against, reason, selection, kinds, undecided, untried)

    def kind_of(self, fingerprints: Iterable[str]) -> str:
        """Returns the kind of the change of the defect with one of these fingerprints; empty if it is not recorded."""
        return next((self.kinds[name] for name in fingerprints if name in self.kinds), "")


def _shown(value: Any) -> str:
    text = one_line(json.dumps(value))
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


@dataclass(frozen=True)
class KnownDefect:
    """A defect, as a summary describes it. `answered` is the layer that returned the result, with the evidence. `case`,
    `line` and `repro` describe the first case of the defect. `in_part` has the number of points without a verdict of each
    of its sweeps with such points."""

    fingerprints: tuple[str, ...]
    severity: str
    title: str
    rules: tuple[str, ...]
    means: str
    cases: tuple[str, ...]
    answered: str
    case: str
    line: str
    repro: str
    in_part: tuple[tuple[str, int], ...] = ()

    @property
    def fingerprint(self) -> str:
        return self.fingerprints[0]

    @property
    def rank(self) -> int:
        """The rank of the severity: 0 for the worst severity; unknown severities come last."""
        return _RANK.get(self.severity, len(_RANK))

    def agrees(self, other: KnownDefect) -> bool:
        """Whether both have a common rule or layer."""
        layer, others = (defect.answered.partition(" (")[0] for defect in (self, other))
        return layer == others or not {*self.rules}.isdisjoint(other.rules)

    def names(self, called: Mapping[str, Sequence[KnownDefect]]) -> tuple[str, ...]:
        """Returns the fingerprints without those with which other defects are `called` that are not this one."""
        further = [
            name
            for name in self.fingerprints[1:]
            if name not in called or any(map(self.agrees, called[name]))
        ]
        return self.fingerprint, *further


def first_names_of(defects: Iterable[KnownDefect]) -> Mapping[str, str]:
    """Returns for each fingerprint of the defects the name of its defect: the fingerprint with which the first of them
    is called. Defects that share a fingerprint are one defect, also if a third one joins them; but a fingerprint of an
    earlier version joins only defects with a common rule or layer."""
    distinct = {id(defect): defect for defect in defects}.values()
    called: dict[str, list[KnownDefect]] = {}
    for defect in distinct:
        called.setdefault(defect.fingerprint, []).append(defect)
    first_names: dict[str, str] = {}
    for defect in distinct:
        names = defect.names(called)
        earlier = [first_names[name] for name in names if name in first_names]
        first, *joined = dict.fromkeys(earlier) or [defect.fingerprint]
        for name, called_first in first_names.items() if joined else ():
            if called_first in joined:
                first_names[name] = first
        first_names.update(dict.fromkeys(names, first))
    return first_names


def _defect(data: Any, names: Set[str], in_part: Mapping[str, int]) -> KnownDefect:
    """Returns a defect of a summary. `names` are the fingerprints with which the summary calls its defects: what an
    older summary lists as another name of this defect can be one of them. `in_part` is that of the Facts."""
    first = data["first"]
    also = [name for name in map(_text, data["also"]) if name not in names]
    cases = tuple(map(_text, data["cases"]))
    return KnownDefect(
        (_text(data["fingerprint"]), *also),
        _text(data["severity"]),
        _text(data["title"]),
        tuple(map(_text, data["rules"])),
        _text(data["means"]),
        cases,
        str(Answering(_text(data["answered_by"]), _text(data["because"]))),
        _text(first["case"]),
        _text(first["reason"]),
        _text(first["repro"]),
        tuple((case, in_part[case]) for case in cases if case in in_part),
    )


def described(defect: Defect) -> KnownDefect:
    """Returns a defect of a run as its summary describes it."""
    return _defect(plain(summary.of_defect(defect)), frozenset(), {})


@dataclass(frozen=True)
class Facts:
    """The facts of a run that a history needs.

    - `stack`: the stack under test, as in summary.json; `hashes`: the hashes of its parts
    - `rules`: the effective verdict on each rule; `violating`: the cases that violate a rule
    - `defects`: the defects that are neither waived, nor of the stack, nor unconfirmed
    - `waived`: the defects that are waived
    - `undecided`: the word for each defect of an earlier night that the run has not decided, by fingerprint
    - `apart`: the numbers of the other defects, by the reason why they are not in `defects`
    - `waivers`: the lines about waivers that do not fit the run
    - `capabilities`: what the device reports; empty for summaries of older versions
    - `broken`: for each rule that is BROKEN, the first case that has failed, and the reason
    - `tried`: the tables with cases that were tried; empty for summaries of older versions
    - `not_judged`: the cases, and the tables all of whose cases, have no verdict on the device
    - `in_part`: the number of points without a verdict of each sweep that has them beside others
    - `seconds`: the duration of the run, None if the run was resumed; `cases`: the number of its cases
    """

    conclusion: str
    complete: bool
    stack: Mapping[str, str]
    hashes: Mapping[str, str]
    rules: Mapping[str, str]
    violating: frozenset[str]
    defects: tuple[KnownDefect, ...]
    capabilities: Mapping[str, str] = field(default_factory=dict)
    seconds: float | None = None
    started: str = ""
    cases: int = 0
    apart: str = ""
    waivers: tuple[str, ...] = ()
    waived: tuple[KnownDefect, ...] = ()
    undecided: Mapping[str, str] = field(default_factory=dict)
    tried: frozenset[str] = frozenset()
    not_judged: frozenset[str] = frozenset()
    in_part: Mapping[str, int] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(data: Any) -> Facts:
        """Returns the facts in a summary. Raises ValueError, LookupError, TypeError or AttributeError if `data` is not
        a summary."""
        schema = _text(data["schema"])
        if schema != summary.SCHEMA and _FORMAT.fullmatch(schema):
            raise _OtherFormat(
                f"has the schema {schema}, and this version reads {summary.SCHEMA}; "
                "use the version of rdma-cts that wrote it"
            )
        if schema != summary.SCHEMA:
            raise ValueError
        rules = _texts(data["rules"])
        if set(rules.values()) - set(OF_RULES):
            raise ValueError
        conforms = " conforms to its documents" in _text(data["conclusion"])
        violated = any(verdict in VIOLATIONS for verdict in rules.values())
        if "exit_status" in data and (violated if data["exit_status"] == 0 else conforms):
            raise ValueError
        violating = frozenset(
            _text(case) for violation in data["violations"] for case in violation["cases"]
        )
        defects, waived = [], []
        names = {_text(defect["fingerprint"]) for defect in data["defects"]}
        apart = [0, 0, 0]
        in_part = {
            _text(case): int(number) for case, number in data.get("judged_in_part", {}).items()
        }
        for defect in data["defects"]:
            reasons = (defect.get("of_stack"), defect["waived"], defect.get("unconfirmed"))
            if any(reasons):
                apart[list(map(bool, reasons)).index(True)] += 1
                if defect["waived"]:
                    waived.append(_defect(defect, names, in_part))
            else:
                defects.append(_defect(defect, names, in_part))
        return Facts(
            _text(data["conclusion"]),
            data["complete"] is True,
            _texts(data["stack"]),
            _texts(data.get("under_test", {})),
            rules,
            violating,
            tuple(defects),
            _texts(data.get("capabilities", {})),
            None
            if data.get("duration_s") is None or data.get("resumed")
            else float(data["duration_s"]),
            _text(data.get("started", "")),
            sum(map(int, data.get("cases", {}).values())),
            format_apart(*apart),
            tuple(map(_text, lines_of(data.get("waivers", {}), data["stack"].get("kernel", "?")))),
            tuple(waived),
            tried=frozenset(map(_text, data.get("tried", {}))),
            not_judged=frozenset(map(_text, data.get("not_judged", ()))),
            in_part=in_part,
            broken=_texts(data.get("broken", {})),
        )

    def states(self, first_names: Mapping[str, str]) -> Mapping[str, str]:
        """Returns the states of the defects that the run has or, by its outcome, has not decided: by the name of a defect,
        from the name by fingerprint."""
        words = self.undecided if self.complete else {}
        states = {
            name: word if word in (NOT_DECIDED, UNTRIED) else NOT_DECIDED
            for name, word in words.items()
        }
        states |= {defect.fingerprint: WAIVED for defect in self.waived}
        states |= {defect.fingerprint: SEEN for defect in self.defects}
        return {first_names[name]: state for name, state in states.items() if name in first_names}

    def absence_of(self, defect: KnownDefect) -> str:
        """Returns the state of a defect that only other runs have, as far as the summary tells; UNKNOWN if the run is
        incomplete, or has tried no table with a case of the defect."""
        tables = {*map(table_of, defect.cases)}
        if not self.complete or (self.tried and self.tried.isdisjoint(tables)):
            return UNKNOWN
        if {*map(self.rules.get, defect.rules)} <= {*NOT_TESTABLE}:
            return UNTRIED  # summaries of older versions tell no more
        before = dict(defect.in_part)
        return absence(self.judged(case, before.get(case, 0)) for case in defect.cases)

    def judged(self, case: str, unjudged_before: int = 0) -> bool | None:
        """Returns what the run has judged of a case, as absence.is_judged."""
        table = table_of(case)
        if (self.tried and table not in self.tried) or not self.not_judged.isdisjoint(
            (case, table)
        ):
            return False
        return None if self.in_part.get(case, 0) > unjudged_before else True

    @property
    def selection(self) -> tuple[int, frozenset[str]]:
        """The number of cases and their rules, which are equal in two runs of the same cases."""
        return self.cases, frozenset(self.rules)

    @cached_property
    def tested(self) -> Mapping[str, str]:
        """The software under test, by name: versions, tables and hashes."""
        names = ("kernel", "rdma-core", "device", "driver", "firmware", "suite", "tables", "tier")
        facts = {name: self.stack[name] for name in names if self.stack.get(name)}
        return {**facts, **{called(name): digest for name, digest in self.hashes.items()}}

    def shows(self, fingerprints: Set[str]) -> bool | None:
        """Whether the run has the defect with one of these fingerprints, and it is not waived; None if unknown."""
        shown = _is_among(self.defects, fingerprints)
        if not shown and not fingerprints.isdisjoint(self.undecided):
            return None
        return self.known(shown)

    def waives(self, fingerprints: Set[str]) -> bool:
        """Whether the run has the defect with one of these fingerprints, and it is waived."""
        return _is_among(self.waived, fingerprints)

    def has(self, fingerprints: Set[str]) -> bool | None:
        """Whether the run has the defect with one of these fingerprints, waived or not; None if unknown."""
        return self.waives(fingerprints) or self.shows(fingerprints)

    def violates(self, case: str) -> bool | None:
        """Whether the case violates a rule; None if unknown."""
        return self.known(case in self.violating)

    def known(self, seen: bool) -> bool | None:
        """Returns `seen`, but None instead of False for an incomplete run, which may lack the violating cases."""
        return seen or (False if self.complete else None)

    def has_violation(self, case: str) -> bool | None:
        """Whether the case violates a rule, waived or not; None if unknown."""
        return any(case in defect.cases for defect in self.waived) or self.violates(case)

    @cached_property
    def violated(self) -> frozenset[str]:
        return frozenset(rule for rule, verdict in self.rules.items() if verdict in VIOLATIONS)


def _is_among(defects: Iterable[KnownDefect], fingerprints: Set[str]) -> bool:
    return any(not fingerprints.isdisjoint(defect.fingerprints) for defect in defects)


# The lines of a summary whose values differ in each run: the start, also among the facts of the stack, and the duration.
_STARTED, _STACK_STARTED, _SECONDS = b'\n "started": ', b'\n  "started": ', b'\n "duration_s": '


class FactsReader:
    """Reads the facts of many runs in little memory and time. Summaries of many nights are equal except for start and
    duration: such a summary is not parsed, and equal parts of all summaries are stored once."""

    def __init__(self) -> None:
        # the facts by the digest of the summary without the lines of a run
        self._by_rest: dict[bytes, Facts] = {}
        self._parts: dict[Hashable, Any] = {}
        self._texts: dict[tuple[tuple[str, str | int], ...], Mapping[str, Any]] = {}
        self._lists: dict[tuple[KnownDefect, ...], tuple[KnownDefect, ...]] = {}

    def of_summary(self, content: bytes) -> Facts:
        """Returns the facts in the content of a summary. Raises the errors of `parse` and of `Facts.of`."""
        values = {}
        digest = hashlib.sha256()
        end = 0
        places = {name: content.find(name) for name in (_STARTED, _STACK_STARTED, _SECONDS)}
        for name in sorted(filter(lambda name: places[name] >= 0, places), key=places.__getitem__):
            begin = places[name] + len(name)
            digest.update(content[end:begin])
            end = content.find(b"\n", begin)
            values[name] = content[begin:end]
        digest.update(content[end:])
        rest = digest.digest()
        if alike := self._by_rest.get(rest):
            return _of_run(alike, values)
        facts = Facts.of(parse(content))
        self._by_rest[rest] = facts = replace(
            facts,
            stack=self._shared(facts.stack),
            hashes=self._shared(facts.hashes),
            rules=self._shared(facts.rules),
            capabilities=self._shared(facts.capabilities),
            violating=self._parts.setdefault(facts.violating, facts.violating),
            not_judged=self._parts.setdefault(facts.not_judged, facts.not_judged),
            in_part=self._texts.setdefault(tuple(facts.in_part.items()), facts.in_part),
            defects=self._shared_defects(facts.defects),
            waived=self._shared_defects(facts.waived),
        )
        return facts

    def _shared(self, texts: Mapping[str, str]) -> Mapping[str, str]:
        return self._texts.setdefault(tuple(texts.items()), texts)

    def _shared_defects(self, defects: tuple[KnownDefect, ...]) -> tuple[KnownDefect, ...]:
        shared = tuple(self._parts.setdefault(defect, defect) for defect in defects)
        return self._lists.setdefault(shared, shared)


def _of_run(alike: Facts, lines: Mapping[bytes, bytes]) -> Facts:
    """Returns the facts of a run whose summary differs from that of `alike` only in these lines."""
    values = {name: parse(line.rstrip(b",")) for name, line in lines.items()}
    facts = alike
    if _STARTED in values:
        facts = replace(facts, started=_text(values[_STARTED]))
    if _STACK_STARTED in values:
        facts = replace(facts, stack={**alike.stack, "started": _text(values[_STACK_STARTED])})
    if _SECONDS in values and facts.seconds is not None:  # None for a resumed run
        seconds = values[_SECONDS]
        facts = replace(facts, seconds=None if seconds is None else float(seconds))
    return facts


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return one_line(value)


def _texts(values: Any) -> dict[str, str]:
    return {_text(name): _text(value) for name, value in values.items()}


@dataclass(frozen=True)
class Cell:
    """A cell in a night: the directory of its run, its outcome, and its facts. `facts` is None without results. The
    outcome and the facts of a `damaged` cell are unknown."""

    night: str
    name: str
    folder: Path
    outcome: Outcome
    facts: Facts | None = None
    damaged: bool = False


@dataclass(frozen=True)
class History:
    """All cells of all nights, and a line for each cell that could not be read."""

    folder: Path
    nights: tuple[str, ...] = ()
    cells: tuple[Cell, ...] = ()
    problems: tuple[str, ...] = ()

    @cached_property
    def _by_name(self) -> Mapping[str, list[Cell]]:
        by_name: dict[str, list[Cell]] = {}
        for cell in self.cells:
            by_name.setdefault(cell.name, []).append(cell)
        return by_name

    @property
    def is_readable(self) -> bool:
        return not self.cells or any(not cell.damaged for cell in self.cells)

    @property
    def names(self) -> list[str]:
        return list(self._by_name)

    def of(self, name: str) -> Sequence[Cell]:
        """Returns the cell of this name in each of its nights, the earliest first."""
        return self._by_name.get(name, ())

    def ran(self, name: str, before: str = "") -> list[Cell]:
        """Returns the cell in the nights in which it has results; if `before` is given, only in earlier nights."""
        return [
            cell for cell in self.of(name) if cell.facts and (not before or cell.night < before)
        ]

    def good(self, name: str, before: str, selection: tuple[str, ...]) -> list[Cell]:
        """Returns the cell in the nights before `before` with a good run of the same cases, the latest first."""
        return [
            cell
            for cell in reversed(self.ran(name, before))
            if cell.outcome.outcome in COMPARABLE and cell.outcome.selection == selection
        ]


def known_nights(cells: Iterable[Cell], has: Callable[[Facts], bool | None]) -> dict[str, bool]:
    """Returns the value of `has` for each night; nights for which the value is unknown are left out."""
    nights = {cell.night: has(cell.facts) for cell in cells if cell.facts}
    return {night: seen for night, seen in nights.items() if seen is not None}


def since(has: Mapping[str, bool], night: str) -> str:
    """Returns the first night of the unbroken series of nights up to `night` for which `has` is true; empty without
    such a series."""
    latest_first = sorted((item for item in has if item <= night), reverse=True)
    return min(takewhile(has.__getitem__, latest_first), default="")


def running_night(folder: Path) -> str:
    """Returns the name of the night that is running in a history; empty if none is. A running night has locked the
    history; it is the last one."""
    with suppress(OSError):  # no history, or another user's
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(folder / LOCK, flags)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            nights = [path.name for path in _entries(folder) if is_night(path.name)]
            return nights[-1] if nights else ""
        finally:
            os.close(descriptor)
    return ""


def read_history(folder: Path, running: str | None = None) -> History:
    """Reads the history in a directory. `running` is the night whose cells may have no outcome yet; by default the
    night that is running now. Raises UserError only if the directory itself cannot be read."""
    if running is None:
        running = running_night(folder)
    problems: list[str] = []
    nights, cells = [], []
    reader = FactsReader()
    for night in _entries(folder):
        if night.name in (LOCK, PAGE) or night.suffix == MESSAGE:
            continue
        if not is_night(night.name) or night.is_symlink() or not night.is_dir():
            problems.append(f"{one_line(str(night))} is not a night of a history, and is ignored")
            continue
        nights.append(night.name)
        try:
            entries = _entries(night)
        except UserError as error:
            problems.append(one_line(str(error)))
            continue
        for entry in entries:
            if not CELL_NAME.fullmatch(entry.name) or entry.is_symlink() or not entry.is_dir():
                problems.append(f"{one_line(str(entry))} is not a cell of a night, and is ignored")
                continue
            try:
                if night.name == running and not (entry / OUTCOME_FILE).exists():
                    outcome = Outcome(RUNNING)
                    cells.append(Cell(night.name, entry.name, entry, outcome))
                else:
                    cells.append(_cell(night.name, entry, reader, problems))
            except UserError as error:
                problems.append(
                    f"{night.name}, {entry.name} counts as not run: {one_line(str(error))}",
                )
                outcome = Outcome(NOT_RUN, reason=one_line(str(error)))
                cells.append(Cell(night.name, entry.name, entry, outcome, damaged=True))
    if len(problems) > _MOST_PROBLEMS:
        problems[_MOST_PROBLEMS:] = [
            f"{len(problems) - _MOST_PROBLEMS:,} more in {folder} are ignored or damaged",
        ]
    return History(folder, tuple(nights), tuple(cells), tuple(problems))


def _entries(folder: Path) -> list[Path]:
    with reading(folder):
        return sorted(folder.iterdir())


def _cell(night: str, folder: Path, reader: FactsReader, problems: list[str]) -> Cell:
    try:
        outcome = Outcome.of(parse(read_regular(folder / OUTCOME_FILE)))
    except FileNotFoundError:
        if _is_empty(folder / RESULTS):
            outcome = Outcome(NOT_RUN, reason=f"no case was recorded, and {NO_OUTCOME}")
        else:
            outcome = Outcome(UNDECIDED, reason=NO_OUTCOME)
    except OSError as error:
        raise UserError(f"{OUTCOME_FILE} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{OUTCOME_FILE} is damaged, or not of this version: {error}") from error
    if outcome.outcome == NOT_RUN:
        return Cell(night, folder.name, folder, outcome)
    facts = facts_of(folder, reader, problems.append)
    if damage := _damage(folder, outcome, facts):
        raise UserError(damage)
    if facts and outcome.undecided:
        facts = replace(facts, undecided=outcome.undecided)
    return Cell(
        night,
        folder.name,
        folder,
        outcome if facts else Outcome(NOT_RUN, reason=outcome.reason),
        facts,
    )


def _damage(folder: Path, outcome: Outcome, facts: Facts | None) -> str:
    """Returns how the files of a cell contradict its outcome, because some were cut or removed; empty if they do not."""
    says = f"{OUTCOME_FILE} says {outcome.outcome}"
    if facts is None:
        if outcome.reason == NO_OUTCOME:
            return ""
        return f"{says}, but there is neither {RESULTS} nor {summary.FILE_NAME}"
    if facts.complete and _is_cut(folder / RESULTS):
        return f"{RESULTS} was cut: it has not the end of a complete run"
    if outcome.outcome in COMPARABLE and not facts.complete:
        return f"{says}, but its run is incomplete"
    return ""


def _is_cut(path: Path) -> bool:
    """Whether results do not end with a footer. Absent results are not cut: they may have been removed for space."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _END_BYTES))
            end = file.read()
    except OSError:
        return False
    *before, last = end[:-1].split(b"\n")
    begins_earlier = not before and len(end) == _END_BYTES
    return not end.endswith(b"}\n") or not (begins_earlier or last.startswith(FOOTER))


def _is_empty(path: Path) -> bool:
    try:
        return path.stat().st_size == 0
    except OSError:
        return False


def facts_of(
    folder: Path,
    reader: FactsReader | None = None,
    say: Callable[[str], object] = lambda line: None,
) -> Facts | None:
    """Returns the facts of a run from its summary or, if the summary is missing or damaged, from its results; `say`
    gets a line about a damaged summary. Returns None if the run has neither file. Raises UserError if the results are
    damaged, or if there are no results and the summary is damaged or cannot be read."""
    try:
        content = read_regular(folder / summary.FILE_NAME)
        return (reader or FactsReader()).of_summary(content)
    except _UNREADABLE as error:
        if not os.path.lexists(file_in(folder)):
            if isinstance(error, FileNotFoundError):
                return None
            if isinstance(error, PermissionError):
                raise UserError(
                    f"{folder / summary.FILE_NAME} cannot be read: {error.strerror}",
                ) from error
            if isinstance(error, _OtherFormat):
                raise UserError(f"{summary.FILE_NAME} {error}") from error
            raise UserError(f"{summary.FILE_NAME} is damaged, and there is no {RESULTS}") from error
        is_damaged = not isinstance(error, FileNotFoundError)
    facts = Facts.of(plain(summary.as_data(read(folder))))
    if is_damaged:
        path = one_line(str(folder / summary.FILE_NAME))
        say(f"{path} is damaged or cannot be read; its facts are computed from {RESULTS}")
    return facts


def keep_facts(folder: Path) -> None:
    """Writes the summary of a run from its results, unless it can be read or there are no results. Raises UserError if the
    results are damaged, or the summary cannot be written."""
    path = folder / summary.FILE_NAME
    try:
        FactsReader().of_summary(read_regular(path))
    except _UNREADABLE:
        if os.path.lexists(folder / RESULTS):
            write_atomically(path, summary.render([read(folder)]).encode())


def format_night(night: str) -> str:
    """Returns the time of a night in UTC: `2026-11-22 03:17`."""
    match = NIGHT.fullmatch(night)
    if match:
        return "{}-{}-{} {}:{}".format(*match.groups()[:5])
    return night


def changes(old: Facts, new: Facts) -> Iterator[tuple[str, str, str]]:
    """Yields the differences in the software under test between two runs: name, old value, new value."""
    for name in dict.fromkeys([*old.tested, *new.tested]):
        before, after = old.tested.get(name, ""), new.tested.get(name, "")
        if before != after:
            yield name, before, after
