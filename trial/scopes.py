"""Tells of which objects the sentence of each rule is true, and on which of them no case judges the rule. The cells are in
scopes.yaml: a rule, a dimension such as the transport, and a value such as UC. A driver that breaks the rule there and
nowhere else passes every case of the rule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple, cast

from conformance.model.case import (
    Argument,
    Arguments,
    Case,
    Flags,
    QpSpec,
    SgeSpec,
    Step,
    Value,
    WindowSpec,
)
from conformance.model.combination_values import VALUES
from conformance.model.combinations import Conditions, CoveringArray
from conformance.model.operations import BATCHES, BUILDERS, TRAFFIC_TYPES, WR_POST
from conformance.model.quantity import Quantity
from conformance.model.rules import distinct_points
from conformance.model.vocabulary import AWAITED, CALLS, ENTRIES, REGISTRATIONS, WIRE
from conformance.older_python import zip
from conformance.tables.suite import Suite
from conformance.yamldoc.nodes import Node, quoted
from conformance.yamldoc.reader import Reader, document, suggestion

FILE = Path(__file__).with_name("scopes.yaml")
SHOWN = "trial/scopes.yaml"
# Rules about packets, about declarations and of a vendor's dialect have no scope: their sentences name their objects.
APART = ("WIRE-", "CAP-", "XREREG-")
_MODEL = VALUES["model"]
DIMENSIONS: Mapping[str, tuple[str, ...]] = {
    "region": tuple(_MODEL["region"].split()),
    "window": tuple(VALUES["binds"]["window"].split()),
    "transport": TRAFFIC_TYPES,
    "posting": tuple(VALUES["binds"]["posting"].split()),
    "polling": tuple(_MODEL["polling"].split()),
    "side": tuple(_MODEL["side"].split()),
    "entry": ENTRIES,
}
# The parameters of models that have another name than their dimension, and the values that have another name there.
_PARAMETERS = {"queue": "transport", "call": "region", "flag": "region", "key": "window"}
_WORDS = {
    "kernel": "uverbs",
    "reg_mr_iova": "iova",
    "reg_dmabuf_mr": "dmabuf",
    "rereg_mr": "rereg_translation",
    **dict.fromkeys(("window_1", "rebound_1", "earlier"), "type_1"),
    **dict.fromkeys(("window_2", "window_2_zero", "rebound_2", "other_queue", "unbound"), "type_2"),
}
_REGION_OF = {
    "ibv_reg_mr_iova": "iova",
    "ibv_reg_mr_ex": "ex",
    "ibv_reg_dmabuf_mr": "dmabuf",
    "ibv_alloc_null_mr": "null",
    "ibv_reg_dm_mr": "device_memory",
    "ibv_import_mr": "imported",
}


class Cell(NamedTuple):
    """One object of which a rule's sentence is true."""

    rule: str
    dimension: str
    value: str

    def __str__(self) -> str:
        return f"{self.rule} {self.dimension}={self.value}"


@dataclass(frozen=True)
class Scopes:
    rules: frozenset[str]  # all rules that the file names
    cells: frozenset[Cell]
    unjudged: Mapping[Cell, str]  # the cells that no case judges, each with the reason


def scopes() -> Scopes:
    """Returns the scopes of the file. Raises UserError with a line for each mistake."""
    keys = ("scopes", "no dimension", "unjudged")
    with document(FILE, SHOWN) as (root, reader):
        fields = reader.mapping(root, "the file", keys, keys)
        rules = {*_texts(fields.get("no dimension"), reader)}
        cells, unjudged = set[Cell](), dict[Cell, str]()
        for node in reader.items(fields.get("scopes"), "scopes"):
            scope = reader.mapping(node, "a scope", ("rules", "of"), ("rules", "of"))
            rules.update(_texts(scope.get("rules"), reader))
            cells.update(_cells(scope, reader))
        of_gap = ("rules", "of", "because")
        for node in reader.items(fields.get("unjudged"), "unjudged"):
            gap = reader.mapping(node, "a gap", of_gap, of_gap)
            reason = reader.text(gap.get("because"), "because") or ""
            unjudged.update(dict.fromkeys(_cells(gap, reader), reason))
    return Scopes(frozenset(rules), frozenset(cells), unjudged)


def missing_in(file: Scopes, suite: Suite) -> Iterator[str]:
    """Yields what a rule or a cell of the suite lacks in the file, and what to add."""
    ids = {rule for rule in suite.registry if not rule.startswith(APART)}
    for rule in sorted(ids - file.rules):
        yield (
            f"{suite.registry[rule].location}: rule {rule} has no scope: add it to `rules` of an item of `scopes:` in"
            f" {SHOWN}, whose `of` has the objects of which its sentence is true, or to `no dimension:`"
        )
    for rule in sorted(file.rules - ids):
        yield f"{SHOWN} names {rule}, which has no scope or is no rule: remove it"
    judged = judged_cells(suite.cases)
    for cell in sorted(file.cells - judged - file.unjudged.keys()):
        yield (
            f"no case judges {cell}, of which {SHOWN} says that the rule's sentence is true: add a row, or the reason"
            f" to `unjudged:` in {SHOWN}"
        )
    for cell in sorted(file.unjudged.keys() - (file.cells - judged)):
        yield f"{SHOWN} gives a reason why no case judges {cell}, but a case judges it, or it is in no scope: remove it"


def _texts(node: Node | None, reader: Reader) -> Iterator[str]:
    yield from filter(None, (reader.text(item, "a rule") for item in reader.items(node, "rules")))


def _cells(scope: Mapping[str, Node], reader: Reader) -> Iterator[Cell]:
    """Yields the cells of an item of the file: of each of its rules with each of its objects."""
    if "of" not in scope:
        return
    rules = [*_texts(scope.get("rules"), reader)]
    for dimension, node in reader.mapping(scope["of"], "of", DIMENSIONS).items():
        values = _values(node, dimension, reader)
        yield from (Cell(rule, dimension, value) for rule in rules for value in values)


def _values(node: Node, dimension: str, reader: Reader) -> Iterable[str]:
    values = dict[str, None]()
    for word in (reader.text(node, dimension) or "").split():
        name = word.removeprefix("-")
        known = DIMENSIONS[dimension] if name == word else (*values,)
        if word == "all":
            values.update(dict.fromkeys(known))
        elif name not in known:
            reader.note(
                node.location, f"unknown {dimension} {quoted(name)}{suggestion(name, known)}"
            )
        elif name == word:
            values[name] = None
        else:
            del values[name]
    return values


def judged_cells(cases: Iterable[Case]) -> set[Cell]:
    """Returns the cells that some case or some point judges, on a device that declares all capabilities."""
    return {Cell(*cell) for case in cases for cell in _judged(case)}


def _judged(case: Case) -> Iterator[tuple[str, str, str]]:
    if case.array is not None:
        yield from _judged_by_points(case.array)
        return
    for rules, row in _rows(case):
        for dimension, value in _observed(row):
            yield from ((rule, dimension, value) for rule in rules)


def _judged_by_points(array: CoveringArray) -> Iterator[tuple[str, str, str]]:
    conditions = Conditions(array.model)
    for point in array.points:
        rules = conditions.all_rules(point)
        for parameter, value in zip(array.model.names, point, strict=True):
            dimension, value = _PARAMETERS.get(parameter, parameter), _WORDS.get(value, value)
            if value in DIMENSIONS.get(dimension, ()):
                yield from ((rule, dimension, value) for rule in rules)


def _rows(case: Case) -> Iterator[tuple[tuple[str, ...], Case]]:
    """Yields the row, or some points of the sweep as rows, each with its rules."""
    if case.sweep is None:
        yield case.rules, case
        return
    sweep = case.sweep
    inside = sweep.space.bytes_of(sweep.inside)
    clauses = zip(sweep.clause_numbers(lambda _: True), inside, strict=True)
    outside = len(sweep.deciding)
    numbers = [number if is_in else outside for number, is_in in clauses]
    for number, point in distinct_points(sweep, numbers):
        if number != outside:
            clause = sweep.deciding[number]
            yield clause.rules, sweep.row_of_clause(sweep.case_at(case, point), clause, ())


def _observed(case: Case) -> Iterator[tuple[str, str]]:
    """Yields the objects of the steps of a row that are judged."""
    if not {step.then.outcome for step in case.judged_steps} & {"success", "refused"}:
        return  # every outcome is open
    regions, windows = _regions(case), _windows(case)
    yield "entry", case.entry
    for step in case.judged_steps:
        if step.call == WIRE:
            continue
        posting = _posting(case, step)
        names = {*_names(step.arguments), *_names(posting.arguments)}
        for window in [windows[name] for name in names if name in windows]:
            yield "window", f"type_{window.type}"
            names |= {*_names(window.bound or {})}
        kinds = [regions.get(name, ()) for name in names]
        if step.call in REGISTRATIONS:
            kinds.append(_kinds(step.call, step.arguments, case.entry))
        yield from (("region", kind) for kind in chain.from_iterable(kinds))
        if {"qp", "qp_type"} & {*CALLS[step.call]}:
            yield from _of_the_queue(case, posting)
        yield "side", _side(posting)


def _posting(case: Case, step: Step) -> Step:
    """Returns the step that posts the requests for which a step waits, or the step itself."""
    for earlier in case.steps:
        same = earlier.arguments.get("qp") == step.arguments.get("qp")
        if earlier.call == AWAITED.get(step.call) and same:
            return earlier
    return step


def _of_the_queue(case: Case, step: Step) -> Iterator[tuple[str, str]]:
    names = [str(step.arguments.get(name, "")) for name in ("qp", "via")]
    queues = [case.given.qps[name] for name in names if name in case.given.qps]
    queue = queues[0] if queues else QpSpec(str(step.arguments.get("qp_type", "RC")), "")
    yield "transport", queue.kind
    yield "polling", "start_poll" if queue.by_readers else "poll_cq"
    builders = {queue.extended, str(step.arguments.get("poster", ""))} & {*BUILDERS}
    if step.call == "ibv_bind_mw":
        yield "posting", "bind_mw"
    elif builders or step.arguments.get("batch") in BATCHES:
        yield "posting", WR_POST
    else:
        yield "posting", "post_send"


def _side(step: Step) -> str:
    if step.call == "post_receive" or str(step.arguments.get("op", "")).startswith("RECV"):
        return "receive"
    rkey = step.arguments.get("rkey")
    if isinstance(rkey, Quantity) and rkey.terms:
        return "remote"
    return "local"


def _windows(case: Case) -> dict[str, WindowSpec]:
    windows = dict(case.given.windows)
    for step in case.steps:
        if step.call == "ibv_alloc_mw":
            windows[step.name or "new_mw"] = WindowSpec(
                "", cast(Value, step.arguments["type"]).number
            )
    return windows


def _regions(case: Case) -> dict[str, tuple[str, ...]]:
    """Returns how each region of a case came to be, by the region's name."""
    regions = {
        name: _kinds(region.call, region.arguments, "") for name, region in case.given.mrs.items()
    }
    for step in case.steps:
        if step.call in REGISTRATIONS:
            regions[step.name or "new"] = _kinds(step.call, step.arguments, case.entry)
        flags = step.arguments.get("flags")
        if step.call == "ibv_rereg_mr" and isinstance(flags, Flags):
            changes = [name.partition("_")[2].lower() for name in flags.names]
            names = ["all"] if len(changes) > 2 else changes
            region = str(step.arguments["mr"])
            regions[region] = tuple(f"rereg_{name}" for name in names) or regions.get(region, ())
    return regions


def _kinds(call: str, arguments: Arguments, entry: str) -> tuple[str, ...]:
    """Returns the values of the dimension `region` for a registration; a region can have several."""
    access = arguments.get("access")
    flags = access.names if isinstance(access, Flags) else ()
    kinds = []
    if "ON_DEMAND" in flags:
        whole = getattr(arguments.get("length"), "text", "") == "SIZE_MAX"
        kinds.append("implicit" if whole else "on_demand")
    if "ZERO_BASED" in flags:
        kinds.append("zero_based")
    if call in _REGION_OF:
        kinds.append(_REGION_OF[call])
    if entry == "uverbs":
        kinds.append("uverbs")
    return tuple(kinds) or ("reg_mr",)


def _names(arguments: Arguments) -> list[str]:
    """Returns the names of objects in arguments."""
    return [name for value in arguments.values() for name in _names_in(value)]


def _names_in(value: Argument) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Quantity):
        yield from (term.name for term in value.terms if term.name)
    elif isinstance(value, tuple):
        for element in value:
            if isinstance(element, SgeSpec):
                yield from _names_in(element.lkey)
