"""The facts of a run that a history needs, from its summary or, if the summary cannot be read, computed from its
results."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from conformance.errors import UserError
from conformance.model.printable import one_line, plain
from conformance.model.verdict import NOT_TESTABLE, OF_RULES, VIOLATIONS
from conformance.regular_file import read_regular
from conformance.results.checked_json import parse
from conformance.results.files import write_atomically
from conformance.results.records import FILE_NAME as RESULTS
from conformance.results.records import file_in
from reports import summary
from reports.absence import NOT_DECIDED, UNTRIED, absence, table_of
from reports.digest import read
from reports.environment import called
from reports.nights.known_defect import KnownDefect, checked_text, checked_texts, defect_of_summary
from reports.run_summary import lines_of
from reports.violations import format_apart

# the states of a defect in a run, beside those of absence.py
SEEN, WAIVED, UNKNOWN = "seen", "waived", ""
_FORMAT = re.compile(r"rdma-cts-summary/[0-9]{1,9}")


class _OtherFormat(ValueError):
    """A summary of another version of its format."""


# the errors of a file that cannot be read, or is not a summary
_UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError)


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
        schema = checked_text(data["schema"])
        if schema != summary.SCHEMA and _FORMAT.fullmatch(schema):
            raise _OtherFormat(
                f"has the schema {schema}, and this version reads {summary.SCHEMA}; "
                "use the version of rdma-cts that wrote it"
            )
        if schema != summary.SCHEMA:
            raise ValueError
        rules = checked_texts(data["rules"])
        if set(rules.values()) - set(OF_RULES):
            raise ValueError
        conforms = " conforms to its documents" in checked_text(data["conclusion"])
        violated = any(verdict in VIOLATIONS for verdict in rules.values())
        if "exit_status" in data and (violated if data["exit_status"] == 0 else conforms):
            raise ValueError
        violating = frozenset(
            checked_text(case) for violation in data["violations"] for case in violation["cases"]
        )
        defects, waived = [], []
        names = {checked_text(defect["fingerprint"]) for defect in data["defects"]}
        apart = [0, 0, 0]
        in_part = {
            checked_text(case): int(number)
            for case, number in data.get("judged_in_part", {}).items()
        }
        for defect in data["defects"]:
            reasons = (defect.get("of_stack"), defect["waived"], defect.get("unconfirmed"))
            if any(reasons):
                apart[list(map(bool, reasons)).index(True)] += 1
                if defect["waived"]:
                    waived.append(defect_of_summary(defect, names, in_part))
            else:
                defects.append(defect_of_summary(defect, names, in_part))
        return Facts(
            checked_text(data["conclusion"]),
            data["complete"] is True,
            checked_texts(data["stack"]),
            checked_texts(data.get("under_test", {})),
            rules,
            violating,
            tuple(defects),
            checked_texts(data.get("capabilities", {})),
            None
            if data.get("duration_s") is None or data.get("resumed")
            else float(data["duration_s"]),
            checked_text(data.get("started", "")),
            sum(map(int, data.get("cases", {}).values())),
            format_apart(*apart),
            tuple(
                map(
                    checked_text,
                    lines_of(data.get("waivers", {}), data["stack"].get("kernel", "?")),
                )
            ),
            tuple(waived),
            tried=frozenset(map(checked_text, data.get("tried", {}))),
            not_judged=frozenset(map(checked_text, data.get("not_judged", ()))),
            in_part=in_part,
            broken=checked_texts(data.get("broken", {})),
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
        facts = replace(facts, started=checked_text(values[_STARTED]))
    if _STACK_STARTED in values:
        facts = replace(
            facts, stack={**alike.stack, "started": checked_text(values[_STACK_STARTED])}
        )
    if _SECONDS in values and facts.seconds is not None:  # None for a resumed run
        seconds = values[_SECONDS]
        facts = replace(facts, seconds=None if seconds is None else float(seconds))
    return facts


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


def changes(old: Facts, new: Facts) -> Iterator[tuple[str, str, str]]:
    """Yields the differences in the software under test between two runs: name, old value, new value."""
    for name in dict.fromkeys([*old.tested, *new.tested]):
        before, after = old.tested.get(name, ""), new.tested.get(name, "")
        if before != after:
            yield name, before, after
