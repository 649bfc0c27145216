"""Queue pairs in loopback on the device under test, and work requests on them.

A pair is a requester and a responder, connected to each other. pyverbs makes the queue pairs, moves them
through their states and posts what it can express exactly; the rest goes through posting.py. Not for
judging what came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntFlag
from typing import Any, cast

from conformance.bench.calls import Pd, Return, Sge, Window
from conformance.bench.work_requests import EXTENDED_OPCODES, BindInfo, Completion, SendRequest
from conformance.device.device import Device, ProtectionDomain
from conformance.device.libibverbs import exact
from conformance.device.posting import Poster
from conformance.device.windows import DeviceWindow
from conformance.model.case import QpSpec
from conformance.verbs import ENUMS

QUEUE_DEPTH, _CQ_DEPTH = 16, 64
# Attributes of the connection: local ACK timeout 4.096 us * 2^14 = 67 ms, seven retries.
_TIMEOUT, _RETRIES, _RNR_RETRIES, _MIN_RNR_TIMER = 14, 7, 7, 12
# The queue key of datagrams: the receiving queue pair holds it and the sender names it. Any value does whose highest
# bit is clear; the others are reserved for privileged users.
DATAGRAM_QKEY = 0x11111111
_ACCESS = ENUMS["ibv_access_flags"]
_REMOTE, _ATOMIC = _ACCESS.mask_of("REMOTE_WRITE", "REMOTE_READ"), _ACCESS.value_of("REMOTE_ATOMIC")
_FLUSHES = _ACCESS.mask_of("FLUSH_GLOBAL", "FLUSH_PERSISTENT")
_STATES = ENUMS["ibv_qp_state"]
_QP_TYPES = ENUMS["ibv_qp_type"]


class _Attr(IntFlag):
    """enum ibv_qp_attr_mask of <infiniband/verbs.h>, as far as it is used here."""

    STATE = 1 << 0
    ACCESS_FLAGS = 1 << 3
    PKEY_INDEX = 1 << 4
    PORT = 1 << 5
    QKEY = 1 << 6
    AV = 1 << 7
    PATH_MTU = 1 << 8
    TIMEOUT = 1 << 9
    RETRY_CNT = 1 << 10
    RNR_RETRY = 1 << 11
    RQ_PSN = 1 << 12
    MAX_QP_RD_ATOMIC = 1 << 13
    MIN_RNR_TIMER = 1 << 15
    SQ_PSN = 1 << 16
    MAX_DEST_RD_ATOMIC = 1 << 17
    DEST_QPN = 1 << 20


# Which attributes each type of queue pair is moved with (ibv_modify_qp(3)).
_INIT = _Attr.STATE | _Attr.PKEY_INDEX | _Attr.PORT
_RTR = _Attr.STATE | _Attr.AV | _Attr.PATH_MTU | _Attr.DEST_QPN | _Attr.RQ_PSN
_RTR_OF_RESPONDER = _RTR | _Attr.MAX_DEST_RD_ATOMIC | _Attr.MIN_RNR_TIMER
_RTS = _Attr.STATE | _Attr.SQ_PSN
_RTS_OF_REQUESTER = _RTS | _Attr.TIMEOUT | _Attr.RETRY_CNT | _Attr.RNR_RETRY | _Attr.MAX_QP_RD_ATOMIC
_MOVES: Mapping[str, Mapping[str, _Attr]] = {
    "RC": {"INIT": _INIT | _Attr.ACCESS_FLAGS, "RTR": _RTR_OF_RESPONDER, "RTS": _RTS_OF_REQUESTER},
    "XRC_SEND": {"INIT": _INIT | _Attr.ACCESS_FLAGS, "RTR": _RTR, "RTS": _RTS_OF_REQUESTER},
    "XRC_RECV": {"INIT": _INIT | _Attr.ACCESS_FLAGS, "RTR": _RTR_OF_RESPONDER},
    "UC": {"INIT": _INIT | _Attr.ACCESS_FLAGS, "RTR": _RTR, "RTS": _RTS},
    "UD": {"INIT": _INIT | _Attr.QKEY, "RTR": _Attr.STATE, "RTS": _RTS},
}
# enum ibv_qp_create_send_ops_flags: IBV_QP_EX_WITH_FLUSH, IBV_QP_EX_WITH_ATOMIC_WRITE
_SEND_OPS = {"FLUSH": 1 << 11, "ATOMIC_WRITE": 1 << 12}
# Types without a receive queue: a provider that is asked for one may lay the queues out as if there were.
_SENDERS = ("XRC_SEND",)
_INIT_ATTR_PD, _INIT_ATTR_SEND_OPS = 1 << 0, 1 << 6  # enum ibv_qp_init_attr_mask
# enum ibv_placement_type, and the range selectivity of enum ibv_selectivity_level
_PLACEMENT = {"FLUSH_GLOBAL": 1, "FLUSH_PERSISTENT": 2}
_RANGE = 0


class DeviceQueue:
    """One queue pair with a completion queue of its own."""

    def __init__(self, device: Device, pd: Pd, spec: QpSpec, deadline_s: float) -> None:
        """A completion is awaited for `deadline_s` seconds. Raises PyverbsRDMAError when the device refuses it."""
        from pyverbs.cq import CQ

        self.device, self.pd, self.spec, self.deadline_s = device, pd, spec, deadline_s
        self.kind, self.sq_sig_all = spec.kind, spec.sq_sig_all
        self.cq = CQ(device.context, _CQ_DEPTH)
        try:
            self.qp = self._make_extended() if spec.extended else self._make()
        except BaseException:
            self.cq.close()
            raise
        self.number = int(self.qp.qp_num)
        self.poster = Poster(device.pointers.qp(self.qp))
        self._attributes: Any = None
        self._address_handle: Any = None
        self._destination: tuple[int, int, int] | None = None
        self.state = "RESET"

    def _make(self) -> Any:
        from pyverbs.qp import QP, QPInitAttr

        attributes = QPInitAttr(
            qp_type=_QP_TYPES.value_of(self.kind), scq=self.cq, rcq=self.cq, cap=_capacity(self.kind),
            sq_sig_all=int(self.sq_sig_all),
        )  # fmt: skip
        return QP(self.pyverbs_pd, attributes)

    @property
    def pyverbs_pd(self) -> Any:
        """Its protection domain as pyverbs has it."""
        return cast(ProtectionDomain, self.pd).pyverbs

    def _make_extended(self) -> Any:
        from pyverbs.qp import QPEx, QPInitAttrEx

        attributes = QPInitAttrEx(
            qp_type=_QP_TYPES.value_of(self.kind), scq=self.cq, rcq=self.cq, cap=_capacity(self.kind),
            pd=self.pyverbs_pd, comp_mask=_INIT_ATTR_PD | _INIT_ATTR_SEND_OPS,
            send_ops_flags=_SEND_OPS[self.spec.extended],
        )  # fmt: skip
        return QPEx(self.device.context, attributes)

    def move_to(self, state: str, peer: int) -> None:
        """Takes the queue pair from RESET to INIT, RTR or RTS, connected to the number `peer`."""
        if state == "RESET":
            return
        if self._attributes is None:
            self._attributes = self.connection(peer)
            self._address(peer)
        move(self.qp, self.kind, self._attributes, state)
        self.state = state

    def reset(self) -> None:
        """Back to RESET, with nothing posted and nothing to poll any more."""
        if self.state == "RESET":
            return
        self._attributes.qp_state = _STATES.value_of("RESET")
        self.qp.modify(self._attributes, _Attr.STATE)
        self.state = "RESET"
        while self.poster.completions(1, 0.0):
            pass

    def connection(self, peer: int) -> Any:
        """The attributes of a connection to the queue pair of that number, as pyverbs' QPAttr."""
        from pyverbs.qp import QPAttr

        device = self.device
        attributes = QPAttr(port_num=device.port)
        attributes.qp_access_flags = self._rights()
        attributes.path_mtu = device.active_mtu
        attributes.dest_qp_num = peer
        attributes.max_dest_rd_atomic = attributes.max_rd_atomic = 1
        attributes.timeout, attributes.retry_cnt, attributes.rnr_retry = _TIMEOUT, _RETRIES, _RNR_RETRIES
        attributes.min_rnr_timer = _MIN_RNR_TIMER
        attributes.qkey = DATAGRAM_QKEY
        attributes.ah_attr = self._path()
        return attributes

    def _path(self) -> Any:
        """The way to this device itself, as struct ibv_ah_attr."""
        from pyverbs.addr import AHAttr, GlobalRoute

        route = GlobalRoute(dgid=self.device.gid, sgid_index=self.device.source_gid_index)
        return AHAttr(gr=route, is_global=1, port_num=self.device.port, dlid=self.device.lid)

    def _address(self, peer: int) -> None:
        """Where datagrams go; the connected types know their peer."""
        from pyverbs.addr import AH

        if self.kind == "UD":
            self._address_handle = AH(self.pyverbs_pd, attr=self._path())
            pointer = self.device.pointers.ah(self._address_handle, self.pd.pointer)
            self._destination = (pointer, peer, DATAGRAM_QKEY)

    def _rights(self) -> int:
        if self.kind == "UD":
            return 0
        has = _REMOTE | (_ATOMIC if self.device.capabilities["atomics"] else 0)
        has |= _FLUSHES if self.spec.extended == "FLUSH" else 0
        return has if self.spec.access is None else self.spec.access & has

    @property
    def attributes(self) -> Any:
        """Those that it was moved with, as pyverbs' QPAttr."""
        return self._attributes

    def query_state(self) -> str:
        """The state that ibv_query_qp tells, such as ERR after a refusal."""
        return _STATES.name_of(self.poster.state())

    def post_send(self, request: SendRequest) -> Return:
        """ibv_post_send, or the ibv_wr_* call for what only these can post: 0, or the value of errno."""
        if request.opcode in EXTENDED_OPCODES:
            return exact(lambda: self._post_extended(request))
        return self.poster.send(request, self._destination)

    def _post_extended(self, request: SendRequest) -> None:
        self.qp.wr_start()
        self.qp.wr_id, self.qp.wr_flags = request.wr_id, request.flags
        if request.opcode == "ATOMIC_WRITE":
            self.qp.wr_atomic_write(request.rkey, request.remote_addr, request.swap.to_bytes(8, "little"))
        else:
            placement = _PLACEMENT[request.opcode]
            self.qp.wr_flush(request.rkey, request.remote_addr, request.length, placement, _RANGE)
        self.qp.wr_complete()

    def post_receive(self, sges: Sequence[Sge], wr_id: int) -> Return:
        """ibv_post_recv into the elements: 0, or the value of errno."""
        return self.poster.receive(sges, wr_id)

    def bind_mw(self, window: Window, info: BindInfo, flags: int, wr_id: int) -> Return:
        """ibv_bind_mw, the header's own checks included: 0 once posted, or the value of errno."""
        from pyverbs.mr import MWBind, MWBindInfo

        with self.device.pointers.mr(info.mr.pointer if info.mr else 0) as wrapper:
            request = MWBind(MWBindInfo(wrapper, info.addr, info.length, info.access), flags, wr_id)
        return exact(lambda: self.qp.bind_mw(cast(DeviceWindow, window).pyverbs, request))

    def completions(self, count: int = 1, deadline_s: float | None = None) -> list[Completion]:
        """The next `count` completions, fewer when the deadline passes: the queue's own unless one is given."""
        return self.poster.completions(count, self.deadline_s if deadline_s is None else deadline_s)

    def close(self) -> None:
        """Destroys the queue pair and its completion queue."""
        self.qp.close()
        if self._address_handle is not None:
            self._address_handle.close()
        self.cq.close()


class DevicePair:
    """Two queue pairs of one kind, each the other's peer."""

    kind: type[DeviceQueue] = DeviceQueue

    def __init__(self, device: Device, spec: QpSpec, requester_pd: Pd, responder_pd: Pd, deadline_s: float) -> None:
        """`responder_pd` is the PD that owns what is accessed remotely; `spec` is the responder's.

        A completion is awaited for `deadline_s` seconds.
        """
        self._made_of = device, spec, requester_pd, responder_pd, deadline_s
        self._make(*self._made_of)

    def _make(self, device: Device, spec: QpSpec, requester_pd: Pd, responder_pd: Pd, deadline_s: float) -> None:
        self._state = spec.state
        self.responder = self.kind(device, responder_pd, spec, deadline_s)
        # The peer of XRC_SEND would be an XRC_RECV of a domain of its own; to post binds it needs none.
        self.requester = self.responder
        try:
            if spec.kind != "XRC_SEND":
                self.requester = self.kind(device, requester_pd, spec.peer, deadline_s)
            self._connect()
        except BaseException:
            self.close()
            raise

    def _connect(self) -> None:
        if self.requester is not self.responder:
            # A responder in a lower state than RTS has nobody to talk to.
            self.requester.move_to("RTS" if self._state == "RTS" else "INIT", self.responder.number)
        self.responder.move_to(self._state, self.requester.number)

    def renew(self) -> None:
        """As after creation, whatever state a refusal has left: both through RESET, or made again."""
        from pyverbs.pyverbs_error import PyverbsRDMAError

        try:
            for queue in {self.responder, self.requester}:
                queue.reset()
            self._connect()
        except PyverbsRDMAError:  # whether a device can be taken back from RESET is none of the rules
            self.close()
            self._make(*self._made_of)

    def close(self) -> None:
        """Destroys both."""
        for queue in {self.responder, self.requester}:
            queue.close()


def move(qp: Any, kind: str, attributes: Any, state: str) -> None:
    """Takes a new queue pair of pyverbs through the states up to `state`. Raises PyverbsRDMAError."""
    for step, mask in _MOVES[kind].items():
        attributes.qp_state = _STATES.value_of(step)
        qp.modify(attributes, mask)
        if step == state:
            break


def moves(kind: str) -> list[tuple[int, int]]:
    """How a queue pair of the kind gets from RESET to its last state: state and mask of each ibv_modify_qp."""
    return [(_STATES.value_of(state), int(mask)) for state, mask in _MOVES[kind].items()]


def state_of(qp: Any) -> str:
    """The state of a queue pair of pyverbs, as ibv_query_qp tells it."""
    attributes, _ = qp.query(_Attr.STATE)
    return _STATES.name_of(int(attributes.qp_state))


def _capacity(kind: str) -> Any:
    from pyverbs.qp import QPCap

    depth, elements = (0, 0) if kind in _SENDERS else (QUEUE_DEPTH, 1)
    return QPCap(max_send_wr=QUEUE_DEPTH, max_recv_wr=depth, max_send_sge=1, max_recv_sge=elements)
