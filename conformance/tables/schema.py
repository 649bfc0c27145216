"""The table language as JSON Schema (2020-12), for editors that check a table while it is written.

Built from the same data as the loader (vocabulary.py, model/quantity.py, verbs), so that a new call or flag is
in it by itself. The loader is the judge: it also knows what no schema can say, such as which objects
exist or how many cases a table gives.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from conformance.model import capability, quantity, vocabulary
from conformance.model.expected_errors import REASONS
from conformance.model.rules import LAYERS, LEVELS, RULE_ID
from conformance.tables.arguments import ERRNO_NAMES
from conformance.tables.expansion import PLACEHOLDER
from conformance.tables.sweep_reader import FLAG_ENUMS, SUBSETS, UNKNOWN
from conformance.verbs import ENUMS
from conformance.yamldoc.nodes import MAX_NUMBER

Schema = dict[str, Any]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NAME = "^[A-Za-z_][A-Za-z0-9_]*$"
# Of a row's axes; each of these texts is replaced before it means anything.
_PLACEHOLDER: Schema = {"$ref": "#/$defs/placeholder"}
_TEXT: Schema = {"type": "string", "pattern": r"\S"}
_EITHER_OUTCOME = {
    "errno": "refused", "code": "refused", "mr": "success", "completion": "success", "because": "refused",
}  # fmt: skip


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
    retired = _object({"id": rule["id"], "why": _TEXT}, required=("id", "why"))
    properties: Schema = {
        "verb": _words(vocabulary.VERBS),
        "rules": {"type": "array", "items": _object(rule, required=tuple(rule))},
        "predicates": {**_named(_TEXT), "description": "conditions by name, for the `if` of sweeps"},
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
        "given": _given(),
        "row": _row(),
        "sweep": _sweep(),
        "step": _step(judged=True),
        "step before": _step(judged=False),
    }
    definitions["errno"] = _one_or_more(ERRNO_NAMES)
    parameters = [parameter for call in vocabulary.CALLS.values() for parameter in call.values()]
    enums = sorted({parameter.of for parameter in parameters if parameter.kind == "flags"})
    definitions |= {f"flags of {enum}": _flags(enum) for enum in enums}
    for call in vocabulary.CALLS:
        definitions[f"arguments of {call}"] = _arguments(call)
        definitions[f"then of {call}"] = _then(call)
    return definitions


def _row() -> Schema:
    return _object(
        {
            "id": {**_TEXT, "description": "unique in the table; $name stands for a value of the axis"},
            "about": _TEXT,
            "rules": _or_axis(_list(_words_or_axis((), RULE_ID.pattern), least=1)),
            "needs": _or_axis(_list(_or_axis(_words(capability.NAMES)))),
            "each": {**_named({"type": "array", "minItems": 1, "uniqueItems": True}), "description": "the axes"},
            "entries": _or_axis(_entries()),
            "given": _or_axis({"$ref": "#/$defs/given"}),
            "before": _or_axis({"type": "array", "items": _or_axis({"$ref": "#/$defs/step before"})}),
            "call": {
                **_or_axis(_words(vocabulary.CALLS)),
                "description": "the judged call, if it is not the verb's own",
            },
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


def _sweep() -> Schema:
    """A row's space of points. Which words its expressions may use is the loader's to say."""
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
    either = [{"required": ["then", "rule"]}, {"required": ["needs"], "not": {"required": ["rule"]}}]
    clause = _object({
        "if": {**_TEXT, "description": "where it holds; without it, at every point that is left"},
        "then": {**then, "description": "what must come there"},
        "rule": {"type": "string", "pattern": f"^{RULE_ID.pattern}$", "description": "which rule says so"},
        "needs": {**_list(_words(capability.NAMES), least=1), "description": "what the points need of the device"},
    }) | {"oneOf": either}  # fmt: skip
    return _object(
        {
            "axes": {"type": "object", "minProperties": 1, "propertyNames": {"pattern": _NAME},
                     "additionalProperties": axis},
            "where": {**_TEXT, "description": "which points of the product there are"},
            "points": {"type": "integer", "minimum": 1, "description": "how many points there are"},
            "expect": {"type": "array", "minItems": 1, "items": clause},
        },
        required=("axes", "points", "expect"),
    )  # fmt: skip


def _rows_of(verb: str) -> Schema:
    row = {"if": {"not": {"required": ["call"]}}, "then": _judged(vocabulary.DEFAULT_CALLS.get(verb, verb))}
    return _if_word("verb", verb, {"properties": {"rows": {"items": row}}})


def _judged(call: str) -> Schema:
    """What holds of a row whose judged call this is."""
    when = {"$ref": f"#/$defs/arguments of {call}"}
    return {"properties": {"when": when, "then": {"$ref": f"#/$defs/then of {call}"}}}


def _step(judged: bool) -> Schema:
    def of(call: str) -> Schema:
        own: Schema = {"call": True} | ({"then": {"$ref": f"#/$defs/then of {call}"}} if judged else {})
        return _object({**own, **_parameters(call)}, required=_required(call))

    return {
        "type": "object",
        "properties": {"call": _or_axis(_words(vocabulary.CALLS))},
        "required": ["call", "then"] if judged else ["call"],
        "allOf": [_if_word("call", call, of(call)) for call in vocabulary.CALLS],
    }


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
        own: Schema = {"call": True, "gone": True}
        return _object({**own, **_parameters(call)}, required=_required(call))

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
            "pd": _or_axis(_object_name()),
            "state": _or_axis(_words(vocabulary.QP_STATES)),
            "sq_sig_all": _or_axis({"type": "boolean"}),
            "access": {"$ref": "#/$defs/flags of ibv_access_flags"},
        },
        required=("type",),
    )


def _window() -> Schema:
    call = vocabulary.BINDS[0]
    own = {key: value for key, value in _parameters(call).items() if key != "mw"}
    bound = _object(own, required=tuple(key for key in _required(call) if key != "mw"))
    window = {"type": _of_enum("ibv_mw_type"), "pd": _or_axis(_object_name()), "bound": _or_axis(bound)}
    return _object(window, required=("type",))


def _arguments(call: str) -> Schema:
    return _or_axis(_object(_parameters(call), required=_required(call)))


def _required(call: str) -> tuple[str, ...]:
    return tuple(key for key, parameter in vocabulary.CALLS[call].items() if parameter.default is None)


def _parameters(call: str) -> dict[str, Schema]:
    return {key: _parameter(parameter) for key, parameter in vocabulary.CALLS[call].items()}


def _parameter(parameter: vocabulary.ArgumentSpec) -> Schema:
    """How an argument is written. KeyError for a kind of parameter that this module has not learnt yet."""
    default = parameter.default
    described: Schema = {} if default is None else {"description": f"{default or 'nothing'} if left out"}
    kinds: dict[str, Callable[[], Schema]] = {
        "object": lambda: _or_axis(_object_name(parameter.nullable)),
        "quantity": lambda: _quantity(empty=parameter.default == ""),
        "flags": lambda: {"$ref": f"#/$defs/flags of {parameter.of}"},
        "value": lambda: _of_enum(parameter.of),
        "word": lambda: _or_axis(_words(parameter.words)),
        "sges": lambda: _or_axis(_list(_or_axis(_sge()))),
    }
    return {**kinds[parameter.kind](), **described}


def _then(call: str) -> Schema:
    codes = ENUMS["ibv_rereg_mr_err_code"].short_names
    properties: dict[str, Schema] = {
        "outcome": _or_axis({"enum": list(vocabulary.OUTCOMES), "description": _meanings(vocabulary.OUTCOMES)}),
        "errno": {"$ref": "#/$defs/errno"},
        "code": _one_or_more(codes),
        "mr": _or_axis({"const": "as_asked"}),
        "completion": _or_axis({"const": "none"}),
        "rkey": _or_axis({"enum": ["changed", "unchanged"]}),
        "because": _or_axis({"enum": list(REASONS)}),
    }
    allowed = {key: value for key, value in properties.items() if call in vocabulary.EXPECTABLE.get(key, (call,))}
    with_outcome = [
        {
            "if": {"required": [key]},
            "then": {"properties": {"outcome": _or_axis({"const": outcome})}},
        }
        for key, outcome in _EITHER_OUTCOME.items()
        if key in allowed
    ]
    full = {**_object(allowed, required=("outcome",)), "allOf": with_outcome}
    return _or_axis({"enum": list(vocabulary.OUTCOMES)}, full)


def _one_or_more(words: Collection[str]) -> Schema:
    one = _words(words)
    return _or_axis(one, _list(_or_axis(one), least=1))


def _flags(enum: str) -> Schema:
    names = ENUMS[enum].short_names
    # An unknown bit is written by its number, so that a table can ask for what no flag has.
    return _or_axis(_list(_words_or_axis(names, r"bit ([0-9]|[12][0-9]|3[01])")))


def _of_enum(enum: str) -> Schema:
    return _or_axis({"enum": list(ENUMS[enum].short_names)}, {"type": "integer"})


def _sge() -> Schema:
    keys = ("addr", "length", "lkey")
    return _object(dict.fromkeys(keys, _quantity()), required=keys)


def _quantity(empty: bool = False) -> Schema:
    return {"anyOf": [{"$ref": "#/$defs/quantity"}, {"const": ""}]} if empty else {"$ref": "#/$defs/quantity"}


def _quantity_pattern() -> str:
    # The longest first, so that `pages` is not read as `page` and a rest.
    words = {*quantity.UNITS, *quantity.PAGES, *quantity.HUGE_PAGES}
    units = "|".join(sorted(words, key=lambda unit: (-len(unit), unit)))
    number = rf"(?:0x[0-9a-fA-F]+|0|[1-9][0-9]*)(?:\s*(?:{units}))?"
    name = rf"(?!(?:{units})\b)[A-Za-z_][A-Za-z0-9_]*(?:\.[a-z_]+)?"
    term = rf"(?:{number}|{name})\s*"
    return rf"^\s*[-+]?\s*{term}(?:[-+]\s*[-+]?\s*{term})*$"


def _object_name(nullable: bool = False) -> Schema:
    name: Schema = {"type": "string", "pattern": _NAME}
    # The loader reads NULL as the word it is; YAML readers of editors make null of it.
    return {"anyOf": [name, {"type": "null"}]} if nullable else name


def _named(value: Schema) -> Schema:
    """A mapping from names of the writer's choice."""
    reserved = sorted({*quantity.RESERVED, *vocabulary.RESERVED})
    return _or_axis({
        "type": "object",
        "propertyNames": {"pattern": _NAME, "not": {"enum": reserved}},
        "additionalProperties": _or_axis(value),
    })  # fmt: skip


def _object(properties: Mapping[str, Any], required: Iterable[str] = ()) -> Schema:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def _list(items: Schema, least: int = 0) -> Schema:
    return {"type": "array", "items": items, "uniqueItems": True, **({"minItems": least} if least else {})}


def _words(words: Iterable[str]) -> Schema:
    return {"enum": list(words)}


def _words_or_axis(words: Collection[str], pattern: str) -> Schema:
    """One of the words, a text of the pattern, or an axis."""
    patterned = {"type": "string", "pattern": f"^{pattern}$"}
    return _or_axis(*([_words(words)] if words else []), patterned)


def _or_axis(*alternatives: Schema) -> Schema:
    """A value of the kinds given, or an axis's placeholder in its stead."""
    return {"anyOf": [*alternatives, _PLACEHOLDER]}


def _if_word(key: str, word: str, then: Schema) -> Schema:
    return {"if": {"properties": {key: {"const": word}}, "required": [key]}, "then": then}


def _entries() -> Schema:
    return _list(_or_axis(_words(vocabulary.ENTRIES)), least=1)


def _meanings(words: Mapping[str, str]) -> str:
    return "; ".join(f"{word}: {meaning}" for word, meaning in words.items())
