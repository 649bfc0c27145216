"""Axes of a row multiplied out: `$flag` replaced by each value of the axis `flag`.

Works on located YAML before it means anything, so that a mistake inside an axis is shown where the
axis's value stands. The order is that of the file: the same in every process and on every machine.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from conformance.tables import unknown_bits
from conformance.yamldoc.nodes import Node, quoted
from conformance.yamldoc.reader import Reader, suggestion

# Bounds that no table for people comes near; they keep a slip from eating the machine.
MAX_CASES = 4096
MAX_TEXT = 1000
MAX_ELEMENTS = 1024
_MAX_NODES = 1 << 20

PLACEHOLDER = r"\$([A-Za-z_][A-Za-z0-9_]*)"
_PLACEHOLDER = re.compile(PLACEHOLDER)

Binding = Mapping[str, Node]


def bindings(axes: Mapping[str, Node], reader: Reader, row: Node) -> list[Binding]:
    """Every combination of the axes' values, the last axis fastest; one empty binding without axes.

    None at all after a mistake in an axis, or where the row would expand beyond the bounds.
    """
    choices: list[tuple[Node, ...]] = []
    size = 1
    for name, node in axes.items():
        values = _values(name, node, reader)
        if not values:
            return []
        size *= len(values)
        if size > MAX_CASES:
            reader.note(row.location, f"expands to more than {MAX_CASES} cases; split the row or shorten an axis")
            return []
        choices.append(values)
    if size * _weight(row) > _MAX_NODES:
        reader.note(row.location, f"a row of this length cannot be expanded {size} times; split it")
        return []
    return [dict(zip(axes, combination, strict=True)) for combination in itertools.product(*choices)]


def _values(name: str, node: Node, reader: Reader) -> tuple[Node, ...]:
    """The values of an axis; none after a mistake."""
    before = len(reader.mistakes)
    if unknown_bits.is_axis(node):
        return unknown_bits.values(reader, name, node)
    values = reader.items(node, f"axis {name!r}")
    if isinstance(node.value, tuple) and not values:
        reader.note(node.location, f"axis {name!r} has no values")
    met: dict[str, int] = {}
    for value in values:
        written = repr(_bare(value))
        if written in met:
            reader.note(value.location, f"axis {name!r} has this value twice (first in line {met[written]})")
        met.setdefault(written, value.location.line)
        for text in _texts(value):
            if "$" in str(text.value):
                reader.note(text.location, f"a value of axis {name!r} cannot hold a $ itself")
    return values if len(reader.mistakes) == before else ()


def _bare(node: Node) -> object:
    """The value without its places."""
    if isinstance(node.value, dict):
        return {key: _bare(value) for key, value in node.value.items()}
    return [_bare(item) for item in node.value] if isinstance(node.value, tuple) else node.value


def _texts(node: Node) -> Iterator[Node]:
    if isinstance(node.value, str):
        yield node
    for child in _children(node):
        yield from _texts(child)


def _children(node: Node) -> tuple[Node, ...]:
    if isinstance(node.value, dict):
        return tuple(node.value.values())
    return node.value if isinstance(node.value, tuple) else ()


def _weight(row: Node) -> int:
    """How many values a row has besides those of its axes, which are not copied."""
    fields = row.value.items() if isinstance(row.value, dict) else ()
    return 1 + sum(_count(node) for key, node in fields if key != "each")


def _count(node: Node) -> int:
    return 1 + sum(map(_count, _children(node)))


def substitute(node: Node, binding: Binding, reader: Reader, used: set[str]) -> Node:
    """The node with its placeholders replaced; names met are added to `used`.

    A value that replaces a whole text keeps its own place; one put into a longer text gives the result
    its place, with the longer text as a remark, since that value is what a mistake most likely lies in.
    """
    if isinstance(node.value, dict):
        fields = {key: substitute(value, binding, reader, used) for key, value in node.value.items()}
        return Node(fields, node.location, keys=node.keys)
    if isinstance(node.value, tuple):
        elements = tuple(itertools.islice(_elements(node.value, binding, reader, used), MAX_ELEMENTS + 1))
        if len(elements) > MAX_ELEMENTS:
            reader.note(node.location, f"a list of more than {MAX_ELEMENTS} elements")
        return Node(elements, node.location)
    if not isinstance(node.value, str) or "$" not in node.value:
        return node
    whole = _PLACEHOLDER.fullmatch(node.value)
    if whole and whole[1] in binding:
        used.add(whole[1])
        return binding[whole[1]]
    return _composed(node, node.value, binding, reader, used)


def _composed(node: Node, template: str, binding: Binding, reader: Reader, used: set[str]) -> Node:
    text, position, location = "", 0, node.location
    for match in _PLACEHOLDER.finditer(template):
        text += template[position : match.start()]
        position = match.end()
        if match[1] not in binding:
            reader.note(node.location, f"unknown axis ${match[1]}{suggestion(match[1], list(binding))}")
            continue
        used.add(match[1])
        location = binding[match[1]].location
        text += label(binding[match[1]])
        if len(text) > MAX_TEXT:
            reader.note(node.location, f"grows longer than {MAX_TEXT} characters by the axis ${match[1]}")
            return Node("", node.location)
    if "$" in _PLACEHOLDER.sub("", template):
        reader.note(node.location, "a $ that no name follows; an axis is written $name")
    within = f" (in {quoted(template)} of line {node.location.line})"
    location = replace(location, within=within) if location != node.location else location
    return Node(text + template[position:], location, plain=node.plain)


def _elements(nodes: tuple[Node, ...], binding: Binding, reader: Reader, used: set[str]) -> Iterator[Node]:
    for node in nodes:
        replaced = substitute(node, binding, reader, used)
        # A list put where an element stands is spliced: [LOCAL_WRITE, $more].
        if replaced is not node and isinstance(replaced.value, tuple) and isinstance(node.value, str):
            yield from replaced.value
        else:
            yield replaced


def names_in(node: Node) -> set[str]:
    """The axes whose placeholders stand in the node."""
    return {match[1] for text in _texts(node) for match in _PLACEHOLDER.finditer(str(text.value))}


def label(node: Node) -> str:
    """How an axis's value reads inside an id or a text."""
    if node.value is None:
        return "none"
    if isinstance(node.value, tuple):
        return "+".join(label(item) for item in node.value) or "none"
    if isinstance(node.value, dict):
        return "+".join(f"{key}-{label(value)}" for key, value in node.value.items())
    return str(node.value)


def slug(text: str) -> str:
    """The text as a part of a case id: lower case, words joined by `-`."""
    return re.sub(r"[^a-z0-9+.-]+", "-", text.lower()).strip("-")
