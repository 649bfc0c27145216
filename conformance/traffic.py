"""Queue pairs in loopback on the device under test, work requests on them, and their completions.

A pair is a requester and a responder, connected to each other. Waiting means polling the completion
queue up to a deadline; nothing sleeps. Not for judging what came.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from conformance.calls import Pd, Return
from conformance.device import Device
from conformance.libibverbs import exact
from conformance.verbs import ENUMS

# Loopback answers in microseconds; software emulation on a busy machine takes far longer.
DEADLINE_S = 20.0
_SEND_DEPTH, _CQ_DEPTH = 16, 32
# Attributes of the connection: local ACK timeout 4.096 us * 2^14 = 67 ms, seven retries.
_TIMEOUT, _RETRIES, _RNR_RETRIES, _MIN_RNR_TIMER = 14, 7, 7, 12
_ACCESS = ENUMS["ibv_access_flags"]
_REMOTE_ALL = _ACCESS.mask_of("REMOTE_WRITE", "REMOTE_READ", "REMOTE_ATOMIC")
_FLUSHES = _ACCESS.mask_of("FLUSH_GLOBAL", "FLUSH_PERSISTENT")
_WITH_FLUSH = 1 << 11  # IBV_QP_EX_WITH_FLUSH of enum ibv_qp_create_send_ops_flags
_INIT_ATTR_PD, _INIT_ATTR_SEND_OPS = 1 << 0, 1 << 6  # enum ibv_qp_init_attr_mask


@dataclass(frozen=True)
class Completion:
    """One work completion: who posted it, and its status without the enumeration's prefix."""

    wr_id: int
    status: str


class Queue:
    """One queue pair with a completion queue of its own."""

    def __init__(
        self, device: Device, pd: Pd, kind: str, sq_sig_all: bool = False, flush: bool = False
    ) -> None:
        """`flush` makes one that can send and take FLUSH. Raises PyverbsRDMAError when the device refuses it."""
        from pyverbs.cq import CQ

        self.flush = flush
        self.device = device
        self.pd = pd
        self.kind = kind
        self.sq_sig_all = sq_sig_all
        self.state = "RESET"
        self.cq = CQ(device.context, _CQ_DEPTH)
        try:
            self.qp = self._make_flushing() if flush else self._make()
        except BaseException:
            self.cq.close()
            raise

    def _make(self) -> Any:
        from pyverbs.qp import QP, QPInitAttr

        number = ENUMS["ibv_qp_type"].value_of(self.kind)
        attributes = QPInitAttr(
            qp_type=number, scq=self.cq, rcq=self.cq, cap=_capacity(), sq_sig_all=int(self.sq_sig_all)
        )
        return QP(self.pd.pyverbs, attributes)

    def _make_flushing(self) -> Any:
        from pyverbs.qp import QPEx, QPInitAttrEx

        attributes = QPInitAttrEx(
            qp_type=ENUMS["ibv_qp_type"].value_of(self.kind), scq=self.cq, rcq=self.cq, cap=_capacity(),
            pd=self.pd.pyverbs, comp_mask=_INIT_ATTR_PD | _INIT_ATTR_SEND_OPS, send_ops_flags=_WITH_FLUSH,
        )  # fmt: skip
        return QPEx(self.device.context, attributes)

    def move_to(self, state: str, peer: int) -> None:
        """Takes the queue pair from RESET to INIT, RTR or RTS, connected to the number `peer`."""
        if state == "RESET":
            return
        attributes = self._attributes(peer)
        {"INIT": self.qp.to_init, "RTR": self.qp.to_rtr, "RTS": self.qp.to_rts}[state](attributes)
        self.state = state

    def _attributes(self, peer: int) -> Any:
        from pyverbs.addr import AHAttr, GlobalRoute
        from pyverbs.qp import QPAttr

        device = self.device
        attributes = QPAttr(port_num=device.port)
        rights = _REMOTE_ALL | (_FLUSHES if self.flush else 0)
        attributes.qp_access_flags = rights if self.kind != "UD" else 0
        attributes.path_mtu = device.active_mtu
        attributes.dest_qp_num = peer
        attributes.max_dest_rd_atomic = attributes.max_rd_atomic = 1
        attributes.timeout, attributes.retry_cnt, attributes.rnr_retry = _TIMEOUT, _RETRIES, _RNR_RETRIES
        attributes.min_rnr_timer = _MIN_RNR_TIMER
        attributes.qkey = 0x11111111
        index = device.source_gid_index
        route = GlobalRoute(dgid=device.context.query_gid(device.port, index), sgid_index=index)
        attributes.ah_attr = AHAttr(gr=route, is_global=1, port_num=device.port, dlid=device.lid)
        return attributes

    def post(self, request: Any) -> Return:
        """ibv_post_send: 0, or the value of errno."""
        return exact(lambda: self.qp.post_send(request))

    def completions(self, count: int = 1, deadline_s: float = DEADLINE_S) -> list[Completion]:
        """The next `count` completions, fewer when the deadline passes."""
        until = time.monotonic() + deadline_s
        found: list[Completion] = []
        while len(found) < count and time.monotonic() < until:
            number, completions = self.cq.poll(count - len(found))
            if not number:
                os.sched_yield()
            found += [Completion(each.wr_id, wc_status(each.status)) for each in completions]
        return found

    def close(self) -> None:
        """Destroys the queue pair and its completion queue."""
        self.qp.close()
        self.cq.close()


class Pair:
    """Two queue pairs of one kind, each the other's peer."""

    def __init__(
        self, device: Device, kind: str, requester_pd: Pd, responder_pd: Pd,
        state: str = "RTS", sq_sig_all: bool = False, flush: bool = False,
    ) -> None:
        """`responder_pd` is the PD that owns what is accessed remotely."""
        self.responder = Queue(device, responder_pd, kind, sq_sig_all, flush)
        if kind == "XRC_SEND":
            # Its peer would be an XRC_RECV of a domain of its own; to post binds it needs none.
            self.requester = self.responder
            self.responder.move_to(state, self.responder.qp.qp_num)
            return
        try:
            self.requester = Queue(device, requester_pd, kind, flush=flush)
            self._connect(state)
        except BaseException:
            self.close()
            raise

    def _connect(self, state: str) -> None:
        # A responder in a lower state than RTS has nobody to talk to.
        self.requester.move_to("RTS" if state == "RTS" else "INIT", self.responder.qp.qp_num)
        self.responder.move_to(state, self.requester.qp.qp_num)

    def close(self) -> None:
        """Destroys both."""
        for queue in {self.responder, getattr(self, "requester", self.responder)}:
            queue.close()


def _capacity() -> Any:
    from pyverbs.qp import QPCap

    return QPCap(max_send_wr=_SEND_DEPTH, max_recv_wr=_SEND_DEPTH, max_send_sge=1, max_recv_sge=1)


def wc_status(status: int) -> str:
    """`REM_ACCESS_ERR` for 10: the name of enum ibv_wc_status without its prefix."""
    return _WC_STATUS[status] if 0 <= status < len(_WC_STATUS) else f"status {status}"


# enum ibv_wc_status of <infiniband/verbs.h>, from 0 upwards.
_WC_STATUS: Sequence[str] = (
    "SUCCESS", "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_EEC_OP_ERR", "LOC_PROT_ERR", "WR_FLUSH_ERR", "MW_BIND_ERR",
    "BAD_RESP_ERR", "LOC_ACCESS_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR", "REM_OP_ERR", "RETRY_EXC_ERR",
    "RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR", "REM_INV_RD_REQ_ERR", "REM_ABORT_ERR", "INV_EECN_ERR",
    "INV_EEC_STATE_ERR", "FATAL_ERR", "RESP_TIMEOUT_ERR", "GENERAL_ERR", "TM_ERR", "TM_RNDV_INCOMPLETE",
)  # fmt: skip
