"""`rdma-cts list verbs`, and what `rdma-cts explain VERB` prints: the promises of the documents about a verb. `run`
tests whether a device conforms to these descriptions."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator

from commands.cli.streams import show
from conformance.errors import PROGRAM, UserError
from conformance.model.case import Case
from conformance.older_python import zip
from conformance.verbs import (
    EXPERIMENTAL,
    MAINLINE,
    VENDOR_VERBS,
    VERBS,
    Enum,
    Field,
    Parameter,
    Struct,
    Verb,
    declaration,
    dialects,
    enum_in,
    structs_in,
)
from conformance.yamldoc.reader import suggestion
from reports.text import wrapped

WIDTH = 100
MODEL = "model"  # the word for the models of sweeps, where a verb may stand


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_dialect(parser)


def add_dialect(parser: argparse.ArgumentParser) -> None:
    """Adds the option that chooses between two documents."""
    parser.add_argument(
        "--dialect",
        choices=(MAINLINE, EXPERIMENTAL),
        default=MAINLINE,
        help="which description of a verb, if two documents describe it (default: %(default)s)",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Prints the list of verbs."""
    verbs = VERBS if arguments.dialect == MAINLINE else VENDOR_VERBS
    show(f"{verb.name:<18} {verb.summary}" for verb in verbs.values())
    return 0


def is_verb(word: str) -> bool:
    """Returns whether a document describes a verb of this name, which may lack the prefix ibv_."""
    return _full(word) in VERBS


def _full(name: str) -> str:
    return f"ibv_{name.removeprefix('ibv_')}"


def render_models(cases: Iterable[Case]) -> Iterator[str]:
    """Yields the lines of each model: its parameters with their values, what is excluded, the faults, and the arrays."""
    arrays = {case.id: case.array for case in cases if case.array}
    for model in {array.model.digest: array.model for array in arrays.values()}.values():
        yield f"{model.name}: {len(model.parameters)} parameters"
        for axis in model.parameters:
            lines = [
                line
                for label, meaning in model.meanings[axis.name].items()
                for line in _wrapped(f"{label:<20} {meaning}", "  ", hang=23)
            ]
            yield from _section(axis.name, lines)
        for title, texts in (("Excluded", model.excluded), ("Faults", model.faults)):
            lines = [
                line
                for name, text in texts.items()
                for line in _wrapped(f"{name}: {text}", "  ", hang=6)
            ]
            yield from _section(title, lines)
        stored = [
            f"  {case}: {len(array.points):,} points, each combination of {array.strength} values"
            for case, array in arrays.items()
            if array.model == model
        ]
        yield from _section("Arrays", stored)


def find(name: str, dialect: str = MAINLINE) -> Verb:
    """Returns the description of a verb. `name` may lack the prefix ibv_. Raises UserError if there is no
    description."""
    full = _full(name)
    if full not in VERBS:
        raise UserError(
            f"unknown verb {name!r}{suggestion(full, VERBS)}",
            hint=f"`{PROGRAM} list verbs` lists all verbs",
        )
    if dialect not in dialects(full):
        raise UserError(
            f"no document describes an {dialect} {full}",
            hint=f"only {', '.join(VENDOR_VERBS)} has that dialect",
        )
    if dialect == MAINLINE:
        return VERBS[full]
    return VENDOR_VERBS[full]


def _enums(verb: Verb, structs: Iterable[Struct]) -> tuple[Enum, ...]:
    names = [parameter.enum for parameter in verb.parameters]
    names += [verb.code_enum, *(field.enum for struct in structs for field in struct.fields)]
    return tuple(enum_in(verb.dialect, name) for name in dict.fromkeys(names) if name)


def render(verb: Verb) -> Iterator[str]:
    """Yields the lines of the description: signature, arguments, return value, notes, enumerations, structs."""
    yield from _wrapped(f"{verb.name}: {verb.summary}")
    if verb.since:
        since = f"; since rdma-core {verb.since}"
    else:
        since = ""
    yield from _wrapped(f"From {verb.document}; {verb.linkage.value}{since}.")
    for dialect in dialects(verb.name):
        if dialect != verb.dialect:
            yield f"Dialect: {verb.dialect}. Another document describes this name differently: --dialect {dialect}."
    yield ""
    yield from _signature(verb)
    yield from _section("Parameters", _parameters(verb.parameters))
    yield from _section("Return", _return(verb))
    yield from _section(
        "Notes",
        (line for note in verb.notes for line in _wrapped(note, "  - ", hang=4)),
    )
    shown = _within(verb, structs_in(verb))
    yield from _section("Where the documents disagree", _discrepancies(verb, shown))
    for enum in _enums(verb, shown):
        if enum.name == verb.code_enum:
            continue  # already listed with the meaning of each code
        yield from _section(f"enum {enum.name}: {enum.summary}", _enum(enum))
    for struct in shown:
        yield from _section(f"struct {struct.name}: {struct.summary}", _struct(struct))


def _signature(verb: Verb) -> Iterator[str]:
    arguments = (
        declaration(parameter.ctype, parameter.name).replace(" ", "\0")
        for parameter in verb.parameters
    )
    opening = f"  {declaration(verb.returns, verb.name)}("
    for line in _wrapped(", ".join(arguments) + ")", opening.replace(" ", "\0"), hang=len(opening)):
        yield line.replace("\0", " ")


def _within(verb: Verb, structs: Iterable[Struct]) -> tuple[Struct, ...]:
    """Returns the structs that a caller fills or reads, and structs that are embedded in these."""
    ctypes = " ".join((verb.returns, *(parameter.ctype for parameter in verb.parameters))).split()
    inside = [field.ctype for struct in structs if struct.name in ctypes for field in struct.fields]
    embedded = [ctype.removeprefix("struct ") for ctype in inside if "*" not in ctype]
    return tuple(struct for struct in structs if struct.name in (*ctypes, *embedded))


def _parameters(parameters: Iterable[Parameter]) -> Iterator[str]:
    parameters = tuple(parameters)
    column = 4 + max(len(parameter.name) for parameter in parameters)
    for parameter in parameters:
        if parameter.unit == "bytes":
            unit = f" In {parameter.unit}."
        else:
            unit = ""
        yield from _wrapped(
            parameter.meaning + unit, f"  {parameter.name}".ljust(column), hang=column
        )
        if parameter.enum:
            yield from _wrapped(_choice(parameter), " " * column, hang=column + 2)


def _choice(item: Parameter | Field) -> str:
    """Returns the enumeration of the values, and the values that the page allows."""
    if item.allowed:
        return f"{item.enum}: {', '.join(item.allowed)}"
    return f"{item.enum}: any"


def _return(verb: Verb) -> Iterator[str]:
    sentence = verb.convention.value
    yield from _wrapped(f"{sentence[0].upper()}{sentence[1:]}.", "  ")
    yield from _wrapped(verb.success, "  success  ", hang=11)
    yield from _wrapped(verb.failure, "  failure  ", hang=11)
    if not verb.return_codes:
        yield "  The page names no error codes: any code is conformant."
        return
    column = 10 + max(len(code.name) for code in verb.return_codes)
    for code in verb.return_codes:
        if code.leaves:
            leaves = f" [{code.leaves}]"
        else:
            leaves = ""
        yield from _wrapped(
            code.meaning + leaves,
            f"  {code.name} ({code.value})".ljust(column),
            hang=column,
        )


def _discrepancies(verb: Verb, structs: Iterable[Struct]) -> Iterator[str]:
    of_parameters = [(parameter.name, parameter.discrepancy) for parameter in verb.parameters]
    of_fields = [
        (f"struct {struct.name}.{field.name}", field.discrepancy)
        for struct in structs
        for field in struct.fields
    ]
    named = [f"{name}: {text}." for name, text in of_parameters + of_fields if text]
    for text in (*verb.discrepancies, *named):
        yield from _wrapped(text, "  - ", hang=4)


def _enum(enum: Enum) -> Iterator[str]:
    column = 4 + max(len(constant.name) for constant in enum)
    for item in enum:
        if item.value is None:
            value = "?"
        elif enum.flags:
            value = hex(item.value)
        else:
            value = str(item.value)
        if item.since:
            since = f" (since {item.since})"
        else:
            since = ""
        yield from _wrapped(
            item.meaning + since,
            f"  {item.name.ljust(column)}{value:<10}",
            hang=column + 12,
        )


def _struct(struct: Struct) -> Iterator[str]:
    if not struct.fields:
        yield "  no field is documented"
        return
    lines = [f"{declaration(field.ctype, field.name)};" for field in struct.fields]
    column = 4 + min(44, max(map(len, lines)))
    for field, line in zip(struct.fields, lines, strict=True):
        if field.allowed:
            meaning = f"{field.meaning}; {_choice(field)}"
        else:
            meaning = field.meaning
        if len(line) + 4 > column:
            yield f"  {line}"
            line = ""
        yield from _wrapped(meaning, f"  {line}".ljust(column), hang=column)


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    body = list(lines)
    if body:
        yield from ("", title, *body)


def _wrapped(text: str, first: str = "", hang: int = 0) -> list[str]:
    return wrapped(text, WIDTH, " " * hang, first)
