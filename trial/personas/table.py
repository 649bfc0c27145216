"""Reads the personas from table.yaml, which describes its own form."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from conformance.model.rules import RULE_ID
from conformance.yamldoc.nodes import Node
from conformance.yamldoc.reader import Reader, document
from trial.personas.behaviours import BEHAVIOURS
from trial.personas.persona import Persona
from trial.personas.sysfs_port import PORTS

_PARTS = ("groups", "optional", "drivers")
_KINDS = ("lacks", "claims", "hides")
_OF_INFINIBAND = ("core/", "hw/", "sw/")


def read_personas(path: Path) -> list[Persona]:
    """Returns the personas of a table. Raises UserError with the place of each mistake."""
    with document(path) as (root, reader):
        parts = reader.mapping(root, "the personas", _PARTS, _PARTS)
        groups, optional = (
            {name: str(each.value) for name, each in reader.named(parts.get(part), part).items()} for part in _PARTS[:2]
        )
        found, known = list[Persona](), dict[str, Persona]()
        drivers = parts["drivers"].value if "drivers" in parts else {}
        for name, node in drivers.items() if isinstance(drivers, dict) else ():
            own = dict(node.value) if isinstance(node.value, dict) else {}
            has = str(own.pop("has").value).split() if "has" in own else ()
            known[name] = _driver(name, own, known, groups, reader)
            if not name.startswith("_"):
                absent = {verb: place for verb, place in optional.items() if verb not in has}
                found.append(replace(known[name], lacks={**absent, **known[name].lacks}))
    return found


def _driver(
    name: str, own: dict[str, Node], known: Mapping[str, Persona], groups: Mapping[str, str], reader: Reader
) -> Persona:
    like = reader.word(own.pop("like", None), "driver", known)
    base = known[like] if like else Persona(name, {}, {})
    port = reader.word(own.pop("port", None), "port", PORTS)
    facts = {kind: dict(getattr(base, kind)) for kind in (*_KINDS, "behaves", "mistakes")}
    raw = base.raw_registration
    for key, node in own.items():
        first, *names = key.split()
        place = f"drivers/infiniband/{node.value}" if str(node.value).startswith(_OF_INFINIBAND) else str(node.value)
        if first == "raw_registration":
            raw = place
        elif first in _KINDS:
            facts[first] |= dict.fromkeys(_expanded(names, groups), place)
        else:
            reader.word(Node(first, node.location), "behaviour", (*BEHAVIOURS, "violates"))
            facts["behaves"] |= {first: place} if first in BEHAVIOURS else {}
            facts["mistakes"] |= dict.fromkeys(names, place)
            for rule in names:
                if not RULE_ID.fullmatch(rule):
                    reader.note(node.location, f"{rule!r} is not a rule")
    return replace(base, name=name, raw_registration=raw, port=PORTS[port] if port else base.port, **facts)


def _expanded(names: Iterable[str], groups: Mapping[str, str]) -> Iterator[str]:
    for name in names:
        yield from _expanded(groups[name].split(), groups) if name in groups else (name,)


PERSONAS = tuple(read_personas(Path(__file__).with_suffix(".yaml")))
