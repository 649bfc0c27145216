"""Descriptions of the verbs: signatures, structs, enumerations, flags and return codes, as the documents define them.

Tables, judging and reports use the names defined here. The package needs only the standard library, loads no other
library and opens no device. The descriptions are taken from the manual pages of rdma-core; `conformance.header`
compares them with an installed header.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType

from conformance.verbs import advise_mr, bind_mw, buffers, dm, dmah, enums, made_otherwise, reg_mr, rereg_mr, structs
from conformance.verbs.forms import REGION, arguments_of, leaves_objects, product_of
from conformance.verbs.types import (
    EXPERIMENTAL,
    INT_BITS,
    MAINLINE,
    ArgumentSpec,
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
    {
        verb.name: verb
        for verb in (
            *reg_mr.ALL,
            rereg_mr.REREG_MR,
            advise_mr.ADVISE_MR,
            *bind_mw.ALL,
            *buffers.ALL,
            made_otherwise.DEALLOC_PD,
            *made_otherwise.ALL,
            *dm.ALL,
            *dmah.ALL,
        )
    }
)
ENUMS: Mapping[str, Enum] = MappingProxyType({enum.name: enum for enum in enums.ALL})
STRUCTS: Mapping[str, Struct] = MappingProxyType({struct.name: struct for struct in structs.ALL})
CONSTANTS: Mapping[str, Constant] = MappingProxyType({each.name: each for each in enums.CONSTANTS})
# The optional access flags, as a mask. A stack ignores the bits of this mask that it does not know.
OPTIONAL_ACCESS = enums.OPTIONAL_RANGE.value

# Definitions that only a vendor's page has. They are separate, so that mainline tables cannot refer to them.
VENDOR_VERBS: Mapping[str, Verb] = MappingProxyType({"ibv_rereg_mr": rereg_mr.EXPERIMENTAL_REREG_MR})
VENDOR_ENUMS: Mapping[str, Enum] = MappingProxyType({"ibv_access_flags": enums.EXPERIMENTAL_ACCESS_FLAGS})
VENDOR_STRUCTS: Mapping[str, Struct] = MappingProxyType({"ibv_rereg_mr_attr": structs.REREG_ATTR})


def dialects(name: str) -> tuple[str, ...]:
    """Returns the dialects in which a verb is described, mainline first; empty for an unknown verb."""
    found = ((MAINLINE, VERBS), (EXPERIMENTAL, VENDOR_VERBS))
    return tuple(dialect for dialect, verbs in found if name in verbs)


def of_method(name: str) -> Verb:
    """Returns the verb of an entry's method, such as `reg_mr`. Raises AttributeError for an unknown name."""
    if f"ibv_{name}" not in VERBS:
        raise AttributeError(f"no verb ibv_{name}")
    return VERBS[f"ibv_{name}"]


def enum_in(dialect: str, name: str) -> Enum:
    """Returns an enumeration as the document of a dialect defines it. Raises KeyError for an unknown name."""
    return VENDOR_ENUMS[name] if dialect == EXPERIMENTAL and name in VENDOR_ENUMS else ENUMS[name]


def structs_in(verb: Verb) -> tuple[Struct, ...]:
    """Returns the described structs in a verb's arguments and result, and those that they point to, the nearest
    first."""
    known = STRUCTS if verb.dialect == MAINLINE else {**STRUCTS, **VENDOR_STRUCTS}
    found: list[Struct] = []
    ctypes = [verb.returns, *(each.ctype for each in verb.parameters)]
    # The list grows during the iteration. This is a breadth-first search, so that the nearest structs come first.
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
    "INT_BITS",
    "MAINLINE",
    "OPTIONAL_ACCESS",
    "REGION",
    "STRUCTS",
    "VENDOR_ENUMS",
    "VENDOR_STRUCTS",
    "VENDOR_VERBS",
    "VERBS",
    "ArgumentSpec",
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
    "arguments_of",
    "declaration",
    "dialects",
    "enum_in",
    "leaves_objects",
    "of_method",
    "product_of",
    "structs_in",
]
