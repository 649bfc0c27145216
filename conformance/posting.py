"""Posting and polling as a C program does: the structures of <infiniband/verbs.h> and the provider's functions.

ibv_post_send, ibv_post_recv and ibv_poll_cq are inlines of the header that call what `struct ibv_context`
points to, so that the layouts here are part of the library's stable ABI. The bindings' own work requests
cannot name a bind's key, refuse a request without elements, and never free their lists.
"""

from __future__ import annotations

import ctypes
import os
import socket
import time
from collections.abc import Sequence
from typing import Any

from conformance.calls import Return, Sge
from conformance.requests import WR_OPCODES, Completion, SendRequest, wc_opcode, wc_status

MAX_SGE = 8
_MAX_POLLED = 16
_WITH_IMM = 1 << 1  # enum ibv_wc_flags

_pointer, _int, _u16, _u32, _u64 = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64


class IbvQp(ctypes.Structure):
    """The beginning of struct ibv_qp."""

    _fields_ = (
        ("context", _pointer), ("qp_context", _pointer), ("pd", _pointer), ("send_cq", _pointer),
        ("recv_cq", _pointer), ("srq", _pointer), ("handle", _u32), ("qp_num", _u32), ("state", _int),
        ("qp_type", _int),
    )  # fmt: skip


class _Sge(ctypes.Structure):
    _fields_ = (("addr", _u64), ("length", _u32), ("lkey", _u32))


class _Rdma(ctypes.Structure):
    _fields_ = (("remote_addr", _u64), ("rkey", _u32))


class _Atomic(ctypes.Structure):
    _fields_ = (("remote_addr", _u64), ("compare_add", _u64), ("swap", _u64), ("rkey", _u32))


class _Ud(ctypes.Structure):
    _fields_ = (("ah", _pointer), ("remote_qpn", _u32), ("remote_qkey", _u32))


class _Wr(ctypes.Union):
    _fields_ = (("rdma", _Rdma), ("atomic", _Atomic), ("ud", _Ud))


class _Bind(ctypes.Structure):
    _fields_ = (
        ("mw", _pointer), ("rkey", _u32), ("mr", _pointer), ("addr", _u64), ("length", _u64), ("access", ctypes.c_uint),
    )  # fmt: skip


class _SendWr(ctypes.Structure):
    """struct ibv_send_wr; `imm` is the union of immediate data and the key to invalidate."""

    _fields_ = (
        ("wr_id", _u64), ("next", _pointer), ("sg_list", _pointer), ("num_sge", _int), ("opcode", _int),
        ("send_flags", ctypes.c_uint), ("imm", _u32), ("wr", _Wr), ("remote_srqn", _u32), ("bind_mw", _Bind),
    )  # fmt: skip


class _RecvWr(ctypes.Structure):
    _fields_ = (("wr_id", _u64), ("next", _pointer), ("sg_list", _pointer), ("num_sge", _int))


class _Wc(ctypes.Structure):
    _fields_ = (
        ("wr_id", _u64), ("status", _int), ("opcode", _int), ("vendor_err", _u32), ("byte_len", _u32), ("imm", _u32),
        ("qp_num", _u32), ("src_qp", _u32), ("wc_flags", ctypes.c_uint), ("pkey_index", _u16), ("slid", _u16),
        ("sl", ctypes.c_uint8), ("dlid_path_bits", ctypes.c_uint8),
    )  # fmt: skip


# struct ibv_context: the device, and then the table of the provider's functions, by their places in it.
_POLL_CQ, _POST_SRQ_RECV, _POST_SEND, _POST_RECV = 11, 20, 25, 26
_WORD = ctypes.sizeof(_pointer)
_Post = ctypes.CFUNCTYPE(_int, _pointer, _pointer, _pointer)
_Poll = ctypes.CFUNCTYPE(_int, _pointer, _int, _pointer)


def _function(kind: Any, context: int, place: int) -> Any:
    return kind(ctypes.c_uint64.from_address(context + (1 + place) * _WORD).value)


class Poster:
    """Posts to one queue pair and polls its completion queue. The structures are made once and used again."""

    def __init__(self, qp: int, srq: int = 0) -> None:
        """`qp` is struct ibv_qp *; `srq`, where receives go to a shared queue, struct ibv_srq *."""
        struct = IbvQp.from_address(qp)
        context = struct.context or 0
        self.qp, self._cq = qp, struct.send_cq
        self._post_send = _function(_Post, context, _POST_SEND)
        self._post_recv = _function(_Post, context, _POST_SRQ_RECV if srq else _POST_RECV)
        self._receiver = srq or qp
        self._poll_cq = _function(_Poll, context, _POLL_CQ)
        self._bad = _pointer()
        self._bad_at = ctypes.addressof(self._bad)
        self._sges = (_Sge * MAX_SGE)()
        self._wc = (_Wc * _MAX_POLLED)()

    def _elements(self, request: Any, sges: Sequence[Sge]) -> None:
        for mine, sge in zip(self._sges, sges, strict=False):
            mine.addr, mine.length, mine.lkey = sge.addr % (1 << 64), sge.length % (1 << 32), sge.lkey % (1 << 32)
        request.sg_list, request.num_sge = ctypes.addressof(self._sges), len(sges)

    def send(self, request: SendRequest, destination: tuple[int, int, int] | None = None, srqn: int = 0) -> Return:
        """ibv_post_send: 0, or the value of errno.

        `destination` of a datagram is struct ibv_ah *, queue pair number and queue key; `srqn` the number of
        the shared receive queue that an XRC request goes to.
        """
        wr = _SendWr(request.wr_id, 0, 0, 0, WR_OPCODES[request.opcode], request.flags)
        self._elements(wr, request.sges)
        wr.imm = request.invalidate_rkey if request.opcode.endswith("_INV") else socket.htonl(request.imm)
        wr.remote_srqn = srqn
        if destination:
            wr.wr.ud.ah, wr.wr.ud.remote_qpn, wr.wr.ud.remote_qkey = destination
        elif request.opcode.startswith("ATOMIC"):
            wr.wr.atomic = _Atomic(request.remote_addr, request.compare_add, request.swap, request.rkey)
        elif request.opcode.startswith("RDMA"):
            wr.wr.rdma = _Rdma(request.remote_addr, request.rkey)
        elif request.bind and request.window:
            info = request.bind
            mr = info.mr.pointer if info.mr else 0
            wr.bind_mw = _Bind(request.window.pointer, request.rkey, mr, info.addr, info.length, info.access)
        return self._posted(self._post_send(self.qp, ctypes.addressof(wr), self._bad_at))

    def receive(self, sges: Sequence[Sge], wr_id: int) -> Return:
        """ibv_post_recv, or ibv_post_srq_recv where there is a shared queue: 0, or the value of errno."""
        wr = _RecvWr(wr_id)
        self._elements(wr, sges)
        return self._posted(self._post_recv(self._receiver, ctypes.addressof(wr), self._bad_at))

    def _posted(self, value: int) -> Return:
        return Return(value, value if value > 0 else 0)

    def completions(self, count: int, deadline_s: float) -> list[Completion]:
        """The next `count` completions, fewer when the deadline passes. Raises OSError if polling fails."""
        until = time.monotonic() + deadline_s
        found: list[Completion] = []
        while len(found) < count:
            number = self._poll_cq(self._cq, min(_MAX_POLLED, count - len(found)), ctypes.addressof(self._wc))
            if number < 0:
                raise OSError(-number, "ibv_poll_cq")
            found += map(_completion, self._wc[:number])
            if not number:
                if time.monotonic() >= until:
                    break
                os.sched_yield()
        return found


def _completion(wc: _Wc) -> Completion:
    if wc.status:
        return Completion(wc.wr_id, wc_status(wc.status), vendor_err=wc.vendor_err)
    imm = socket.ntohl(wc.imm) if wc.wc_flags & _WITH_IMM else None
    return Completion(wc.wr_id, "SUCCESS", wc_opcode(wc.opcode), wc.byte_len, imm, wc.vendor_err)
