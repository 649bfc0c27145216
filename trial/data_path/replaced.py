"""The replacements of the provider's functions. They record regions, windows and requests, and call the hooks of an
alteration. alteration.py has the functions that an alteration can use."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from conformance.bench.calls import IbvMr, Mr, Pd, Return
from conformance.bench.interface import Bench, Entry
from conformance.device.posting import IbvQp
from conformance.verbs import ENUMS
from trial.altering import Alteration, AlteredEntry, Wrapper
from trial.data_path import structures as wire
from trial.data_path.memory import content_at
from trial.data_path.objects import EVERY, Binding, Objects, Posted, QueuePair, Region, Sent
from trial.data_path.operations import FUNCTIONS, Operations
from trial.reference.objects import ZERO_BASED

_CHANGES = ENUMS["ibv_rereg_mr_flags"]
_TRANSLATION, _PD, _ACCESS = (
    _CHANGES.value_of(f"CHANGE_{name}") for name in ("TRANSLATION", "PD", "ACCESS")
)
_KINDS = {2: "RC", 3: "UC", 4: "UD", 9: "XRC_SEND"}
_RKEY_OF_WINDOW = 16  # the offset of the rkey in struct ibv_mw


class ReplacedPath(Alteration):
    """Passes every request and completion on unchanged, and records the objects of the device."""

    def __init__(self) -> None:
        super().__init__()
        self.objects = Objects()
        self.queues: dict[int, QueuePair] = {}
        self.pairs: list[Any] = []
        self._real: Any = None  # the provider's functions while they are replaced
        self._later: list[tuple[Callable[[], bool], Callable[[], None]]] = []
        self._polled: set[int] = set()

    # The hooks that a violation overrides

    def sending(self, queue: QueuePair, sent: Sent, request: wire.SendRequest) -> int | None:
        """Called before a request is posted; may change the request. If it returns an errno, the request is refused."""
        return None

    def receiving(self, queue: QueuePair, posted: Posted, request: wire.ReceiveRequest) -> None:
        """Called before a receive is posted; may change the receive."""

    def completed(self, queue: QueuePair, sent: Sent, wc: wire.WorkCompletion) -> bool:
        """Called with the completion of a request before the completion is returned; may change the completion. If it
        returns False, the completion is suppressed."""
        return True

    def received(self, queue: QueuePair, posted: Posted, wc: wire.WorkCompletion) -> None:
        """Called with the completion of a receive before the completion is returned; may change the completion."""

    def binding(self, queue: QueuePair, sent: Sent, info: wire.Info) -> bool:
        """Called before a bind is posted; may change the bind. If it returns False, a request without effect is posted
        in place of the bind."""
        return True

    # Functions for both the hooks and the replacements

    def local(self, element: wire.Element) -> int:
        """Returns the address of a local element in this process, according to the region of its lkey, even if this
        region was deregistered or changed. Without such a region, returns the address in the element."""
        region = self.objects.source(element.lkey, ("", "deregistered", "changed"))
        if region:
            place = region.place(element.addr, element.length)
        else:
            place = None
        return element.addr if place is None else place

    def replace(self, sent: Sent, request: wire.SendRequest) -> None:
        """Replaces a request by a WRITE of zero bytes (with immediate data if the request is a WRITE with immediate
        data), which needs no key. The completion is reported as a completion of the original request."""
        if request.opcode != wire.WRITE_WITH_IMM:
            request.opcode = wire.WRITE
        request.num_sge, request.sg_list = 0, None
        request.target.rdma.remote_addr = request.target.rdma.rkey = 0
        sent.carried_out = True

    # The replacements of the provider's functions

    def bench(self, real: Bench) -> Any:
        """Returns the bench on which cases run: the real bench with an altered data path."""
        pd = real.alloc_pd()
        replacements = {name: getattr(self, f"_{name}") for name in FUNCTIONS}
        self._real = Operations(pd.context_pointer, replacements, self.faults)
        pd.close()
        return DataPathBench(real, self)

    def restore(self) -> None:
        super().restore()
        if self._real:
            self._real.restore()

    def _queue(self, pointer: int) -> QueuePair:
        struct = IbvQp.from_address(pointer)
        number, pd = int(struct.qp_num), int(struct.pd or 0)
        queue = self.queues.get(number)
        if queue is None or queue.pointer != pointer or queue.pd != pd:
            self.queues[number] = QueuePair(
                number,
                pointer,
                _KINDS.get(struct.qp_type, "other"),
                pd,
            )
        return self.queues[number]

    def _due(self) -> None:
        due = [action for condition, action in self._later if condition()]
        self._later = [event for event in self._later if event[1] not in due]
        for action in due:
            action()

    def _alloc_mw(self, pd: int, kind: int) -> int:
        window = int(self._real.alloc_mw(pd, kind) or 0)
        if window:
            self.objects.windows[window] = (kind, pd)
        return window

    def _dealloc_mw(self, window: int) -> int:
        returned = int(self._real.dealloc_mw(window))
        if not returned:
            self._end(window, "deallocated")
        return returned

    def _end(self, window: int, how: str) -> None:
        bound = self.objects.bound(window)
        if bound:
            bound.ended = how

    def _post_send(self, qp: int, address: int, bad: int) -> int:
        self._due()
        queue = self._queue(qp)
        while address:
            request = wire.SendRequest.from_buffer_copy(wire.SendRequest.from_address(address))
            following, request.next = request.next or 0, None
            sent = Sent.of(request)
            returned = self._posting(queue, sent, request)
            if returned is None:
                returned = int(self._real.post_send(qp, ctypes.addressof(request), bad))
            if returned:
                ctypes.c_uint64.from_address(bad).value = address
                return returned
            self._posted(queue, sent)
            address = following
        return 0

    def _posting(self, queue: QueuePair, sent: Sent, request: wire.SendRequest) -> int | None:
        if sent.opcode == wire.BIND_MW and not self.binding(queue, sent, request.bind.info):
            self.replace(sent, request)
        return self.sending(queue, sent, request)

    def _posted(self, queue: QueuePair, sent: Sent) -> None:
        queue.sent.append(sent)
        if sent.opcode == wire.BIND_MW:
            self._bound(queue, sent.bind)
        elif sent.opcode in (wire.LOCAL_INV, wire.SEND_WITH_INV) and (
            binding := self.objects.binding(sent.imm)
        ):
            binding.ended = (
                "invalidated" if sent.opcode == wire.LOCAL_INV else "invalidated by a message"
            )
            sent.note = sent.note or binding

    def _bound(self, queue: QueuePair, bind: Any) -> None:
        window, info = bind.window or 0, bind.info
        kind, pd = self.objects.windows.get(window, (1, queue.pd))
        if info.mr:
            region = self.objects.region(int(IbvMr.from_address(info.mr).rkey))
        else:
            region = None
        self._end(window, "rebound" if info.length else "unbound")
        if info.length:
            where = (info.addr, info.length, info.access, queue.number)
            self.objects.bindings.append(Binding(window, kind, pd, bind.rkey, region, *where))

    def _bind_mw(self, qp: int, window: int, address: int) -> int:
        self._due()
        queue = self._queue(qp)
        request = wire.BindRequest.from_buffer_copy(wire.BindRequest.from_address(address))
        sent = Sent.of(
            wire.SendRequest(wr_id=request.wr_id, opcode=wire.BIND_MW, flags=request.flags),
        )
        sent.bind.window, sent.bind.info = window, request.info
        if self.binding(queue, sent, request.info):
            returned = int(self._real.bind_mw(qp, window, ctypes.addressof(request)))
        else:
            returned = self._bind_nothing(qp, window, sent)
        if not returned:
            sent.bind.rkey = key_of_window(window).value
            self._posted(queue, sent)
        return returned

    def _bind_nothing(self, qp: int, window: int, sent: Sent) -> int:
        nothing, bad = (
            wire.SendRequest(wr_id=sent.wr_id, opcode=wire.WRITE, flags=sent.flags),
            ctypes.c_uint64(),
        )
        returned = int(self._real.post_send(qp, ctypes.addressof(nothing), ctypes.addressof(bad)))
        sent.carried_out = True
        key = key_of_window(window)
        key.value = key.value & ~0xFF | (key.value + 1) & 0xFF
        return returned

    def _post_recv(self, qp: int, address: int, bad: int) -> int:
        self._due()
        queue = self._queue(qp)
        while address:
            request = wire.ReceiveRequest.from_buffer_copy(
                wire.ReceiveRequest.from_address(address),
            )
            following, request.next = request.next or 0, None
            elements = wire.elements_of(request)
            before = tuple(content_at(self.local(element), element.length) for element in elements)
            posted = Posted(request.wr_id, elements, before)
            self.receiving(queue, posted, request)
            returned = int(self._real.post_recv(qp, ctypes.addressof(request), bad))
            if returned:
                ctypes.c_uint64.from_address(bad).value = address
                return returned
            queue.receives.append(posted)
            address = following
        return 0

    def _poll_cq(self, cq: int, count: int, address: int) -> int:
        self._due()
        number = int(self._real.poll_cq(cq, count, address))
        stored = 0
        for index in range(max(number, 0)):
            wc = wire.WorkCompletion.from_address(
                address + index * ctypes.sizeof(wire.WorkCompletion),
            )
            if not self._polled_one(wc):
                continue
            if stored != index:
                ctypes.memmove(
                    address + stored * ctypes.sizeof(wire.WorkCompletion),
                    ctypes.addressof(wc),
                    ctypes.sizeof(wc),
                )
            stored += 1
        if number > 0:
            return stored
        return number

    def _polled_one(self, wc: wire.WorkCompletion) -> bool:
        queue = self.queues.get(wc.qp_num)
        if queue is None:
            return True
        is_receive = wc.status == wire.SUCCESS and wc.opcode >= wire.RECV
        if is_receive:
            sent = None
        else:
            sent = queue.take_sent(wc.wr_id)
        if sent is None:
            posted = queue.take_receive(wc.wr_id)
            if (
                wc.status == wire.SUCCESS
                and wc.opcode == wire.RECV_WITH_IMM
                and queue.arriving
                and not wc.byte_len
            ):
                wc.byte_len = queue.arriving.popleft()
            if posted:
                self.received(queue, posted, wc)
            self._polled.add(wc.qp_num)
            return True
        if wc.status == wire.SUCCESS and sent.carried_out:
            wc.opcode, wc.byte_len = sent.completed_as, sent.byte_len or 0
        if wc.status != wire.SUCCESS:
            self._undo(sent)
        stored = self.completed(queue, sent, wc)
        if stored:
            self._polled.add(wc.qp_num)
        return stored

    def _undo(self, sent: Sent) -> None:
        """Restores the records that a failed bind or invalidation has changed."""
        if sent.opcode == wire.BIND_MW:
            if sent.bind.info.length and (failed := self.objects.binding(sent.rkey, EVERY)):
                self.objects.bindings.remove(failed)
            former = self.objects.bound(sent.window, EVERY)
            if former and former.ended in ("rebound", "unbound"):
                former.ended = ""
        if isinstance(sent.note, Binding):
            sent.note.ended = ""

    # Regions

    def register(
        self,
        entry: Entry,
        verb: str,
        pd: Pd,
        where: tuple[int, ...],
        access: int,
    ) -> Return:
        """Registers a region. Records the region if it is not a region of a dma-buf."""
        returned = super().register(entry, verb, pd, where, access)
        if returned.mr and verb != "reg_dmabuf_mr":
            addr, length = where[:2]
            if verb == "reg_mr_iova":
                iova = where[2]
            else:
                if access & ZERO_BASED:
                    iova = 0
                else:
                    iova = addr
            struct = returned.mr.struct
            self.objects.regions.append(
                Region(addr, length, iova, access, pd.pointer, struct.lkey, struct.rkey, verb),
            )
        return returned

    def dereg_mr(self, entry: Entry, mr: Mr) -> Return:
        region = self.objects.region(mr.struct.rkey)
        returned = super().dereg_mr(entry, mr)
        if region and not returned.value:
            region.ended = "deregistered"
        return returned

    def rereg_mr(
        self,
        entry: Entry,
        mr: Mr,
        flags: int,
        pd: Pd | None,
        addr: int,
        length: int,
        access: int,
    ) -> Return:
        """Re-registers a region, and records the changed region as a new one."""
        region = self.objects.region(mr.struct.rkey)
        returned = super().rereg_mr(entry, mr, flags, pd, addr, length, access)
        if region and not returned.value:
            if flags & _TRANSLATION:
                where = (addr, length, addr)
            else:
                where = (region.addr, region.length, region.iova)
            if flags & _PD and pd:
                domain = pd.pointer
            else:
                domain = region.pd
            if flags & _ACCESS:
                rights = access
            else:
                rights = region.access
            region.ended = "changed"
            keys = mr.struct.lkey, mr.struct.rkey
            self.objects.regions.append(Region(*where, rights, domain, *keys, region.verb))
        return returned


class DataPathBench(Wrapper):
    """The real bench. The alteration records its registrations and pairs."""

    def entry(self, name: str) -> AlteredEntry:
        return AlteredEntry(self.real.entry(name), self.alteration)

    def pair(self, *arguments: Any) -> Any:
        pair = self.real.pair(*arguments)
        self.alteration.pairs.append(pair)
        return pair


def key_of_window(window: int) -> ctypes.c_uint32:
    return ctypes.c_uint32.from_address(window + _RKEY_OF_WINDOW)
