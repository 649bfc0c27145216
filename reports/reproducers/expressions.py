"""Converts quantities, flags and values of a case to expressions of C."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from conformance.model.case import Argument, Flags, Value
from conformance.model.quantity import HUGE_PAGES, PAGES, UNITS, Quantity, Term
from conformance.verbs import ENUMS, Enum

# The programs must compile with the header of this release of rdma-core; newer names are written as numbers.
_OLDEST_HEADER = 44
_UNITS: Mapping[str, str] = {"KiB": "10", "MiB": "20", "GiB": "30", "TiB": "40"}
# Words of C and of the programs, which cannot be the C names of a case's objects.
_TAKEN = frozenset(
    """
    all answer area argc argv bound calloc context copy count errno error exit free gid hugepage local main malloc
    memory move next own own_mr page pair parts printf puts rdma refused size status state stopped received sent
    handle earlier ended command method device violations wc auto break case char const continue default do double
    else enum extern float for goto if inline int long register return short signed sizeof static struct switch
    typedef union unsigned void volatile while
    """.split(),
)


def identifier(name: str) -> str:
    """Returns the C identifier of an object of a case."""
    if name in _TAKEN:
        return f"{name}_"
    return name


class Names:
    """The C expressions of the properties of a case's objects, by name and property. `pointers` has the C names of
    memory by name. The address of memory is a pointer in C."""

    def __init__(self) -> None:
        self.pointers: dict[str, str] = {}
        self._properties: dict[tuple[str, str], str] = {}

    def memory(self, name: str, size: str) -> None:
        """Adds memory; `size` is a C expression."""
        variable = identifier(name)
        self.pointers[name] = variable
        self._properties |= {(name, "size"): size, (name, "end"): f"{variable} + {size}"}

    def region(self, name: str, struct: str) -> None:
        """Adds a region. `struct` is the C expression of its struct ibv_mr, with `->` or a dot. A further call for a
        region replaces the expression."""
        self._properties |= {
            (name, field): f"{struct}{field}" for field in ("length", "lkey", "rkey")
        }
        self._properties |= {(name, field): f"(uintptr_t){struct}addr" for field in ("addr", "")}

    def old_keys(self, name: str, struct: str) -> None:
        """Sets the C expression, as in `region`, of the keys that a region or window had before the last call."""
        self._properties |= {(name, f"old_{key}"): f"{struct}{key}" for key in ("lkey", "rkey")}

    def value(self, name: str, of: str, text: str) -> None:
        self._properties[name, of] = text

    def of(self, name: str, property_: str) -> str:
        """Returns the C expression of a property that is a number. Raises KeyError."""
        return self._properties[name, property_]

    def pointer(self, quantity: Quantity) -> str:
        """Returns a quantity as an expression of a pointer type."""
        base = _base(quantity, self.pointers)
        if base is None:
            text = self.number(quantity)
            if text == "0":
                return "NULL"
            if _is_sum(text):
                return f"(void *)({text})"
            return f"(void *){text}"
        pointer = self.pointers[base.name] + (
            f" + {self.of(base.name, 'size')}" if base.property == "end" else ""
        )
        return _joined([pointer, *self._terms(quantity, base)])

    def number(self, quantity: Quantity) -> str:
        base = _base(quantity, self.pointers)
        if base is None:
            return _joined(self._terms(quantity)) or "0"
        pointer = self.pointer(quantity)
        if _is_sum(pointer):
            return f"(uintptr_t)({pointer})"
        return f"(uintptr_t){pointer}"

    def _terms(self, quantity: Quantity, without: Term | None = None) -> list[str]:
        texts = []
        for term in quantity.terms:
            if term is without:
                continue
            text = self._term(term)
            if text not in ("0", "-0"):
                texts.append(f"-{text}" if term.sign < 0 else text)
        return texts

    def _term(self, term: Term) -> str:
        if term.name == "SIZE_MAX":
            return "SIZE_MAX"
        if term.name in self.pointers and term.property in ("", "addr"):
            return f"(uintptr_t){self.pointers[term.name]}"
        if term.name:
            text = self.of(term.name, term.property)
            if _is_sum(text):
                return f"({text})"
            return text
        return _number(term)


def _number(term: Term) -> str:
    if not term.number:
        return "0"
    if term.unit in PAGES | HUGE_PAGES:
        if term.unit in PAGES:
            unit = "PAGE"
        else:
            unit = "hugepage"
        if term.number == 1:
            return unit
        return f"{term.number} * {unit}"
    if UNITS.get(term.unit, 1) > 1:
        return f"({term.number}ULL << {_UNITS[term.unit]})"
    if term.number >= 1 << 63:
        return f"{term.number:#x}ULL"
    if term.number > 1 << 20:
        return f"{term.number:#x}"
    return str(term.number)


def _base(quantity: Quantity, pointers: Collection[str]) -> Term | None:
    """Returns the term that is an address in memory; None without such a term, with several, or if it is subtracted."""
    bases = [
        term
        for term in quantity.terms
        if term.name in pointers and term.property in ("", "addr", "end")
    ]
    if len(bases) == 1 and bases[0].sign > 0:
        return bases[0]
    return None


def _joined(terms: list[str]) -> str:
    text = " + ".join(terms)
    return text.replace(" + -", " - ")


def _is_sum(text: str) -> bool:
    return " " in text


def text_of(enum: Enum, number: int, name: str) -> str:
    """Returns one value of an enumeration: the name or, if an older header lacks the name, the number."""
    value = enum.named(name)
    if value.since and int(value.since.partition(".")[0]) > _OLDEST_HEADER:
        return f"{number} /* {value.name} */"
    return value.name


def flags(argument: Argument, of: str) -> str:
    """Returns a mask as an OR of the names of an enumeration's flags."""
    assert isinstance(argument, Flags)
    enum = ENUMS[of]
    parts = []
    for name in argument.names:
        if name.startswith("bit "):
            parts.append(f"1U << {name[4:]}" if name == "bit 31" else f"1 << {name[4:]}")
        else:
            parts.append(text_of(enum, enum.value_of(name), name))
    return " | ".join(parts) or "0"


def value(argument: Argument, of: str) -> str:
    """Returns one value of an enumeration: the name or, if the value has no name, the number."""
    assert isinstance(argument, Value)
    enum = ENUMS[of]
    constants = [
        constant for constant in enum if constant.value == argument.number and not constant.mask
    ]
    if constants:
        return text_of(enum, argument.number, constants[0].name)
    return str(argument.number)
