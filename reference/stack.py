"""Which capabilities a reference has, and which situations it can be brought into.

One reference cannot be in all of them at once: a library that protects ranges against fork answers otherwise than
one that need not. Each stack here is one such situation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from conformance.model import capability

# What a device declares; what else can be lacking is found by trying, as on a real one.
DECLARABLE = tuple(capability.declared_capabilities(capability.DeviceAttributes(0, 0, 0, 0)))


@dataclass(frozen=True)
class Stack:
    """A reference's shape. `lacks` are capabilities it has not; `reaches` those of capability.REACH that hold."""

    name: str
    lacks: frozenset[str] = frozenset()
    reaches: frozenset[str] = frozenset()

    def has(self, name: str) -> bool:
        """Whether a capability is there."""
        return name not in self.lacks

    def reach(self, name: str) -> bool:
        """Whether a situation can be brought about."""
        return name in self.reaches

    @property
    def declared(self) -> Mapping[str, bool]:
        """What the device declares of itself."""
        return {name: self.has(name) for name in DECLARABLE}

    @property
    def reachable(self) -> Mapping[str, bool]:
        """Every situation, and whether this stack can be in it."""
        return {name: self.reach(name) for name in capability.REACH}


# What every stack can be brought into.
_EVERYWHERE = ("raw_registration",)


def _stack(name: str, *reaches: str, lacks: tuple[str, ...] = ()) -> Stack:
    return Stack(name, frozenset(lacks), frozenset((*reaches, *_EVERYWHERE)))


# A case runs on the first of them that reaches what it needs.
STACKS = (
    _stack("whole", "experimental_rereg", "swap", "persistent_memory"),
    _stack("fork-protection", "dontfork"),
    _stack("fork-race", "dontfork", "fork_race"),
    _stack("no-advice", "advise_absent", lacks=("advise_mr",)),
    _stack("low-memory", "advise_enomem"),
    _stack("shared-regions", "experimental_rereg", "shared_mr"),
    _stack("peer-memory", "experimental_rereg", "peer_memory"),
)
WHOLE = STACKS[0]
# Everything that a stack may do without. A change of translation is none of it: where ibv_rereg_mr is, it has to be.
OPTIONAL = (*DECLARABLE, "uc", "ud", "reg_dmabuf_mr", "rereg_mr", "advise_mr")
# What goes with a capability.
_RESTING_ON = {"odp": ("odp_implicit", "odp_atomic"), "rereg_mr": ("rereg_translation",)}


def without(*names: str) -> Stack:
    """The whole stack without some capabilities, and without what rests on them."""
    lacks = frozenset(name for each in names for name in (each, *_RESTING_ON.get(each, ())))
    reaches = WHOLE.reaches if "rereg_mr" not in lacks else frozenset(_EVERYWHERE)
    return Stack(f"without {', '.join(names)}", lacks, reaches)
