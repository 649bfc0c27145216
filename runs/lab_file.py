"""Reads the file of a lab: its hosts, their devices and options, and the groups of hosts that should be equal. Each
mistake is reported with its location. commands/lab.py runs the cases on these hosts."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.errors import UserError
from conformance.run_options import OPTIONS
from conformance.yamldoc.nodes import Node, quoted
from conformance.yamldoc.reader import Reader, document
from fixtures.hosts.address import Address, peer_of
from runs.plan import LAB_FILE_NAME

# The options of a run that the file can set for each host. The names are fields of RunOptions.
OF_HOSTS = "device port gid_index peer profile waivers console power_cycle return_within hazardous shared".split()
_PATHS = ("profile", "waivers")
_NUMBERS = ("port", "gid_index", "return_within")
PAGE = "lab.html"
_OWN_FILES = (LAB_FILE_NAME, PAGE)  # files of the lab, next to the directories of the hosts
# For each option that names a file, a function that reads the file and raises UserError for a mistake in it.
Readers = Mapping[str, Callable[[Path], object]]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")


@dataclass(frozen=True)
class LabHost:
    """A host of a lab. Hosts with the same `group` should be equal. A host without a group is not compared. `options`
    has the values of fields of RunOptions by name, also of the field `host`."""

    name: str
    group: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


def read_lab(path: Path, readers: Readers) -> list[LabHost]:
    """Returns the hosts in a file, in the order of the file. Raises UserError with a line for each mistake in this file
    and in the files that it names."""
    with document(path) as (root, reader):
        fields = reader.mapping(root, "a lab", ("groups", "hosts"), ("hosts",))
        groups = {
            name: _options(
                reader.mapping(node, f"the group {name}", OF_HOSTS), reader, path.parent, readers
            )
            for name, node in reader.named(fields.get("groups"), "groups").items()
        }
        nodes = reader.items(fields.get("hosts"), "hosts")
        if "hosts" in fields and not nodes and not reader.mistakes:
            reader.note(fields["hosts"].location, "a lab has at least one host")
        hosts = [_host(node, reader, groups, path.parent, readers) for node in nodes]
        met: dict[str, Node] = {}
        for node, host in zip(nodes, hosts, strict=True):
            if host.name and met.setdefault(host.name, node) is not node:
                reader.note(
                    node.location,
                    f"two hosts have the name {host.name} (first at {met[host.name].location})",
                )
    return hosts


def _host(
    node: Node,
    reader: Reader,
    groups: Mapping[str, Mapping[str, Any]],
    folder: Path,
    readers: Readers,
) -> LabHost:
    fields = reader.mapping(node, "a host", ("name", "host", "group", *OF_HOSTS), ("host",))
    text = reader.text(fields.get("host"), "host")
    address = reader.parsed(fields["host"], lambda host: Address.parse(str(host))) if text else None
    name = reader.text(fields.get("name"), "name") or (address.host if address else "")
    if name and not _NAME.fullmatch(name):
        where = fields.get("name", node).location
        reader.note(
            where,
            f"{quoted(name)} is not a name of a directory: give the host a `name` of letters and digits",
        )
    if name in _OWN_FILES:
        reader.note(
            fields.get("name", node).location,
            f"{name} is a file of the lab itself: give the host another `name`",
        )
    group = reader.word(fields.get("group"), "group", groups) or ""
    own = {key: value for key, value in fields.items() if key in OF_HOSTS}
    options = {
        **groups.get(group, {}),
        **_options(own, reader, folder, readers),
        "host": str(address),
    }
    return LabHost(name, group, options)


def _options(
    fields: Mapping[str, Node], reader: Reader, folder: Path, readers: Readers
) -> dict[str, Any]:
    """Returns the values of options. Relative paths are relative to the directory of the lab's file."""
    found: dict[str, Any] = {}
    for name, node in fields.items():
        option = OPTIONS[name]
        if option.default is False:
            found[name] = reader.truth(node, name)
        elif name in _NUMBERS and isinstance(node.value, bool | tuple | dict | None):
            reader.note(node.location, f"{name} must be a number, not {node.kind}")
        elif name in _NUMBERS or (reader.text(node, name) and name not in _PATHS):
            found[name] = reader.parsed(node, _parser(name, option.parse))
        elif text := reader.text(node, name):
            found[name] = folder / text
            _check_file(node, found[name], name, reader, readers)
    return {name: value for name, value in found.items() if value is not None}


def _check_file(node: Node, path: Path, name: str, reader: Reader, readers: Readers) -> None:
    try:
        if name in readers:
            readers[name](path)
    except UserError as error:
        for line in error.lines:
            reader.note(node.location, f"{name}: {line}")


def _parser(name: str, parse: Callable[[str], Any]) -> Callable[[str | int], Any]:
    """Returns a parser of the option of this name for a text or a number. The parser raises ValueError."""

    def parsed(value: str | int) -> Any:
        try:
            if name == "peer":
                peer_of(str(value))
            return parse(str(value))
        except Exception as error:  # argparse.ArgumentTypeError is not a ValueError
            raise ValueError(f"{name}: {error}") from None

    return parsed
