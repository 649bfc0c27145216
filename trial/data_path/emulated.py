"""Implements the provider's functions of struct ibv_context with the reference. Requests and completions pass through
these functions as on the real stack, so that alterations of the data path can be tried without a device.
trial/inside.py tries the alterations on the real stack."""

from __future__ import annotations

import ctypes
import socket
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from conformance.bench.calls import IbvMw, KeyInStruct, Mr, Pd, Return, Sge
from conformance.bench.interface import Bench
from conformance.bench.work_requests import (
    EXTENDED_OPCODES,
    WR_OPCODES,
    BindInfo,
    Completion,
    SendRequest,
    wc_opcode,
    wc_status,
)
from conformance.device.posting import MAX_SGE, SEND_SIZE, SGE, completion, pack_send
from conformance.errors import HostLacks
from conformance.model.case import QpSpec
from conformance.model.vocabulary import WIRE
from trial.altering import WrappedPair, Wrapper
from trial.data_path import structures as wire
from trial.data_path.alteration import DataPath
from trial.data_path.objects import QueuePair
from trial.data_path.operations import FUNCTIONS
from trial.reference.bench import ReferenceBench

_KINDS = {"RC": 2, "RC_SRQ": 2, "UC": 3, "UD": 4, "XRC_SEND": 9}
_NAMES = {number: name for name, number in WR_OPCODES.items()}
_STATUSES = {wc_status(number): number for number in range(24)}
_OPCODES = {wc_opcode(number): number for number in (*range(10), 128, 129)}
_IDLE = 8  # the number of polls without a completion after which no completion is expected


class Provider:
    """A struct ibv_context whose functions post requests to the reference."""

    def __init__(self, bench: ReferenceBench) -> None:
        self.bench = bench
        self._context = (ctypes.c_uint64 * 64)()
        self.at = ctypes.addressof(self._context)
        self.queues: dict[int, EmulatedQueue] = {}
        self.windows: dict[int, EmulatedWindow] = {}
        self.domains: dict[int, Pd] = {}
        self.regions: dict[int, Mr] = {}
        self.errno = 0
        self._kept = []
        for name, (index, kind) in FUNCTIONS.items():
            function = kind(getattr(self, f"_{name}"))
            self._kept.append(function)
            self._context[1 + index] = ctypes.cast(function, ctypes.c_void_p).value or 0

    def call(self, name: str, *arguments: int) -> int:
        """Calls a function of the context, which may have been replaced."""
        index, kind = FUNCTIONS[name]
        return int(kind(self._context[1 + index])(*arguments) or 0)

    def _post_send(self, qp: int, address: int, bad: int) -> int:
        request = wire.SendRequest.from_address(address)
        sges = tuple(
            Sge(element.addr, element.length, element.lkey) for element in wire.elements_of(request)
        )
        opcode, imm = _NAMES[request.opcode], int(request.imm)
        place, operands = (request.remote_addr, request.rkey), (request.compare_add, request.swap)
        posted = SendRequest(
            opcode,
            request.wr_id,
            sges,
            request.flags,
            *place,
            socket.ntohl(imm),
            imm,
            *operands,
        )
        if opcode == "BIND_MW":
            window = self.windows[request.bind.window]
            window.held.rkey = window.rkey
            posted = posted._replace(
                rkey=request.bind.rkey,
                window=window.held,
                bind=self._info(request.bind.info),
            )
        return int(self.queues[qp].held.post_send(posted).value)

    def info(self, info: BindInfo) -> wire.Info:
        """Returns the struct ibv_mw_bind_info, and records its region."""
        if info.mr:
            address = ctypes.addressof(info.mr.struct)
        else:
            address = 0
        if info.mr:
            self.regions[address] = info.mr
        return wire.Info(
            address,
            info.addr % (1 << 64),
            info.length % (1 << 64),
            info.access % (1 << 32),
        )

    def _info(self, info: wire.Info) -> BindInfo:
        return BindInfo(
            self.regions[info.mr] if info.mr else None,
            info.addr,
            info.length,
            info.access,
        )

    def _post_recv(self, qp: int, address: int, bad: int) -> int:
        request = wire.ReceiveRequest.from_address(address)
        sges = [
            Sge(element.addr, element.length, element.lkey) for element in wire.elements_of(request)
        ]
        return int(self.queues[qp].held.post_receive(sges, request.wr_id).value)

    def _bind_mw(self, qp: int, pointer: int, address: int) -> int:
        request, window = wire.BindRequest.from_address(address), self.windows[pointer]
        window.held.rkey = window.rkey
        held = self.queues[qp].held
        returned = held.bind_mw(window.held, self._info(request.info), request.flags, request.wr_id)
        window.rkey = window.held.rkey
        return int(returned.value)

    def _alloc_mw(self, pd: int, kind: int) -> int:
        held, returned = self.bench.alloc_mw(self.domains[pd], kind)
        self.errno = returned.errno
        if held is None:
            return 0
        window = EmulatedWindow(self, held)
        self.windows[window.pointer] = window
        return window.pointer

    def _dealloc_mw(self, pointer: int) -> int:
        return int(self.windows[pointer].held.dealloc().value)

    def _poll_cq(self, cq: int, count: int, address: int) -> int:
        queue = self.queues[cq]
        completions = queue.held.completions(count)
        for index, polled in enumerate(completions):
            wc = wire.WorkCompletion.from_address(
                address + index * ctypes.sizeof(wire.WorkCompletion),
            )
            ctypes.memset(ctypes.addressof(wc), 0, ctypes.sizeof(wc))
            wc.wr_id, wc.status, wc.qp_num = polled.wr_id, _STATUSES[polled.status], queue.number
            wc.opcode, wc.byte_len, wc.vendor_err = (
                _OPCODES.get(polled.opcode, 0),
                polled.byte_len,
                polled.vendor_err,
            )
            if polled.imm is not None:
                wc.imm, wc.flags = socket.htonl(polled.imm), wire.WITH_IMM
            text = getattr(polled, "invalidated_rkey", None)
            if text is not None:
                wc.imm, wc.flags = text, wire.WITH_INV
        return len(completions)


class EmulatedWindow(KeyInStruct):
    """A window with a struct ibv_mw."""

    def __init__(self, provider: Provider, held: Any) -> None:
        self._provider, self.held = provider, held
        self._struct = IbvMw(rkey=held.rkey)
        self.pointer = ctypes.addressof(self._struct)
        self.old_rkey = held.old_rkey

    def dealloc(self) -> Return:
        code = self._provider.call("dealloc_mw", self.pointer)
        return Return(code, code)


class EmulatedQueue(Wrapper):
    """A queue pair with a struct ibv_qp. The address of the struct is also the address of the completion queue."""

    def __init__(self, provider: Provider, held: Any) -> None:
        super().__init__(held, None)
        words = (
            provider.at,
            0,
            held.pd.pointer,
            0,
            0,
            0,
            held.number << 32,
            _KINDS.get(held.kind, 0) << 32,
        )
        self.__dict__.update(provider=provider, held=held, struct=(ctypes.c_uint64 * 8)(*words))
        provider.queues[self.pointer] = self

    @property
    def pointer(self) -> int:
        """The struct ibv_qp *."""
        return ctypes.addressof(self.struct)

    def post_send(self, request: SendRequest) -> Return:
        if request.opcode in EXTENDED_OPCODES:
            return cast(Return, self.held.post_send(request))
        buffer = ctypes.create_string_buffer(SEND_SIZE)
        elements = ctypes.create_string_buffer(MAX_SGE * SGE.size)
        if request.bind and request.bind.mr:
            bind = self.provider.info(request.bind)
            mr = Mr(request.bind.mr.struct, bind.mr)
            request = request._replace(bind=BindInfo(mr, bind.addr, bind.length, bind.access))
        pack_send(buffer, 0, (elements, 0, ctypes.addressof(elements)), request)
        return self._called("post_send", ctypes.addressof(buffer))

    def post_receive(self, sges: Sequence[Sge], wr_id: int) -> Return:
        elements = (wire.Element * max(1, len(sges)))(
            *(
                wire.Element(sge.addr % (1 << 64), sge.length % (1 << 32), sge.lkey % (1 << 32))
                for sge in sges
            ),
        )
        request = wire.ReceiveRequest(
            wr_id,
            None,
            ctypes.addressof(elements) if sges else None,
            len(sges),
        )
        return self._called("post_recv", ctypes.addressof(request))

    def bind_mw(self, window: EmulatedWindow, info: BindInfo, flags: int, wr_id: int) -> Return:
        request = wire.BindRequest(wr_id, flags, self.provider.info(info))
        code = self.provider.call(
            "bind_mw",
            self.pointer,
            window.pointer,
            ctypes.addressof(request),
        )
        return Return(code, max(code, 0))

    def completions(self, count: int = 1, deadline_s: float = 0.0) -> list[Completion]:
        """Polls until there are `count` completions or no further completion is expected."""
        wc = wire.WorkCompletion()
        completions: list[Completion] = []
        idle = 0
        while len(completions) < count and idle < _IDLE:
            number = self.provider.call("poll_cq", self.pointer, 1, ctypes.addressof(wc))
            completions += [completion(bytes(wc), 0)] * number
            if number:
                idle = 0
            else:
                idle = idle + 1
        return completions

    def _called(self, name: str, address: int) -> Return:
        bad = ctypes.c_uint64()
        code = self.provider.call(name, self.pointer, address, ctypes.addressof(bad))
        return Return(code, max(code, 0))


class EmulatedBench(Wrapper):
    """The reference's bench, whose requests pass through a struct ibv_context."""

    def __init__(self, bench: ReferenceBench) -> None:
        super().__init__(bench, None)
        self.__dict__["provider"] = Provider(bench)

    def alloc_pd(self) -> Any:
        pd = self.real.alloc_pd()
        self.provider.domains[pd.pointer] = pd
        return pd

    def pair(self, spec: QpSpec, requester: Pd, responder: Pd) -> WrappedPair:
        if spec.wire or spec.extended == WIRE:
            raise HostLacks("packets pass no struct ibv_context", "run the case on a device")
        pair = self.real.pair(spec, requester, responder)
        return WrappedPair(pair, lambda queue: EmulatedQueue(self.provider, queue))

    def alloc_mw(self, pd: Pd, kind: int) -> tuple[EmulatedWindow | None, Return]:
        pointer = self.provider.call("alloc_mw", pd.pointer, kind)
        if pointer:
            return (self.provider.windows[pointer], Return(1, 0))
        return (None, Return(0, self.provider.errno))


def altered_bench(alteration: DataPath, bench: ReferenceBench) -> Bench:
    emulated = EmulatedBench(bench)
    opening = SimpleNamespace(context_pointer=emulated.provider.at, close=lambda: None)
    altered = alteration.bench(cast(Bench, SimpleNamespace(alloc_pd=lambda: opening)))
    altered.__dict__["real"] = emulated

    def ready(queue: QueuePair) -> bool:
        return bool(emulated.provider.queues[queue.pointer].query_state() == "RTS")

    alteration.ready = ready  # type: ignore[method-assign]
    return cast(Bench, altered)
