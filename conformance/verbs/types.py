"""The kinds of statement a verb's description is made of; all of them frozen.

Not for the statements themselves (see the modules of each page) and not for calling anything.
C types are written as abstract declarators, `struct ibv_mr *`, `char[64]` or `int (*)(struct ibv_mw *)`,
so that one string serves for people, for a declaration and for a comparison by the compiler.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum as ClosedSet

MAINLINE = "mainline"
EXPERIMENTAL = "experimental"


class Convention(ClosedSet):
    """How a verb tells success from failure; the value is the sentence for people."""

    POINTER_OR_NULL = "a pointer on success, NULL on failure with the reason in errno"
    ZERO_OR_ERRNO = "0 on success, the value of errno on failure"
    ZERO_OR_CODE = "0 on success, one code of an enumeration on failure"


class Linkage(ClosedSet):
    """How verbs.h provides a verb, which decides whether a foreign caller can look its symbol up."""

    EXPORTED = "a function that libibverbs exports"
    MACRO = "a macro over a function that libibverbs exports"
    INLINE = "an inline function of the header, dispatched through the context; no symbol to look up"


INT_BITS = 32  # of C's int, in which a call takes its flags


@dataclass(frozen=True)
class EnumValue:
    """One enumerator. `value` is None where the documents name it without a number.

    `mask` marks a combination of other enumerators, which is no choice of its own. `since` is the
    first rdma-core release whose verbs.h has it, empty if all of them do.
    """

    name: str
    value: int | None
    meaning: str
    since: str = ""
    mask: bool = False


@dataclass(frozen=True)
class Enum:
    """One enumeration of the API, with the prefix that its enumerators share.

    `flags` says that values are bits to be ORed. `alias_of` names the enumeration that verbs_api.h
    substitutes by a macro. A table uses the short name, the part after the prefix.
    """

    name: str
    prefix: str
    summary: str
    values: tuple[EnumValue, ...]
    flags: bool = False
    alias_of: str = ""
    dialect: str = MAINLINE
    document: str = "<infiniband/verbs.h>"

    def __iter__(self) -> Iterator[EnumValue]:
        return iter(self.values)

    def short(self, name: str) -> str:
        """The name as a table writes it, without the enumeration's prefix."""
        return name.removeprefix(self.prefix)

    @property
    def short_names(self) -> tuple[str, ...]:
        """The names a table may use, in the header's order; masks are left out."""
        return tuple(self.short(each.name) for each in self.values if not each.mask)

    def named(self, name: str) -> EnumValue:
        """The enumerator of a short or full name; KeyError if there is none."""
        for each in self.values:
            if name in (each.name, self.short(each.name)):
                return each
        raise KeyError(f"{self.name} has no {name}")

    def value_of(self, name: str) -> int:
        """The number of a short or full name; KeyError if unknown, or if no document gives a number."""
        value = self.named(name).value
        if value is None:
            raise KeyError(f"no document gives {self.prefix}{self.short(name)} a number")
        return value

    def mask_of(self, *names: str) -> int:
        """The OR of several short or full names; KeyError as for `value_of`."""
        mask = 0
        for name in names:
            mask |= self.value_of(name)
        return mask

    @property
    def unnamed_bits(self) -> tuple[int, ...]:
        """The numbers of the bits of a C int that no enumerator has, lowest first; of an enumeration of flags."""
        named = {each.value for each in self.values}
        return tuple(bit for bit in range(INT_BITS) if 1 << bit not in named)

    def names_of(self, mask: int) -> list[str]:
        """Short names of the set bits in order of value, then one "0x…" with the bits nobody named."""
        # A C int with its top bit set arrives as a negative number; people read its 32 bits.
        bits = mask & 0xFFFFFFFF if mask < 0 else mask
        known = {each.value: each.name for each in self.values if each.value is not None and not each.mask}
        names = [self.short(known[bit]) for bit in sorted(known) if bits & bit]
        rest = bits & ~sum(known)
        return [*names, hex(rest)] if rest else names

    def name_of(self, value: int) -> str:
        """Short name of one value of an enumeration that is not of flags, or the number as text."""
        for each in self.values:
            if each.value == value:
                return self.short(each.name)
        return str(value)


@dataclass(frozen=True)
class Constant:
    """One number of the API that is no member of a described enumeration."""

    name: str
    value: int
    meaning: str
    since: str = ""


@dataclass(frozen=True)
class Field:
    """One field of a struct. `enum` names the enumeration its values come from, even where C says int.

    `allowed` are the short names the page permits there, empty if it permits all. `discrepancy`
    tells where the documents differ from each other.
    """

    name: str
    ctype: str
    meaning: str
    enum: str = ""
    allowed: tuple[str, ...] = ()
    discrepancy: str = ""


@dataclass(frozen=True)
class Struct:
    """One struct of the API with its fields in the order of memory."""

    name: str
    summary: str
    fields: tuple[Field, ...]
    dialect: str = MAINLINE

    def field(self, name: str) -> Field:
        """The field of that name; KeyError if there is none."""
        for each in self.fields:
            if each.name == name:
                return each
        raise KeyError(f"struct {self.name} has no field {name}")


@dataclass(frozen=True)
class Parameter:
    """One argument. `enum`, `allowed` and `discrepancy` as for a field; `unit` of plain numbers.

    Of an object passed by pointer, `enum` and `allowed` restrict the object's type.
    """

    name: str
    ctype: str
    meaning: str
    enum: str = ""
    allowed: tuple[str, ...] = ()
    discrepancy: str = ""
    unit: str = ""


@dataclass(frozen=True)
class ReturnCode:
    """One documented failure: its name, its number here, each cause the page lists.

    `leaves` says in what state the object is left, where the page says so.
    """

    name: str
    value: int
    causes: tuple[str, ...]
    leaves: str = ""

    @property
    def meaning(self) -> str:
        return "; or ".join(self.causes)


@dataclass(frozen=True)
class Verb:
    """One verb as its manual page promises it.

    `return_codes` is empty where the page leaves the reasons of failure open; then any errno
    conforms. `notes` are promises that belong to no single argument, `discrepancies` are places
    where the documents contradict themselves, each other, or the header.
    """

    name: str
    summary: str
    returns: str
    parameters: tuple[Parameter, ...]
    convention: Convention
    success: str
    failure: str
    document: str
    linkage: Linkage
    return_codes: tuple[ReturnCode, ...] = ()
    code_enum: str = ""
    notes: tuple[str, ...] = ()
    discrepancies: tuple[str, ...] = ()
    dialect: str = MAINLINE
    since: str = ""

    @property
    def codes(self) -> dict[str, ReturnCode]:
        """Documented failures by name (`"EFAULT" in verb.codes`), empty if the page leaves them open."""
        return {code.name: code for code in self.return_codes}

    def parameter(self, name: str) -> Parameter:
        """The argument of that name; KeyError if there is none."""
        for each in self.parameters:
            if each.name == name:
                return each
        raise KeyError(f"{self.name} has no parameter {name}")

    @property
    def function_type(self) -> str:
        """The C type of the function, `int (struct ibv_mr *)`."""
        return f"{self.returns} ({', '.join(each.ctype for each in self.parameters)})"

    @property
    def signature(self) -> str:
        """The C prototype on one line."""
        arguments = ", ".join(declaration(each.ctype, each.name) for each in self.parameters)
        return f"{declaration(self.returns, self.name)}({arguments})"


def declaration(ctype: str, name: str) -> str:
    """The C declaration of `name` with an abstract type: `int (*)(void)` and f give `int (*f)(void)`."""
    if "(*)" in ctype:
        return ctype.replace("(*)", f"(*{name})", 1)
    if ctype.endswith("]"):
        base, bracket, bounds = ctype.partition("[")
        return f"{base} {name}{bracket}{bounds}"
    return f"{ctype}{name}" if ctype.endswith("*") else f"{ctype} {name}"
