"""Comparing the described enumerations with those of the installed pyverbs.

pyverbs compiles the header's numbers in and exports a choice of names; a name it leaves out is
not comparable, and no fault of the descriptions.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from types import ModuleType

from conformance.header.check import NOT_COVERED, UNREACHABLE, Check, same
from conformance.verbs import CONSTANTS, ENUMS, Enum, EnumValue

# pyverbs of rdma-core 44 has pyverbs.enums; newer ones renamed it to pyverbs.libibverbs_enums.
MODULES = ("pyverbs.libibverbs_enums", "pyverbs.enums")


def check_bindings(module: ModuleType | None = None) -> list[Check]:
    """One check for each described enumerator, and one for each more that pyverbs has.

    `module` is pyverbs' module of enumerations, by default the installed one. Bindings that are
    not there or do not load are one UNREACHABLE check.
    """
    try:
        bindings = module or _installed()
    except ImportError as error:
        reason = f"no usable pyverbs installed ({error}); install python3-pyverbs"
        return [Check("pyverbs enums", UNREACHABLE, reason=reason)]
    return [check for enum in ENUMS.values() for check in _enum_checks(enum, bindings)]


def _installed() -> ModuleType:
    """The enumerations of the installed pyverbs; ImportError if they cannot be loaded."""
    for name in MODULES[:-1]:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            # A module of that name which fails over another one is broken, not absent.
            if not name.startswith(error.name or name):
                raise
    return importlib.import_module(MODULES[-1])


def _enum_checks(enum: Enum, bindings: ModuleType) -> Iterator[Check]:
    for each in enum:
        yield _value_check(f"pyverbs enum {enum.name}.{enum.short(each.name)}", each, enum.name, bindings)
    known = {each.name for each in enum} | set(CONSTANTS)
    for name in _members(bindings, enum.name):
        if name not in known:
            yield Check(
                f"pyverbs enum {enum.name}.{enum.short(name)}",
                NOT_COVERED,
                "",
                str(int(getattr(getattr(bindings, enum.name), name))),
                f"pyverbs has {name}, which the suite does not describe",
            )


def _value_check(item: str, described: EnumValue, enum: str, bindings: ModuleType) -> Check:
    # Old bindings export every name of its own, new ones as a member of the enumeration; names that
    # C defines by macros have an underscore before them.
    for holder in (getattr(bindings, enum, None), bindings):
        for name in (described.name, f"_{described.name}"):
            if hasattr(holder, name):
                return same(item, described.value, int(getattr(holder, name)), "pyverbs gives it another value")
    return Check(item, UNREACHABLE, str(described.value), "", f"{bindings.__name__} does not export it")


def _members(bindings: ModuleType, enum: str) -> Iterable[str]:
    return getattr(getattr(bindings, enum, None), "__members__", {})
