"""On-demand memory by transport: what is declared and not carried out, windows over it, and advice by its addresses."""

from __future__ import annotations

from conformance.bench.calls import Sge
from reference.device import Device
from reference.objects import ON_DEMAND, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE, Domain, Region, Window
from trial.violation import violates


class _Declared(Device):
    """Some of what is declared for on-demand memory is refused."""

    lacking: tuple[str, ...] = ()

    def not_on_demand_here(self, found: Region | Window | None) -> bool:
        region = found.region if isinstance(found, Window) else found
        on_demand = region is not None and region.access & ON_DEMAND
        return bool(on_demand and self.on_demand_need in self.lacking) or super().not_on_demand_here(found)


@violates("ODPC-01")
class NoSharedReceivesOnDemand(_Declared):
    """A receive of a shared receive queue into on-demand memory fails."""

    lacking = ("odp_srq_recv",)


@violates("ODPC-01")
class NoFlushesOnDemand(_Declared):
    """A FLUSH of on-demand memory is refused."""

    lacking = ("odp_flush",)


@violates("ODPC-01")
class NoAtomicWritesOnDemand(_Declared):
    """An ATOMIC WRITE to on-demand memory is refused."""

    lacking = ("odp_atomic_write",)


@violates("ODPC-01")
class NoAccessOnDemand(_Declared):
    """Writes, reads and atomics of on-demand memory are refused, at either end."""

    lacking = ("odp_write", "odp_read", "odp_atomic")


@violates("ODPC-01")
class NoMessagesOnDemand(_Declared):
    """Messages out of on-demand memory or into it fail."""

    lacking = ("odp_send", "odp_recv")


@violates("ODPC-02")
class UnreliableWritesMissOnDemandMemory(_Declared):
    """A write to on-demand memory over an unreliable connection is lost."""

    lacking = ("odp_uc_write",)


@violates("ODPC-02")
class UnreliableMessagesMissOnDemandMemory(_Declared):
    """Messages out of on-demand memory or into it fail on unreliable connections."""

    lacking = ("odp_uc_send", "odp_uc_recv")


@violates("ODPC-03")
class NoDatagramsFromOnDemandMemory(_Declared):
    """Datagrams cannot be sent from on-demand memory."""

    lacking = ("odp_ud_send",)


@violates("ODPC-03")
class NoDatagramsIntoOnDemandMemory(_Declared):
    """Datagrams cannot be received in on-demand memory."""

    lacking = ("odp_ud_recv",)


class _OnDemandWindows(Device):
    """A right of windows over on-demand regions has no effect."""

    denied = 0

    def window_allows(self, window: Window, right: int) -> bool:
        on_demand = window.region is not None and window.region.access & ON_DEMAND
        return not (on_demand and right == self.denied) and super().window_allows(window, right)


@violates("BIND-05")
class OnDemandWindowsAreNotWritten(_OnDemandWindows):
    """A window over an on-demand region cannot be written."""

    denied = REMOTE_WRITE


@violates("BIND-06")
class OnDemandWindowsAreNotRead(_OnDemandWindows):
    """A window over an on-demand region cannot be read."""

    denied = REMOTE_READ


@violates("BIND-07")
class OnDemandWindowsHaveNoAtomics(_OnDemandWindows):
    """Atomics through a window over an on-demand region are refused."""

    denied = REMOTE_ATOMIC


@violates("ADV-04")
class AdviceByOwnAddressesBringsNothingIn(Device):
    """Flushed advice by the addresses of an on-demand region with an hca_va succeeds and brings no page in."""

    moved = False

    def element(self, domain: Domain, advice: int, sge: Sge) -> tuple[int, int]:
        found = self.keys.get(sge.lkey)
        self.moved = isinstance(found, Region) and found.iova != found.addr
        return super().element(domain, advice, sge)

    def follow(self, addr: int, length: int, advice: int, flags: int) -> bool:
        return self.moved or super().follow(addr, length, advice, flags)
