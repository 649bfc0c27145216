"""Reads the `sweep` of a row: the axes, the constraint, the number of points, and the expectations. row_resolution.py
reads the parts of the row that depend on axes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from conformance.errors import format_count
from conformance.model import capability, predicate
from conformance.model.needs import FLAG_NEEDS, OPERATION_NEEDS
from conformance.model.rules import Registry
from conformance.model.space import MAX_POINTS, Axis, Space
from conformance.model.sweep import Clause, Sweep, points_where
from conformance.older_python import bit_count, zip
from conformance.tables import keys
from conformance.tables.arguments import read_then
from conformance.tables.expansion import FLAG_ENUMS, UNKNOWN, label, listed, names_in
from conformance.tables.key_owners import expanded
from conformance.tables.keys import FACTOR, SUBSETS
from conformance.tables.row import RowBody, RowText, elements, entries
from conformance.tables.row_resolution import resolve
from conformance.verbs import ENUMS
from conformance.yamldoc.nodes import Node, quoted
from conformance.yamldoc.reader import Reader

_MAX_FLAGS = 20  # more flags would have more subsets than the allowed number of points
_MOST_STATED = 1 << 40  # a product in a table of somebody else can have any number of digits
_LABEL = re.compile(r"[A-Za-z0-9_.:*+-]+")


def read_sweep(
    reader: Reader,
    node: Node,
    template: tuple[str, Node | None, Mapping[str, Node], Node],
    registry: Registry,
    rules: tuple[str, ...],
) -> tuple[Sweep, RowBody] | None:
    """Returns the sweep of a row, and the row's body at the first point, with the arguments as text. Returns None after
    mistakes. `template` has the judged call, the table's `given`, the fields of the row's body, and the row's node."""
    before = len(reader.mistakes)
    fields = reader.mapping(node, "a sweep", keys.SWEEP, keys.required(keys.SWEEP))
    named = reader.named(fields.get("axes"), "axes")
    if "axes" in fields and fields["axes"].value == {}:
        reader.note(
            fields["axes"].location,
            "a sweep without axes has only one point; write a row without a sweep",
        )
    named = {name: expanded(reader, name, value) for name, value in named.items()}
    read = [_axis(reader, name, value) for name, value in named.items()]
    axes, nodes = (
        [axis for axis, _ in read if axis],
        {axis.name: values for axis, values in read if axis},
    )
    space = Space(tuple(axes))
    if space.size > MAX_POINTS:
        reader.note(node.location, f"a space of more than {MAX_POINTS} points; shorten an axis")
    call, table_given, row_fields, row = template
    text = RowText(call, table_given, row_fields, row, nodes, space)
    used = text.axes_in(*row_fields.values())
    for axis in axes:
        if axis not in used:
            reader.note(
                (fields["axes"].keys or {})[axis.name],
                f"axis {axis.name!r} is not used in the row",
            )
    for what, fixed in _axes_in_constant_parts(row_fields):
        reader.note(fixed.location, f"{what} cannot come from an axis of a sweep")
    if len(reader.mistakes) > before or not axes:
        return None
    where = _expression(reader, fields.get("where"), space, registry)
    if where is not None and predicate.capabilities_in(where):
        reader.note(
            fields["where"].location,
            "`where` selects the same points on every device; conditions on the device belong in `expect`",
        )
    clauses = _clauses(reader, fields.get("expect"), text, registry, rules)
    stated = _stated(reader, fields.get("points"))
    if len(reader.mistakes) > before:
        return None
    inside = points_where(where, space)
    size = bit_count(inside)
    if stated is not None and stated > _MOST_STATED:
        reader.note(fields["points"].location, "the sweep states more points than a sweep can have")
    elif stated is not None and stated != size:
        reader.note(
            fields["points"].location,
            f"the sweep states {format_count(stated, 'point')} and has {size}",
        )
    resolved = resolve(reader, text, inside)
    if resolved is None or len(reader.mistakes) > before:
        return None
    needs = {rule: registry[rule].needs for rule in rules}
    tries = reader.truth(fields.get("tries"), "tries")
    return Sweep(space, where, tuple(clauses), resolved[0], needs, tries), resolved[1]


def _stated(reader: Reader, node: Node | None) -> int | None:
    """Returns the number of points that a table states: as a number, or as a product with sizes of derived axes."""
    if node is None or not isinstance(node.value, str):
        return reader.count(node, "points")
    size = 1
    for factor in (factor.strip() for factor in node.value.split("*")):
        if not re.fullmatch(FACTOR, factor):
            example = f"write a number, or a product such as 4 * {SUBSETS} ibv_access_flags"
            reader.note(node.location, f"invalid number of points {quoted(node.value)}; {example}")
            return None
        of, _, enum = factor.rpartition(" ")
        if (
            of
            and reader.word(Node(enum, node.location), "enumeration of flags", FLAG_ENUMS) is None
        ):
            return None
        if of:
            size *= (
                1 << len(ENUMS[enum].short_names)
                if of == SUBSETS
                else 1 + len(ENUMS[enum].unnamed_bits)
            )
        else:
            size *= int(factor)
    return size


def _axes_in_constant_parts(fields: Mapping[str, Node]) -> Iterator[tuple[str, Node]]:
    """Yields the parts of a row that name an axis but must be the same at all points, as (description, part)."""
    for key in ("given", "before", "when", "afterwards"):
        if key in fields and isinstance(fields[key].value, str) and names_in(fields[key]):
            yield f"the whole of {key!r}", fields[key]
    for section, node in entries(fields.get("given")).items():
        if section == "pds" and names_in(node):
            yield "the name of a PD", node
        elif section != "memlock" and isinstance(node.value, str) and names_in(node):
            yield f"the whole of {section!r}", node
    steps = [element for key in ("before", "afterwards") for element in elements(fields.get(key))]
    for step in steps:
        if isinstance(step.value, str) and names_in(step):
            yield "a whole step", step
    for owner in (fields, *map(entries, steps)):
        if "call" in owner and names_in(owner["call"]):
            yield "a call's name", owner["call"]


def _axis(reader: Reader, name: str, node: Node) -> tuple[Axis | None, tuple[Node, ...]]:
    """Reads an axis: a list of values, values by name, or flags. Returns the axis, and its values as YAML nodes."""
    if isinstance(node.value, dict) and set(node.value) & {SUBSETS, UNKNOWN}:
        fields = reader.mapping(node, f"axis {name!r}", (SUBSETS, UNKNOWN))
        if len(fields) > 1:
            reader.note(
                node.location,
                f"axis {name!r} is either {SUBSETS} flags or {UNKNOWN} an enumeration",
            )
        if SUBSETS in fields:
            return _subsets(reader, name, fields[SUBSETS])
        return _unknown(reader, name, fields[UNKNOWN])
    if isinstance(node.value, dict):
        labels, values = tuple(node.value), tuple(node.value.values())
        locations = [(node.keys or {}).get(text, node.location) for text in labels]
    else:
        values = listed(reader, name, node)
        labels, locations = (
            tuple(re.sub(r"\s", "", label(value)) for value in values),
            [value.location for value in values],
        )
    if isinstance(node.value, (tuple, dict)) and not values:
        reader.note(node.location, f"axis {name!r} has no values")
    for number, text in enumerate(labels):
        if not _LABEL.fullmatch(text):
            hint = f"give it a name: {name}: {{name: value}}"
            reader.note(
                locations[number],
                f"a value of axis {name!r} cannot be written on a command line; {hint}",
            )
        elif text in labels[:number]:
            reader.note(locations[number], f"duplicate value {text} of axis {name!r}")
    for value in values:
        if names_in(value):
            reader.note(value.location, f"a value of axis {name!r} cannot contain $")
    words = tuple(_words(text, value) for text, value in zip(labels, values, strict=True))
    return (Axis(name, labels, words) if values else None), values


def _words(text: str, value: Node) -> tuple[str, ...]:
    """Returns the names of an axis value in predicates: the label, and the words in the value."""
    if isinstance(value.value, tuple):
        parts = value.value
    else:
        parts = (value,)
    words = (
        str(part.value).replace(" ", "") for part in parts if isinstance(part.value, (str, int))
    )
    return tuple(dict.fromkeys([text, *words]))


def _subsets(reader: Reader, name: str, node: Node) -> tuple[Axis | None, tuple[Node, ...]]:
    if isinstance(node.value, tuple):
        flag_names = sorted({word for enum in FLAG_ENUMS for word in ENUMS[enum].short_names})
        flags = reader.words(node, "flag", flag_names)
    else:
        enum = reader.word(node, "enumeration of flags", FLAG_ENUMS)
        if enum:
            flags = ENUMS[enum].short_names
        else:
            flags = ()
    if len(flags) > _MAX_FLAGS:
        reader.note(node.location, f"axis {name!r} has more than {_MAX_FLAGS} flags")
        return None, ()
    return (Axis(name, flags=flags) if flags else None), ()


def _unknown(reader: Reader, name: str, node: Node) -> tuple[Axis | None, tuple[Node, ...]]:
    """Returns an axis with an empty value, and with a value for each bit without a name."""
    enum = reader.word(node, "enumeration of flags", FLAG_ENUMS)
    if enum is None:
        return None, ()
    bits = ENUMS[enum].unnamed_bits
    labels = ("none", *(f"bit{bit}" for bit in bits))
    nodes = (
        Node((), node.location),
        *(Node((Node(f"bit {bit}", node.location),), node.location) for bit in bits),
    )
    return Axis(name, labels, tuple((text,) for text in labels)), nodes


def _expression(
    reader: Reader,
    node: Node | None,
    space: Space,
    registry: Registry,
) -> predicate.Expression | None:
    if node is None:
        return None
    text = reader.text(node, "a predicate")
    try:
        if text:
            return predicate.parse(text, space, registry.predicates)
        return None
    except ValueError as error:
        reader.note(node.location, str(error))
        return None


def _clauses(
    reader: Reader,
    node: Node | None,
    row: RowText,
    registry: Registry,
    rules: tuple[str, ...],
) -> list[Clause]:
    items = reader.items(node, "expect")
    clauses = [clause for item in items for clause in _of_item(reader, item, row, registry, rules)]
    clauses += _operation_clauses(reader, row, registry)
    deciding = [clause for clause in clauses if clause.then]
    is_list = node is not None and isinstance(node.value, tuple)
    if node is not None and is_list and not (deciding and _is_last(items)):
        reader.note(
            node.location,
            "the last expectation must have no `if`, so that every point has an expectation",
        )
    for item in items[:-1]:
        if _is_last([item]) and not reader.mistakes:
            reader.note(
                item.location,
                "expectations after an expectation without `if` can never apply",
            )
    for rule in rules if deciding and not reader.mistakes else ():
        if not any(rule in clause.rules for clause in deciding):
            reader.note(
                node.location if node else row.row.location,
                f"no expectation names the row's rule {rule}",
            )
    if len(deciding) > 1 and any(clause.then and clause.then.event for clause in deciding):
        reader.note(row.row.location, "an event must be the expectation of all points of a sweep")
    if len({need for clause in clauses for need in clause.needs}) > 8:
        reader.note(row.row.location, "a sweep can need at most 8 capabilities")
    return clauses


def _is_last(items: Sequence[Node]) -> bool:
    """Whether the last expectation applies to every point that no expectation before it names."""
    if not items or not isinstance(items[-1].value, dict):
        return False
    return "then" in items[-1].value and "if" not in items[-1].value


def _of_item(
    reader: Reader,
    item: Node,
    row: RowText,
    registry: Registry,
    rules: tuple[str, ...],
) -> Iterator[Clause]:
    """Yields the clauses of one expectation."""
    fields = reader.mapping(item, "an expectation", keys.CLAUSE)
    if not isinstance(item.value, dict):
        return
    if "if" in fields:
        text = str(fields["if"].value)
    else:
        text = ""
    when = _expression(reader, fields.get("if"), row.space, registry)
    needs = reader.words(fields.get("needs"), "capability", capability.NAMES)
    if len({"then", "needs", keys.NEEDS_OF} & set(fields)) != 1:
        reader.note(item.location, "an expectation has either `then` (with `rule`) or `needs`")
    elif keys.NEEDS_OF in fields:
        yield from _flag_clauses(reader, fields[keys.NEEDS_OF], text, row.space, registry)
    elif "needs" in fields:
        yield Clause(text, when, None, needs=needs)
    else:
        rule = _rule_of(reader, item, fields, registry, rules)
        also = reader.words(fields.get("also"), "rule", rules)
        call = row.fields.get("call")
        then = read_then(reader, fields["then"], str(call.value) if call else row.call)
        yield Clause(text, when, then, rule, also=also)


def _rule_of(
    reader: Reader,
    item: Node,
    fields: Mapping[str, Node],
    registry: Registry,
    rules: tuple[str, ...],
) -> str:
    """Returns the rule that an expectation names, which is one of the row's; empty after a mistake."""
    rule = reader.word(fields.get("rule"), "rule", registry)
    if "rule" not in fields:
        reader.note(
            item.location,
            "an expectation lacks the key 'rule'; name the rule that requires it",
        )
    elif rule and rule not in rules:
        reader.note(fields["rule"].location, f"rule {rule} is not among the row's rules")
    return rule or ""


def _operation_clauses(reader: Reader, row: RowText, registry: Registry) -> Iterator[Clause]:
    for axis in row.space.axes:
        for operation in axis.labels:
            if operation in OPERATION_NEEDS:
                where = f"{axis.name}={operation}"
                when = _expression(reader, Node(where, row.row.location), row.space, registry)
                yield Clause(where, when, None, needs=(OPERATION_NEEDS[operation],))


def _flag_clauses(
    reader: Reader,
    node: Node,
    text: str,
    space: Space,
    registry: Registry,
) -> Iterator[Clause]:
    flags = {axis.name: axis.flags for axis in space.axes if axis.flags}
    name = reader.word(node, "axis of flags", flags)
    for flag in flags.get(name or "", ()):
        if FLAG_NEEDS[flag]:
            if text:
                where = f"({text}) & {name}.{flag}"
            else:
                where = f"{name}.{flag}"
            when = _expression(reader, Node(where, node.location), space, registry)
            yield Clause(where, when, None, needs=(FLAG_NEEDS[flag],))
