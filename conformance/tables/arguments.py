"""Reads a call with its arguments and its expectation: converts YAML nodes with locations into the data of
model/case.py."""

from __future__ import annotations

import re
from dataclasses import replace

from conformance.model import quantity, vocabulary
from conformance.model.case import Argument, Arguments, Expectation, Flags, SgeSpec, Step, Value
from conformance.model.quantity import Quantity
from conformance.model.vocabulary import CALLS, NULL
from conformance.tables.scripts import read_script
from conformance.verbs import ENUMS, INT_BITS, INVENTED, ArgumentSpec
from conformance.yamldoc.nodes import Node
from conformance.yamldoc.reader import Reader, suggestion

REFUSED = "refused"  # the kind of an object that is not created
UNKNOWN_BIT = "unknown bit"
SGE_KEYS = ("addr", "length", "lkey")
_LENGTH_BITS = 32  # of struct ibv_sge
_BIT = re.compile(r"bit ([0-9]{1,9})")
_THEN_KEYS = ("outcome", *vocabulary.EXPECTATIONS)
# The names that messages use for keys of `then`; for all other keys, messages use the key.
_THEN_NAMES = {
    "mr": "expectation of the MR",
    "rkey": "expectation of the rkey",
    "because": "reason of a refusal",
}
_FLAG_WORDS = {
    "ibv_access_flags": "access flag",
    "ibv_rereg_mr_flags": "rereg flag",
    "ibv_send_flags": "send flag",
}

Names = dict[str, str]


def read_step(
    reader: Reader,
    call: str,
    fields: Node | None,
    then: Node | None,
    owner: Node,
    names: Names,
) -> Step:
    """Reads a call and its expectation. `names` has the kind of each existing object."""
    if fields and isinstance(fields.value, dict) and "call" in fields.value:
        location = (fields.keys or {}).get("call", fields.location)
        reader.note(location, "`call` is a key of the row, beside `when`, and not an argument")
        rest = {key: value for key, value in fields.value.items() if key != "call"}
        keys = {key: place for key, place in (fields.keys or {}).items() if key != "call"}
        fields = replace(fields, value=rest, keys=keys)
    arguments = read_arguments(
        reader,
        call,
        f"a call of {call}",
        fields or Node({}, owner.location),
        names,
    )
    if then is not None:
        expectation = read_then(reader, then, call)
    else:
        expectation = Expectation("open")
    return Step(call, arguments, expectation, vocabulary.PRODUCTS.get(call, ("", ""))[1])


def _read_call(reader: Reader, node: Node, names: Names) -> Step | None:
    """Reads a call in a script: `call` and its arguments. The call must succeed."""
    assert isinstance(node.value, dict)
    call = reader.word(node.value["call"], "call", CALLS)
    if call is None:
        return None
    fields = {key: value for key, value in node.value.items() if key != "call"}
    keys = {key: place for key, place in (node.keys or {}).items() if key != "call"}
    step = read_step(reader, call, Node(fields, node.location, keys=keys), None, node, names)
    return replace(step, then=Expectation("success"))


def product(step: Step) -> Names:
    """Returns the name and the kind of the object that a step creates; REFUSED if the step must be refused; empty if its
    call creates no object."""
    if step.name and step.then.outcome == "refused":
        return {step.name: REFUSED}
    if step.name:
        return {step.name: vocabulary.PRODUCTS[step.call][0]}
    return {}


def read_arguments(reader: Reader, call: str, what: str, node: Node, names: Names) -> Arguments:
    """Reads the arguments of a call, and adds the defaults of omitted arguments."""
    fields = reader.mapping(node, what, CALLS[call])
    arguments: dict[str, Argument] = {}
    told = set[str]()
    if not isinstance(node.value, dict):
        return arguments
    for key, parameter in CALLS[call].items():
        node_here = fields.get(key)
        if node_here is None and parameter.default is None:
            reader.note(node.location, f"{call} lacks the argument {key!r}")
            continue
        if node_here is None and (name := _undeclared(parameter, names)):
            if name not in told:
                place = f"`given: {_DECLARED[name]}:`"
                text = f"{key} defaults to {parameter.default}, and {place} does not declare {name}"
                reader.note(node.location, text)
            told.add(name)
            continue
        argument = _argument(reader, parameter, key, node_here or _default(parameter, node), names)
        if argument is not None:
            arguments[key] = argument
    return arguments


def _undeclared(parameter: ArgumentSpec, names: Names) -> str:
    """Returns the memory that the default of an omitted argument needs, if the table does not declare it."""
    name = str(parameter.default).partition(".")[0]
    if name in _DECLARED and name not in names:
        return name
    return ""


def read_argument(reader: Reader, call: str, key: str, node: Node, names: Names) -> Argument | None:
    return _argument(reader, CALLS[call][key], key, node, names)


def _default(parameter: ArgumentSpec, owner: Node) -> Node:
    if parameter.kind == "flags":
        names = str(parameter.default).split()
        return Node(tuple(Node(name, owner.location) for name in names), owner.location)
    return Node(parameter.default, owner.location)


# the part of `given` that declares the memory of a default
_DECLARED = {"buf": "memory", "dmabuf": "dmabufs"}
# The descriptors of a dma-buf other than those of the row's buffers.
_DESCRIPTORS = (*vocabulary.BAD_FDS, vocabulary.EXPORTED)


def _argument(
    reader: Reader,
    parameter: ArgumentSpec,
    key: str,
    node: Node,
    names: Names,
) -> Argument | None:
    if parameter.kind == "flags":
        return read_flags(reader, node, parameter.of)
    if parameter.kind == "word":
        return reader.word(node, key, parameter.words)
    if parameter.kind == "value":
        return read_value(reader, node, parameter.of)
    if parameter.kind == "sges":
        return tuple(_sge(reader, element, names) for element in reader.items(node, key))
    if parameter.kind == "script":
        return read_script(reader, node, names, read_quantity, _read_call)
    if parameter.kind == "object":
        if names.get(str(node.value)) == REFUSED:
            reader.note(node.location, _not_created(str(node.value)))
            return None
        names_of_kind = [name for name, kind in names.items() if kind == parameter.of]
        names_of_kind += [NULL] if parameter.nullable else []
        names_of_kind += _DESCRIPTORS if parameter.of == "dmabuf" else []
        names_of_kind += [INVENTED] if parameter.of == "dmah" and parameter.nullable else []
        return reader.word(
            node, key if key == parameter.of else f"{parameter.of} for {key}", names_of_kind
        )
    if node.value == "" and parameter.default == "":
        return ""
    value = read_quantity(reader, node, names)
    if parameter.of == vocabulary.LENGTH:
        _check_length(reader, node, value)
    return value


def _check_length(reader: Reader, node: Node, length: Quantity | None) -> None:
    """Notes a length that struct ibv_sge cannot have."""
    number = length.constant if length else None
    if number is not None and not 0 <= number < 1 << _LENGTH_BITS:
        text = f"the length of an element has {_LENGTH_BITS} bits and no sign; it cannot be {node.value}"
        reader.note(node.location, text)


def read_quantity(reader: Reader, node: Node, names: Names) -> Quantity | None:
    """Reads a quantity. Unknown objects and properties are mistakes."""
    value = reader.parsed(node, quantity.parse)
    for name, property_ in value.names if value else ():
        kind = names.get(name, "")
        if kind == REFUSED:
            reader.note(node.location, _not_created(name))
        elif kind not in quantity.PROPERTIES:
            region_names = [name for name, kind in names.items() if kind in quantity.PROPERTIES]
            reader.note(node.location, f"unknown object {name!r}{suggestion(name, region_names)}")
        elif property_ and property_ not in quantity.PROPERTIES[kind]:
            properties = quantity.PROPERTIES[kind]
            reader.note(
                node.location,
                f"{name} has no {property_!r}{suggestion(property_, properties)}",
            )
        elif not property_ and kind not in ("memory", "mr"):
            reader.note(
                node.location,
                f"name a property of {name}: {', '.join(quantity.PROPERTIES[kind])}",
            )
    return value


def _not_created(name: str) -> str:
    return f"{name} does not exist after a refusal"


def _sge(reader: Reader, node: Node, names: Names) -> SgeSpec:
    fields = reader.mapping(node, "an element of sg_list", SGE_KEYS, SGE_KEYS)
    element_fields = [
        read_quantity(reader, fields[key], names) if key in fields else None for key in SGE_KEYS
    ]
    if "length" in fields:
        _check_length(reader, fields["length"], element_fields[SGE_KEYS.index("length")])
    empty = Quantity("0", ())
    return SgeSpec(*(field or empty for field in element_fields))


def read_value(reader: Reader, node: Node, enum: str) -> Value | None:
    if isinstance(node.value, int) and not isinstance(node.value, bool):
        return Value(node.value, str(node.value))
    word = reader.word(node, f"name of {enum}", ENUMS[enum].short_names)
    if word:
        return Value(ENUMS[enum].value_of(word), word)
    return None


def read_flags(reader: Reader, node: Node, enum: str) -> Flags:
    mask = 0
    names: list[str] = []
    for item in reader.items(node, "flags", ENUMS[enum].short_names):
        if item.value == UNKNOWN_BIT:
            item = replace(item, value=f"bit {ENUMS[enum].unknown_bit}")
        bit = _bit(reader, item, enum)
        if bit is None:
            continue
        if mask & bit:
            reader.note(item.location, f"duplicate flag {item.value}")
        mask |= bit
        names.append(str(item.value))
    return Flags(mask, tuple(names))


def _bit(reader: Reader, item: Node, enum: str) -> int | None:
    if isinstance(item.value, str):
        unknown = _BIT.fullmatch(item.value)
    else:
        unknown = None
    if unknown:
        return _unknown_bit(reader, item, int(unknown[1]), enum)
    word = reader.word(item, _FLAG_WORDS.get(enum, f"name of {enum}"), ENUMS[enum].short_names)
    if word:
        return ENUMS[enum].value_of(word)
    return None


def _unknown_bit(reader: Reader, item: Node, bit: int, enum: str) -> int | None:
    """Returns the mask of `bit N`, which must not have a name, because the case is about an unknown flag."""
    if bit >= INT_BITS:
        reader.note(item.location, f"bit {bit} is beyond the {INT_BITS} bits of an int")
        return None
    if bit not in ENUMS[enum].unnamed_bits:
        name = ENUMS[enum].name_of(1 << bit)
        reader.note(
            item.location,
            f"bit {bit} of {enum} has a name; write {name}, or '{UNKNOWN_BIT}'",
        )
        return None
    return 1 << bit


def read_then(reader: Reader, node: Node, call: str) -> Expectation:
    """Reads the expectation of a call: an outcome, or a mapping with an outcome and further conditions."""
    if not isinstance(node.value, dict):
        return _expecting(_outcome(reader, node, call) or "open")
    fields = reader.mapping(node, "then", _THEN_KEYS, ("outcome",))
    outcome = _outcome(reader, fields.get("outcome"), call) or "open"
    words = {key: _expected(reader, fields.get(key), key) for key in vocabulary.EXPECTATIONS}
    for key, spec in vocabulary.EXPECTATIONS.items():
        if words[key] and spec.outcomes and outcome not in spec.outcomes and "outcome" in fields:
            needed = " or ".join(map(repr, spec.outcomes))
            reader.note(fields[key].location, f"{key} needs the outcome {needed}")
    for key, spec in vocabulary.EXPECTATIONS.items():
        if key in fields and not spec.applies_to(call):
            calls = ", ".join(spec.calls)
            reader.note(
                fields[key].location,
                f"{key} can only be expected of {calls}, not of {call}",
            )
    single = {
        key: node[0]
        for key, node in words.items()
        if node and not vocabulary.EXPECTATIONS[key].several
    }
    return replace(_expecting(outcome), errno=words["errno"], code=words["code"], **single)


def _outcome(reader: Reader, node: Node | None, call: str) -> str | None:
    outcome = reader.word(node, "outcome", vocabulary.OUTCOMES)
    if node and outcome and call == vocabulary.WIRE and outcome != "success":
        reader.note(node.location, "a row of packets has then: success; refusals stand in gets")
    return outcome


def _expecting(outcome: str) -> Expectation:
    if outcome in (vocabulary.ELSEWHERE, vocabulary.EITHER):
        return Expectation("open", judged=outcome)
    return Expectation(outcome)


def _expected(reader: Reader, node: Node | None, key: str) -> tuple[str, ...]:
    spec, name = vocabulary.EXPECTATIONS[key], _THEN_NAMES.get(key, key)
    if spec.several and node is not None and isinstance(node.value, tuple):
        if not node.value:
            reader.note(
                node.location,
                f"an empty list of {name}s; write at least one, or leave {name} out",
            )
        return reader.words(node, name, spec.words)
    word = reader.word(node, name, spec.words)
    if word:
        return (word,)
    return ()
