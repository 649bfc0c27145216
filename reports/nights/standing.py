"""Finds the standing regressions of a history: those that no later night has shown to be fixed. A night without results
fixes nothing, and a good night whose outcome cannot be read still says by what a later night has regressed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from conformance.errors import UserError, format_count
from conformance.model.verdict import Verdict
from reports.compared.changes import NEW, NO_LONGER_WAIVED, kind_of
from reports.compared.changes import NEWLY_WRONG as NEWLY_SUPPORTED
from reports.nights.facts import Facts, facts_of
from reports.nights.history import Cell, History, format_night, known_nights, since
from reports.nights.known_defect import KnownDefect
from reports.nights.outcome import COMPARABLE, FAILED, NEWLY_WRONG, REGRESSED

Item = TypeVar("Item")
_UNKNOWN = "wrong (regressed or newly supported: unknown)"


def word_of(kind: str) -> str:
    """Returns the word for a defect that the last good night did not have, by the kind of its change."""
    if kind == NEW:
        return REGRESSED
    return kind or _UNKNOWN


@dataclass(frozen=True)
class StandingDefect:
    """A defect that the last good night did not have. `since` is the first night of its latest unbroken series. `kind` is
    that of the change, as `compare` names it; empty if it is unknown."""

    defect: KnownDefect
    since: str
    seen: int
    nights: int
    kind: str

    @property
    def word(self) -> str:
        return word_of(self.kind)

    @property
    def when(self) -> str:
        return f"since {format_night(self.since)}, seen in {self.seen} of {format_count(self.nights, 'night')}"


@dataclass(frozen=True)
class Standing:
    """A regression of a cell. `outcome` is that of its worst night. `first` is the first night that regressed, and `good`
    the last good night before it. `cases` violate rules since then, but belong to no new defect; each has its first
    night. `is_good_known` is whether the facts of the good night are known."""

    name: str
    first: str
    good: str
    defects: tuple[StandingDefect, ...]
    cases: Mapping[str, str]
    is_good_known: bool
    outcome: str = REGRESSED

    @property
    def since(self) -> str:
        """The first night with what is listed."""
        nights = [*(entry.since for entry in self.defects), *self.cases.values()]
        return min(nights, default=self.first) if self.is_good_known else self.first

    @property
    def rest_since(self) -> str:
        """The first night with the rest."""
        return min(self.cases.values(), default=self.first)

    @property
    def rest(self) -> str:
        """What the defects do not say; empty if they say all."""
        if not self.is_good_known:
            good = format_night(self.good) if self.good else "unknown"
            what = "what else regressed" if self.defects else "by what"
            return f"{what} is unknown: the last good night ({good}) cannot be read"
        if self.cases:
            return f"{format_count(len(self.cases), 'case')} of known defects, the first is {next(iter(self.cases))}"
        if not self.defects:
            return "no case is newly violated; `rdma-cts compare` of the two nights shows the difference"
        return ""


def standing(history: History, name: str) -> list[Standing]:
    """Returns the standing regressions of a cell, at most one for each selection of cases."""
    by_selection: dict[tuple[str, ...], list[Cell]] = {}
    for cell in history.of(name):
        if cell.facts:
            by_selection.setdefault(cell.outcome.selection, []).append(cell)
    return [
        regression
        for cells in by_selection.values()
        for regression in _of_selection(history, name, cells)
    ]


def _of_selection(history: History, name: str, cells: Sequence[Cell]) -> Iterator[Standing]:
    places = [place for place, cell in enumerate(cells) if cell.outcome.outcome in COMPARABLE]
    after = cells[places[-1] + 1 :] if places else cells
    regressed = [cell for cell in after if cell.outcome.outcome in FAILED]
    if not regressed:
        return
    night = regressed[-1].outcome.against or (cells[places[-1]].night if places else "")
    good = _facts_in(history, name, night)
    defects = tuple(sorted(_defects(cells, regressed, good), key=lambda entry: entry.defect.rank))
    told = {case for entry in defects for case in entry.defect.cases}
    cases = dict(_cases(cells, regressed, good, told)) if good else {}
    is_fixed = good and not defects and not cases and _is_complete_after(cells, regressed[-1])
    if not is_fixed:
        outcomes = {cell.outcome.outcome for cell in regressed}
        outcome = REGRESSED if REGRESSED in outcomes else NEWLY_WRONG
        yield Standing(name, regressed[0].night, night, defects, cases, good is not None, outcome)


def _facts_in(history: History, name: str, night: str) -> Facts | None:
    """Returns the facts of a cell in a night, even if its outcome cannot be read; None if they cannot be read, or are
    those of results that were cut."""
    for cell in history.of(name):
        if cell.night == night:
            with suppress(UserError):
                facts = cell.facts or facts_of(cell.folder)
                return facts if facts and facts.complete else None
    return None


def _defects(
    cells: Sequence[Cell], regressed: Sequence[Cell], good: Facts | None
) -> Iterator[StandingDefect]:
    told: set[str] = set()
    for defect in _latest_first(cells, regressed, lambda facts: facts.defects):
        fingerprints = set(defect.fingerprints)
        if not told.isdisjoint(fingerprints):
            continue
        told |= fingerprints
        has = known_nights(cells, partial(Facts.shows, fingerprints=fingerprints))
        kind = _kind(regressed, fingerprints)
        if good:
            is_new = not good.shows(fingerprints)
        else:
            is_new = bool(kind) or not all(has.values())
        if is_new and (first := since(has, cells[-1].night)):
            if good and good.waives(fingerprints):
                kind = NO_LONGER_WAIVED
            kind = kind or _kind_by_rules(defect, good)
            yield StandingDefect(defect, first, sum(has.values()), len(has), kind)


def _kind(regressed: Sequence[Cell], fingerprints: set[str]) -> str:
    """Returns the kind that the latest night has recorded for a defect; empty if none has."""
    kinds = (cell.outcome.kind_of(fingerprints) for cell in reversed(regressed))
    return next(filter(None, kinds), "")


def _kind_by_rules(defect: KnownDefect, good: Facts | None) -> str:
    """Returns the kind of a defect of nights that recorded none; empty if the good night is lost."""
    if good is None:
        return ""
    kinds = {kind_of(good.rules.get(rule, ""), Verdict.FAIL) for rule in defect.rules}
    return NEWLY_SUPPORTED if kinds == {NEWLY_SUPPORTED} else NEW


def _cases(
    cells: Sequence[Cell], regressed: Sequence[Cell], good: Facts, told: set[str]
) -> Iterator[tuple[str, str]]:
    """Yields cases, each with the first night of its latest unbroken series."""
    violating = _latest_first(cells, regressed, lambda facts: sorted(facts.violating))
    for case in dict.fromkeys(violating):
        if case not in told and not good.violates(case):
            has = known_nights(cells, partial(Facts.violates, case=case))
            if first := since(has, cells[-1].night):
                yield case, first


def _latest_first(
    cells: Sequence[Cell], regressed: Sequence[Cell], of: Callable[[Facts], Iterable[Item]]
) -> Iterator[Item]:
    """Yields what the runs since the first regressed night have, the latest run first."""
    for cell in reversed(cells):
        if cell.facts and cell.night >= regressed[0].night:
            yield from of(cell.facts)


def _is_complete_after(cells: Sequence[Cell], regressed: Cell) -> bool:
    return any(cell.facts and cell.facts.complete for cell in cells if cell.night > regressed.night)
