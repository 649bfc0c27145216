"""Makes report.html, one self-contained page about one run, or about several runs side by side.

This module prepares the conclusion, the defects and the rules, which the page shows also if scripts are disabled.
page_data.py prepares the data for the script; templates/ has the layout. No text from a results file is executed,
because Jinja escapes every text and the Content-Security-Policy allows only the page's own script, by hash."""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from markupsafe import Markup

from conformance.errors import command
from conformance.model.record import ResultRecord
from conformance.model.verdict import (
    INCOMPLETE,
    OF_RULES,
    VERDICTS,
    VIOLATIONS,
    Verdict,
)
from conformance.older_python import zip
from conformance.results.conclusions import verdict_on
from reports import bisection, evidence
from reports.digest import Digest
from reports.page_data import PageData, first_of
from reports.page_defects import SIGNS, PageDefects, Shown
from reports.page_templates import TEMPLATES, environment
from reports.rule_verdicts import RuleFacts
from reports.run_summary import deaths_in

if TYPE_CHECKING:
    from reports.compared.picture import Picture
    from reports.novelty import Novelty

FILE_NAME = "report.html"
# The columns of the matrix of a single run, and the verdicts that each column counts.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "pass": (Verdict.PASS,),
    "fail": VIOLATIONS,
    "waived": (Verdict.WAIVED,),
    "stack": (Verdict.STACK,),
    "unsup.": (Verdict.UNSUPPORTED,),
    "unreach.": (Verdict.UNREACHABLE,),
    "other": INCOMPLETE,
}
# What the colours of a model's picture say about a pair of values.
MEANINGS: Mapping[str, str] = {
    "right": "right",
    "some": "wrong in some points",
    "wrong": "always wrong",
    "lacking": "without a verdict",
}
# The options of a run's target, each with its number of words.
_OF_TARGET: Mapping[str, int] = {"--guest": 1, "--stack": 2, "--driver": 2}
_PAIR = 2


@dataclass(frozen=True)
class Cell:
    """A rule on the map: its worst verdict in each run."""

    rule: RuleFacts
    verdicts: Sequence[str]
    # for each run, whether the rule is of a vendor's dialect and was not judged
    apart: Sequence[bool]

    @property
    def standings(self) -> list[str]:
        """In each run, the verdict in words."""
        return [
            "of a vendor's dialect, not judged" if apart else verdict or "not run"
            for verdict, apart in zip(self.verdicts, self.apart, strict=True)
        ]

    @property
    def words(self) -> str:
        return f"{self.rule.id or 'no rule'}: {', '.join(self.standings)}"


@dataclass(frozen=True)
class Page:
    """`news` is what is new in the only run against an earlier run. `since` has for each run of a history, by fingerprint,
    since when it has a defect."""

    runs: Sequence[Digest]
    news: Novelty | None = None
    since: Sequence[Mapping[str, str]] = ()

    @cached_property
    def rules(self) -> Mapping[str, RuleFacts]:
        facts: dict[str, RuleFacts] = {}
        for run in self.runs:
            for id_ in (*run.verdicts.rules, *run.verdicts.of_rules):
                facts.setdefault(id_, run.verdicts.rules.get(id_) or RuleFacts(id_))
        return facts

    @cached_property
    def cases(self) -> Mapping[str, tuple[ResultRecord | None, ...]]:
        """The records of each case in all runs, in the order of the first run. Cases without a record in any run are
        left out."""
        by_run = [run.by_case for run in self.runs]
        ids = dict.fromkeys(itertools.chain.from_iterable(by_run))
        cases = {}
        for id_ in ids:
            if id_ not in self._unrecorded:
                cases[id_] = tuple(records.get(id_) for records in by_run)
        return cases

    @cached_property
    def _unrecorded(self) -> frozenset[str]:
        recorded = {
            record["case"]
            for run in self.runs
            for record in run.results
            if record["case"] not in run.unrecorded
        }
        return frozenset().union(*(run.unrecorded for run in self.runs)) - recorded

    @cached_property
    def unrecorded(self) -> list[str]:
        """The planned cases without a record in any run, in alphabetical order."""
        return sorted(self._unrecorded)

    @cached_property
    def counts(self) -> Mapping[str, Sequence[Counter[str]]]:
        """For each rule, the numbers of its cases by verdict in each run. The rule "" has the cases that test no
        rule."""
        counts: dict[str, list[Counter[str]]] = defaultdict(lambda: [Counter() for _ in self.runs])
        for records in self.cases.values():
            for rule in first_of(records)["rules"] or [""]:
                for count, record in zip(counts[rule], records, strict=True):
                    if record:
                        count[verdict_on(rule, record)] += 1
        return counts

    def number(self, rule: str, verdicts: Sequence[str]) -> int:
        """Returns the number of a rule's cases with one of these verdicts in the first run."""
        return sum(self.counts[rule][0][verdict] for verdict in verdicts)

    def numbers(self, rule: str, verdicts: Sequence[str]) -> str:
        """Returns the number of a rule's cases with each of these verdicts in the first run, in words."""
        counts = ((self.number(rule, [verdict]), verdict) for verdict in verdicts)
        return ", ".join(f"{number:,} {verdict}" for number, verdict in counts if number)

    @cached_property
    def groups(self) -> Mapping[str, list[RuleFacts]]:
        """The rules of each verb. The rule "", for cases that test no rule, comes last."""
        # for rules without facts: the verb is the folder of a case of the rule
        verbs: dict[str, str] = {}
        for case, records in self.cases.items():
            for rule in first_of(records)["rules"] or [""]:
                verbs.setdefault(rule, case.partition("/")[0])
        groups: dict[str, list[RuleFacts]] = {}
        for facts in (*self.rules.values(), *([RuleFacts("")] if "" in self.counts else [])):
            groups.setdefault(facts.verb or verbs.get(facts.id, ""), []).append(facts)
        return groups

    @property
    def columns(self) -> Mapping[str, tuple[str, ...]]:
        """The columns of the matrix, without empty columns, which would narrow the column of statements."""
        verdicts_here = {
            verdict for counts in self.counts.values() for count in counts for verdict in count
        }
        return {
            name: verdicts
            for name, verdicts in COLUMNS.items()
            if verdicts_here.intersection(verdicts)
        }

    @cached_property
    def defects(self) -> PageDefects:
        return PageDefects(self.runs, self.labels, self.news)

    @cached_property
    def labels(self) -> Sequence[str]:
        """A short name of each run: its stack, with what else is needed to tell the runs apart. Runs of one stack are
        called by their directories."""
        for parts in (("stack",), ("device", "stack"), ("device", "stack", "kernel")):
            labels = [_label(run, parts) for run in self.runs]
            if len(set(labels)) == len(labels):
                return labels
        count = Counter(stacks := [_label(run, ("stack",)) for run in self.runs])
        names = [
            run.directory.absolute().name if count[stack] > 1 else stack
            for run, stack in zip(self.runs, stacks, strict=True)
        ]
        if len(set(names)) == len(names):
            return names
        return [f"{number}. {label}" for number, label in enumerate(labels, 1)]

    @cached_property
    def map(self) -> Mapping[str, list[Cell]]:
        """The rules of each verb, as cells of the map on top of the page."""
        return {verb: list(map(self._cell, rules)) for verb, rules in self.groups.items()}

    def _cell(self, rule: RuleFacts) -> Cell:
        verdicts = [run.verdicts.labels.get(rule.id, "") for run in self.runs]
        return Cell(rule, verdicts, [rule.id in run.verdicts.apart for run in self.runs])

    def tally(self, verb: str) -> Mapping[str, int]:
        """Returns the numbers of a verb's rules by their verdicts, the worst verdicts first. Of several runs, returns the
        number of rules whose verdicts differ."""
        if len(self.runs) > 1:
            return {"differ": sum(len({*cell.verdicts}) > 1 for cell in self.map[verb])}
        verdicts = [cell.standings[0] for cell in self.map[verb]]
        ordered = sorted({*verdicts}, key=lambda verdict: (rank_of(verdict), verdict))
        return {verdict: verdicts.count(verdict) for verdict in ordered}

    def verbs_of(self, by_run: Sequence[Shown]) -> list[str]:
        """Returns the verbs whose rules a defect violates."""
        violated = {facts.id for facts in self.rules_of(by_run)}
        verbs = ((facts.id, verb) for verb, rules in self.groups.items() for facts in rules)
        return list(dict.fromkeys(verb for rule, verb in verbs if rule in violated))

    @staticmethod
    def command_of(run: Digest) -> str:
        """Returns the command of a run, with the target of its reproducing commands."""
        words = list(run.header["argv"])
        options = {word.partition("=")[0] for word in words}
        of_case = next((record["repro"] for record in run.results if record["repro"]), "")
        target = of_case.partition(" --only ")[0].split()
        for at, word in enumerate(target):
            if word not in options:
                words += target[at : at + _OF_TARGET.get(word, 0)]
        return " ".join(words)

    def since_when(self, shown: Shown) -> str:
        """Returns since when the history of a run has a defect; empty if it is not known."""
        return self.since[shown.number].get(shown.defect.fingerprint, "") if self.since else ""

    def mail(self, shown: Shown) -> str:
        """Returns the command that reports a defect, with the earlier run as another stack."""
        others = ("--others", self.news.comparison.old.path) if self.news else ()
        name = (
            self.news.comparison.defects.name_of(shown.defect)
            if self.news
            else shown.defect.fingerprint
        )
        path = self.runs[shown.number].path
        return command("reproducer", name, "--run", path, "--mail", *others)

    def bisection(self, shown: Shown) -> str:
        """Returns the commands that find the commit of a defect, by a case that passed in the earlier run, if there is
        one; empty if the run is of no guest, or of a stack with changes."""
        found = self.news.comparison.defects.bisection(shown.defect) if self.news else ""
        environment = self.runs[shown.number].environment
        if found or environment.changed_stack:
            return found
        return bisection.commands_of(shown.defect, environment.under_test)

    def rules_of(self, by_run: Sequence[Shown]) -> list[RuleFacts]:
        """Returns the rules that a defect violates. The rules of the symptom that is shown first come first."""
        ids = dict.fromkeys(
            [
                *by_run[0].first.rules,
                *(rule for record in by_run for rule in record.defect.rules),
            ],
        )
        return [self.rules.get(id_) or RuleFacts(id_) for id_ in ids]

    @cached_property
    def data(self) -> str:
        """The data for the script (page_data.py): cases, sweeps, maps, and of each defect the cases, and those not shown."""
        number_of = {case: number for number, case in enumerate(self.cases)}
        defects, more = [], []
        for _, members in itertools.chain.from_iterable(self.defects.listed.values()):
            for by_run in members:
                cases = dict.fromkeys(case for shown in by_run for case in shown.defect.cases)
                defects.append([number_of[case] for case in cases])
                for shown in by_run:
                    if shown.more:
                        more.append([number_of[case] for case in shown.more])
        return PageData(self.runs, self.cases).packed(
            names=self.labels,
            cases=list(self.cases),
            sweeps=[number_of[case] for case in self.sweeps],
            unrecorded=self.unrecorded,
            defects=defects,
            more=more,
        )

    @cached_property
    def sweeps(self) -> list[str]:
        """The sweeps, the worst verdicts first."""
        sweep_ids = []
        for id_, records in self.cases.items():
            if any(record and record["space"] for record in records):
                sweep_ids.append(id_)
        return sorted(sweep_ids, key=lambda id_: min(map(rank_of, self._verdicts(id_))))

    @cached_property
    def pictures(self) -> list[tuple[str, Picture]]:
        """The pictures of the models, each with the name of its run."""
        from reports.compared.picture import Picture  # imported late: few runs have models

        return [
            (run.environment.name, Picture(record["case"], record["pairs"]))
            for run in self.runs
            for record in run.results
            if record["pairs"].get("states")
        ]

    def _deaths(self, case: str) -> set[str]:
        """How points or rules of a case died or hung: the script finds the case also by these verdicts."""
        return {*itertools.chain.from_iterable(map(deaths_in, filter(None, self.cases[case])))}

    def _verdicts(self, case: str) -> list[str]:
        return [record["effective"] for record in self.cases[case] if record]

    @property
    def verdicts(self) -> list[tuple[str, int, int]]:
        """The verdicts, each with the number of cases that have it in some run, and of those that have it only at some of
        their points."""
        total, more = Counter[str]({Verdict.MISSED: len(self.unrecorded)}), Counter[str]()
        for case in self.cases:
            here = {*self._verdicts(case)}
            total.update(here)
            more.update(self._deaths(case) - here)
        return [
            (verdict, total[verdict], more[verdict])
            for verdict in VERDICTS
            if total[verdict] or more[verdict]
        ]

    @cached_property
    def differing(self) -> int:
        """The number of cases whose verdicts differ between runs that have the case."""
        return sum(len(set(self._verdicts(case))) > 1 for case in self.cases)

    @cached_property
    def violated_once(self) -> Sequence[int]:
        """Of two runs, the numbers of cases that only the first, and only the second run violates, of those that both
        runs have; empty for other numbers of runs."""
        if len(self.runs) != _PAIR:
            return ()
        alone = [0, 0]
        for case in self.cases:
            is_bad = [verdict in VIOLATIONS for verdict in self._verdicts(case)]
            if len(is_bad) == _PAIR and is_bad[0] != is_bad[1]:
                alone[is_bad.index(True)] += 1
        return alone

    @property
    def are_equal(self) -> bool:
        """Whether all runs have the same cases with the same verdicts, and the same defects."""
        return self.defects.are_equal and not self.differing and not self.absent

    @cached_property
    def absent(self) -> int:
        """The number of cases that are not in every run."""
        return sum(None in records for records in self.cases.values())


def render(
    runs: Sequence[Digest],
    news: Novelty | None = None,
    since: Sequence[Mapping[str, str]] = (),
) -> str:
    """Returns the page; with `news`, what is new against an earlier run comes first, and with `since` the page says since
    when the history of a run has each defect. Raises UserError if the file of a sweep's points is invalid."""
    script = _script()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = Page(runs, news, since)
    facts = _rows([run.summary.facts for run in runs])
    template = environment().get_template("report.html")
    return template.render(
        page=page,
        facts=[(name, values) for name, values in facts if any(values)],
        hashes=_rows([run.environment.named_under_test for run in runs]),
        columns=page.columns,
        signs=SIGNS.values(),
        meanings=MEANINGS,
        script=Markup(script),
        script_hash=digest,
        data=Markup(page.data),
        point=evidence.POINT if any(map(evidence.has_points, runs)) else "",
    )


def load() -> None:
    """Reads what `render` needs of the suite's own files. Templates are code, which is executed in this process."""
    _script()
    for name in ("report.html", "macros.html", "report.css"):
        environment().get_template(name)


@functools.cache
def _script() -> str:
    return (TEMPLATES / "report.js").read_text(encoding="utf-8")


def _label(run: Digest, names: Sequence[str]) -> str:
    return " ".join(run.summary.facts[name] for name in names)


def _rows(tables: Sequence[Mapping[str, str]]) -> list[tuple[str, list[str]]]:
    """Returns a row for each name in the tables, with a column for each table."""
    names = dict.fromkeys(name for table in tables for name in table)
    rows = []
    for name in names:
        rows.append((name, [table.get(name, "") for table in tables]))
    return rows


def rank_of(verdict: str) -> int:
    """Returns the rank of a verdict on a rule: 0 for the worst verdict; other texts come last."""
    if verdict in OF_RULES:
        return OF_RULES.index(Verdict(verdict))
    return len(OF_RULES)
