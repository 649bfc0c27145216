"""The states of a rule or a defect over the nights of a history, on each stack, and their changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from conformance.errors import format_count
from conformance.model.verdict import INCOMPLETE, OF_RULES, VIOLATIONS, Verdict
from conformance.older_python import zip
from reports.absence import NOT_DECIDED, NOT_SEEN, UNTRIED
from reports.compared.changes import (
    CHANGED,
    FIXED,
    NEWLY_WAIVED,
    NO_LONGER_WAIVED,
    kind_of,
)
from reports.nights.facts import SEEN, WAIVED
from reports.nights.facts import UNKNOWN as NOT_RUN
from reports.nights.history import format_night, since
from reports.nights.known_defect import KnownDefect
from reports.nights.standing import word_of

# the states of a defect that a run has not decided
UNDECIDED_STATES = (NOT_DECIDED, UNTRIED)
# the same with those of a rule
OPEN_STATES = (*UNDECIDED_STATES, *INCOMPLETE)
# the kind of what is gone although nothing under test is different
NO_LONGER_SEEN = "no longer seen"
_ALL_WAIVED = (WAIVED, Verdict.WAIVED)
BAD_VERDICTS: frozenset[str] = frozenset(VIOLATIONS)
BAD_SEEN = frozenset((SEEN,))
_MOST_STEPS = 12  # the most changes that are shown for a lane
# The colours of the strips, by state: classes of the style sheet.
TONES: Mapping[str, str] = {
    **{verdict: verdict for verdict in OF_RULES},
    SEEN: Verdict.FAIL,
    WAIVED: Verdict.WAIVED,
    NOT_SEEN: Verdict.PASS,
    **dict.fromkeys(UNDECIDED_STATES, Verdict.UNREACHABLE),
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
        if self.new in UNDECIDED_STATES:
            return self.new
        old, new = (TONES.get(state, state) for state in (self.decided or self.old, self.new))
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
        return [(night, state) for night, state in self._ran if state not in OPEN_STATES]

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
        if self.now not in (*_ALL_WAIVED, *OPEN_STATES):
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
        return next(
            (state for state in (SEEN, *UNDECIDED_STATES, WAIVED) if state in states), NOT_SEEN
        )

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
        if self.step.kind == FIXED and self.defect and not self.step.under_test:
            return NO_LONGER_SEEN
        return self.step.kind

    @property
    def is_first(self) -> bool:
        """Whether the defect was seen in no earlier night."""
        return self.lane.during(SEEN)[:1] == [self.step.night]
