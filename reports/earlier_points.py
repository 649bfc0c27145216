"""Tells whether an earlier run judged the points that a later run finds wrong. The two results tell it without the files
of points, which recorded runs often lack: by the verdicts on rules, the needs of clauses, and the pairs of a model."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from conformance.judging.combinations import deviation
from conformance.model.combinations import LACKING, RULE_OF, is_on_demand
from conformance.model.fault import ON_DEMAND
from conformance.model.observation import CombinationsSeen
from conformance.model.point_index import decode_index
from conformance.model.predicate import column, parse
from conformance.model.record import Deviation, ResultRecord
from conformance.model.space import Space
from conformance.model.verdict import NOT_TESTABLE, UNJUDGED, VIOLATIONS, Verdict
from conformance.older_python import bit_count, zip
from conformance.results.conclusions import BY_CHANCE, format_counts
from reports.digest import Digest

_OF_CHANCE = ("", "always", BY_CHANCE)  # the formulas of deviations that select no points


def unjudged(record: ResultRecord) -> int:
    """Returns the number of points of a sweep that have no verdict on the device."""
    return unjudged_of(record["points"] or {})


def points_of(record: ResultRecord) -> Mapping[str, int]:
    """Returns the numbers of points of a sweep or a model by verdict; of other cases, none."""
    return record["points"] or record["pairs"].get("points", {})


def unjudged_of(counts: Mapping[str, int]) -> int:
    """Returns the number of these points, by verdict, that have none on the device."""
    return sum(counts.get(verdict, 0) for verdict in UNJUDGED)


def counts_of(record: ResultRecord) -> str:
    """Returns the numbers of points by verdict, if some are unsupported or unreachable beside others; else empty."""
    counts = points_of(record)
    if record["verdict"] in NOT_TESTABLE or not any(map(counts.get, NOT_TESTABLE)):
        return ""
    return format_counts(counts)


@dataclass(frozen=True)
class EarlierPoints:
    """The points of a case in the results `before` and `after` of an earlier and of a later run."""

    old: Digest
    new: Digest
    before: ResultRecord
    after: ResultRecord

    def judged(self, deviation: Deviation | None) -> bool | None:
        """Whether the earlier run judged a point of a deviation of the later run; None if this is not known. Without a
        deviation, any point of the case may be wrong."""
        if not counts_of(self.before):
            return True
        newly_judged = self._newly_judged
        wrong = (deviation and deviation.get("count")) or 1
        if newly_judged is not None and newly_judged < wrong:
            return True
        if deviation is not None and self._is_of_unjudged_rule(deviation):
            return False
        is_of_model = bool(self.before["pairs"]["parameters"])
        if deviation is not None and is_of_model and self._judged_of_model(deviation) is False:
            return False
        if not self._gained and self._unreached(self.before) <= self._unreached(self.after):
            return True
        if deviation is None or is_of_model:
            return None
        return self._judged_of_sweep(deviation)

    def judged_any(self, rule: str = "") -> bool | None:
        """Whether the earlier run judged a point that is wrong in the later run, and that violates `rule` if given."""
        deviations: list[Deviation | None] = [
            deviation
            for deviation in self.after["deviations"]
            if deviation.get("verdict", Verdict.FAIL) in VIOLATIONS
            and (not rule or rule in deviation["rules"])
        ]
        is_partial = self.after["deviations_left_out"] or self.after["alarms"]
        if not deviations or is_partial or self.after["verdict"] == Verdict.CRASH:
            deviations.append(None)
        answers = [self.judged(deviation) for deviation in deviations]
        if True in answers:
            return True
        return None if None in answers else False

    def lacks_violation(self, rule: str = "") -> bool:
        """Whether the earlier run certainly did not judge a point that is wrong in the later run, and that violates `rule`
        if given."""
        return any(
            self.judged(deviation) is False or "n" in self._states_at(deviation)
            for deviation in self.after["deviations"]
            if not rule or rule in deviation["rules"]
        )

    def passed_at(self, deviation: Deviation) -> bool:
        """Whether the earlier run found the smallest point of a deviation right, in a sweep that fails at other points."""
        before = self.before
        wrong = before["deviations"]
        counts = before["points"] or {}
        if not before["space"] or before["space"]["tries"] or before["alarms"]:
            return False
        if {*counts} != {Verdict.PASS, Verdict.FAIL} or before["deviations_left_out"]:
            return False
        if sum(item.get("count") or 0 for item in wrong) != counts[Verdict.FAIL]:
            return False
        try:
            smallest = self._points_of_smallest(deviation)
            return not any(smallest & self._points_of(item) for item in wrong)
        except (ValueError, LookupError):  # another version of the tables
            return False

    def not_wrong_in_model(self, deviation: Deviation) -> bool:
        """Whether the smallest point of a deviation has a pair of values whose points were all right or not judged."""
        return any(state in "rn" for state in self._states_at(deviation))

    def _is_of_unjudged_rule(self, deviation: Deviation) -> bool:
        """Whether no point of a rule was judged. A PASS at points with an open expectation is no verdict on their rule."""
        verdicts = self.before["rule_verdicts"]
        return deviation.get("expected") != "open" and any(
            verdicts.get(rule) in NOT_TESTABLE for rule in deviation["rules"]
        )

    def _judged_of_model(self, deviation: Deviation) -> bool | None:
        """A pair of values that no judged point has is in no judged point. All points of the rule on on-demand regions have
        such a region."""
        if deviation.get("count") == 1:
            return False if "n" in self._states_at(deviation) else None
        if deviation["rules"] == [RULE_OF[ON_DEMAND]] and is_on_demand(deviation["smallest"]):
            parameters, states = self.before["pairs"]["parameters"], self.before["pairs"]["states"]
            with_region = (
                state
                for pair, state in zip(_pairs(parameters), states, strict=True)
                if is_on_demand(dict(pair))
            )
            return False if {*with_region} <= {"n", "-"} else None
        return None

    def _states_at(self, deviation: Deviation) -> Iterator[str]:
        """Yields what the earlier run shows about each pair of values of the smallest point."""
        parameters, states = self.before["pairs"]["parameters"], self.before["pairs"]["states"]
        firsts = {name: labels[0] for name, labels in parameters.items()}
        smallest = {**firsts, **deviation["smallest"]}.items()
        for pair, state in zip(_pairs(parameters), states, strict=True):
            if smallest >= {*pair}:
                yield state

    @cached_property
    def _newly_judged(self) -> int | None:
        """The number of points of a model that only the later run judged; None if a result does not tell it, or if the
        points are others. What decides support is then not asked: the results have what was lacking at each point."""
        return self._newly(_judged_in)

    @property
    def newly_wrong(self) -> int | None:
        """The number of points of a model that only the later run found wrong; None as for `_newly_judged`."""
        return self._newly(_wrong_in)

    def _newly(self, states_in: Callable[[CombinationsSeen, int], list[bool]]) -> int | None:
        """Returns the number of points of a model with a state in the later run alone."""
        before, after = (
            record["observed"].get("combinations") for record in (self.before, self.after)
        )
        count = sum(points_of(self.before).values())
        if not before or not after or before["model"] != after["model"]:
            return None
        if count != sum(points_of(self.after).values()):
            return None
        try:
            pairs = zip(states_in(before, count), states_in(after, count), strict=True)
            return sum(now and not earlier for earlier, now in pairs)
        except (ValueError, LookupError, TypeError):  # a damaged file
            return None

    def _judged_of_sweep(self, deviation: Deviation) -> bool | None:
        counts = self.before["points"]
        is_of_chance = self.before["space"]["tries"]
        if not is_of_chance and (deviation.get("count") or 0) > unjudged(self.before):
            return True
        try:
            lacking = self._lacking_at
            chosen = self._points_of(deviation)
        except (ValueError, LookupError):  # another version of the tables
            return None
        is_whole = self._space.size == self.before["space"]["size"]
        number = bit_count(lacking)
        if is_whole and number > counts.get(Verdict.UNSUPPORTED, 0):
            return None  # the device offers what it does not declare
        if not chosen & ~lacking:
            return False
        smallest = self._points_of_smallest(deviation)
        exact = is_whole and number == unjudged(self.before)
        return True if exact and not smallest & lacking else None

    def _points_of(self, deviation: Deviation) -> int:
        """Returns a column of points that has each point of the deviation."""
        if deviation.get("count") == 1 or deviation["when"] == BY_CHANCE:
            return self._points_of_smallest(deviation)
        chosen = self._space.everywhere()
        for text in (deviation.get("clause", ""), deviation["when"]):
            if text not in _OF_CHANCE:
                chosen &= self._column(text)
        return chosen

    def _points_of_smallest(self, deviation: Deviation) -> int:
        labels = deviation["smallest"]
        values = {axis.name: axis.value(labels[axis.name]) for axis in self._space.axes}
        return 1 << 8 * self._space.point(values)

    @cached_property
    def _space(self) -> Space:
        return Space.of_data(self.before["space"]["axes"])

    @cached_property
    def _lacking_at(self) -> int:
        """The column of the points that need what the earlier device lacked, by the clauses of the table."""
        total = 0
        for clause in self.before["expected"]["clauses"]:
            if not self._lacking.isdisjoint(clause.get("needs", ())):
                total |= self._column(clause["if"]) if "if" in clause else self._space.everywhere()
        return total

    def _column(self, text: str) -> int:
        expression = parse(text, self._space, {})
        return column(expression, self._space, lambda name: name not in self._lacking)

    @cached_property
    def _lacking(self) -> set[str]:
        return {*_undeclared(self.old), *_lacking_in(self.before)}

    @cached_property
    def _gained(self) -> set[str]:
        """The capabilities that the case needs, and that only the later device has."""
        needs = {
            name
            for clause in self.before["expected"].get("clauses", ())
            for name in clause.get("needs", ())
        }
        before = {*_lacking_in(self.before), *needs.intersection(_undeclared(self.old))}
        return before.difference(_undeclared(self.new), _lacking_in(self.after))

    @staticmethod
    def _unreached(record: ResultRecord) -> int:
        return sum(record["unreached"].values())


def _undeclared(run: Digest) -> Iterator[str]:
    capabilities = run.header["device"].get("caps", {})
    return (name for name, value in capabilities.items() if value is False)


def _lacking_in(record: ResultRecord) -> Iterator[str]:
    """Yields what the device lacked at points of a result."""
    for shows in record["evidence"]:
        yield from filter(None, shows.get("lacking", "").split(", "))
    yield from record["observed"].get("combinations", {}).get("lacking", ())


def _judged_in(seen: CombinationsSeen, count: int) -> list[bool]:
    """Returns for each point of an array whether it was judged: nothing was lacking, and its set-up succeeded."""
    failed = ["setup_failed" in each["observed"] for each in seen["classes"]]
    index = decode_index(seen["index"], count)
    return [number < LACKING and not failed[number] for number in index]


def _wrong_in(seen: CombinationsSeen, count: int) -> list[bool]:
    """Returns for each point of an array whether it was judged, and something is wrong with its class."""
    wrong = [deviation(each, seen["iba"]) is not None for each in seen["classes"]]
    pairs = zip(_judged_in(seen, count), decode_index(seen["index"], count), strict=True)
    return [is_judged and wrong[number] for is_judged, number in pairs]


def _pairs(parameters: Mapping[str, list[str]]) -> Iterator[tuple[tuple[str, str], ...]]:
    """Yields each pair of values of two parameters, in the order of PairsFacts."""
    for (name, labels), (other, others) in itertools.combinations(parameters.items(), 2):
        for label, another in itertools.product(labels, others):
            yield (name, label), (other, another)
