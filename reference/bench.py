"""The bench of a reference: conformance.bench behind which no device stands."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import cast

from conformance.bench.calls import Mr, Pd, Return, Sge
from conformance.bench.calls import Window as AnyWindow
from conformance.bench.interface import Entry, Memory
from conformance.bench.work_requests import BindInfo, Completion, SendRequest
from conformance.execution.offered import offered_by
from conformance.header import Check
from conformance.model.capability import Capabilities
from conformance.model.case import QpSpec
from conformance.model.vocabulary import ENTRIES
from reference import header
from reference.device import Device
from reference.entries import Kernel, Library
from reference.memory import HUGEPAGE, PAGE, FileRange, Range
from reference.objects import ACCESS, Domain, Refused, Window
from reference.queues import Queue

_ALL_RIGHTS = ACCESS.mask_of("REMOTE_WRITE", "REMOTE_READ", "REMOTE_ATOMIC", "FLUSH_GLOBAL", "FLUSH_PERSISTENT")


class HeldWindow:
    """A window as a program holds it: the struct ibv_mw with its rkey."""

    def __init__(self, device: Device, window: Window) -> None:
        self._device = device
        self.window = window
        self.rkey = self.old_rkey = window.key

    @property
    def pointer(self) -> int:
        """No structure of a library's stands behind it."""
        return 0

    def dealloc(self) -> Return:
        """ibv_dealloc_mw: 0, or the value of errno."""
        try:
            self._device.dealloc_mw(self.window)
        except Refused as refused:
            return Return(refused.errno, refused.errno)
        return Return(0, 0)


class HeldQueue:
    """A queue pair as a program holds it."""

    def __init__(self, device: Device, pd: Pd, queue: Queue) -> None:
        self._device = device
        self.pd = pd
        self.queue = queue

    @property
    def number(self) -> int:
        """Its number."""
        return self.queue.number

    @property
    def kind(self) -> str:
        """Its type."""
        return self.queue.kind

    @property
    def state(self) -> str:
        """The state that the program has taken it to."""
        return "RTS" if self.queue.state == "ERR" else self.queue.state

    @property
    def sq_sig_all(self) -> bool:
        """Whether every request completes visibly."""
        return self.queue.sq_sig_all

    def query_state(self) -> str:
        """The state that it is in."""
        return self.queue.state

    def post_send(self, request: SendRequest) -> Return:
        """ibv_post_send and its like: 0, or the value of errno."""
        return _value(self._device.post_send(self.queue, request))

    def post_receive(self, sges: Sequence[Sge], wr_id: int) -> Return:
        """ibv_post_recv: 0, or the value of errno."""
        return _value(self._device.post_receive(self.queue, sges, wr_id))

    def bind_mw(self, window: AnyWindow, info: BindInfo, flags: int, wr_id: int) -> Return:
        """ibv_bind_mw: 0 once posted, or the value of errno."""
        held = cast(HeldWindow, window)
        fault, window.rkey = self._device.ibv_bind_mw(self.queue, held.window, info, flags, wr_id)
        return _value(fault)

    def completions(self, count: int = 1, deadline_s: float = 0.0) -> list[Completion]:
        """The next completions; what has not come by now never will."""
        polled = self.queue.polled
        return [polled.popleft() for _ in range(min(count, len(polled)))]


class HeldPair:
    """Two queue pairs, each the other's peer."""

    def __init__(self, device: Device, spec: QpSpec, requester: Pd, responder: Pd) -> None:
        self._device, self._state = device, spec.state
        self.responder = HeldQueue(device, responder, device.create_qp(_new(spec, responder)))
        self.requester = self.responder
        if spec.kind != "XRC_SEND":
            self.requester = HeldQueue(device, requester, device.create_qp(_new(spec.peer, requester)))
        self.responder.queue.peer, self.requester.queue.peer = self.requester.queue, self.responder.queue
        self._connect()

    def _connect(self) -> None:
        self.requester.queue.state = "RTS" if self._state == "RTS" else "INIT"
        self.responder.queue.state = self._state

    def renew(self) -> None:
        """As they were when they were new."""
        for held in (self.responder, self.requester):
            held.queue.reset()
        self._connect()

    def close(self) -> None:
        """Destroys both."""
        for held in {self.responder, self.requester}:
            self._device.destroy_qp(held.queue)


class ReferenceBench:
    """What a case is run on, made of one reference device and this process's memory."""

    page = PAGE
    hugepage = HUGEPAGE

    def __init__(self, device: Device | None = None) -> None:
        self.device = device or Device()
        self.library = Library(self.device)
        self._entries: dict[str, Entry] = {"libibverbs": self.library, "uverbs": Kernel(self.device)}

    def entry(self, name: str) -> Entry:
        """The exact calls of an entry of language.ENTRIES."""
        return self._entries[name]

    def alloc_pd(self) -> Domain:
        """A fresh PD."""
        return self.device.alloc_pd()

    def allocate(self, kind: str, size: int) -> Range:
        """Memory of one of language.MEMORY_KINDS."""
        return self.device.memory.allocate(kind, size)

    def page_out(self, memory: Memory) -> bool:
        """To a device that finds each page by its address it makes no difference where the page is."""
        return True

    def dmabuf(self, kind: str, size: int) -> FileRange:
        """A dma-buf; where it comes from makes no difference here."""
        return self.device.memory.dmabuf(size)

    def pair(self, spec: QpSpec, requester: Pd, responder: Pd) -> HeldPair:
        """A pair of queue pairs, fresh. Raises Refused for what the device has not."""
        return HeldPair(self.device, spec, requester, responder)

    def alloc_mw(self, pd: Pd, kind: int) -> tuple[HeldWindow | None, Return]:
        """ibv_alloc_mw: the window, or None and errno."""
        try:
            return HeldWindow(self.device, self.device.alloc_mw(pd.handle, kind)), Return(1, 0)
        except Refused as refused:
            return None, Return(0, refused.errno)

    @contextmanager
    def _limited(self, size: int) -> Iterator[None]:
        old, self.device.locked_limit = self.device.locked_limit, size
        try:
            yield
        finally:
            self.device.locked_limit = old

    def locked_memory_limit(self, size: int) -> AbstractContextManager[None]:
        """Within the block no more than `size` bytes can be pinned."""
        return self._limited(size)

    def experimental_rereg_mr(self, mr: Mr, flags: int, pd: Pd | None, addr: int, length: int, access: int) -> Return:
        """The vendor's dialect of ibv_rereg_mr."""
        return self.library.experimental_rereg_mr(mr, flags, pd, addr, length, access)

    def resources(self) -> dict[str, int]:
        """What is held, by the device's account."""
        return self.device.counts()

    def api_checks(self) -> Sequence[Check]:
        """API-01's checks of the reference's own header and bindings."""
        return _checked(self.device.header(), self.device.bindings_fault)

    def close(self) -> None:
        """Gives the reference's own file back."""
        self.device.memory.close()

    def capabilities(self) -> Capabilities:
        """What is known of this stack before any case, found out as on a real one."""
        stack = self.device.stack
        offered = {name: offered_by(self, name) for name in ENTRIES}
        return Capabilities(stack.declared, offered, stack.reachable)


@functools.cache
def _checked(text: str, fault: tuple[str, str, int]) -> Sequence[Check]:
    """A compiler takes its time, and most references have the same header."""
    bindings = header.own_bindings()
    if fault[0]:
        bindings = header.with_value(bindings, *fault)
    return header.checks(text, bindings)


def _new(spec: QpSpec, pd: Pd) -> Queue:
    assert isinstance(pd, Domain)
    access = _ALL_RIGHTS if spec.access is None else spec.access
    return Queue(0, spec.kind, pd, spec.sq_sig_all, access)


def _value(errno: int) -> Return:
    return Return(errno, errno)
