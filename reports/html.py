"""report.html: one self-contained page of one run, or of several side by side.

Here the page's data are prepared; templates/ says how they look. Jinja escapes whatever is put into
the page, and the page allows no script but its own (by its hash), so that nothing from a results file runs.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from conformance.model.record import ResultRecord
from conformance.model.verdict import INCOMPLETE, VERDICTS, VIOLATIONS, Verdict
from conformance.results.conclusions import headline, verdict_on
from conformance.sweeps.outcome import OUTSIDE, Outcome, Points, encode_index
from reports import pictures
from reports.digest import Digest, RuleFacts, flat, format_value
from reports.points import read_points

FILE_NAME = "report.html"
TEMPLATES = Path(__file__).with_name("templates")
# Columns of the matrix of a single run, and the verdicts that each of them counts.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "pass": (Verdict.PASS,), "fail": VIOLATIONS, "waived": (Verdict.WAIVED,),
    "unsup.": (Verdict.UNSUPPORTED,), "unreach.": (Verdict.UNREACHABLE,), "other": INCOMPLETE,
}  # fmt: skip
_MOST_SHOWN = 3
_SIGNS: dict[str, str] = {Verdict.UNSUPPORTED: "○", **dict.fromkeys(VIOLATIONS, "✗"), Verdict.WAIVED: "✗"}


@dataclass(frozen=True)
class CellView:
    """A rule in one run: its verdict (empty: no case of it in this run) and how many cases have which.

    `restriction` says which part of a verified rule was not offered; empty if all of it was.
    """

    verdict: str
    counts: Mapping[str, int]
    restriction: str = ""

    def of(self, verdicts: Sequence[str]) -> int:
        """How many cases have one of these verdicts."""
        return sum(self.counts.get(verdict, 0) for verdict in verdicts)


@dataclass(frozen=True)
class SweepView:
    """A sweep in one run: its record, and its map where the points lie beside the results."""

    record: ResultRecord
    points: Points | None

    @cached_property
    def map(self) -> pictures.Map | None:
        """The picture of the space."""
        return pictures.draw(self.points) if self.points else None

    @cached_property
    def matrix(self) -> pictures.Matrix | None:
        """The data path as a picture, of a sweep that is of it."""
        if self.points is None or not pictures.is_matrix(self.record["space"]["axes"]):
            return None
        return pictures.matrix(self.points)

    @cached_property
    def legend(self) -> list[tuple[str, str, str, int]]:
        """Of each outcome its colour, verdict, text and number of points; those that no point has are left out."""
        if not self.points or not self.map:
            return []
        rows = zip(self.map.colours, self.points.outcomes, range(len(self.points.outcomes)), strict=True)
        counts = self.points.counts()
        return [(colour, outcome.verdict, outcome_text(outcome), counts[number])
                for colour, outcome, number in rows if counts[number]]  # fmt: skip

    def format_cell(self, cell: pictures.Cell) -> str:
        """The outcomes at a cell of the matrix, one in a line."""
        outcomes = self.points.outcomes if self.points else ()
        return "\n".join(
            f"{number:,} {outcomes[each].verdict}: {outcome_text(outcomes[each])}"
            for each, number in cell.counts.items()
        )  # fmt: skip

    def sign(self, cell: pictures.Cell) -> str:
        """The sign of a cell, with numbers where its points differ in their verdict."""
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
        """What the page's script needs to say what a dot of the map stands for."""
        if not self.points or not self.map:
            return {}
        outcomes = [f"{each.verdict}: {outcome_text(each)}" for each in self.points.outcomes]
        axes = [{"name": axis.name, "labels": axis.labels, "flags": axis.flags} for axis in self.points.space.axes]
        return {"axes": axes, "width": self.map.width, "outcomes": outcomes, "outside": OUTSIDE,
                "index": encode_index(self.points.index)}  # fmt: skip


@dataclass(frozen=True)
class CaseView:
    """A case in every run; None where a run has no result of it."""

    id: str
    records: tuple[ResultRecord | None, ...]
    sweeps: tuple[SweepView | None, ...] = ()

    @property
    def verdicts(self) -> list[str]:
        """The effective verdict in each run; "-" where there is none."""
        return [record["effective"] if record else "-" for record in self.records]

    @property
    def first(self) -> ResultRecord:
        """The result of the first run that has one."""
        return next(record for record in self.records if record)


@dataclass(frozen=True)
class RuleView:
    """A rule with its cells, the cases that stand under it, and those that stand under another rule as well."""

    facts: RuleFacts
    cells: tuple[CellView, ...]
    cases: tuple[CaseView, ...]
    elsewhere: tuple[CaseView, ...]


@dataclass(frozen=True)
class Seen:
    """What a result shows of a violated rule, the command that shows it, and rows that random sequences have made."""

    record: ResultRecord
    verdict: str
    headline: str
    repro: str
    rows: tuple[str, ...]


@dataclass(frozen=True)
class Finding:
    """A violated rule: for each run in which it is, the number of violations and the first of them."""

    facts: RuleFacts
    by_run: tuple[tuple[int, int, tuple[Seen, ...]], ...]


def _seen(rule: str, record: ResultRecord) -> Seen:
    rows = (each["row"] for each in record["deviations"] if each["row"] and rule in each["rules"])
    text, repro = headline(rule, record)
    return Seen(record, verdict_on(rule, record), text, repro, tuple(rows))


@dataclass(frozen=True)
class Page:
    """What the template shows."""

    runs: Sequence[Digest]

    @cached_property
    def rules(self) -> Mapping[str, RuleFacts]:
        """The rules of all runs."""
        found: dict[str, RuleFacts] = {}
        for run in self.runs:
            for id_ in (*run.rules, *run.verdicts):
                found.setdefault(id_, run.rules.get(id_) or RuleFacts(id_, *[""] * 7))
        return found

    @cached_property
    def cases(self) -> Mapping[str, CaseView]:
        """The cases of all runs in the first one's order."""
        by_run = [{record["case"]: record for record in run.results} for run in self.runs]
        ids = dict.fromkeys(id_ for records in by_run for id_ in records)
        return {id_: self._case(id_, tuple(records.get(id_) for records in by_run)) for id_ in ids}

    def _case(self, id_: str, records: tuple[ResultRecord | None, ...]) -> CaseView:
        if not any(record and record["space"] for record in records):
            return CaseView(id_, records)
        return CaseView(id_, records, tuple(
            SweepView(record, read_points(run.directory, record)) if record and record["space"] else None
            for run, record in zip(self.runs, records, strict=True)
        ))  # fmt: skip

    @cached_property
    def groups(self) -> list[tuple[str, list[RuleView]]]:
        """The matrix: for each verb its rules, and what proves no rule at the end."""
        under: dict[str, list[CaseView]] = {}
        also: dict[str, list[CaseView]] = {}
        for case in self.cases.values():
            rules = case.first["rules"] or [""]
            under.setdefault(rules[0], []).append(case)
            for rule in rules[1:]:
                also.setdefault(rule, []).append(case)
        groups: dict[str, list[RuleView]] = {}
        known = {**self.rules, **({"": RuleFacts("", *[""] * 7)} if "" in under else {})}
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

    @cached_property
    def findings(self) -> list[Finding]:
        """The violated rules of all runs."""
        violated = [run.violations() for run in self.runs]
        found = []
        for id_, facts in self.rules.items():
            by_run = tuple(
                (number, len(records[id_]), tuple(_seen(id_, record) for record in records[id_][:_MOST_SHOWN]))
                for number, records in enumerate(violated) if id_ in records
            )  # fmt: skip
            if by_run:
                found.append(Finding(facts, by_run))
        return found

    @cached_property
    def sweeps(self) -> list[CaseView]:
        """The sweeps, those that deviate first."""
        return sorted((case for case in self.cases.values() if case.sweeps),
                      key=lambda case: min(map(_rank, case.verdicts)))  # fmt: skip

    @cached_property
    def matrices(self) -> list[CaseView]:
        """The sweeps of the data path."""
        return [case for case in self.sweeps if any(sweep and sweep.matrix for sweep in case.sweeps)]

    @property
    def verdicts(self) -> list[tuple[str, int]]:
        """The effective verdicts that occur, with their number of cases in all runs."""
        total = sum((Counter(run.counts) for run in self.runs), Counter[str]())
        return [(verdict, total[verdict]) for verdict in VERDICTS if total[verdict]]

    @property
    def differing(self) -> int:
        """How many cases have another verdict in one run than in another."""
        return sum(len(set(case.verdicts)) > 1 for case in self.cases.values())


def render(runs: Sequence[Digest]) -> str:
    """The page. Raises UserError where a sweep's points are none."""
    script = (TEMPLATES / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _environment().get_template("report.html").render(
        page=Page(runs), facts=stack_facts(runs), hashes=hashes(runs), columns=COLUMNS, script=Markup(script),
        script_hash=digest,
    )  # fmt: skip


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"flat": flat, "own": own, "later": later, "link": link, "count": "{:,}".format,
                            "format_value": format_value}  # fmt: skip
    return environment


def stack_facts(runs: Sequence[Digest]) -> list[tuple[str, list[str]]]:
    """What was under test, a row a fact and a column a run; rows that say nothing are left out."""
    rows = [(name, [run.facts[name] for run in runs]) for name in runs[0].facts]
    return [(name, values) for name, values in rows if any(values)]


def hashes(runs: Sequence[Digest]) -> list[tuple[str, list[str]]]:
    """What was under test by its hash, in the same form."""
    names = dict.fromkeys(name for run in runs for name in run.under_test)
    return [(name, [run.under_test.get(name, "") for run in runs]) for name in names]


def _rank(verdict: str) -> int:
    return VERDICTS.index(verdict) if verdict in VERDICTS else len(VERDICTS)


def outcome_text(outcome: Outcome) -> str:
    """An outcome in a line: what was wanted and what came."""
    return f"{outcome.rule} wants {outcome.expected}, {outcome.observed}"


def own(data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the judged call itself."""
    return {name: value for name, value in data.items() if name != "afterwards"}


def later(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The fields of each step after the judged call."""
    steps = data.get("afterwards")
    return [step for step in steps if isinstance(step, Mapping)] if isinstance(steps, list) else []


def link(text: object) -> str:
    """The text if it is an address that a page may lead to, else nothing."""
    try:
        parts = urlsplit(str(text))
    except ValueError:
        return ""
    return str(text) if parts.scheme in ("http", "https") and parts.netloc else ""
