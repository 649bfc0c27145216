"""Memory windows of both types: allocation, binding, invalidation, with exact codes.

ibv_alloc_mw, ibv_bind_mw and the posted work requests are inlines of the header that pyverbs has
compiled in, the header's own checks included. Not for expectations (judging.py).
"""

from __future__ import annotations

from conformance.calls import IbvMw, Mr, Pd, Return, Sge
from conformance.libibverbs import exact
from conformance.pointers import mw_pointer, pyverbs_mr
from conformance.traffic import Queue
from conformance.verbs import ENUMS


class Window:
    """A memory window. `old_rkey` is its key before the latest request to bind it."""

    def __init__(self, pd: Pd, kind: int) -> None:
        """ibv_alloc_mw of type `kind`. Raises PyverbsRDMAError with the errno."""
        from pyverbs.mr import MW

        self.pyverbs = MW(pd.pyverbs, kind)
        self.struct = IbvMw.from_address(mw_pointer(self.pyverbs))
        self.old_rkey = self.rkey

    @property
    def rkey(self) -> int:
        """The key that the structure holds now."""
        return int(self.struct.rkey)

    @rkey.setter
    def rkey(self, value: int) -> None:
        # What ibv_bind_mw(3) asks of a caller after a bind that failed: put the old key back.
        self.struct.rkey = value

    def dealloc(self) -> Return:
        """ibv_dealloc_mw: 0, or the value of errno."""
        return exact(self.pyverbs.close)


def allocate(pd: Pd, kind: int) -> tuple[Window | None, Return]:
    """A window of a type, or what was returned in its place; `value` is 1 for a window, 0 for NULL."""
    made: list[Window] = []
    returned = exact(lambda: made.append(Window(pd, kind)))
    return (made[0], Return(1, 0)) if made else (None, Return(0, returned.errno))


def bind(
    queue: Queue, window: Window, mr: Mr | None, addr: int, length: int, access: int, send_flags: int, wr_id: int
) -> Return:
    """ibv_bind_mw: 0 once posted, or the value of errno. `mr` None is NULL."""
    from pyverbs.mr import MWBind, MWBindInfo

    window.old_rkey = window.rkey
    with pyverbs_mr(mr.pointer if mr else 0) as wrapper:
        request = MWBind(MWBindInfo(wrapper, addr, length, access), send_flags, wr_id)
    return exact(lambda: queue.qp.bind_mw(window.pyverbs, request))


def post_bind(
    queue: Queue, window: Window, mr: Mr | None, addr: int, length: int, access: int, send_flags: int, wr_id: int
) -> Return:
    """ibv_post_send of IBV_WR_BIND_MW with the next key; on success the structure is told that key.

    The library does that for type 1 only; for type 2 it is the caller's business.
    """
    from pyverbs.mr import MWBindInfo
    from pyverbs.wr import SendWR

    request = SendWR(wr_id=wr_id, opcode=_opcode("BIND_MW"), send_flags=send_flags)
    with pyverbs_mr(mr.pointer if mr else 0) as wrapper:
        request.set_bind_wr(window.pyverbs, MWBindInfo(wrapper, addr, length, access))
    window.old_rkey = window.rkey
    returned = queue.post(request)
    if returned.value == 0:
        window.rkey = request.rkey
    return returned


def post_local_invalidate(queue: Queue, rkey: int, send_flags: int, wr_id: int) -> Return:
    """ibv_post_send of IBV_WR_LOCAL_INV: 0, or the value of errno."""
    from pyverbs.wr import SendWR

    # The key shares a union with the immediate data (struct ibv_send_wr).
    return queue.post(SendWR(wr_id=wr_id, opcode=_opcode("LOCAL_INV"), imm_data=rkey, send_flags=send_flags))


def post_send_with_invalidate(queue: Queue, rkey: int, wr_id: int) -> Return:
    """ibv_post_send of IBV_WR_SEND_WITH_INV of no bytes: ends a window of the peer's."""
    from pyverbs.wr import SGE, SendWR

    request = SendWR(wr_id=wr_id, opcode=_opcode("SEND_WITH_INV"), imm_data=rkey, num_sge=1, sg=[SGE(0, 0, 0)])
    request.num_sge = 0  # older pyverbs wants an element; the verb does not
    return queue.post(request)


def post_receive(queue: Queue, sge: Sge | None, wr_id: int) -> Return:
    """ibv_post_recv into the element, or of no bytes."""
    from pyverbs.wr import SGE, RecvWR

    local = SGE(sge.addr, sge.length, sge.lkey) if sge else SGE(0, 0, 0)
    request = RecvWR(wr_id=wr_id, num_sge=1, sg=[local])
    request.num_sge = 1 if sge else 0  # older pyverbs wants an element; the verb does not
    return exact(lambda: queue.qp.post_recv(request))


def send(queue: Queue, sge: Sge, wr_id: int) -> Return:
    """ibv_post_send of SEND out of the element."""
    from pyverbs.wr import SGE, SendWR

    return queue.post(SendWR(wr_id=wr_id, opcode=_opcode("SEND"), num_sge=1, sg=[SGE(sge.addr, sge.length, sge.lkey)]))


def atomic(
    queue: Queue, opcode: str, sge: Sge, rkey: int, remote_addr: int, before: int, after: int, wr_id: int
) -> Return:
    """ibv_post_send of an atomic that makes `after` of the 8 bytes `before`, and gives these back."""
    from pyverbs.wr import SGE, SendWR

    request = SendWR(
        wr_id=wr_id, opcode=_opcode(opcode), num_sge=1, sg=[SGE(sge.addr, sge.length, sge.lkey)]
    )
    if opcode == "ATOMIC_CMP_AND_SWP":
        request.set_wr_atomic(rkey, remote_addr, before, after)
    else:
        request.set_wr_atomic(rkey, remote_addr, (after - before) % (1 << 64), 0)
    return queue.post(request)


def rdma(queue: Queue, opcode: str, sge: Sge, rkey: int, remote_addr: int, wr_id: int) -> Return:
    """ibv_post_send of RDMA_WRITE or RDMA_READ between the element and the remote range."""
    from pyverbs.wr import SGE, SendWR

    local = SGE(sge.addr, sge.length, sge.lkey)
    request = SendWR(wr_id=wr_id, opcode=_opcode(opcode), num_sge=1, sg=[local])
    request.set_wr_rdma(rkey, remote_addr)
    return queue.post(request)


def flush(queue: Queue, persistent: bool, rkey: int, remote_addr: int, length: int, wr_id: int) -> Return:
    """ibv_wr_flush of a range, for global visibility or for persistence."""

    def post() -> None:
        queue.qp.wr_start()
        queue.qp.wr_id = wr_id
        queue.qp.wr_flags = SIGNALED
        # enum ibv_placement_type, and the range selectivity of enum ibv_selectivity_level
        queue.qp.wr_flush(rkey, remote_addr, length, 2 if persistent else 1, 0)
        queue.qp.wr_complete()

    return exact(post)


def post_marker(queue: Queue, wr_id: int) -> Return:
    """ibv_post_send of a signalled RDMA WRITE of no bytes, which needs no key and changes nothing."""
    from pyverbs.wr import SGE, SendWR

    request = SendWR(wr_id=wr_id, opcode=_opcode("RDMA_WRITE"), num_sge=1, sg=[SGE(0, 0, 0)])
    request.num_sge = 0  # pyverbs wants an element; the verb does not
    request.set_wr_rdma(0, 0)
    return queue.post(request)


def _opcode(name: str) -> int:
    return _WR_OPCODES[name]


# enum ibv_wr_opcode of <infiniband/verbs.h>.
_WR_OPCODES = {
    "RDMA_WRITE": 0, "RDMA_WRITE_WITH_IMM": 1, "SEND": 2, "SEND_WITH_IMM": 3, "RDMA_READ": 4,
    "ATOMIC_CMP_AND_SWP": 5, "ATOMIC_FETCH_AND_ADD": 6, "LOCAL_INV": 7, "BIND_MW": 8, "SEND_WITH_INV": 9,
}  # fmt: skip
SIGNALED = ENUMS["ibv_send_flags"].value_of("SIGNALED")
