"""Says what a known defect shows in a run and did not show in an earlier run of the same tables, so that a new symptom
does not hide in an old fingerprint: another kind of fault, another code, or a larger extent."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from conformance.defects import AWAITED, Defect, Symptom
from conformance.errors import format_count
from conformance.model.fault import Fault
from conformance.model.verdict import Verdict
from conformance.results.conclusions import BY_CHANCE
from reports.digest import Digest
from reports.earlier_points import EarlierPoints
from reports.races import is_race

_NONE = Counter[str]()
_IN_FLIGHT = {"changed": "bytes written", "leaked": "bytes read"}  # what await_traffic returns


@dataclass(frozen=True)
class Earlier:
    """The defects of an earlier run, with which those of a later run, or of one of its results, are compared."""

    run: Digest

    def has(self, defect: Defect) -> bool:
        return defect.is_among(self.run.violations.defects)

    def news(self, defect: Defect, hidden: Counter[str] = _NONE) -> str:
        """Returns what a defect of both runs shows and did not show in the earlier run, in words. `hidden` has by case the
        number of points that were wrong by other defects then."""
        same = [other for other in self.run.violations.defects if defect.is_same(other)]
        return news_of(defect, same, self._passed, self._is_further, hidden)

    def _is_further(self, symptom: Symptom) -> bool:
        """Whether the earlier run did not find the smallest point of a symptom wrong, as far as its result tells."""
        before = self.run.by_case.get(symptom.case)
        if before is None or symptom.deviation is None:
            return False
        points = EarlierPoints(self.run, self.run, before, symptom.record)
        return points.passed_at(symptom.deviation) or points.not_wrong_in_model(symptom.deviation)

    @cached_property
    def _passed(self) -> frozenset[str]:
        """The cases that passed, without races: chance decides which of them have a violation."""
        return frozenset(
            record["case"]
            for record in self.run.results
            if record["effective"] == Verdict.PASS and not is_race(record)
        )


def news_of(
    defect: Defect,
    earlier: Sequence[Defect],
    passed: frozenset[str],
    is_further: Callable[[Symptom], bool] = lambda symptom: False,
    hidden: Counter[str] = _NONE,
) -> str:
    """Returns what is new about a defect, in words; empty if nothing is. `earlier` are the defects of the earlier run
    that are this defect, and `passed` the cases that passed in the earlier run. `is_further` tells that the smallest
    point of a symptom was not wrong in the earlier run. `hidden` is that of Earlier.news."""
    faults = _faults(defect).difference(*map(_faults, earlier))
    news = sorted(faults)
    if cases := [case for case in defect.cases if case in passed]:
        news.append(f"in {format_count(len(cases), 'case')} that passed before{_such_as(cases)}")
    before = Counter[str]()
    for other in earlier:
        before += _points(other)
    further = _points(defect) - before - hidden
    more = sum(further[case] for case in before)
    if more:
        there = [
            symptom
            for symptom in defect.symptoms
            if symptom.case in before and further[symptom.case]
        ]
        names = [symptom.name for symptom in there if is_further(symptom)]
        first, *others = dict.fromkeys(symptom.case for symptom in there)
        where = f"of {first}"
        if others:
            where += f" and {format_count(len(others), 'more case')}"
        if names:
            where = f"of the same cases, such as {names[0]}"
        news.append(f"at {format_count(more, 'more point')} {where}")
    return ", ".join(news)


def _such_as(cases: Sequence[str]) -> str:
    return f" ({cases[0]})" if len(cases) == 1 else f", such as {cases[0]}"


def _faults(defect: Defect) -> set[str]:
    """Returns the kinds of fault that a defect shows, each with the code that was returned."""
    return {_words_of(symptom.fault) for symptom in defect.symptoms}


def _words_of(fault: Fault) -> str:
    if fault.verb == AWAITED and fault.answer in _IN_FLIGHT:
        return f"{_IN_FLIGHT[fault.answer]} by a request in flight"
    return " with ".join(filter(None, (fault.kind, fault.answer)))


def _points(defect: Defect) -> Counter[str]:
    """Returns the number of deviating points of each sweep, without points that deviate by chance."""
    points: Counter[str] = Counter()
    for symptom in defect.symptoms:
        if symptom.deviation and symptom.deviation.get("when") != BY_CHANCE:
            points[symptom.case] += symptom.points
    return points
