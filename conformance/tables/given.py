"""Reads `given` of a row: memory, PDs, regions, queue pairs and windows. Converts YAML nodes with locations into the
data of model/case.py."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Optional

from conformance.model import memory_kinds, operations, quantity, vocabulary
from conformance.model.case import PATH_MTUS, Given, MemorySpec, MrSpec, QpSpec, WindowSpec
from conformance.model.quantity import Quantity
from conformance.tables import keys
from conformance.tables.arguments import Names, read_arguments, read_flags, read_value
from conformance.yamldoc.nodes import Location, Node, quoted
from conformance.yamldoc.reader import Reader

# The size of the largest address space of Linux, in bytes.
_MAX_MEMORY = 1 << 57
# The value of QpSpec.extended for each word after `poster`.
_EXTENDED = {"post_send": "", **{poster: poster for poster in operations.BUILDERS}}


ReadObject = Callable[[Reader, str, Node, Names], Any]
# by the name of an object: its section, and its description
_Found = dict[str, tuple[str, Optional[Node]]]


def read_given(reader: Reader, nodes: tuple[Node | None, ...]) -> tuple[Given, Names]:
    """Reads `given` of the table and of the row. Returns all objects, and the kind of each by name."""
    objects_here: _Found = {"pd": ("pds", None)}
    memlock: Quantity | None = None
    for node in filter(None, nodes):
        fields = reader.mapping(node, "given", keys.GIVEN)
        for section in SECTIONS:
            named = reader.named(
                fields.get(section),
                section,
                quantity.RESERVED | set(vocabulary.RESERVED),
            )
            for name, value in named.items():
                _claim(
                    reader, objects_here, name, (section, value), (fields[section].keys or {})[name]
                )
        for item in reader.items(fields.get("pds"), "pds"):
            _claim_pd(reader, objects_here, item)
        if "memlock" in fields:
            memlock = read_memlock(reader, fields["memlock"])
    pds = (name for name, (section, _) in objects_here.items() if section == "pds" and name != "pd")
    set_up = Given(pds=tuple(pds), memlock=memlock)
    for section, (_, read) in SECTIONS.items():
        names, named_nodes = (
            names_of(set_up),
            {name: node for name, (of, node) in objects_here.items() if of == section and node},
        )
        objects: Any = {name: read(reader, name, node, names) for name, node in named_nodes.items()}
        set_up = replace(set_up, **{section: objects})
    return set_up, names_of(set_up)


def _claim(
    reader: Reader,
    objects: _Found,
    name: str,
    own: tuple[str, Node],
    location: Location,
) -> None:
    """Adds an object to `objects`. A row may replace an object of the table only by an object of the same section."""
    owner, _ = objects.setdefault(name, own)
    if owner == own[0]:
        objects[name] = own
    else:
        reader.note(location, f"duplicate name {name!r}, which is already in {owner}")


def _claim_pd(reader: Reader, objects: _Found, item: Node) -> None:
    pd = reader.text(item, "a PD's name") or ""
    if pd and not (pd.isidentifier() and pd.isascii()):
        reader.note(item.location, f"invalid name {quoted(pd)} of a PD; use letters, digits and _")
    elif pd in objects and objects[pd][0] == "pds":
        reader.note(item.location, f"duplicate PD {pd!r}")
    elif pd:
        _claim(reader, objects, pd, ("pds", item), item.location)


def names_of(given: Given) -> Names:
    """Returns the kind of each object, by the object's name."""
    names: Names = {"pd": "pd", **dict.fromkeys(given.pds, "pd")}
    for section, (kind, _) in SECTIONS.items():
        names |= dict.fromkeys(getattr(given, section), kind)
    return names


def _read_buffer(
    what: str,
    kinds: Collection[str],
    reader: Reader,
    name: str,
    node: Node,
    names: Names,
) -> MemorySpec:
    fields = reader.mapping(node, what, ("kind", "size"), ("kind", "size"))
    kind = reader.word(fields.get("kind"), f"kind of {what}", kinds)
    if "size" in fields:
        size = _size(reader, fields["size"], "a size of memory")
    else:
        size = None
    # The object is returned even after a mistake; otherwise each use of the object would be reported as a mistake, too.
    return MemorySpec(kind or "", size or Quantity("1", ()))


def read_memlock(reader: Reader, node: Node) -> Quantity | None:
    return _size(reader, node, "a limit")


def _size(reader: Reader, node: Node, what: str) -> Quantity | None:
    """Reads a size in bytes, which must not depend on objects, must not be 0, and must fit into an address space."""
    size = reader.parsed(node, quantity.parse)
    if size and size.names:
        reader.note(node.location, f"{what} cannot depend on another object")
        return None
    if size and not 0 < size.evaluate(4096, 2 << 20, lambda name, property_: 0) < _MAX_MEMORY:
        reader.note(node.location, f"{what} must be at least 1 byte and less than 2^57 bytes")
        return None
    return size


def _read_mr(reader: Reader, name: str, node: Node, names: Names) -> MrSpec:
    if isinstance(node.value, dict):
        fields = node.value
    else:
        fields = {}
    call = reader.word(fields.get("call"), "call", vocabulary.REGISTRATIONS) or "ibv_reg_mr"
    gone = reader.truth(fields.get("gone"), "gone")
    return MrSpec(
        call,
        read_arguments(reader, call, f"MR {name!r}", without(node, "call", "gone"), names),
        gone,
    )


def _read_qp(reader: Reader, name: str, node: Node, names: Names) -> QpSpec:
    fields = reader.mapping(node, "a queue pair", keys.QUEUE_PAIR, keys.required(keys.QUEUE_PAIR))
    kind = reader.word(fields.get("type"), "type of queue pair", keys.PAIR_TYPES) or "RC"
    pds = [name for name, kind in names.items() if kind == "pd"]
    numbers = {
        key: reader.count(fields.get(key), key, most)
        for key, (most, _) in keys.QUEUE_PAIR_NUMBERS.items()
    }
    return QpSpec(
        kind,
        reader.word(fields.get("pd"), "pd", pds) or "pd",
        reader.word(fields.get("state"), "state", vocabulary.QP_STATES) or "RTS",
        reader.truth(fields.get("sq_sig_all"), "sq_sig_all"),
        read_flags(reader, fields["access"], "ibv_access_flags").mask
        if "access" in fields
        else None,
        _EXTENDED[reader.word(fields.get("poster"), "poster", operations.POSTERS) or "post_send"],
        notifies=reader.truth(fields.get("notifies"), "notifies"),
        by_readers=reader.truth(fields.get("by_readers"), "by_readers"),
        one_queue=reader.truth(fields.get("one_queue"), "one_queue"),
        path_mtu=_read_mtu(reader, fields.get("mtu")),
        wire=reader.word(fields.get("peer"), "peer", vocabulary.PEERS) or "",
        ip=reader.word(fields.get("ip"), "ip", ("v4", "v6")) or "v4",
        **{key: number for key, number in numbers.items() if number is not None},
    )


def _read_mtu(reader: Reader, node: Node | None) -> int:
    """Returns the value of enum ibv_mtu, or 0 for none."""
    size = reader.count(node, "mtu")
    if node is not None and size is not None and size not in PATH_MTUS:
        reader.note(node.location, f"mtu must be one of {', '.join(map(str, PATH_MTUS))}")
    return PATH_MTUS.get(size or 0, 0)


def _read_window(reader: Reader, name: str, node: Node, names: Names) -> WindowSpec:
    fields = reader.mapping(node, "a window", keys.WINDOW, keys.required(keys.WINDOW))
    if "type" in fields:
        kind = read_value(reader, fields["type"], "ibv_mw_type")
    else:
        kind = None
    if kind:
        number = kind.number
    else:
        number = 1
    pds = [name for name, kind in names.items() if kind == "pd"]
    pd = reader.word(fields.get("pd"), "pd", pds) or "pd"
    bound = None
    if "bound" in fields:
        call = vocabulary.BINDS[0 if number == 1 else 1]
        bound_fields = without(fields["bound"], "mw")
        if bound_fields is not fields["bound"] and bound_fields.keys != fields["bound"].keys:
            location = (fields["bound"].keys or {})["mw"]
            reader.note(
                location,
                f"the bind of {name!r} under `windows` is always for {name!r}; leave `mw` out",
            )
        arguments = read_arguments(
            reader,
            call,
            f"the bind of {name!r}",
            bound_fields,
            {**names, "mw": "window"},
        )
        bound = {**arguments, "mw": name}
    return WindowSpec(pd, number, bound)


# The sections with named objects, in the order of creation: the kind of the objects, and the function that reads an
# object. The last argument of the function has the objects of the earlier sections.
SECTIONS: Mapping[str, tuple[str, ReadObject]] = {
    "memory": ("memory", partial(_read_buffer, "memory", memory_kinds.MEMORY_KINDS)),
    "dmabufs": ("dmabuf", partial(_read_buffer, "a dma-buf", memory_kinds.DMABUF_KINDS)),
    "mrs": ("mr", _read_mr),
    "qps": ("qp", _read_qp),
    "windows": ("window", _read_window),
}


def without(node: Node, *keys: str) -> Node:
    """Returns a mapping without these keys; returns any other node unchanged."""
    if not isinstance(node.value, dict):
        return node
    fields = {key: value for key, value in node.value.items() if key not in keys}
    return Node(
        fields,
        node.location,
        keys={key: location for key, location in (node.keys or {}).items() if key not in keys},
    )
