"""The table language as JSON Schema (2020-12), for editors that check a table while it is written.

Built from the same data as the loader (vocabulary.py, model/quantity.py, verbs), so that a new call or flag appears
without a change here. Shared parts are defined once, under `$defs`. Not for deciding whether a table is valid: the
loader also checks what a schema cannot express, such as which objects exist and how many cases the rows expand to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from conformance.model import capability, quantity, vocabulary
from conformance.model.rules import LAYERS, LEVELS, RULE_ID
from conformance.tables.expansion import PLACEHOLDER
from conformance.tables.rules_file import EXCEPT, FLAGS, QUOTE, UNQUOTED
from conformance.tables.sweep_reader import FACTOR, NEEDS_OF, SUBSETS
from conformance.tables.unknown_bits import FLAG_ENUMS, PARTS, UNKNOWN, WHICH
from conformance.verbs import ENUMS, ArgumentSpec
from conformance.yamldoc.nodes import MAX_NUMBER

Schema = dict[str, Any]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NAME = "^[A-Za-z_][A-Za-z0-9_]*$"
# A placeholder for a value of an axis of the row.
_PLACEHOLDER: Schema = {"$ref": "#/$defs/placeholder"}
_TEXT: Schema = {"type": "string", "pattern": r"\S"}


def table_schema() -> Schema:
    """The schema of a table of cases."""
    return {
        "$schema": _DIALECT,
        "title": "A table of cases of rdma-cts",
        **_object(
            {
                "verb": {
                    "enum": list(vocabulary.VERBS),
                    "description": "the verb under test; the folder is named by it",
                },
                "about": {**_TEXT, "description": "what the table shows, for people"},
                "cases": {"type": "integer", "minimum": 1, "description": "how many cases the rows expand to"},
                "entries": _entries(),
                "given": {"$ref": "#/$defs/given"},
                "retired": {
                    "type": "array",
                    "items": _object({"id": _TEXT, "why": _TEXT}, required=("id", "why")),
                    "description": "ids of cases that were given up, which are never used again",
                },
                "rows": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/row"}},
            },
            required=("verb", "cases", "rows"),
        ),
        "allOf": [_rows_of(verb) for verb in vocabulary.VERBS],
        "$defs": _definitions(),
    }


def rules_schema() -> Schema:
    """The schema of a file of rules."""
    rule = {
        "id": {"type": "string", "pattern": f"^{RULE_ID.pattern}$", "description": "permanent; never used again"},
        "statement": {**_TEXT, "description": "the documented statement in our own words"},
        "document": _TEXT,
        "section": _TEXT,
        "level": {"enum": list(LEVELS)},
        "layer": {"enum": list(LAYERS), "description": "who enforces it"},
        "needs": _list(_words(capability.NAMES)),
        "since": {**_TEXT, "description": "the first rdma-core whose document says it, in quotes"},
        "failure_means": {**_TEXT, "description": "what breaking it does to people"},
    }
    source = {
        QUOTE: {**_TEXT, "description": "at most one sentence of the document, word for word; […] for words left out"},
        UNQUOTED: {**_TEXT, "description": "why the document is not quoted, in our own words"},
    }
    derived = (
        _object({FLAGS: _words(FLAG_ENUMS), EXCEPT: _list({"type": "string"})}, required=(FLAGS,)),
        _object({UNKNOWN: _words(FLAG_ENUMS), WHICH: _words(PARTS)}, required=(UNKNOWN,)),
    )
    retired = _object({"id": rule["id"], "why": _TEXT}, required=("id", "why"))
    properties: Schema = {
        "verb": _words(vocabulary.VERBS),
        "rules": {
            "type": "array",
            "items": {
                **_object({**rule, **source}, required=tuple(rule)),
                "oneOf": [{"required": [key]} for key in source],
            },
        },
        "predicates": {
            "type": "object",
            "propertyNames": _new_name(),
            "additionalProperties": {"anyOf": [_TEXT, *derived]},
            "description": "conditions by name, for the `if` of sweeps",
        },
        "retired": {"type": "array", "items": retired},
    }
    return {
        "$schema": _DIALECT,
        "title": "The rules of a verb of rdma-cts",
        **_object(properties, required=("verb", "rules")),
    }


def _definitions() -> dict[str, Schema]:
    definitions: dict[str, Schema] = {
        "placeholder": {"type": "string", "pattern": PLACEHOLDER, "description": "a value of an axis of the row"},
        "quantity": {
            "anyOf": [
                {"type": "integer", "minimum": -MAX_NUMBER, "maximum": MAX_NUMBER},
                {"type": "string", "pattern": _quantity_pattern()},
                _PLACEHOLDER,
            ],
            "description": "a sum of numbers with units, constants and properties of objects: buf.addr + 1 page",
        },
        "capability": _words(capability.NAMES),
        "call name": _or_axis(_words(vocabulary.CALLS)),
        "new name": _new_name(),
        "name": _or_axis(_object_name()),
        "name or NULL": _or_axis(_object_name(nullable=True)),
        "outcome": _or_axis({"enum": list(vocabulary.OUTCOMES), "description": _meanings(vocabulary.OUTCOMES)}),
        "given": _given(),
        "row": _row(),
        "sweep": _sweep(),
        "call": {
            "type": "object",
            "properties": {"call": _ref("call name")},
            "required": ["call"],
            "allOf": [
                _if_word("call", call, _with_arguments(call, {"call": True, "then": _ref(_then_name(call))}))
                for call in vocabulary.CALLS
            ],
        },
        "step": {"$ref": "#/$defs/call", "required": ["then"]},
        "step before": {"$ref": "#/$defs/call", "properties": {"then": False}},
    }
    for key, spec in vocabulary.EXPECTATIONS.items():
        definitions[f"{key} word"] = _or_axis(_words(spec.words))
        definitions[f"expected {key}"] = _expected(key, spec)
    outcomes = sorted({spec.outcome for spec in vocabulary.EXPECTATIONS.values() if spec.outcome})
    definitions |= {f"only {each}": {"properties": {"outcome": _or_axis({"const": each})}} for each in outcomes}
    parameters = [parameter for call in vocabulary.CALLS.values() for parameter in call.values()]
    enums = sorted({parameter.of for parameter in parameters if parameter.kind == "flags"})
    definitions |= {f"flags of {enum}": _flags(enum) for enum in enums}
    for call in vocabulary.CALLS:
        definitions[f"arguments of {call}"] = _arguments(call)
        definitions[_then_name(call)] = _then(call)
    return definitions


def _row() -> Schema:
    return _object(
        {
            "id": {**_TEXT, "description": "unique in the table; $name stands for a value of the axis"},
            "about": _TEXT,
            "rules": _or_axis(_list(_or_axis({"type": "string", "pattern": f"^{RULE_ID.pattern}$"}), least=1)),
            "needs": _or_axis(_list(_or_axis(_ref("capability")))),
            "each": {**_named(_axis()), "description": "the axes"},
            "entries": _or_axis(_entries()),
            "given": _or_axis({"$ref": "#/$defs/given"}),
            "before": _or_axis({"type": "array", "items": _or_axis({"$ref": "#/$defs/step before"})}),
            "call": {**_ref("call name"), "description": "the judged call, if it is not the verb's own"},
            "when": {"description": "the arguments of the verb's one call"},
            "then": {"description": "what must come of it: an outcome, or a mapping with more"},
            "afterwards": _or_axis({"type": "array", "items": _or_axis({"$ref": "#/$defs/step"})}),
            "note": {**_TEXT, "description": "a remark for the result"},
            "hazardous": _or_axis({"type": "boolean", "description": "it can take the kernel down"}),
            "tier": {"enum": list(vocabulary.TIERS), "description": _meanings(vocabulary.TIERS)},
            "sweep": {"$ref": "#/$defs/sweep"},
        },
        required=("id", "rules"),
    ) | {
        "oneOf": [{"required": ["then"]}, {"required": ["sweep"], "not": {"required": ["each"]}}],
        "allOf": [_if_word("call", call, _judged(call)) for call in vocabulary.CALLS],
    }


def _axis() -> Schema:
    """An axis of a row: its values, or the bits without a name in an enumeration."""
    unknown = {UNKNOWN: _words(FLAG_ENUMS), WHICH: _words(PARTS)}
    written: Schema = {"type": "array", "minItems": 1, "uniqueItems": True}
    return {"anyOf": [written, _object(unknown, required=(UNKNOWN,))]}


def _sweep() -> Schema:
    """The sweep of a row. The loader checks the words in its expressions."""
    flags: Schema = {"anyOf": [_words(FLAG_ENUMS), _list({"type": "string"}, least=1)]}
    axis: Schema = {
        "anyOf": [
            {"type": "array", "minItems": 1, "uniqueItems": True},
            _object({SUBSETS: flags}, required=(SUBSETS,)),
            _object({UNKNOWN: _words(FLAG_ENUMS)}, required=(UNKNOWN,)),
            {"type": "object", "minProperties": 1, "propertyNames": {"not": {"enum": [SUBSETS, UNKNOWN]}}},
        ]
    }
    then = _or_axis({"enum": list(vocabulary.OUTCOMES)}, {"type": "object", "required": ["outcome"]})
    either = [
        {"required": ["then", "rule"]},
        *({"required": [key], "not": {"required": ["rule"]}} for key in ("needs", NEEDS_OF)),
    ]
    clause = _object(
        {
            "if": {**_TEXT, "description": "where it holds; without it, at every point that is left"},
            "then": {**then, "description": "what must come there"},
            "rule": {"type": "string", "pattern": f"^{RULE_ID.pattern}$", "description": "which rule says so"},
            "needs": {**_list(_ref("capability"), least=1), "description": "what the points need of the device"},
            NEEDS_OF: {"type": "string", "description": "an axis of access flags: each needs what FLAG_NEEDS says"},
        }
    ) | {"oneOf": either}
    return _object(
        {
            "axes": {
                "type": "object",
                "minProperties": 1,
                "propertyNames": {"pattern": _NAME},
                "additionalProperties": axis,
            },
            "where": {**_TEXT, "description": "which points of the product there are"},
            "points": {
                "anyOf": [
                    {"type": "integer", "minimum": 1},
                    {"type": "string", "pattern": rf"^\s*(?:{FACTOR})\s*(?:\*\s*(?:{FACTOR})\s*)*$"},
                ],
                "description": "how many points there are: a number, or a product with the sizes of derived axes",
            },
            "expect": {"type": "array", "minItems": 1, "items": clause},
        },
        required=("axes", "points", "expect"),
    )


def _rows_of(verb: str) -> Schema:
    row = {"if": {"not": {"required": ["call"]}}, "then": _judged(vocabulary.DEFAULT_CALLS.get(verb, verb))}
    return _if_word("verb", verb, {"properties": {"rows": {"items": row}}})


def _judged(call: str) -> Schema:
    """The conditions on a row with this judged call."""
    when = _or_axis({**_ref(f"arguments of {call}"), "unevaluatedProperties": False})
    return {"properties": {"when": when, "then": _ref(_then_name(call))}}


def _with_arguments(call: str, own: Schema) -> Schema:
    """A mapping with the arguments of a call and the properties `own`, and no others."""
    return {**_ref(f"arguments of {call}"), "properties": own, "unevaluatedProperties": False}


def _given() -> Schema:
    return _object(
        {
            "memory": _named(_sized(vocabulary.MEMORY_KINDS)),
            "dmabufs": _named(_sized(vocabulary.DMABUF_KINDS)),
            "pds": _or_axis(_list(_object_name())),
            "mrs": _named(_mr()),
            "qps": _named(_qp()),
            "windows": _named(_window()),
            "memlock": _quantity(),
        }
    )


def _sized(kinds: Mapping[str, str]) -> Schema:
    kind = {**_or_axis(_words(kinds)), "description": _meanings(kinds)}
    return _object({"kind": kind, "size": _quantity()}, required=("kind", "size"))


def _mr() -> Schema:
    def of(call: str) -> Schema:
        return _with_arguments(call, {"call": True, "gone": True})

    first = vocabulary.REGISTRATIONS[0]
    return {
        "type": "object",
        "properties": {"call": _or_axis(_words(vocabulary.REGISTRATIONS)), "gone": _or_axis({"type": "boolean"})},
        "allOf": [
            *(_if_word("call", call, of(call)) for call in vocabulary.REGISTRATIONS),
            {"if": {"not": {"required": ["call"]}}, "then": of(first)},
        ],
    }


def _qp() -> Schema:
    return _object(
        {
            "type": _or_axis(_words(ENUMS["ibv_qp_type"].short_names)),
            "pd": _ref("name"),
            "state": _or_axis(_words(vocabulary.QP_STATES)),
            "sq_sig_all": _or_axis({"type": "boolean"}),
            "access": {"$ref": "#/$defs/flags of ibv_access_flags"},
        },
        required=("type",),
    )


def _window() -> Schema:
    # The bind is that of the described window, so that `mw` is excluded.
    bound = _with_arguments(vocabulary.BINDS[0], {"mw": False})
    window = {"type": _of_enum("ibv_mw_type"), "pd": _ref("name"), "bound": _or_axis(bound)}
    return _object(window, required=("type",))


def _arguments(call: str) -> Schema:
    """The arguments of a call. A schema that refers to this one adds other properties and excludes all further ones."""
    return {"type": "object", "properties": _parameters(call), "required": list(_required(call))}


def _required(call: str) -> tuple[str, ...]:
    return tuple(key for key, parameter in vocabulary.CALLS[call].items() if parameter.default is None)


def _parameters(call: str) -> dict[str, Schema]:
    return {key: _parameter(parameter) for key, parameter in vocabulary.CALLS[call].items()}


def _parameter(parameter: ArgumentSpec) -> Schema:
    """The schema of an argument. Raises KeyError for a kind of parameter that is missing below."""
    default = parameter.default
    described: Schema = {} if default is None else {"description": f"{default or 'nothing'} if left out"}
    kinds: dict[str, Callable[[], Schema]] = {
        "object": lambda: _ref("name or NULL" if parameter.nullable else "name"),
        "quantity": lambda: _quantity(empty=parameter.default == ""),
        "flags": lambda: _ref(f"flags of {parameter.of}"),
        "value": lambda: _of_enum(parameter.of),
        "word": lambda: _or_axis(_words(parameter.words)),
        "sges": lambda: _or_axis(_list(_or_axis(_sge()))),
    }
    return {**kinds[parameter.kind](), **described}


def _expectable(call: str) -> list[str]:
    return [key for key, spec in vocabulary.EXPECTATIONS.items() if spec.applies_to(call)]


def _then_name(call: str) -> str:
    """The name of the definition of a call's expectation, which calls with the same possible expectations share."""
    special = [key for key in _expectable(call) if vocabulary.EXPECTATIONS[key].calls]
    return f"then with {' and '.join(special)}" if special else "then"


def _then(call: str) -> Schema:
    outcomes = {key: vocabulary.EXPECTATIONS[key].outcome for key in _expectable(call)}
    only = [{"if": {"required": [key]}, "then": _ref(f"only {each}")} for key, each in outcomes.items() if each]
    properties = {"outcome": _ref("outcome")} | {key: _ref(f"expected {key}") for key in outcomes}
    return {"anyOf": [_ref("outcome"), {**_object(properties, required=("outcome",)), "allOf": only}]}


def _expected(key: str, spec: vocabulary.ExpectationSpec) -> Schema:
    """The value of one key of `then`: a word, or a list of words if several are allowed."""
    one = _ref(f"{key} word")
    return {"anyOf": [one, _list(one, least=1)]} if spec.several else one


def _flags(enum: str) -> Schema:
    # A bit without a name is written with its number, so that a table can use unknown bits.
    bits = [f"bit {bit}" for bit in ENUMS[enum].unnamed_bits]
    return _or_axis(_list(_or_axis(_words([*ENUMS[enum].short_names, *bits]))))


def _of_enum(enum: str) -> Schema:
    return _or_axis({"enum": list(ENUMS[enum].short_names)}, {"type": "integer"})


def _sge() -> Schema:
    keys = ("addr", "length", "lkey")
    return _object(dict.fromkeys(keys, _quantity()), required=keys)


def _quantity(empty: bool = False) -> Schema:
    return {"anyOf": [{"$ref": "#/$defs/quantity"}, {"const": ""}]} if empty else {"$ref": "#/$defs/quantity"}


def _quantity_pattern() -> str:
    # The longest first, so that `pages` is not read as `page` and `s`.
    words = {*quantity.UNITS, *quantity.PAGES, *quantity.HUGE_PAGES}
    units = "|".join(sorted(words, key=lambda unit: (-len(unit), unit)))
    number = rf"(?:0x[0-9a-fA-F]+|0|[1-9][0-9]*)(?:\s*(?:{units}))?"
    name = rf"(?!(?:{units})\b)[A-Za-z_][A-Za-z0-9_]*(?:\.[a-z_]+)?"
    term = rf"(?:{number}|{name})\s*"
    return rf"^\s*[-+]?\s*{term}(?:[-+]\s*[-+]?\s*{term})*$"


def _object_name(nullable: bool = False) -> Schema:
    name: Schema = {"type": "string", "pattern": _NAME}
    # The loader reads NULL as a word; the YAML readers of editors read it as null.
    return {"anyOf": [name, {"type": "null"}]} if nullable else name


def _new_name() -> Schema:
    """The name of a new object or axis."""
    return {"pattern": _NAME, "not": {"enum": sorted({*quantity.RESERVED, *vocabulary.RESERVED})}}


def _named(value: Schema) -> Schema:
    """A mapping from names of new objects or axes."""
    return _or_axis({"type": "object", "propertyNames": _ref("new name"), "additionalProperties": _or_axis(value)})


def _object(properties: Mapping[str, Any], required: Iterable[str] = ()) -> Schema:
    return {"type": "object", "properties": dict(properties), "required": list(required), "additionalProperties": False}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _list(items: Schema, least: int = 0) -> Schema:
    return {"type": "array", "items": items, "uniqueItems": True, **({"minItems": least} if least else {})}


def _words(words: Iterable[str]) -> Schema:
    return {"enum": list(words)}


def _or_axis(*alternatives: Schema) -> Schema:
    """One of these alternatives, or a placeholder for an axis."""
    return {"anyOf": [*alternatives, _PLACEHOLDER]}


def _if_word(key: str, word: str, then: Schema) -> Schema:
    return {"if": {"properties": {key: {"const": word}}, "required": [key]}, "then": then}


def _entries() -> Schema:
    return _list(_or_axis(_words(vocabulary.ENTRIES)), least=1)


def _meanings(words: Mapping[str, str]) -> str:
    return "; ".join(f"{word}: {meaning}" for word, meaning in words.items())
