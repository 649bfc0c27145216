"""report.html: one self-contained page about one run, or about several side by side.

This module prepares the page's data; templates/ has the layout. Jinja escapes everything that is inserted, and the
page's policy allows only its own script (by hash), so that no text from a results file is executed.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jinja2
from jinja2 import BytecodeCache, Environment, FileSystemLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup

from conformance import cache
from conformance.defects import Defect, Severity, Symptom
from conformance.model.record import ResultRecord
from conformance.model.verdict import INCOMPLETE, OF_RULES, VERDICTS, VIOLATIONS, Verdict
from conformance.results.conclusions import format_points, verdict_on
from conformance.sweeps.outcome import OUTSIDE, Outcome, Points, encode_index
from reports import confirmation, evidence, pictures
from reports.digest import Digest, RuleFacts
from reports.points import read_points
from reports.rule_ids import format_rules
from reports.text import flat, format_count, format_value

FILE_NAME = "report.html"
TEMPLATES = Path(__file__).with_name("templates")
# The columns of a single run's matrix, and the verdicts that each of them counts.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "pass": (Verdict.PASS,),
    "fail": VIOLATIONS,
    "waived": (Verdict.WAIVED,),
    "stack": (Verdict.STACK,),
    "unsup.": (Verdict.UNSUPPORTED,),
    "unreach.": (Verdict.UNREACHABLE,),
    "other": INCOMPLETE,
}
_MOST_SHOWN = 3
_SIGNS: dict[str, str] = {
    Verdict.UNSUPPORTED: "○",
    **dict.fromkeys(VIOLATIONS, "✗"),
    Verdict.WAIVED: "✗",
    Verdict.STACK: "✗",
}


@dataclass(frozen=True)
class CellView:
    """A rule in one run: its verdict (empty if it has no case in this run) and the number of cases by verdict.

    `restriction` says what was not seen of a rule that passed in part; empty for any other.
    """

    verdict: str
    counts: Mapping[str, int]
    restriction: str = ""

    def of(self, verdicts: Sequence[str]) -> int:
        return sum(self.counts.get(verdict, 0) for verdict in verdicts)


@dataclass(frozen=True)
class SweepView:
    """A sweep in one run: its record, and its points if their file lies next to the results."""

    record: ResultRecord
    points: Points | None

    @cached_property
    def map(self) -> pictures.Map | None:
        """The space as a picture, a pixel for each point."""
        return pictures.draw(self.points) if self.points else None

    @cached_property
    def matrix(self) -> pictures.Matrix | None:
        """The data-path matrix, if this is a sweep of the data path."""
        if self.points is None or not pictures.is_matrix(self.record["space"]["axes"]):
            return None
        return pictures.matrix(self.points)

    @cached_property
    def legend(self) -> list[tuple[str, str, str, int]]:
        """Colour, verdict, text and number of points of each outcome that occurs."""
        if not self.points or not self.map:
            return []
        rows = zip(self.map.colours, self.points.outcomes, range(len(self.points.outcomes)), strict=True)
        counts = self.points.counts()
        return [
            (colour, outcome.verdict, outcome_text(outcome), counts[number])
            for colour, outcome, number in rows
            if counts[number]
        ]

    def format_cell(self, cell: pictures.Cell) -> str:
        """The outcomes in a cell of the matrix, one on each line."""
        outcomes = self.points.outcomes if self.points else ()
        return "\n".join(
            f"{number:,} {outcomes[each].verdict}: {outcome_text(outcomes[each])}"
            for each, number in cell.counts.items()
        )

    def sign(self, cell: pictures.Cell) -> str:
        """The sign of a cell, with numbers if its points have different verdicts."""
        outcomes = self.points.outcomes if self.points else ()
        worst = [each for each in cell.counts if outcomes[each].verdict == cell.verdict]
        sign = _SIGNS.get(cell.verdict, "?")
        if cell.verdict == Verdict.PASS:
            refused = {outcomes[number].expected.startswith("refused") for number in worst}
            sign = "✓⊘" if len(refused) > 1 else "⊘" if True in refused else "✓"
        number = sum(cell.counts[each] for each in worst)
        return sign if number == cell.total else f"{sign} {number}/{cell.total}"

    @cached_property
    def inspected(self) -> dict[str, Any]:
        """What the page's script needs to explain a dot of the map."""
        if not self.points or not self.map:
            return {}
        outcomes = [f"{each.verdict}: {outcome_text(each)}" for each in self.points.outcomes]
        axes = [{"name": axis.name, "labels": axis.labels, "flags": axis.flags} for axis in self.points.space.axes]
        return {
            "axes": axes,
            "width": self.map.width,
            "outcomes": outcomes,
            "outside": OUTSIDE,
            "index": encode_index(self.points.index),
        }


@dataclass(frozen=True)
class CaseView:
    """A case in every run; None if a run has no result for it."""

    id: str
    records: tuple[ResultRecord | None, ...]
    sweeps: tuple[SweepView | None, ...] = ()

    @property
    def verdicts(self) -> list[str]:
        """The effective verdict in each run; "-" if there is none."""
        return [record["effective"] if record else "-" for record in self.records]

    @property
    def first(self) -> ResultRecord:
        return next(record for record in self.records if record)


@dataclass(frozen=True)
class RuleView:
    """A rule with its cells, the cases listed under it, and its cases that are listed under another rule."""

    facts: RuleFacts
    cells: tuple[CellView, ...]
    cases: tuple[CaseView, ...]
    elsewhere: tuple[CaseView, ...]


@dataclass(frozen=True)
class Shown:
    """A defect in one run, with its number: its first symptoms by case, and how many cases more have it.

    `confirmed` says of each of them whether it occurs alone; it is empty if that is not known.
    """

    number: int
    defect: Defect
    symptoms: tuple[Symptom, ...]
    confirmed: tuple[str, ...]

    @property
    def more(self) -> list[str]:
        """The other cases in which it shows."""
        shown = {symptom.case for symptom in self.symptoms}
        return [case for case in self.defect.cases if case not in shown]


@dataclass(frozen=True)
class DefectView:
    """A defect in each run that has it, and its rules: the first one is that of its first symptom."""

    rules: tuple[RuleFacts, ...]
    by_run: tuple[Shown, ...]

    @property
    def defect(self) -> Defect:
        return self.by_run[0].defect


def _is_same(one: Defect, other: Defect) -> bool:
    return not set(one.fingerprints).isdisjoint(other.fingerprints)


def _shown(number: int, run: Digest, defect: Defect) -> Shown:
    symptoms = tuple({symptom.case: symptom for symptom in reversed(defect.symptoms)}.values())[::-1]
    first = tuple(sorted(symptoms, key=defect.symptoms.index))[:_MOST_SHOWN]
    return Shown(number, defect, first, tuple(confirmation.of_case(run, each.case) for each in first))


@dataclass(frozen=True)
class Page:
    runs: Sequence[Digest]

    @cached_property
    def rules(self) -> Mapping[str, RuleFacts]:
        found: dict[str, RuleFacts] = {}
        for run in self.runs:
            for id_ in (*run.rules, *run.verdicts):
                found.setdefault(id_, run.rules.get(id_) or RuleFacts(id_))
        return found

    @cached_property
    def cases(self) -> Mapping[str, CaseView]:
        """The cases of which a run has a record, in the order of the first run."""
        by_run = [{record["case"]: record for record in run.results} for run in self.runs]
        ids = dict.fromkeys(id_ for records in by_run for id_ in records)
        return {
            id_: self._case(id_, tuple(records.get(id_) for records in by_run))
            for id_ in ids
            if id_ not in self._unrecorded
        }

    @cached_property
    def _unrecorded(self) -> frozenset[str]:
        recorded = {
            record["case"] for run in self.runs for record in run.results if record["case"] not in run.unrecorded
        }
        return frozenset().union(*(run.unrecorded for run in self.runs)) - recorded

    @cached_property
    def unrecorded(self) -> list[str]:
        """The cases that were planned and of which no run has a record, in alphabetical order."""
        return sorted(self._unrecorded)

    def _case(self, id_: str, records: tuple[ResultRecord | None, ...]) -> CaseView:
        if not any(record and record["space"] for record in records):
            return CaseView(id_, records)
        return CaseView(
            id_,
            records,
            tuple(
                SweepView(record, read_points(run.directory, record)) if record and record["space"] else None
                for run, record in zip(self.runs, records, strict=True)
            ),
        )

    @cached_property
    def groups(self) -> list[tuple[str, list[RuleView]]]:
        """The matrix: the rules of each verb; cases that prove no rule come last."""
        under: dict[str, list[CaseView]] = {}
        also: dict[str, list[CaseView]] = {}
        for case in self.cases.values():
            rules = case.first["rules"] or [""]
            under.setdefault(rules[0], []).append(case)
            for rule in rules[1:]:
                also.setdefault(rule, []).append(case)
        groups: dict[str, list[RuleView]] = {}
        known = {**self.rules, **({"": RuleFacts("")} if "" in under else {})}
        for id_, facts in known.items():
            cases, elsewhere = tuple(under.get(id_, ())), tuple(also.get(id_, ()))
            verb = facts.verb or next((case.id.partition("/")[0] for case in (*cases, *elsewhere)), "")
            cells = tuple(self._cells(id_, (*cases, *elsewhere)))
            groups.setdefault(verb, []).append(RuleView(facts, cells, cases, elsewhere))
        return list(groups.items())

    def _cells(self, rule: str, cases: Sequence[CaseView]) -> Iterator[CellView]:
        for number, run in enumerate(self.runs):
            counts = Counter[str](verdict_on(rule, record) for case in cases if (record := case.records[number]))
            yield CellView(run.verdicts.get(rule, ""), counts, run.restrictions.get(rule, ""))

    @property
    def columns(self) -> Mapping[str, tuple[str, ...]]:
        """The columns of the matrix that have a number; the others would take their room from the statements."""
        cells = [cell for _, rules in self.groups for rule in rules for cell in rule.cells]
        return {name: verdicts for name, verdicts in COLUMNS.items() if any(cell.of(verdicts) for cell in cells)}

    @cached_property
    def defects(self) -> list[DefectView]:
        """The defects of all runs, the most severe first, and those that are waived or of the stack last."""
        found: list[list[Shown]] = []
        for number, run in enumerate(self.runs):
            for defect in run.defects:
                known = next((each for each in found if _is_same(each[0].defect, defect)), None)
                if known is None:
                    found.append(known := [])
                known.append(_shown(number, run, defect))
        views = list(map(self._defect_view, found))
        return sorted(
            views,
            key=lambda view: (
                view.defect.of_stack,
                view.defect.waived,
                view.defect.unconfirmed,
                view.defect.severity.rank,
            ),
        )

    def _defect_view(self, by_run: list[Shown]) -> DefectView:
        first = by_run[0].defect.first.rules
        ids = dict.fromkeys([*first, *(rule for shown in by_run for rule in shown.defect.rules)])
        return DefectView(tuple(self.rules.get(id_) or RuleFacts(id_) for id_ in ids), tuple(by_run))

    @cached_property
    def confirmations(self) -> list[str]:
        """Lines that say of each run how many of its violations were confirmed."""
        several = len(self.runs) > 1
        return [f"{run.name}: {line}" if several else line for run in self.runs for line in confirmation.summary(run)]

    @cached_property
    def sweeps(self) -> list[CaseView]:
        """The sweeps, those with the worst verdicts first."""
        return sorted(
            (case for case in self.cases.values() if case.sweeps), key=lambda case: min(map(_rank, case.verdicts))
        )

    @cached_property
    def matrices(self) -> list[CaseView]:
        """The sweeps of the data path."""
        return [case for case in self.sweeps if any(sweep and sweep.matrix for sweep in case.sweeps)]

    @property
    def verdicts(self) -> list[tuple[str, int]]:
        """The effective verdicts that occur, each with its number of cases in all runs."""
        total = sum((Counter(run.counts) for run in self.runs), Counter[str]())
        return [(verdict, total[verdict]) for verdict in VERDICTS if total[verdict]]

    @property
    def differing(self) -> int:
        """The number of cases whose verdict is not the same in all runs."""
        return sum(len(set(case.verdicts)) > 1 for case in self.cases.values())


def render(runs: Sequence[Digest]) -> str:
    """The page. Raises UserError if the points file of a sweep is invalid."""
    script = (TEMPLATES / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = Page(runs)
    return (
        environment()
        .get_template("report.html")
        .render(
            page=page,
            facts=stack_facts(runs),
            hashes=hashes(runs),
            columns=page.columns,
            script=Markup(script),
            script_hash=digest,
            answered=evidence.answered,
            point=evidence.POINT if any(map(evidence.has_points, runs)) else "",
        )
    )


class _Compiled(BytecodeCache):
    """Templates that an earlier process has compiled. Jinja itself finds out whether they are still valid."""

    def load_bytecode(self, bucket: Bucket) -> None:
        """Fills the bucket with what was stored, if anything was."""
        if path := cache.lookup(self._name(bucket)):
            with contextlib.suppress(OSError):
                bucket.bytecode_from_string(path.read_bytes())

    def dump_bytecode(self, bucket: Bucket) -> None:
        cache.store(self._name(bucket), bucket.bytecode_to_string())

    @staticmethod
    def _name(bucket: Bucket) -> str:
        settings = Path(__file__).read_bytes()
        made_of = (bucket.key, bucket.checksum, jinja2.__version__, sys.version)
        return f"template-{cache.digest_of([settings, *(each.encode() for each in made_of)])}.bytecode"


@functools.cache
def environment() -> Environment:
    """The templates of all pages; whatever they insert is escaped."""
    found = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        bytecode_cache=_Compiled(),
    )
    found.filters |= {
        "flat": flat,
        "own": evidence.own,
        "later": evidence.later,
        "link": link,
        "count": "{:,}".format,
        "format_value": format_value,
        "format_points": format_points,
        "format_rules": format_rules,
        "format_count": format_count,
        "location": evidence.location,
        "slug": slug,
    }
    return found


def stack_facts(runs: Sequence[Digest]) -> list[tuple[str, list[str]]]:
    """What was under test: a row for each fact, a column for each run; empty rows are left out."""
    rows = [(name, [run.facts[name] for run in runs]) for name in runs[0].facts]
    return [(name, values) for name, values in rows if any(values)]


def hashes(runs: Sequence[Digest]) -> list[tuple[str, list[str]]]:
    """The hashes of what was under test, in the form of `stack_facts`."""
    names = dict.fromkeys(name for run in runs for name in run.under_test)
    return [(name, [run.under_test.get(name, "") for run in runs]) for name in names]


def _rank(verdict: str) -> int:
    return OF_RULES.index(Verdict(verdict)) if verdict in OF_RULES else len(OF_RULES)


def outcome_text(outcome: Outcome) -> str:
    """An outcome in one line: what the rule expects and what was observed."""
    return f"{outcome.rule} expects {outcome.expected}, {outcome.observed}"


def slug(severity: Severity) -> str:
    """The severity as the name of a class."""
    return severity.label.replace(" ", "-")


def link(text: object) -> str:
    """The text if it is an http or https address, which the page may link to, else an empty text."""
    try:
        parts = urlsplit(str(text))
    except ValueError:
        return ""
    return str(text) if parts.scheme in ("http", "https") and parts.netloc else ""
