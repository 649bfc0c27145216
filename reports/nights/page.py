"""Makes the page of a history: rules, nights, stacks, the first night of each violation, and what changed in the
software under test in that night. The page is self-contained and has no script; templates/history.html has the layout.
The statements of the rules are read from the latest readable results, and everything else from the summaries of the
runs (facts.py)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from urllib.parse import quote

from conformance.defects import Defect
from conformance.errors import UserError, format_count
from conformance.model.verdict import OF_RULES, VIOLATIONS
from conformance.older_python import pairwise
from reports.compared.changes import (
    FAILING,
    KINDS,
    NEWLY_WAIVED,
    NO_LONGER_WAIVED,
    NOT_TRIED,
)
from reports.digest import read
from reports.nights.facts import UNKNOWN as NOT_RUN
from reports.nights.facts import Facts, changes
from reports.nights.history import Cell, History, format_night
from reports.nights.known_defect import KnownDefect, first_names_of
from reports.nights.outcome import BASELINE, OUTCOMES, RUNNING
from reports.nights.standing import Standing, standing
from reports.nights.tracks import (
    BAD_SEEN,
    BAD_VERDICTS,
    NO_LONGER_SEEN,
    OPEN_STATES,
    TONES,
    UNDECIDED_STATES,
    Lane,
    News,
    Step,
    Track,
)
from reports.page_templates import environment
from reports.rule_verdicts import RuleFacts
from reports.terminal import REPORT

# The headings of the changes of a night, in their order.
_HEADINGS = dict.fromkeys(
    (*FAILING, NO_LONGER_WAIVED, NOT_TRIED, *KINDS, NO_LONGER_SEEN, NEWLY_WAIVED, *UNDECIDED_STATES)
)
_NIGHTLY = timedelta(days=1.5)  # the most time between two nights without a missing one


class HistoryPage:
    most_news = 6  # the most changes of each kind at the top of the page; the others are folded
    most_defects = 24  # the most defects that are shown; the others are folded

    def __init__(self, history: History) -> None:
        self.history = history
        self.nights = history.nights
        self._facts: dict[str, dict[str, Facts]] = {}
        for name in history.names:
            by_night = {cell.night: cell.facts for cell in history.of(name) if cell.facts}
            self._facts[name] = by_night
        self._changes = {name: _changes(facts) for name, facts in self._facts.items()}

    @property
    def has_results(self) -> bool:
        return any(self._facts.values())

    def cells_of(self, night: str) -> list[Cell]:
        return [cell for cell in self.history.cells if cell.night == night]

    @property
    def last(self) -> list[Cell]:
        if self.nights:
            return self.cells_of(self.nights[-1])
        return []

    def unchanged_in(self, night: str) -> str:
        """What is known of a night without changes."""
        cells = self.cells_of(night)
        missing = [cell for cell in cells if not cell.facts]
        yet = " yet" if any(cell.outcome.outcome == RUNNING for cell in missing) else ""
        if len(missing) == len(cells):
            return f"This night has no results{yet}."
        names = ", ".join(cell.name for cell in missing)
        cut = [cell.name for cell in cells if cell.facts and not cell.facts.complete]
        if cut:
            verb = "has" if len(missing) == 1 else "have"
            lacking = f", and {names} {verb} no results{yet}" if missing else ""
            return f"No change is known in this night: the run of {', '.join(cut)} was cut short{lacking}."
        if missing:
            return f"Nothing changed in this night, which has no results{yet} of {names}."
        if all(cell.outcome.outcome == BASELINE for cell in cells):
            return "This night has nothing to compare with yet."
        if untried := sum(len(cell.outcome.untried) for cell in cells):
            number = format_count(untried, "case")
            return f"No verdict changed in this night, but {number} of the last good night {'was' if untried == 1 else 'were'} not tried."
        return "Nothing changed in this night."

    @property
    def missing_nights(self) -> list[str]:
        """The days without a night, in a history with a night on most days."""
        pairs = [*pairwise(map(_time_of, self.nights))]
        gaps = [(old, new) for old, new in pairs if new - old > _NIGHTLY]
        if 2 * len(gaps) >= len(pairs):
            return []
        return [
            f"{(old + timedelta(days=day)):%Y-%m-%d}"
            for old, new in gaps
            for day in range(1, (new.date() - old.date()).days)
        ]

    @property
    def absent(self) -> list[str]:
        """The stacks of earlier nights that are not in the latest one, each with its last night and outcome."""
        here = {cell.name for cell in self.last}
        last = [self.history.of(name)[-1] for name in self.history.names if name not in here]
        return [
            f"{cell.name} (last {format_night(cell.night)}, {cell.outcome.outcome})"
            for cell in last
        ]

    @property
    def last_outcomes(self) -> str:
        count = Counter(cell.outcome.outcome for cell in self.last)
        texts = [f"{count[outcome]} {outcome}" for outcome in OUTCOMES if count[outcome]]
        return ", ".join(texts) or "no cell"

    def changed_in(self, night: str) -> Mapping[str, Sequence[News]]:
        """Returns the changes in a night by their kind, in the order of _HEADINGS: first those of the defects, and then
        those of rules that no such defect has."""
        rules = {
            (track.id, lane.name): News(track, lane, step)
            for track in self.rules
            if track.was_bad
            for lane, step in track.steps_in(night)
        }
        news: list[News] = []
        outcomes = {cell.name: cell.outcome for cell in self.cells_of(night)}
        for defect, track in sorted(self.defects, key=lambda pair: pair[0].rank):
            for lane, step in track.steps_in(night):
                if not lane.was_there:
                    continue
                here = self._described(track.id, lane.name, night) or defect
                moved = tuple(rule for rule in here.rules if (rule, lane.name) in rules)
                kind = outcomes[lane.name].kind_of(defect.fingerprints)
                news.append(News(track, lane, step, here, moved, kind))
        news.sort(key=lambda item: item.defect.rank if item.defect else 0)
        told = {(rule, item.lane.name) for item in news for rule in item.rules}
        news += [item for pair, item in rules.items() if pair not in told]
        by_kind: dict[str, list[News]] = {kind: [] for kind in _HEADINGS}
        for item in news:
            by_kind.setdefault(item.kind, []).append(item)
        return {kind: changes for kind, changes in by_kind.items() if changes}

    def _described(self, first: str, name: str, night: str) -> KnownDefect | None:
        """Returns a defect as described in the latest run with it on one stack up to a night; None without such a run."""
        for earlier in sorted(self._facts[name], reverse=True):
            if earlier <= night:
                facts = self._facts[name][earlier]
                for defect in (*facts.defects, *facts.waived):
                    if self.known_as(defect) == first:
                        return defect
        return None

    @cached_property
    def regressions(self) -> list[Standing]:
        """The regressions of earlier nights that no later night has shown to be fixed, also of cells that did not run
        in the latest night. Defects of the latest night are left out: they are among its changes."""
        standing_now = []
        for name in self.history.names:
            for item in standing(self.history, name):
                if item.since < self.nights[-1]:
                    old = tuple(entry for entry in item.defects if entry.since < self.nights[-1])
                    if old or item.rest:
                        standing_now.append(replace(item, defects=old))
        return standing_now

    @cached_property
    def statements(self) -> Mapping[str, RuleFacts]:
        """The rules, as the latest readable results describe them."""
        for cell in sorted(self.history.cells, key=lambda cell: cell.night, reverse=True):
            if cell.facts:
                with suppress(UserError):
                    return read(cell.folder).verdicts.rules
        return {}

    @cached_property
    def rules(self) -> list[Track]:
        """Every rule with a verdict in any night, in the order of the rules."""
        return [track for track in self.all_rules if track.has_states]

    @cached_property
    def all_rules(self) -> list[Track]:
        """Every rule that a statement or a verdict names."""
        ids = dict.fromkeys(self.statements)
        ids |= dict.fromkeys(
            rule for by in self._facts.values() for facts in by.values() for rule in facts.rules
        )
        return list(map(self._rule, ids))

    def _rule(self, rule: str) -> Track:
        lanes = []
        for name, by_night in self._facts.items():
            verdicts = dict(_verdicts_on(rule, by_night))
            lanes.append(self._lane(name, verdicts, BAD_VERDICTS))
        return _track(rule, lanes)

    @cached_property
    def defects(self) -> list[tuple[KnownDefect, Track]]:
        """The defects of all nights: defects that are present now come first, then by severity, then by the latest
        change."""
        latest, first_names = self._known
        states = {
            (name, night): facts.states(first_names)
            for name, by_night in self._facts.items()
            for night, facts in by_night.items()
        }
        tracks = [(defect, self._defect(first, defect, states)) for first, defect in latest.items()]
        tracks.sort(key=lambda pair: pair[1].last_change, reverse=True)
        return sorted(tracks, key=lambda pair: (not pair[1].is_bad, pair[0].rank))

    @cached_property
    def _known(self) -> tuple[Mapping[str, KnownDefect], Mapping[str, str]]:
        """Two mappings. The first has each defect by its first fingerprint, as described in the latest night with this
        defect, but with its worst severity of all nights. The second maps each fingerprint to its defect's first."""
        cells = sorted(self.history.cells, key=lambda cell: cell.night)
        shown = [(cell.name, one) for cell in cells if cell.facts for one in cell.facts.defects]
        defects = [defect for _, defect in shown]
        waived = [defect for cell in cells if cell.facts for defect in cell.facts.waived]
        first_names = first_names_of([*defects, *waived])
        latest: dict[str, KnownDefect] = {}
        severities: dict[str, dict[str, set[str]]] = {}  # of each defect: the stacks by severity
        for stack, defect in shown:
            first = first_names[defect.fingerprint]
            severities.setdefault(first, {}).setdefault(defect.severity, set()).add(stack)
            worst = min(latest.get(first, defect), defect, key=lambda one: one.rank)
            names = tuple(
                name for name in defect.fingerprints if first_names.get(name, first) == first
            )
            latest[first] = replace(defect, fingerprints=names, severity=worst.severity)
        for first, defect in latest.items():
            stacks = severities[first]
            if (worst_on := stacks[defect.severity]) != {*chain.from_iterable(stacks.values())}:
                latest[first] = replace(defect, worst_on=", ".join(sorted(worst_on)))
        return latest, {name: first for name, first in first_names.items() if first in latest}

    @property
    def draws_lanes(self) -> bool:
        """Whether any lane of the defects, or of the violated rules, is more than a line."""
        tracks = [track for _, track in self.defects]
        tracks += [track for track in self.rules if track.was_bad]
        return any(track.changed for track in tracks)

    def known_as(self, defect: Defect | KnownDefect) -> str:
        """Returns the first fingerprint of a defect, the key in `_known`; empty if no night has the defect."""
        first_names = self._known[1]
        return next(
            (
                first_names[fingerprint]
                for fingerprint in defect.fingerprints
                if fingerprint in first_names
            ),
            "",
        )

    def _defect(
        self,
        first: str,
        defect: KnownDefect,
        states: Mapping[tuple[str, str], Mapping[str, str]],
    ) -> Track:
        lanes = []
        for name, by_night in self._facts.items():
            of_defect = {
                night: states[name, night].get(first) or facts.absence_of(defect)
                for night, facts in by_night.items()
            }
            lanes.append(self._lane(name, of_defect, BAD_SEEN))
        return _track(first, lanes)

    def _lane(self, name: str, states: Mapping[str, str], bad: frozenset[str]) -> Lane:
        steps = []
        old = decided = NOT_RUN
        for night in self.nights:
            if new := states.get(night, NOT_RUN):
                if old and new != old:
                    steps.append(
                        Step(
                            night,
                            old,
                            new,
                            tuple(name for name, *_ in self._changes[name].get(night, ())),
                            decided,
                        ),
                    )
                old = new
                if new not in OPEN_STATES:
                    decided = new
        return Lane(
            name,
            tuple(states.get(night, NOT_RUN) for night in self.nights),
            self.nights,
            bad,
            tuple(steps),
        )

    @property
    def changes(self) -> list[tuple[str, str, tuple[tuple[str, str, str], ...]]]:
        """The changes under test, the latest night first: the night, the cell, and its changes."""
        nights = reversed(self.nights)
        return [
            (night, name, by[night])
            for night in nights
            for name, by in self._changes.items()
            if by.get(night)
        ]


def _verdicts_on(rule: str, by_night: Mapping[str, Facts]) -> Iterator[tuple[str, str]]:
    """Yields the nights that have decided a rule, with its verdict. A run that was cut short decides it only by a
    violation as bad as before: the missing cases could be worse, because those that can crash the kernel run last."""
    as_bad: Sequence[str] = VIOLATIONS
    for night, facts in by_night.items():
        verdict = facts.rules.get(rule, NOT_RUN)
        if facts.complete or verdict in as_bad:
            yield night, verdict
            worst = VIOLATIONS.index(verdict) if verdict in VIOLATIONS else len(VIOLATIONS)
            as_bad = VIOLATIONS[: worst + 1]


def _time_of(night: str) -> datetime:
    return datetime.strptime(night.partition("Z")[0], "%Y%m%dT%H%M%S")


def _track(id_: str, lanes: Iterable[Lane]) -> Track:
    """Returns a track without the stacks that never had a result about it: an empty lane says nothing."""
    return Track(id_, tuple(lane for lane in lanes if any(lane.states)))


def _changes(by_night: Mapping[str, Facts]) -> dict[str, tuple[tuple[str, str, str], ...]]:
    pairs = pairwise(sorted(by_night))
    return {after: tuple(changes(by_night[before], by_night[after])) for before, after in pairs}


def page_of(history: History, folder: Path | None = None) -> str:
    """Returns the page in a folder; None for the folder of the history."""
    template = environment().get_template("history.html")
    report_of = partial(_report_of, root=_root(history.folder, folder or history.folder))
    return template.render(page=HistoryPage(history), under=_under, report_of=report_of, **WORDS)


def _root(history: Path, folder: Path) -> str:
    """Returns the address of a history, relative to a page in the folder; empty if the page is in the history."""
    path = os.path.relpath(os.path.realpath(history), os.path.realpath(folder))
    return "" if path == os.curdir else f"{quote(path)}/"


def _under(night: str, name: str) -> str:
    """Returns the link to the section of the page with the changed software of a cell in one night."""
    return f"#{quote(f'under:{night}:{name}')}"


def legend(tracks: Iterable[Track]) -> list[str]:
    """Returns the verdicts that occur in strips."""
    states = {state for track in tracks for lane in track.lanes for state in lane.states}
    return [verdict for verdict in OF_RULES if verdict in states]


# The names of this module that templates/macros.html uses.
WORDS: Mapping[str, object] = {
    "when": format_night,
    "tones": TONES,
    "outcomes": OUTCOMES,
    "legend": legend,
}


def _report_of(cell: Cell, root: str) -> str:
    """Returns the address of a cell's report; `root` is that of the history."""
    if (cell.folder / REPORT).is_file():
        return f"{root}{cell.night}/{cell.name}/{REPORT}"
    return ""
