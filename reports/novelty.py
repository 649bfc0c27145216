"""Divides the defects of a run into those that are new against an earlier run, and those that both runs have.
comparison.py compares the verdicts; this module is for the vendor who asks what a change of a stack has made worse."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from conformance.defects import Defect, defects_of
from conformance.errors import command, format_count
from conformance.model.record import ResultRecord
from conformance.model.record_shape import shown
from reports import bisection
from reports.absence import NOT_DECIDED, NOT_SEEN
from reports.compared.changed_defects import Earlier
from reports.compared.changes import (
    GONE,
    NEW,
    NEW_KINDS,
    NOT_TRIED,
    REGRESSED,
    UNCOVERED,
    UNKNOWN,
    WORSE,
    Change,
    amount,
)
from reports.compared.comparison import Comparison, compare
from reports.digest import Digest
from reports.violations import reasons_apart

CHANGED = "known, with new symptoms"
# the fingerprints of `--only` among arguments that are separated by NUL
_ONLY = re.compile(r"(?:^|\0)--only[=\0]([0-9a-fA-F]{4,})(?=\0|$)")
_APART = "new, but waived, of the stack or not confirmed"


@dataclass(frozen=True)
class New:
    """A defect that is new, or a defect of both runs with a new symptom; `news` has this symptom in words."""

    defect: Defect
    news: str = ""

    @property
    def title(self) -> str:
        if self.news:
            return f"{self.defect.title}: now also {self.news}"
        return self.defect.title


@dataclass(frozen=True)
class Novelty:
    comparison: Comparison

    @property
    def name(self) -> str:
        """The path of the earlier run, as the user gave it."""
        return self.comparison.old.shown_path

    @property
    def stack(self) -> str:
        """The stack of the earlier run, and its day: `against trixie, kernel 6.12.117, rdma-core 56.1, 2026-12-01`."""
        old = self.comparison.old
        env, day = old.header["env"], old.environment.when[: len("2026-12-01")]
        versions = f"kernel {env.get('kernel', '?')}, rdma-core {env.get('rdma_core', '?')}"
        return f"against {old.header['stack']}, {versions}{f', {day}' if day else ''}"

    @property
    def worse(self) -> Mapping[str, Sequence[Change]]:
        """The changes that have regressed, or that have perhaps, by kind."""
        kinds = {kind: self.comparison.of(kind) for kind in (REGRESSED, UNKNOWN)}
        return {kind: changes for kind, changes in kinds.items() if changes}

    @property
    def first(self) -> Defect | None:
        """The foremost new defect or, without one, the first whose cases the earlier run has not tried."""
        return self.comparison.defects.foremost or next(
            iter(self.comparison.defects.by_kind[NOT_TRIED]), None
        )

    def beside(self, kind: str) -> Sequence[Defect]:
        """The new defects of all other kinds."""
        return [
            item.defect for other, items in self.by_kind.items() for item in items if other != kind
        ]

    @property
    def status(self) -> int:
        """The exit status of the run: 1 also if a waived case has regressed."""
        status = self.comparison.new.summary.status
        return 1 if self.comparison.is_worse_though_waived else status

    @property
    def conclusion(self) -> str:
        """The conclusion of the run."""
        words = self.comparison.new.summary.conclusion
        if self.comparison.is_worse_though_waived:
            words += (
                f"; but cases have regressed against {self.name} that their waivers do not name"
            )
        return words

    @cached_property
    def by_kind(self) -> Mapping[str, Sequence[New]]:
        """The new defects by kind, as `compare` divides them, then the defects with new symptoms, then the new defects
        that are not open; each the most severe first, in the order of the run."""
        kinds = (*NEW_KINDS, NOT_TRIED)
        by_kind = {kind: list(map(New, self.comparison.defects.by_kind[kind])) for kind in kinds}
        by_kind[CHANGED] = [New(defect, news) for defect, news in self.comparison.defects.changed]
        by_kind[_APART] = list(map(New, self._apart))
        for items in by_kind.values():
            items.sort(key=lambda item: item.defect.severity.rank)
        return {kind: items for kind, items in by_kind.items() if items}

    @cached_property
    def new(self) -> Sequence[New]:
        """The defects of all kinds, in the order of the kinds."""
        return [item for items in self.by_kind.values() for item in items]

    @cached_property
    def _apart(self) -> Sequence[Defect]:
        """The defects that the earlier run does not have, and that are waived, of the stack or not confirmed."""
        comparison = self.comparison
        return [
            defect
            for defect in comparison.new.violations.defects
            if defect not in comparison.defects.counted
            and not comparison.defects.earlier.has(defect)
        ]

    @cached_property
    def earlier(self) -> Sequence[Defect]:
        """The other defects of the later run, in the order of the run."""
        new = {item.defect.fingerprint for item in self.new}
        return [
            defect
            for defect in self.comparison.new.violations.defects
            if defect.fingerprint not in new
        ]

    @property
    def lost(self) -> Mapping[str, Sequence[New]]:
        """The defects of the earlier run that this run does not show: those that are gone, and those not decided, if any."""
        gone, undecided = (
            list(map(New, self.comparison.defects.by_kind[kind])) for kind in (GONE, NOT_DECIDED)
        )
        return {GONE: gone, **({NOT_DECIDED: undecided} if undecided else {})}

    @property
    def sentence(self) -> str:
        lost = (f"{len(defects)} {kind}" for kind, defects in self.lost.items())
        counts = {kind: len(items) for kind, items in self.by_kind.items() if kind != _APART}
        apart = reasons_apart(self._apart, self.comparison.defects.is_waived)
        uncovered = len(self.comparison.defects.uncovered)
        parts = [
            *self.asked,
            f"{format_count(counts.pop(NEW, 0), 'defect')} new against {self.name}"
            + (f" (and {apart})" if apart else ""),
            *(f"{count} {kind}" for kind, count in counts.items()),
            f"{len(self.earlier)} not new" + (f" ({uncovered} {UNCOVERED})" if uncovered else ""),
            *lost,
        ]
        return "; ".join(parts)

    @property
    def asked(self) -> Iterator[str]:
        """Yields for each defect of the earlier run whose fingerprint selected the cases whether it is gone."""
        old, new = self.comparison.old.violations, self.comparison.new.violations
        argv = "\0".join(map(str, self.comparison.new.header.get("argv", ())))
        for word in _ONLY.findall(argv):
            for defect in Defect.called(word.lower(), old.defects):
                if defect.is_among(of for of in new.defects if not of.unconfirmed):
                    state = "still shown"
                else:
                    is_gone = self.comparison.defects.absence_now(defect) == NOT_SEEN
                    state = GONE if is_gone else NOT_DECIDED
                yield f"{defect.fingerprint} is {state}"

    def about(self, defect: Defect, most: int | None) -> Iterator[str]:
        """Yields lines about a defect of the later run: what is new about it, the cases that are worse, at most `most` of
        them (None: all), and the commands that find the commit."""
        told = "not new"
        for kind, items in self.by_kind.items():
            for item in items:
                if item.defect.fingerprint == defect.fingerprint:
                    told = f"{kind}: now also {item.news}" if item.news else kind
        yield f"against {self.name}: {told}"
        changes = [
            self.comparison.defects.part_of(defect, change)
            for change in self.comparison.changes
            if change.kind in WORSE and defect in self.comparison.defects.of_change(change)
        ]
        yield from (f"  {change.arrow}  {change.name}" for change in changes[:most])
        if more := len(changes[most:]) if most else 0:
            yield f"  and {more} more, which explain --all lists"
        if commands := self.comparison.defects.bisection(defect):
            yield bisection.line_of(commands)

    def hints(self) -> Iterator[str]:
        """Yields the remarks on the comparison, and a line for each defect that is lost."""
        yield from self.remarks()
        tried = {record["case"] for record in self.comparison.new.results}
        for kind, items in self.lost.items():
            shown = [item for item in items if not tried.isdisjoint(item.defect.cases)]
            if untried := len(items) - len(shown):
                yield f"{kind}: {format_count(untried, 'defect')} without a case in this run"
            for item in shown:
                severity, name = item.defect.severity.label, item.defect.fingerprint
                yield f"{kind}: {severity}  {name}  {item.title}"
            for defect in self.comparison.defects.uncovered if kind == GONE else ():
                yield f"{UNCOVERED}: {defect.severity.label}  {defect.fingerprint}  {defect.title}"

    def remarks(self) -> Iterator[str]:
        """Yields the numbers of cases if the tables differ, the number of sweeps without points, and a line about cases that
        have regressed, which may belong to a defect of both runs."""
        if self.comparison.has_other_tables:
            old = {record["case"] for record in self.comparison.old.results}
            new = {record["case"] for record in self.comparison.new.results}
            both = format_count(len(old & new), "case")
            yield (
                f"the tables differ: {both} in both runs are compared; {len(new - old):,} only in this run and "
                f"{len(old - new):,} only in {self.name} are not"
            )
        if self.comparison.not_by_point:
            yield f"compared: {self.comparison.not_by_point}"
        for kind, changes in self.worse.items():
            runs = (self.comparison.old, self.comparison.new)
            listing = command("compare", *(run.path for run in runs))
            yield f"{amount(changes)} {kind}: {listing} lists the cases"


def novelty(run: Digest, earlier: Digest | None) -> Novelty | None:
    """Returns what is new in a run against an earlier run, which may have other tables."""
    if earlier is None:
        return None
    return Novelty(compare(earlier, run))


def known_in(earlier: Digest | None) -> Callable[[ResultRecord], bool]:
    """Returns a function that tells, during a run, whether a violation shows nothing that is new against the earlier
    run, by the same comparison as that of whole runs."""
    if earlier is None:
        return lambda record: False
    before = Earlier(earlier)

    def is_known(record: ResultRecord) -> bool:
        defects = defects_of([shown(record)])  # a worker's record has only the keys with content
        return bool(defects) and all(
            before.has(defect) and not before.news(defect) for defect in defects
        )

    return is_known
