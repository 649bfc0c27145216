"""Implements queue pairs that queue_pairs.py does not have. Some post with the builders and setters of ibv_wr_post(3).
Others, of type RC or XRC (extended reliable connection), have a shared receive queue. The code for XRC ran only on
a library that offers XRC over RC (tests/xrc_over_rc.c)."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, cast

from conformance.bench.calls import Pd, Return, Sge
from conformance.bench.interface import QueueCapacity
from conformance.bench.work_requests import EXTENDED_OPCODES, SendRequest, key32
from conformance.device.device import Device, ProtectionDomain
from conformance.device.libibverbs import clear_errno, exact
from conformance.device.posting import Poster
from conformance.device.qp_states import modify_to, query_state
from conformance.device.queue_pairs import (
    QUEUE_DEPTH,
    DevicePair,
    DeviceQueue,
    DeviceWindow,
    elements_on,
)
from conformance.device.remote_peer import RemoteQueue
from conformance.model.case import QpSpec
from conformance.model.operations import ATOMICS, BOTH_POSTERS, BUILDERS, FLUSHES, WINDOWS_POSTER
from conformance.older_python import zip
from conformance.verbs import ENUMS

_INLINE = ENUMS["ibv_send_flags"].value_of("INLINE")
_OPERATIONS = ENUMS["ibv_qp_create_send_ops_flags"]
# By type: the operations for which queue pairs are created, and further operations for queue pairs on which windows are
# bound. `_operations` adds atomics, and ATOMIC_WRITE and FLUSH for windows. Any other queue pair for ATOMIC_WRITE or FLUSH has
# only this operation. UC has no LOCAL_INV here, because a provider may lack it; a separate row tests it.
_SENDS = ("SEND", "SEND_WITH_IMM")
_WRITES = (*_SENDS, "RDMA_WRITE", "RDMA_WRITE_WITH_IMM")
_ASKED: Mapping[str, Sequence[str]] = {"RC": (*_WRITES, "RDMA_READ"), "UC": _WRITES, "UD": _SENDS}
_ASKED_FOR_WINDOWS: Mapping[str, Sequence[str]] = {
    "RC": ("BIND_MW", "LOCAL_INV", "SEND_WITH_INV"),
    "UC": ("BIND_MW", "SEND_WITH_INV"),
}
# Placements of enum ibv_placement_type, and the level (a range, or the region) of enum ibv_selectivity_level.
_FLUSHED = dict(zip(FLUSHES, ((1, 0), (2, 0), (3, 0), (1, 1), (2, 1)), strict=True))
_BUILDERS: Mapping[str, Callable[[Any, SendRequest], None]] = {
    "RDMA_WRITE": lambda qp, r: qp.wr_rdma_write(r.rkey, r.remote_addr),
    "RDMA_WRITE_WITH_IMM": lambda qp, r: qp.wr_rdma_write_imm(r.rkey, r.remote_addr, r.imm),
    "RDMA_READ": lambda qp, r: qp.wr_rdma_read(r.rkey, r.remote_addr),
    "ATOMIC_CMP_AND_SWP": lambda qp, r: qp.wr_atomic_cmp_swp(
        r.rkey,
        r.remote_addr,
        r.compare_add,
        r.swap,
    ),
    "ATOMIC_FETCH_AND_ADD": lambda qp, r: qp.wr_atomic_fetch_add(
        r.rkey,
        r.remote_addr,
        r.compare_add,
    ),
    "ATOMIC_WRITE": lambda qp, r: qp.wr_atomic_write(
        r.rkey,
        r.remote_addr,
        r.swap.to_bytes(8, sys.byteorder),
    ),
    "SEND": lambda qp, r: qp.wr_send(),
    "SEND_WITH_IMM": lambda qp, r: qp.wr_send_imm(r.imm),
    "SEND_WITH_INV": lambda qp, r: qp.wr_send_inv(key32(r.invalidate_rkey)),
    "LOCAL_INV": lambda qp, r: qp.wr_local_inv(key32(r.invalidate_rkey)),
    **dict.fromkeys(
        FLUSHES,
        lambda qp, r: qp.wr_flush(r.rkey, r.remote_addr, r.length, *_FLUSHED[r.opcode]),
    ),
}
_QP_TYPES = ENUMS["ibv_qp_type"]
_INIT_ATTR_PD, _INIT_ATTR_SEND_OPS = 1 << 0, 1 << 6  # enum ibv_qp_init_attr_mask
_WITHOUT_DATA = (*EXTENDED_OPCODES, "LOCAL_INV", "BIND_MW")


class ExtendedQueue(DeviceQueue):
    """A queue pair that posts with ibv_wr_start, a builder and its setters for each request, and ibv_wr_complete. The
    queue pair is created for the operations that cases post on it (`send_ops_flags` of ibv_create_qp_ex(3)). pyverbs
    calls the builders and setters, which are inline functions of the header."""

    def _create(self) -> Any:
        made_for = _OPERATIONS.mask_of(*self._operations())
        more = {"cap": self._capacity(), "sq_sig_all": int(self.sq_sig_all)}
        return _made(self.device, self.pyverbs_pd, self.spec.kind, made_for, self.cq, **more)

    def _operations(self) -> Sequence[str]:
        kind, use = self.spec.kind, self.spec.extended
        if use not in (*BUILDERS, BOTH_POSTERS):
            return (use,)
        has = self.device.capabilities
        operations = (*_ASKED[kind], *(ATOMICS if kind == "RC" and has["atomics"] else ()))
        if use != WINDOWS_POSTER:
            return operations
        return (
            *operations,
            *_ASKED_FOR_WINDOWS[kind],
            *(("ATOMIC_WRITE",) if kind == "RC" and has["atomic_write"] else ()),
            *(("FLUSH",) if kind == "RC" and has["flush_global"] else ()),
        )

    @property
    def capacity(self) -> QueueCapacity:
        """See interface.BuildingQueue."""
        cap = self._cap()
        return QueueCapacity(cap.max_send_wr, cap.max_send_sge, cap.max_inline_data)

    def post_send(self, request: SendRequest) -> Return:
        built = self.spec.extended in BUILDERS and request.opcode in self._operations()
        if not built and request.opcode not in EXTENDED_OPCODES:
            return super().post_send(request)
        return self.post_batch((request,))

    def post_batch(
        self,
        requests: Sequence[SendRequest],
        built: Callable[[], bool] = lambda: True,
    ) -> Return:
        """Posts several requests in one batch. Returns 0, or the value of ibv_wr_complete. `built` is called after all
        requests are built. If `built` returns False, the batch is aborted with ibv_wr_abort."""
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
            self.qp.wr_bind_mw(
                window.pyverbs,
                request.rkey,
                MWBindInfo(region, info.addr, info.length, info.access),
            )

    def _set_data(self, request: SendRequest) -> None:
        from pyverbs.wr import SGE

        if request.flags & _INLINE:
            self._set_inline(request.sges)
            return
        elements = [SGE(sge.addr % (1 << 64), sge.length, key32(sge.lkey)) for sge in request.sges]
        if len(elements) == 1:
            self.qp.wr_set_sge(elements[0])
        else:
            self.qp.wr_set_sge_list(len(elements), elements)

    def _set_inline(self, elements: Sequence[Sge]) -> None:
        from pyverbs.qp import DataBuffer

        if len(elements) == 1:
            self.qp.wr_set_inline_data(elements[0].addr, elements[0].length)
        else:
            parts = [DataBuffer(element.addr, element.length) for element in elements]
            self.qp.wr_set_inline_data_list(len(parts), parts)


def _made(device: Device, pd: Any, kind: str, operations: int, cq: Any, **more: Any) -> Any:
    from pyverbs.qp import QPEx, QPInitAttrEx

    masks = _INIT_ATTR_PD | _INIT_ATTR_SEND_OPS
    attributes = QPInitAttrEx(
        _QP_TYPES.value_of(kind),
        scq=cq,
        rcq=cq,
        pd=pd,
        comp_mask=masks,
        send_ops_flags=operations,
        **more,
    )
    clear_errno()
    return QPEx(device.context, attributes)


NO_ERRNO = -1  # the value of a refusal without errno


def try_create(device: Device, pd: Any, kind: str, operations: int) -> Return:
    """Calls ibv_create_qp_ex for `operations` of enum ibv_qp_create_send_ops_flags. Returns 0, errno, or NO_ERRNO for a
    refusal without errno. `pd` is an object of pyverbs."""
    from pyverbs.cq import CQ
    from pyverbs.qp import QPCap

    cq = CQ(device.context, 1)
    cap = QPCap(max_send_wr=1, max_recv_wr=1, max_send_sge=1, max_recv_sge=1)
    created: list[Any] = []
    try:
        returned = exact(
            lambda: created.append(_made(device, pd, kind, operations, cq, cap=cap)),
        )
        if not created and not returned.errno:
            return replace(returned, value=NO_ERRNO)
        for queue in created:
            returned = exact(queue.close)
        return returned
    finally:
        cq.close()


class ExtendedPair(DevicePair):
    kind = ExtendedQueue


RC_SRQ = "RC_SRQ"
_SRQ_MAX_WR = 1 << 0  # enum ibv_srq_attr_mask


class SharedReceivesQueue(DeviceQueue):
    """One end of a pair: a queue pair of type RC whose receives are posted to a shared receive queue."""

    def __init__(self, device: Device, pd: Pd, spec: QpSpec, deadline_s: float) -> None:
        """`deadline_s` is the deadline for a completion. Raises PyverbsRDMAError if the device refuses the queue pair
        or the shared receive queue."""
        from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr

        with ExitStack() as stack:
            attributes = SrqAttr(max_wr=QUEUE_DEPTH, max_sge=elements_on(device))
            domain = cast(ProtectionDomain, spec.shared or pd)
            created = SrqInitAttr(attributes)
            self.shared = SRQ(domain.pyverbs, created)
            self._shared_limit = created.max_wr, created.max_sge
            stack.callback(self.shared.close)
            super().__init__(device, pd, replace(spec, kind="RC"), deadline_s)
            stack.callback(super().close)
            self.kind = RC_SRQ
            self.poster = Poster(
                device.pointers.of(self.qp),
                device.pointers.of(self.shared, pd=domain.pointer),
            )
            self._made = stack.pop_all()

    @property
    def receives_limit(self) -> tuple[int, int]:
        """The larger of the capacities that ibv_create_srq and ibv_query_srq have returned, if the device has the latter."""
        from pyverbs.pyverbs_error import PyverbsRDMAError

        count, elements = self._shared_limit
        try:
            attributes = self.shared.query()
        except PyverbsRDMAError:
            return count, elements
        return max(count, attributes.max_wr), max(elements, attributes.max_sge)

    def resize_receives(self, count: int) -> Return:
        """Calls ibv_modify_srq. Returns 0, or the value of errno."""
        from pyverbs.srq import SrqAttr

        returned = exact(lambda: self.shared.modify(SrqAttr(max_wr=count), _SRQ_MAX_WR))
        if not returned.value:
            self._shared_limit = count, self._shared_limit[1]
        return returned

    def close(self) -> None:
        """Destroys the queue pair, and then its shared receive queue."""
        self._made.close()


class SharedReceivesPair(DevicePair):
    kind: type[DeviceQueue] = SharedReceivesQueue
    keeps_receives = True


XRC = "XRC"
_FD, _OFLAGS = 1 << 0, 1 << 1  # enum ibv_xrcd_init_attr_mask
_NO_FILE = -1  # in place of a file descriptor: the XRC domain is not shared with other processes
# enum ibv_srq_init_attr_mask
_SRQ_TYPE, _SRQ_PD, _SRQ_XRCD, _SRQ_CQ = (1 << bit for bit in range(4))
_SRQT_XRC = 1  # enum ibv_srq_type
_INIT_ATTR_XRCD = 1 << 1  # enum ibv_qp_init_attr_mask
_RECEIVER = 10  # IBV_QPT_XRC_RECV


class XrcQueue(DeviceQueue):
    """One end of an XRC connection, with the interface of one queue pair. `number`, `receiver` and `shared` are the
    numbers of the XRC_SEND queue pair, the XRC_RECV queue pair and the shared receive queue.

    The XRC_RECV queue pair and the shared receive queue are in an XRC domain of this end. Requests contain the number
    of the peer's shared receive queue. Regions must be in the PD of the shared receive queue. See ibv_open_xrcd(3),
    ibv_create_srq_ex(3), ibv_create_qp_ex(3) and ibv_post_send(3).
    """

    def __init__(self, device: Device, pd: Pd, spec: QpSpec, deadline_s: float) -> None:
        """`deadline_s` is the deadline for a completion. Raises PyverbsRDMAError if the device refuses one of the
        objects."""
        from pyverbs.qp import QP, QPInitAttrEx
        from pyverbs.xrcd import XRCD, XRCDInitAttr

        with ExitStack() as stack:
            domain = XRCD(device.context, XRCDInitAttr(_FD | _OFLAGS, os.O_CREAT, _NO_FILE))
            stack.callback(domain.close)
            super().__init__(device, pd, replace(spec, kind="XRC_SEND"), deadline_s)
            stack.callback(super().close)
            shared = self._shared_queue(domain)
            stack.callback(shared.close)
            attributes = QPInitAttrEx(qp_type=_RECEIVER, xrcd=domain, comp_mask=_INIT_ATTR_XRCD)
            self._receiver = QP(device.context, attributes)
            stack.callback(self._receiver.close)
            self.kind = XRC
            self.poster = Poster(
                device.pointers.of(self.qp),
                device.pointers.of(shared, pd=pd.pointer),
            )
            self.receiver = int(self._receiver.qp_num)
            self.device.queue_pairs.created(self.receiver)
            self.shared, self._peer_shared = int(shared.get_srq_num()), 0
            self._made = stack.pop_all()

    def _shared_queue(self, domain: Any) -> Any:
        from pyverbs.srq import SRQ, SrqInitAttrEx

        attributes = SrqInitAttrEx(max_wr=QUEUE_DEPTH, max_sge=elements_on(self.device))
        attributes.comp_mask = _SRQ_TYPE | _SRQ_PD | _SRQ_XRCD | _SRQ_CQ
        attributes.srq_type = _SRQT_XRC
        attributes.pd, attributes.xrcd, attributes.cq = self.pyverbs_pd, domain, self.cq
        return SRQ(self.device.context, attributes)

    def connect(self, number: int, receiver: int, shared: int) -> None:
        """Connects both queue pairs of this end to the peer. The arguments are the numbers of the peer's objects."""
        modify_to(self._receiver, "XRC_RECV", self.connection_attributes(number), "RTR")
        modify_to(self.qp, "XRC_SEND", self.connection_attributes(receiver), "RTS")
        self.state, self._peer_shared = "RTS", shared

    def query_state(self) -> str:
        """Returns ERR if either queue pair is in ERR, else the state of the XRC_SEND queue pair."""
        sender, receiver = super().query_state(), query_state(self._receiver)
        if receiver == "ERR":
            return receiver
        return sender

    def post_send(self, request: SendRequest) -> Return:
        """Calls ibv_post_send for the peer's shared receive queue. Returns 0, or the value of errno."""
        self._share_memory()
        return self.poster.send(request, srqn=self._peer_shared)

    def close(self) -> None:
        """Destroys both queue pairs, the shared receive queue and the domain."""
        self._made.close()


class XrcPair(SharedReceivesPair):
    kind = XrcQueue

    def _connect(self) -> None:
        ends = self.requester, self.responder
        for end, peer in (ends, ends[::-1]):
            assert isinstance(end, (XrcQueue, RemoteQueue))
            assert isinstance(peer, (XrcQueue, RemoteQueue))
            end.connect(peer.number, peer.receiver, peer.shared)


# The class of a pair, for types of queue pairs that DevicePair does not support.
PAIRS: Mapping[str, type[DevicePair]] = {XRC: XrcPair, RC_SRQ: SharedReceivesPair}


def pair_type(spec: QpSpec) -> type[DevicePair]:
    if spec.extended:
        return ExtendedPair
    return PAIRS.get(spec.kind, DevicePair)
