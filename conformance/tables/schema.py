"""Creates a JSON Schema (2020-12) of the table language, for editors that check a table while it is written.

The schema is created from the data that the loader also uses (vocabulary.py, model/quantity.py, verbs); therefore a new
call or flag needs no change of this module. Shared parts are defined once, under `$defs`. Only the loader decides
whether a table is valid. It also checks properties that a schema cannot express: which objects exist, and the number of
cases to which the rows expand.
"""

from collections.abc import Callable, Sequence

from conformance.model import capability, quantity, vocabulary
from conformance.model.event_kinds import EVENTS
from conformance.model.script import CALL, LISTS
from conformance.tables import keys
from conformance.tables.arguments import SGE_KEYS, UNKNOWN_BIT
from conformance.tables.expansion import PLACEHOLDER
from conformance.tables.keys import (
    Schema,
    if_word,
    keyed,
    list_of,
    object_schema,
    or_axis,
    ref,
    with_arguments,
    words,
)
from conformance.verbs import ENUMS, ArgumentSpec
from conformance.yamldoc.nodes import MAX_NUMBER

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def table_schema() -> Schema:
    return {
        "$schema": _DIALECT,
        "title": "A table of cases of rdma-cts",
        **keyed(keys.TABLE),
        "allOf": [
            if_word("verb", verb, {"properties": {"rows": {"items": _row_of(verb)}}})
            for verb in vocabulary.VERBS
        ],
        "$defs": _definitions(),
    }


def rules_schema() -> Schema:
    return {
        "$schema": _DIALECT,
        "title": "The rules of a verb of rdma-cts",
        **keyed(keys.RULES_FILE),
    }


def _definitions() -> dict[str, Schema]:
    definitions: dict[str, Schema] = {
        "placeholder": {
            "type": "string",
            "pattern": PLACEHOLDER,
            "description": "a value of an axis of the row",
        },
        "quantity": {
            "anyOf": [
                {"type": "integer", "minimum": -MAX_NUMBER, "maximum": MAX_NUMBER},
                {"type": "string", "pattern": _quantity_pattern()},
                ref("placeholder"),
            ],
            "description": "a sum of numbers with units, constants and properties of objects: buf.addr + 1 page",
        },
        "capability": words(capability.NAMES),
        "call name": or_axis(words(vocabulary.CALLS)),
        "new name": keys.new_name(),
        "name": or_axis(keys.OBJECT_NAME),
        # The loader reads NULL as a word; the YAML readers of editors read NULL as null.
        "name or NULL": or_axis({"anyOf": [keys.OBJECT_NAME, {"type": "null"}]}),
        "outcome": or_axis(keys.described(words(vocabulary.OUTCOMES), vocabulary.OUTCOMES)),
        "given": keyed(keys.GIVEN),
        "row": keyed(keys.ROW)
        | {
            "oneOf": [
                {"required": ["then"]},
                {"required": ["sweep"], "not": {"required": ["each"]}},
            ],
            "allOf": [if_word("call", call, _judged(call)) for call in vocabulary.CALLS],
        },
        "sweep": keyed(keys.SWEEP),
        "call": {
            "type": "object",
            "properties": {"call": ref("call name")},
            "required": ["call"],
            "allOf": [
                if_word(
                    "call",
                    call,
                    with_arguments(call, {"call": True, "then": ref(_then_name(call))}),
                )
                for call in vocabulary.CALLS
            ],
        },
        "step": {"$ref": "#/$defs/call", "required": ["then"]},
        "step before": {"$ref": "#/$defs/call", "properties": {"then": False}},
    }
    for key, spec in vocabulary.EXPECTATIONS.items():
        definitions[f"{key} word"] = or_axis(words(spec.words))
        word_ref = ref(f"{key} word")
        definitions[f"expected {key}"] = (
            {"anyOf": [word_ref, list_of(word_ref, least=1)]} if spec.several else word_ref
        )
    restrictions = {spec.outcomes for spec in vocabulary.EXPECTATIONS.values() if spec.outcomes}
    definitions |= {
        _only(outcomes): {"properties": {"outcome": or_axis(words(outcomes))}}
        for outcomes in sorted(restrictions)
    }
    parameters = [parameter for call in vocabulary.CALLS.values() for parameter in call.values()]
    enums = sorted({parameter.of for parameter in parameters if parameter.kind == "flags"})
    definitions |= {f"flags of {enum}": _flags(enum) for enum in enums}
    for call in vocabulary.CALLS:
        definitions[f"arguments of {call}"] = _arguments(call)
        definitions[_then_name(call)] = _then(call)
    return definitions


def _row_of(verb: str) -> Schema:
    return {
        "if": {"not": {"required": ["call"]}},
        "then": _judged(vocabulary.DEFAULT_CALLS.get(verb, verb)),
    }


def _judged(call: str) -> Schema:
    when = or_axis({**ref(f"arguments of {call}"), "unevaluatedProperties": False})
    return {"properties": {"when": when, "then": ref(_then_name(call))}}


def _arguments(call: str) -> Schema:
    """Returns the schema of a call's arguments. A schema that refers to it adds properties, and excludes all others."""
    arguments = vocabulary.CALLS[call]
    required = [key for key, parameter in arguments.items() if parameter.default is None]
    return {
        "type": "object",
        "properties": {key: _parameter(arguments[key]) for key in arguments},
        "required": required,
    }


def _parameter(parameter: ArgumentSpec) -> Schema:
    """Returns the schema of an argument. Raises KeyError for a kind of parameter that `kinds` does not have."""
    default = parameter.default
    described: Schema = (
        {} if default is None else {"description": f"{default or 'nothing'} if left out"}
    )
    number = ref("quantity")
    kinds: dict[str, Callable[[], Schema]] = {
        "object": lambda: ref("name or NULL" if parameter.nullable else "name"),
        "quantity": lambda: {"anyOf": [number, {"const": ""}]} if default == "" else number,
        "flags": lambda: ref(f"flags of {parameter.of}"),
        "value": lambda: keys.of_enum(parameter.of),
        "word": lambda: or_axis(words(parameter.words)),
        "sges": lambda: or_axis(
            list_of(or_axis(object_schema(dict.fromkeys(SGE_KEYS, number), SGE_KEYS))),
        ),
        "script": lambda: or_axis({"type": "array", "items": or_axis(_event())}),
    }
    return {**kinds[parameter.kind](), **described}


def _event() -> Schema:
    """Returns the schema of an event of a script: the events of model/event_kinds.py, or a call."""
    kinds: list[Schema] = []
    for kind, spec in EVENTS.items():
        if spec.words:
            subject = _words(spec.words, spec.several)
        else:
            subject = ref("quantity")
        properties = {kind: subject, **dict.fromkeys(spec.numbers, ref("quantity"))}
        for key, choices in spec.names.items():
            properties[key] = _words(choices, key in LISTS)
        properties["qp"] = ref("name")
        kinds.append({**object_schema(properties, (kind,)), "description": spec.meaning})
    return {"anyOf": [*kinds, {"type": "object", "required": [CALL]}]}


def _words(choices: tuple[str, ...], several: bool) -> Schema:
    if choices == ("true",):
        return or_axis({"type": "boolean"})
    word = or_axis(words(choices))
    if several:
        return {"anyOf": [word, list_of(word, least=1)]}
    return word


def _expectable(call: str) -> list[str]:
    return [key for key, spec in vocabulary.EXPECTATIONS.items() if spec.applies_to(call)]


def _then_name(call: str) -> str:
    """Returns the name of the definition of a call's expectation. Calls with the same special keys share it."""
    special = [key for key in _expectable(call) if vocabulary.EXPECTATIONS[key].calls]
    if special:
        return f"then with {' and '.join(special)}"
    return "then"


def _then(call: str) -> Schema:
    outcomes = {key: vocabulary.EXPECTATIONS[key].outcomes for key in _expectable(call)}
    only = [
        {"if": {"required": [key]}, "then": ref(_only(restriction))}
        for key, restriction in outcomes.items()
        if restriction
    ]
    properties = {"outcome": ref("outcome")} | {key: ref(f"expected {key}") for key in outcomes}
    return {
        "anyOf": [
            ref("outcome"),
            {**object_schema(properties, required=("outcome",)), "allOf": only},
        ],
    }


def _only(outcomes: Sequence[str]) -> str:
    return f"only {' or '.join(outcomes)}"


def _flags(enum: str) -> Schema:
    # In a table, a bit without a name is written as its number.
    bits = [f"bit {bit}" for bit in ENUMS[enum].unnamed_bits]
    return or_axis(list_of(or_axis(words([*ENUMS[enum].short_names, UNKNOWN_BIT, *bits]))))


def _quantity_pattern() -> str:
    # The longest unit comes first; otherwise `pages` would be read as `page` and `s`.
    named = {*quantity.UNITS, *quantity.PAGES, *quantity.HUGE_PAGES}
    units = "|".join(sorted(named, key=lambda unit: (-len(unit), unit)))
    number = rf"(?:0x[0-9a-fA-F]+|0|[1-9][0-9]*)(?:\s*(?:{units}))?"
    name = rf"(?!(?:{units})\b)[A-Za-z_][A-Za-z0-9_]*(?:\.[a-z_]+)?"
    term = rf"(?:{number}|{name})\s*"
    return rf"^\s*[-+]?\s*{term}(?:[-+]\s*[-+]?\s*{term})*$"
