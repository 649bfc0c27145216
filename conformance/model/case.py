"""Defines a case: its set-up, its judged call, the expected result, and its rules. tables/loader.py creates cases from
tables, and execution/runner.py runs them on a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Union

from conformance.model.kind import Kind
from conformance.model.quantity import Quantity, parse
from conformance.model.script import Event
from conformance.model.vocabulary import QP_RIGHTS, WIRE
from conformance.older_python import TypeAlias
from conformance.verbs import ENUMS, VERBS
from conformance.wire.sequence import FIRST_PSNS
from conformance.yamldoc.nodes import Location

if TYPE_CHECKING:
    from conformance.model.combinations import CoveringArray
    from conformance.model.sweep import Sweep


@dataclass(frozen=True)
class Flags:
    """A bit mask from a table."""

    mask: int
    names: tuple[str, ...]  # the names of its flags; `bit N` for a bit without a flag

    def __str__(self) -> str:
        if self.names:
            return "|".join(self.names)
        return "0"


@dataclass(frozen=True)
class Value:
    """One value of an enumeration, or a number that is not in the enumeration."""

    number: int
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class SgeSpec:
    """One SGE of a list in a table."""

    addr: Quantity
    length: Quantity
    lkey: Quantity

    def __str__(self) -> str:
        return f"{{{self.addr.text}, {self.length.text}, {self.lkey.text}}}"


# A str is the name of an object or a word of the table language.
Argument = Union[Quantity, Flags, Value, tuple[SgeSpec, ...], tuple[Event, ...], str]
Arguments = Mapping[str, Argument]


@dataclass(frozen=True)
class MemorySpec:
    """Memory or a dma-buf of a case."""

    kind: str  # one of memory_kinds.MEMORY_KINDS or DMABUF_KINDS
    size: Quantity


@dataclass(frozen=True)
class MrSpec:
    """A region that is registered before the judged call."""

    call: str
    arguments: Arguments
    gone: bool = False  # also deregistered before the judged call


# The values of enum ibv_mtu by the bytes of a packet. Every device has the smallest.
PATH_MTUS: Mapping[int, int] = {256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5}
SMALLEST_MTU_BYTES = 256
SMALLEST_MTU = PATH_MTUS[SMALLEST_MTU_BYTES]


def mtu_bytes(code: int) -> int:
    """Returns the bytes of a packet for a value of enum ibv_mtu."""
    return 128 << code


@dataclass(frozen=True)
class QpSpec:
    """A queue pair with a peer of the same type."""

    kind: str
    pd: str
    state: str = "RTS"  # one of vocabulary.QP_STATES
    sq_sig_all: bool = False
    access: int | None = None  # the qp_access_flags; None: all rights that the device supports
    # With FLUSH or ATOMIC_WRITE, ibv_create_qp_ex creates the queue pair for this operation. With one of BUILDERS, the
    # builders of ibv_wr_post(3) post the requests.
    extended: str = ""
    inline: int = 0  # max_inline_data of both queue pairs, in bytes
    # for RC_SRQ: the PD (bench.calls.Pd) of the shared receive queue; None: `pd`
    shared: object = None
    notifies: bool = False  # the completion queue has a completion channel
    by_readers: bool = False  # completions are polled with ibv_start_poll(3) and its readers
    one_queue: bool = False  # both queue pairs have the completion queue of the responder
    path_mtu: int = 0  # a value of enum ibv_mtu; 0: the MTU of the port
    wire: str = ""  # one of vocabulary.PEERS, if the peer is no RDMA device
    ip: str = "v4"  # the version of the peer's IP address
    # Attributes of ibv_modify_qp for a queue pair with such a peer.
    max_dest_rd_atomic: int = 4
    max_rd_atomic: int = 1
    timeout: int = 0
    retry_cnt: int = 0
    rnr_retry: int = 0
    traffic_class: int = 0
    psn: int | None = None  # the first PSN of both ends; None: those of FIRST_PSNS

    @property
    def first_psns(self) -> tuple[int, int]:
        """Returns the first PSNs of a peer that is no RDMA device, and of the device."""
        if self.psn is None:
            return FIRST_PSNS
        return self.psn, self.psn

    @property
    def peer(self) -> QpSpec:
        """Returns the specification of the peer: in the state RTS, with all rights."""
        return QpSpec(
            self.kind,
            self.pd,
            extended=self.extended,
            inline=self.inline,
            by_readers=self.by_readers,
            path_mtu=self.path_mtu,
        )

    def mtu(self, largest: int) -> int:
        """Returns the path MTU, a value of enum ibv_mtu, for a port on which `largest` is active. Inline data are short:
        with the smallest MTU, they fill several packets."""
        if self.inline >= SMALLEST_MTU_BYTES:
            return SMALLEST_MTU
        return self.path_mtu or largest


@dataclass(frozen=True)
class WindowSpec:
    """A window that is allocated before the judged call."""

    pd: str
    type: int
    bound: Arguments | None = None  # the arguments of the bind, if the window is bound


@dataclass(frozen=True)
class Given:
    """The objects that exist before the judged call, by name. There is always a PD `pd`."""

    memory: Mapping[str, MemorySpec] = field(default_factory=dict)
    dmabufs: Mapping[str, MemorySpec] = field(default_factory=dict)
    pds: tuple[str, ...] = ()
    mrs: Mapping[str, MrSpec] = field(default_factory=dict)
    qps: Mapping[str, QpSpec] = field(default_factory=dict)
    windows: Mapping[str, WindowSpec] = field(default_factory=dict)
    memlock: Quantity | None = None


@dataclass(frozen=True)
class Expectation:
    """The result that the document requires of a call."""

    outcome: str  # see vocabulary.OUTCOMES
    # the permitted names; empty: the names in the manual page, if any; ("any",): any errno
    errno: tuple[str, ...] = ()
    code: tuple[str, ...] = ()  # the permitted codes, for a verb with an enumeration of codes
    mr: str = ""  # as_asked: the region must have the requested fields
    # none: no completion of the request; one: exactly one completion, with any status
    completion: str = ""
    rkey: str = ""  # changed or unchanged: the required key in struct ibv_mw, relative to the key before the call
    opcode: str = ""  # as_posted: the completions must name the operation that was posted
    invalidated: str = ""  # as_posted: the completion of a receive must contain the key that a SEND has invalidated
    # the reason of the refusal that the completions must report (expected_errors.REASONS)
    because: str = ""
    # the asynchronous event that a refusal must cause on the responder's queue pair
    event: str = ""
    otherwise: str = ""  # unreachable: without the refusal, the row is UNREACHABLE
    # only for a later step: the outcome of the judged call after which the step is executed
    after: str = ""
    moved: str = ""  # nothing: an operation that succeeds must not change a byte
    # With the outcome `open`: elsewhere, if other rows judge the outcome; either, if the documents permit both.
    judged: str = ""

    def as_data(self) -> dict[str, Any]:
        set_ = {name: value for name, value in vars(self).items() if value}
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in set_.items()
        }


_RIGHTS = tuple(QP_RIGHTS.split())
_ALL_RIGHTS = Flags(ENUMS["ibv_access_flags"].mask_of(*_RIGHTS), _RIGHTS)
# Values of arguments that the text of a call omits.
_HIDDEN: Mapping[str, tuple[Argument, ...]] = {
    "at": ("",),
    "mappings": ("",),
    "via": ("NULL",),
    "handle": ("own",),
    "pd_handle": ("own",),
    "position": ("whole",),
    "contents": ("made",),
    "qp_type": ("RC",),
    "qp_access": (_ALL_RIGHTS,),
    "rkey": ("",),
    "pages": ("present",),
    "mr_lkey": ("",),
    "mw_rkey": ("",),
    "window": ("none",),
    "with_flags": (Flags(0, ()),),
    "poster": ("post_send",),
    "srq_pd": ("NULL",),
    "rounds": (parse("1"),),
    "resized": (parse("0"),),
}


@dataclass(frozen=True)
class Step:
    """One call of a case with its expectation."""

    call: str
    arguments: Arguments
    then: Expectation
    name: str = ""  # the name by which later steps use the created object
    entry: str = ""  # the entry of the case; the default is libibverbs

    @property
    def title(self) -> str:
        """The name of the call: the verb, or at the uverbs entry the kernel's command."""
        if self.entry == "uverbs" and self.call in VERBS:
            command = VERBS[self.call].command
        else:
            command = ""
        if command:
            return f"uverbs {command}"
        return self.call

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        visible = {
            key: format_argument(value)
            for key, value in self.arguments.items()
            if value not in _HIDDEN.get(key, ())
        }
        return f"{self.title}({', '.join(f'{key}={text}' for key, text in visible.items())})"


_COMMANDS = {name for name, verb in VERBS.items() if verb.command}
_COMMANDS |= {"query_mr", "resident", "discard", "fill", "unmap"}
_PROBES = ("traffic", "local_traffic", "bind_and_send")
# Estimated costs in units of one verb call. The cheapest case that verifies a rule is selected by its cost.
_TRAFFIC, _GUEST = 5.0, 10_000.0
_POINT = 0.1
_OPEN = 40.0  # cases with an open outcome are selected last, because their evidence is weak


@dataclass(frozen=True)
class Case:
    """A row after expansion: the judged call `when`, and the steps of the set-up before it."""

    id: str  # <verb>/<table>/<row>, the same in every run on every device
    verb: str
    rules: tuple[str, ...]
    needs: tuple[str, ...]
    entry: str
    given: Given
    when: Step
    afterwards: tuple[Step, ...]  # the steps that follow the judged call
    location: Location
    before: tuple[Step, ...] = ()  # steps that belong to the set-up
    about: str = ""
    note: str = ""  # a remark for the result
    hazardous: bool = False  # can crash the kernel
    ends_process: bool = False  # can terminate its own process
    tier: str = "default"  # the smallest of vocabulary.TIERS that contains the case
    kind: Kind = Kind.ROW  # a case of the kind SWEEP has the calls of its first point, for display
    sweep: Sweep | None = None
    point: int | None = None  # the number of the point, for a case of the kind POINT
    array: CoveringArray | None = None  # the points of a case of the kind COMBINATIONS

    @property
    def alone(self) -> bool:
        """Whether the case runs in its own worker, because it may disturb other cases."""
        return self.hazardous or self.ends_process

    @property
    def place(self) -> tuple[bool, int]:
        """The order of cases in a worker: one that can end its process can leave it in a state in which others fail."""
        return self.ends_process, self.kind.traits.precedence

    @property
    def judged_steps(self) -> tuple[Step, ...]:
        return (self.when, *self.afterwards)

    @property
    def steps(self) -> tuple[Step, ...]:
        return (*self.before, *self.judged_steps)

    @cached_property
    def cost(self) -> float:
        """The estimated cost of the case, in units of one verb call."""
        cost = sum(_TRAFFIC if step.call in _PROBES else 1.0 for step in self.steps)
        cost += len(self.given.qps) * _TRAFFIC + len(self.given.windows)
        if self.sweep and self.kind is Kind.SWEEP:
            cost *= self.sweep.size * _POINT
        if self.array:
            cost += len(self.array.points) * _TRAFFIC
        if self.sweep is None and self.when.then.outcome == "open":
            cost += _OPEN
        return cost + self.kind.traits.cost + _GUEST * self.alone

    @property
    def needs_wire_peer(self) -> bool:
        """Whether a peer that is no RDMA device sends packets in the case."""
        return any(WIRE in (step.call, step.arguments.get("poster")) for step in self.steps)

    @property
    def is_of_the_kernel(self) -> bool:
        """Whether all calls of the row, of the sweep or of its point are commands of the kernel or changes of memory: no
        library takes part."""
        if self.entry != "uverbs" or self.given.qps:
            return False
        calls = {step.call for step in self.steps}
        calls.update(region.call for region in self.given.mrs.values())
        return calls <= _COMMANDS and not self.given.windows

    @property
    def needs_kept_memory(self) -> bool:
        """Whether the case needs a process with fork protection by libibverbs. A process cannot undo this setting, and
        other cases fork. Therefore such cases run in a separate worker."""
        return "dontfork" in self.needs

    def __post_init__(self) -> None:
        """Sets `entry` of the steps, because the text of a step depends on the entry."""
        if self.when.entry == self.entry:  # true in most copies of a case
            return
        object.__setattr__(self, "when", replace(self.when, entry=self.entry))
        for name in ("before", "afterwards"):
            steps = tuple(replace(step, entry=self.entry) for step in getattr(self, name))
            object.__setattr__(self, name, steps)


@dataclass(frozen=True)
class Table:
    """A table without mistakes."""

    name: str  # <folder>/<file name without .yaml>
    verb: str
    cases: Sequence[Case]


RunCase: TypeAlias = Callable[[Case], None]


def mask_of(arguments: Arguments, name: str) -> int:
    """Returns the mask of an argument with flags, or 0 if there is no such argument."""
    value = arguments.get(name)
    if isinstance(value, Flags):
        return value.mask
    return 0


def format_argument(argument: Argument) -> str:
    if isinstance(argument, Quantity):
        return argument.text
    if isinstance(argument, tuple):
        return f"[{', '.join(str(element) for element in argument)}]"
    return str(argument)
