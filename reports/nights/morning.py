"""Determines the outcome of a cell in one night, and describes the cell's changes in lines, for `rdma-cts nightly`.
comparison.py compares the runs, and page.py makes the page of all nights."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain

from conformance.defects import Defect
from conformance.errors import PROGRAM, format_count
from reports.absence import NOT_DECIDED as NOT_DECIDED_NOW
from reports.absence import NOT_SEEN, UNTRIED, absence, is_judged
from reports.compared.changes import (
    FIXED,
    GONE,
    NEW_KINDS,
    NEWLY_WAIVED,
    NO_LONGER_WAIVED,
    NOT_HIT,
    NOT_TRIED,
    UNCONFIRMED,
    UNDECIDED,
    UNKNOWN,
    UNSUPPORTED,
    WORSE,
    Change,
    amount,
)
from reports.compared.comparison import Comparison
from reports.compared.waivers import why_not_waived
from reports.digest import Digest
from reports.nights.facts import Facts, changes
from reports.nights.history import Cell, History, format_night, known_nights, since
from reports.nights.known_defect import KnownDefect
from reports.nights.outcome import (
    BASELINE,
    FAILED,
    GOOD,
    NEWLY_WRONG,
    NOT_RUN,
    OUTCOMES,
    REGRESSED,
    Outcome,
)
from reports.nights.outcome import UNDECIDED as NOT_DECIDED
from reports.nights.standing import standing
from reports.nights.tracks import NO_LONGER_SEEN
from reports.terminal import REPORT
from reports.text import format_rules

STANDING = "in an earlier night and not fixed"
IN_FEWER_CASES, KNOWN = "in fewer cases", "known, and now worse"
# The most lines of each kind of change, for the changes of one defect and for others; `rdma-cts compare` shows all.
_MOST_OF_DEFECT, _MOST = 3, 5
# The kinds of change that say nothing about a defect.
_WITHOUT_DEFECT = (UNCONFIRMED, NOT_HIT, UNDECIDED, UNSUPPORTED, GONE)


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
        outcome = replace(self.cell.outcome, kinds=self._kinds, undecided=self._undecided)
        if self.run is None:
            return replace(outcome, outcome=NOT_RUN)
        if self.good is not None and self.cell.facts and self.cell.facts.complete:
            outcome = replace(outcome, untried=tuple(self.good.untried_now))
        if self.good is not None and self.good.failing:
            failed = REGRESSED if self.good.failing in (REGRESSED, UNKNOWN) else NEWLY_WRONG
            return replace(outcome, outcome=failed)
        unfinished = outcome.reason or not (self.run.footer and self.run.footer["complete"])
        if self.lost or unfinished or (self.good is not None and self.good.status):
            return replace(outcome, outcome=NOT_DECIDED)
        return replace(outcome, outcome=BASELINE if self.good is None else GOOD)

    @property
    def _kinds(self) -> Mapping[str, str]:
        if self.good is None:
            return {}
        return {
            defect.fingerprint: kind
            for kind in (*NEW_KINDS, NOT_TRIED)
            for defect in self.good.defects.by_kind[kind]
        }

    @cached_property
    def _undecided(self) -> Mapping[str, str]:
        """The word for each defect of earlier nights that this run has not decided, as the latest night describes it."""
        facts = self.cell.facts
        if self.run is None or facts is None or not facts.complete:
            return {}
        compared = filter(None, (self.good, self.before))
        words = {
            defect.fingerprint: NOT_DECIDED_NOW
            for comparison in compared
            for defect in comparison.defects.by_kind[NOT_DECIDED_NOW]
        }
        for defect in self._earlier_defects:
            before = dict(defect.in_part)
            judged = (
                is_judged(self.run.by_case.get(case), before.get(case, 0)) for case in defect.cases
            )
            if (word := absence(judged)) != NOT_SEEN:
                words[defect.fingerprint] = word
        here = {name for defect in (*facts.defects, *facts.waived) for name in defect.fingerprints}
        return {name: word for name, word in words.items() if name not in here}

    @property
    def _earlier_defects(self) -> Iterable[KnownDefect]:
        """The defects of earlier nights, as the latest night with the defect describes them."""
        earlier = self.history.ran(self.cell.name, self.cell.night)
        return {
            defect.fingerprint: defect
            for cell in earlier
            if cell.facts
            for defect in (*cell.facts.defects, *cell.facts.waived)
        }.values()

    def lines(self) -> Iterator[str]:
        """Yields the line of the cell; then waivers that do not fit; then what is worse, by defect, what is better, by
        defect, and other cases."""
        outcome = self.outcome
        yield f"{self.cell.name:<17} {outcome.outcome:<10} {self._explained(outcome)}"
        if self.run and outcome.outcome == BASELINE:
            yield f"    {self.run.summary.headline or 'no defect'}"
            yield f"    report: {self.cell.folder / REPORT}"
        if self.good is not None:
            yield from self._changed_under_test()
        if self.cell.facts:
            yield from self._about_waivers(self.cell.facts.waivers)
        if self.good is not None:
            yield from self._worse(self.good)
        yield from self._newly_waived()
        latest = self.before or self.good
        if latest is not None:
            yield from self._better(latest)
        if self.good is not None:
            for kind in _WITHOUT_DEFECT:
                yield from self._changes(kind, self.good.of(kind))
            yield from self._untried(self.good.untried_now)
        yield from self._newly_undecided()
        if outcome.outcome in (NOT_RUN, NOT_DECIDED):
            yield from self.still_wrong()
        if self.good is not None and self.good.changes:
            runs = (str(run.directory) for run in (self.good.old, self.good.new))
            yield f"    all: {shlex.join([PROGRAM, 'compare', '--all', *runs])}"

    @staticmethod
    def _about_waivers(lines: Sequence[str]) -> Iterator[str]:
        yield from (f"    waiver: {line}" for line in lines[:_MOST])
        if len(lines) > _MOST:
            yield f"    waiver: {len(lines) - _MOST} more in {REPORT}"

    @staticmethod
    def _untried(cases: Sequence[str]) -> Iterator[str]:
        if cases:
            more = f" and {len(cases) - _MOST} more" if len(cases) > _MOST else ""
            yield f"    {UNTRIED}: {', '.join(cases[:_MOST])}{more}"

    def still_wrong(self) -> Iterator[str]:
        """Yields a line for each defect of earlier regressions that this run does not show to be fixed, unless the
        comparison with the last good night names it."""
        for regression in standing(self.history, self.cell.name):
            for entry in regression.defects:
                defect = entry.defect
                shown = self.cell.facts and self.cell.facts.shows(set(defect.fingerprints))
                if shown is None or (shown and self.good is None):
                    yield _line(f"{entry.word} {STANDING}", entry.when, _described(defect))
            if self.good is None and regression.rest:
                when = f"since {format_night(regression.rest_since)}"
                yield _line(f"{regression.outcome} {STANDING}", when, regression.rest)

    def _worse(self, good: Comparison) -> Iterator[str]:
        new = {kind: good.defects.by_kind[kind] for kind in (*NEW_KINDS, NOT_TRIED)}
        news = {defect.fingerprint: f": now also {text}" for defect, text in good.defects.changed}
        others = good.new.violations.defects
        failing = [change for kind in WORSE for change in good.of(kind)]
        changes = _by_defect([*chain.from_iterable(new.values()), *others], failing)
        for kind, defects in new.items():
            for defect in defects:
                yield self._of_defect(kind, defect)
                yield from self._cases(WORSE, changes.pop(defect.fingerprint, ()))
        for defect in others:
            cases = changes.pop(defect.fingerprint, ())
            if cases or defect.fingerprint in news:
                unwaived = defect.fingerprint not in news and all(
                    why_not_waived(change, good) for change in cases
                )
                kind = NO_LONGER_WAIVED if unwaived else KNOWN
                yield self._of_defect(kind, defect) + news.get(defect.fingerprint, "")
                yield from self._cases(WORSE, cases)
        for kind in WORSE:
            rest = [change for change in changes.get("", ()) if change.kind == kind]
            yield from self._changes(kind, rest)

    def _newly_waived(self) -> Iterator[str]:
        """Yields a line for each waived defect that counted in the last night that has decided it."""
        facts = self.cell.facts
        earlier = [cell.facts for cell in self.history.ran(self.cell.name, self.cell.night)]
        for defect in facts.waived if facts else ():
            fingerprints = set(defect.fingerprints)
            states = [
                old.shows(fingerprints)
                for old in earlier
                if old and old.has(fingerprints) is not None
            ]
            if states and states[-1]:
                yield _line(NEWLY_WAIVED, self._seen(self._has_defect(defect)), _described(defect))

    def _newly_undecided(self) -> Iterator[str]:
        """Yields a line for each defect of the previous night with results that this run has not decided."""
        earlier = self.history.ran(self.cell.name, self.cell.night)
        facts = earlier[-1].facts if earlier else None
        for defect in (*facts.defects, *facts.waived) if facts else ():
            if word := self._undecided.get(defect.fingerprint):
                yield _line(word, self._seen(self._has_defect(defect)), _described(defect))

    def _better(self, latest: Comparison) -> Iterator[str]:
        gone, old = latest.defects.by_kind[GONE], latest.old.violations.defects
        changes = _by_defect([*gone, *old], latest.of(FIXED))
        for defect in gone:
            yield self._of_defect(NO_LONGER_SEEN, defect)
            yield from self._cases((FIXED,), changes.pop(defect.fingerprint, ()))
        for defect in old:
            if cases := changes.pop(defect.fingerprint, ()):
                yield self._of_defect(IN_FEWER_CASES, defect)
                yield from self._cases((FIXED,), cases)
        yield from self._changes(FIXED, changes.get("", ()))

    def _of_defect(self, kind: str, defect: Defect) -> str:
        what = f"{defect.severity.label}  {defect.fingerprint}  {defect.title} ({format_rules(defect.rules)})"
        return _line(kind, self._seen(self._has_defect(defect)), what)

    def _cases(self, kinds: Sequence[str], changes: Sequence[Change]) -> Iterator[str]:
        """Yields lines for the changed cases of a defect, below the line of the defect."""
        for kind in kinds:
            of_kind = [change for change in changes if change.kind == kind]
            yield from (f"    {line}" for line in self._changes(kind, of_kind, _MOST_OF_DEFECT))

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
            for kind, changes in self._numbered(self.good).items()
            if changes
        ]
        text = ", ".join(kinds) or (
            "as on" if outcome.outcome == GOOD else "the run is incomplete; compared with"
        )
        since_it = "since " if kinds else ""
        text += f" {since_it}the last good night, {format_night(outcome.against)}"
        number = self.good.untried[0]
        if number:
            text += f"; {format_count(number, 'case')} of that night not tried"
        return text

    @staticmethod
    def _numbered(good: Comparison) -> Mapping[str, Sequence[Change]]:
        """Returns the changes that the line of the cell counts, by kind."""
        numbered: dict[str, list[Change]] = {kind: [] for kind in (*WORSE, NO_LONGER_WAIVED)}
        for kind in WORSE:
            for change in good.of(kind):
                numbered[NO_LONGER_WAIVED if why_not_waived(change, good) else kind].append(change)
        return {**numbered, UNDECIDED: good.of(UNDECIDED)}

    def _changed_under_test(self) -> Iterator[str]:
        nights = (
            cell for cell in self.history.of(self.cell.name) if cell.night == self.outcome.against
        )
        old, new = next(nights, self.cell).facts, self.cell.facts
        if old and new and (differences := list(changes(old, new))):
            texts = [
                f"{name} {before or 'none'} -> {after or 'none'}"
                for name, before, after in differences[:_MOST]
            ]
            if len(differences) > _MOST:
                texts.append(f"{len(differences) - _MOST} more")
            yield f"    under test: {'; '.join(texts)}"

    def _changes(
        self,
        kind: str,
        changes: Sequence[Change],
        most: int = _MOST,
    ) -> Iterator[str]:
        if kind == UNSUPPORTED:
            label = "newly unsupported"
        else:
            label = kind
        for change in changes[:most]:
            why = why_not_waived(change, self.good) if self.good else ""
            text = NO_LONGER_WAIVED if why else label
            there = Facts.has_violation if kind == FIXED else Facts.violates
            has = known_nights(self._nights(), partial(there, case=change.case))
            if why:
                when = ""
            elif kind == FIXED:
                when = self._was_there(has)
            elif kind in WORSE:
                when = self._since(has)
            else:
                when = ""
            what = " -> ".join(filter(None, (change.old, change.new))) + change.hidden
            what += f"  {' '.join(change.record['rules'])}  {change.case}"
            if change.points:
                what += f", {format_count(change.points, 'point')}"
            if why:
                what += f": {why}"
            yield _line(text, when, what)
        if len(changes) > most:
            yield f"    {label}: {len(changes) - most} more"

    def _nights(self) -> list[Cell]:
        return [*self.history.ran(self.cell.name, self.cell.night), self.cell]

    def _has_defect(self, defect: Defect | KnownDefect) -> Mapping[str, bool]:
        return known_nights(
            self._nights(),
            partial(Facts.has, fingerprints=set(defect.fingerprints)),
        )

    def _since(self, has: Mapping[str, bool]) -> str:
        first = since(has, self.cell.night) or self.cell.night
        earlier = sum(seen for night, seen in has.items() if night < first)
        when = "since this night"
        if first != self.cell.night:
            when = f"since {format_night(first)}"
        if earlier:
            when += f", and earlier in {earlier} of {sum(night < first for night in has)} nights"
        return when

    def _seen(self, has: Mapping[str, bool]) -> str:
        """Returns the first and the last night in which a defect was seen, and the number of nights with the defect if
        it was not seen in all nights between."""
        nights = [night for night, seen in sorted(has.items()) if seen]
        if not nights or nights[0] == self.cell.night:
            return "first seen this night"
        text = f"first seen {format_night(nights[0])}"
        if nights[-1] != self.cell.night:
            text += f", last seen {format_night(nights[-1])}"
        between = sum(nights[0] <= night <= nights[-1] for night in has)
        if len(nights) < between:
            text += f", seen in {len(nights)} of these {between} nights"
        return text

    def _was_there(self, has: Mapping[str, bool]) -> str:
        last = max(
            (night for night, seen in has.items() if seen and night < self.cell.night),
            default="",
        )
        first = last and since(has, last)
        return first and f"was present since {format_night(first)}"


def _by_defect(
    defects: Sequence[Defect],
    changes: Sequence[Change],
) -> dict[str, list[Change]]:
    """Returns the changes by the fingerprint of the first defect that has their case; changes without a defect have
    an empty fingerprint."""
    by_case: dict[str, str] = {}
    for defect in reversed(defects):
        by_case |= dict.fromkeys(defect.cases, defect.fingerprint)
    groups: dict[str, list[Change]] = {}
    for change in changes:
        groups.setdefault(by_case.get(change.case, ""), []).append(change)
    return groups


def _described(defect: KnownDefect) -> str:
    return f"{defect.severity}  {defect.fingerprint}  {defect.title} ({format_rules(defect.rules)})"


def _line(kind: str, when: str, what: str) -> str:
    return f"    {kind}{f', {when}' if when else ''}: {what}"


def standing_lines(history: History, night: str, name: str) -> list[str]:
    """Returns the lines of the standing regressions of a cell that has no outcome in a night."""
    cell = Cell(night, name, history.folder / night / name, Outcome(NOT_RUN))
    return list(Morning(history, cell).still_wrong())


def left_out(history: History, night: str, cells: Collection[str]) -> Iterator[str]:
    """Yields the lines of the standing regressions of the cells that are not among those of a night."""
    for name in history.names:
        if name not in cells and (lines := standing_lines(history, night, name)):
            yield f"{name:<17} not chosen for this night"
            yield from lines


def counted(outcomes: Sequence[Outcome]) -> str:
    count = Counter(outcome.outcome for outcome in outcomes)
    return ", ".join(f"{count[outcome]} {outcome}" for outcome in OUTCOMES if count[outcome])


def summary_of(outcomes: Sequence[Outcome]) -> tuple[str, int]:
    """Returns the night in one line, and its exit status: 1 if something is newly wrong, 3 if a cell is undecided or not run, else
    0."""
    count = Counter(outcome.outcome for outcome in outcomes)
    if any(map(count.get, FAILED)):
        status = 1
    elif count[NOT_DECIDED] or count[NOT_RUN]:
        status = 3
    else:
        status = 0
    return f"{counted(outcomes)} (exit status {status})", status
