"""The interface between the engine and a device with its memory, on which cases are run.

device/bench.py implements it for a device, reference/bench.py for the documents. Not for implementations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from conformance.bench.calls import Mr, Pd, Return, Sge, Window
from conformance.bench.work_requests import BindInfo, Completion, SendRequest
from conformance.header import Check
from conformance.model.case import QpSpec
from conformance.model.preflight import Findings
from conformance.model.transport import Transport


class Memory(Protocol):
    """A range of memory of a case: its address, and its size in bytes."""

    @property
    def addr(self) -> int: ...
    @property
    def size(self) -> int: ...
    def close(self) -> None: ...


class DmaBuf(Protocol):
    """A dma-buf of a case: its file descriptor, its address in this process, and its size in bytes."""

    @property
    def fd(self) -> int: ...
    @property
    def addr(self) -> int: ...
    @property
    def size(self) -> int: ...
    def close(self) -> None: ...


class RegionElsewhere(Protocol):
    """A region of another process, with its keys."""

    lkey: int
    rkey: int

    def close(self) -> None: ...


class Queue(Protocol):
    """A queue pair with its own completion queue. Posting returns 0 or errno.

    `state` is the state of enum ibv_qp_state to which it was moved last; `query_state` queries the device, and raises
    OSError with an errno of calls.ABSENT if it does not have ibv_query_qp. `events` are the names of its asynchronous
    events that have come since they were asked for last.
    """

    @property
    def number(self) -> int: ...
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
    def events(self) -> list[str]: ...


class BuildingQueue(Queue, Protocol):
    """A queue pair made for the builders of ibv_wr_post(3).

    `post_batch` posts requests in one posting of ibv_wr_start; it is given up if `built`, called when all are built,
    returns False. `capacity`: how many requests the send queue holds, and how many elements and bytes of inline data
    each has at most.
    """

    @property
    def capacity(self) -> tuple[int, int, int]: ...
    def post_batch(self, requests: Sequence[SendRequest], built: Callable[[], bool] = ...) -> Return: ...


# A kind of refusal: the opcode of the request, its status, and 0 for the end where it was detected first, 1 for
# the other, 2 for a receive that is flushed there.
Refusal = tuple[str, str, int]


class Pair(Protocol):
    """Two queue pairs, each the peer of the other.

    The responder is in the PD of the regions that are accessed remotely.

    `connect` moves both on to RTS, `renew` restores the state of both after creation. If `renews_by_reset` is false, it
    makes other queue pairs. `tells_state`: ibv_query_qp tells of the error state. `lingering`: the refusals after which
    an end of a pair of this device has not entered that state in time, or flushed its receive; who sees one adds it.
    """

    @property
    def transport(self) -> Transport: ...
    @property
    def lingering(self) -> set[Refusal]: ...
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


class Entry(Protocol):
    """The calls of one entry: a method for each verb of `verbs.VERBS`, named without `ibv_`.

    It takes the arguments of the prototype in their order (Pd, Mr or None for a pointer to an object, numbers for the
    rest; of a list of SGEs without its length; of a struct its fields), and returns exactly what came. `offers`:
    whether the entry has the verb of this name at all.
    """

    @property
    def name(self) -> str: ...
    def offers(self, verb: str) -> bool: ...
    def __getattr__(self, verb: str) -> Callable[..., Return]: ...


class Bench(Protocol):
    """A device, its entries, and memory of every kind.

    `page` and `hugepage` are sizes in bytes; `max_read_elements`: so many elements may an RDMA READ have. `adapt` takes
    over how pairs are to be handled that are made from now on.
    """

    page: int
    hugepage: int

    @property
    def max_read_elements(self) -> int: ...
    def entry(self, name: str) -> Entry: ...
    def alloc_pd(self) -> Pd: ...
    def allocate(self, kind: str, size: int) -> Memory: ...
    def page_out(self, memory: Memory) -> bool: ...
    def register_elsewhere(self, memory: Memory, access: int) -> RegionElsewhere: ...
    def fork_setting(self, setting: str, kernel: str) -> tuple[int, Mapping[str, str]]: ...
    def dmabuf(self, kind: str, size: int) -> DmaBuf: ...
    def pair(self, spec: QpSpec, requester: Pd, responder: Pd) -> Pair: ...
    def create_qp_ex(self, pd: Pd, kind: str, operations: int) -> Return: ...
    def adapt(self, findings: Findings) -> None: ...
    def alloc_mw(self, pd: Pd, kind: int) -> tuple[Window | None, Return]: ...
    def locked_memory_limit(self, size: int) -> AbstractContextManager[None]: ...
    def experimental_rereg_mr(
        self, mr: Mr, flags: int, pd: Pd | None, addr: int, length: int, access: int
    ) -> Return: ...
    def resources(self) -> dict[str, int]: ...
    def api_checks(self, waiting: Callable[[], None]) -> Sequence[Check]: ...
