"""Parses addresses, lengths and keys in the notation of tables: `buf + 1 page`, `buf.size + 1`, `64 KiB`, `SIZE_MAX`.

A quantity is a sum of terms. A term is a number with an optional unit, a constant, or a property of an object. Page
sizes depend on the machine, so a quantity is evaluated when a case runs, not when its table is read.
tables/arguments.py checks that the objects exist.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass

from conformance.yamldoc.nodes import MAX_NUMBER, quoted
from conformance.yamldoc.reader import suggestion

UNITS = {"byte": 1, "bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
PAGES = {"page", "pages"}
HUGE_PAGES = {"hugepage", "hugepages"}
CONSTANTS = {"SIZE_MAX": (1 << 64) - 1}
PROPERTIES = {
    "memory": ("addr", "size", "end"),
    "mr": ("addr", "length", "lkey", "rkey", "old_lkey", "old_rkey"),
    "dmabuf": ("addr", "size", "end"),
    "buffer": ("addr", "size", "end"),
    "window": ("rkey", "old_rkey"),
    "region of another process": ("lkey", "rkey", "window"),
}
WRAP = 1 << 64
# Words that cannot be names of objects, because they are constants or units.
RESERVED = frozenset({*CONSTANTS, *UNITS, *PAGES, *HUGE_PAGES})
_SMALLEST_PAGE = 4096

_TERM = re.compile(
    r"\s*(?P<sign>[-+])?\s*(?P<own>[-+])?\s*(?:(?P<number>0x[0-9a-fA-F]+|[0-9]+)(?:\s*(?P<unit>[A-Za-z]+))?"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?:\.(?P<property>[a-z_]+))?)\s*",
)


@dataclass(frozen=True)
class Term:
    """One term: `number` of `unit`, or the `property` of the object `name`."""

    sign: int  # 1 or -1
    number: int = 0
    unit: str = ""
    name: str = ""
    property: str = ""


@dataclass(frozen=True)
class Quantity:
    """A sum of terms. Arithmetic is modulo 2^64, like that of size_t in C."""

    text: str  # as in the table
    terms: tuple[Term, ...]

    def evaluate(self, page: int, hugepage: int, value_of: Callable[[str, str], int]) -> int:
        """Returns the value. `page` and `hugepage` are sizes in bytes. `value_of(name, property)` returns the value of
        an object's property."""
        pages, hugepages, total, named = self._sum
        total += pages * page + hugepages * hugepage
        for term in named:
            total += term.sign * value_of(term.name, term.property)
        return total % WRAP

    @functools.cached_property
    def _sum(self) -> tuple[int, int, int, tuple[Term, ...]]:
        """The sums of pages, of huge pages and of other numbers, and the terms that name objects. Cached for sweeps."""
        pages = sum(term.sign * term.number for term in self.terms if term.unit in PAGES)
        hugepages = sum(term.sign * term.number for term in self.terms if term.unit in HUGE_PAGES)
        named = tuple(term for term in self.terms if term.name and term.name not in CONSTANTS)
        rest = [
            term for term in self.terms if term not in named and term.unit not in PAGES | HUGE_PAGES
        ]
        fixed = sum(
            term.sign * CONSTANTS.get(term.name, term.number * UNITS.get(term.unit, 1))
            for term in rest
        )
        return pages, hugepages, fixed, named

    @property
    def constant(self) -> int | None:
        """The value, not wrapped and with pages of 4 KiB; None if it depends on an object."""
        pages, hugepages, fixed, named = self._sum
        if named:
            return None
        return (pages + hugepages) * _SMALLEST_PAGE + fixed

    @property
    def names(self) -> list[tuple[str, str]]:
        """The properties of objects in the sum, each as (name, property)."""
        return [(term.name, term.property) for term in self._sum[3]]


@functools.lru_cache(maxsize=4096, typed=True)
def parse(text: str | int) -> Quantity:
    """Returns the quantity that a text or number describes. Raises ValueError with a message for the user."""
    source = str(text)
    terms: list[Term] = []
    position = 0
    while position < len(source):
        match = _TERM.match(source, position)
        # A term after the first may be negative, as in `buf + -1`, because axis values may be negative.
        if not match or (terms and not match["sign"]) or (not terms and match["own"]):
            rest = source[position:].strip()
            if rest:
                where = f"at {quoted(rest)}"
            else:
                where = "it is blank"
            raise ValueError(f"{quoted(source)} is not a sum of numbers, units and names ({where})")
        terms.append(_term(match))
        position = match.end()
    if not terms:
        raise ValueError("an empty quantity")
    return Quantity(source, tuple(terms))


def _term(match: re.Match[str]) -> Term:
    if (match["sign"] == "-") != (match["own"] == "-"):
        sign = -1
    else:
        sign = 1
    if match["name"]:
        return _named_term(sign, match["name"], match["property"] or "")
    unit, digits = match["unit"] or "", match["number"]
    units = [*UNITS, *sorted(PAGES), *sorted(HUGE_PAGES)]
    if unit and unit not in units:
        raise ValueError(f"unknown unit {quoted(unit)}{suggestion(unit, units)}")
    if len(digits) > 1 and digits[0] == "0" and not digits.startswith("0x"):
        raise ValueError(
            f"{quoted(digits)} begins with 0, which some programs read as octal; write it without the leading 0",
        )
    # A number of more than 20 digits exceeds 64 bits in both notations. It is not converted, because the conversion of
    # a very long text is slow.
    if len(digits) <= 20:
        number = int(digits, 0)
    else:
        number = MAX_NUMBER + 1
    if unit in PAGES | HUGE_PAGES:
        factor = _SMALLEST_PAGE
    else:
        factor = UNITS.get(unit, 1)
    if number * factor > MAX_NUMBER:
        raise ValueError("a number of more than 64 bits")
    return Term(sign, number=number, unit=unit)


def _named_term(sign: int, name: str, property_: str) -> Term:
    if name in CONSTANTS and property_:
        raise ValueError(f"{name} is a constant and has no property {property_!r}")
    if name in RESERVED and name not in CONSTANTS:
        raise ValueError(f"{name!r} is a unit and needs a number, such as 1 {name}")
    return Term(sign, name=name, property=property_)
