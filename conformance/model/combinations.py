"""Defines a model of a kind of call: its parameters with their values, what excludes a combination of values, and the
faults that a document requires a device to refuse. A *point* has one value of each parameter, as a tuple of labels in
the order of the parameters. tables/model_reader.py reads a model, and combinations/ runs its points."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from conformance.model.fault import ON_DEMAND, QUEUE_DOMAIN, Effect
from conformance.model.observation import AccessSeen
from conformance.model.operations import ATOMICS_IN_ORDER, BUILDERS, BUILT_INLINE, BUILT_LIST
from conformance.model.predicate import And, Expression, HasCapability, Not, Word, parse
from conformance.model.space import Axis, Space
from conformance.older_python import zip

Point = tuple[str, ...]
ALWAYS = "always"
# In the index of recorded points, numbers from here on stand for what the device lacks.
LACKING = 0x8000
# Values of `before`: after a request that failed, the queue pair was reset. Of a cut READ, only the first packet could be
# written.
CUT_READ = "cut_read"
IN_FLIGHT = "in_flight"  # the requests before the point are not awaited
USE = "use_"  # the beginning of the names of faults after a call that succeeds
LATE_RECEIVE = "late_receive"  # the receive is posted behind the request
NOT_READY = "not_ready"  # with the request, a SEND is posted that finds no receive
_RESET = ("refused", "expired", CUT_READ)
# Circumstances of points; see below. Fingerprints contain the texts.
ATOMIC_AFTER_RESET = "an atomic operation after a reset"
FENCED = "fenced requests"
SENT_AGAIN = "an ATOMIC WRITE that is sent again"  # or a FLUSH
# Operations of which drivers compute the address apart.
_OWN_ADDRESS = ("ATOMIC_WRITE", "FLUSH_GLOBAL")
# Before the errno of a receive that was refused when it was posted.
RECEIVE = "receive: "
Test = Callable[[Point], bool]
# What points show, as evidence of rules.
GRANTED, REFUSED, POSTED, COMPLETED = "granted", "refused", "posted", "completed"
STATUS, FIELDS = "status", "fields"
CALLED, PAGES = "called", "pages"
ANY = "any"  # among codes: whatever the code is
ASPECTS = GRANTED, REFUSED, POSTED, COMPLETED, STATUS, FIELDS, CALLED, PAGES


def circumstance(values: Mapping[str, str], effect: Effect) -> str:
    """Returns why a request fails with this effect whatever it addresses: it has a fence, is an atomic operation after a
    reset or an ATOMIC WRITE or FLUSH that is sent again, has inline data or several elements of a builder, or its
    region is on demand; empty for other points. What a device keeps over a reset may become visible at a later point."""
    operation, before = values.get("operation"), values.get("before")
    unlike_answer = effect in (Effect.MISPLACED, Effect.REFUSED, Effect.HUNG, Effect.ACCEPTED)
    failed = effect in (Effect.MISPLACED, Effect.REFUSED)
    on_demand = is_on_demand(values)
    inline = values.get("flags") == "inline"
    built = values.get("posting") in BUILDERS
    if effect is Effect.HUNG and values.get("flags") == "fence":
        return FENCED
    if before in _RESET and operation in ATOMICS_IN_ORDER and unlike_answer:
        return ATOMIC_AFTER_RESET
    if before == NOT_READY and operation in _OWN_ADDRESS and failed:
        return SENT_AGAIN
    if built and inline and effect in (Effect.REFUSED, Effect.STATUS):
        return BUILT_INLINE
    if on_demand and failed:
        return ON_DEMAND
    if built and inline and (failed or effect is Effect.ACCEPTED):
        return BUILT_INLINE
    if built and not inline and values.get("elements", "only") != "only" and failed:
        return BUILT_LIST
    return ""


def is_on_demand(values: Mapping[str, str]) -> bool:
    """Whether the region of a point is on demand."""
    return "on_demand" in (values.get("region"), values.get("flag"))


def is_of_call(faults: Sequence[str]) -> bool:
    """Whether the call of a point must be refused, and not the use after it."""
    return bool(faults) and not faults[0].startswith(USE)


def check_of(values: Mapping[str, str]) -> str:
    """Returns which of CHECKS must refuse a bind; empty if no word is needed."""
    return QUEUE_DOMAIN if values.get("domain") in ("window", "both") else ""


def has_own_addresses(values: Mapping[str, str]) -> bool:
    """Whether requests have other addresses than the process, for the region of a point."""
    chosen = values.get("call") == "reg_mr_iova" and values.get("iova") != "same"
    return chosen or bool({"iova", "zero_based"} & {values.get("region"), values.get("flag")})


# By circumstance: the rule whose statement such a failure breaks, whatever the rule of the point is.
RULE_OF: Mapping[str, str] = {
    FENCED: "WIRE-16",
    ATOMIC_AFTER_RESET: "REG-07",
    SENT_AGAIN: "WIRE-18",
    BUILT_INLINE: "WRX-05",
    BUILT_LIST: "WRX-02",
    ON_DEMAND: "REG-12",
}


@dataclass(frozen=True)
class Evidence:
    """The rule for which a point counts if `when` is true. `of` is what the rule is about: the point is granted or
    refused, its posting succeeds, its failed request has a completion, the status or the other fields of its
    completions, or the call before its use succeeds or brings in pages. With `fault`, only points with this fault count."""

    rule: str
    of: str
    when: str
    fault: str = ""


@dataclass(frozen=True)
class Model:
    """The parameters, and texts of expressions: `excluded` by reason, `faults` by name, `needs` by capability. A point
    with a fault must be refused; no point has two faults, because each would hide the other. `codes` are the errnos that
    the documents permit, by fault; `verb` is the call of which points judge the refusal, with $PARAMETER for a value."""

    name: str
    parameters: tuple[Axis, ...]
    meanings: Mapping[str, Mapping[str, str]]  # for each parameter, the meaning of each value
    excluded: Mapping[str, str]
    faults: Mapping[str, str]
    needs: Mapping[str, str]
    rare: tuple[str, ...]  # the needs that many devices lack
    slow: str  # the points that wait for seconds, as an expression; empty if there are none
    evidence: tuple[Evidence, ...]
    codes: Mapping[str, tuple[str, ...]]
    verb: str
    digest: str

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(axis.name for axis in self.parameters)

    def text(self, point: Point) -> str:
        """Returns a point as `parameter=value,…`, without the values that are the first of their parameter."""
        chosen = zip(self.parameters, point, strict=True)
        changed = [f"{axis.name}={label}" for axis, label in chosen if label != axis.labels[0]]
        return ",".join(changed) or f"{self.parameters[0].name}={point[0]}"

    def parse(self, text: str) -> Point:
        """Returns the point that `text` of the method above describes. Raises ValueError with a message for the
        user."""
        values = {axis.name: axis.labels[0] for axis in self.parameters}
        for part in text.split(","):
            name, equals, label = part.partition("=")
            axis = next((item for item in self.parameters if item.name == name), None)
            if not equals or axis is None:
                raise ValueError(
                    f"{part!r} is not PARAMETER=VALUE; parameters: {', '.join(values)}",
                )
            axis.value(label)
            values[name] = label
        return tuple(values.values())

    def weight(self, point: Point) -> int:
        """Returns the number of values that are not the first of their parameter."""
        pairs = zip(self.parameters, point, strict=True)
        return sum(label != axis.labels[0] for axis, label in pairs)


def compiled(expression: Expression, axes: Sequence[Axis]) -> Test:
    """Returns a function that tells whether the expression is true at a point. An array asks for each of its thousands
    of points; one function in Python's own notation takes less than half of the time of a function for each operator."""
    test: Test = eval(f"lambda point: {_in_python(expression, axes)}")
    return test


def _in_python(expression: Expression, axes: Sequence[Axis]) -> str:
    if isinstance(expression, Word):
        number = [axis.name for axis in axes].index(expression.axis)
        return f"point[{number}] in {sorted(_labels(axes[number], expression))!r}"
    if isinstance(expression, HasCapability):
        raise ValueError(f"{expression.capability} is a capability: write it under `needs`")
    if isinstance(expression, Not):
        return f"not ({_in_python(expression.part, axes)})"
    operator = " and " if isinstance(expression, And) else " or "
    return "(" + operator.join(_in_python(part, axes) for part in expression.parts) + ")"


def _labels(axis: Axis, word: Word) -> frozenset[str]:
    if word.exact:
        return frozenset((word.word,))
    return frozenset(label for label in axis.labels if word.word in label.split("+"))


class Conditions:
    """The expressions of a model, compiled. `faults` and `needs` return the names whose expression is true."""

    def __init__(self, model: Model) -> None:
        space = Space(model.parameters)

        def test(text: str) -> Test:
            if text in (ALWAYS, ""):
                return lambda point: text == ALWAYS
            return compiled(parse(text, space, {}), model.parameters)

        self.excluded = {reason: test(text) for reason, text in model.excluded.items()}
        self._faults = {name: test(text) for name, text in model.faults.items()}
        self._needs = {name: test(text) for name, text in model.needs.items()}
        self.is_slow = test(model.slow)
        self._evidence: dict[str, list[tuple[Evidence, Test]]] = {}  # by what it is evidence of
        for item in model.evidence:
            self._evidence.setdefault(item.of, []).append((item, test(item.when)))
        self._faults_at: dict[Point, list[str]] = {}  # of the points that were asked for

    def faults(self, point: Point) -> list[str]:
        faults = self._faults_at.get(point)
        if faults is None:
            faults = [name for name, test in self._faults.items() if test(point)]
            self._faults_at[point] = faults
        return faults

    def needs(self, point: Point) -> list[str]:
        return [name for name, test in self._needs.items() if test(point)]

    def rules(self, point: Point, of: str) -> list[str]:
        """Returns the rules for which the point is evidence of this kind, the most specific first."""
        faults = ["", *self.faults(point)]
        found = [
            item.rule
            for item, test in self._evidence.get(of, ())
            if item.fault in faults and test(point)
        ]
        return list(dict.fromkeys(found))

    def all_rules(self, point: Point) -> list[str]:
        """Returns the rules for which the point is evidence of any kind."""
        refused = [REFUSED, POSTED, COMPLETED]
        shown = [
            *(refused if self.faults(point) else [CALLED, GRANTED, POSTED]),
            PAGES,
            STATUS,
            FIELDS,
        ]
        return [rule for aspect in shown for rule in self.rules(point, aspect)]

    def valid(self, point: Point) -> bool:
        excluded = any(test(point) for test in self.excluded.values())
        return not excluded and len(self.faults(point)) <= 1


@dataclass(frozen=True)
class CoveringArray:
    """Points that together have each possible combination of `strength` values, and what the reference requires at each
    point: `answers[numbers[n]]` for the point n."""

    model: Model
    strength: int
    points: tuple[Point, ...]
    answers: tuple[AccessSeen, ...]
    numbers: tuple[int, ...]

    def answer(self, number: int) -> AccessSeen:
        return self.answers[self.numbers[number]]

    @functools.cached_property
    def rules(self) -> tuple[str, ...]:
        """The rules for which a point is evidence, or that a point may violate, in the order of the model."""
        conditions = Conditions(self.model)
        there = {rule for point in self.points for rule in conditions.all_rules(point)}
        return tuple(dict.fromkeys(item.rule for item in self.model.evidence if item.rule in there))

    def part(self, which: str) -> "CoveringArray":
        """Returns the array with its points without a fault (`granted`), with a fault (`refused`), or `all`."""
        if which == "all":
            return self
        conditions = Conditions(self.model)
        refused = which == "refused"
        pairs = zip(self.points, self.numbers, strict=True)
        chosen = [pair for pair in pairs if bool(conditions.faults(pair[0])) is refused]
        points = tuple(point for point, _ in chosen)
        return replace(self, points=points, numbers=tuple(number for _, number in chosen))

    def only(self, text: str) -> "CoveringArray":
        """Returns the array with the point that `text` describes alone. Raises ValueError with a message for the
        user."""
        point = self.model.parse(text)
        if point not in self.points:
            raise ValueError(
                "the array does not have this point, so there is no answer of the reference;"
                f" the nearest is {self.model.text(self._nearest(point))}",
            )
        number = self.numbers[self.points.index(point)]
        return replace(self, points=(point,), numbers=(number,))

    def _nearest(self, point: Point) -> Point:
        def shared(other: Point) -> int:
            return sum(a == b for a, b in zip(point, other, strict=True))

        return max(self.points, key=shared)
