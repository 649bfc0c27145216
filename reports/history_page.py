"""Makes the page of a history: rules, nights, stacks, the first night of each violation, and what changed in the
software under test in that night. The page is self-contained and has no script; templates/history.html has the layout.
The statements of the rules are read from the latest readable results, and everything else from the summaries of the
runs (history.py)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from conformance.defects import Defect
from conformance.errors import UserError, format_count
from conformance.model.verdict import INCOMPLETE, OF_RULES, VIOLATIONS, Verdict
from conformance.older_python import pairwise, zip
from reports.absence import NOT_DECIDED, NOT_SEEN, UNTRIED
from reports.changes import (
    CHANGED,
    FAILING,
    KINDS,
    NEWLY_WAIVED,
    NO_LONGER_WAIVED,
    NOT_TRIED,
    kind_of,
)
from reports.digest import read
from reports.history import (
    BASELINE,
    OUTCOMES,
    RUNNING,
    SEEN,
    WAIVED,
    Cell,
    Facts,
    History,
    KnownDefect,
    changes,
    first_names_of,
    format_night,
    since,
)
from reports.history import UNKNOWN as NOT_RUN
from reports.page_templates import environment
from reports.rule_verdicts import RuleFacts
from reports.standing import Standing, standing, word_of
from reports.terminal import REPORT

# the states of a defect that a run has not decided
_UNDECIDED = (NOT_DECIDED, UNTRIED)
# the same with those of a rule
_OPEN = (*_UNDECIDED, *INCOMPLETE)
_ALL_WAIVED = (WAIVED, Verdict.WAIVED)
# The headings of the changes of a night, in their order.
_HEADINGS = dict.fromkeys(
    (*FAILING, NO_LONGER_WAIVED, NOT_TRIED, *KINDS, NEWLY_WAIVED, *_UNDECIDED)
)
_MOST_STEPS = 12  # the most changes that are shown for a lane
_BAD_VERDICTS: frozenset[str] = frozenset(VIOLATIONS)
_BAD_SEEN = frozenset((SEEN,))
# The colours of the strips, by state: classes of the style sheet.
_TONES: Mapping[str, str] = {
    **{verdict: verdict for verdict in OF_RULES},
    SEEN: Verdict.FAIL,
    WAIVED: Verdict.WAIVED,
    NOT_SEEN: Verdict.PASS,
    **dict.fromkeys(_UNDECIDED, Verdict.UNREACHABLE),
}


@dataclass(frozen=True)
class Step:
    """A change of state in a night, and the names of the parts under test that changed in that night. `decided` is the
    latest earlier state that a run has decided."""

    night: str
    old: str
    new: str
    under_test: tuple[str, ...]
    decided: str = ""

    @property
    def kind(self) -> str:
        if self.new in _UNDECIDED:
            return self.new
        old, new = (_TONES.get(state, state) for state in (self.decided or self.old, self.new))
        if old in VIOLATIONS and new == Verdict.WAIVED:
            return NEWLY_WAIVED
        if old == Verdict.WAIVED and new in VIOLATIONS:
            return NO_LONGER_WAIVED
        return kind_of(old, new) or CHANGED

    @property
    def why(self) -> str:
        """Why the state has changed, if that is not the software under test; else empty."""
        if UNTRIED in (self.old, self.new):
            return (
                "its cases were not tried" if self.new == UNTRIED else "its cases were tried again"
            )
        return {
            NEWLY_WAIVED: "by a waiver",
            NO_LONGER_WAIVED: "the waiver ended",
            NOT_DECIDED: "not all of its cases were decided",
        }.get(self.kind, "")


@dataclass(frozen=True)
class Lane:
    """The states of a rule or a defect on one stack, one for each night; NOT_RUN for a night without results."""

    name: str
    states: tuple[str, ...]
    nights: tuple[str, ...]
    bad: frozenset[str]
    steps: tuple[Step, ...]

    @property
    def paths(self) -> Mapping[str, str]:
        """The lane as paths of an SVG image, one path for each state. The width of a night is one unit."""
        paths: dict[str, str] = {}
        first = 0
        for state, nights in groupby(self.states):
            width = sum(1 for _ in nights)
            if state:
                paths[state] = paths.get(state, "") + f"M{first} 0h{width}v1h-{width}z"
            first += width
        return paths

    @cached_property
    def _ran(self) -> list[tuple[str, str]]:
        return [
            (night, state) for night, state in zip(self.nights, self.states, strict=True) if state
        ]

    @cached_property
    def _decided(self) -> list[tuple[str, str]]:
        return [(night, state) for night, state in self._ran if state not in _OPEN]

    @property
    def now(self) -> str:
        """The state in the latest night with results; NOT_RUN without such a night."""
        if self._ran:
            return self._ran[-1][1]
        return NOT_RUN

    @property
    def is_bad(self) -> bool:
        """Whether the latest state that a run has decided is bad."""
        return bool(self._decided) and self._decided[-1][1] in self.bad

    @cached_property
    def seen(self) -> int:
        return sum(state in self.bad for _, state in self._ran)

    @property
    def is_intermittent(self) -> bool:
        """Whether the state changed from bad to not bad and then to bad again. What is waived is still there."""
        there = (state in self.bad or state in _ALL_WAIVED for _, state in self._decided)
        return sum(is_there for is_there, _ in groupby(there)) > 1

    @property
    def since(self) -> str:
        """The first night of the latest series of nights that are all bad or all not bad."""
        steady = {night: (state in self.bad) == self.is_bad for night, state in self._decided}
        if steady:
            return since(steady, self.nights[-1])
        return ""

    @property
    def was_there(self) -> bool:
        """Whether a night has the defect, waived or not."""
        return bool(self.during(SEEN, WAIVED))

    def during(self, *states: str) -> list[str]:
        return [night for night, state in self._ran if state in states]

    @property
    def in_words(self) -> str:
        if self._ran and not self._decided:
            is_steady = len({state for _, state in self._ran}) == 1
            return _always(len(self._ran)) if is_steady else self._apart.removeprefix(", ")
        return self._seen_in_words + self._apart

    @property
    def _apart(self) -> str:
        """Since when the state is waived, or not decided; else in how many nights it was waived, if in any."""
        if self.now not in (*_ALL_WAIVED, *_OPEN):
            waived = len(self.during(*_ALL_WAIVED))
            return f", waived in {format_count(waived, 'night')}" if waived else ""
        same = {night: state == self.now for night, state in self._ran}
        return f", {self.now.lower()} since {format_night(since(same, self.nights[-1]))}"

    @property
    def _seen_in_words(self) -> str:
        decided = len(self._decided)
        nights = f"{self.seen:,} of {decided:,} nights"
        if SEEN in self.bad:
            word = SEEN
        else:
            word = "violated"
        if not self.seen:
            return f"never {word}"
        if self.seen == decided:
            return _always(decided)
        bad = self.during(*self.bad)
        when = format_night(bad[-1])
        if len(bad) > 1:
            when = f"first {format_night(bad[0])}, last {when}"
        if self.is_intermittent:
            when += ", intermittent"
            if self.is_bad:
                when += f", now since {format_night(self.since)}"
        return f"{word} in {nights}: {when}"

    @property
    def latest_steps(self) -> Sequence[Step]:
        return self.steps[: -_MOST_STEPS - 1 : -1]


def _always(nights: int) -> str:
    return f"in all {nights:,} nights" if nights > 1 else "in the only night"


@dataclass(frozen=True)
class Track:
    """A rule or a defect on all stacks."""

    id: str
    lanes: tuple[Lane, ...]

    @property
    def is_bad(self) -> bool:
        return any(lane.is_bad for lane in self.lanes)

    @property
    def now(self) -> str:
        """The state of a defect in the latest nights: that of the stack with the defect that says most about it."""
        states = {lane.now for lane in self.lanes if lane.was_there}
        return next((state for state in (SEEN, *_UNDECIDED, WAIVED) if state in states), NOT_SEEN)

    @property
    def was_bad(self) -> bool:
        return any(lane.seen for lane in self.lanes)

    @property
    def changed(self) -> bool:
        return any(lane.steps for lane in self.lanes)

    @property
    def has_states(self) -> bool:
        return any(any(lane.states) for lane in self.lanes)

    def steps_in(self, night: str) -> Iterator[tuple[Lane, Step]]:
        """Yields the change of each stack in a night."""
        for lane in self.lanes:
            yield from ((lane, step) for step in lane.steps if step.night == night)

    @property
    def steady(self) -> Mapping[tuple[str, str], list[str]]:
        """The names of the lanes whose state has never changed, by this state and its description."""
        steady: dict[tuple[str, str], list[str]] = {}
        for lane in self.lanes:
            if not lane.steps:
                steady.setdefault((lane.now, lane.in_words), []).append(lane.name)
        return steady

    @property
    def last_change(self) -> str:
        """The night of the latest change on any stack; empty without a change."""
        return max((lane.steps[-1].night for lane in self.lanes if lane.steps), default="")


@dataclass(frozen=True)
class News:
    """A change of a defect or of a rule on one stack in one night. A defect is described as this stack shows it, or showed
    it last. It has the ids of its rules whose verdicts have changed in this night, and the kind of its change that the
    night has recorded, if any."""

    track: Track
    lane: Lane
    step: Step
    defect: KnownDefect | None = None
    rules: tuple[str, ...] = ()
    recorded_kind: str = ""

    @property
    def kind(self) -> str:
        if self.recorded_kind and self.step.new in (SEEN, WAIVED):
            return word_of(self.recorded_kind)
        return self.step.kind

    @property
    def is_first(self) -> bool:
        """Whether the defect was seen in no earlier night."""
        return self.lane.during(SEEN)[:1] == [self.step.night]


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
        if missing:
            names = ", ".join(cell.name for cell in missing)
            return f"Nothing changed in this night, which has no results{yet} of {names}."
        cut = [cell.name for cell in cells if cell.facts and not cell.facts.complete]
        if cut:
            return f"No change is known in this night: the run of {', '.join(cut)} was cut short."
        if all(cell.outcome.outcome == BASELINE for cell in cells):
            return "This night has nothing to compare with yet."
        if untried := sum(len(cell.outcome.untried) for cell in cells):
            number = format_count(untried, "case")
            return f"No verdict changed in this night, but {number} of the last good night {'was' if untried == 1 else 'were'} not tried."
        return "Nothing changed in this night."

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
                shown = replace(here, severity=defect.severity)
                news.append(News(track, lane, step, shown, moved, kind))
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
            lanes.append(self._lane(name, verdicts, _BAD_VERDICTS))
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
        defects = [defect for cell in cells if cell.facts for defect in cell.facts.defects]
        waived = [defect for cell in cells if cell.facts for defect in cell.facts.waived]
        first_names = first_names_of([*defects, *waived])
        latest: dict[str, KnownDefect] = {}
        for defect in defects:
            first = first_names[defect.fingerprint]
            worst = min(latest.get(first, defect), defect, key=lambda one: one.rank)
            names = tuple(
                name for name in defect.fingerprints if first_names.get(name, first) == first
            )
            latest[first] = replace(defect, fingerprints=names, severity=worst.severity)
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
            lanes.append(self._lane(name, of_defect, _BAD_SEEN))
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
                if new not in _OPEN:
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
    "tones": _TONES,
    "outcomes": OUTCOMES,
    "legend": legend,
}


def _report_of(cell: Cell, root: str) -> str:
    """Returns the address of a cell's report; `root` is that of the history."""
    if (cell.folder / REPORT).is_file():
        return f"{root}{cell.night}/{cell.name}/{REPORT}"
    return ""
