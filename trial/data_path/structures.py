"""The structures that a program passes to ibv_post_send, ibv_post_recv, ibv_poll_cq and ibv_bind_mw. The layouts are
those of <infiniband/verbs.h>, and are part of the library's stable ABI. Unlike the structures of device/posting.py,
the structures of this module have a field for each member."""

from __future__ import annotations

import ctypes

from conformance.bench.calls import members

# enum ibv_wr_opcode
(
    WRITE,
    WRITE_WITH_IMM,
    SEND,
    SEND_WITH_IMM,
    READ,
    COMPARE_SWAP,
    FETCH_ADD,
    LOCAL_INV,
    BIND_MW,
    SEND_WITH_INV,
) = range(10)
WRITES, ATOMICS = (WRITE, WRITE_WITH_IMM), (COMPARE_SWAP, FETCH_ADD)
SENDS = (SEND, SEND_WITH_IMM, SEND_WITH_INV)
# enum ibv_send_flags
FENCE, SIGNALED, SOLICITED, INLINE = 1, 2, 4, 8
# enum ibv_wc_opcode, and the opcode of the completion for each opcode of a request
RECV, RECV_WITH_IMM = 128, 129
COMPLETED_AS = {
    **dict.fromkeys(WRITES, 1),
    **dict.fromkeys(SENDS, 0),
    READ: 2,
    COMPARE_SWAP: 3,
    FETCH_ADD: 4,
}
COMPLETED_AS |= {LOCAL_INV: 6, BIND_MW: 5}
# enum ibv_wc_status
SUCCESS, WR_FLUSH_ERR, REM_ACCESS_ERR = 0, 5, 10
REFUSED = (9, 10, 11)  # REM_INV_REQ_ERR, REM_ACCESS_ERR, REM_OP_ERR
# enum ibv_wc_flags
WITH_IMM, WITH_INV = 1 << 1, 1 << 3


class Element(ctypes.Structure):
    """struct ibv_sge."""

    _fields_ = members("uint64_t addr; uint32_t length, lkey")


class _Rdma(ctypes.Structure):
    _fields_ = members("uint64_t remote_addr; uint32_t rkey")


class _Atomic(ctypes.Structure):
    _fields_ = members("uint64_t remote_addr, compare_add, swap; uint32_t rkey")


class _Target(ctypes.Union):
    _fields_ = (("rdma", _Rdma), ("atomic", _Atomic))


class Info(ctypes.Structure):
    """struct ibv_mw_bind_info."""

    _fields_ = members("void *mr; uint64_t addr, length; uint32_t access")


class _PostedBind(ctypes.Structure):
    _fields_ = (*members("void *window; uint32_t rkey"), ("info", Info))


class SendRequest(ctypes.Structure):
    """struct ibv_send_wr. The properties return the fields that the request's opcode uses."""

    _fields_ = (
        *members("uint64_t wr_id; void *next, *sg_list; int num_sge, opcode; uint32_t flags, imm"),
        ("target", _Target),
        ("srqn", ctypes.c_uint32),
        ("bind", _PostedBind),
    )

    @property
    def remote_addr(self) -> int:
        """The remote address of a READ, a WRITE or an atomic."""
        return int(self.target.rdma.remote_addr)

    @remote_addr.setter
    def remote_addr(self, value: int) -> None:
        self.target.rdma.remote_addr = value % (1 << 64)

    @property
    def rkey(self) -> int:
        """The remote key of a READ, a WRITE or an atomic, or the key of a bind; 0 for a message."""
        if self.opcode in SENDS:
            return 0
        bound = self.opcode == BIND_MW
        return int(
            self.bind.rkey
            if bound
            else (self.target.atomic if self.atomic else self.target.rdma).rkey,
        )

    @rkey.setter
    def rkey(self, value: int) -> None:
        (self.target.atomic if self.atomic else self.target.rdma).rkey = value

    @property
    def compare_add(self) -> int:
        return int(self.target.atomic.compare_add)

    @property
    def swap(self) -> int:
        return int(self.target.atomic.swap)

    @property
    def reads(self) -> bool:
        return bool(self.opcode == READ)

    @property
    def writes(self) -> bool:
        return self.opcode in WRITES

    @property
    def atomic(self) -> bool:
        return self.opcode in ATOMICS


class ReceiveRequest(ctypes.Structure):
    """struct ibv_recv_wr."""

    _fields_ = members("uint64_t wr_id; void *next, *sg_list; int num_sge")


class BindRequest(ctypes.Structure):
    """struct ibv_mw_bind."""

    _fields_ = (*members("uint64_t wr_id; uint32_t flags"), ("info", Info))


class WorkCompletion(ctypes.Structure):
    """struct ibv_wc."""

    _fields_ = (
        *members(
            "uint64_t wr_id; int status, opcode; uint32_t vendor_err, byte_len, imm, qp_num, src_qp, flags",
        ),
        *((name, ctypes.c_uint16) for name in ("pkey_index", "slid")),
        *((name, ctypes.c_uint8) for name in ("sl", "dlid_path_bits")),
    )


def elements_of(request: SendRequest | ReceiveRequest) -> tuple[Element, ...]:
    """Returns copies of the elements of a request's scatter/gather list."""
    if not request.sg_list or request.num_sge <= 0:
        return ()
    return tuple(
        map(Element.from_buffer_copy, (Element * request.num_sge).from_address(request.sg_list)),
    )
