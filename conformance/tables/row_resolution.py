"""Resolves the row of a sweep while its table is loaded, into templates for its parts (model/row_template.py).

An axis can occur in arguments, in expectations and in `given`. Each such part is read once for each combination of its
axes. Not for the keys of the sweep itself (sweep_reader.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from conformance.model import vocabulary
from conformance.model.case import Expectation, Given, MemorySpec, MrSpec, QpSpec, Step, WindowSpec
from conformance.model.row_template import (
    GivenTemplate,
    MrTemplate,
    QpTemplate,
    RowTemplate,
    StepTemplate,
    Varying,
    WindowTemplate,
)
from conformance.tables.arguments import Names, product, read_then
from conformance.tables.expansion import names_in
from conformance.tables.given import names_of, read_memlock, read_memory, read_mr, read_qp, read_window
from conformance.tables.part_resolution import PartResolver
from conformance.tables.row import RowBody, RowText, elements, entries, format_arguments, one_at_a_time
from conformance.yamldoc.nodes import Node
from conformance.yamldoc.reader import Reader


def resolve(reader: Reader, text: RowText, inside: int) -> tuple[RowTemplate, RowBody] | None:
    """Returns the row as a template, and its body at the first point, with the arguments of the judged call as text.

    `inside` is the column of the sweep's points. Returns None after mistakes, which are noted in `reader`.
    """
    before = len(reader.mistakes)
    first = text.body([0] * len(text.space.axes), reader)
    if len(reader.mistakes) > before:
        for key in one_at_a_time(text.space.axes):  # finds mistakes at other values
            text.body(key, reader)
        return None
    template = _row(PartResolver(reader, text, inside), first, text.fields)
    if len(reader.mistakes) > before:
        return None
    arguments = format_arguments(first.when, text.fields.get("when"))
    return template, replace(first, when=replace(first.when, arguments=arguments))


def _row(parts: PartResolver, first: RowBody, fields: Mapping[str, Node]) -> RowTemplate:
    names = names_of(first.given)
    before, names = _steps(parts, first.before, elements(fields.get("before")), names)
    when = _step(parts, first.when, fields.get("when"), names)
    later = {**names, **product(first.when)}
    afterwards, _ = _steps(parts, first.afterwards, elements(fields.get("afterwards")), later)
    return RowTemplate(_given(parts, first.given, entries(fields.get("given"))), before, when, afterwards)


def _steps(
    parts: PartResolver, steps: Sequence[Step], nodes: Sequence[Node], names: Names
) -> tuple[tuple[StepTemplate, ...], Names]:
    """Resolves successive steps; returns them with the objects that exist after them."""
    found: list[StepTemplate] = []
    for step, node in zip(steps, nodes, strict=True):
        found.append(_step(parts, step, node, names))
        names = {**names, **product(step)}
    return tuple(found), names


def _step(parts: PartResolver, step: Step, node: Node | None, names: Names) -> StepTemplate:
    written = entries(node)
    then: Varying[Expectation] | None = None
    if "then" in written and names_in(written["then"]):
        then = parts.varying(written["then"], lambda reader, filled: read_then(reader, filled, step.call))
    return StepTemplate(step, parts.arguments(step.call, written, names), then)


def _given(parts: PartResolver, given: Given, fields: Mapping[str, Node]) -> GivenTemplate:
    ground = replace(given, mrs={}, qps={}, windows={})
    before_mrs, before_qps = names_of(ground), names_of(replace(ground, mrs=given.mrs))
    before_windows = names_of(replace(given, windows={}))
    memlock = fields.get("memlock")
    return GivenTemplate(
        given,
        memory={name: _memory(parts, "memory", node) for name, node in _varying(fields, "memory")},
        dmabufs={name: _memory(parts, "dmabufs", node) for name, node in _varying(fields, "dmabufs")},
        mrs={name: _mr(parts, name, given.mrs[name], node, before_mrs) for name, node in _varying(fields, "mrs")},
        qps={name: _qp(parts, given.qps[name], node, before_qps) for name, node in _varying(fields, "qps")},
        windows={
            name: _window(parts, name, given.windows[name], node, before_windows)
            for name, node in _varying(fields, "windows")
        },
        memlock=parts.varying(memlock, read_memlock) if memlock and names_in(memlock) else None,
    )


def _varying(fields: Mapping[str, Node], section: str) -> list[tuple[str, Node]]:
    """The objects of a section in which axes occur."""
    return [(name, node) for name, node in entries(fields.get(section)).items() if names_in(node)]


def _only_in(node: Node, *keys: str) -> bool:
    """Whether axes occur only in the values of these keys of a mapping."""
    return isinstance(node.value, dict) and not any(
        names_in(value) for key, value in node.value.items() if key not in keys
    )


def _memory(parts: PartResolver, section: str, node: Node) -> Varying[MemorySpec]:
    return parts.varying(node, lambda reader, filled: read_memory(reader, section, filled))


def _mr(parts: PartResolver, name: str, first: MrSpec, node: Node, names: Names) -> Varying[MrSpec] | MrTemplate:
    if _only_in(node, *vocabulary.CALLS[first.call]):
        return MrTemplate(first, parts.arguments(first.call, entries(node), names))
    return parts.varying(node, lambda reader, filled: read_mr(reader, name, filled, names))


def _qp(parts: PartResolver, first: QpSpec, node: Node, names: Names) -> Varying[QpSpec] | QpTemplate:
    if _only_in(node, "access"):
        return QpTemplate(first, parts.flags(entries(node)["access"], "ibv_access_flags"))
    return parts.varying(node, lambda reader, filled: read_qp(reader, filled, names))


def _window(
    parts: PartResolver, name: str, first: WindowSpec, node: Node, names: Names
) -> Varying[WindowSpec] | WindowTemplate:
    bound = entries(node).get("bound")
    if _only_in(node, "bound") and bound is not None and isinstance(bound.value, dict):
        call = vocabulary.BINDS[0 if first.type == 1 else 1]
        return WindowTemplate(first, parts.arguments(call, bound.value, {**names, "mw": "window"}))
    return parts.varying(node, lambda reader, filled: read_window(reader, name, filled, names))
