"""Compares every described enumerator, struct, constant and prototype with a header. An item that is missing or differs
is a FAIL; an item that the header need not have, because of its release or vendor, is UNREACHABLE. Enumerators and
fields that only the header has are NOT_COVERED. program.py runs the compiler, and source.py reads the header's text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from conformance import cache
from conformance.header.check import FAIL, NOT_COVERED, PASS, UNREACHABLE, Check, missing, same
from conformance.header.program import FLAGS, Answers, Toolchain
from conformance.header.source import Source
from conformance.verbs import (
    CONSTANTS,
    ENUMS,
    STRUCTS,
    VENDOR_ENUMS,
    VENDOR_STRUCTS,
    VENDOR_VERBS,
    VERBS,
    Constant,
    EnumValue,
    Field,
    Struct,
    Verb,
    declaration,
)


def ask(
    toolchain: Toolchain,
    preprocessed: str,
    expressions: Iterable[str],
    declarations: Mapping[str, str],
    undefine: Iterable[str],
) -> Answers:
    """Calls Toolchain.ask, and caches the result for this compiler and this header text. Raises Unreachable."""
    questions, macros = list(expressions), list(undefine)
    parts = json.dumps([toolchain.command, FLAGS, questions, dict(declarations), macros])
    name = f"answers-{cache.digest_of([preprocessed.encode(), parts.encode()])}.json"
    names = _known(name)
    if names is None:
        names = toolchain.ask(questions, declarations, macros)
        cache.store(name, json.dumps([names.values, names.refused]).encode())
    return names


def _known(name: str) -> Answers | None:
    try:
        values, refused = cache.recalled(name)
        is_complete = all(isinstance(value, int) for value in values.values())
        is_complete &= all(isinstance(error, str) for error in refused.values())
    except (ValueError, TypeError, AttributeError):
        return None
    if is_complete:
        return Answers(values, refused)
    return None


# Enumerations that no header has, one for each integer type that compilers use for enumerations.
FOREIGN = {
    "cts_unsigned": "enum cts_unsigned { CTS_UNSIGNED };",
    "cts_signed": "enum cts_signed { CTS_SIGNED = -1 };",
}

VENDOR_ONLY = "vendor-only: this header does not have it"


class _Noted(Answers):
    """Collects the expressions whose values are read, and returns 0 for each."""

    def value(self, expression: str) -> int:
        cast(dict[str, int], self.values)[expression] = 0
        return 0


def compare(toolchain: Toolchain, release: int | None = None) -> list[Check]:
    """Returns all checks of one header. Raises Unreachable if the header cannot be compiled. `release` is the header's
    rdma-core release; None if unknown."""
    text = toolchain.preprocessed()
    source, noted = Source(text), _Noted({})
    # collects the expressions, which are then compiled in one program
    list(_checks(noted, source, release))
    declarations = {**FOREIGN, **{_ours(struct): _layout(struct) for struct in STRUCTS.values()}}
    # ibv_reg_mr and ibv_reg_mr_iova are macros and functions. Without the macros, the functions are compared.
    answers = ask(toolchain, text, noted.values, declarations, undefine=VERBS)
    return list(_checks(answers, source, release))


def _checks(answers: Answers, source: Source, release: int | None) -> Iterator[Check]:
    for enum in ENUMS.values():
        for item in enum:
            yield _value_check(f"enum {enum.name}.{enum.short(item.name)}", item, answers, release)
    for name, constant in CONSTANTS.items():
        yield _value_check(f"constant {name}", constant, answers, release)
    yield from _unknown_name_checks(answers, source)
    for struct in STRUCTS.values():
        yield from _struct_checks(struct, answers, source)
    yield from _unknown_field_checks(answers, source)
    for verb in VERBS.values():
        yield _prototype_check(verb, answers, source, release)
    yield from _vendor_checks(answers, source)


# The C expressions whose values the compiler computes.


def _ours(struct: Struct) -> str:
    """Returns the tag under which the described struct is compiled next to the header's struct."""
    return f"cts_described_{struct.name}"


def _layout(struct: Struct) -> str:
    fields = "\n".join(f"\t{declaration(field.ctype, field.name)};" for field in struct.fields)
    return f"struct {_ours(struct)} {{\n{fields}\n}};"


def _size(tag: str) -> str:
    return f"sizeof(struct {tag})"


def _offset(tag: str, field: str) -> str:
    return f"offsetof(struct {tag}, {field})"


def _field_size(tag: str, field: str) -> str:
    return f"sizeof(((struct {tag} *)0)->{field})"


def _prototype(verb: Verb) -> str:
    return _compatible(verb.name, verb.function_type)


def _compatible(expression: str, ctype: str) -> str:
    """Returns a C expression that is true if `expression` has the type `ctype` exactly.

    In C, an enumeration is compatible with its integer type, but not with other enumerations. To distinguish an
    enumeration from its integer type, the type of `expression` is also compared with the FOREIGN enumerations: an
    integer type is compatible with one of them; an enumeration is not.
    """

    def has(other: str) -> str:
        return f"__builtin_types_compatible_p(__typeof__({expression}), {other})"

    of_integers = re.sub(
        r"\bint\b",
        "enum cts_signed",
        re.sub(r"\b(unsigned int|uint32_t)\b", "enum cts_unsigned", ctype),
    )
    foreign = {re.sub(r"\benum \w+", f"enum {name}", ctype) for name in FOREIGN} - {ctype}
    return " && ".join(
        [has(ctype), has(of_integers), *(f"!{has(name)}" for name in sorted(foreign))],
    )


# Items of the header that are not described.


def _unknown_name_checks(answers: Answers, source: Source) -> Iterator[Check]:
    names = {
        constant.name for enum in (*ENUMS.values(), *VENDOR_ENUMS.values()) for constant in enum
    } | set(CONSTANTS)
    macros = source.macros()
    for enum in ENUMS.values():
        # A new advice or access flag may be a macro: verbs_api.h defines IBV names as macros for names of the kernel.
        for name in source.enumerators(enum.name) + [
            name for name in macros if name.startswith(enum.prefix)
        ]:
            if name in names:
                continue
            names.add(name)  # reported once, for the first enumeration with this name or prefix
            # None: the name is a macro whose value is not a number
            if (value := answers.value(name)) is not None:
                why = f"the header has {name}, which the suite does not describe"
                yield Check(
                    f"enum {enum.name}.{enum.short(name)}",
                    NOT_COVERED,
                    "",
                    str(value),
                    why,
                )


def _unknown_field_checks(answers: Answers, source: Source) -> Iterator[Check]:
    why = "the header has a field that the suite does not describe"
    for struct in STRUCTS.values():
        described = {field.name for field in struct.fields}
        for name, declared in source.fields(struct.name).items():
            if name not in described:
                offset = answers.value(_offset(struct.name, name))
                place = declared + ("" if offset is None else f" at offset {offset}")
                yield Check(f"struct {struct.name}.{name}", NOT_COVERED, "", place, why)


# Described items.


def _value_check(
    item: str,
    described: EnumValue | Constant,
    answers: Answers,
    release: int | None,
) -> Check:
    value = answers.value(described.name)
    if value is None:
        return missing(item, str(described.value), described.since, release)
    return same(item, described.value, value, "the value in the header is different")


def _struct_checks(struct: Struct, answers: Answers, source: Source) -> Iterator[Check]:
    name, ours = f"struct {struct.name}", _ours(struct)
    size, described = answers.value(_size(struct.name)), answers.value(_size(ours))
    if size is None:
        yield missing(name, f"{len(struct.fields)} fields")
        return
    if described is None:
        why = f"the described layout needs types that this header lacks: {answers.refused[_size(ours)]}"
        yield Check(name, FAIL, _layout(struct), "", why)
    else:
        why = "the struct has a different size in the header; a field differs or is not described"
        yield same(f"{name} size", described, size, why)
    declared = source.fields(struct.name)
    for field in struct.fields:
        yield from _field_checks(struct, field, answers, declared.get(field.name, ""))


def _field_checks(struct: Struct, field: Field, answers: Answers, declared: str) -> Iterator[Check]:
    item, ours = f"struct {struct.name}.{field.name}", _ours(struct)
    if answers.value(_offset(struct.name, field.name)) is None:
        yield missing(item, declaration(field.ctype, field.name))
        return
    for what, question in (("offset", _offset), ("size", _field_size)):
        expected, actual = (answers.value(question(tag, field.name)) for tag in (ours, struct.name))
        if expected is not None:  # None: the check of the struct has reported the failure
            # An array without bounds has an offset but no size.
            shown = f"no {what}" if actual is None else actual
            yield same(
                f"{item} {what}",
                expected,
                shown,
                f"the field has a different {what} in the header",
            )
    of_type = _compatible(f"((struct {struct.name} *)0)->{field.name}", field.ctype)
    yield _type_check(f"{item} type", of_type, field.ctype, answers, declared)


def _type_check(item: str, question: str, expected: str, answers: Answers, declared: str) -> Check:
    """Returns PASS if the compiler finds that the types are the same, else FAIL. `expected` is the described
    declaration, and `declared` is the declaration in the header."""
    fits = answers.value(question)
    if fits is None:
        reason = (
            f"the described type needs names that this header lacks: {answers.refused[question]}"
        )
        return Check(item, FAIL, expected, declared, reason)
    if fits:
        return Check(item, PASS, expected, expected)
    return Check(item, FAIL, expected, declared, "the header declares a different type")


def _prototype_check(verb: Verb, answers: Answers, source: Source, release: int | None) -> Check:
    item, declared = f"prototype {verb.name}", source.prototype(verb.name)
    if answers.value(_prototype(verb)) is None and not declared:
        return missing(item, verb.signature, verb.since, release)
    return _type_check(item, _prototype(verb), verb.signature, answers, declared)


# The vendor's API. Only the vendor's header has these items; a different header need not have them.


def _vendor_checks(answers: Answers, source: Source) -> Iterator[Check]:
    for struct in VENDOR_STRUCTS.values():
        item = f"struct {struct.name} (experimental)"
        if struct.name in source.code:
            fields = " ".join(f"{field};" for field in source.fields(struct.name).values())
            yield Check(
                item,
                NOT_COVERED,
                "",
                fields,
                "the vendor's page names the struct and documents no field",
            )
        else:
            yield Check(item, UNREACHABLE, "", "", VENDOR_ONLY)
    for verb in VENDOR_VERBS.values():
        item, text = f"prototype {verb.name} (experimental)", source.prototype(verb.name)
        if any(struct in text for struct in VENDOR_STRUCTS):
            yield _type_check(item, _prototype(verb), verb.signature, answers, text)
        else:
            yield Check(item, UNREACHABLE, verb.signature, text, VENDOR_ONLY)
    for enum in VENDOR_ENUMS.values():
        for constant in enum:
            if constant.value is not None:  # a mainline enumerator, which has been compared already
                continue
            item, value = (
                f"enum {enum.name}.{enum.short(constant.name)} (experimental)",
                answers.value(constant.name),
            )
            if value is None:
                yield Check(item, UNREACHABLE, "", "", VENDOR_ONLY)
            else:
                why = "the vendor's page names the flag and gives no value to compare with"
                yield Check(item, NOT_COVERED, "", str(value), why)
