"""One case: what is set up, the one call that is judged, what must come of it, and what it proves.

Frozen data between the tables that people write and the execution on a device. Not for reading
tables (tables/loader.py) and not for running (execution/runner.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from conformance.model.kind import Kind
from conformance.model.quantity import Quantity
from conformance.model.vocabulary import QP_RIGHTS
from conformance.verbs import ENUMS
from conformance.verbs.commands import COMMANDS
from conformance.yamldoc.nodes import Location

if TYPE_CHECKING:
    from conformance.model.sweep import Sweep


@dataclass(frozen=True)
class Flags:
    """A bit mask as a table wrote it: the mask and the names, unknown bits as `bit N`."""

    mask: int
    names: tuple[str, ...]

    def __str__(self) -> str:
        return "|".join(self.names) if self.names else "0"


@dataclass(frozen=True)
class Value:
    """One value of an enumeration, or a number that it does not have."""

    number: int
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class SgeSpec:
    """One element of a scatter/gather list as a table wrote it."""

    addr: Quantity
    length: Quantity
    lkey: Quantity

    def __str__(self) -> str:
        return f"{{{self.addr.text}, {self.length.text}, {self.lkey.text}}}"


# A str names an object or is a word.
Argument = Quantity | Flags | Value | tuple[SgeSpec, ...] | str
Arguments = Mapping[str, Argument]


@dataclass(frozen=True)
class MemorySpec:
    """Memory or a dma-buf to be made for a case: its kind, of language.MEMORY_KINDS or DMABUF_KINDS."""

    kind: str
    size: Quantity


@dataclass(frozen=True)
class MrSpec:
    """A region that is there before the judged call. `gone`: registered and deregistered again."""

    call: str
    arguments: Arguments
    gone: bool = False


@dataclass(frozen=True)
class QpSpec:
    """A queue pair with a peer of its own kind, in a state of language.QP_STATES.

    `access`: its qp_access_flags; None: all that the device has. `extended`: FLUSH or ATOMIC_WRITE
    where it is to send and take these, which only an extended queue pair can.
    """

    kind: str
    pd: str
    state: str = "RTS"
    sq_sig_all: bool = False
    access: int | None = None
    extended: str = ""

    @property
    def peer(self) -> QpSpec:
        """What the other end is like: ready, and with all rights."""
        return QpSpec(self.kind, self.pd, extended=self.extended)


@dataclass(frozen=True)
class WindowSpec:
    """A window that is there before the judged call; `bound` are the arguments of its bind, if any."""

    pd: str
    type: int
    bound: Arguments | None = None


@dataclass(frozen=True)
class Given:
    """What exists before the judged call, by name. A PD called `pd` is always there."""

    memory: Mapping[str, MemorySpec] = field(default_factory=dict)
    dmabufs: Mapping[str, MemorySpec] = field(default_factory=dict)
    pds: tuple[str, ...] = ()
    mrs: Mapping[str, MrSpec] = field(default_factory=dict)
    qps: Mapping[str, QpSpec] = field(default_factory=dict)
    windows: Mapping[str, WindowSpec] = field(default_factory=dict)
    memlock: Quantity | None = None


@dataclass(frozen=True)
class Expectation:
    """What the document says must come of a call.

    `outcome`: see vocabulary.OUTCOMES. `errno`: the names allowed; empty: those that the page
    enumerates, if it does; ("any",): some errno must be given. `code`: codes of a verb that has an
    enumeration of its own for them. `mr`: "as_asked" when the region's fields must be those asked for.
    `completion`: "none" when a posted request must not give one. `rkey`: whether the window's key in
    the structure must have "changed" or be "unchanged". `because`: why traffic is refused, of
    expected_errors.REASONS, where the completions are to show it.
    """

    outcome: str
    errno: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    mr: str = ""
    completion: str = ""
    rkey: str = ""
    because: str = ""

    def as_data(self) -> dict[str, Any]:
        """The expectation as it stands in a result."""
        data: dict[str, Any] = {"outcome": self.outcome}
        for name in ("errno", "code"):
            if getattr(self, name):
                data[name] = list(getattr(self, name))
        for name in ("mr", "completion", "rkey", "because"):
            if getattr(self, name):
                data[name] = getattr(self, name)
        return data


_RIGHTS = tuple(QP_RIGHTS.split())
_ALL_RIGHTS = Flags(ENUMS["ibv_access_flags"].mask_of(*_RIGHTS), _RIGHTS)
# Arguments that say nothing to a person where they have these values.
_UNTOLD: Mapping[str, tuple[Argument, ...]] = {
    "at": ("",), "via": ("NULL",), "handle": ("own",), "pd_handle": ("own",), "position": ("whole",),
    "contents": ("made",), "qp_type": ("RC",), "qp_access": (_ALL_RIGHTS,),
}  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One call of a case and what must come of it. `name` is what its product is called afterwards.

    `entry` is where the call is made, and is set by the case; without one it is the library.
    """

    call: str
    arguments: Arguments
    then: Expectation
    name: str = ""
    entry: str = ""

    @property
    def title(self) -> str:
        """What is called: the verb, or at the uverbs entry the kernel's command."""
        at_kernel = self.entry == "uverbs" and self.call in COMMANDS
        return f"uverbs {COMMANDS[self.call]}" if at_kernel else self.call

    def __str__(self) -> str:
        told = {key: shown(value) for key, value in self.arguments.items() if value not in _UNTOLD.get(key, ())}
        return f"{self.title}({', '.join(f'{key}={text}' for key, text in told.items())})"


@dataclass(frozen=True)
class Case:
    """A row after expansion: steps `before` belong to the setup, `when` is judged, then `afterwards`.

    `id` is `<verb>/<table>/<row>`, the same in every run on every device.

    `note` goes into the result as a remark; a `hazardous` case can take the kernel down with it. A case of the
    kind SWEEP stands for many calls: its own parts are those of the first point, for people; one of the kind
    POINT stands for the one whose number is `point`.
    `tier` is the smallest of language.TIERS that has the case.
    """

    id: str
    verb: str
    rules: tuple[str, ...]
    needs: tuple[str, ...]
    entry: str
    given: Given
    when: Step
    afterwards: tuple[Step, ...]
    location: Location
    before: tuple[Step, ...] = ()
    about: str = ""
    note: str = ""
    hazardous: bool = False
    tier: str = "default"
    kind: Kind = Kind.ROW
    sweep: Sweep | None = None
    point: int | None = None

    def __post_init__(self) -> None:
        """Gives the steps the entry of the case, so that they name the call that is really made."""
        if self.when.entry == self.entry:  # as in most copies of a case
            return
        object.__setattr__(self, "when", replace(self.when, entry=self.entry))
        for name in ("before", "afterwards"):
            steps = tuple(replace(step, entry=self.entry) for step in getattr(self, name))
            object.__setattr__(self, name, steps)


def shown(argument: Argument) -> str:
    """An argument as a person writes it."""
    if isinstance(argument, Quantity):
        return argument.text
    if isinstance(argument, tuple):
        return f"[{', '.join(str(element) for element in argument)}]"
    return str(argument)
