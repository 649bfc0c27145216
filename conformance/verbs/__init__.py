"""What each verb is: signature, structs, enumerations, flags and return codes, in few clear words.

The root of the suite: tables, judging and reports name things as they are named here. Data only; it
needs nothing but the standard library, and it neither loads a library nor opens a device. The
descriptions rest on the manual pages of rdma-core and are checked against an installed header by
`conformance.header`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from conformance.verbs import advise_mr, bind_mw, enums, reg_mr, rereg_mr, structs
from conformance.verbs.types import (
    EXPERIMENTAL,
    MAINLINE,
    Constant,
    Convention,
    Enum,
    EnumValue,
    Field,
    Linkage,
    Parameter,
    ReturnCode,
    Struct,
    Verb,
    declaration,
)

VERBS: Mapping[str, Verb] = MappingProxyType(
    {verb.name: verb for verb in (*reg_mr.ALL, rereg_mr.REREG_MR, advise_mr.ADVISE_MR, *bind_mw.ALL)}
)
ENUMS: Mapping[str, Enum] = MappingProxyType({enum.name: enum for enum in enums.ALL})
STRUCTS: Mapping[str, Struct] = MappingProxyType({struct.name: struct for struct in structs.ALL})
CONSTANTS: Mapping[str, Constant] = MappingProxyType({each.name: each for each in enums.CONSTANTS})
# The optional access flags, as a mask: a stack that does not know one of these bits ignores it.
OPTIONAL_ACCESS = enums.OPTIONAL_RANGE.value

# What only a vendor's page describes, apart from the rest so that no mainline table can name it.
VENDOR_VERBS: Mapping[str, Verb] = MappingProxyType({"ibv_rereg_mr": rereg_mr.EXPERIMENTAL_REREG_MR})
VENDOR_ENUMS: Mapping[str, Enum] = MappingProxyType({"ibv_access_flags": enums.EXPERIMENTAL_ACCESS_FLAGS})
VENDOR_STRUCTS: Mapping[str, Struct] = MappingProxyType({"ibv_rereg_mr_attr": structs.REREG_ATTR})


def dialects(name: str) -> tuple[str, ...]:
    """The dialects in which a verb is described, mainline first; empty for an unknown verb."""
    found = ((MAINLINE, VERBS), (EXPERIMENTAL, VENDOR_VERBS))
    return tuple(dialect for dialect, verbs in found if name in verbs)


def enum_in(dialect: str, name: str) -> Enum:
    """The enumeration as a dialect's document knows it; KeyError for an unknown one."""
    return VENDOR_ENUMS[name] if dialect == EXPERIMENTAL and name in VENDOR_ENUMS else ENUMS[name]


def structs_in(verb: Verb) -> tuple[Struct, ...]:
    """Every described struct a verb's arguments and result lead to, through pointers too, nearest first."""
    known = STRUCTS if verb.dialect == MAINLINE else {**STRUCTS, **VENDOR_STRUCTS}
    found: list[Struct] = []
    ctypes = [verb.returns, *(each.ctype for each in verb.parameters)]
    # The list grows while it is read, which makes the walk breadth-first: nearest structs come first.
    for ctype in ctypes:
        for name in re.findall(r"struct (\w+)", ctype):
            if name in known and known[name] not in found:
                found.append(known[name])
                ctypes += [field.ctype for field in known[name].fields]
    return tuple(found)


__all__ = [
    "CONSTANTS",
    "ENUMS",
    "EXPERIMENTAL",
    "MAINLINE",
    "OPTIONAL_ACCESS",
    "STRUCTS",
    "VENDOR_ENUMS",
    "VENDOR_STRUCTS",
    "VENDOR_VERBS",
    "VERBS",
    "Constant",
    "Convention",
    "Enum",
    "EnumValue",
    "Field",
    "Linkage",
    "Parameter",
    "ReturnCode",
    "Struct",
    "Verb",
    "declaration",
    "dialects",
    "enum_in",
    "structs_in",
]
