"""Defines the frozen types for descriptions of verbs. The descriptions are YAML files in this folder. A C type is
written as an abstract declarator, such as `struct ibv_mr *`, `char[64]` or `int (*)(struct ibv_mw *)`. This text is
shown, used in declarations, and compared by the compiler."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum as ClosedSet
from functools import cached_property

MAINLINE = "mainline"
EXPERIMENTAL = "experimental"


class Convention(ClosedSet):
    """How a verb indicates success and failure; the value is the text for the user."""

    POINTER_OR_NULL = "a pointer on success, NULL on failure with the reason in errno"
    ZERO_OR_ERRNO = "0 on success, the value of errno on failure"
    FD_OR_MINUS_ONE = "a file descriptor on success, -1 on failure with the reason in errno"
    ZERO_OR_CODE = "0 on success, one code of an enumeration on failure"


class Linkage(ClosedSet):
    """The form of a verb in verbs.h. A program in a language other than C can call only an exported function."""

    EXPORTED = "a function that libibverbs exports"
    MACRO = "a macro over a function that libibverbs exports"
    INLINE = "an inline function of the header, which calls a function pointer of the context; there is no symbol"


INT_BITS = 32  # the size of the C type int, which is the type of flags
_OPTIONAL_FROM = 20  # the first bit of IBV_ACCESS_OPTIONAL_RANGE


@dataclass(frozen=True)
class EnumValue:
    name: str
    value: int | None  # None: no document gives the number
    meaning: str
    # the first rdma-core release whose verbs.h has the enumerator; empty: all releases
    since: str = ""
    mask: bool = False  # a combination of other enumerators, not a separate value
    needs: str = ""  # the capability without which a device may refuse an access flag; empty: none


@dataclass(frozen=True)
class Enum:
    """One enumeration. Tables use the short name of an enumerator, which is the part after the common prefix."""

    name: str
    prefix: str
    summary: str
    values: tuple[EnumValue, ...]
    flags: bool = False  # the values are bits to be ORed
    alias_of: str = ""  # the enumeration by which a macro of verbs_api.h replaces this enumeration
    dialect: str = MAINLINE
    document: str = "<infiniband/verbs.h>"

    def __iter__(self) -> Iterator[EnumValue]:
        return iter(self.values)

    def short(self, name: str) -> str:
        """Returns the name without the prefix of the enumeration, as in tables."""
        return name.removeprefix(self.prefix)

    @property
    def short_names(self) -> tuple[str, ...]:
        """The names that a table may use, in the order of the header, without masks."""
        return tuple(self.short(constant.name) for constant in self.values if not constant.mask)

    def named(self, name: str) -> EnumValue:
        """Returns the enumerator with a short or full name. Raises KeyError if there is none."""
        if name not in self._by_name:
            raise KeyError(f"{self.name} has no {name}")
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> Mapping[str, EnumValue]:
        return {
            name: constant
            for constant in reversed(self.values)
            for name in (constant.name, self.short(constant.name))
        }

    def value_of(self, name: str) -> int:
        """Returns the number of a short or full name. Raises KeyError if the name is unknown or has no number."""
        value = self.named(name).value
        if value is None:
            raise KeyError(f"no document gives {self.prefix}{self.short(name)} a number")
        return value

    def mask_of(self, *names: str) -> int:
        """Returns the OR of the numbers of several names. Raises KeyError as `value_of` does."""
        return functools.reduce(operator.or_, map(self.value_of, names), 0)

    @property
    def unnamed_bits(self) -> tuple[int, ...]:
        """For an enumeration of flags: the numbers of the bits of a C int that no enumerator has, the lowest first."""
        named = {constant.value for constant in self.values}
        return tuple(bit for bit in range(INT_BITS) if 1 << bit not in named)

    @property
    def unknown_bit(self) -> int:
        """For an enumeration of flags: the highest bit below the optional flags that no enumerator has. A stack must
        refuse such a bit. The highest bit is used because new flags are given the lowest free bits."""
        return max(bit for bit in self.unnamed_bits if bit < _OPTIONAL_FROM)

    def names_of(self, mask: int) -> list[str]:
        """Returns the short names of the set bits in order of value, and then one text "0x…" for all unnamed bits."""
        # A C int whose highest bit is set is a negative number in Python.
        if mask < 0:
            bits = mask & 0xFFFFFFFF
        else:
            bits = mask
        names_here = {
            constant.value: constant.name
            for constant in self.values
            if constant.value is not None and not constant.mask
        }
        names = [self.short(names_here[bit]) for bit in sorted(names_here) if bits & bit]
        rest = bits & ~sum(names_here)
        if rest:
            return [*names, hex(rest)]
        return names

    def name_of(self, value: int) -> str:
        """Returns the short name of a value, or the number as a text if the value has no name."""
        return next(
            (self.short(constant.name) for constant in self.values if constant.value == value),
            str(value),
        )


@dataclass(frozen=True)
class Constant:
    """One number of the API that is not an enumerator of a described enumeration."""

    name: str
    value: int
    meaning: str
    since: str = ""


@dataclass(frozen=True)
class Field:
    name: str
    ctype: str
    meaning: str
    enum: str = ""  # the enumeration of the field's values, even if the C type is int
    allowed: tuple[str, ...] = ()  # the short names that the page allows for this field; empty: all
    discrepancy: str = ""  # how the documents differ from each other


@dataclass(frozen=True)
class Struct:
    """One struct of the API, with its fields in the order of their offsets."""

    name: str
    summary: str
    fields: tuple[Field, ...]
    dialect: str = MAINLINE


# The kind of object to which a pointer type points, as tables name this kind.
OBJECTS: Mapping[str, str] = {
    "struct ibv_pd *": "pd",
    "struct ibv_mr *": "mr",
    "struct ibv_mw *": "window",
    "struct ibv_qp *": "qp",
    "struct ibv_buf *": "buffer",
    "struct ibv_dm *": "dm",
    "struct ibv_dmah *": "dmah",
    "struct ibv_td *": "td",
}
# The names of default objects in tables. For all other kinds, the default object has the name of its kind.
_USUAL = {
    "window": "mw",
    "buffer": "new_buffer",
    "dm": "new_dm",
    "dmah": "new_dmah",
    "td": "new_td",
}
# The kind of the object that a verb of this return type creates, and the object's name in later steps.
REGION = ("mr", "new")
_PRODUCTS = {
    "struct ibv_mr *": REGION,
    "struct ibv_mw *": ("window", "new_mw"),
    "struct ibv_pd *": ("pd", "new_pd"),
    "void *": ("buffer", "new_buffer"),
    "struct ibv_dm *": ("dm", "new_dm"),
    "struct ibv_dmah *": ("dmah", "new_dmah"),
    "struct ibv_td *": ("td", "new_td"),
}


@dataclass(frozen=True)
class ArgumentSpec:
    """One argument of a call in tables.

    The kinds are `object` (the name of an object of the kind `of`: `pd`, `mr`, …), `quantity` (see quantity.py),
    `flags` (a list of names from the enumeration `of`), `value` (one name from the enumeration `of`, or a number),
    `word` (one of `words`; `of` is a noun for messages), `sges` (a list of `addr`, `length` and `lkey`), and `script`
    (a list of events; model/script.py).
    """

    kind: str
    of: str = ""
    # the value if a table leaves the argument out; None: the argument is mandatory
    default: str | None = None
    words: tuple[str, ...] = ()
    nullable: bool = False  # whether NULL can be given in place of an object


@dataclass(frozen=True)
class Parameter:
    """One parameter of a C function. `enum`, `allowed` and `discrepancy` have the same meaning as in Field. For a queue
    pair or a window, `enum` and `allowed` restrict the QP type or window type. The C type determines the form of the
    argument in tables; `default` and `nullable` have the same meaning as in ArgumentSpec."""

    name: str
    ctype: str
    meaning: str
    enum: str = ""
    allowed: tuple[str, ...] = ()
    discrepancy: str = ""
    unit: str = ""  # the unit of a number
    default: str | None = None
    nullable: bool = False
    table: ArgumentSpec | None = None  # the form in tables, if it does not follow from the C type
    written_as: tuple[Parameter, ...] = ()  # the arguments in tables that replace a struct
    implied: bool = False  # whether tables omit the argument

    @property
    def arguments(self) -> dict[str, ArgumentSpec]:
        """The arguments in tables, by name."""
        if self.written_as:
            return {name: spec for pair in self.written_as for name, spec in pair.arguments.items()}
        if self.implied:
            return {}
        return {self.name: self.table or self._form}

    @property
    def _form(self) -> ArgumentSpec:
        if self.ctype in OBJECTS:
            kind = OBJECTS[self.ctype]
            return ArgumentSpec(
                "object",
                kind,
                self.default or _USUAL.get(kind, kind),
                nullable=self.nullable,
            )
        if self.ctype == "struct ibv_sge *":
            return ArgumentSpec("sges")
        if self.enum:
            return ArgumentSpec(
                "value" if self.ctype.startswith("enum ") else "flags",
                self.enum,
                self.default,
            )
        return ArgumentSpec("quantity", default=self.default)


@dataclass(frozen=True)
class ReturnCode:
    """One documented failure, with the causes that the page lists."""

    name: str
    value: int  # the number on this system
    causes: tuple[str, ...]
    leaves: str = ""  # the state of the object after the failure, if the page defines it

    @property
    def meaning(self) -> str:
        return "; or ".join(self.causes)


@dataclass(frozen=True)
class Verb:
    """One verb as its manual page defines it."""

    name: str
    summary: str
    returns: str
    parameters: tuple[Parameter, ...]
    convention: Convention
    success: str
    failure: str
    document: str
    linkage: Linkage
    return_codes: tuple[ReturnCode, ...] = ()  # empty: the page lists none, and any errno conforms
    code_enum: str = ""
    notes: tuple[str, ...] = ()  # statements that do not concern only one argument
    # contradictions within or between documents, or with the header
    discrepancies: tuple[str, ...] = ()
    dialect: str = MAINLINE
    since: str = ""
    command: str = ""  # the kernel's command (ib_uverbs_write_cmds, uverbs_methods_mr); empty: the suite calls none
    only_in_tables: tuple[Parameter, ...] = ()  # arguments besides those of the prototype
    # whether the verb destroys an object that is neither a region nor a window
    destroys: bool = False

    @property
    def method(self) -> str:
        """The name of the verb's method at an entry, such as `reg_mr`."""
        return self.name.removeprefix("ibv_")

    @property
    def arguments(self) -> dict[str, ArgumentSpec]:
        """The arguments in tables, by name, in the order of the prototype."""
        parameters = (*self.parameters, *self.only_in_tables)
        return {
            name: spec for parameter in parameters for name, spec in parameter.arguments.items()
        }

    @property
    def product(self) -> tuple[str, str] | None:
        """The kind of the object that the verb creates, and its name in later steps; None if it creates no object."""
        return _PRODUCTS.get(self.returns)

    @property
    def leaves_objects(self) -> bool:
        """Whether the verb changes no existing region, window or queue pair. The verb may create an object."""
        used = {spec.of for spec in self.arguments.values() if spec.kind == "object"}
        return not self.destroys and not used & {"mr", "window", "qp"}

    @property
    def codes(self) -> dict[str, ReturnCode]:
        """The documented failures by name (`"EFAULT" in verb.codes`); empty if the page does not list failures."""
        return {code.name: code for code in self.return_codes}

    @property
    def function_type(self) -> str:
        """The C type of the function, such as `int (struct ibv_mr *)`."""
        return f"{self.returns} ({', '.join(parameter.ctype for parameter in self.parameters)})"

    @property
    def signature(self) -> str:
        """The C prototype on one line."""
        arguments = ", ".join(
            declaration(parameter.ctype, parameter.name) for parameter in self.parameters
        )
        return f"{declaration(self.returns, self.name)}({arguments})"


def declaration(ctype: str, name: str) -> str:
    """Returns the C declaration of `name` with an abstract type, such as `int (*f)(void)` for f and `int (*)(void)`."""
    if "(*)" in ctype:
        return ctype.replace("(*)", f"(*{name})", 1)
    if ctype.endswith("]"):
        base, bracket, bounds = ctype.partition("[")
        return f"{base} {name}{bracket}{bounds}"
    if ctype.endswith("*"):
        return f"{ctype}{name}"
    return f"{ctype} {name}"
