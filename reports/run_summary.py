"""A run in a few words: its conclusion, its sentence, and its numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from conformance.errors import format_count
from conformance.model.record import UNLISTED, ResultRecord, WaiversAccount
from conformance.model.verdict import VIOLATIONS, Verdict
from conformance.older_python import zip
from conformance.results.conclusions import (
    STANDING,
    RunConclusion,
    Standing,
    conclude_run,
    format_levels,
)
from conformance.results.waivers import OF_RDMA_CORE
from conformance.tables.tiers import SMOKE
from reports.environment import format_facts
from reports.instrumented import headline_of
from reports.own_tables import suite_of_header

if TYPE_CHECKING:
    from reports.digest import Digest

_MOST_REASONS = 4
_MOST_NAMES = 3
_DEATHS = (Verdict.CRASH, Verdict.HANG)


def lines_of(account: Mapping[str, Any], kernel: str) -> list[str]:
    """Returns the problems of waivers, the symptoms of waived cases that no waiver covers, and a line each about the
    waivers whose defects no case shows and about those that do not cover the kernel of the run."""
    lines = [*account.get("problems", ()), *account.get("partly", ())]
    if names := account.get("unseen", ()):
        lines.append(
            f"{format_count(len(names), 'waiver')} without effect, because no case shows {_first(names)}"
        )
    if names := account.get("out_of_range", ()):
        count = format_count(len(names), "waiver")
        other = f" or the {OF_RDMA_CORE}" if any(OF_RDMA_CORE in name for name in names) else ""
        lines.append(
            f"{count} without effect, because kernel {kernel}{other} is not in the range: {_first(names)}"
        )
    return lines


def _first(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


@dataclass(frozen=True)
class Part:
    """One part of the summary sentence: the number of rules with this standing and, for some standings, the reasons;
    `more` are those that the sentence only counts."""

    standing: Standing
    count: int
    because: Sequence[str] = ()
    more: Sequence[str] = ()
    levels: str = ""

    def __str__(self) -> str:
        if self.because:
            more = f" and {len(self.more)} more" if self.more else ""
            why = f" (because {'; '.join(self.because)}{more})"
        else:
            why = ""
        return f"{self.short}{why}"

    @property
    def short(self) -> str:
        """The part without the reasons."""
        if self.levels:
            levels = f" ({self.levels})"
        else:
            levels = ""
        return f"{self.count:,} {self.standing.phrase}{levels}"


class Summary:
    def __init__(self, run: Digest) -> None:
        self._run = run

    @cached_property
    def facts(self) -> Mapping[str, str]:
        """The stack under test and the size of the run, as texts by name. A text is empty if its fact is unknown."""
        footer = self._run.footer
        sizes: dict[str, object] = {
            "cases": f"{len(self._run.results):,}",
            "calls judged": f"{self.points:,}",
            "PASS that assert nothing": f"{self.empty:,} of {self.counts.get(Verdict.PASS, 0):,}",
            "seconds": footer["duration_s"] if footer else None,
            "exit status": self.status,
        }
        return {**self._run.environment.facts, **format_facts(sizes)}

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The number of rules with each standing. The first part is VERIFIED or, in the smallest tier, TOUCHED."""
        if self._run.header.get("tier") == SMOKE:
            first = Standing.TOUCHED
        else:
            first = Standing.VERIFIED
        count = Counter(
            conclusion.standing
            for rule, conclusion in self._run.verdicts.concluded.items()
            if rule not in self._run.verdicts.apart
        )
        count[Standing.WITHOUT_CASE] = len(
            self._run.verdicts.documented.keys() - self._run.verdicts.of_rules.keys()
        )
        count[Standing.APART] = len(self._run.verdicts.apart)
        if first == Standing.TOUCHED:
            passed = (Standing.VERIFIED, Standing.OFFERED, Standing.IN_PART, Standing.LEFT_OPEN)
            count[Standing.TOUCHED] = sum(count.pop(standing, 0) for standing in passed)
        because = {
            Standing.UNSUPPORTED: _why_unsupported,
            Standing.UNREACHABLE: _why_unreachable,
        }
        violated = [
            rule
            for rule, verdict in self._run.verdicts.of_rules.items()
            if STANDING[verdict] == Standing.VIOLATED
        ]
        levels = {Standing.VIOLATED: format_levels(violated, self._run.verdicts.levels)}
        return tuple(
            Part(
                standing,
                count[standing],
                *(because[standing](self._run) if standing in because else ((), ())),
                levels.get(standing, ""),
            )
            for standing in Standing
            if count[standing] or standing == first
        )

    @property
    def sentence(self) -> str:
        return ", ".join([self._first, *map(str, self.parts[1:])]) + "."

    @property
    def short_sentence(self) -> str:
        """The verdict in one sentence, without the reasons."""
        return ", ".join([self._first, *(part.short for part in self.parts[1:])])

    @property
    def _first(self) -> str:
        verified = self.parts[0]
        return f"{verified.count:,} of {len(self._run.verdicts.documented):,} documented rules {verified.standing.phrase}"

    @property
    def headline(self) -> str:
        """The severity of the run in one line: the changes of the stack (docs/mended-stack.md), the numbers of defects
        and of their cases by severity, the numbers of defects that do not count, and the number of results that are not
        confirmed although their defects are. Empty parts are left out."""
        parts = []
        for severity, (number, cases) in self._run.violations.tally.items():
            parts.append(f"{number:,} {severity.label} ({cases:,})")
        defects = ""
        if parts:
            defects = f"{self._run.violations.count}: {', '.join(parts)}"
        if aside := self._run.violations.apart:
            defects += f"{', and' if defects else 'defects:'} {aside}"
        unconfirmed = sum(map(self._is_unconfirmed_of_confirmed, self._run.results))
        apart = f"{format_count(unconfirmed, 'result')} not confirmed" if unconfirmed else ""
        refutation = headline_of(self._run.verdicts.refutations)
        return "; ".join(
            filter(None, (self._run.environment.changed_stack, defects, apart, refutation))
        )

    def _is_unconfirmed_of_confirmed(self, result: ResultRecord) -> bool:
        """Whether a violation is not confirmed, although each of its defects is."""
        violations = self._run.violations
        if result["effective"] not in VIOLATIONS or not violations.repetitions.is_unconfirmed(
            result
        ):
            return False
        return not any(defect.unconfirmed for defect in violations.defects_in(result["case"]))

    @cached_property
    def concluded(self) -> RunConclusion:
        """The conclusion of the run, the same in every report."""
        footer = self._run.footer
        if footer:
            footer = {
                **footer,
                "verdicts": Counter(record["effective"] for record in self._run.verdicts.decided),
            }
        return conclude_run(
            self._run.environment.device,
            footer,
            {rule: facts.level for rule, facts in self._run.verdicts.documented.items()},
            self._run.verdicts.concluded,
            self._run.verdicts.needs,
            left_out=self._left_out,
            unrecorded=len(self._run.unrecorded),
        )

    @property
    def conclusion(self) -> str:
        return self.concluded.words

    @property
    def status(self) -> int:
        return self.concluded.status

    @cached_property
    def _left_out(self) -> int | None:
        """The number of cases of the default tier that were not planned; None if the run was made with other tables and
        the number cannot be checked."""
        # a 0 in the header of a run with other tables is not trusted
        if "left_out" in self._run.header and not self._run.suite:
            if self._run.is_of_other_tables and not self._run.header["left_out"]:
                return None
            return self._run.header["left_out"]
        suite = self._run.suite or suite_of_header(self._run.header)
        if suite:
            return len(suite.left_out(self._run.header["planned"]))
        return None

    @property
    def waivers(self) -> WaiversAccount:
        """The footer's account of waivers; empty for a run without waivers."""
        if self._run.footer:
            return self._run.footer["waivers"]
        return {}

    @property
    def waiver_lines(self) -> Sequence[str]:
        """The lines of the account of waivers, and the waivers that cover cases which they do not list."""
        kernel = self._run.header["env"].get("kernel", "?")
        return [*lines_of(self.waivers, kernel), *self._beyond]

    @property
    def _beyond(self) -> Iterator[str]:
        """Yields a line for each waiver of a defect that covers cases which it does not list."""
        cases: dict[str, list[str]] = {}
        for record in self._run.results:
            waiver = record["waiver"] or {}
            if waiver.get("listed") == UNLISTED and waiver["for"].startswith("defect "):
                cases.setdefault(waiver["for"].removeprefix("defect "), []).append(record["case"])
        for fingerprint, unlisted in cases.items():
            count = format_count(len(unlisted), "case")
            yield (
                f"{fingerprint} covers {count} that it does not list, such as {unlisted[0]}: new, if the case passed "
                "before (run --against OLD, compare)"
            )

    @cached_property
    def at_points(self) -> Mapping[str, int]:
        """The numbers of cases that crashed or hung only at some points, by verdict."""
        return Counter(
            verdict
            for record in self._run.results
            for verdict in deaths_in(record)
            if verdict != record["effective"]
        )

    @cached_property
    def counts(self) -> Mapping[str, int]:
        return Counter(record["effective"] for record in self._run.results)

    @property
    def empty(self) -> int:
        """The number of PASS results that assert nothing: the documents leave the outcome of the call open, and no later
        step with a documented outcome was made. They verify no rule."""
        return sum(
            record["effective"] == Verdict.PASS and _is_empty(record)
            for record in self._run.results
        )

    @cached_property
    def points(self) -> int:
        """The number of judged calls and operations. Each point of a sweep, and each other case with a result, counts
        as one."""
        sizes = (
            sum(record["points"].values())
            for record in self._run.results
            if record["verdict"] != Verdict.MISSED
        )
        return sum(size or 1 for size in sizes)


def deaths_in(record: ResultRecord) -> list[Verdict]:
    """Returns by which verdicts some points, or some rules, of a result died or hung."""
    of_rules = record.get("rule_verdicts", {}).values()
    return [
        verdict
        for verdict in _DEATHS
        if (record["points"] or {}).get(verdict) or verdict in of_rules
    ]


def _of_rules(run: Digest, verdict: str) -> Iterator[tuple[str, ResultRecord]]:
    for record in run.results:
        if record["effective"] == verdict:
            rules = (rule for rule in record["rules"] if rule not in run.verdicts.apart)
            yield from ((rule, record) for rule in rules if run.verdicts.of_rules[rule] == verdict)


def _why_unreachable(run: Digest) -> tuple[Sequence[str], Sequence[str]]:
    reasons = {(record["reason"], rule) for rule, record in _of_rules(run, Verdict.UNREACHABLE)}
    count = Counter(reason for reason, _ in sorted(reasons))
    return _most([f"{reason} ({number:,})" for reason, number in count.most_common()])


def _why_unsupported(run: Digest) -> tuple[Sequence[str], Sequence[str]]:
    undeclared = {
        (str(name), rule)
        for rule, record in _of_rules(run, Verdict.UNSUPPORTED)
        for name in record["observed"].get("lacking", ())
    }
    count = Counter(name for name, _ in sorted(undeclared))
    names, more = _most([name for name, _ in count.most_common()])
    return [f"it does not declare {', '.join(names)}"] if names else [], more


def _most(items: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Returns the items that are shown, and the others; never one alone, for which there is room."""
    shown = len(items) if len(items) == _MOST_REASONS + 1 else _MOST_REASONS
    return items[:shown], items[shown:]


def _is_empty(record: ResultRecord) -> bool:
    """Whether a result has neither a call nor a later step whose documented outcome was compared."""
    expected, observed = record["expected"], record["observed"]
    if expected.get("outcome") != "open" or record["points"]:
        return False
    later = zip(expected.get("afterwards", ()), observed.get("afterwards", ()), strict=False)
    return all(step.get("outcome") == "open" or "not_made" in seen for step, seen in later)
