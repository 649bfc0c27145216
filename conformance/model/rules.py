"""Defines rules, which are documented statements with permanent ids, and the evidence for the rules. A rule is verified
if a run has all the rule's evidence. tables/rules_file.py reads rules from files, and results/rule_conclusions.py
determines the evidence that a run has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from conformance.model.case import Arguments, Case, Flags, Step
from conformance.model.quantity import Quantity
from conformance.model.record import HeaderRecord, RuleTexts, Shows
from conformance.model.row_template import Varying, axes_of
from conformance.model.script import Event
from conformance.model.sweep import Sweep
from conformance.model.vocabulary import WIRE
from conformance.older_python import zip
from conformance.yamldoc.nodes import Location

LEVELS = MUST, SHOULD, MAY = ("must", "should", "may")
# The document of the rules whose statement is known from a second-hand source.
IBA = "InfiniBand Architecture Specification"
# The value of `since` for a rule that only a vendor's document states.
VENDOR = "vendor"
LAYERS = ("header", "libibverbs", "provider", "kernel", "device")
# The prefix of the ids of rules about declarations: a device has each capability that it declares.
DECLARATIONS = "CAP-"
# The prefixes of rules about what a device declares: they say nothing about a capability that is not declared.
OF_DECLARED = (DECLARATIONS, "ODPC-")
# The prefix of the ids of rules about packets.
OF_WIRE = "WIRE-"
NAK_CODES = "WIRE-01"  # the rule on the codes of refusals
RULE_ID = re.compile(r"[A-Z]+-[0-9]{2}[a-z]?")
GRANTED, REFUSED = "granted", "refused"
_DIRECTIONS = {"success": GRANTED, "refused": REFUSED}
# Operations that differ only in their operands from another operation, and the name of that operation in evidence.
_KIND = {
    "UNEQUAL_CMP_AND_SWP": "ATOMIC_CMP_AND_SWP",
    "UPPER_UNEQUAL_CMP_AND_SWP": "ATOMIC_CMP_AND_SWP",
    "ZERO_FETCH_AND_ADD": "ATOMIC_FETCH_AND_ADD",
}
# For an operation that is never granted: the operation whose success proves that the object existed, or that requests
# complete.
_CREATED_BY = {
    "ibv_export_buf_dmabuf_fd": "ibv_alloc_buf",
    "forged": "ibv_reg_mr",
    "failures_in_turn": "completions_in_turn",
}
# arguments that can name the object under test; the first that is present counts
_NAMING = ("rkey", "lkey", "mw")
_DECISIVE = ("op", "qp_type", "qp", *_NAMING)  # arguments that determine the evidence of a step


@dataclass(frozen=True, order=True)
class Shown:
    """One operation that was granted or refused at an entry."""

    direction: str
    operation: str
    entry: str
    set_up: tuple[str, ...] = ()  # describes the operation's objects: queue pair, window, memory

    @property
    def item(self) -> str:
        """The name of the item in a rule's evidence: `refused RDMA_WRITE at uverbs`."""
        return f"{self.direction} {self.operation} at {self.entry}"

    @property
    def name(self) -> str:
        return named(self.item, ", ".join(self.set_up))

    def as_data(self) -> Shows:
        return {"shows": self.item, "on": ", ".join(self.set_up)}

    def distance(self, other: Shown) -> tuple[bool, int]:
        return other.entry != self.entry, len({*other.set_up} ^ {*self.set_up})


@dataclass(frozen=True)
class Needs:
    """The evidence that verifies rules. The control of a refusal is the same operation, granted on the same set-up. If
    no case has this control, for example because a type of queue pair never permits the operation, `controls` has the
    same operation on the most similar set-up, or else the call that creates the object."""

    items: Mapping[str, Sequence[str]] = field(default_factory=dict)  # by rule
    controls: Mapping[str, str] = field(default_factory=dict)  # by refusal
    # the rules about situations that some stacks do not have
    conditional: frozenset[str] = frozenset()
    cases: Mapping[str, int] = field(default_factory=dict)  # the number of each rule's cases

    @classmethod
    def of_header(cls, header: HeaderRecord) -> Needs:
        """Returns the evidence that a run needs, from its header; empty for a run of an older version."""
        rules = header.get("rules") or {}
        items = {rule: texts["evidence"] for rule, texts in rules.items() if "evidence" in texts}
        conditional = frozenset(rule for rule, texts in rules.items() if texts.get("conditional"))
        cases = {rule: texts["cases"] for rule, texts in rules.items() if "cases" in texts}
        return cls(items, header.get("controls") or {}, conditional, cases)

    def control_of(self, refusal: str) -> str:
        """Returns the item that must be granted for a refusal to count as evidence."""
        return self.controls.get(refusal, refusal.replace(REFUSED, GRANTED, 1))


def named(item: str, set_up: str) -> str:
    if set_up:
        return f"{item} ({set_up})"
    return item


def controls(shown: Iterable[Shown]) -> dict[str, str]:
    """Returns, by refusal, the controls of refusals whose operation is never granted on the same set-up."""
    names = set(shown)
    granted = sorted(control for control in names if control.direction == GRANTED)
    controls = {}
    for refusal in names:
        same = Shown(GRANTED, refusal.operation, refusal.entry, refusal.set_up)
        if refusal.direction == GRANTED or same in names:
            continue
        for operation in (refusal.operation, _CREATED_BY.get(refusal.operation)):
            near = [control for control in granted if control.operation == operation]
            if near:
                controls[refusal.name] = min(near, key=refusal.distance).name
                break
    return dict(sorted(controls.items()))


def shown_by(case: Case) -> tuple[Shown, ...]:
    """Returns the evidence of a passing row for its rules; empty if the row's outcome is open.

    If later steps are evidence, a judged call that must succeed only prepares these steps, and is not evidence. After a
    call with an injected failure of an allocation, the later steps are not evidence, because they test objects that
    are not the subject of the rule.
    """
    if case.when.then.outcome not in _DIRECTIONS or not case.kind.traits.proves:
        return ()
    if case.when.call == WIRE and not any(event.decides for event in _script(case.when)):
        return ()
    steps = [step for step in case.judged_steps if step.then.outcome in _DIRECTIONS]
    if len(steps) > 1 and case.when.then.outcome == "success":
        del steps[0]
    if "failing_allocations" in case.needs:
        del steps[1:]
    return tuple(dict.fromkeys(_shown(case, step) for step in steps))


def _script(step: Step) -> Iterable[Event]:
    return cast(tuple[Event, ...], step.arguments["packets"])


def is_evidence(rule: str, call: str) -> bool:
    """Whether a rule needs the evidence of a call's cases. Packets of a wire peer are further evidence of the rules
    that other cases verify: a machine without such a peer can verify these rules, too."""
    return call.partition("(")[0] != WIRE or rule.startswith(OF_WIRE)


def shown_of_rules(case: Case) -> Iterator[tuple[str, Shown]]:
    """Yields (rule, evidence) for each item of evidence of a case, on a device that declares all capabilities."""
    if case.sweep is None:
        yield from (
            (rule, shown)
            for rule in case.rules
            for shown in shown_by(case)
            if is_evidence(rule, case.when.call)
        )
        return
    sweep = case.sweep
    clauses = sweep.clause_numbers(lambda _: True)
    inside = sweep.space.bytes_of(sweep.inside)
    outside = len(sweep.deciding)
    numbers = [number if is_in else outside for number, is_in in zip(clauses, inside, strict=True)]
    for number, point in distinct_points(sweep, numbers):
        if number != outside:
            clause = sweep.deciding[number]
            row = sweep.row_of_clause(sweep.case_at(case, point), clause, ())
            yield from ((rule, shown) for rule in clause.rules for shown in shown_by(row))


def _shown(case: Case, step: Step) -> Shown:
    operation = str(step.arguments.get("op", "")) or step.call
    direction = _DIRECTIONS[step.then.outcome]
    return Shown(direction, _KIND.get(operation, operation), case.entry, tuple(_set_up(case, step)))


def _set_up(case: Case, step: Step) -> Iterator[str]:
    """Yields the properties of the set-up, besides the rule's subject, that could cause the refusal of a step."""
    if queue := case.given.qps.get(str(step.arguments.get("qp", ""))):
        yield queue.kind
    elif "qp_type" in step.arguments:
        yield str(step.arguments["qp_type"])
    for name in _names(step.arguments.get(key, "") for key in _NAMING):
        if window := case.given.windows.get(name):
            yield f"window of type {window.type}"
            name = str((window.bound or {}).get("mr", ""))
        region = _region(case, name)
        if region is None:
            continue
        access = region.get("access")
        if isinstance(access, Flags) and "ON_DEMAND" in access.names:
            yield "on demand"
        buffers = {**case.given.memory, **case.given.dmabufs}
        kinds = {buffers[name].kind for name in _names(region.values()) if name in buffers}
        yield from sorted(kinds - {"anonymous"})
        return


def _names(values: Iterable[object]) -> Iterator[str]:
    for value in values:
        if isinstance(value, Quantity):
            yield from (term.name for term in value.terms if term.name)
        elif isinstance(value, str):
            yield value


def _region(case: Case, name: str) -> Arguments | None:
    if name in case.given.mrs:
        return case.given.mrs[name].arguments
    return next(
        (step.arguments for step in case.steps if step.name == name),
        None,
    )


def distinct_points(sweep: Sweep, numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yields a few points of a sweep that together have all the sweep's evidence, as (number, point). `numbers` has a
    number for each point. Points with the same number have the same rule and expectation."""
    space = sweep.space
    columns = []
    for axis in sweep.in_order(_axes(sweep)):
        stride, size = space.strides[axis], space.axis(axis).size
        columns.append([point // stride % size for point in range(space.size)])
    first: dict[tuple[int, ...], int] = {}
    for point, key in enumerate(zip(numbers, *columns, strict=True)):
        first.setdefault(key, point)
    yield from ((key[0], point) for key, point in first.items())


def _axes(sweep: Sweep) -> frozenset[str]:
    """Returns the axes that, in addition to the expectation, determine the evidence of a point."""
    row = sweep.row
    steps = (row.when, *row.afterwards)
    axes = axes_of(
        step.arguments[name] for step in steps for name in _DECISIVE if name in step.arguments
    )
    axes |= axes_of(row.objects("qps").values())
    axes |= axes_of(step.parts["then"] for step in row.afterwards if "then" in step.parts)
    if any(name in step.first.arguments for step in steps for name in _NAMING):
        windows = [
            window for window in row.objects("windows").values() if isinstance(window, Varying)
        ]
        axes |= axes_of(
            object
            for section in ("memory", "dmabufs", "mrs")
            for object in row.objects(section).values()
        )
        axes |= axes_of(windows)
        axes |= axes_of(
            row.when.arguments[name] for name in ("access", "addr") if name in row.when.arguments
        )
    return axes


def not_quoted(second_hand: str, why: str = "") -> str:
    """Returns the remark after a document whose words are not quoted."""
    said = f"not quoted: {why.rstrip('.')}" if why else "not quoted"
    return f"({said}; known from {second_hand})" if second_hand else f"({said})"


_RECORDED = """
verb statement document section level layer since failure_means short quote unquoted second_hand conditional
argument_against
""".split()


@dataclass(frozen=True)
class Rule:
    """One documented statement. Either `quote` or `unquoted` is empty."""

    id: str
    verb: str
    statement: str
    document: str
    section: str
    quote: str  # at most one sentence, word for word, from `section` of `document`; […] stands for omitted words
    unquoted: str  # why the document is not quoted
    level: str  # `must` only with a quote
    layer: str  # the layer of the stack that must enforce the rule
    needs: tuple[str, ...]  # the capabilities without which the rule does not apply
    since: str  # the first rdma-core release whose document has the statement
    failure_means: str  # what a violation means to an application
    location: Location  # the location of the id in the file
    # the subject in a few words, for titles of defects; without it, titles have the id
    short: str = ""
    # The public source from which a statement of the InfiniBand Architecture Specification is known.
    second_hand: str = ""
    argument_against: str = ""  # what a maintainer may answer to a violation, in one sentence
    # the items that verify the rule, if these are not all items of the rule's cases
    evidence: tuple[str, ...] = ()
    # The situation to which the rule applies, if some stacks cannot have this situation. On a stack where no case of
    # the rule is reachable, the rule needs no evidence.
    conditional: str = ""

    def as_data(self) -> RuleTexts:
        """Returns the fields of the rule that a results file has, so that reports need no other file."""
        return cast(RuleTexts, {name: text for name in _RECORDED if (text := getattr(self, name))})


class Registry(dict[str, Rule]):
    """Rules by id. `predicates` has the texts of the named predicates, for the sweeps of all tables. `needs` is the
    evidence that verifies the rules, taken from the tables that were read together with the rules."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        super().__init__({rule.id: rule for rule in rules})
        self.predicates: dict[str, str] = {}
        self.needs = Needs()

    def as_data(self) -> dict[str, RuleTexts]:
        texts = {rule.id: rule.as_data() for rule in self.values()}
        for rule, items in self.needs.items.items():
            texts[rule] |= {"evidence": list(items), "cases": self.needs.cases.get(rule, 0)}
        return texts
