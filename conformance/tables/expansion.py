"""Expands the axes of a row: `$flag` is replaced by each value of the axis `flag`.

The module expands YAML nodes with their locations before the nodes are interpreted; therefore a mistake in an axis
value is reported at the location of this value. The expanded rows are in the order of the file, which is the same on
every machine. The values of the axis `{unknown bits of: ibv_access_flags}` are the bits without a name in verbs/.
sweep_reader.py reads the axes of a sweep.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from conformance.older_python import zip
from conformance.tables import key_owners
from conformance.verbs import ENUMS, OPTIONAL_ACCESS
from conformance.yamldoc.nodes import Location, Node, plain, quoted
from conformance.yamldoc.reader import Reader, suggestion

UNKNOWN, WHICH = "unknown bits of", "which"
FLAG_ENUMS = tuple(name for name, enum in ENUMS.items() if enum.flags)
# The unknown bits that a stack must refuse (mandatory) or ignore (optional). Only access flags can be optional.
PARTS = {"mandatory": ~OPTIONAL_ACCESS, "optional": OPTIONAL_ACCESS}
_WITH_PARTS = "ibv_access_flags"


def is_axis(node: Node) -> bool:
    return isinstance(node.value, dict) and UNKNOWN in node.value


def unknown_values(reader: Reader, name: str, node: Node) -> tuple[Node, ...]:
    """Returns the values of the axis: `bit 10`, `bit 11` and so on; an empty tuple after a mistake."""
    fields = reader.mapping(node, f"axis {name!r}", (UNKNOWN, WHICH), (UNKNOWN,))
    enum = reader.word(fields.get(UNKNOWN), "enumeration of flags", FLAG_ENUMS)
    part = reader.word(fields.get(WHICH), "part of the unknown bits", PARTS)
    if enum is None or (WHICH in fields and part is None):
        return ()
    if part and enum != _WITH_PARTS:
        reader.note(
            fields[WHICH].location,
            f"only {_WITH_PARTS} has optional bits; leave {WHICH!r} out",
        )
        return ()
    bits = [bit for bit in ENUMS[enum].unnamed_bits if not part or 1 << bit & PARTS[part]]
    return tuple(Node(f"bit {bit}", node.location) for bit in bits)


# Far more than any table needs. Without these bounds, a mistake in a table could exhaust the memory.
MAX_CASES = 4096
MAX_TEXT = 1000
MAX_ELEMENTS = 1024
_MAX_NODES = 1 << 20

PLACEHOLDER = r"\$([A-Za-z_][A-Za-z0-9_]*)"
_PLACEHOLDER = re.compile(PLACEHOLDER)
_PART = re.compile(rf"{PLACEHOLDER}\.([a-z_]+)")

Binding = Mapping[str, Node]
# the keys of a row that say what a case is, and do not change it
_TEXTS = ("id", "about", "note")


def bindings(axes: Mapping[str, Node], reader: Reader, row: Node) -> list[Binding]:
    """Returns every combination of axis values; the last axis changes fastest. Without axes, returns one empty binding.
    Returns no binding if an axis has a mistake, or if the row would have too many cases or nodes."""
    choices: list[tuple[Node, ...]] = []
    size = 1
    for name, node in axes.items():
        values = _values(name, node, reader)
        if not values:
            return []
        size *= len(values)
        if size > MAX_CASES:
            reader.note(
                row.location,
                f"expands to more than {MAX_CASES} cases; split the row or shorten an axis",
            )
            return []
        choices.append(values)
    fields = row.value.items() if isinstance(row.value, dict) else ()
    # all nodes except those of the axes
    copied = 1 + sum(_count(node) for key, node in fields if key != "each")
    if size * copied > _MAX_NODES:
        reader.note(row.location, f"the row is too long to be expanded {size} times; split it")
        return []
    return [
        dict(zip(axes, combination, strict=True)) for combination in itertools.product(*choices)
    ]


def _values(name: str, node: Node, reader: Reader) -> tuple[Node, ...]:
    before = len(reader.mistakes)
    node = key_owners.expanded(reader, name, node)
    if is_axis(node):
        return unknown_values(reader, name, node)
    if isinstance(node.value, dict):  # values by name
        values = tuple(replace(value, name=key) for key, value in node.value.items())
    else:
        values = listed(reader, name, node)
    if isinstance(node.value, (tuple, dict)) and not values:
        reader.note(node.location, f"axis {name!r} has no values")
    first_lines: dict[str, int] = {}
    for value in values:
        written = repr(plain(value))
        if written in first_lines:
            reader.note(
                value.location,
                f"duplicate value of axis {name!r} (first in line {first_lines[written]})",
            )
        first_lines.setdefault(written, value.location.line)
        for text in _texts(value):
            if "$" in str(text.value):
                reader.note(text.location, f"a value of axis {name!r} cannot contain $")
    if len(reader.mistakes) == before:
        return values
    return ()


def listed(reader: Reader, name: str, node: Node) -> tuple[Node, ...]:
    """Returns the values of an axis that is a list."""
    if isinstance(node.value, tuple):
        return node.value
    hint = "" if node.value is None else f"; write [{node.value}]"
    reader.note(node.location, f"axis {name!r} must be a list, not {node.kind}{hint}")
    return ()


def note_unused(
    reader: Reader,
    axes: Mapping[str, Node],
    keys: Mapping[str, Location],
    row: Mapping[str, Node],
) -> None:
    """Notes each axis that changes nothing in the cases of a row. `keys` are the places of the axes' names."""
    used: set[str] = set()
    named: set[str] = set()
    for key, node in row.items():
        (named if key in _TEXTS else used).update(names_in(node))
    for name in axes:
        if name in named - used:
            text = f"axis {name!r} gives names to cases that are the same; use ${name} in another key, or remove it"
            reader.note(keys[name], text)
        elif name not in used:
            reader.note(keys[name], f"axis {name!r} is not used in the row")


def _texts(node: Node) -> Iterator[Node]:
    if isinstance(node.value, str):
        yield node
    for child in _children(node):
        yield from _texts(child)


def _children(node: Node) -> tuple[Node, ...]:
    if isinstance(node.value, dict):
        return tuple(node.value.values())
    if isinstance(node.value, tuple):
        return node.value
    return ()


def _count(node: Node) -> int:
    return 1 + sum(map(_count, _children(node)))


def corrected(node: Node, axes: Mapping[str, Node], reader: Reader) -> Node:
    """Returns the node with the most similar axis in place of each unknown one, which is noted as a mistake: the other
    mistakes of the row are then found, too. An axis that is similar to none remains."""
    if isinstance(node.value, dict):
        fields = {key: corrected(value, axes, reader) for key, value in node.value.items()}
        return replace(node, value=fields)
    if isinstance(node.value, tuple):
        return replace(node, value=tuple(corrected(item, axes, reader) for item in node.value))
    if not isinstance(node.value, str) or "$" not in node.value:
        return node

    def similar(match: re.Match[str]) -> str:
        import difflib  # imported late: only mistakes need it

        near = [] if match[1] in axes else difflib.get_close_matches(match[1], axes, n=1)
        if not near:
            return match[0]
        reader.note(node.location, f"unknown axis ${match[1]}{suggestion(match[1], list(axes))}")
        return f"${near[0]}"

    return replace(node, value=_PLACEHOLDER.sub(similar, node.value))


def substitute(
    node: Node,
    binding: Binding,
    reader: Reader,
    is_id: bool = False,
) -> Node:
    """Returns the node with its placeholders replaced. The result has the location of the axis value, because a mistake
    is most likely in this value. If the placeholder is only a part of a text, `within` of the location has this text."""
    if isinstance(node.value, dict):
        fields = {
            key: substitute(value, binding, reader, key == "id")
            for key, value in node.value.items()
        }
        return Node(fields, node.location, keys=node.keys)
    if isinstance(node.value, tuple):
        elements = tuple(
            itertools.islice(_elements(node.value, binding, reader), MAX_ELEMENTS + 1),
        )
        if len(elements) > MAX_ELEMENTS:
            reader.note(node.location, f"a list of more than {MAX_ELEMENTS} elements")
        return Node(elements, node.location)
    if not isinstance(node.value, str) or "$" not in node.value:
        return node
    placeholder = _PLACEHOLDER.fullmatch(node.value)
    if placeholder and placeholder[1] in binding:
        return binding[placeholder[1]]
    part = _PART.fullmatch(node.value)
    if part and part[1] in binding and isinstance(parts := binding[part[1]].value, dict):
        if part[2] in parts:
            return parts[part[2]]
        value = label(binding[part[1]])
        reader.note(
            node.location,
            f"the value {value!r} of axis ${part[1]} has no {part[2]!r}{suggestion(part[2], parts)}",
        )
        return Node("", node.location)
    return _composed(node, node.value, binding, reader, label if is_id else _in_text)


def _composed(
    node: Node,
    template: str,
    binding: Binding,
    reader: Reader,
    text_of: Callable[[Node], str],
) -> Node:
    text, position, location = "", 0, node.location
    for match in _PLACEHOLDER.finditer(template):
        text += template[position : match.start()]
        position = match.end()
        if match[1] not in binding:
            reader.note(
                node.location,
                f"unknown axis ${match[1]}{suggestion(match[1], list(binding))}",
            )
            continue
        location = binding[match[1]].location
        text += text_of(binding[match[1]])
        if len(text) > MAX_TEXT:
            reader.note(
                node.location,
                f"becomes longer than {MAX_TEXT} characters with the value of axis ${match[1]}",
            )
            return Node("", node.location)
    if "$" in _PLACEHOLDER.sub("", template):
        reader.note(node.location, "a $ without a name after it; write an axis as $name")
    within = f" (in {quoted(template)} of line {node.location.line})"
    if location != node.location:
        location = replace(location, within=within)
    return Node(text + template[position:], location, plain=node.plain)


def _elements(
    nodes: tuple[Node, ...],
    binding: Binding,
    reader: Reader,
) -> Iterator[Node]:
    for node in nodes:
        replaced = substitute(node, binding, reader)
        # In [LOCAL_WRITE, $more], if the value of $more is a list, its elements are inserted into the outer list.
        if (
            replaced is not node
            and isinstance(replaced.value, tuple)
            and isinstance(node.value, str)
        ):
            yield from replaced.value
        else:
            yield replaced


def names_in(node: Node) -> set[str]:
    return {match[1] for text in _texts(node) for match in _PLACEHOLDER.finditer(str(text.value))}


def _in_text(node: Node) -> str:
    """Returns the text of an axis value in a longer text that is not an id: the value, also if it has a name."""
    if isinstance(node.value, (str, int)):
        return str(node.value)
    return label(node)


def label(node: Node) -> str:
    """Returns the text of an axis value in an id or in a longer text."""
    if node.name:
        return node.name
    if node.value is None:
        return "none"
    if isinstance(node.value, tuple):
        return "+".join(label(item) for item in node.value) or "none"
    if isinstance(node.value, dict):
        return "+".join(f"{key}-{label(value)}" for key, value in node.value.items())
    return str(node.value)


def slug(text: str) -> str:
    """Returns the text as a part of a case id: lower case, words joined by `-`."""
    return re.sub(r"[^a-z0-9+.-]+", "-", text.lower()).strip("-")
