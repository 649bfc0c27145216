"""Reads the script of a `wire` call: a list of events, each a mapping with the key of its kind (model/script.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Optional, cast

from conformance.model.case import QpSpec, Step
from conformance.model.event_kinds import (
    EVENTS,
    OF_TRANSPORTS,
    SENT,
    belongs_to,
    lack_of,
    lack_over,
    operations_of,
)
from conformance.model.quantity import Quantity
from conformance.model.script import CALL, LISTS, Event
from conformance.model.vocabulary import RESET_QP, STREAM, WIRE
from conformance.yamldoc.nodes import Location, Node
from conformance.yamldoc.reader import Reader, suggestion

Names = dict[str, str]
ReadQuantity = Callable[[Reader, Node, Names], Optional[Quantity]]
ReadStep = Callable[[Reader, Node, Names], Optional[Step]]
_KINDS = (*EVENTS, CALL)
# A repeated packet, and a packet that must have fields of this name, are named by `again` from 1 on.
_AGAIN = "again"


def read_script(
    reader: Reader,
    node: Node,
    names: Names,
    quantity: ReadQuantity,
    step: ReadStep,
) -> tuple[Event, ...]:
    """Returns the events of a list. `quantity` and `step` read the parts that other calls have as well."""
    events: list[Event] = []
    packets = 0
    for item in reader.items(node, "packets"):
        event = _event(reader, item, names, quantity, step)
        if event is None:
            continue
        if event.step and event.step.name:
            names = {**names, event.step.name: _kind_of(event.step)}
        if event.kind == "op":
            packets += 1
            _check_again(reader, item, event, packets)
        events.append(event)
    return tuple(events)


def check_peer(
    reader: Reader,
    location: Location,
    step: Step,
    pairs: Mapping[str, QpSpec],
    nodes: Sequence[Node] = (),
) -> None:
    """Notes the events of a script whose operation or fields the peer of their queue pair does not have, and a reset of
    a queue pair without a wire peer. `nodes` are the events as written."""
    reset = pairs.get(str(step.arguments.get("qp"))) if step.call == RESET_QP else None
    if reset and reset.wire != WIRE:
        reader.note(location, f"{RESET_QP} needs a queue pair with `peer: {WIRE}`")
    events = cast("tuple[Event, ...]", step.arguments.get("packets", ()))
    for number, event in enumerate(events):
        if event.step:
            check_peer(reader, location, event.step, pairs)
            continue
        node = nodes[number] if len(nodes) == len(events) else Node({}, location)
        pair = pairs.get(event.qp or str(step.arguments["qp"]))
        peer = pair.wire if pair else ""
        if pair and peer == WIRE and event.kind in SENT:
            transport = event.names.get("transport", (pair.kind,))[0]
            for key in OF_TRANSPORTS & {*event.numbers}:
                reader.use((node.keys or {}).get(key, location), lack_over(transport, key))
        if not belongs_to(event, peer == STREAM):
            place = node.value.get(event.kind, node) if isinstance(node.value, dict) else node
            known = operations_of(peer == STREAM)
            whole = [name for name in known if name == f"{event.word}_ONLY"]
            near = suggestion(event.word, whole or known)
            text = f"{'|'.join(event.words)} is not an operation of a peer {peer!r}"
            reader.note(place.location, f"{text}{near}")


def _kind_of(step: Step) -> str:
    from conformance.model.vocabulary import PRODUCTS

    return PRODUCTS[step.call][0]


def _check_again(reader: Reader, node: Node, event: Event, packets: int) -> None:
    """Notes a repetition of a packet that no earlier event sends."""
    quantity = event.numbers.get(_AGAIN)
    if quantity is None or not isinstance(node.value, dict):
        return
    location = node.value[_AGAIN].location
    if quantity.names:
        reader.note(location, "again must be the number of an earlier packet, from 1 on")
        return
    number = quantity.evaluate(0, 0, lambda name, property_: 0)
    if not 1 <= number < packets:
        reader.note(location, f"packet {number} is not an earlier one: this is packet {packets}")


def _event(
    reader: Reader,
    node: Node,
    names: Names,
    quantity: ReadQuantity,
    step: ReadStep,
) -> Event | None:
    if not isinstance(node.value, dict):
        reader.note(node.location, f"an event of packets must be a mapping, not {node.kind}")
        return None
    kinds = [kind for kind in _KINDS if kind in node.value]
    if len(kinds) != 1:
        all_kinds = ", ".join(_KINDS)
        reader.note(node.location, f"an event of packets must have exactly one of: {all_kinds}")
        return None
    if kinds[0] == CALL:
        called = step(reader, node, names)
        if called:
            return Event(CALL, step=called)
        return None
    return _event_of(reader, node, kinds[0], names, quantity)


def _event_of(reader: Reader, node: Node, kind: str, names: Names, quantity: ReadQuantity) -> Event:
    spec = EVENTS[kind]
    keys = (kind, *spec.numbers, *spec.names, "qp")
    fields = reader.mapping(node, f"the event {kind!r}", keys)
    numbers: dict[str, Quantity] = {}
    words: dict[str, tuple[str, ...]] = {}
    for key in spec.numbers:
        if key in fields:
            value = quantity(reader, fields[key], names)
        else:
            value = None
        if value is not None:
            numbers[key] = value
    for key, choices in spec.names.items():
        if key in fields:
            words[key] = _words(reader, fields[key], key, choices, key in LISTS)
    queues = [name for name, of in names.items() if of == "qp"]
    qp = reader.word(fields.get("qp"), "qp", queues) or ""
    if spec.words:
        subject = _words(reader, fields[kind], kind, spec.words, spec.several)
    else:
        subject = ()
        address = quantity(reader, fields[kind], names)
        if address is not None:
            numbers[kind] = address
    for key in (*numbers, *words) if kind in SENT else ():
        lacks = [lack_of(word, key, "data" in numbers) for word in subject]
        if lacks and (all(lacks) or key not in OF_TRANSPORTS):
            reader.use((node.keys or {})[key], lacks[0] if all(lacks) else "")
    return Event(kind, subject, numbers, words, qp)


def _words(
    reader: Reader,
    node: Node,
    what: str,
    choices: tuple[str, ...],
    several: bool,
) -> tuple[str, ...]:
    """Reads one word, or a list of words where a list is allowed."""
    if several and isinstance(node.value, tuple):
        return reader.words(node, what, choices)
    if choices == ("true",):
        if reader.truth(node, what):
            return ("true",)
        return ()
    word = reader.word(node, what, choices)
    if word:
        return (word,)
    return ()
