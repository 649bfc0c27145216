"""Defines the keys of the files in cases/, and the JSON Schema of their values. The loader accepts only these keys, and
decides whether a value is valid. model/vocabulary.py defines the arguments of calls and the keys of `then`; schema.py
adds both, and creates the schema of a file."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from conformance.model import capability, memory_kinds, operations, quantity, vocabulary
from conformance.model.case import PATH_MTUS
from conformance.model.rules import LAYERS, LEVELS, RULE_ID
from conformance.tables.expansion import FLAG_ENUMS, PARTS, UNKNOWN, WHICH
from conformance.tables.key_owners import KEYS, OTHERS, OWNERS, WHERE
from conformance.verbs import ENUMS
from conformance.wire.sequence import PSNS

NEEDS_OF = "needs of"
# A rule has exactly one of these keys: a quotation of its document, or the reason for not quoting it.
QUOTE, UNQUOTED, SECOND_HAND = "quote", "unquoted", "second_hand"
EVIDENCE, CONDITIONAL = "evidence", "conditional"
# The key of an axis of subsets of flags.
SUBSETS = "subsets of"
# The keys of a predicate that is true if any flag of an enumeration, except the excluded flags, is set.
FLAGS, EXCEPT = "flags of", "except"
# One factor of `points`: a number, or the number of values of an axis that is derived from an enumeration of flags.
FACTOR = rf"[1-9][0-9]*|(?:{SUBSETS}|{UNKNOWN}) [a-z_]+"
NAME = "^[A-Za-z_][A-Za-z0-9_]*$"

Schema = dict[str, Any]


@dataclass(frozen=True)
class Key:
    schema: Schema  # the schema of the value
    meaning: str = ""  # a description that editors show
    required: bool = False


Keys = Mapping[str, Key]


def required(keys: Keys) -> tuple[str, ...]:
    return tuple(name for name, key in keys.items() if key.required)


def keyed(keys: Keys) -> Schema:
    described = {
        name: {**key.schema, **({"description": key.meaning} if key.meaning else {})}
        for name, key in keys.items()
    }
    return object_schema(described, required(keys))


def object_schema(properties: Mapping[str, Any], required: Iterable[str] = ()) -> Schema:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def list_of(items: Schema, least: int = 0) -> Schema:
    return {
        "type": "array",
        "items": items,
        "uniqueItems": True,
        **({"minItems": least} if least else {}),
    }


def words(values: Iterable[str]) -> Schema:
    return {"enum": list(values)}


def described(schema: Schema, values: Mapping[str, str]) -> Schema:
    """Returns the schema with the meanings of its words, for editors."""
    return {
        **schema,
        "description": "; ".join(f"{word}: {meaning}" for word, meaning in values.items()),
    }


def or_axis(*alternatives: Schema) -> Schema:
    """Returns the schema of one of the alternatives, or of a placeholder for an axis value of the row."""
    return {"anyOf": [*alternatives, ref("placeholder")]}


def new_name() -> Schema:
    return {"pattern": NAME, "not": {"enum": sorted({*quantity.RESERVED, *vocabulary.RESERVED})}}


def _named(value: Schema) -> Schema:
    """Returns the schema of a mapping whose keys are names of new objects or axes."""
    return or_axis(
        {
            "type": "object",
            "propertyNames": ref("new name"),
            "additionalProperties": or_axis(value),
        },
    )


def of_enum(enum: str) -> Schema:
    return or_axis(words(ENUMS[enum].short_names), {"type": "integer"})


def if_word(key: str, word: str, then: Schema) -> Schema:
    return {"if": {"properties": {key: {"const": word}}, "required": [key]}, "then": then}


def with_arguments(call: str, own: Schema) -> Schema:
    """Returns the schema of a mapping that has only the arguments of a call and the properties `own`."""
    return {**ref(f"arguments of {call}"), "properties": own, "unevaluatedProperties": False}


def _retired(id_: Schema) -> Schema:
    return {
        "type": "array",
        "items": object_schema({"id": id_, "why": _TEXT}, required=("id", "why")),
    }


def _sized(kinds: Mapping[str, str]) -> Schema:
    kind = described(or_axis(words(kinds)), kinds)
    return _named(object_schema({"kind": kind, "size": ref("quantity")}, required=("kind", "size")))


_TEXT: Schema = {"type": "string", "pattern": r"\S"}
OBJECT_NAME: Schema = {"type": "string", "pattern": NAME}
_TRUTH = or_axis({"type": "boolean"})
_SUBJECT = words(vocabulary.VERBS)
_RULE_ID: Schema = {"type": "string", "pattern": f"^{RULE_ID.pattern}$"}
_ENTRIES = list_of(or_axis(words(vocabulary.ENTRIES)), least=1)
_DOORS = object_schema(dict.fromkeys(vocabulary.DOORS, _RULE_ID))
_UNKNOWN_BITS = object_schema(
    {UNKNOWN: words(FLAG_ENUMS), WHICH: words(PARTS)},
    required=(UNKNOWN,),
)
_KEYS_OF_OTHERS = object_schema({OTHERS: words(KEYS), OWNERS: words(WHERE)}, required=(OTHERS,))
_VALUES: Schema = {"type": "array", "minItems": 1, "uniqueItems": True}
# An axis of a row: a list of values, values by name, unknown bits, or keys of others.
_AXIS: Schema = {
    "anyOf": [
        _VALUES,
        {
            "type": "object",
            "minProperties": 1,
            "propertyNames": {"not": {"enum": [UNKNOWN, OTHERS]}},
        },
        _UNKNOWN_BITS,
        _KEYS_OF_OTHERS,
    ],
}
_AXIS_OF_SWEEP: Schema = {
    "anyOf": [
        _VALUES,
        object_schema(
            {SUBSETS: {"anyOf": [words(FLAG_ENUMS), list_of({"type": "string"}, least=1)]}},
            (SUBSETS,),
        ),
        object_schema({UNKNOWN: words(FLAG_ENUMS)}, required=(UNKNOWN,)),
        _KEYS_OF_OTHERS,
        {
            "type": "object",
            "minProperties": 1,
            "propertyNames": {"not": {"enum": [SUBSETS, UNKNOWN, OTHERS]}},
        },
    ],
}
_POINTS = rf"^\s*(?:{FACTOR})\s*(?:\*\s*(?:{FACTOR})\s*)*$"
_OF_REGION = {"call": True, "gone": True}
_REGION: Schema = {
    "type": "object",
    "properties": {"call": or_axis(words(vocabulary.REGISTRATIONS)), "gone": _TRUTH},
    "allOf": [
        *(
            if_word("call", call, with_arguments(call, _OF_REGION))
            for call in vocabulary.REGISTRATIONS
        ),
        {
            "if": {"not": {"required": ["call"]}},
            "then": with_arguments(vocabulary.REGISTRATIONS[0], _OF_REGION),
        },
    ],
}
_PREDICATE: Schema = {
    "anyOf": [
        _TEXT,
        object_schema(
            {FLAGS: words(FLAG_ENUMS), EXCEPT: list_of({"type": "string"})},
            required=(FLAGS,),
        ),
        _UNKNOWN_BITS,
    ],
}

# A pair of queue pairs has the type of both ends, or one of those with a shared receive queue.
PAIR_TYPES = (*ENUMS["ibv_qp_type"].short_names, "RC_SRQ", "XRC")
# The numbers of a queue pair: the largest value of each, and its meaning if this is not the attribute of ibv_modify_qp.
QUEUE_PAIR_NUMBERS: Mapping[str, tuple[int, str]] = {
    "max_dest_rd_atomic": (255, ""),
    "max_rd_atomic": (255, ""),
    "inline": (0xFFFFFFFF, "max_inline_data, in bytes"),
    "timeout": (31, ""),
    "retry_cnt": (7, ""),
    "rnr_retry": (7, ""),
    "traffic_class": (255, ""),
    "psn": (PSNS - 1, "the first PSN"),
}
QUEUE_PAIR: Keys = {
    "type": Key(or_axis(words(PAIR_TYPES)), required=True),
    "pd": Key(ref("name")),
    "state": Key(or_axis(words(vocabulary.QP_STATES))),
    "sq_sig_all": Key(_TRUTH),
    "access": Key(ref("flags of ibv_access_flags")),
    "poster": Key(or_axis(words(operations.POSTERS))),
    "notifies": Key(_TRUTH),
    "by_readers": Key(_TRUTH),
    "one_queue": Key(_TRUTH),
    "peer": Key(or_axis(words(vocabulary.PEERS)), "the other end, if it is no queue pair"),
    "ip": Key(or_axis(words(("v4", "v6"))), "the version of the peer's IP address"),
    "mtu": Key(or_axis({"enum": [*PATH_MTUS]}), "the path MTU, in bytes"),
    **{
        name: Key(or_axis({"type": "integer", "minimum": 0, "maximum": most}), meaning)
        for name, (most, meaning) in QUEUE_PAIR_NUMBERS.items()
    },
}
WINDOW: Keys = {
    "type": Key(of_enum("ibv_mw_type"), required=True),
    "pd": Key(ref("name")),
    # The argument `mw` is excluded, because the bind is always a bind of the described window.
    "bound": Key(or_axis(with_arguments(vocabulary.BINDS[0], {"mw": False}))),
}
GIVEN: Keys = {
    "memory": Key(_sized(memory_kinds.MEMORY_KINDS)),
    "dmabufs": Key(_sized(memory_kinds.DMABUF_KINDS)),
    "pds": Key(or_axis(list_of(OBJECT_NAME))),
    "mrs": Key(_named(_REGION)),
    "qps": Key(_named(keyed(QUEUE_PAIR))),
    "windows": Key(_named(keyed(WINDOW))),
    "memlock": Key(ref("quantity")),
}
CLAUSE: Keys = {
    "if": Key(_TEXT, "the points of the expectation; without `if`, all remaining points"),
    "then": Key(
        or_axis(words(vocabulary.OUTCOMES), {"type": "object", "required": ["outcome"]}),
        "the required result at these points",
    ),
    "rule": Key(_RULE_ID, "the rule that requires this result"),
    "also": Key(
        list_of(_RULE_ID, least=1),
        "further rules of the row whose sentences require this result",
    ),
    "needs": Key(list_of(ref("capability"), least=1), "the capabilities that the points need"),
    NEEDS_OF: Key(
        {"type": "string"},
        "an axis of access flags: a flag needs the capability in its description",
    ),
}
_CLAUSE: Schema = keyed(CLAUSE) | {
    "oneOf": [
        {"required": ["then", "rule"]},
        *({"required": [key], "not": {"required": ["rule"]}} for key in ("needs", NEEDS_OF)),
    ],
}
SWEEP: Keys = {
    # Only the loader checks the words in the sweep's expressions.
    "axes": Key(
        {
            "type": "object",
            "minProperties": 1,
            "propertyNames": {"pattern": NAME},
            "additionalProperties": _AXIS_OF_SWEEP,
        },
        required=True,
    ),
    "where": Key(_TEXT, "the condition that selects points of the product"),
    "points": Key(
        {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": _POINTS}]},
        "the number of points: a number, or a product with the sizes of derived axes",
        required=True,
    ),
    "expect": Key({"type": "array", "minItems": 1, "items": _CLAUSE}, required=True),
    "tries": Key(
        _TRUTH,
        "all points repeat one experiment: chance decides which points show a violation",
    ),
}
ROW: Keys = {
    "id": Key(_TEXT, "unique in the table; $name stands for a value of the axis", required=True),
    "about": Key(_TEXT),
    "rules": Key(or_axis(list_of(or_axis(_RULE_ID), least=1)), required=True),
    "needs": Key(or_axis(list_of(or_axis(ref("capability"))))),
    "each": Key(_named(_AXIS), "the axes"),
    "entries": Key(or_axis(_ENTRIES)),
    "also": Key(_DOORS, "other verbs, each with its rule, with which the row is also run"),
    "given": Key(or_axis(ref("given"))),
    "before": Key(or_axis({"type": "array", "items": or_axis(ref("step before"))})),
    "call": Key(ref("call name"), "the judged call, if it is not a call of the verb under test"),
    # The schemas of `when` and `then` depend on the call.
    "when": Key({}, "the arguments of the judged call"),
    "then": Key(
        {},
        "the required result: an outcome, or a mapping with an outcome and further conditions",
    ),
    "afterwards": Key(or_axis({"type": "array", "items": or_axis(ref("step"))})),
    "note": Key(_TEXT, "a remark for the result"),
    "hazardous": Key(_TRUTH, "the case can crash the kernel"),
    "ends_process": Key(_TRUTH, "the case can end its own process, but cannot crash the kernel"),
    "tier": Key(described(or_axis(words(vocabulary.TIERS)), vocabulary.TIERS)),
    "sweep": Key(ref("sweep")),
}
TABLE: Keys = {
    "verb": Key(
        _SUBJECT,
        "the verb under test, which is also the name of the folder",
        required=True,
    ),
    "about": Key(_TEXT, "what the table shows, for people"),
    "cases": Key(
        {"type": "integer", "minimum": 1},
        "the number of cases to which the rows expand",
        required=True,
    ),
    "entries": Key(_ENTRIES),
    "also": Key(_DOORS, "other verbs, each with its rule, with which the rows are also run"),
    "given": Key(ref("given")),
    "model": Key({"type": "object"}, "the parameters of the table's points, see docs/model.md"),
    "retired": Key(
        _retired(_TEXT),
        "ids of cases that no longer exist; these ids are never used again",
    ),
    "rows": Key({"type": "array", "minItems": 1, "items": ref("row")}, required=True),
}
RULE: Keys = {
    "id": Key(_RULE_ID, "permanent; never used for another rule", required=True),
    "short": Key(
        _TEXT,
        "the subject of the rule in a few words of the field, for titles of defects",
    ),
    "statement": Key(_TEXT, "the documented statement in our own words", required=True),
    "document": Key(_TEXT, required=True),
    "section": Key(_TEXT, required=True),
    "level": Key(words(LEVELS), required=True),
    "layer": Key(words(LAYERS), "the layer that enforces the rule", required=True),
    "needs": Key(list_of(words(capability.NAMES)), required=True),
    "since": Key(
        _TEXT,
        "the first rdma-core whose document has the statement, in quotes",
        required=True,
    ),
    "failure_means": Key(_TEXT, "the consequence of a violation for applications", required=True),
    QUOTE: Key(
        _TEXT,
        "at most one sentence of the document, word for word; […] for words left out",
    ),
    "argument_against": Key(
        _TEXT,
        "one sentence: what a maintainer may answer to a violation, with the driver's text",
    ),
    UNQUOTED: Key(_TEXT, "why the document is not quoted, in our own words"),
    SECOND_HAND: Key(_TEXT, "the public source from which a statement of the IBA is known"),
    EVIDENCE: Key(
        list_of(_TEXT),
        "the evidence that suffices to verify the rule, such as: refused RDMA_WRITE at uverbs",
    ),
    CONDITIONAL: Key(_TEXT, "the situation that the rule is about, if some stacks do not have it"),
}
RULES_FILE: Keys = {
    "verb": Key(_SUBJECT, required=True),
    "rules": Key(
        {
            "type": "array",
            "items": {**keyed(RULE), "oneOf": [{"required": [QUOTE]}, {"required": [UNQUOTED]}]},
        },
        required=True,
    ),
    "predicates": Key(
        {"type": "object", "propertyNames": new_name(), "additionalProperties": _PREDICATE},
        "conditions by name, for the `if` of sweeps",
    ),
    "retired": Key(_retired(_RULE_ID | {"description": RULE["id"].meaning})),
}
