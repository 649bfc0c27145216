"""report.html: one self-contained page about one run, or about several runs side by side.

This module prepares the conclusion, the defects and the rules, which need no script. page_data.py prepares the rest,
and templates/ has the layout. Jinja escapes everything that is inserted, and the Content-Security-Policy of the page
allows only the page's own script (by hash), so that no text from a results file is executed.
"""

import base64
import contextlib
import functools
import hashlib
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from pathlib import Path

import jinja2
from jinja2 import BytecodeCache, Environment, FileSystemLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup

from conformance import cache
from conformance.defects import Defect, Severity, Symptom
from conformance.errors import command, format_count
from conformance.model.record import ResultRecord
from conformance.model.verdict import INCOMPLETE, OF_RULES, VERDICTS, VIOLATIONS, Verdict
from conformance.results.conclusions import format_points, verdict_on
from reports import evidence
from reports.digest import Digest, RuleFacts
from reports.page_data import PageData, first_of
from reports.text import flat, format_rules, format_value

FILE_NAME = "report.html"
TEMPLATES = Path(__file__).with_name("templates")
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
_MOST_SHOWN = 3


@dataclass(frozen=True)
class CellView:
    """A rule in one run: its verdict (empty if the run has no case of the rule) and the number of its cases by verdict.

    `restriction` names the missing evidence of a rule that passed in part; it is empty for other rules.
    """

    verdict: str
    counts: Mapping[str, int]
    restriction: str = ""

    def of(self, verdicts: Sequence[str]) -> int:
        return sum(self.counts.get(verdict, 0) for verdict in verdicts)


@dataclass(frozen=True)
class RuleView:
    """A rule with a cell for each run."""

    facts: RuleFacts
    cells: tuple[CellView, ...]


@dataclass(frozen=True)
class Shown:
    """A defect in the run with this number."""

    number: int
    defect: Defect

    @cached_property
    def symptoms(self) -> list[Symptom]:
        """The first symptom in each of the first cases."""
        of_case = {symptom.case: symptom for symptom in reversed(self.defect.symptoms)}
        return [of_case[case] for case in self.defect.cases[:_MOST_SHOWN]]

    @property
    def more(self) -> Sequence[str]:
        return self.defect.cases[_MOST_SHOWN:]


@dataclass(frozen=True)
class DefectView:
    """A defect in each run that has it, and its rules. Its first symptom violates the first rule."""

    rules: tuple[RuleFacts, ...]
    by_run: tuple[Shown, ...]

    @property
    def defect(self) -> Defect:
        return self.by_run[0].defect


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
    def cases(self) -> Mapping[str, tuple[ResultRecord | None, ...]]:
        """The records of all cases with a record in at least one run, in the order of the first run."""
        by_run = [{record["case"]: record for record in run.results} for run in self.runs]
        ids = dict.fromkeys(id_ for records in by_run for id_ in records if id_ not in self._unrecorded)
        return {id_: tuple(records.get(id_) for records in by_run) for id_ in ids}

    @cached_property
    def _unrecorded(self) -> frozenset[str]:
        recorded = {
            record["case"] for run in self.runs for record in run.results if record["case"] not in run.unrecorded
        }
        return frozenset().union(*(run.unrecorded for run in self.runs)) - recorded

    @cached_property
    def unrecorded(self) -> list[str]:
        """The planned cases without a record in any run, in alphabetical order."""
        return sorted(self._unrecorded)

    @cached_property
    def groups(self) -> list[tuple[str, list[RuleView]]]:
        """The matrix: the rules of each verb; cases that prove no rule come last."""
        counts: dict[str, list[Counter[str]]] = {}
        verbs: dict[str, str] = {}  # the verbs of rules without other facts
        for case, records in self.cases.items():
            for rule in first_of(records)["rules"] or [""]:
                if (count := counts.get(rule)) is None:
                    count = counts[rule] = [Counter() for _ in self.runs]
                    verbs[rule] = case.partition("/")[0]
                for number, record in enumerate(records):
                    if record:
                        count[number][verdict_on(rule, record)] += 1
        groups: dict[str, list[RuleView]] = {}
        known = {**self.rules, **({"": RuleFacts("")} if "" in counts else {})}
        for id_, facts in known.items():
            cells = tuple(
                CellView(run.verdicts.get(id_, ""), count, run.restrictions.get(id_, ""))
                for run, count in zip(self.runs, counts.get(id_, repeat({})), strict=False)
            )
            groups.setdefault(facts.verb or verbs.get(id_, ""), []).append(RuleView(facts, cells))
        return list(groups.items())

    @property
    def columns(self) -> Mapping[str, tuple[str, ...]]:
        """The columns of the matrix with at least one number. Empty columns would take space from the statements."""
        cells = [cell for _, rules in self.groups for rule in rules for cell in rule.cells]
        return {name: verdicts for name, verdicts in COLUMNS.items() if any(cell.of(verdicts) for cell in cells)}

    @cached_property
    def defects(self) -> list[DefectView]:
        """The defects of all runs, the most severe first; defects that are waived or of the stack come last."""
        found: list[list[Shown]] = []
        for number, run in enumerate(self.runs):
            for defect in run.defects:
                own = set(defect.fingerprints)
                known = next((each for each in found if not own.isdisjoint(each[0].defect.fingerprints)), None)
                if known is None:
                    found.append(known := [])
                known.append(Shown(number, defect))
        found.sort(key=lambda by_run: _order(by_run[0].defect))
        return list(map(self._defect_view, found))

    def _defect_view(self, by_run: list[Shown]) -> DefectView:
        first = by_run[0].defect.first.rules
        ids = dict.fromkeys([*first, *(rule for shown in by_run for rule in shown.defect.rules)])
        return DefectView(tuple(self.rules.get(id_) or RuleFacts(id_) for id_ in ids), tuple(by_run))

    @cached_property
    def data(self) -> str:
        """The cases, sweeps and maps, and the cases that are not shown with each defect (page_data.py)."""
        number_of = {case: number for number, case in enumerate(self.cases)}
        return PageData(self.runs, self.cases).packed(
            names=[run.name for run in self.runs],
            cases=list(self.cases),
            sweeps=[number_of[case] for case in self.sweeps],
            unrecorded=self.unrecorded,
            more=[
                [number_of[case] for case in shown.more] for view in self.defects for shown in view.by_run if shown.more
            ],
        )

    @cached_property
    def sweeps(self) -> list[str]:
        """The sweeps, the worst verdicts first."""
        found = (id_ for id_, records in self.cases.items() if any(record and record["space"] for record in records))
        return sorted(found, key=lambda id_: min(map(rank_of, self._verdicts(id_))))

    def _verdicts(self, case: str) -> list[str]:
        return [record["effective"] if record else "-" for record in self.cases[case]]

    @property
    def verdicts(self) -> list[tuple[str, int]]:
        total = sum((Counter(run.counts) for run in self.runs), Counter[str]())
        return [(verdict, total[verdict]) for verdict in VERDICTS if total[verdict]]

    @cached_property
    def differing(self) -> int:
        return sum(len(set(self._verdicts(case))) > 1 for case in self.cases)


def _order(defect: Defect) -> tuple[bool, bool, bool, int]:
    return defect.of_stack, defect.waived, defect.unconfirmed, defect.severity.rank


def render(runs: Sequence[Digest]) -> str:
    """Returns the page. Raises UserError if the file of a sweep's points is invalid."""
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
            data=Markup(page.data),
            point=evidence.POINT if any(map(evidence.has_points, runs)) else "",
        )
    )


class _Compiled(BytecodeCache):
    """Compiled templates of an earlier process. Jinja itself checks whether they are still valid."""

    def load_bytecode(self, bucket: Bucket) -> None:
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
    """Returns the environment of all templates, which escapes all inserted texts."""
    found = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        bytecode_cache=_Compiled(),
    )
    found.globals["command"] = command
    found.filters |= {
        "flat": flat,
        "own": evidence.own,
        "later": evidence.later,
        "count": "{:,}".format,
        "format_value": format_value,
        "format_points": format_points,
        "format_rules": format_rules,
        "format_count": format_count,
        "slug": slug,
    }
    return found


def stack_facts(runs: Sequence[Digest]) -> list[tuple[str, list[str]]]:
    """A row for each fact of the stacks under test that is known, and a column for each run."""
    rows = [(name, [run.facts[name] for run in runs]) for name in runs[0].facts]
    return [(name, values) for name, values in rows if any(values)]


def hashes(runs: Sequence[Digest]) -> list[tuple[str, list[str]]]:
    """The hashes of the software under test, in the form of `stack_facts`."""
    names = dict.fromkeys(name for run in runs for name in run.under_test)
    return [(name, [run.under_test.get(name, "") for run in runs]) for name in names]


def rank_of(verdict: str) -> int:
    """Returns the rank of a verdict on a rule: 0 for the worst; texts that are not a verdict come last."""
    return OF_RULES.index(Verdict(verdict)) if verdict in OF_RULES else len(OF_RULES)


def slug(severity: Severity) -> str:
    return severity.label.replace(" ", "-")
