"""Posts work requests and polls completion queues like a C program, with the structures of <infiniband/verbs.h>.

ibv_post_send, ibv_post_recv and ibv_poll_cq are inline functions of the header. They call functions to which `struct
ibv_context` points, so the layouts of these structures are part of the library's stable ABI. pyverbs is not used,
because its work requests cannot contain the key of a bind, must have SGEs, and never free their lists.
"""

from __future__ import annotations

import ctypes
import functools
import socket
import sys
from collections.abc import Sequence
from struct import Struct
from typing import Any

from conformance.bench.calls import Return, Sge, members
from conformance.bench.work_requests import (
    BEHIND,
    WR_OPCODES,
    Completion,
    SendRequest,
    wc_opcode,
    wc_status,
)
from conformance.model.deadline import Wait
from conformance.older_python import pairwise, zip

MAX_SGE = 8
_MAX_POLLED = 16
_WITH_IMM, _WITH_INV = 1 << 1, 1 << 3  # enum ibv_wc_flags

_pointer, _int = ctypes.c_void_p, ctypes.c_int


class IbvQp(ctypes.Structure):
    _fields_ = members(
        "void *context, *qp_context, *pd, *send_cq, *recv_cq, *srq; uint32_t handle, qp_num; int state, qp_type",
    )


# struct ibv_sge; struct ibv_send_wr in parts (its beginning, its union `wr` for three types of request, remote_srqn,
# and the union with `bind_mw`); struct ibv_recv_wr; struct ibv_wc.
SGE = Struct("QII")
_SEND_HEAD, _RDMA, _ATOMIC, _UD = (
    Struct("QQQiiII"),
    Struct("QI20x"),
    Struct("QQQI4x"),
    Struct("QII16x"),
)
_SRQN, _BIND = Struct("I4x"), Struct("QI4xQQQI4x")
_AT_WR, _AT_SRQN = _SEND_HEAD.size, _SEND_HEAD.size + _ATOMIC.size
_AT_BIND = _AT_SRQN + _SRQN.size
SEND_SIZE = _AT_BIND + _BIND.size
_RECEIVE = Struct("QQQi4x")
_NEXT = Struct("Q")  # behind the wr_id of either structure
_STATE = Struct("i")
WC = Struct("QiiIIIIIIHHBB2x")

# struct ibv_context begins with the device and the table of the provider's functions. Indices in this table:
_POLL_CQ, _POST_SRQ_RECV, _POST_SEND, _POST_RECV = 11, 20, 25, 26
_WORD = ctypes.sizeof(_pointer)
_Post = ctypes.CFUNCTYPE(_int, _pointer, _pointer, _pointer)
_Poll = ctypes.CFUNCTYPE(_int, _pointer, _int, _pointer)

_QP_STATE = 1 << 0  # enum ibv_qp_attr_mask
_ATTRIBUTES = 256  # bytes for struct ibv_qp_attr, whose first member is the state, or for struct ibv_qp_init_attr


@functools.cache
def _query_qp() -> Any:
    function = ctypes.CDLL("libibverbs.so.1").ibv_query_qp
    function.argtypes = (_pointer, _pointer, _int, _pointer)
    return function


def _function(kind: Any, context: int, index: int) -> Any:
    return kind(ctypes.c_uint64.from_address(context + (1 + index) * _WORD).value)


class Poster:
    """Posts to one queue pair and polls its completion queue. The structures are allocated once and reused."""

    def __init__(self, qp: int, srq: int = 0) -> None:
        """`qp` is struct ibv_qp *; `srq` is struct ibv_srq * if receives are posted to a shared receive queue."""
        struct = IbvQp.from_address(qp)
        self.context = context = struct.context or 0
        self.qp, self._cq = qp, struct.send_cq
        self._post_send = _function(_Post, context, _POST_SEND)
        self._post_recv = _function(_Post, context, _POST_SRQ_RECV if srq else _POST_RECV)
        self._receiver = srq or qp
        self._poll_cq = _function(_Poll, context, _POLL_CQ)
        self._bad, self._bad_at = _buffer(_WORD)
        self._sges, self._sges_at = _buffer(MAX_SGE * SGE.size)
        self._request, self._request_at = _buffer(SEND_SIZE)
        self._receive, self._receive_at = _buffer(_RECEIVE.size)
        self._attributes, self._attributes_at = _buffer(2 * _ATTRIBUTES)
        self._query_qp = _query_qp()
        self._wc, self._wc_at = _buffer(_MAX_POLLED * WC.size)

    def send(
        self,
        request: SendRequest,
        destination: tuple[int, int, int] | None = None,
        srqn: int = 0,
    ) -> Return:
        """Calls ibv_post_send. Returns 0, or the value of errno. See `pack_send` for the arguments."""
        pack_send(self._request, 0, (self._sges, 0, self._sges_at), request, destination, srqn)
        value = self._post_send(self.qp, self._request_at, self._bad_at)
        return Return(value, max(value, 0))

    def receive(self, sges: Sequence[Sge], wr_id: int) -> Return:
        """Calls ibv_post_recv or, for a shared receive queue, ibv_post_srq_recv. Returns 0, or the value of errno."""
        _pack_elements(self._sges, 0, sges)
        _RECEIVE.pack_into(self._receive, 0, wr_id, 0, self._sges_at if sges else 0, len(sges))
        value = self._post_recv(self._receiver, self._receive_at, self._bad_at)
        return Return(value, max(value, 0))

    def sends(self, requests: Sequence[SendRequest]) -> tuple[Return, int]:
        """Calls ibv_post_send with a list. See bench.interface.ListQueue."""
        elements = [request.sges for request in requests]
        chain = _Chain(SEND_SIZE, elements)
        for at, of_request, request in zip(chain.at, chain.elements, requests, strict=True):
            pack_send(chain.buffer, at, of_request, request, most=len(request.sges))
        return self._posted(self._post_send, self.qp, chain)

    def receives(self, receives: Sequence[tuple[Sequence[Sge], int]]) -> tuple[Return, int]:
        """Calls ibv_post_recv or ibv_post_srq_recv with a list. See bench.interface.ListQueue."""
        chain = _Chain(_RECEIVE.size, [sges for sges, _ in receives])
        for at, (buffer, start, address), (sges, wr_id) in zip(
            chain.at, chain.elements, receives, strict=True
        ):
            _pack_elements(buffer, start, sges, len(sges))
            _RECEIVE.pack_into(chain.buffer, at, wr_id, 0, address, len(sges))
        return self._posted(self._post_recv, self._receiver, chain)

    def _posted(self, post: Any, queue: int, chain: _Chain) -> tuple[Return, int]:
        ctypes.memset(self._bad_at, 0, _WORD)
        value = post(queue, chain.linked(), self._bad_at)
        if not value:
            return Return(0, 0), len(chain.at)
        return Return(value, max(value, 0)), chain.index_of(
            int.from_bytes(self._bad.raw, sys.byteorder)
        )

    @property
    def channel(self) -> int:
        return ctypes.c_int.from_address(
            ctypes.c_uint64.from_address(self._cq + _WORD).value + _WORD,
        ).value

    def state(self) -> int:
        """Returns the value of enum ibv_qp_state that ibv_query_qp reports. Raises OSError if ibv_query_qp fails."""
        failed = self._query_qp(
            self.qp,
            self._attributes_at,
            _QP_STATE,
            self._attributes_at + _ATTRIBUTES,
        )
        if failed:
            raise OSError(failed, "ibv_query_qp")
        return int(_STATE.unpack_from(self._attributes)[0])

    def completions(self, count: int, deadline_s: float) -> list[Completion]:
        """Returns the next `count` completions, or fewer at the deadline. Raises OSError if polling fails. Omits the
        completions of the SENDs that the harness posts after requests."""
        wait: Wait | None = None
        completions: list[Completion] = []
        while len(completions) < count:
            number = self._poll_cq(
                self._cq, min(_MAX_POLLED, count - len(completions)), self._wc_at
            )
            if number < 0:
                raise OSError(-number, "ibv_poll_cq")
            if not number:
                wait = wait or Wait(deadline_s)
                if wait.over():
                    break
                continue
            polled = (completion(self._wc, index) for index in range(number))
            completions += [completion for completion in polled if not completion.wr_id & BEHIND]
        return completions


class _Chain:
    """A list of requests of `size` bytes each: the offsets of the requests in `buffer`, and for each the location of its
    SGEs as `pack_send` takes it."""

    def __init__(self, size: int, sges: Sequence[Sequence[Sge]]) -> None:
        self.buffer, self._address = _buffer(size * len(sges))
        self.at = [number * size for number in range(len(sges))]
        held, address = _buffer(SGE.size * sum(map(len, sges)))
        self.elements: list[tuple[Any, int, int]] = []
        start = 0
        for of_request in sges:
            self.elements.append((held, start, address + start))
            start += SGE.size * len(of_request)

    def linked(self) -> int:
        """Links each request to the next one. Returns the address of the first."""
        for at, following in pairwise(self.at):
            _NEXT.pack_into(self.buffer, at + _WORD, self._address + following)
        return self._address

    def index_of(self, pointer: int) -> int:
        """Returns the index of the request at an address; -1 if there is none."""
        offset = pointer - self._address
        if offset in self.at:
            return self.at.index(offset)
        return -1


def _buffer(size: int) -> tuple[ctypes.Array[ctypes.c_char], int]:
    buffer = ctypes.create_string_buffer(size)
    return buffer, ctypes.addressof(buffer)


def pack_send(
    buffer: Any,
    at: int,
    elements: tuple[Any, int, int],
    request: SendRequest,
    destination: tuple[int, int, int] | None = None,
    srqn: int = 0,
    most: int = MAX_SGE,
) -> None:
    """Writes struct ibv_send_wr at the offset `at` of `buffer`.

    `elements` is the location of the request's list of SGEs: a buffer, the offset in this buffer, and the address. The
    `destination` of a datagram is a struct ibv_ah *, a queue pair number and a queue key. `srqn` is the number of the
    shared receive queue of an XRC request. At most `most` SGEs are written.
    """
    opcode = request.opcode
    if opcode.endswith("_INV"):
        imm = request.invalidate_rkey % (1 << 32)
    else:
        imm = socket.htonl(request.imm)
    _pack_elements(elements[0], elements[1], request.sges, most)
    sges = elements[2] if request.sges else 0, len(request.sges)
    _SEND_HEAD.pack_into(
        buffer,
        at,
        request.wr_id,
        0,
        *sges,
        WR_OPCODES[opcode],
        request.flags,
        imm,
    )
    if destination:
        _UD.pack_into(buffer, at + _AT_WR, *destination)
    elif opcode.startswith("ATOMIC"):
        _ATOMIC.pack_into(
            buffer,
            at + _AT_WR,
            request.remote_addr,
            request.compare_add,
            request.swap,
            request.rkey,
        )
    else:
        _RDMA.pack_into(buffer, at + _AT_WR, request.remote_addr, request.rkey)
    _SRQN.pack_into(buffer, at + _AT_SRQN, srqn)
    if request.bind and request.window:
        info = request.bind
        if info.mr:
            mr = info.mr.pointer
        else:
            mr = 0
        bind = (request.window.pointer, request.rkey, mr, info.addr, info.length, info.access)
        _BIND.pack_into(buffer, at + _AT_BIND, *bind)


def _pack_elements(buffer: Any, at: int, sges: Sequence[Sge], most: int = MAX_SGE) -> None:
    for number, sge in enumerate(sges[:most]):
        length, lkey = sge.length % (1 << 32), sge.lkey % (1 << 32)
        SGE.pack_into(buffer, at + number * SGE.size, sge.addr % (1 << 64), length, lkey)


def completion(wcs: Any, index: int, at: int = 0) -> Completion:
    """Returns the completion number `index` of an array of struct ibv_wc that begins at the offset `at` of `wcs`."""
    wr_id, status, opcode, vendor_err, byte_len, imm, number, _, flags, *_ = WC.unpack_from(
        wcs,
        at + index * WC.size,
    )
    if status:
        return Completion(wr_id, wc_status(status), vendor_err=vendor_err, qp_num=number)
    if flags & _WITH_INV:
        invalidated = imm
    else:
        invalidated = None
    if flags & _WITH_IMM:
        imm = socket.ntohl(imm)
    else:
        imm = None
    return Completion(
        wr_id,
        "SUCCESS",
        wc_opcode(opcode),
        byte_len,
        imm,
        vendor_err,
        invalidated,
        flags,
        number,
    )
