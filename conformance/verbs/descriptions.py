"""Reads the descriptions of enumerations, structs and verbs: YAML files in this folder, as the types of types.py.

A list has the first fields of a type in their order, and then a mapping with further fields by name. Numbers stand for
texts, except the number of an enumerator. Every process needs the descriptions, so what was read is cached (cache.py).
"""

import errno
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from conformance import cache
from conformance.verbs.types import (
    MAINLINE,
    ArgumentSpec,
    Convention,
    Enum,
    EnumValue,
    Field,
    Linkage,
    Parameter,
    ReturnCode,
    Struct,
    Verb,
)

_FOLDER = Path(__file__).parent


def read() -> dict[str, Any]:
    """Returns the contents of the files of descriptions, by the names of the files without the suffix."""
    contents = {path.stem: path.read_bytes() for path in sorted(_FOLDER.glob("*.yaml"))}
    name = f"descriptions-{cache.digest_of(contents.values())}.json"
    if known := cache.recalled(name):
        return dict(known)
    from conformance.yamldoc.nodes import plain  # imported late: only the first process reads YAML
    from conformance.yamldoc.parsing import read_bytes

    found = {stem: plain(read_bytes(content, f"{stem}.yaml")) for stem, content in contents.items()}
    cache.store(name, json.dumps(found).encode())
    return found


def enums_of(
    given: Mapping[str, Any], dialect: str = MAINLINE, mainline: Mapping[str, Enum] | None = None
) -> dict[str, Enum]:
    """The enumerations by name. Each begins with the enumerators of the mainline enumeration with its name, if any."""
    return {name: _enum(name, more, dialect, (mainline or {}).get(name, ())) for name, more in given.items()}


def _enum(name: str, more: dict[str, Any], dialect: str, begin: Iterable[EnumValue]) -> Enum:
    values = (
        EnumValue(f"{more['prefix']}{short}", number, meaning, **_texts(*further))
        for short, (number, meaning, *further) in more["values"].items()
    )
    return Enum(name, **{**more, "values": (*begin, *values)}, dialect=dialect)


def structs_of(given: Mapping[str, Any], dialect: str = MAINLINE) -> dict[str, Struct]:
    return {
        name: Struct(name, more["summary"], tuple(_fields(more.get("fields", {}))), dialect)
        for name, more in given.items()
    }


def _fields(given: Mapping[str, Any]) -> Iterator[Field]:
    for names, (ctype, meaning, *further) in given.items():
        yield from (Field(name, ctype, meaning, **_texts(*further)) for name in names.split())


def verbs_of(given: Mapping[str, Any], enums: Mapping[str, Enum], dialect: str = MAINLINE) -> dict[str, Verb]:
    return {name: _verb(name, _texts(more), enums, dialect) for name, more in given.items()}


def _verb(name: str, more: dict[str, Any], enums: Mapping[str, Enum], dialect: str) -> Verb:
    usual = "POINTER_OR_NULL" if more["returns"].endswith("*") else "ZERO_OR_ERRNO"
    more["convention"] = Convention[more.get("convention", usual)]
    more["linkage"] = Linkage[more["linkage"]]
    for key in ("parameters", "only_in_tables"):
        more[key] = _parameters(more.get(key, {}))
    codes = more.get("return_codes", {}).items()
    more["return_codes"] = tuple(_code(code, causes, enums.get(more.get("code_enum", ""))) for code, causes in codes)
    return Verb(name, dialect=dialect, **more)


def _parameters(given: Mapping[str, Any]) -> tuple[Parameter, ...]:
    return tuple(_parameter(name, ctype, meaning, *more) for name, (ctype, meaning, *more) in given.items())


def _parameter(name: str, ctype: str, meaning: str, further: Mapping[str, Any] | None = None) -> Parameter:
    more = _texts(further or {})
    if "table" in more:
        more["table"] = ArgumentSpec(**_texts(more["table"]))
    more["written_as"] = _parameters(more.get("written_as", {}))
    return Parameter(name, ctype, meaning, **more)


def _code(name: str, given: list[Any], codes: Enum | None) -> ReturnCode:
    value = codes.value_of(name) if codes else getattr(errno, name)
    causes = tuple(each for each in given if isinstance(each, str))
    return ReturnCode(name, value, causes, **dict(*given[len(causes) :]))


def _texts(given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Returns fields by name, with tuples for lists and texts for numbers."""
    return {key: _text(value) for key, value in (given or {}).items()}


def _text(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_text, value))
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value
