"""Makes the digest of a recorded run: its environment, its verdicts on rules, its violations, and its summary.

Every report is made from a digest. Results files may come from untrusted sources: `read_results` checks the shape of
their records and replaces control characters, and each renderer escapes for its own syntax.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from conformance.errors import UserError
from conformance.model.printable import one_line
from conformance.model.record import ConfirmationRecord, FooterRecord, HeaderRecord, ResultRecord
from conformance.model.record_shape import RESULT, completed
from conformance.model.verdict import VIOLATIONS, Verdict
from conformance.results.records import FILE_NAME, Shown, read_results
from conformance.tables.suite import Suite
from reports.environment import Environment
from reports.own_tables import suite_of_header, wrong_by_tables
from reports.preceding import with_preceding
from reports.rule_verdicts import RuleVerdicts
from reports.run_summary import Summary
from reports.violations import Violations


class Once:
    """Calls a function only once for a value that several results share."""

    def __init__(self) -> None:
        self._results: dict[tuple[Callable[..., Any], int], Any] = {}

    def __call__(self, function: Callable[[Any], Any], value: Any) -> Any:
        key = function, id(value)
        if key not in self._results:
            self._results[key] = function(value)
        return self._results[key]


@dataclass(frozen=True)
class Digest:
    """A run, as reports need it. `results` has a record for each planned case. A case without a recorded result has the
    verdict MISSED and is in `unrecorded`.

    Every record has all keys of model/record_shape.py. `directory` has the other files of the run. `path` is the path
    that the user gave: this directory or a file. `torn` is true if the last line of the file is incomplete.
    `confirmations` has the results of repeating violations. For a run that was read from a file, `suite` is set if
    the run has a footer, no violation, and the tables of this suite. The needs of rules and the number of left-out
    cases are then computed from the suite and not read from the header. `is_of_other_tables` is set if such
    a run does not have the tables of this suite.
    """

    directory: Path
    path: Path
    header: HeaderRecord
    results: tuple[ResultRecord, ...]
    footer: FooterRecord | None
    torn: bool = False
    confirmations: tuple[ConfirmationRecord, ...] = ()
    unrecorded: frozenset[str] = frozenset()
    suite: Suite | None = None
    is_of_other_tables: bool = False

    @property
    def shown_path(self) -> str:
        """The path that the user gave, as part of a line."""
        return one_line(str(self.path))

    @cached_property
    def by_case(self) -> Mapping[str, ResultRecord]:
        return {record["case"]: record for record in self.results}

    @cached_property
    def environment(self) -> Environment:
        return Environment(self.header)

    @cached_property
    def verdicts(self) -> RuleVerdicts:
        return RuleVerdicts(self)

    @cached_property
    def violations(self) -> Violations:
        return Violations(self)

    @cached_property
    def summary(self) -> Summary:
        return Summary(self)

    @cached_property
    def once(self) -> Once:
        return Once()


def read(path: Path) -> Digest:
    """Reads the file or directory `path`. Raises UserError if the file is invalid."""
    return digest(read_results(path), path if path.is_dir() else path.parent, str(path))


def read_several(paths: Sequence[Path]) -> list[Digest]:
    """Reads runs that a command sets against each other. Raises UserError if one of them is given twice."""
    runs = [read(path) for path in paths]
    places: set[str] = set()
    for path in paths:
        place = os.path.realpath(path / FILE_NAME if path.is_dir() else path)
        if place in places:
            raise UserError(f"the run {path} is given twice", hint="give different runs")
        places.add(place)
    return runs


def digest(recorded: Shown, directory: Path, name: str = "", is_own: bool = False) -> Digest:
    """Returns the digest of a recorded run. Raises UserError if the header of a run without a violation contradicts the
    tables. If `is_own`, this process has made the whole run from its own tables, and the header is not compared with
    the tables."""
    where = name or str(directory)
    header = recorded.header
    by_case_here = {record["case"]: record for record in recorded.results}
    by_case: dict[str, ResultRecord] = {}  # in the planned order, not in the order of completion
    never: ResultRecord = {**RESULT, "reason": "planned but never recorded"}
    missed = completed(never)
    unrecorded: list[str] = []
    for case in map(str, header["planned"]):
        if case in by_case_here:
            by_case[case] = by_case_here[case]
        else:
            unrecorded.append(case)
            by_case[case] = missed.copy()  # faster than a new record
            by_case[case]["case"] = case
    by_case |= {case: record for case, record in by_case_here.items() if case not in by_case}
    for confirmation in recorded.confirmations:
        case = confirmation["case"]
        if case in by_case:
            by_case[case] = with_preceding(by_case[case], confirmation)
    footer = recorded.footer
    if footer:
        footer = footer.copy()
        count: Counter[str] = Counter(record["effective"] for record in by_case.values())
        footer |= {"complete": not count[Verdict.MISSED], "verdicts": dict(count)}
    # A results file would be changed only to hide violations, so only runs without a violation are compared.
    good = (
        footer and not is_own and not any(footer["verdicts"].get(verdict) for verdict in VIOLATIONS)
    )
    if good:
        suite = suite_of_header(header)
    else:
        suite = None
    if suite and (wrong := wrong_by_tables(header, suite)):
        raise UserError(f"{where} is not a run of its tables, or was changed: {wrong}")
    return Digest(
        directory,
        Path(name or directory),
        header,
        tuple(by_case.values()),
        footer,
        recorded.torn,
        tuple(recorded.confirmations),
        frozenset(unrecorded),
        suite,
        bool(good) and not suite,
    )
