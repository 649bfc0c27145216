"""lab.html: the verdict on each rule on each host of a lab, preceded by the differences between hosts that should be
equal.

One self-contained page without any script; templates/lab.html has the layout. Not for running (commands/lab.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from conformance.model.verdict import VIOLATIONS
from reports.digest import Digest
from reports.html import FILE_NAME as REPORT
from reports.html import environment
from reports.text import format_count

FILE_NAME = "lab.html"
# Facts that may differ between equal hosts and mean nothing.
_OWN_FACTS = ("started", "seconds", "exit status", "calls judged", "cases", "seed", "tier", "stack")


@dataclass(frozen=True)
class Run:
    """The data of a run for the page; with many hosts, nothing else is kept. `cases` has the effective verdicts by
    case."""

    conclusion: str
    sentence: str
    conforms: bool
    rules: Mapping[str, str]  # statements by the ids of rules
    verdicts: Mapping[str, str]
    under_test: Mapping[str, str]
    cases: Mapping[str, str]

    @classmethod
    def of(cls, run: Digest) -> Run:
        facts = {name: text for name, text in run.facts.items() if name not in _OWN_FACTS}
        return cls(
            run.conclusion,
            run.short_sentence,
            run.concluded.conforms,
            {rule: facts.statement for rule, facts in run.rules.items()},
            run.verdicts,
            {**facts, **run.under_test},
            {each["case"]: str(each["effective"]) for each in run.results},
        )


@dataclass(frozen=True)
class Column:
    """A host: its name, the group of its equals (empty for none), its run, and why that is missing or incomplete."""

    name: str
    group: str
    run: Run | None
    reason: str = ""

    @property
    def told(self) -> str:
        """The outcome of the host, in one line."""
        if self.run is None:
            return f"not run: {self.reason}"
        return f"{self.run.conclusion}{'; ' + self.reason if self.reason else ''}; {self.run.sentence}"

    @property
    def report(self) -> str:
        """The address of this host's own page, relative to the lab's; empty without a run."""
        return f"{self.name}/{REPORT}" if self.run else ""

    def verdict(self, rule: str) -> str:
        """The verdict on a rule; empty if it has none here."""
        return self.run.verdicts.get(rule, "") if self.run else ""


@dataclass(frozen=True)
class Difference:
    """Something that is not the same on all hosts of a group: `what` it is, and its value by host."""

    what: str
    by_host: Mapping[str, str]


@dataclass(frozen=True)
class Group:
    """Hosts that should be equal, at least two of which have results."""

    name: str
    columns: tuple[Column, ...]

    @property
    def runs(self) -> list[tuple[str, Run]]:
        """The hosts that have results."""
        return [(column.name, column.run) for column in self.columns if column.run]

    @cached_property
    def under_test(self) -> list[Difference]:
        """The differences under test: versions, firmware, hashes."""
        names = dict.fromkeys(name for _, run in self.runs for name in run.under_test)
        return list(
            _differing((name, {host: run.under_test.get(name, "") for host, run in self.runs}) for name in names)
        )

    @cached_property
    def rules(self) -> list[Difference]:
        """The rules on which the hosts have different verdicts; those with a violation first."""
        names = dict.fromkeys(rule for _, run in self.runs for rule in run.rules)
        found = _differing((rule, {host: run.verdicts.get(rule, "") for host, run in self.runs}) for rule in names)
        return sorted(found, key=lambda each: not set(VIOLATIONS).intersection(each.by_host.values()))

    @cached_property
    def cases(self) -> list[Difference]:
        """The cases with different verdicts."""
        names = dict.fromkeys(case for _, run in self.runs for case in run.cases)
        return list(_differing((case, {host: run.cases.get(case, "") for host, run in self.runs}) for case in names))


def _differing(values: Iterator[tuple[str, Mapping[str, str]]]) -> Iterator[Difference]:
    for what, by_host in values:
        if len(set(by_host.values())) > 1:
            yield Difference(what, by_host)


@dataclass(frozen=True)
class Page:
    columns: Sequence[Column]

    @cached_property
    def groups(self) -> list[Group]:
        """The groups of which more than one host has results, in the order of the file."""
        names = dict.fromkeys(column.group for column in self.columns if column.group)
        found = [Group(name, tuple(each for each in self.columns if each.group == name)) for name in names]
        return [group for group in found if len(group.runs) > 1]

    @cached_property
    def rules(self) -> Mapping[str, str]:
        """The statements of the rules of all runs, in their order."""
        return {id_: statement for column in self.columns if column.run for id_, statement in column.run.rules.items()}

    @cached_property
    def tested(self) -> list[str]:
        """The rules that have a verdict on any host: those with a violation first."""
        rules = [rule for rule in self.rules if any(column.verdict(rule) for column in self.columns)]
        return sorted(rules, key=lambda rule: not any(column.verdict(rule) in VIOLATIONS for column in self.columns))

    @property
    def headline(self) -> str:
        """How many hosts conform, in one line."""
        ran = [column.run for column in self.columns if column.run]
        good = sum(run.conforms for run in ran)
        words = [f"{good} of {format_count(len(self.columns), 'host')} conform"]
        if missing := len(self.columns) - len(ran):
            words.append(f"{missing} without results")
        return ", ".join(words)


def page_of(columns: Sequence[Column]) -> str:
    return environment().get_template("lab.html").render(page=Page(columns))


def differences(columns: Sequence[Column]) -> Iterator[str]:
    """A line for each group of equal hosts, with their differences."""
    for group in Page(columns).groups:
        hosts = ", ".join(name for name, _ in group.runs)
        rules, cases = format_count(len(group.rules), "rule"), format_count(len(group.cases), "case")
        if not group.cases:
            yield f"{group.name} ({hosts}): the same verdicts on each case"
        else:
            yield f"{group.name} ({hosts}): other verdicts on {cases}, and on {rules}"
