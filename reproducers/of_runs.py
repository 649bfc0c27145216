"""The programs of a run: one for each violated row, and for the smallest point of each deviation of a sweep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from conformance.judging import Basis
from conformance.model.case import Case
from conformance.model.record import Deviation, ResultRecord
from conformance.model.rules import Rule
from conformance.model.verdict import VIOLATIONS, Verdict
from conformance.results.records import Recorded
from conformance.results.rejudge import known_capabilities
from conformance.tables.suite import POINT, Suite
from reproducers.cut import cut
from reproducers.program import Program, TooLong, program_of
from reproducers.writer import Inexpressible

_AFTERWARDS = "afterwards "  # how a reason begins of which a later step is the cause


@dataclass(frozen=True)
class Recipe:
    """A row, or one point of a sweep, to make a program of: its id, what was recorded, and the observed fault."""

    id: str
    record: ResultRecord | None
    deviation: Deviation | None = None

    @property
    def verdict(self) -> str:
        """The recorded verdict; empty if there is none."""
        if self.deviation is not None:
            return str(self.deviation.get("verdict", Verdict.FAIL))
        return str(self.record["verdict"]) if self.record else ""

    @property
    def reason(self) -> str:
        """What was observed, for people; empty if nothing was."""
        if self.deviation is not None:
            return str(self.deviation.get("observed", ""))
        return str(self.record["reason"]) if self.record else ""


def violations_of(results: Sequence[ResultRecord]) -> Iterator[Recipe]:
    """The rows that a run found violated, and of each sweep the smallest points of its deviations."""
    for record in results:
        if record["verdict"] not in VIOLATIONS:
            continue
        smallest = [each for each in record.get("deviations", []) if each.get("smallest")]
        if not smallest:
            yield Recipe(record["case"], record)
        for each in smallest:
            yield Recipe(point_id(record["case"], each), record, each)


def point_id(case: str, deviation: Deviation) -> str:
    """The id of the smallest point of a deviation."""
    return case + POINT + ",".join(f"{axis}={label}" for axis, label in deviation["smallest"].items())


def basis_of(recorded: Recorded) -> Basis:
    """What is known of the recorded device."""
    return Basis(known_capabilities(recorded))


def reproducer(recipe: Recipe, suite: Suite, basis: Basis, width: int = 80) -> Program:
    """The program of a recipe. Raises Inexpressible, or UserError for a point that the sweep does not have."""
    case = suite.find(recipe.id)
    if case is None:
        raise Inexpressible("there is no such case")
    case = basis.resolved(case)
    if recipe.record is not None and recipe.verdict == Verdict.FAIL:
        case = _cut(recipe, case)
    return _shortest(case, suite.registry, width, died=recipe.verdict in (Verdict.CRASH, Verdict.HANG))


def _cut(recipe: Recipe, case: Case) -> Case:
    if recipe.deviation is None:
        assert recipe.record is not None
        return cut(case, recipe.record["observed"])
    later = recipe.reason.startswith(_AFTERWARDS)
    return case if later else replace(case, afterwards=())


def _shortest(case: Case, rules: Mapping[str, Rule], width: int, died: bool) -> Program:
    """The program; of a case that nobody saw end, without its last steps if it is too long with them."""
    while True:
        try:
            return program_of(case, rules, width)
        except TooLong:
            if not died or not case.afterwards:
                raise
            case = replace(case, afterwards=case.afterwards[:-1])
