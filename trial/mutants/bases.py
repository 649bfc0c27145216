"""Has classes and functions for mutants. A mutant replaces methods of a class of this module or of the reference."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import NoReturn

from conformance.bench.calls import Sge
from conformance.bench.work_requests import Completion, SendRequest
from trial.reference.advice import FLUSH
from trial.reference.device import Device
from trial.reference.memory import SPACE
from trial.reference.objects import (
    FLUSH_GLOBAL,
    FLUSH_PERSISTENT,
    LOCAL_WRITE,
    MW_BIND,
    ON_DEMAND,
    Refused,
    Region,
    Window,
)
from trial.reference.queues import SUCCESS, Queue
from trial.reference.reregistration import Change
from trial.reference.stack import WHOLE, Stack
from trial.reference.work import RELIABLE

WORD_LENGTH = 8
GIB = 1 << 30
FENCE = 1
SENDS = ("SEND", "SEND_WITH_IMM", "SEND_WITH_INV")
WRITES = ("RDMA_WRITE", "RDMA_WRITE_WITH_IMM")
SENDERS = ("SEND", "SEND_WITH_IMM", *WRITES)
KEPT = LOCAL_WRITE | MW_BIND
BOTH_FLUSHES = FLUSH_GLOBAL | FLUSH_PERSISTENT
WRAP_LENGTH = 256 << 20


class Watching(Device):
    """Records the opcode and the transport of the request that is being executed."""

    opcode = ""
    transport = ""

    def carry_out(self, queue: Queue, request: SendRequest) -> str:
        """Executes a request; returns its status."""
        self.opcode, self.transport = request.opcode, queue.kind
        try:
            return super().carry_out(queue, request)
        finally:
            self.opcode = self.transport = ""


class SharedReceives(Device):
    """Checks receives of a shared receive queue less strictly than other receives."""

    def memory_of_sge(self, queue: Queue, sge: Sge, write: bool) -> int | None:
        memory = super().memory_of_sge(queue, sge, write)
        region = self.keys.get(sge.lkey)
        if memory is None and write and queue.kind == "RC_SRQ" and isinstance(region, Region):
            return self.unchecked(queue, region, sge)
        return memory

    def unchecked(self, queue: Queue, region: Region, sge: Sge) -> int | None:
        """Returns the address of an element that any other receive queue refuses, or None to refuse the element."""
        return None


class Remembering(Device):
    """Records each region's state before its last change."""

    def apply(self, region: Region, change: Change) -> None:
        before = copy(region)
        super().apply(region, change)
        self.formers()[region.handle] = before, change

    def formers(self) -> dict[int, tuple[Region, Change]]:
        """Returns, by handle, each region's state before its last change, and this change."""
        formers_here: dict[int, tuple[Region, Change]] = self.__dict__.setdefault("_formers", {})
        return formers_here

    def former(self, region: Region, *flags: int) -> Region | None:
        """Returns the region before its last change if the change had all these flags; else None."""
        before, change = self.formers().get(region.handle, (None, None))
        if change and all(change.flags & flag for flag in flags):
            return before
        return None


# Requests


class DeliveringRefused(Device):
    """Delivers the immediate data of a refused write on queue pairs whose type is in `kinds`."""

    kinds: tuple[str, ...] = ()
    immediate: SendRequest | None = None

    def write(self, queue: Queue, request: SendRequest) -> str:
        self.immediate = request if request.opcode == "RDMA_WRITE_WITH_IMM" else None
        return super().write(queue, request)

    def refuse(self, queue: Queue, status: str) -> str:
        request, self.immediate = self.immediate, None
        if request and queue.kind in self.kinds and queue.peer.receives:
            self.deliver(queue, None, request.imm, sum(sge.length for sge in request.sges))
        return super().refuse(queue, status)


def wrapped(region: Region, addr: int, length: int) -> int | None:
    """Returns the address of the region's first byte if an operation starts in or after the region, and its end wraps
    at 2^64 to at most the region's end; else None."""
    within = (addr + length) % SPACE <= region.iova + region.length
    if addr >= region.iova and addr + length >= SPACE and within:
        return region.addr
    return None


def refused_reliably(queue: Queue, status: str) -> bool:
    """Whether a request was refused on a reliable queue pair."""
    return queue.kind in RELIABLE and status != SUCCESS


class Polled(deque[Completion]):
    """A list of completions that calls `late` before its last completion is polled: a program that does not wait sees
    all others at once."""

    def __init__(self, late: Callable[[], None]) -> None:
        super().__init__()
        self._late = late

    def popleft(self) -> Completion:
        if len(self) == 1:
            self._late()
        return super().popleft()


class Late(Device):
    """Executes a request again after one of its keys became invalid. Each item of `pending` has a key, a function that
    repeats the key's request, and the number of repetitions that are left."""

    late_writes = late_reads = False

    def setup(self) -> None:
        self.pending: list[tuple[int, Callable[[], object], int]] = []

    def create_qp(self, queue: Queue) -> Queue:
        queue.polled = Polled(self.make_late)
        return super().create_qp(queue)

    def write(self, queue: Queue, request: SendRequest) -> str:
        return self._remembered(
            super().write(queue, request),
            self.late_writes,
            queue,
            request,
            reading=False,
        )

    def read(self, queue: Queue, request: SendRequest) -> str:
        return self._remembered(
            super().read(queue, request),
            self.late_reads,
            queue,
            request,
            reading=True,
        )

    def _remembered(
        self,
        status: str,
        late: bool,
        queue: Queue,
        request: SendRequest,
        reading: bool,
    ) -> str:
        """Returns the status of a request; adds a successful request to `pending` if `late` is true."""
        if late and status == "SUCCESS":
            length = sum(sge.length for sge in request.sges)
        else:
            length = 0
        if length:
            there = self.target(queue, request, length)
        else:
            there = None
        if there:
            here = self.memory_of_sge(queue, request.sges[0], write=reading)
        else:
            here = None
        if not there or not here:
            return status
        source, sink = (there, here) if reading else (here, there)

        def again() -> bool:
            content = self.memory.read(source, length)
            return content is not None and self.memory.write(sink, content)

        for key in (request.rkey, request.sges[0].lkey):
            self.pending.append((key, again, 2))
        return status

    def make_late(self) -> None:
        """Repeats the pending requests whose key is no longer valid, at most twice for each key."""
        pending, self.pending = self.pending, []
        for key, again, times in pending:
            if self.ended(key):
                again()
                times -= 1
            if times:
                self.pending.append((key, again, times))

    def ended(self, key: int) -> bool:
        """Whether a key is no longer valid."""
        key_here = self.keys.get(key)
        return key_here is None or (isinstance(key_here, Window) and key_here.region is None)


# Advice and on-demand memory


class SomeElementsServed(Device):
    """Checks all elements of a list, but follows the advice only for some elements."""

    def setup(self) -> None:
        self.now_served: list[tuple[int, int]] = []

    def advise_mr(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        self.now_served = [(sge.addr, sge.length) for sge in self.served(sg_list)]
        super().advise_mr(pd, advice, flags, sg_list)

    def served(self, sg_list: Sequence[Sge]) -> Sequence[Sge]:
        """Returns the elements for which the advice is followed."""
        raise NotImplementedError

    def follow(self, addr: int, length: int, advice: int, flags: int) -> bool:
        return (addr, length) not in self.now_served or super().follow(addr, length, advice, flags)


class Asynchronous(Device):
    """Records whether the latest advice has FLUSH."""

    flushed = True

    def advise_mr(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        self.flushed = bool(flags & FLUSH)
        super().advise_mr(pd, advice, flags, sg_list)


class Declared(Device):
    """Refuses operations on on-demand memory that need a capability in `lacking`, which the device declares."""

    lacking: tuple[str, ...] = ()

    def not_on_demand_here(self, found: Region | Window | None) -> bool:
        if isinstance(found, Window):
            region = found.region
        else:
            region = found
        on_demand = region is not None and region.access & ON_DEMAND
        return bool(
            on_demand and self.on_demand_need in self.lacking,
        ) or super().not_on_demand_here(found)


# Registration, re-registration and deregistration


class LastBuffer(Device):
    """Uses the last registered dma-buf in place of a descriptor that is refused with the errno `excused`."""

    excused = 0
    _last = (0, 0)

    def dmabuf(self, fd: int) -> tuple[int, int]:
        try:
            self._last = super().dmabuf(fd)
        except Refused as refused:
            if refused.errno != self.excused or not self._last[0]:
                raise
        return self._last


class FailedExperimental(Device):
    """Records the handles of regions whose experimental re-registration has failed."""

    def setup(self) -> None:
        self._failed: set[int] = set()

    def experimental_code(self, handle: int, change: Change) -> tuple[int, Region | None]:
        code, region = super().experimental_code(handle, change)
        if code:
            self._failed.add(handle)
        return code, region


class WithDeregistered(Device):
    """Records deregistered regions by their key."""

    def setup(self) -> None:
        self.deregistered: dict[int, Region] = {}

    def dereg_mr(self, handle: int) -> None:
        region = self.regions.get(handle)
        super().dereg_mr(handle)
        if region:
            self.deregistered[region.key] = region


# Windows


class ChangedBelowWindows(Remembering):
    """A region with a bound window can be changed."""

    def held(self, region: Region) -> bool:
        return False


class Unbinding(Device):
    """Deregistration unbinds the windows of a region."""

    def forget_key(self, region: Region) -> None:
        super().forget_key(region)
        if region.handle not in self.regions:
            for window in list(region.windows):
                self.unbind(window)


class AnyRegion(Device):
    """A window grants access to its region even if the region belongs to another PD."""

    def no_longer_fits(self, window: Window, region: Region, right: int) -> bool:
        return region.domain is window.domain and super().no_longer_fits(window, region, right)


# Declarations


class Claiming(Device):
    """Declares capabilities that it lacks."""

    claims: tuple[str, ...] = ()

    def __init__(self, stack: Stack = WHOLE) -> None:
        lacks, claims = stack.lacks.union(self.claims), stack.claims.union(self.claims)
        super().__init__(replace(stack, lacks=lacks, claims=claims))


def replaced(text: str, old: str, new: str) -> str:
    """Returns a header in which `new` replaces the first `old`. Raises LookupError if the header has no `old`."""
    if old not in text:
        raise LookupError(f"{old!r} is not in the header")
    return text.replace(old, new, 1)


def moved(region: Region) -> bool:
    """Whether the region's iova differs from the address of its memory."""
    return region.iova != region.addr


def granted(region: Region, right: int, wrongly: int, by: int) -> bool:
    """Whether a region grants a right. The access flags `by` wrongly grant the right `wrongly`."""
    return region.access & right == right or (right == wrongly and region.access & by == by)


def refuse(code: int) -> NoReturn:
    """Refuses a call with an errno. Raises Refused."""
    raise Refused(code)
