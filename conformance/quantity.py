"""Addresses and lengths as tables write them: `buf + 1 page`, `buf.size + 1`, `64 KiB`, `SIZE_MAX`.

A sum of terms. A term is a number with an optional unit, a constant, or an object's property.
Sizes that depend on the machine (its page) are resolved when a case runs, never when it is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

UNITS = {"byte": 1, "bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
PAGES = {"page", "pages"}
HUGE_PAGES = {"hugepage", "hugepages"}
CONSTANTS = {"SIZE_MAX": (1 << 64) - 1}
PROPERTIES = {
    "memory": ("addr", "size", "end"),
    "mr": ("addr", "length", "lkey", "rkey"),
    "window": ("rkey",),
}
WRAP = 1 << 64

_TERM = re.compile(
    r"\s*(?P<sign>[-+])?\s*(?:(?P<number>0x[0-9a-fA-F]+|[0-9]+)(?:\s*(?P<unit>[A-Za-z]+))?"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?:\.(?P<property>[a-z_]+))?)\s*"
)


@dataclass(frozen=True)
class Term:
    """`sign` times `number` of `unit`, or times the `property` of the object called `name`."""

    sign: int
    number: int = 0
    unit: str = ""
    name: str = ""
    property: str = ""


@dataclass(frozen=True)
class Quantity:
    """A sum of terms, with the text it was written as. Evaluates modulo 2^64, as C's size_t does."""

    text: str
    terms: tuple[Term, ...]

    def evaluate(self, page: int, hugepage: int, value_of: Callable[[str, str], int]) -> int:
        """The value in bytes; `value_of(name, property)` gives an object's property."""
        total = 0
        for term in self.terms:
            if term.name in CONSTANTS:
                total += term.sign * CONSTANTS[term.name]
            elif term.name:
                total += term.sign * value_of(term.name, term.property)
            elif term.unit in PAGES:
                total += term.sign * term.number * page
            elif term.unit in HUGE_PAGES:
                total += term.sign * term.number * hugepage
            else:
                total += term.sign * term.number * UNITS.get(term.unit, 1)
        return total % WRAP

    @property
    def names(self) -> list[tuple[str, str]]:
        """The objects' properties it rests on, as (name, property)."""
        return [(term.name, term.property) for term in self.terms if term.name and term.name not in CONSTANTS]


def parse(text: str | int) -> Quantity:
    """Reads a quantity. Raises ValueError with a sentence for people."""
    source = str(text)
    terms: list[Term] = []
    position = 0
    while position < len(source):
        match = _TERM.match(source, position)
        if not match or (terms and not match["sign"]):
            raise ValueError(f"{source!r} is not a sum of numbers, units and names (at {source[position:].strip()!r})")
        terms.append(_term(match))
        position = match.end()
    if not terms:
        raise ValueError("an empty quantity")
    return Quantity(source, tuple(terms))


def _term(match: re.Match[str]) -> Term:
    sign = -1 if match["sign"] == "-" else 1
    if match["name"]:
        return Term(sign, name=match["name"], property=match["property"] or "")
    unit = match["unit"] or ""
    if unit and unit not in UNITS and unit not in PAGES and unit not in HUGE_PAGES:
        raise ValueError(f"unknown unit {unit!r}; known: {', '.join([*UNITS, *sorted(PAGES), *sorted(HUGE_PAGES)])}")
    if len(match["number"]) > 20:
        raise ValueError("a number of more than 64 bits")
    return Term(sign, number=int(match["number"], 0), unit=unit)
