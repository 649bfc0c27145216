"""Defines the interface between the code that runs cases and a device. device/bench.py implements the interface for a
device, and trial/reference/bench.py implements the behaviour that the documents require."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from conformance.bench.calls import Injected, Mr, Pd, Return, Sge, Window
from conformance.bench.lingering import Lingering
from conformance.bench.work_requests import BindInfo, Completion, SendRequest
from conformance.header import Check
from conformance.model.case import QpSpec
from conformance.model.preflight import Findings
from conformance.model.transport import Transport
from conformance.wire.packet import Packet, Parsed
from conformance.wire.segments import ParsedSegment, Segment


class Memory(Protocol):
    """A range of a case's memory: its address, and its size in bytes."""

    @property
    def addr(self) -> int: ...
    @property
    def size(self) -> int: ...
    def close(self) -> None: ...


class DmaBuf(Memory, Protocol):
    """A dma-buf of a case: its file descriptor, and its mapping in this process."""

    @property
    def fd(self) -> int: ...


class Queue(Protocol):
    """A queue pair with its own completion queue. Posting returns 0 or errno.

    `state` is the value of enum ibv_qp_state to which the queue pair was last moved. `query_state` queries the device,
    and raises OSError with an errno of calls.ABSENT if the device does not have ibv_query_qp. `events` returns the
    names of the asynchronous events since the last call, and waits `deadline_s` seconds for the first event.
    """

    @property
    def number(self) -> int: ...
    @property
    def handle(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def sq_sig_all(self) -> bool: ...
    @property
    def pd(self) -> Pd: ...
    def post_send(self, request: SendRequest) -> Return: ...
    def post_receive(self, sges: Sequence[Sge], wr_id: int) -> Return: ...
    def bind_mw(self, window: Window, info: BindInfo, flags: int, wr_id: int) -> Return: ...
    def completions(self, count: int = ..., deadline_s: float = ...) -> list[Completion]: ...
    def query_state(self) -> str: ...
    def events(self, deadline_s: float = ...) -> list[str]: ...


class ModifiableQueue(Queue, Protocol):
    """A queue pair of this host. `set_access` changes qp_access_flags in the state RTS, and returns 0 or an errno."""

    def set_access(self, access: int) -> Return: ...


class NotifyingQueue(Queue, Protocol):
    """A queue pair whose completion queue has a completion channel. After `request_event`, the next completion puts an
    event into the channel. `took_event` waits for the event, and then receives and acknowledges the event."""

    def request_event(self, solicited_only: int) -> None: ...
    def took_event(self, deadline_s: float) -> bool: ...


class ListQueue(Queue, Protocol):
    """A queue pair of this host, to which lists of requests are posted. `sends_limit` and `receives_limit` are the numbers
    of requests that fit into its queues, and of SGEs of a request; `inline_limit` is the number of bytes of inline data.
    Each is the largest that a call has returned. `resize_receives` resizes its shared receive queue, and returns 0 or errno.
    `post_sends` and `post_receives` post a list in one call, and return 0 or errno, and the index of the request that the
    call has not posted, which is -1 if `bad_wr` is none of the list's; without an errno, the length of the list. A receive is
    its SGEs and its wr_id."""

    @property
    def sends_limit(self) -> tuple[int, int]: ...
    @property
    def receives_limit(self) -> tuple[int, int]: ...
    @property
    def inline_limit(self) -> int: ...
    def resize_receives(self, count: int) -> Return: ...
    def post_sends(self, requests: Sequence[SendRequest]) -> tuple[Return, int]: ...
    def post_receives(
        self,
        receives: Sequence[tuple[Sequence[Sge], int]],
    ) -> tuple[Return, int]: ...


class QueueCapacity(NamedTuple):
    """The number of requests that fit into a send queue, and the maximum numbers of SGEs and of bytes of inline data of
    each request."""

    requests: int
    sges: int
    inline_bytes: int


class BuildingQueue(Queue, Protocol):
    """A queue pair that was created for the builders of ibv_wr_post(3).

    `post_batch` posts requests in one batch after ibv_wr_start. `built` is called after all requests are built; if
    `built` returns False, the batch is aborted.
    """

    @property
    def capacity(self) -> QueueCapacity: ...
    def post_batch(
        self,
        requests: Sequence[SendRequest],
        built: Callable[[], bool] = ...,
    ) -> Return: ...


class Pair(Protocol):
    """Two queue pairs, each the peer of the other.

    The responder is in the PD of the regions that are accessed remotely.

    `connect` moves both queue pairs to RTS. `renew` restores the initial states, with new queue pairs if
    `renews_by_reset` is false. `tells_state` is whether ibv_query_qp reports the error state. `lingering` knows what did
    not follow earlier refusals on this device in time; the code that waits for these effects adds them.
    """

    @property
    def transport(self) -> Transport: ...
    @property
    def lingering(self) -> Lingering: ...
    @property
    def tells_state(self) -> bool: ...
    @property
    def renews_by_reset(self) -> bool: ...
    @property
    def requester(self) -> Queue: ...
    @property
    def responder(self) -> Queue: ...
    def connect(self) -> None: ...
    def renew(self) -> None: ...
    def close(self) -> None: ...


class WireEnd(Protocol):
    """The end of a connection at a peer that is no RDMA device. `number` and `destination` are the numbers of its own
    and the device's queue pair, `first_psn` and `device_psn` the first PSNs of each, `mtu` is in bytes.

    `receive` returns the next packet of the device, or None at the deadline. `settle` returns when the device has
    processed all packets that were sent before. `time_s` is the time of the peer's clock in seconds. `flush_icrc` is the
    ICRC with which the device takes a FLUSH: empty, or that of a known mistake, which a row of WIRE-07 judges. `send` and
    `settle` raise PeerLost.
    """

    number: int
    destination: int
    qkey: int
    first_psn: int
    device_psn: int
    mtu: int

    @property
    def flush_icrc(self) -> str: ...
    def send(self, packet: Packet, **wrong: Any) -> None: ...
    def receive(self, deadline_s: float) -> Parsed | None: ...
    def settle(self) -> None: ...
    def time_s(self) -> float: ...


class StreamEnd(Protocol):
    """The peer's end of an iWARP stream. `incomplete` is whether the last segment began a message or an FPDU that has not
    ended, `closed` whether the device has ended the stream, `mirrored` whether it counts the bits of a Terminate message from
    the wrong end.

    `numbered` adds the numbers of the next message to the fields of a segment. `receive` returns the next segment of the
    device, or None at the deadline, or when the stream has ended. `probe` returns whether the device answers a READ behind
    all segments that were sent before; `settle` returns when it has taken them. Both raise PeerLost."""

    incomplete: bool
    closed: bool
    mirrored: bool

    def numbered(self, operation: str, fields: dict[str, int], size: int) -> dict[str, int]: ...
    def send(self, segment: Segment, **wrong: Any) -> None: ...
    def receive(self, deadline_s: float) -> ParsedSegment | None: ...
    def probe(self) -> bool: ...
    def settle(self) -> None: ...


class WirePair(Pair, Protocol):
    """A queue pair of the device, which is both `requester` and `responder`, and the peer's end. `reset` moves the queue
    pair through RESET to RTS, with the PSNs of its connection."""

    @property
    def end(self) -> WireEnd | StreamEnd: ...
    def reset(self) -> None: ...


class Entry(Protocol):
    """One entry. Each verb of `verbs.VERBS` has a method, whose name is the verb's name without `ibv_`.

    A method has the parameters of the prototype in their order, and returns the exact result. A pointer to an object is
    passed as Pd, Mr or None. A list of SGEs is passed without its length, and a struct is passed as its fields. Other
    arguments are numbers. `offers` is whether the entry has a verb.
    """

    @property
    def name(self) -> str: ...
    def offers(self, verb: str) -> bool: ...
    def __getattr__(self, verb: str) -> Callable[..., Return]: ...


class Bench(Protocol):
    """A device, its entries, and memory of every kind.

    `page` and `hugepage` are sizes in bytes; `packet` is the most bytes of a message in one packet. After
    `ack_timeout_s` seconds, a request without an acknowledgement is sent again. In `not_ready_s` seconds, a message has
    certainly found no receive. No verb tells that it has, and counters of the kernel have other names on each device.
    After too short a time a point shows less, and no correct device fails.
    `max_read_elements` is the maximum number of SGEs of an RDMA READ, and
    `max_dm_size` is the value that the device reports. `in_flight_bytes` is that of Findings. `adapt` applies the
    findings of preflight to later pairs. Within the block of `other_process`, another process runs the generator `work`
    with a bench of its own. The block gets a function that resumes the generator and returns the next report that it
    yields, or b"" if there is none. `carries` is whether a wire peer sends the requests of `traffic`.
    """

    page: int
    hugepage: int
    ack_timeout_s: float
    not_ready_s: float
    carries: bool

    @property
    def packet(self) -> int: ...
    @property
    def max_read_elements(self) -> int: ...
    @property
    def max_dm_size(self) -> int: ...
    @property
    def in_flight_bytes(self) -> int: ...
    def entry(self, name: str) -> Entry: ...
    def alloc_pd(self) -> Pd: ...
    def allocate(self, kind: str, size: int) -> Memory: ...
    def page_out(self, memory: Memory) -> bool: ...
    def other_process(
        self,
        work: Callable[[Bench], Iterator[bytes]],
    ) -> AbstractContextManager[Callable[[], bytes]]: ...
    def dereg_import(self, pd: Pd, mr: Mr, elsewhere: bool) -> Return: ...
    def killed(self, prepare: Callable[[Bench], Callable[[], bool]]) -> Mapping[str, int]: ...
    def fork_setting(self, setting: str, kernel: str) -> tuple[int, Mapping[str, str]]: ...
    def dmabuf(self, kind: str, size: int) -> DmaBuf: ...
    def exporter(self, request: str, dmabuf: DmaBuf) -> int: ...
    def pair(self, spec: QpSpec, requester: Pd, responder: Pd) -> Pair: ...
    def create_qp_ex(self, pd: Pd, kind: str, operations: int) -> Return: ...
    def adapt(self, findings: Findings) -> None: ...
    def alloc_mw(self, pd: Pd, kind: int) -> tuple[Window | None, Return]: ...
    def locked_memory_limit(self, size: int) -> AbstractContextManager[None]: ...
    def failing_allocation(self, number: int) -> AbstractContextManager[Injected]: ...
    def resources(self) -> dict[str, int]: ...
    def api_checks(self, waiting: Callable[[], None]) -> Sequence[Check]: ...
