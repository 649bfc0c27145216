"""The keys that a call uses, and the range for which it uses each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conformance.model.case import Argument, Arguments, SgeSpec, Step
from conformance.model.quantity import Quantity

_KEYS = ("rkey", "lkey")


def uses_key(step: Step) -> bool:
    return next(key_quantities(step.arguments), None) is not None


def key_quantities(arguments: Arguments) -> Iterator[Quantity]:
    for name in _KEYS:
        value = arguments.get(name)
        if isinstance(value, Quantity):
            yield value
    yield from (element.lkey for element in _elements(arguments))


def operands(step: Step) -> Iterator[tuple[Quantity, Argument, Argument]]:
    """Yields the keys of a step, each with the address and the length of the range for which the step uses the key."""
    for name in _KEYS:
        value = step.arguments.get(name)
        if isinstance(value, Quantity) and {"addr", "length"} <= set(step.arguments):
            yield value, step.arguments["addr"], step.arguments["length"]
    yield from (
        (element.lkey, element.addr, element.length) for element in _elements(step.arguments)
    )


def _elements(arguments: Arguments) -> Sequence[SgeSpec]:
    elements = arguments.get("sg_list")
    if isinstance(elements, tuple):
        return [element for element in elements if isinstance(element, SgeSpec)]
    return []
