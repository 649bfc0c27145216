"""The structures that a program passes to ibv_post_send, ibv_post_recv, ibv_poll_cq and ibv_bind_mw.

The layouts are from <infiniband/verbs.h>, and are part of the library's stable ABI. Unlike in device/posting.py, each
field can be changed.
"""

import ctypes
from ctypes import c_int, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p

# enum ibv_wr_opcode
WRITE, WRITE_WITH_IMM, SEND, SEND_WITH_IMM, READ, COMPARE_SWAP, FETCH_ADD, LOCAL_INV, BIND_MW, SEND_WITH_INV = range(10)
WRITES, ATOMICS = (WRITE, WRITE_WITH_IMM), (COMPARE_SWAP, FETCH_ADD)
SENDS = (SEND, SEND_WITH_IMM, SEND_WITH_INV)
# enum ibv_send_flags
FENCE, SIGNALED, SOLICITED, INLINE = 1, 2, 4, 8
# enum ibv_wc_opcode, and the opcode of the completion for each opcode of a request
RECV, RECV_WITH_IMM = 128, 129
COMPLETED_AS = {**dict.fromkeys(WRITES, 1), **dict.fromkeys(SENDS, 0), READ: 2, COMPARE_SWAP: 3, FETCH_ADD: 4}
COMPLETED_AS |= {LOCAL_INV: 6, BIND_MW: 5}
# enum ibv_wc_status
SUCCESS, WR_FLUSH_ERR, REM_ACCESS_ERR = 0, 5, 10
REFUSED = (9, 10, 11)  # REM_INV_REQ_ERR, REM_ACCESS_ERR, REM_OP_ERR
# enum ibv_wc_flags
WITH_IMM, WITH_INV = 1 << 1, 1 << 3


class Element(ctypes.Structure):
    """struct ibv_sge."""

    _fields_ = (("addr", c_uint64), ("length", c_uint32), ("lkey", c_uint32))


class _Rdma(ctypes.Structure):
    _fields_ = (("remote_addr", c_uint64), ("rkey", c_uint32))


class _Atomic(ctypes.Structure):
    _fields_ = (("remote_addr", c_uint64), ("compare_add", c_uint64), ("swap", c_uint64), ("rkey", c_uint32))


class _Target(ctypes.Union):
    _fields_ = (("rdma", _Rdma), ("atomic", _Atomic))


class Info(ctypes.Structure):
    """struct ibv_mw_bind_info."""

    _fields_ = (("mr", c_void_p), ("addr", c_uint64), ("length", c_uint64), ("access", c_uint32))


class _PostedBind(ctypes.Structure):
    _fields_ = (("window", c_void_p), ("rkey", c_uint32), ("info", Info))


class SendRequest(ctypes.Structure):
    """struct ibv_send_wr."""

    _fields_ = (
        ("wr_id", c_uint64),
        ("next", c_void_p),
        ("elements", c_void_p),
        ("count", c_int),
        ("opcode", c_int),
        ("flags", c_uint32),
        ("imm", c_uint32),
        ("target", _Target),
        ("srqn", c_uint32),
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
        """The remote key of a READ, a WRITE or an atomic."""
        return int(self.target.atomic.rkey if self.opcode in ATOMICS else self.target.rdma.rkey)

    @rkey.setter
    def rkey(self, value: int) -> None:
        if self.opcode in ATOMICS:
            self.target.atomic.rkey = value
        else:
            self.target.rdma.rkey = value


class ReceiveRequest(ctypes.Structure):
    """struct ibv_recv_wr."""

    _fields_ = (("wr_id", c_uint64), ("next", c_void_p), ("elements", c_void_p), ("count", c_int))


class BindRequest(ctypes.Structure):
    """struct ibv_mw_bind."""

    _fields_ = (("wr_id", c_uint64), ("flags", c_uint32), ("info", Info))


class WorkCompletion(ctypes.Structure):
    """struct ibv_wc."""

    _fields_ = (
        ("wr_id", c_uint64),
        ("status", c_int),
        ("opcode", c_int),
        ("vendor_err", c_uint32),
        ("byte_len", c_uint32),
        ("imm", c_uint32),
        ("qp_num", c_uint32),
        ("src_qp", c_uint32),
        ("flags", c_uint32),
        ("pkey_index", c_uint16),
        ("slid", c_uint16),
        ("sl", c_uint8),
        ("dlid_path_bits", c_uint8),
    )


def elements_at(address: int, count: int) -> tuple[Element, ...]:
    """Returns copies of the elements of a scatter/gather list."""
    if not address or count <= 0:
        return ()
    return tuple(Element.from_buffer_copy(each) for each in (Element * count).from_address(address))
