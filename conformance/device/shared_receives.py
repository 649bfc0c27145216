"""Queue pairs of type RC whose receives are in a shared receive queue, in loopback.

See ibv_create_srq(3) and ibv_post_srq_recv(3). Each end has a shared receive queue of its own. Not for those of XRC
(xrc.py).
"""

from contextlib import ExitStack
from dataclasses import replace
from typing import cast

from conformance.bench.calls import Pd
from conformance.device.device import Device, ProtectionDomain
from conformance.device.posting import Poster
from conformance.device.queue_pairs import QUEUE_DEPTH, DevicePair, DeviceQueue, elements_on
from conformance.model.case import QpSpec

RC_SRQ = "RC_SRQ"


class SharedReceivesQueue(DeviceQueue):
    """One end: a queue pair of type RC, and the shared receive queue to which its receives are posted."""

    def __init__(self, device: Device, pd: Pd, spec: QpSpec, deadline_s: float) -> None:
        """Waits at most `deadline_s` seconds for a completion.

        Raises PyverbsRDMAError if the device refuses either.
        """
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
    """Two ends, each the peer of the other."""

    kind: type[DeviceQueue] = SharedReceivesQueue
    keeps_receives = True
