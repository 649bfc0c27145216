"""Queue pairs in loopback whose receives are in a shared receive queue: of type RC, and of extended reliable
connections (XRC). The requests of XRC name the shared receive queue of the peer.

For RC see ibv_create_srq(3) and ibv_post_srq_recv(3). Each end of XRC consists of an XRC_SEND queue pair, an XRC_RECV
queue pair and a shared receive queue; the XRC_RECV queue pair and the shared receive queue are in an XRC domain of this
end. See ibv_open_xrcd(3), ibv_create_srq_ex(3), ibv_create_qp_ex(3) and ibv_post_send(3). Regions must be in the PD of
the shared receive queue. XRC was never tried on a device that offers XRC: every device so far has refused the first
call.
"""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, cast

from conformance.bench.calls import Pd, Return
from conformance.bench.work_requests import SendRequest
from conformance.device.device import Device, ProtectionDomain
from conformance.device.extended_posting import ExtendedPair
from conformance.device.posting import Poster
from conformance.device.qp_states import modify_to, query_state
from conformance.device.queue_pairs import QUEUE_DEPTH, DevicePair, DeviceQueue, elements_on
from conformance.device.remote_peer import RemoteQueue
from conformance.model.case import QpSpec

RC_SRQ = "RC_SRQ"


class SharedReceivesQueue(DeviceQueue):
    """One end: a queue pair of type RC with a shared receive queue, to which its receives are posted."""

    def __init__(self, device: Device, pd: Pd, spec: QpSpec, deadline_s: float) -> None:
        """Waits at most `deadline_s` seconds for a completion. Raises PyverbsRDMAError if the device refuses the queue
        pair or the shared receive queue."""
        from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr

        with ExitStack() as made:
            attributes = SrqAttr(max_wr=QUEUE_DEPTH, max_sge=elements_on(device))
            domain = cast(ProtectionDomain, spec.shared or pd)
            self.shared = SRQ(domain.pyverbs, SrqInitAttr(attributes))
            made.callback(self.shared.close)
            super().__init__(device, pd, replace(spec, kind="RC"), deadline_s)
            made.callback(super().close)
            self.kind = RC_SRQ
            self.poster = Poster(device.pointers.qp(self.qp), device.pointers.srq(self.shared, domain.pointer))
            self._made = made.pop_all()

    def close(self) -> None:
        """Destroys the queue pair, and then its shared receive queue."""
        self._made.close()


class SharedReceivesPair(DevicePair):
    kind: type[DeviceQueue] = SharedReceivesQueue
    keeps_receives = True


XRC = "XRC"
_FD, _OFLAGS = 1 << 0, 1 << 1  # enum ibv_xrcd_init_attr_mask
_NO_FILE = -1  # in place of a file descriptor: the XRC domain is not shared with other processes
_SRQ_TYPE, _SRQ_PD, _SRQ_XRCD, _SRQ_CQ = (1 << bit for bit in range(4))  # enum ibv_srq_init_attr_mask
_SRQT_XRC = 1  # enum ibv_srq_type
_INIT_ATTR_XRCD = 1 << 1  # enum ibv_qp_init_attr_mask
_RECEIVER = 10  # IBV_QPT_XRC_RECV


class XrcQueue(DeviceQueue):
    """One end of an XRC connection, with the interface of one queue pair. `number`, `receiver` and `shared` are the
    numbers of the XRC_SEND queue pair, the XRC_RECV queue pair and the shared receive queue."""

    def __init__(self, device: Device, pd: Pd, spec: QpSpec, deadline_s: float) -> None:
        """Waits at most `deadline_s` seconds for a completion. Raises PyverbsRDMAError if the device refuses one of the
        objects."""
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
            self.receiver = int(self._receiver.qp_num)
            self.shared, self._peer_shared = int(shared.get_srq_num()), 0
            self._made = made.pop_all()

    def _shared_queue(self, domain: Any) -> Any:
        from pyverbs.srq import SRQ, SrqInitAttrEx

        attributes = SrqInitAttrEx(max_wr=QUEUE_DEPTH, max_sge=1)
        attributes.comp_mask = _SRQ_TYPE | _SRQ_PD | _SRQ_XRCD | _SRQ_CQ
        attributes.srq_type = _SRQT_XRC
        attributes.pd, attributes.xrcd, attributes.cq = self.pyverbs_pd, domain, self.cq
        return SRQ(self.device.context, attributes)

    def connect(self, number: int, receiver: int, shared: int) -> None:
        """Connects both queue pairs of this end to the peer's queue pairs, by the numbers of the peer's objects."""
        modify_to(self._receiver, "XRC_RECV", self.connection_attributes(number), "RTR")
        modify_to(self.qp, "XRC_SEND", self.connection_attributes(receiver), "RTS")
        self.state, self._peer_shared = "RTS", shared

    def query_state(self) -> str:
        """Returns ERR if one of the two queue pairs is in ERR, else the state of the XRC_SEND queue pair."""
        sender, receiver = super().query_state(), query_state(self._receiver)
        return receiver if receiver == "ERR" else sender

    def post_send(self, request: SendRequest) -> Return:
        """ibv_post_send to the shared receive queue of the peer: returns 0, or the value of errno."""
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
            assert isinstance(end, XrcQueue | RemoteQueue)
            assert isinstance(peer, XrcQueue | RemoteQueue)
            end.connect(peer.number, peer.receiver, peer.shared)


# The class of a pair, by type, for types that DevicePair does not support.
PAIRS: Mapping[str, type[DevicePair]] = {XRC: XrcPair, RC_SRQ: SharedReceivesPair}


def pair_type(spec: QpSpec) -> type[DevicePair]:
    return ExtendedPair if spec.extended else PAIRS.get(spec.kind, DevicePair)
