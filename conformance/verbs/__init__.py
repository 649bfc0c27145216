"""Descriptions of the verbs: signatures, structs, enumerations, flags and return codes, as the documents define them.

Tables, judging and reports use the names defined here. The package loads no library under test and opens no device. The
descriptions are taken from the manual pages of rdma-core; `conformance.header` compares them with an installed header.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType

from conformance.verbs.descriptions import enums_of, read, structs_of, verbs_of
from conformance.verbs.types import EXPERIMENTAL as EXPERIMENTAL
from conformance.verbs.types import INT_BITS as INT_BITS
from conformance.verbs.types import MAINLINE as MAINLINE
from conformance.verbs.types import REGION as REGION
from conformance.verbs.types import ArgumentSpec as ArgumentSpec
from conformance.verbs.types import Constant as Constant
from conformance.verbs.types import Convention as Convention
from conformance.verbs.types import Enum as Enum
from conformance.verbs.types import EnumValue as EnumValue
from conformance.verbs.types import Field as Field
from conformance.verbs.types import Linkage as Linkage
from conformance.verbs.types import Parameter as Parameter
from conformance.verbs.types import ReturnCode as ReturnCode
from conformance.verbs.types import Struct as Struct
from conformance.verbs.types import Verb as Verb
from conformance.verbs.types import declaration as declaration

_READ = read()
ENUMS: Mapping[str, Enum] = MappingProxyType(enums_of(_READ["enums"]))
STRUCTS: Mapping[str, Struct] = MappingProxyType(structs_of(_READ["structs"]))
VERBS: Mapping[str, Verb] = MappingProxyType(verbs_of(_READ["verbs"], ENUMS))
# The optional access flags, as a mask, from <infiniband/verbs.h>. The kernel and libibverbs ignore unknown bits of this
# mask, and refuse unknown bits outside it.
OPTIONAL_ACCESS = 0x3FF00000
CONSTANTS: Mapping[str, Constant] = MappingProxyType(
    {
        each.name: each
        for each in (
            Constant("IBV_ACCESS_OPTIONAL_FIRST", 1 << 20, "lowest optional access flag", since="28"),
            Constant("IBV_ACCESS_OPTIONAL_RANGE", OPTIONAL_ACCESS, "bits 20 to 29, all optional", since="28"),
            Constant("IBV_SYSFS_NAME_MAX", 64, "size of a device name with its terminating zero, in bytes"),
            Constant("IBV_SYSFS_PATH_MAX", 256, "size of a sysfs path with its terminating zero, in bytes"),
        )
    }
)
INVENTED = "invented"  # in place of a dma handle, a pointer to memory that holds zeros

# Definitions that only a vendor's page has. They are separate, so that mainline tables cannot refer to them.
_VENDOR = _READ["vendor"]
VENDOR_ENUMS: Mapping[str, Enum] = MappingProxyType(enums_of(_VENDOR["enums"], EXPERIMENTAL, ENUMS))
VENDOR_STRUCTS: Mapping[str, Struct] = MappingProxyType(structs_of(_VENDOR["structs"], EXPERIMENTAL))
VENDOR_VERBS: Mapping[str, Verb] = MappingProxyType(verbs_of(_VENDOR["verbs"], VENDOR_ENUMS, EXPERIMENTAL))


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
