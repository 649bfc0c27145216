"""Determines the outcome of a cell in one night, and describes the cell's changes in lines, for `rdma-cts nightly`.
comparison.py compares the runs, and history_page.py makes the page of all nights."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from conformance.defects import Defect
from conformance.errors import PROGRAM, format_count
from reports.comparison import (
    FAILING,
    FIXED,
    GONE,
    NEW_KINDS,
    UNDECIDED,
    UNSUPPORTED,
    Change,
    Comparison,
)
from reports.comparison_formats import amount
from reports.digest import Digest
from reports.history import (
    BASELINE,
    GOOD,
    NOT_RUN,
    OUTCOMES,
    REGRESSED,
    Cell,
    Facts,
    History,
    Outcome,
    changes,
    format_night,
    known_nights,
    since,
)
from reports.history import UNDECIDED as NOT_DECIDED

NO_LONGER_SEEN = "no longer seen"
_MOST = 5  # the most lines of each kind of change; `rdma-cts compare` shows all changes
_KINDS = (*FAILING, UNDECIDED, UNSUPPORTED, GONE)


@dataclass(frozen=True)
class Morning:
    """A cell after its run. `good` compares the run with the last good night. `before` compares the run with the last
    complete night if that night was not good. Each is None if there is no such night. `lost` is the last good night if
    no good night can be read any more."""

    history: History
    cell: Cell
    run: Digest | None = None
    good: Comparison | None = None
    before: Comparison | None = None
    lost: str = ""

    @property
    def outcome(self) -> Outcome:
        outcome = self.cell.outcome
        if self.run is None:
            return replace(outcome, outcome=NOT_RUN)
        if self.good is not None and self.good.status == 1:
            return replace(outcome, outcome=REGRESSED)
        unfinished = outcome.reason or not (self.run.footer and self.run.footer["complete"])
        if self.lost or unfinished or (self.good is not None and self.good.status):
            return replace(outcome, outcome=NOT_DECIDED)
        return replace(outcome, outcome=BASELINE if self.good is None else GOOD)

    def lines(self) -> Iterator[str]:
        outcome = self.outcome
        yield f"{self.cell.name:<17} {outcome.outcome:<10} {self._explained(outcome)}"
        if self.good is not None:
            yield from self._changed_under_test()
            for kind in NEW_KINDS:
                for defect in self.good.defects[kind]:
                    yield _line(kind, self._since(self._has_defect(defect)), _of_defect(defect))
            for defect, news in self.good.changed_defects:
                yield _line("changed", "", f"{_of_defect(defect)}: now also {news}")
            for kind in _KINDS:
                yield from self._changes(kind, self.good.of(kind))
        latest = self.before or self.good
        if latest is not None:
            yield from self._changes(FIXED, latest.of(FIXED))
            for defect in latest.defects[GONE]:
                yield _line(
                    NO_LONGER_SEEN,
                    self._was_there(self._has_defect(defect)),
                    _of_defect(defect),
                )
        if self.good is not None and self.good.changes:
            runs = (str(run.directory) for run in (self.good.old, self.good.new))
            yield f"    all: {shlex.join([PROGRAM, 'compare', '--all', '--unlike-tables', *runs])}"

    def _explained(self, outcome: Outcome) -> str:
        if self.run is None or outcome.reason:
            return outcome.reason
        if self.lost:
            gone = f"cannot be read; remove {self.history.folder}/*/{self.cell.name} to start a new history of the cell"
            return f"the results of {format_night(self.lost)}, the last good night, {gone}"
        if self.good is None:
            return f"{OUTCOMES[outcome.outcome]}: {self.run.summary.short_sentence}"
        kinds = [
            f"{amount(changes)} {kind}"
            for kind in (*FAILING, UNDECIDED)
            if (changes := self.good.of(kind))
        ]
        text = ", ".join(kinds) or (
            "as on" if outcome.outcome == GOOD else "the run is incomplete; compared with"
        )
        number = self.good.untried[0]
        if number:
            untried = f"; {format_count(number, 'case')} of that night not tried"
        else:
            untried = ""
        return f"{text} {'since ' if kinds else ''}the last good night, {format_night(outcome.against)}{untried}"

    def _changed_under_test(self) -> Iterator[str]:
        nights = (
            cell for cell in self.history.of(self.cell.name) if cell.night == self.outcome.against
        )
        old, new = next(nights, self.cell).facts, self.cell.facts
        if old and new and (differences := list(changes(old, new))):
            text = [
                f"{name} {before or 'none'} -> {after or 'none'}"
                for name, before, after in differences[:_MOST]
            ]
            if len(differences) > _MOST:
                more = [f"{len(differences) - _MOST} more"]
            else:
                more = []
            yield f"    under test: {'; '.join(text + more)}"

    def _changes(self, kind: str, changes: Sequence[Change]) -> Iterator[str]:
        if kind == UNSUPPORTED:
            text = "newly unsupported"
        else:
            text = kind
        for change in changes[:_MOST]:
            has = known_nights(self._nights(), partial(Facts.violates, case=change.case))
            if kind == FIXED:
                when = self._was_there(has)
            else:
                if kind in FAILING:
                    when = self._since(has)
                else:
                    when = ""
            verdicts = " -> ".join(filter(None, (change.old, change.new)))
            if change.points:
                points = f", {format_count(change.points, 'point')}"
            else:
                points = ""
            yield _line(
                text,
                when,
                f"{verdicts}  {' '.join(change.record['rules'])}  {change.case}{points}",
            )
        if len(changes) > _MOST:
            yield f"    {text}: {len(changes) - _MOST} more"

    def _nights(self) -> list[Cell]:
        return [*self.history.ran(self.cell.name, self.cell.night), self.cell]

    def _has_defect(self, defect: Defect) -> Mapping[str, bool]:
        return known_nights(
            self._nights(),
            partial(Facts.shows, fingerprints=set(defect.fingerprints)),
        )

    def _since(self, has: Mapping[str, bool]) -> str:
        first = since(has, self.cell.night) or self.cell.night
        earlier = sum(seen for night, seen in has.items() if night < first)
        if earlier:
            before = f", and earlier in {earlier} of {sum(n < first for n in has)} nights"
        else:
            before = ""
        if first == self.cell.night:
            when = "since this night"
        else:
            when = f"since {format_night(first)}"
        return when + before

    def _was_there(self, has: Mapping[str, bool]) -> str:
        last = max(
            (night for night, seen in has.items() if seen and night < self.cell.night),
            default="",
        )
        if last:
            first = since(has, last)
        else:
            first = ""
        if first:
            return f"was present since {format_night(first)}"
        return ""


def _of_defect(defect: Defect) -> str:
    return f"{defect.severity.label}  {defect.fingerprint}  {defect.title}"


def _line(kind: str, when: str, what: str) -> str:
    return f"    {kind}{f', {when}' if when else ''}: {what}"


def summary_of(outcomes: Sequence[Outcome]) -> tuple[str, int]:
    """Returns the night in one line, and its exit status: 1 for a regression, 3 if a cell is undecided or not run, else
    0."""
    count = Counter(outcome.outcome for outcome in outcomes)
    text = ", ".join(f"{count[outcome]} {outcome}" for outcome in OUTCOMES if count[outcome])
    if count[REGRESSED]:
        status = 1
    else:
        if count[NOT_DECIDED] or count[NOT_RUN]:
            status = 3
        else:
            status = 0
    return f"{text} (exit status {status})", status
