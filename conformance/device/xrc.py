"""Extended reliable connections (XRC) in loopback: what is sent names the shared queue that receives it.

Each end is an XRC_SEND queue pair, an XRC_RECV one and a shared receive queue, the latter two of an XRC domain of
their own, as ibv_open_xrcd(3), ibv_create_srq_ex(3), ibv_create_qp_ex(3) and ibv_post_send(3) have it. Regions are to
be in the PD of the shared queue. No device with XRC has been at hand: the first call was seen refused, the rest has run
on none.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from conformance.bench.calls import Pd, Return
from conformance.bench.work_requests import SendRequest
from conformance.device.device import Device
from conformance.device.posting import Poster
from conformance.device.queue_pairs import QUEUE_DEPTH, DevicePair, DeviceQueue, move, state_of
from conformance.model.case import QpSpec

XRC = "XRC"
_FD, _OFLAGS = 1 << 0, 1 << 1  # enum ibv_xrcd_init_attr_mask
_NO_FILE = -1  # the domain is this process's alone
_SRQ_TYPE, _SRQ_PD, _SRQ_XRCD, _SRQ_CQ = (1 << bit for bit in range(4))  # enum ibv_srq_init_attr_mask
_SRQT_XRC = 1  # enum ibv_srq_type
_INIT_ATTR_XRCD = 1 << 1  # enum ibv_qp_init_attr_mask
_RECEIVER = 10  # IBV_QPT_XRC_RECV


class XrcQueue(DeviceQueue):
    """One end, to be used as one queue pair. `number` is that of its sending half."""

    def __init__(self, device: Device, pd: Pd, spec: QpSpec, deadline_s: float) -> None:
        """A completion is awaited for `deadline_s` seconds.

        Raises PyverbsRDMAError when the device refuses any part of it.
        """
        from pyverbs.qp import QP, QPInitAttrEx
        from pyverbs.xrcd import XRCD, XRCDInitAttr

        with ExitStack() as made:
            domain = XRCD(device.context, XRCDInitAttr(_FD | _OFLAGS, os.O_CREAT, _NO_FILE))
            made.callback(domain.close)
            super().__init__(device, pd, replace(spec, kind="XRC_SEND"), deadline_s)
            made.callback(super().close)
            shared = self._shared_queue(domain)
            made.callback(shared.close)
            attributes = QPInitAttrEx(qp_type=_RECEIVER, xrcd=domain, comp_mask=_INIT_ATTR_XRCD)
            self._receiver = QP(device.context, attributes)
            made.callback(self._receiver.close)
            self.kind = XRC
            self.poster = Poster(device.pointers.qp(self.qp), device.pointers.srq(shared, pd.pointer))
            self.shared, self._destined = int(shared.get_srq_num()), 0
            self._made = made.pop_all()

    def _shared_queue(self, domain: Any) -> Any:
        from pyverbs.srq import SRQ, SrqInitAttrEx

        attributes = SrqInitAttrEx(max_wr=QUEUE_DEPTH, max_sge=1)
        attributes.comp_mask = _SRQ_TYPE | _SRQ_PD | _SRQ_XRCD | _SRQ_CQ
        attributes.srq_type = _SRQT_XRC
        attributes.pd, attributes.xrcd, attributes.cq = self.pyverbs_pd, domain, self.cq
        return SRQ(self.device.context, attributes)

    def connect(self, peer: XrcQueue) -> None:
        """Lets this end receive what the peer sends, and send to the peer's shared queue."""
        move(self._receiver, "XRC_RECV", self.connection(peer.number), "RTR")
        move(self.qp, "XRC_SEND", self.connection(int(peer._receiver.qp_num)), "RTS")
        self.state, self._destined = "RTS", peer.shared

    def query_state(self) -> str:
        """ERR where either half is in error, else the state of the sending one."""
        sends, receives = super().query_state(), state_of(self._receiver)
        return receives if receives == "ERR" else sends

    def post_send(self, request: SendRequest) -> Return:
        """ibv_post_send to the peer's shared queue: 0, or the value of errno."""
        return self.poster.send(request, srqn=self._destined)

    def close(self) -> None:
        """Destroys both halves, the shared queue and the domain."""
        self._made.close()


class XrcPair(DevicePair):
    """Two ends, each the other's peer."""

    kind = XrcQueue

    def _connect(self) -> None:
        requester, responder = self.requester, self.responder
        assert isinstance(requester, XrcQueue)
        assert isinstance(responder, XrcQueue)
        requester.connect(responder)
        responder.connect(requester)

    def renew(self) -> None:
        """Makes both anew: a shared queue keeps its receives, whatever becomes of the queue pairs."""
        self.close()
        self._make(*self._made_of)
