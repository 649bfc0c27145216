"""Describes the verbs: signatures, structs, enumerations, flags and return codes, as the documents define them.

Tables, judging and reports use the names defined here. The package loads no library under test and opens no device. The
descriptions are taken from the manual pages of rdma-core; `conformance.header` compares them with an installed header.

The descriptions are YAML files in this folder. An enumerator, field or parameter is a list: the required attributes by
position, and then an optional mapping with further attributes. Every number is read as a text, except the number of an
enumerator.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from conformance import cache
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


def _read() -> dict[str, Any]:
    """Returns the contents of the files, by name without suffix. They are cached, because every process needs them."""
    contents = {
        path.stem: path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.yaml"))
    }
    name = f"descriptions-{cache.digest_of(contents.values())}.json"
    if recalled := cache.recalled(name):
        return dict(recalled)
    from conformance.yamldoc.nodes import plain  # imported late: only the first process reads YAML
    from conformance.yamldoc.parsing import read_bytes

    descriptions = {
        stem: plain(read_bytes(content, f"{stem}.yaml")) for stem, content in contents.items()
    }
    cache.store(name, json.dumps(descriptions).encode())
    return descriptions


def _enums_of(
    entries: Mapping[str, Any],
    dialect: str = MAINLINE,
    mainline: Mapping[str, Enum] | None = None,
) -> dict[str, Enum]:
    """Returns the enumerations by name. Each begins with the enumerators of the mainline enumeration of this name."""
    return {
        name: _enum(name, more, dialect, (mainline or {}).get(name, ()))
        for name, more in entries.items()
    }


def _enum(name: str, more: dict[str, Any], dialect: str, begin: Iterable[EnumValue]) -> Enum:
    values = (
        EnumValue(f"{more['prefix']}{short}", number, meaning, **_texts(*further))
        for short, (number, meaning, *further) in more["values"].items()
    )
    return Enum(name, **{**more, "values": (*begin, *values)}, dialect=dialect)


def _structs_of(entries: Mapping[str, Any], dialect: str = MAINLINE) -> dict[str, Struct]:
    return {
        name: Struct(name, more["summary"], tuple(_fields(more.get("fields", {}))), dialect)
        for name, more in entries.items()
    }


def _fields(entries: Mapping[str, Any]) -> Iterator[Field]:
    for names, (ctype, meaning, *further) in entries.items():
        yield from (Field(name, ctype, meaning, **_texts(*further)) for name in names.split())


def _verbs_of(
    entries: Mapping[str, Any],
    enums: Mapping[str, Enum],
    dialect: str = MAINLINE,
) -> dict[str, Verb]:
    return {name: _verb(name, _texts(more), enums, dialect) for name, more in entries.items()}


def _verb(name: str, more: dict[str, Any], enums: Mapping[str, Enum], dialect: str) -> Verb:
    if more["returns"].endswith("*"):
        usual = "POINTER_OR_NULL"
    else:
        usual = "ZERO_OR_ERRNO"
    more["convention"] = Convention[more.get("convention", usual)]
    more["linkage"] = Linkage[more["linkage"]]
    for key in ("parameters", "only_in_tables"):
        more[key] = _parameters(more.get(key, {}))
    codes = more.get("return_codes", {}).items()
    more["return_codes"] = tuple(
        _code(code, causes, enums.get(more.get("code_enum", ""))) for code, causes in codes
    )
    return Verb(name, dialect=dialect, **more)


def _parameters(entries: Mapping[str, Any]) -> tuple[Parameter, ...]:
    return tuple(
        _parameter(name, ctype, meaning, *more) for name, (ctype, meaning, *more) in entries.items()
    )


def _parameter(
    name: str,
    ctype: str,
    meaning: str,
    further: Mapping[str, Any] | None = None,
) -> Parameter:
    more = _texts(further or {})
    if "table" in more:
        more["table"] = ArgumentSpec(**_texts(more["table"]))
    more["written_as"] = _parameters(more.get("written_as", {}))
    return Parameter(name, ctype, meaning, **more)


def _code(name: str, entries: list[Any], codes: Enum | None) -> ReturnCode:
    if codes:
        value = codes.value_of(name)
    else:
        value = getattr(errno, name)
    causes = tuple(value for value in entries if isinstance(value, str))
    return ReturnCode(name, value, causes, **dict(*entries[len(causes) :]))


def _texts(entries: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Returns fields by name, with tuples for lists and texts for numbers."""
    return {key: _text(value) for key, value in (entries or {}).items()}


def _text(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_text, value))
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value


_READ = _read()
ENUMS: Mapping[str, Enum] = MappingProxyType(_enums_of(_READ["enums"]))
STRUCTS: Mapping[str, Struct] = MappingProxyType(_structs_of(_READ["structs"]))
VERBS: Mapping[str, Verb] = MappingProxyType(_verbs_of(_READ["verbs"], ENUMS))
# The optional access flags, as a mask, from <infiniband/verbs.h>. The kernel and libibverbs ignore unknown bits in this
# mask, and refuse all other unknown bits.
OPTIONAL_ACCESS = 0x3FF00000
CONSTANTS: Mapping[str, Constant] = MappingProxyType(
    {
        constant.name: constant
        for constant in (
            Constant(
                "IBV_ACCESS_OPTIONAL_FIRST",
                1 << 20,
                "lowest optional access flag",
                since="28",
            ),
            Constant(
                "IBV_ACCESS_OPTIONAL_RANGE",
                OPTIONAL_ACCESS,
                "bits 20 to 29, all optional",
                since="28",
            ),
            Constant(
                "IBV_SYSFS_NAME_MAX",
                64,
                "size of a device name with its terminating zero, in bytes",
            ),
            Constant(
                "IBV_SYSFS_PATH_MAX",
                256,
                "size of a sysfs path with its terminating zero, in bytes",
            ),
        )
    },
)
INVENTED = "invented"  # in tables, the word for a pointer to zeros in place of a dma handle

# Definitions that only a vendor's page has. They are separate, so that mainline tables cannot refer to them.
_VENDOR = _READ["vendor"]
VENDOR_ENUMS: Mapping[str, Enum] = MappingProxyType(
    _enums_of(_VENDOR["enums"], EXPERIMENTAL, ENUMS),
)
VENDOR_STRUCTS: Mapping[str, Struct] = MappingProxyType(
    _structs_of(_VENDOR["structs"], EXPERIMENTAL),
)
VENDOR_VERBS: Mapping[str, Verb] = MappingProxyType(
    _verbs_of(_VENDOR["verbs"], VENDOR_ENUMS, EXPERIMENTAL),
)


def dialects(name: str) -> tuple[str, ...]:
    """Returns the dialects in which a verb is described, mainline first; empty for an unknown verb."""
    verbs_of_dialect = ((MAINLINE, VERBS), (EXPERIMENTAL, VENDOR_VERBS))
    return tuple(dialect for dialect, verbs in verbs_of_dialect if name in verbs)


def of_method(name: str) -> Verb:
    """Returns the verb of an entry's method, such as `reg_mr`. Raises AttributeError for an unknown name."""
    if f"ibv_{name}" not in VERBS:
        raise AttributeError(f"no verb ibv_{name}")
    return VERBS[f"ibv_{name}"]


def enum_in(dialect: str, name: str) -> Enum:
    """Returns an enumeration as the document of a dialect defines it. Raises KeyError for an unknown name."""
    if dialect == EXPERIMENTAL and name in VENDOR_ENUMS:
        return VENDOR_ENUMS[name]
    return ENUMS[name]


def structs_in(verb: Verb) -> tuple[Struct, ...]:
    """Returns the described structs in a verb's arguments and result, and the structs in the fields of these structs,
    the nearest first."""
    if verb.dialect == MAINLINE:
        structs_of_dialect = STRUCTS
    else:
        structs_of_dialect = {**STRUCTS, **VENDOR_STRUCTS}
    structs: list[Struct] = []
    ctypes = [verb.returns, *(parameter.ctype for parameter in verb.parameters)]
    # The list grows during the iteration. This is a breadth-first search, so that the nearest structs come first.
    for ctype in ctypes:
        for name in re.findall(r"struct (\w+)", ctype):
            if name in structs_of_dialect and structs_of_dialect[name] not in structs:
                structs.append(structs_of_dialect[name])
                ctypes += [field.ctype for field in structs_of_dialect[name].fields]
    return tuple(structs)
