"""Queue pairs whose requests are posted by the builders and setters of ibv_wr_post(3), not by ibv_post_send.

Such a queue pair is created for the operations that will be posted on it (ibv_create_qp_ex(3), `send_ops_flags`).
Builders and setters are inline functions of the header, which pyverbs calls. queue_pairs.py has the other queue pairs.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from conformance.bench.calls import Return
from conformance.bench.work_requests import EXTENDED_OPCODES, SendRequest
from conformance.device.device import Device
from conformance.device.libibverbs import exact
from conformance.device.queue_pairs import DevicePair, DeviceQueue, DeviceWindow
from conformance.model.vocabulary import BOTH_POSTERS, BUILDERS, FLUSHES, WINDOWS_POSTER
from conformance.verbs import ENUMS

_INLINE = ENUMS["ibv_send_flags"].value_of("INLINE")
_OPERATIONS = ENUMS["ibv_qp_create_send_ops_flags"]
# For each type of queue pair, the operations of the manual page for which a queue pair is created. A queue pair on
# which windows are bound is created for more operations. FLUSH (and ATOMIC_WRITE for other types) is requested only by
# cases that use it. A separate row tests LOCAL_INV on UC.
_SENDS = ("SEND", "SEND_WITH_IMM")
_WRITES = (*_SENDS, "RDMA_WRITE", "RDMA_WRITE_WITH_IMM")
_ASKED: Mapping[str, Sequence[str]] = {"RC": (*_WRITES, "RDMA_READ"), "UC": _WRITES, "UD": _SENDS}
_ASKED_FOR_WINDOWS: Mapping[str, Sequence[str]] = {
    "RC": ("BIND_MW", "LOCAL_INV", "SEND_WITH_INV"),
    "UC": ("BIND_MW", "SEND_WITH_INV"),
}
_ATOMICS = ("ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD")
# Placements of enum ibv_placement_type, and the level (a range, or the region) of enum ibv_selectivity_level.
_FLUSHED = dict(zip(FLUSHES, ((1, 0), (2, 0), (3, 0), (1, 1), (2, 1)), strict=True))
_BUILDERS: Mapping[str, Callable[[Any, SendRequest], None]] = {
    "RDMA_WRITE": lambda qp, r: qp.wr_rdma_write(r.rkey, r.remote_addr),
    "RDMA_WRITE_WITH_IMM": lambda qp, r: qp.wr_rdma_write_imm(r.rkey, r.remote_addr, r.imm),
    "RDMA_READ": lambda qp, r: qp.wr_rdma_read(r.rkey, r.remote_addr),
    "ATOMIC_CMP_AND_SWP": lambda qp, r: qp.wr_atomic_cmp_swp(r.rkey, r.remote_addr, r.compare_add, r.swap),
    "ATOMIC_FETCH_AND_ADD": lambda qp, r: qp.wr_atomic_fetch_add(r.rkey, r.remote_addr, r.compare_add),
    "ATOMIC_WRITE": lambda qp, r: qp.wr_atomic_write(r.rkey, r.remote_addr, r.swap.to_bytes(8, sys.byteorder)),
    "SEND": lambda qp, r: qp.wr_send(),
    "SEND_WITH_IMM": lambda qp, r: qp.wr_send_imm(r.imm),
    "SEND_WITH_INV": lambda qp, r: qp.wr_send_inv(r.invalidate_rkey % (1 << 32)),
    "LOCAL_INV": lambda qp, r: qp.wr_local_inv(r.invalidate_rkey % (1 << 32)),
    **dict.fromkeys(FLUSHES, lambda qp, r: qp.wr_flush(r.rkey, r.remote_addr, r.length, *_FLUSHED[r.opcode])),
}
_QP_TYPES = ENUMS["ibv_qp_type"]
_CAPACITY = 1 << 19  # IBV_QP_CAP of enum ibv_qp_attr_mask
_INIT_ATTR_PD, _INIT_ATTR_SEND_OPS = 1 << 0, 1 << 6  # enum ibv_qp_init_attr_mask
_WITHOUT_DATA = (*EXTENDED_OPCODES, "LOCAL_INV", "BIND_MW")


class ExtendedQueue(DeviceQueue):
    """A queue pair that posts by ibv_wr_start, a builder and its setters for each request, and ibv_wr_complete."""

    def _create(self) -> Any:
        made_for = _OPERATIONS.mask_of(*self._operations())
        more = {"cap": self._capacity(), "sq_sig_all": int(self.sq_sig_all)}
        return _made(self.device, self.pyverbs_pd, self.spec.kind, made_for, self.cq, **more)

    def _operations(self) -> Sequence[str]:
        kind, use = self.spec.kind, self.spec.extended
        if use not in (*BUILDERS, BOTH_POSTERS):
            return (use,)
        has = self.device.capabilities
        asked = (*_ASKED[kind], *(_ATOMICS if kind == "RC" and has["atomics"] else ()))
        if use != WINDOWS_POSTER:
            return asked
        return (*asked, *_ASKED_FOR_WINDOWS[kind], *(("ATOMIC_WRITE",) if kind == "RC" and has["atomic_write"] else ()))

    @property
    def capacity(self) -> tuple[int, int, int]:
        """The number of requests that fit into the send queue, and the maximum number of SGEs and of bytes of inline
        data of each request."""
        _, attributes = self.qp.query(_CAPACITY)
        cap = attributes.cap
        return cap.max_send_wr, cap.max_send_sge, cap.max_inline_data

    def post_send(self, request: SendRequest) -> Return:
        built = self.spec.extended in BUILDERS and request.opcode in self._operations()
        if not built and request.opcode not in EXTENDED_OPCODES:
            return super().post_send(request)
        return self.post_batch((request,))

    def post_batch(self, requests: Sequence[SendRequest], built: Callable[[], bool] = lambda: True) -> Return:
        """Posts several requests in one batch; returns 0, or the value of ibv_wr_complete. `built` is called when all
        requests are built: if it returns False, the batch is aborted with ibv_wr_abort."""
        self._share_memory()
        self.qp.wr_start()
        try:
            for request in requests:
                self._build(request)
            complete = built()
        except BaseException:
            self.qp.wr_abort()
            raise
        if complete:
            return exact(self.qp.wr_complete)
        self.qp.wr_abort()
        return Return(0, 0)

    def _build(self, request: SendRequest) -> None:
        qp = self.qp
        qp.wr_id, qp.wr_flags = request.wr_id, request.flags & ~_INLINE
        if request.opcode == "BIND_MW":
            self._build_bind(request)
        else:
            _BUILDERS[request.opcode](qp, request)
        if request.opcode not in _WITHOUT_DATA:
            self._set_data(request)
        if self._destination:
            _, number, qkey = self._destination
            qp.wr_set_ud_addr(self._address_handle, number, qkey)

    def _build_bind(self, request: SendRequest) -> None:
        from pyverbs.mr import MWBindInfo

        info, window = request.bind, cast(DeviceWindow, request.window)
        assert info is not None
        with self.device.pointers.mr(info.mr.pointer if info.mr else 0, self.pyverbs_pd) as region:
            self.qp.wr_bind_mw(window.pyverbs, request.rkey, MWBindInfo(region, info.addr, info.length, info.access))

    def _set_data(self, request: SendRequest) -> None:
        from pyverbs.wr import SGE

        if request.flags & _INLINE:
            (element,) = request.sges
            self.qp.wr_set_inline_data(element.addr, element.length)
            return
        made = [SGE(each.addr % (1 << 64), each.length, each.lkey % (1 << 32)) for each in request.sges]
        if len(made) == 1:
            self.qp.wr_set_sge(made[0])
        else:
            self.qp.wr_set_sge_list(len(made), made)


def _made(device: Device, pd: Any, kind: str, operations: int, cq: Any, **more: Any) -> Any:
    from pyverbs.qp import QPEx, QPInitAttrEx

    masks = _INIT_ATTR_PD | _INIT_ATTR_SEND_OPS
    attributes = QPInitAttrEx(
        _QP_TYPES.value_of(kind), scq=cq, rcq=cq, pd=pd, comp_mask=masks, send_ops_flags=operations, **more
    )
    return QPEx(device.context, attributes)


def try_create(device: Device, pd: Any, kind: str, operations: int) -> Return:
    """Calls ibv_create_qp_ex for `operations` of enum ibv_qp_create_send_ops_flags; returns 0, or errno. `pd` is an
    object of pyverbs."""
    from pyverbs.cq import CQ
    from pyverbs.qp import QPCap

    cq = CQ(device.context, 1)
    cap = QPCap(max_send_wr=1, max_recv_wr=1, max_send_sge=1, max_recv_sge=1)
    try:
        return exact(lambda: _made(device, pd, kind, operations, cq, cap=cap).close())
    finally:
        cq.close()


class ExtendedPair(DevicePair):
    kind = ExtendedQueue
