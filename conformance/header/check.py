"""Defines Check, the result of comparing one described item with the installed header or bindings. check_bindings
compares the enumerators with pyverbs, which exports only some of their names. A name that pyverbs does not export is
UNREACHABLE, not FAIL."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Literal

from conformance.verbs import CONSTANTS, ENUMS, Enum, EnumValue

Outcome = Literal["PASS", "FAIL", "NOT_COVERED", "UNREACHABLE"]

PASS: Outcome = "PASS"
FAIL: Outcome = "FAIL"
NOT_COVERED: Outcome = "NOT_COVERED"
UNREACHABLE: Outcome = "UNREACHABLE"

MISSING = "missing in this header"


@dataclass(frozen=True)
class Check:
    item: str
    # NOT_COVERED: installed and not described; UNREACHABLE: could not be compared here
    outcome: Outcome
    expected: str = ""  # the value or declaration in the description
    found: str = ""  # the value or declaration in the installed header or bindings
    reason: str = ""  # empty only for PASS


def missing(item: str, expected: str, since: str = "", release: int | None = None) -> Check:
    """Returns FAIL for an item that the header does not have. `since` is the first rdma-core release with the item, if
    known. If the installed `release` is older, returns UNREACHABLE."""
    if since and release is not None and release < int(since):
        reason = f"rdma-core has it since {since}, and this is {release}"
        return Check(item, UNREACHABLE, expected, reason=reason)
    if since:
        reason = f"{MISSING}; rdma-core has it since {since}"
    else:
        reason = MISSING
    return Check(item, FAIL, expected, "", reason)


def same(item: str, expected: object, answer: object, reason: str) -> Check:
    """Returns PASS if `expected` and `answer` are equal, else FAIL with the reason."""
    if expected == answer:
        return Check(item, PASS, str(expected), str(answer))
    return Check(item, FAIL, str(expected), str(answer), reason)


# In rdma-core 44, the module is pyverbs.enums; later releases have renamed it to pyverbs.libibverbs_enums.
MODULES = ("pyverbs.libibverbs_enums", "pyverbs.enums")


def check_bindings(module: ModuleType | None = None) -> list[Check]:
    """Returns a check for each described enumerator, and for each enumerator that only pyverbs has. `module` is
    pyverbs' module of enumerations, by default the installed module. If pyverbs is missing or cannot be loaded, the
    result is one UNREACHABLE check."""
    try:
        bindings = module or _installed()
    except ImportError as error:
        reason = f"no usable pyverbs installed ({error}); install python3-pyverbs"
        return [Check("pyverbs enums", UNREACHABLE, reason=reason)]
    return [check for enum in ENUMS.values() for check in _enum_checks(enum, bindings)]


def _installed() -> ModuleType:
    for name in MODULES[:-1]:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            # A module that exists but cannot import another module is broken, not missing.
            if not name.startswith(error.name or name):
                raise
    return importlib.import_module(MODULES[-1])


def _enum_checks(enum: Enum, bindings: ModuleType) -> Iterator[Check]:
    for constant in enum:
        yield _value_check(
            f"pyverbs enum {enum.name}.{enum.short(constant.name)}",
            constant,
            enum.name,
            bindings,
        )
    names = {constant.name for constant in enum} | set(CONSTANTS)
    for name in getattr(getattr(bindings, enum.name, None), "__members__", {}):
        if name not in names:
            yield Check(
                f"pyverbs enum {enum.name}.{enum.short(name)}",
                NOT_COVERED,
                "",
                str(int(getattr(getattr(bindings, enum.name), name))),
                f"pyverbs has {name}, which the suite does not describe",
            )


def _value_check(item: str, described: EnumValue, enum: str, bindings: ModuleType) -> Check:
    # In old bindings, each name is in the module; in new bindings, it is a member of the enumeration. The name of a C
    # macro has a leading underscore.
    for holder in (getattr(bindings, enum, None), bindings):
        for name in (described.name, f"_{described.name}"):
            if hasattr(holder, name):
                value = int(getattr(holder, name))
                return same(item, described.value, value, "pyverbs has a different value")
    reason = f"{bindings.__name__} does not export it"
    return Check(item, UNREACHABLE, str(described.value), reason=reason)
