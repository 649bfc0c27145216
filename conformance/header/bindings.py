"""Compares the described enumerations with those of the installed pyverbs.

pyverbs contains the header's numbers and exports some of the names. A name that it does not export
cannot be compared and is UNREACHABLE, not FAIL. Not for the header itself (compare.py).
"""

import importlib
from collections.abc import Iterable, Iterator
from types import ModuleType

from conformance.header.check import NOT_COVERED, UNREACHABLE, Check, same
from conformance.verbs import CONSTANTS, ENUMS, Enum, EnumValue

# pyverbs of rdma-core 44 has pyverbs.enums; newer ones renamed it to pyverbs.libibverbs_enums.
MODULES = ("pyverbs.libibverbs_enums", "pyverbs.enums")


def check_bindings(module: ModuleType | None = None) -> list[Check]:
    """Returns a check for each described enumerator, and for each one that only pyverbs has.

    `module` is pyverbs' module of enumerations, by default the installed one. If pyverbs is missing or
    cannot be loaded, the result is one UNREACHABLE check.
    """
    try:
        bindings = module or _installed()
    except ImportError as error:
        reason = f"no usable pyverbs installed ({error}); install python3-pyverbs"
        return [Check("pyverbs enums", UNREACHABLE, reason=reason)]
    return [check for enum in ENUMS.values() for check in _enum_checks(enum, bindings)]


def _installed() -> ModuleType:
    """Returns the module of enumerations of the installed pyverbs. Raises ImportError if it cannot be loaded."""
    for name in MODULES[:-1]:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            # A module that exists but fails to import another one is broken, not missing.
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
    # Old bindings export each name from the module, new ones as a member of the enumeration. Names that
    # are macros in C have a leading underscore.
    for holder in (getattr(bindings, enum, None), bindings):
        for name in (described.name, f"_{described.name}"):
            if hasattr(holder, name):
                return same(item, described.value, int(getattr(holder, name)), "pyverbs has another value")
    return Check(item, UNREACHABLE, str(described.value), "", f"{bindings.__name__} does not export it")


def _members(bindings: ModuleType, enum: str) -> Iterable[str]:
    return getattr(getattr(bindings, enum, None), "__members__", {})
