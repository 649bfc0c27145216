"""Divides the defects of a run into those that are new against an earlier run, and those that both runs have.
comparison.py compares the verdicts; this module is for the vendor who asks what a change of a stack has made worse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from conformance.defects import Defect, cause_of, symptoms_of
from conformance.errors import command, format_count
from conformance.model.record import ResultRecord
from conformance.model.verdict import Verdict
from reports.comparison import GONE, NOT_TRIED, REGRESSED, Comparison, compare, fingerprints_of
from reports.digest import Digest
from reports.violations import reasons_apart


def folder_of(defect: Defect) -> str:
    """Returns the folder below cases/ with most cases of the defect, which is that of a call or of a topic."""
    folders = Counter(case.partition("/")[0] for case in defect.cases)
    (folder, _), *_ = folders.most_common(1)
    return folder


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
        return str(self.comparison.old.path)

    @cached_property
    def new(self) -> Sequence[New]:
        """The new defects, then the defects with new symptoms, then the new defects that are not open; each the most
        severe first, and then by folder."""
        defects = self.comparison.defects
        new = [New(defect) for defect in (*self.comparison.new_defects, *defects[NOT_TRIED])]
        new += [New(defect) for defect in self._apart]
        new += [New(defect, news) for defect, news in self.comparison.changed_defects]
        return sorted(
            new,
            key=lambda item: (
                item.defect in self._apart,
                bool(item.news),
                item.defect.severity.rank,
                folder_of(item.defect),
            ),
        )

    @cached_property
    def _apart(self) -> Sequence[Defect]:
        """The defects that the earlier run does not have, and that are waived, of the stack or not confirmed."""
        violations = self.comparison.new.violations
        earlier = fingerprints_of(self.comparison.old.violations.defects)
        return [
            defect
            for defect in violations.defects
            if defect not in violations.open_defects and earlier.isdisjoint(defect.fingerprints)
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
    def sentence(self) -> str:
        gone = len(self.comparison.defects[GONE])
        changed = sum(bool(item.news) for item in self.new)
        apart = reasons_apart(self._apart)
        parts = [
            f"{format_count(len(self.new) - changed, 'defect')} new against {self.name}"
            + (f" ({apart})" if apart else ""),
            *([f"{changed} known with new symptoms"] if changed else []),
            f"{len(self.earlier)} not new",
            f"{gone} gone",
        ]
        return ", ".join(parts)

    def hints(self) -> Iterator[str]:
        """Yields a line for each defect that is gone, and one about cases that have regressed, which may belong to a
        defect of both runs."""
        for defect in self.comparison.defects[GONE]:
            yield f"gone: {defect.fingerprint} {defect.title}"
        regressed = [change for change in self.comparison.of(REGRESSED) if not change.points]
        if regressed:
            runs = (self.comparison.old, self.comparison.new)
            words: list[object] = [run.path for run in runs]
            if len({run.environment.tables_sha256 for run in runs}) > 1:
                words.append("--unlike-tables")
            listing = command("compare", *words)
            yield f"{format_count(len(regressed), 'case')} regressed: {listing} lists the cases"


def novelty(run: Digest, earlier: Digest | None) -> Novelty | None:
    """Returns what is new in a run against an earlier run, which may have other tables."""
    if earlier is None:
        return None
    return Novelty(compare(earlier, run, unlike_tables=True))


def known_in(earlier: Digest | None) -> Callable[[ResultRecord], bool]:
    """Returns a function that tells, during a run, whether a violation shows only defects that the earlier run shows,
    in a case that did not pass there. At the end, `novelty` says the same about whole defects."""
    if earlier is None:
        return lambda record: False
    defects = fingerprints_of(earlier.violations.defects)
    passed = {record["case"] for record in earlier.results if record["verdict"] == Verdict.PASS}

    def is_known(record: ResultRecord) -> bool:
        causes = [cause_of(symptom) for symptom in symptoms_of(record)]
        is_new = any(defects.isdisjoint(cause.fingerprints) for cause in causes)
        return bool(causes) and not is_new and record["case"] not in passed

    return is_known
