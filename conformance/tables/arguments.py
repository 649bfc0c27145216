"""Reads the parts of a row: what is given, a call with its arguments, what must come of it.

Turns located YAML into the frozen data of model/case.py. Files, rows and their expansion: loader.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from conformance.model import quantity, vocabulary
from conformance.model.case import (
    Argument,
    Arguments,
    Expectation,
    Flags,
    Given,
    MemorySpec,
    MrSpec,
    QpSpec,
    SgeSpec,
    Step,
    Value,
    WindowSpec,
)  # fmt: skip
from conformance.model.quantity import Quantity
from conformance.model.vocabulary import CALLS, NULL, ArgumentSpec
from conformance.verbs import ENUMS, INT_BITS
from conformance.yamldoc.nodes import Location, Node, quoted
from conformance.yamldoc.reader import Reader, suggestion

_BIT = re.compile(r"bit ([0-9]{1,9})")
_GIVEN_KEYS = ("memory", "dmabufs", "pds", "mrs", "qps", "windows", "memlock")
# No address space of Linux is larger.
_MAX_MEMORY = 1 << 57
_THEN_KEYS = ("outcome", *vocabulary.EXPECTATIONS)
# What a mistake calls the value of a key of `then`, where that is not the key itself.
_THEN_NAMES = {
    "mr": "expectation of the MR", "rkey": "expectation of the rkey", "because": "reason of a refusal",
}  # fmt: skip
_FLAG_WORDS = {"ibv_access_flags": "access flag", "ibv_rereg_mr_flags": "rereg flag", "ibv_send_flags": "send flag"}

Names = dict[str, str]


def read_step(reader: Reader, call: str, fields: Node | None, then: Node | None, owner: Node, names: Names) -> Step:
    """A call with what must come of it; `names` are the objects that exist by then, with their kinds."""
    arguments = read_arguments(reader, call, f"a call of {call}", fields or Node({}, owner.location), names)
    expectation = read_then(reader, then, call) if then is not None else Expectation("open")
    return Step(call, arguments, expectation, vocabulary.PRODUCTS.get(call, ("", ""))[1])


def product(step: Step) -> Names:
    """The name and kind of what a step makes."""
    return {step.name: vocabulary.PRODUCTS[step.call][0]} if step.name else {}


def read_arguments(reader: Reader, call: str, what: str, node: Node, names: Names) -> Arguments:
    """The arguments of a call, defaults filled in."""
    fields = reader.mapping(node, what, CALLS[call])
    arguments: dict[str, Argument] = {}
    if not isinstance(node.value, dict):
        return arguments
    for key, parameter in CALLS[call].items():
        given = fields.get(key)
        if given is None and parameter.default is None:
            reader.note(node.location, f"{call} lacks the argument {key!r}")
            continue
        argument = _argument(reader, parameter, key, given or _default(parameter, node), names)
        if argument is not None:
            arguments[key] = argument
    return arguments


def read_argument(reader: Reader, call: str, key: str, node: Node, names: Names) -> Argument | None:
    """One argument of a call."""
    return _argument(reader, CALLS[call][key], key, node, names)


def _default(parameter: ArgumentSpec, owner: Node) -> Node:
    if parameter.kind == "flags":
        names = str(parameter.default).split()
        return Node(tuple(Node(name, owner.location) for name in names), owner.location)
    return Node(parameter.default, owner.location)


def _argument(reader: Reader, parameter: ArgumentSpec, key: str, node: Node, names: Names) -> Argument | None:
    if parameter.kind == "flags":
        return _flags(reader, node, parameter.of)
    if parameter.kind == "word":
        return reader.word(node, key, parameter.words)
    if parameter.kind == "value":
        return _value(reader, node, parameter.of)
    if parameter.kind == "sges":
        return tuple(_sge(reader, element, names) for element in reader.items(node, key))
    if parameter.kind == "object":
        known = [name for name, kind in names.items() if kind == parameter.of]
        known += [NULL] if parameter.nullable else []
        known += vocabulary.BAD_FDS if parameter.of == "dmabuf" else []
        return reader.word(node, key if key == parameter.of else f"{parameter.of} for {key}", known)
    if node.value == "" and parameter.default == "":
        return ""
    return read_quantity(reader, node, names)


def read_quantity(reader: Reader, node: Node, names: Names) -> Quantity | None:
    """A quantity whose objects and properties exist."""
    value = reader.parsed(node, quantity.parse)
    for name, property_ in value.names if value else ():
        kind = names.get(name, "")
        if kind not in quantity.PROPERTIES:
            known = [known for known, kind in names.items() if kind in quantity.PROPERTIES]
            reader.note(node.location, f"unknown object {name!r}{suggestion(name, known)}")
        elif property_ and property_ not in quantity.PROPERTIES[kind]:
            properties = quantity.PROPERTIES[kind]
            reader.note(node.location, f"{name} has no {property_!r}{suggestion(property_, properties)}")
        elif not property_ and kind not in ("memory", "mr"):
            reader.note(node.location, f"say which property of {name}: {', '.join(quantity.PROPERTIES[kind])}")
    return value


def _sge(reader: Reader, node: Node, names: Names) -> SgeSpec:
    keys = ("addr", "length", "lkey")
    fields = reader.mapping(node, "an element of sg_list", keys, keys)
    found = [read_quantity(reader, fields[key], names) if key in fields else None for key in keys]
    empty = Quantity("0", ())
    return SgeSpec(*(each or empty for each in found))


def _value(reader: Reader, node: Node, enum: str) -> Value | None:
    if isinstance(node.value, int) and not isinstance(node.value, bool):
        return Value(node.value, str(node.value))
    word = reader.word(node, f"name of {enum}", ENUMS[enum].short_names)
    return Value(ENUMS[enum].value_of(word), word) if word else None


def _flags(reader: Reader, node: Node, enum: str) -> Flags:
    mask = 0
    names: list[str] = []
    for item in reader.items(node, "flags"):
        bit = _bit(reader, item, enum)
        if bit is None:
            continue
        if mask & bit:
            reader.note(item.location, f"flag {item.value} stands twice")
        mask |= bit
        names.append(str(item.value))
    return Flags(mask, tuple(names))


def _bit(reader: Reader, item: Node, enum: str) -> int | None:
    unknown = _BIT.fullmatch(item.value) if isinstance(item.value, str) else None
    if unknown:
        return _unknown_bit(reader, item, int(unknown[1]), enum)
    word = reader.word(item, _FLAG_WORDS.get(enum, f"name of {enum}"), ENUMS[enum].short_names)
    return ENUMS[enum].value_of(word) if word else None


def _unknown_bit(reader: Reader, item: Node, bit: int, enum: str) -> int | None:
    """The mask of `bit N`, which is for bits without a name: a case of an unknown flag must not take a known one."""
    if bit >= INT_BITS:
        reader.note(item.location, f"bit {bit} is beyond an int's {INT_BITS} bits")
        return None
    if bit not in ENUMS[enum].unnamed_bits:
        name = ENUMS[enum].name_of(1 << bit)
        reader.note(item.location, f"bit {bit} of {enum} has a name; write {name}, or take a bit without one")
        return None
    return 1 << bit


def read_then(reader: Reader, node: Node, call: str) -> Expectation:
    """What must come of a call: an outcome alone, or a mapping with more about it."""
    if not isinstance(node.value, dict):
        return Expectation(reader.word(node, "outcome", vocabulary.OUTCOMES) or "open")
    fields = reader.mapping(node, "then", _THEN_KEYS, ("outcome",))
    outcome = reader.word(fields.get("outcome"), "outcome", vocabulary.OUTCOMES) or "open"
    words = {key: _expected(reader, fields.get(key), key) for key in vocabulary.EXPECTATIONS}
    for key, spec in vocabulary.EXPECTATIONS.items():
        if words[key] and spec.outcome and outcome != spec.outcome and "outcome" in fields:
            reader.note(fields[key].location, f"{key} is only expected of a call with the outcome {spec.outcome!r}")
    for key, spec in vocabulary.EXPECTATIONS.items():
        if key in fields and not spec.applies_to(call):
            calls = ", ".join(spec.calls)
            reader.note(fields[key].location, f"{key} can be expected of {calls} only, not of {call}")
    mr, completion, rkey, because = (
        words[key][0] if words[key] else "" for key in ("mr", "completion", "rkey", "because")
    )
    return Expectation(outcome, words["errno"], words["code"], mr, completion, rkey, because)


def _expected(reader: Reader, node: Node | None, key: str) -> tuple[str, ...]:
    """The words that a key of `then` has, where the table gives it."""
    spec, name = vocabulary.EXPECTATIONS[key], _THEN_NAMES.get(key, key)
    if spec.several:
        return _one_or_more(reader, node, name, spec.words)
    word = reader.word(node, name, spec.words)
    return (word,) if word else ()


def _one_or_more(reader: Reader, node: Node | None, what: str, known: tuple[str, ...]) -> tuple[str, ...]:
    if node is None:
        return ()
    if isinstance(node.value, tuple):
        if not node.value:
            reader.note(node.location, f"an empty list of {what}s; name one or leave {what} out")
        return reader.words(node, what, known)
    word = reader.word(node, what, known)
    return (word,) if word else ()


@dataclass
class _Sections:
    """The sections of `given` by object name; a row's own replace the table's of the same name."""

    named: dict[str, dict[str, Node]] = field(
        default_factory=lambda: {key: {} for key in _GIVEN_KEYS if key not in ("pds", "memlock")}
    )
    pds: tuple[str, ...] = ()
    memlock: Quantity | None = None
    section_of: dict[str, str] = field(default_factory=lambda: {"pd": "pds"})

    def take(self, reader: Reader, node: Node) -> None:
        fields = reader.mapping(node, "given", _GIVEN_KEYS)
        for section, content in self.named.items():
            named = reader.named(fields.get(section), section, quantity.RESERVED | set(vocabulary.RESERVED))
            for name, value in named.items():
                if self._claim(reader, name, section, (fields[section].keys or {})[name]):
                    content[name] = value
        for item in reader.items(fields.get("pds"), "pds"):
            pd = reader.text(item, "a PD's name") or ""
            if pd and not (pd.isidentifier() and pd.isascii()):
                reader.note(item.location, f"{quoted(pd)} in pds is no name; use letters, digits and _")
            elif pd in self.pds or pd == "pd":
                reader.note(item.location, f"PD {pd!r} is there already")
            elif pd and self._claim(reader, pd, "pds", item.location):
                self.pds += (pd,)
        if "memlock" in fields:
            self.memlock = _machine_size(reader, fields["memlock"], "a limit")

    def _claim(self, reader: Reader, name: str, section: str, location: Location) -> bool:
        """A name means one object: a row may replace the table's, but not by another kind."""
        owner = self.section_of.setdefault(name, section)
        if owner != section:
            reader.note(location, f"{name!r} is the name of something in {owner} already")
        return owner == section


def read_given(reader: Reader, nodes: tuple[Node | None, ...]) -> tuple[Given, Names]:
    """What exists before the judged call, from the table's `given` and the row's, and the names it has."""
    sections = _Sections()
    for node in nodes:
        if node is not None:
            sections.take(reader, node)
    named = sections.named
    memory = _buffers(reader, named["memory"], "memory", vocabulary.MEMORY_KINDS)
    dmabufs = _buffers(reader, named["dmabufs"], "a dma-buf", vocabulary.DMABUF_KINDS)
    names: Names = {"pd": "pd", **dict.fromkeys(sections.pds, "pd")}
    names |= {**dict.fromkeys(memory, "memory"), **dict.fromkeys(dmabufs, "dmabuf")}
    mrs = {name: _mr(reader, name, node, names) for name, node in named["mrs"].items()}
    names |= dict.fromkeys(mrs, "mr")
    qps = {name: _qp(reader, node, names) for name, node in named["qps"].items()}
    names |= dict.fromkeys(qps, "qp")
    windows = {name: _window(reader, name, node, names) for name, node in named["windows"].items()}
    names |= dict.fromkeys(windows, "window")
    return Given(memory, dmabufs, sections.pds, mrs, qps, windows, sections.memlock), names


def _buffers(reader: Reader, nodes: Mapping[str, Node], what: str, kinds: Mapping[str, str]) -> dict[str, MemorySpec]:
    found = {}
    for name, node in nodes.items():
        fields = reader.mapping(node, what, ("kind", "size"), ("kind", "size"))
        kind = reader.word(fields.get("kind"), f"kind of {what}", kinds)
        size = _machine_size(reader, fields["size"], "a size of memory") if "size" in fields else None
        # Even with a mistake the name is there, so that what uses it is not called a mistake too.
        found[name] = MemorySpec(kind or "", size or Quantity("1", ()))
    return found


def _machine_size(reader: Reader, node: Node, what: str) -> Quantity | None:
    """A quantity of bytes that is known before any object exists: not 0, and not more than a machine has."""
    size = reader.parsed(node, quantity.parse)
    if size and size.names:
        reader.note(node.location, f"{what} cannot rest on another object")
        return None
    if size and not 0 < size.evaluate(4096, 2 << 20, lambda name, property_: 0) < _MAX_MEMORY:
        reader.note(node.location, f"{what} must be between 1 byte and what a machine can have")
        return None
    return size


def _mr(reader: Reader, name: str, node: Node, names: Names) -> MrSpec:
    fields = node.value if isinstance(node.value, dict) else {}
    call = reader.word(fields.get("call"), "call", vocabulary.REGISTRATIONS) or "ibv_reg_mr"
    gone = reader.truth(fields.get("gone"), "gone")
    return MrSpec(call, read_arguments(reader, call, f"MR {name!r}", _without(node, "call", "gone"), names), gone)


def _qp(reader: Reader, node: Node, names: Names) -> QpSpec:
    fields = reader.mapping(node, "a queue pair", ("type", "pd", "state", "sq_sig_all", "access"), ("type",))
    kind = reader.word(fields.get("type"), "type of queue pair", ENUMS["ibv_qp_type"].short_names) or "RC"
    pds = [name for name, kind in names.items() if kind == "pd"]
    return QpSpec(
        kind,
        reader.word(fields.get("pd"), "pd", pds) or "pd",
        reader.word(fields.get("state"), "state", vocabulary.QP_STATES) or "RTS",
        reader.truth(fields.get("sq_sig_all"), "sq_sig_all"),
        _flags(reader, fields["access"], "ibv_access_flags").mask if "access" in fields else None,
    )


def _window(reader: Reader, name: str, node: Node, names: Names) -> WindowSpec:
    fields = reader.mapping(node, "a window", ("type", "pd", "bound"), ("type",))
    kind = _value(reader, fields["type"], "ibv_mw_type") if "type" in fields else None
    number = kind.number if kind else 1
    pds = [known for known, kind in names.items() if kind == "pd"]
    pd = reader.word(fields.get("pd"), "pd", pds) or "pd"
    bound = None
    if "bound" in fields:
        call = vocabulary.BINDS[0 if number == 1 else 1]
        own = _without(fields["bound"], "mw")
        if own is not fields["bound"] and own.keys != fields["bound"].keys:
            location = (fields["bound"].keys or {})["mw"]
            reader.note(location, f"the window that is bound is {name!r} itself; leave mw out")
        arguments = read_arguments(reader, call, f"the bind of {name!r}", own, {**names, "mw": "window"})
        bound = {**arguments, "mw": name}
    return WindowSpec(pd, number, bound)


def _without(node: Node, *keys: str) -> Node:
    """The mapping without some keys that its reader does not know; other nodes as they are."""
    if not isinstance(node.value, dict):
        return node
    fields = {key: value for key, value in node.value.items() if key not in keys}
    return Node(
        fields, node.location, keys={key: location for key, location in (node.keys or {}).items() if key not in keys}
    )
