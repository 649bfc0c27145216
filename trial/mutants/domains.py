"""Protection domains of regions, and their change."""

from __future__ import annotations

from reference.device import Device
from reference.objects import Domain, Region
from trial.mutants.bases import ATOMICS, Watching
from trial.violation import violates


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
