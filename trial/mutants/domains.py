"""Protection domains of regions, and their change."""

from __future__ import annotations

from conformance.bench.calls import Sge
from reference.device import Device
from reference.objects import LOCAL_WRITE, ON_DEMAND, Domain, Region, Window
from reference.queues import Queue
from reference.reregistration import CHANGE_PD
from trial.mutants.bases import ATOMICS, SENDS, Remembering, SharedReceives, Watching
from trial.violation import plain, violates


@violates("REG-22", Device.opens)
def domain_unchecked(self: Device, region: Region, domain: Domain) -> bool:
    """The PD of an rkey is not checked."""
    return region.usable


@violates("REG-22", Device.opens_locally)
def local_domain_unchecked(self: Device, region: Region, domain: Domain) -> bool:
    """The PD of an lkey is not checked."""
    return region.usable


@violates("REG-22", Device.opens)
def first_domain_only(self: Device, region: Region, domain: Domain) -> bool:
    """Only regions of the first PD can be accessed."""
    return region.domain is next(iter(self.domains.values())) and plain(self).opens(region, domain)


@violates("REG-22", Device.opens)
def on_demand_for_every_domain(self: Device, region: Region, domain: Domain) -> bool:
    """Queue pairs of every PD can access on-demand regions."""
    return plain(self).opens(region, region.domain if region.access & ON_DEMAND else domain)


@violates("REG-22", Device.window_opens)
def window_for_every_domain(self: Device, window: Window, domain: Domain, queue: int) -> bool:
    """Queue pairs of every PD can access windows of type 1."""
    return window.queue in (0, queue)


@violates("REG-22", Device.opens)
def dmabuf_for_every_domain(self: Device, region: Region, domain: Domain) -> bool:
    """Queue pairs of every PD can access dma-buf regions."""
    return plain(self).opens(region, region.domain if self.memory.in_dmabuf(region.addr) else domain)


@violates("REG-22", SharedReceives.unchecked)
def shared_receives_of_every_domain(self: SharedReceives, queue: Queue, region: Region, sge: Sge) -> int | None:
    """A message into a shared receive queue is written to a region of another domain."""
    return self.place(region, sge.addr, sge.length) if region.access & LOCAL_WRITE else None


@violates("REG-22", Watching.opens, written="blind")
def atomics_from_any_domain(self: Watching, region: Region, domain: Domain) -> bool:
    """Atomics through a queue pair of another PD are served."""
    return plain(self).opens(region, region.domain if self.opcode in ATOMICS else domain)


@violates("REG-22", Device.local, written="blind")
def elements_from_any_domain(
    self: Device, lkey: int, domain: Domain, addr: int, length: int, write: bool
) -> int | None:
    """The lkey of another PD's region is accepted as the source of what is sent or written."""
    found = self.found(lkey)
    return plain(self).local(
        lkey, found.domain if isinstance(found, Region) and not write else domain, addr, length, write
    )


@violates("REG-22", Watching.opens_locally, written="blind")
def receives_from_any_domain(self: Watching, region: Region, domain: Domain) -> bool:
    """Receives take the lkey of another PD's region."""
    return plain(self).opens_locally(region, region.domain if self.opcode in SENDS else domain)


@violates("REG-22", Watching.opens, written="blind")
def unreliable_from_any_domain(self: Watching, region: Region, domain: Domain) -> bool:
    """Through a UC queue pair the regions of every PD can be written."""
    return plain(self).opens(region, region.domain if self.transport == "UC" else domain)


@violates("REG-22", Watching.opens, written="blind")
def immediate_writes_from_any_domain(self: Watching, region: Region, domain: Domain) -> bool:
    """A write with immediate data goes to regions of another PD than the queue pair's."""
    return plain(self).opens(region, region.domain if self.opcode == "RDMA_WRITE_WITH_IMM" else domain)


@violates("REG-22", written="blind")
class DomainCheckedAtFirstUse(Device):
    """Once a region has been used through its own PD, any PD's queue pairs may use it."""

    def setup(self) -> None:
        self._used: set[int] = set()

    def opens(self, region: Region, domain: Domain) -> bool:
        if super().opens(region, domain):
            self._used.add(region.handle)
            return True
        return region.usable and region.handle in self._used


@violates("REG-22", Watching.opens, written="blind")
def flushes_from_any_domain(self: Watching, region: Region, domain: Domain) -> bool:
    """A flush is served whatever PD the queue pair is of."""
    return plain(self).opens(region, region.domain if self.opcode.startswith("FLUSH") else domain)


@violates("REREG-02")
class DomainStays(Device):
    """CHANGE_PD returns 0 and changes nothing."""

    def move(self, region: Region, domain: Domain) -> None:
        """Keeps the old value."""


@violates("REREG-02")
class OldDomainStaysToo(Device):
    """After CHANGE_PD queue pairs of the old PD still have access."""

    def move(self, region: Region, domain: Domain) -> None:
        self.__dict__.setdefault("_former", {})[region.handle] = region.domain
        super().move(region, domain)

    def opens(self, region: Region, domain: Domain) -> bool:
        return self.__dict__.get("_former", {}).get(region.handle) is domain or super().opens(region, domain)


@violates("REREG-02", Remembering.opens_locally)
def old_domain_by_lkey(self: Remembering, region: Region, domain: Domain) -> bool:
    """After CHANGE_PD queue pairs of the old PD can still use the lkey."""
    before = self.former(region, CHANGE_PD)
    return bool(before and before.domain is domain) or plain(self).opens_locally(region, domain)


@violates("REREG-02", written="blind")
class OldDomainStaysOpen(Device):
    """After a change of PD the queue pairs of the old one still reach the region."""

    def setup(self) -> None:
        self._old: dict[int, Domain] = {}

    def move(self, region: Region, domain: Domain) -> None:
        if domain is not region.domain:
            self._old[region.handle] = region.domain
        super().move(region, domain)

    def opens(self, region: Region, domain: Domain) -> bool:
        return super().opens(region, domain) or (region.usable and self._old.get(region.handle) is domain)


@violates("REREG-02", written="blind")
class AtomicsStayInTheOldDomain(Watching):
    """After a change of PD atomics are still checked against the old one."""

    def setup(self) -> None:
        super().setup()
        self._first: dict[int, Domain] = {}

    def move(self, region: Region, domain: Domain) -> None:
        self._first.setdefault(region.handle, region.domain)
        super().move(region, domain)

    def opens(self, region: Region, domain: Domain) -> bool:
        if self.opcode in ATOMICS and region.handle in self._first:
            return region.usable and self._first[region.handle] is domain
        return super().opens(region, domain)


@violates("REREG-02", written="blind")
class LkeyStaysInTheOldDomain(Device):
    """After a change of PD the lkey is good in both PDs."""

    def setup(self) -> None:
        self._first: dict[int, Domain] = {}

    def move(self, region: Region, domain: Domain) -> None:
        self._first.setdefault(region.handle, region.domain)
        super().move(region, domain)

    def opens_locally(self, region: Region, domain: Domain) -> bool:
        first = region.usable and self._first.get(region.handle) is domain
        return first or super().opens_locally(region, domain)


@violates("REREG-02", Device.move, written="blind")
def old_domain_stays_in_use(self: Device, region: Region, domain: Domain) -> None:
    """A change of PD leaves the old PD in use: it cannot be deallocated once it is empty."""
    old = region.domain
    plain(self).move(region, domain)
    if old is not domain:
        old.users += 1


@violates("PD-01", Device.dealloc_pd)
def dealloc_leaves_open(self: Device, domain: Domain) -> None:
    """A domain is deallocated although objects are left, which stay as they are."""
    self.domains.pop(domain.handle, None)


@violates("PD-01", Device.dealloc_pd)
def dealloc_refused_for_ever(self: Device, domain: Domain) -> None:
    """A domain that was refused once is refused from then on."""
    if domain.users:
        domain.users += 1
    plain(self).dealloc_pd(domain)
