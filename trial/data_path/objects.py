"""The state of a device that carries out requests: regions, bindings of windows, queue pairs, requests in flight. By
this state, an alteration decides what to do with a request; the real device has its own state."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from reference.objects import ZERO_BASED
from trial.data_path.structures import COMPLETED_AS, Element, SendRequest, elements_of

# How a region or binding can have ended; an empty text if it is valid.
EVERY = ("", "deregistered", "changed", "rebound", "unbound", "deallocated", "invalidated", "invalidated by a message")


@dataclass
class Region:
    """A registered region: `length` bytes at the address `addr`. In accesses with its keys, they begin at `iova`.
    `ended` is "" for a valid region, "deregistered", or "changed" for the region before a re-registration. `pd` is
    struct ibv_pd *."""

    addr: int
    length: int
    iova: int
    access: int
    pd: int
    lkey: int
    rkey: int
    verb: str
    ended: str = ""

    def place(self, iova: int, length: int) -> int | None:
        """Returns the address in this process of `length` bytes at `iova`; None unless all bytes are in the region."""
        offset = iova - self.iova
        return self.addr + offset if offset >= 0 and offset + length <= self.length else None


@dataclass
class Binding:
    """A window bound to a range of a region. `window` is struct ibv_mw *. `ended` is "" for a valid binding, or
    "rebound", "unbound", "deallocated", "invalidated", "invalidated by a message" (by SEND_WITH_INV)."""

    window: int
    kind: int
    pd: int
    rkey: int
    region: Region | None
    addr: int
    length: int
    access: int
    queue: int
    ended: str = ""

    def place(self, iova: int, length: int) -> int | None:
        """Returns the address in this process of `length` bytes at `iova`; None unless all bytes are in the window."""
        base = 0 if self.access & ZERO_BASED else self.addr
        inside = base <= iova and iova + length <= base + self.length
        return self.region.place(self.addr + iova - base, length) if inside and self.region else None


class Sent(SendRequest):
    """A copy of a request in a send queue. `byte_len`, if not None, is the byte_len to report. An alteration may use
    `note` for its own data."""

    elements: tuple[Element, ...]
    carried_out = False
    byte_len: int | None = None
    note: object = None

    @classmethod
    def of(cls, request: SendRequest) -> "Sent":
        """Returns a copy of a request and its elements."""
        made = cls.from_buffer_copy(request)
        made.elements = elements_of(request)
        return made

    @property
    def window(self) -> int:
        """struct ibv_mw * of a bind."""
        return int(self.bind.window or 0)

    @property
    def length(self) -> int:
        """The number of bytes that the request moves."""
        return 8 if self.atomic else sum(each.length for each in self.elements)

    @property
    def completed_as(self) -> int:
        """The opcode of the request's completion, of enum ibv_wc_opcode."""
        return COMPLETED_AS.get(self.opcode, 0)


@dataclass
class Posted:
    """A request in a receive queue. `before` has the contents of its elements when the request was posted."""

    wr_id: int
    elements: tuple[Element, ...]
    before: tuple[bytes | None, ...] = ()
    note: object = None


@dataclass
class QueuePair:
    """A queue pair with its requests that have not completed. `pointer` is struct ibv_qp *, `pd` struct ibv_pd *."""

    number: int
    pointer: int
    kind: str
    pd: int
    sent: deque[Sent] = field(default_factory=deque)
    receives: deque[Posted] = field(default_factory=deque)
    arriving: deque[int] = field(default_factory=deque)  # lengths to report in receives with immediate data

    def take_sent(self, wr_id: int) -> Sent | None:
        """Removes and returns the completed request; earlier unsignaled requests have completed as well."""
        if all(each.wr_id != wr_id for each in self.sent):
            return None
        while (sent := self.sent.popleft()).wr_id != wr_id:
            pass
        return sent

    def take_receive(self, wr_id: int) -> Posted | None:
        found = next((each for each in self.receives if each.wr_id == wr_id), None)
        if found:
            self.receives.remove(found)
        return found


class Objects:
    """The regions and bindings that exist or have existed, in the order of their creation."""

    def __init__(self) -> None:
        self.regions: list[Region] = []
        self.bindings: list[Binding] = []
        self.windows: dict[int, tuple[int, int]] = {}  # struct ibv_mw * to the window's type and PD

    def live_regions(self) -> Iterator[Region]:
        return (each for each in self.regions if not each.ended)

    def region(self, rkey: int, ended: Iterable[str] = ("",)) -> Region | None:
        """Returns the newest region with this rkey; without `ended`, only a registered region."""
        return next((each for each in reversed(self.regions) if each.rkey == rkey and each.ended in ended), None)

    def source(self, lkey: int, ended: Iterable[str] = ("",)) -> Region | None:
        """Returns the newest region with this lkey; without `ended`, only a registered region."""
        return next((each for each in reversed(self.regions) if each.lkey == lkey and each.ended in ended), None)

    def binding(self, rkey: int, ended: Iterable[str] = ("",)) -> Binding | None:
        """Returns the newest binding with this key; without `ended`, only a valid binding."""
        return next((each for each in reversed(self.bindings) if each.rkey == rkey and each.ended in ended), None)

    def bound(self, window: int, ended: Iterable[str] = ("",)) -> Binding | None:
        """Returns the newest binding of a window; without `ended`, only a valid binding."""
        return next((each for each in reversed(self.bindings) if each.window == window and each.ended in ended), None)

    def valid(self, rkey: int) -> bool:
        """Whether an rkey belongs to a registered region or a valid binding."""
        return self.region(rkey) is not None or self.binding(rkey) is not None
