"""Deregistration with bound windows and with requests in flight."""

from collections.abc import Sequence

from conformance.bench.calls import Sge
from reference.device import Device
from reference.objects import Domain, Region, Window
from reference.queues import Queue
from trial.mutants.bases import SENDS, Watching
from trial.violation import violates


class _Unbinding(Device):
    """Deregistration unbinds the windows of a region."""

    def forget_key(self, region: Region) -> None:
        super().forget_key(region)
        if region.handle not in self.regions:
            for window in list(region.windows):
                self.unbind(window)


@violates("DEREG-02", written="blind")
class InvalidatedWindowStillCounts(Device):
    """After the invalidation of a window, its region cannot be deregistered until the window is deallocated."""

    _invalidating = False

    def setup(self) -> None:
        self._held: dict[int, Region] = {}

    def invalidate(self, key: int, queue: int, domain: Domain) -> bool:
        found = self.keys.get(key)
        region = found.region if isinstance(found, Window) else None
        done = super().invalidate(key, queue, domain)
        if done and region and found:
            self._held[id(found)] = region
        return done

    def busy(self, region: Region) -> bool:
        return super().busy(region) or any(each is region for each in self._held.values())

    def dealloc_mw(self, window: Window) -> None:
        super().dealloc_mw(window)
        self._held.pop(id(window), None)


@violates("DEREG-04", written="blind")
class ReceivesResolvedWhenPosted(Watching):
    """The lkey of a receive is looked up when the receive is posted: after a deregistration, a message still arrives
    there."""

    def setup(self) -> None:
        super().setup()
        self._places: dict[tuple[int, int, int], int] = {}

    def post_receive(self, queue: Queue, sges: Sequence[Sge], wr_id: int) -> int:
        for sge in sges:
            place = self.memory_of_sge(queue, sge, write=True)
            if place:
                self._places[queue.number, sge.lkey, sge.addr] = place
        return super().post_receive(queue, sges, wr_id)

    def memory_of_sge(self, queue: Queue, sge: Sge, write: bool) -> int | None:
        place = super().memory_of_sge(queue, sge, write)
        if place is None and write and self.opcode in SENDS:
            return self._places.get((queue.number, sge.lkey, sge.addr))
        return place


@violates("DEREG-04", written="blind")
class SecondElementOfAReceiveOutlives(Device):
    """All elements of a posted receive, except the first, are still filled after the deregistration of their region."""

    def setup(self) -> None:
        self._posted: dict[int, Region] = {}

    def post_receive(self, queue: Queue, sges: Sequence[Sge], wr_id: int) -> int:
        for sge in sges[1:]:
            found = self.found(sge.lkey)
            if isinstance(found, Region) and found.domain is queue.domain:
                self._posted[sge.lkey] = found
        return super().post_receive(queue, sges, wr_id)

    def local(self, lkey: int, domain: Domain, addr: int, length: int, write: bool) -> int | None:
        held = self._posted.get(lkey)
        if held and held.handle not in self.regions and held.domain is domain and write:
            return self.place(held, addr, length) if self.allows_local_write(held) else None
        return super().local(lkey, domain, addr, length, write)
