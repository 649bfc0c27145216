"""Reads the personas of table.yaml: the capabilities that a driver does not have, and its behaviours. Persona.kind
returns the class of a simulated device (see trial/reference/) that behaves as this driver does."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from itertools import chain
from pathlib import Path

from conformance.device.device import transport_of
from conformance.device.port import Port
from conformance.kernel.interfaces import Interfaces
from conformance.model import capability
from conformance.model.rules import RULE_ID
from conformance.model.transport import Transport
from conformance.tables.stray_files import display_path
from conformance.tables.suite import ROOT
from conformance.yamldoc.nodes import Node
from conformance.yamldoc.reader import Reader, document
from trial.catalogue import BLIND_VIOLATIONS, PERMITTED_VARIANTS, VIOLATIONS, VOCABULARY
from trial.mutant_table import MASKS, behaviours_in
from trial.reference.device import Device
from trial.reference.stack import Stack

_HERE = Path(__file__).parent
# The behaviours by name: the rows of behaviours.yaml, and the permitted variants of the catalogue.
BEHAVIOURS: Mapping[str, type[Device]] = {
    **{variant.name: variant.kind for variant in PERMITTED_VARIANTS},
    **dict(
        behaviours_in(
            _HERE / "behaviours.yaml",
            Device,
            (itertools, *VOCABULARY),
            {violation.name for violation in (*VIOLATIONS, *BLIND_VIOLATIONS)},
        )
    ),
}

_REACHED = ("swap", "persistent_memory", "pci_bar")
# Capabilities that no driver on Linux has, because the kernel's core refuses them.
_NOT_ON_LINUX = ("iova_page_offset",)
# The rules that every driver on Linux violates because of these refusals, each with the place of the refusal.
_VIOLATED_ON_LINUX = {"IOVA-02a": "drivers/infiniband/core/uverbs_cmd.c: ib_uverbs_reg_mr"}
_RULE_OF_CLAIM = {"mw_type_1": "CAP-01", "mw_type_2": "CAP-02"}
_RAW = "raw_registration"
_PARTS = ("groups", "optional", "drivers")
_KINDS = ("lacks", "claims", "hides")
_FACTS = (*_KINDS, "violates", "like", "port", "has", "raw_registration", *BEHAVIOURS)
_OF_INFINIBAND = ("core/", "hw/", "sw/")
_NAME, _INTERFACE, _NUMBER = "any0", "eth0", 2
# The hardware and IP addresses of the interface, from which the GIDs are made.
_HARDWARE, _ADDRESS = "0e:38:3d:12:34:56", "192.168.0.1"
_LINK_LOCAL, _MAPPED = (
    "fe80:0000:0000:0000:0c38:3dff:fe12:3456",
    "0000:0000:0000:0000:0000:ffff:c0a8:0001",
)
_V1, _V2 = "IB/RoCE v1", "RoCE v2"


@dataclass(frozen=True)
class SysfsPort:
    """A port: the node type of its device, its link layer, and its GIDs as (address, type). On Ethernet, each GID has a
    network interface. `chosen` is the index of the GID that traffic must use, and `state` the state of the port in
    sysfs. As on a device, conformance/device/port.py chooses the GID from files."""

    node: str
    link_layer: str
    gids: tuple[tuple[str, str], ...]
    chosen: int
    state: str = "4: ACTIVE"

    def begin(self) -> tuple[Transport, int]:
        """Returns the port's transport and the index of the chosen GID, as at the start of a run. Raises UserError."""
        with tempfile.TemporaryDirectory(prefix="rdma-cts-") as name:
            root = Path(name)
            self._write(root)
            addresses = {(_NUMBER, ip_address(_ADDRESS))}
            interfaces = Interfaces(root / "net", lambda: addresses)
            port = Port(_NAME, 1, root / "infiniband", interfaces)
            chosen = port.choose(port.gids())
            port.check(chosen)
            return transport_of(root / "infiniband" / _NAME, 1), chosen

    def _write(self, root: Path) -> None:
        """Writes the files of sysfs. Files that cannot be read in sysfs, such as the files of an absent interface, are
        left out."""
        device = root / "infiniband" / _NAME
        files = {
            "node_type": self.node,
            "ports/1/link_layer": self.link_layer,
            "ports/1/state": self.state,
        }
        for index, (address, kind) in enumerate(self.gids):
            files[f"ports/1/gids/{index}"] = address
            files[f"ports/1/gid_attrs/types/{index}"] = kind
            if self.link_layer == "Ethernet":
                files[f"ports/1/gid_attrs/ndevs/{index}"] = _INTERFACE
        paths = {device / file: text for file, text in files.items()}
        paths |= {
            root / "net" / _INTERFACE / "flags": "0x1003",
            root / "net" / _INTERFACE / "operstate": "up",
            root / "net" / _INTERFACE / "ifindex": str(_NUMBER),
            root / "net" / _INTERFACE / "address": _HARDWARE,
        }
        for path, text in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")


PORTS = {
    "infiniband": SysfsPort("1: CA", "InfiniBand", ((_LINK_LOCAL, _V1),), 0),
    "ethernet": SysfsPort(
        "1: CA",
        "Ethernet",
        tuple(itertools.product((_LINK_LOCAL, _MAPPED), (_V1, _V2))),
        3,
    ),
    # drivers/infiniband/hw/mana/main.c: mana_ib_get_port_immutable, which declares only RoCE version 2.
    "mana": SysfsPort("1: CA", "Ethernet", ((_LINK_LOCAL, _V2), (_MAPPED, _V2)), 1),
    "iwarp": SysfsPort("4: RNIC", "Ethernet", ((_LINK_LOCAL, _V1),), 0),
    # drivers/infiniband/hw/efa/efa_verbs.c: efa_port_link_layer, efa_query_gid. The GID has no network interface.
    "efa": SysfsPort("7: unspecified", "Unknown", ((_LINK_LOCAL, _V1),), 0),
}


@dataclass(frozen=True)
class Persona:
    """A driver of a known device. Each value of the mappings is a place in the driver's source: `file: function`.

    - `lacks`: the capabilities that the driver does not have
    - `claims`: capabilities that the driver declares but does not have
    - `hides`: capabilities that the driver has but does not declare
    - `behaves`: the names of its behaviours; `mistakes`: the rules that some of the behaviours violate
    - `raw_registration`: where the driver refuses a registration command without the provider's data; empty if the
      driver accepts such a command
    - `port`: the device's port in sysfs
    """

    name: str
    lacks: Mapping[str, str]
    behaves: Mapping[str, str]
    claims: Mapping[str, str] = field(default_factory=dict)
    hides: Mapping[str, str] = field(default_factory=dict)
    mistakes: Mapping[str, str] = field(default_factory=dict)
    raw_registration: str = ""
    port: SysfsPort = PORTS["ethernet"]

    @property
    def violates(self) -> Mapping[str, str]:
        """The rules that the driver violates, each with its place in the source. Cases of these rules fail."""
        claimed = {_RULE_OF_CLAIM[name]: where for name, where in self.claims.items()}
        return {**_VIOLATED_ON_LINUX, **claimed, **self.mistakes}

    @property
    def masked(self) -> frozenset[str]:
        return frozenset(
            name for behave in self.behaves for name in getattr(BEHAVIOURS[behave], MASKS)
        )

    @property
    def stack(self) -> Stack:
        """The capabilities and preconditions of the driver's device."""
        reaches = _REACHED if self.raw_registration else (*_REACHED, _RAW)
        lacks = frozenset((*self.lacks, *_NOT_ON_LINUX))
        return Stack(
            self.name,
            lacks,
            frozenset(reaches),
            frozenset(self.claims),
            frozenset(self.hides),
        )

    def kind(self, base: type[Device] = Device) -> type[Device]:
        """Returns the class of the reference with these behaviours. Methods of `base`, a reference with a violation,
        take precedence."""
        behaviours = [BEHAVIOURS[name] for name in self.behaves]
        if base is not Device:
            kinds = (base, *behaviours)
        else:
            kinds = (*behaviours,)
        return type(f"{base.__name__}On{self.name}", kinds, {"setup": _set_up_all})


def _set_up_all(device: Device) -> None:
    """Calls the `setup` of each combined class, because a `setup` need not call the next one."""
    for kind in reversed(type(device).__mro__):
        set_up = vars(kind).get("setup")
        if set_up is not None and set_up is not _set_up_all:
            set_up(device)


def read_personas(path: Path) -> list[Persona]:
    """Returns the personas of a table. Raises UserError with the place of each mistake."""
    with document(path, display_path(path, ROOT)) as (root, reader):
        return _Table(root, reader).personas()


class _Table:
    """The parts of a table of personas. The methods note mistakes."""

    def __init__(self, root: Node, reader: Reader) -> None:
        self._reader = reader
        self._parts = reader.mapping(root, "the personas", _PARTS, _PARTS)
        self._groups = self._words("groups", capability.NAMES)
        self._optional = self._places("optional", capability.NAMES)
        self._read: dict[str, Persona] = {}

    def personas(self) -> list[Persona]:
        personas: list[Persona] = []
        drivers = self._parts.get("drivers")
        if drivers is None:
            return personas
        if not isinstance(drivers.value, dict):
            self._reader.note(drivers.location, f"drivers must be a mapping, not {drivers.kind}")
            return personas
        for name, node in drivers.value.items():
            if not isinstance(node.value, dict):
                self._reader.note(node.location, f"a driver must be a mapping, not {node.kind}")
                continue
            persona = self._read[name] = self._driver(name, node)
            if not name.startswith("_"):
                lacks = {**self._absent(node.value.get("has")), **persona.lacks}
                personas.append(replace(persona, lacks=lacks))
        return personas

    def _words(self, part: str, known: Collection[str]) -> dict[str, tuple[str, ...]]:
        """Returns the names in each text of a part: those that are known, and groups before it."""
        words: dict[str, tuple[str, ...]] = {}
        for name, node in self._reader.named(self._parts.get(part), part).items():
            names = self._known(node, str(node.value).split(), (*known, *words))
            words[name] = tuple(chain.from_iterable(words.get(name, (name,)) for name in names))
        return words

    def _places(self, part: str, known: Collection[str]) -> dict[str, str]:
        nodes = self._reader.named(self._parts.get(part), part)
        for name in nodes:
            self._known(Node(name, (self._parts[part].keys or {})[name]), [name], known)
        return {name: str(node.value) for name, node in nodes.items()}

    def _known(self, node: Node, names: Iterable[str], known: Collection[str]) -> list[str]:
        """Returns the names that are known capabilities, and notes the others at a node."""
        words = [
            self._reader.word(Node(name, node.location), "capability", known) for name in names
        ]
        return [word for word in words if word]

    def _absent(self, has: Node | None) -> dict[str, str]:
        """Returns the optional verbs that a provider lacks."""
        there = self._known(has, str(has.value).split(), self._optional) if has else ()
        return {verb: place for verb, place in self._optional.items() if verb not in there}

    def _driver(self, name: str, node: Node) -> Persona:
        assert isinstance(node.value, dict)
        own = dict(node.value)
        own.pop("has", None)
        like = self._reader.word(own.pop("like", None), "driver", self._read)
        if like:
            base = self._read[like]
        else:
            base = Persona(name, {}, {})
        port = self._reader.word(own.pop("port", None), "port", PORTS)
        facts = {kind: dict(getattr(base, kind)) for kind in (*_KINDS, "behaves", "mistakes")}
        raw = base.raw_registration
        for key, value in own.items():
            first, *names = key.split()
            if str(value.value).startswith(_OF_INFINIBAND):
                place = f"drivers/infiniband/{value.value}"
            else:
                place = str(value.value)
            at = Node(first, (node.keys or {})[key])
            if first == "raw_registration":
                raw = place
            elif first in _KINDS:
                known = self._known(at, names, (*capability.NAMES, *self._groups))
                members = chain.from_iterable(self._groups.get(name, (name,)) for name in known)
                facts[first] |= dict.fromkeys(members, place)
            elif self._reader.word(at, "behaviour or kind of fact", _FACTS):
                facts["behaves"] |= {first: place} if first in BEHAVIOURS else {}
                facts["mistakes"] |= dict.fromkeys(names, place)
                for rule in names:
                    if not RULE_ID.fullmatch(rule):
                        self._reader.note(at.location, f"{rule!r} is not a rule, such as REG-15")
        return replace(
            base,
            name=name,
            raw_registration=raw,
            port=PORTS[port] if port else base.port,
            **facts,
        )


PERSONAS = tuple(read_personas(_HERE / "table.yaml"))
