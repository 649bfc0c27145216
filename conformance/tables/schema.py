"""The table language as JSON Schema (2020-12), for editors that check a table while it is written.

The schema is made from the data that the loader also uses (vocabulary.py, model/quantity.py, verbs), so that a new call
or flag appears without a change here. Shared parts are defined once, under `$defs`. Only the loader decides whether a
table is valid: it also checks properties that a schema cannot express, such as which objects exist and how many cases
the rows expand to.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from conformance.model import capability, quantity, vocabulary
from conformance.model.rules import LAYERS, LEVELS, RULE_ID
from conformance.tables import keys
from conformance.tables.arguments import SGE_KEYS, UNKNOWN_BIT
from conformance.tables.expansion import FLAG_ENUMS, PARTS, PLACEHOLDER, UNKNOWN, WHICH
from conformance.tables.rules_file import EXCEPT, FLAGS
from conformance.tables.sweep_reader import FACTOR, SUBSETS
from conformance.verbs import ENUMS, ArgumentSpec
from conformance.yamldoc.nodes import MAX_NUMBER

Schema = dict[str, Any]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NAME = "^[A-Za-z_][A-Za-z0-9_]*$"
# A placeholder for a value of an axis of the row.
_PLACEHOLDER: Schema = {"$ref": "#/$defs/placeholder"}
_TEXT: Schema = {"type": "string", "pattern": r"\S"}


def table_schema() -> Schema:
    return {
        "$schema": _DIALECT,
        "title": "A table of cases of rdma-cts",
        **_keyed(keys.TABLE),
        "allOf": [_rows_of(verb) for verb in vocabulary.VERBS],
        "$defs": _definitions(),
    }


def rules_schema() -> Schema:
    return {"$schema": _DIALECT, "title": "The rules of a verb of rdma-cts", **_keyed(keys.RULES_FILE)}


def _keyed(known: keys.Keys) -> Schema:
    return object_schema({name: _of_key(key) for name, key in known.items()}, keys.required(known))


def _of_key(key: keys.Key) -> Schema:
    return {**SHAPES[key.shape](), **({"description": key.meaning} if key.meaning else {})}


def _rule() -> Schema:
    either = [{"required": [key]} for key in (keys.QUOTE, keys.UNQUOTED)]
    return {"type": "array", "items": {**_keyed(keys.RULE), "oneOf": either}}


def _predicates() -> Schema:
    derived = (
        object_schema({FLAGS: _words(FLAG_ENUMS), EXCEPT: _list({"type": "string"})}, required=(FLAGS,)),
        object_schema(_UNKNOWN_BITS, required=(UNKNOWN,)),
    )
    return {"type": "object", "propertyNames": _new_name(), "additionalProperties": {"anyOf": [_TEXT, *derived]}}


def _retired(id_: Schema) -> Schema:
    return {"type": "array", "items": object_schema({"id": id_, "why": _TEXT}, required=("id", "why"))}


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
        "given": _keyed(keys.GIVEN),
        "row": _row(),
        "sweep": _keyed(keys.SWEEP),
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
    return _keyed(keys.ROW) | {
        "oneOf": [{"required": ["then"]}, {"required": ["sweep"], "not": {"required": ["each"]}}],
        "allOf": [_if_word("call", call, _judged(call)) for call in vocabulary.CALLS],
    }


_UNKNOWN_BITS = {UNKNOWN: {"enum": list(FLAG_ENUMS)}, WHICH: {"enum": list(PARTS)}}


def _axis() -> Schema:
    """An axis of a row: its values, its values by name, or the bits without a name in an enumeration."""
    written: Schema = {"type": "array", "minItems": 1, "uniqueItems": True}
    named: Schema = {"type": "object", "minProperties": 1, "not": {"required": [UNKNOWN]}}
    return {"anyOf": [written, named, object_schema(_UNKNOWN_BITS, required=(UNKNOWN,))]}


def _axes() -> Schema:
    """The axes of a sweep. Only the loader checks the words in the sweep's expressions."""
    flags: Schema = {"anyOf": [_words(FLAG_ENUMS), _list({"type": "string"}, least=1)]}
    axis: Schema = {
        "anyOf": [
            {"type": "array", "minItems": 1, "uniqueItems": True},
            object_schema({SUBSETS: flags}, required=(SUBSETS,)),
            object_schema({UNKNOWN: _words(FLAG_ENUMS)}, required=(UNKNOWN,)),
            {"type": "object", "minProperties": 1, "propertyNames": {"not": {"enum": [SUBSETS, UNKNOWN]}}},
        ]
    }
    named: Schema = {"propertyNames": {"pattern": _NAME}, "additionalProperties": axis}
    return {"type": "object", "minProperties": 1, **named}


def _clauses() -> Schema:
    either = [
        {"required": ["then", "rule"]},
        *({"required": [key], "not": {"required": ["rule"]}} for key in ("needs", keys.NEEDS_OF)),
    ]
    return {"type": "array", "minItems": 1, "items": _keyed(keys.CLAUSE) | {"oneOf": either}}


def _points() -> Schema:
    product = rf"^\s*(?:{FACTOR})\s*(?:\*\s*(?:{FACTOR})\s*)*$"
    return {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": product}]}


def _rows_of(verb: str) -> Schema:
    row = {"if": {"not": {"required": ["call"]}}, "then": _judged(vocabulary.DEFAULT_CALLS.get(verb, verb))}
    return _if_word("verb", verb, {"properties": {"rows": {"items": row}}})


def _judged(call: str) -> Schema:
    when = _or_axis({**_ref(f"arguments of {call}"), "unevaluatedProperties": False})
    return {"properties": {"when": when, "then": _ref(_then_name(call))}}


def _with_arguments(call: str, own: Schema) -> Schema:
    """A mapping that has only the arguments of a call and the properties `own`."""
    return {**_ref(f"arguments of {call}"), "properties": own, "unevaluatedProperties": False}


def _sized(kinds: Mapping[str, str]) -> Schema:
    kind = {**_or_axis(_words(kinds)), "description": _meanings(kinds)}
    return object_schema({"kind": kind, "size": _quantity()}, required=("kind", "size"))


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


def _arguments(call: str) -> Schema:
    """The arguments of a call. A schema that refers to this schema adds its own properties, and excludes all others."""
    known = vocabulary.CALLS[call]
    required = [key for key, parameter in known.items() if parameter.default is None]
    return {"type": "object", "properties": {key: _parameter(known[key]) for key in known}, "required": required}


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
        "sges": lambda: _or_axis(_list(_or_axis(object_schema(dict.fromkeys(SGE_KEYS, _quantity()), SGE_KEYS)))),
    }
    return {**kinds[parameter.kind](), **described}


def _expectable(call: str) -> list[str]:
    return [key for key, spec in vocabulary.EXPECTATIONS.items() if spec.applies_to(call)]


def _then_name(call: str) -> str:
    """The name of the definition for the expectation of a call. Calls with the same conditions share a definition."""
    special = [key for key in _expectable(call) if vocabulary.EXPECTATIONS[key].calls]
    return f"then with {' and '.join(special)}" if special else "then"


def _then(call: str) -> Schema:
    outcomes = {key: vocabulary.EXPECTATIONS[key].outcome for key in _expectable(call)}
    only = [{"if": {"required": [key]}, "then": _ref(f"only {each}")} for key, each in outcomes.items() if each]
    properties = {"outcome": _ref("outcome")} | {key: _ref(f"expected {key}") for key in outcomes}
    return {"anyOf": [_ref("outcome"), {**object_schema(properties, required=("outcome",)), "allOf": only}]}


def _expected(key: str, spec: vocabulary.ExpectationSpec) -> Schema:
    """The schema of the value of a key of `then`: a word, or a list of words if several are allowed."""
    one = _ref(f"{key} word")
    return {"anyOf": [one, _list(one, least=1)]} if spec.several else one


def _flags(enum: str) -> Schema:
    # A table can use a bit without a name by its number.
    bits = [f"bit {bit}" for bit in ENUMS[enum].unnamed_bits]
    return _or_axis(_list(_or_axis(_words([*ENUMS[enum].short_names, UNKNOWN_BIT, *bits]))))


def _of_enum(enum: str) -> Schema:
    return _or_axis({"enum": list(ENUMS[enum].short_names)}, {"type": "integer"})


def _quantity(empty: bool = False) -> Schema:
    return {"anyOf": [{"$ref": "#/$defs/quantity"}, {"const": ""}]} if empty else {"$ref": "#/$defs/quantity"}


def _quantity_pattern() -> str:
    # The longest unit comes first, so that `pages` is not read as `page` and `s`.
    words = {*quantity.UNITS, *quantity.PAGES, *quantity.HUGE_PAGES}
    units = "|".join(sorted(words, key=lambda unit: (-len(unit), unit)))
    number = rf"(?:0x[0-9a-fA-F]+|0|[1-9][0-9]*)(?:\s*(?:{units}))?"
    name = rf"(?!(?:{units})\b)[A-Za-z_][A-Za-z0-9_]*(?:\.[a-z_]+)?"
    term = rf"(?:{number}|{name})\s*"
    return rf"^\s*[-+]?\s*{term}(?:[-+]\s*[-+]?\s*{term})*$"


def _object_name(nullable: bool = False) -> Schema:
    name: Schema = {"type": "string", "pattern": _NAME}
    # The loader reads NULL as a word; the YAML readers of editors read NULL as null.
    return {"anyOf": [name, {"type": "null"}]} if nullable else name


def _new_name() -> Schema:
    return {"pattern": _NAME, "not": {"enum": sorted({*quantity.RESERVED, *vocabulary.RESERVED})}}


def _named(value: Schema) -> Schema:
    """A mapping with names of new objects or axes as its keys."""
    return _or_axis({"type": "object", "propertyNames": _ref("new name"), "additionalProperties": _or_axis(value)})


def object_schema(properties: Mapping[str, Any], required: Iterable[str] = ()) -> Schema:
    return {"type": "object", "properties": dict(properties), "required": list(required), "additionalProperties": False}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _list(items: Schema, least: int = 0) -> Schema:
    return {"type": "array", "items": items, "uniqueItems": True, **({"minItems": least} if least else {})}


def _words(words: Iterable[str]) -> Schema:
    return {"enum": list(words)}


def _or_axis(*alternatives: Schema) -> Schema:
    return {"anyOf": [*alternatives, _PLACEHOLDER]}


def _if_word(key: str, word: str, then: Schema) -> Schema:
    return {"if": {"properties": {key: {"const": word}}, "required": [key]}, "then": then}


def _entries() -> Schema:
    return _list(_or_axis(_words(vocabulary.ENTRIES)), least=1)


def _meanings(words: Mapping[str, str]) -> str:
    return "; ".join(f"{word}: {meaning}" for word, meaning in words.items())


# The forms of values, by the names that keys.py gives them.
SHAPES: Mapping[str, Callable[[], Schema]] = {
    "text": lambda: dict(_TEXT),
    "string": lambda: {"type": "string"},
    "count": lambda: {"type": "integer", "minimum": 1},
    "truth": lambda: _or_axis({"type": "boolean"}),
    "quantity": _quantity,
    "name": lambda: _ref("name"),
    "names": lambda: _or_axis(_list(_object_name())),
    "texts": lambda: _list(_TEXT),
    "subject": lambda: _words(vocabulary.VERBS),
    "entries": _entries,
    "entries or axis": lambda: _or_axis(_entries()),
    "doors": lambda: object_schema({door: SHAPES["rule id"]() for door in vocabulary.DOORS}),
    "given": lambda: _ref("given"),
    "given or axis": lambda: _or_axis(_ref("given")),
    "rows": lambda: {"type": "array", "minItems": 1, "items": _ref("row")},
    "steps": lambda: _or_axis({"type": "array", "items": _or_axis(_ref("step"))}),
    "steps before": lambda: _or_axis({"type": "array", "items": _or_axis(_ref("step before"))}),
    "call name": lambda: _ref("call name"),
    "by call": dict,  # the call decides
    "tier": lambda: {**_words(vocabulary.TIERS), "description": _meanings(vocabulary.TIERS)},
    "sweep": lambda: _ref("sweep"),
    "axes of a row": lambda: _named(_axis()),
    "axes of a sweep": _axes,
    "points": _points,
    "clauses": _clauses,
    "outcome of a point": lambda: _or_axis(_words(vocabulary.OUTCOMES), {"type": "object", "required": ["outcome"]}),
    "rule id": lambda: {"type": "string", "pattern": f"^{RULE_ID.pattern}$"},
    "rule ids": lambda: _or_axis(_list(_or_axis({"type": "string", "pattern": f"^{RULE_ID.pattern}$"}), least=1)),
    "needs": lambda: _list(_words(capability.NAMES)),
    "needs or axis": lambda: _or_axis(_list(_or_axis(_ref("capability")))),
    "some needs": lambda: _list(_ref("capability"), least=1),
    "memory by name": lambda: _named(_sized(vocabulary.MEMORY_KINDS)),
    "dma-bufs by name": lambda: _named(_sized(vocabulary.DMABUF_KINDS)),
    "regions by name": lambda: _named(_mr()),
    "queue pairs by name": lambda: _named(_keyed(keys.QUEUE_PAIR)),
    "windows by name": lambda: _named(_keyed(keys.WINDOW)),
    "queue-pair type": lambda: _or_axis(_words(ENUMS["ibv_qp_type"].short_names)),
    "queue-pair state": lambda: _or_axis(_words(vocabulary.QP_STATES)),
    "poster": lambda: _or_axis(_words(vocabulary.POSTERS)),
    "access flags": lambda: _ref("flags of ibv_access_flags"),
    "window type": lambda: _of_enum("ibv_mw_type"),
    # The bind is always a bind of the described window, so that the argument `mw` is excluded.
    "bind": lambda: _or_axis(_with_arguments(vocabulary.BINDS[0], {"mw": False})),
    "level": lambda: _words(LEVELS),
    "layer": lambda: _words(LAYERS),
    "rules": _rule,
    "predicates": _predicates,
    "retired cases": lambda: _retired(_TEXT),
    "retired rules": lambda: _retired(_of_key(keys.RULE["id"])),
}
