"""The defects on the page of one or of several runs: under which heading each stands, which runs show it, and what the
other runs tell about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from conformance.defects import Defect, Symptom, families_of, severity_of
from conformance.model.verdict import EXCUSED
from conformance.results.rule_conclusions import BLOCKED
from reports.absence import NOT_DECIDED, NOT_SEEN, UNTRIED, tried
from reports.compared.changes import GONE, NEW, NEW_KINDS, NOT_TRIED
from reports.digest import Digest
from reports.upstream import upstream_in_a_word

if TYPE_CHECKING:
    from reports.compared.comparison import Comparisons
    from reports.novelty import Novelty

KNOWN = "known upstream"  # stands among the layers by which the page filters
_MOST_SHOWN = 3  # the most cases that are shown for a defect
_PAIR = 2  # runs, of which the first is the earlier one
# The signs for a run without a defect, with their meanings, by the word of absence.py.
SIGNS: Mapping[str, tuple[str, str]] = {
    NOT_SEEN: ("·", "tried, and not seen"),
    NOT_DECIDED: ("?", "not decided: not all of its cases were judged"),
    UNTRIED: ("○", "not tried: not offered by the device, or not run"),
}


@dataclass(frozen=True)
class Shown:
    """A defect in the run with the index `number`."""

    number: int
    defect: Defect

    @cached_property
    def symptoms(self) -> list[Symptom]:
        """A symptom in each of the shown cases: of those that count, one of the worst severity comes first, if possible a
        confirmed one."""
        confirmed = {*map(id, self.defect.confirmed)}
        return sorted(
            self.defect.examples(_MOST_SHOWN),
            key=lambda symptom: (
                symptom.record["effective"] in EXCUSED,
                severity_of(symptom).rank,
                id(symptom) not in confirmed,
            ),
        )

    @property
    def first(self) -> Symptom:
        return self.symptoms[0]

    @property
    def more(self) -> Sequence[str]:
        shown = {symptom.case for symptom in self.symptoms}
        return [case for case in self.defect.cases if case not in shown]


# A defect in each run that shows it. What one run shows as one defect can be several in another run.
ByRun = Sequence[Shown]


@dataclass(frozen=True)
class PageDefects:
    """The defects of runs, the earliest run first. `labels` are the names of the runs, and `news` is what is new in the
    only run against an earlier run."""

    runs: Sequence[Digest]
    labels: Sequence[str]
    news: Novelty | None = None

    @cached_property
    def all(self) -> list[list[Shown]]:
        """The defects of all runs, the most severe first. Each defect is listed for each run that has it. Unconfirmed
        and waived defects and defects of the stack come last."""
        groups: list[list[Shown]] = []
        for number, run in enumerate(self.runs):
            for defect in run.violations.defects:
                group = next((group for group in groups if defect.is_same(group[0].defect)), None)
                if group is None:
                    groups.append(group := [])
                group.append(Shown(number, defect))
        return sorted(groups, key=lambda by_run: _order(by_run[0].defect))

    @cached_property
    def listed(self) -> Mapping[str, list[tuple[str, list[list[Shown]]]]]:
        """The families of defects, each with its heading, by the heading above them. What is new comes first, as in a
        comparison; what all runs have comes last."""
        by_heading: dict[str, list[list[Shown]]] = {heading: [] for heading in self._headings}
        for by_run in self.all:
            by_heading[self.heading_of(by_run)].append(by_run)
        listed = {}
        for heading, rows in by_heading.items():
            elsewhere: list[Defect] = []
            if heading != self._headings[-1]:
                elsewhere = self._under_others(heading, by_heading)
            families = families_of(rows, lambda by_run: by_run[0].defect, elsewhere)
            listed[heading] = list(families)
        return listed

    def _under_others(
        self, heading: str, by_heading: Mapping[str, list[list[Shown]]]
    ) -> list[Defect]:
        others = [name for name in self._headings[:-1] if name != heading]
        return [by_run[0].defect for name in others for by_run in by_heading[name]]

    @cached_property
    def _headings(self) -> Sequence[str]:
        """The headings above defects, in their order."""
        if self.news:
            kinds = [self._against(kind) for kind in self.news.by_kind]
            return *kinds, f"not new against {self.news.name}"
        if len(self.runs) == _PAIR:
            new = [self._only_in(1, kind) for kind in (*NEW_KINDS, NOT_TRIED)]
            return *new, self._only_in(0, GONE), self._only_in(0, NOT_DECIDED), "in both"
        if len(self.runs) > _PAIR:
            return "not in every run", "in every run"
        return ("",)

    def heading_of(self, by_run: ByRun) -> str:
        first, last = self._headings[0], self._headings[-1]
        defect = by_run[0].defect
        if self.news:
            kind = self._kinds_of_news.get(defect.fingerprint)
            return self._against(kind) if kind else last
        numbers = _numbers(by_run)
        if len(numbers) == len(self.runs):
            return last
        if len(self.runs) == _PAIR:
            return self._only_in(min(numbers), self._kind(by_run))
        return first

    def _against(self, kind: str) -> str:
        if kind == NEW and self.news:
            return f"{NEW} against {self.news.name}"
        return kind

    def _only_in(self, number: int, kind: str) -> str:
        return f"only in {self.labels[number]}: {kind}"

    @cached_property
    def _kinds_of_news(self) -> Mapping[str, str]:
        """The kind of each defect that is new against the earlier run, by fingerprint."""
        kinds: dict[str, str] = {}
        for kind, items in self.news.by_kind.items() if self.news else ():
            for item in items:
                kinds[item.defect.fingerprint] = kind
        return kinds

    @cached_property
    def named(self) -> frozenset[str]:
        """The fingerprints with which the page shows defects."""
        return frozenset(by_run[0].defect.fingerprint for by_run in self.all)

    @cached_property
    def titles(self) -> Mapping[str, str]:
        """The titles of defects with news against the earlier run, by fingerprint."""
        items = self.news.new if self.news else ()
        return {item.defect.fingerprint: item.title for item in items}

    @cached_property
    def _comparisons(self) -> Comparisons:
        from reports.compared.comparison import Comparisons  # imported late: only for several runs

        return Comparisons(self.runs)

    def _kind(self, by_run: ByRun) -> str:
        """Returns the kind of a defect that one of two runs has, as a comparison of the two names it."""
        compared = self._comparisons.of(0, 1).defects
        defect = by_run[0].defect
        if by_run[0].number == 1:
            return compared.kind_of_new(defect)
        if compared.absence_now(defect) == NOT_SEEN:
            return GONE
        return NOT_DECIDED

    def sign_of(self, by_run: ByRun, number: int) -> tuple[str, str]:
        """Returns the sign for a run that does not show a defect, and its meaning with the number of the cases that the run
        has tried; as a comparison with the run that shows the most cases of the defect."""
        shown = max(by_run, key=lambda shown: len(shown.defect.cases))
        cases = shown.defect.cases
        sign, meaning = SIGNS[self._comparisons.absence(shown.defect, shown.number, number)]
        count = tried(cases, self.runs[shown.number].by_case, self.runs[number].by_case)
        return sign, f"{meaning}; tried in {count:,} of {len(cases):,} cases"

    @property
    def are_equal(self) -> bool:
        """Whether each run has each defect."""
        return all(len(_numbers(by_run)) == len(self.runs) for by_run in self.all)

    def _alone(self, number: int) -> list[list[Shown]]:
        """Returns the open defects that only the run with this index has."""
        open_here = self.runs[number].violations.open_defects
        alone = [by_run for by_run in self.all if _numbers(by_run) == {number}]
        return [by_run for by_run in alone if by_run[0].defect in open_here]

    @property
    def divided(self) -> str:
        """How many open defects only one of two runs has, by the kind of their change, and how many both have; empty for
        other numbers of runs."""
        if len(self.runs) != _PAIR:
            return ""
        parts = []
        for number in (1, 0):
            kinds = Counter(map(self._kind, self._alone(number)))
            counts = [f"{kinds[kind]} {kind}" for kind in _KINDS if kinds[kind]]
            parts.append(f"only in {self.labels[number]}: {'; '.join(counts) or 'none'}")
        both = sum(len(_numbers(by_run)) == _PAIR for by_run in self.all)
        return f"Defects {'. Defects '.join(parts)}. In both: {both}."

    def only_in(self, number: int) -> str:
        """Returns how many open defects only the run with this index has, with the worst severity among them; empty for
        two runs, which `divided` is about."""
        if len(self.runs) == _PAIR:
            return ""
        alone = self._alone(number)
        if alone:
            severity = alone[0][0].defect.severity.label
            return f"; defects: {len(alone)} only here, the worst: {severity}"
        return "; defects: none only here"

    def cases_with(self, by_run: ByRun, number: int | None = None) -> int:
        """Returns the number of cases that show a defect in some run, or in the run with this index."""
        shown_here = [shown for shown in by_run if number in (None, shown.number)]
        return len({case for shown in shown_here for case in shown.defect.cases})

    def first_with(self, kind: str, number: int) -> str:
        """Returns the fingerprint with which the page shows the first open defect of a severity or layer in the run with
        this index."""
        return next(
            by_run[0].defect.fingerprint
            for by_run in self.all
            for of_run, *kinds in self.kinds_of(by_run)
            if of_run == number and kind in kinds
        )

    def known_upstream(self, number: int) -> int:
        """Returns how many open defects of the run with this index are known upstream."""
        return sum(map(bool, map(upstream_in_a_word, self.runs[number].violations.open_defects)))

    @staticmethod
    def kinds_of(by_run: ByRun) -> list[tuple[int, str, str, str]]:
        """Returns, for each run in which a defect is open, the index of the run, the severity, the layer that answered, and
        KNOWN if the defect is known upstream, by which the page filters."""
        return [
            (
                shown.number,
                shown.defect.severity.label,
                shown.defect.answering.layer,
                KNOWN if upstream_in_a_word(shown.defect) else "",
            )
            for shown in by_run
            if not (shown.defect.waived or shown.defect.of_stack or shown.defect.unconfirmed)
        ]

    @staticmethod
    def blocking(run: Digest, rule: str) -> list[str]:
        """Returns the fingerprints of the defects in the cases whose violations hide evidence for a rule."""
        missing = run.verdicts.concluded[rule].missing
        cases = [name for name, part in missing.items() if part["why"] == BLOCKED]
        defects = [defect for case in cases for defect in run.violations.defects_in(case)]
        return list(dict.fromkeys(defect.fingerprint for defect in defects))

    @cached_property
    def days(self) -> set[str]:
        """The days on which the runs began."""
        return {run.header["started"][:10] for run in self.runs}

    def seen(self, by_run: ByRun) -> tuple[str, str]:
        """Returns the days on which the first and the last run with a defect began."""
        days = sorted(self.runs[shown.number].header["started"][:10] for shown in by_run)
        return days[0], days[-1]


# The kinds of a defect that one of two runs has, in their order.
_KINDS = (*NEW_KINDS, NOT_TRIED, GONE, NOT_DECIDED)


def _numbers(by_run: ByRun) -> set[int]:
    """Returns the indices of the runs with a defect."""
    return {shown.number for shown in by_run}


def _order(defect: Defect) -> tuple[bool, bool, bool, int]:
    return defect.of_stack, defect.waived, defect.unconfirmed, defect.severity.rank
