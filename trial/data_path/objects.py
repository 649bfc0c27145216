"""Records the objects of a device: regions, bindings of windows, queue pairs, and requests that have not completed.
These records, and not the state of the real device, determine what an alteration does with a request."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from trial.data_path.structures import COMPLETED_AS, Element, SendRequest, elements_of
from trial.reference.objects import ZERO_BASED

# The ways in which a region or binding can have become invalid; the empty text means that it is valid.
EVERY = (
    "",
    "deregistered",
    "changed",
    "rebound",
    "unbound",
    "deallocated",
    "invalidated",
    "invalidated by a message",
)


@dataclass
class Region:
    """A registered region: `length` bytes at the address `addr`. In requests with its keys, the first byte has the
    address `iova`. `ended` is "" for a valid region, "deregistered", or "changed" for the region before a
    re-registration. `pd` is the struct ibv_pd *."""

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
        if offset >= 0 and offset + length <= self.length:
            return self.addr + offset
        return None


@dataclass
class Binding:
    """A window bound to a range of a region. `window` is the struct ibv_mw *. `ended` is "" for a valid binding, else
    "rebound", "unbound", "deallocated", "invalidated" or, after SEND_WITH_INV, "invalidated by a message"."""

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
        if self.access & ZERO_BASED:
            base = 0
        else:
            base = self.addr
        inside = base <= iova and iova + length <= base + self.length
        if inside and self.region:
            return self.region.place(self.addr + iova - base, length)
        return None


class Sent(SendRequest):
    """A copy of a request in a send queue. If `byte_len` is not None, the completion has this byte_len. An alteration
    may use `note` for its data."""

    elements: tuple[Element, ...]
    carried_out = False
    byte_len: int | None = None
    note: object = None

    @classmethod
    def of(cls, request: SendRequest) -> Sent:
        request_here = cls.from_buffer_copy(request)
        request_here.elements = elements_of(request)
        return request_here

    @property
    def window(self) -> int:
        """The struct ibv_mw * of a bind."""
        return int(self.bind.window or 0)

    @property
    def length(self) -> int:
        """The number of bytes that the request transfers."""
        if self.atomic:
            return 8
        return sum(element.length for element in self.elements)

    @property
    def completed_as(self) -> int:
        """The opcode of the request's completion, in enum ibv_wc_opcode."""
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
    """A queue pair, and its requests that have not completed. `pointer` is the struct ibv_qp *, and `pd` the struct
    ibv_pd *."""

    number: int
    pointer: int
    kind: str
    pd: int
    sent: deque[Sent] = field(default_factory=deque)
    receives: deque[Posted] = field(default_factory=deque)
    arriving: deque[int] = field(
        default_factory=deque,
    )  # lengths to report in receives with immediate data

    def take_sent(self, wr_id: int) -> Sent | None:
        """Removes and returns the completed request. Also removes the requests before it, which were unsignaled."""
        if all(request.wr_id != wr_id for request in self.sent):
            return None
        while (sent := self.sent.popleft()).wr_id != wr_id:
            pass
        return sent

    def take_receive(self, wr_id: int) -> Posted | None:
        receive_here = next((receive for receive in self.receives if receive.wr_id == wr_id), None)
        if receive_here:
            self.receives.remove(receive_here)
        return receive_here


class Objects:
    """All regions and bindings, also those that are no longer valid, in the order of their creation."""

    def __init__(self) -> None:
        self.regions: list[Region] = []
        self.bindings: list[Binding] = []
        self.windows: dict[
            int,
            tuple[int, int],
        ] = {}  # the type and the PD of each window, by its struct ibv_mw *

    def live_regions(self) -> Iterator[Region]:
        return (region for region in self.regions if not region.ended)

    def region(self, rkey: int, ended: Iterable[str] = ("",)) -> Region | None:
        """Returns the newest region with this rkey in a state of `ended`; by default, a valid region."""
        return next(
            (
                region
                for region in reversed(self.regions)
                if region.rkey == rkey and region.ended in ended
            ),
            None,
        )

    def source(self, lkey: int, ended: Iterable[str] = ("",)) -> Region | None:
        """Returns the newest region with this lkey in a state of `ended`; by default, a valid region."""
        return next(
            (
                region
                for region in reversed(self.regions)
                if region.lkey == lkey and region.ended in ended
            ),
            None,
        )

    def binding(self, rkey: int, ended: Iterable[str] = ("",)) -> Binding | None:
        """Returns the newest binding with this key in a state of `ended`; by default, a valid binding."""
        return next(
            (
                binding
                for binding in reversed(self.bindings)
                if binding.rkey == rkey and binding.ended in ended
            ),
            None,
        )

    def bound(self, window: int, ended: Iterable[str] = ("",)) -> Binding | None:
        """Returns the newest binding of a window in a state of `ended`; by default, a valid binding."""
        return next(
            (
                binding
                for binding in reversed(self.bindings)
                if binding.window == window and binding.ended in ended
            ),
            None,
        )

    def valid(self, rkey: int) -> bool:
        """Whether an rkey belongs to a registered region or a valid binding."""
        return self.region(rkey) is not None or self.binding(rkey) is not None
