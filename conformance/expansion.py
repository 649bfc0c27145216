"""Axes of a row multiplied out: `$flag` replaced by each value of the axis `flag`.

Works on located YAML before it means anything, so that a mistake inside an axis is shown where the
axis's value stands. The order is that of the file: the same in every process and on every machine.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping

from conformance.reading import Reader
from conformance.yamltext import Node

MAX_CASES = 4096

_PLACEHOLDER = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")

Binding = Mapping[str, Node]


def bindings(axes: Mapping[str, Node], reader: Reader, row: Node) -> list[Binding]:
    """Every combination of the axes' values, the last axis fastest; one empty binding without axes."""
    choices: list[tuple[Node, ...]] = []
    size = 1
    for name, node in axes.items():
        values = reader.items(node, f"axis {name!r}")
        if not values:
            reader.note(node.place, f"axis {name!r} has no values")
            return []
        size *= len(values)
        choices.append(values)
    if size > MAX_CASES:
        reader.note(row.place, f"expands to {size} cases; the bound is {MAX_CASES}")
        return []
    return [dict(zip(axes, combination, strict=True)) for combination in itertools.product(*choices)]


def substitute(node: Node, binding: Binding, reader: Reader, used: set[str]) -> Node:
    """The node with its placeholders replaced; names met are added to `used`."""
    if isinstance(node.value, dict):
        fields = {key: substitute(value, binding, reader, used) for key, value in node.value.items()}
        return Node(fields, node.place, keys=node.keys)
    if isinstance(node.value, tuple):
        return Node(tuple(_elements(node.value, binding, reader, used)), node.place)
    if not isinstance(node.value, str) or "$" not in node.value:
        return node
    whole = _PLACEHOLDER.fullmatch(node.value)
    if whole and whole[1] in binding:
        used.add(whole[1])
        return binding[whole[1]]

    def replace(match: re.Match[str]) -> str:
        name = match[1]
        if name not in binding:
            reader.note(node.place, f"unknown axis ${name}")
            return ""
        used.add(name)
        return label(binding[name])

    return Node(_PLACEHOLDER.sub(replace, node.value), node.place, plain=node.plain)


def _elements(nodes: tuple[Node, ...], binding: Binding, reader: Reader, used: set[str]) -> Iterator[Node]:
    for node in nodes:
        replaced = substitute(node, binding, reader, used)
        # A list put where an element stands is spliced: [LOCAL_WRITE, $more].
        if replaced is not node and isinstance(replaced.value, tuple) and isinstance(node.value, str):
            yield from replaced.value
        else:
            yield replaced


def label(node: Node) -> str:
    """How an axis's value reads inside an id or a text."""
    if isinstance(node.value, tuple):
        return "+".join(label(item) for item in node.value) or "none"
    if isinstance(node.value, dict):
        return "+".join(f"{key}-{label(value)}" for key, value in node.value.items())
    return str(node.value)


def slug(text: str) -> str:
    """The text as a part of a case id: lower case, words joined by `-`."""
    return re.sub(r"[^a-z0-9+.-]+", "-", text.lower()).strip("-")
