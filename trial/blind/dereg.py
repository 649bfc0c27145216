"""Deregistration."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import replace

from conformance.bench.calls import Return, Sge
from reference.device import Device
from reference.objects import ON_DEMAND, REMOTE_READ, Domain, Refused, Region, Window
from reference.queues import Queue
from reference.stack import WHOLE, Stack
from trial.blind.watching import SENDS, Watching
from trial.violation import violates


class _Haunted(Device):
    """A device that remembers the regions that are gone."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
        self.ghosts: dict[int, Region] = {}

    def deregister(self, handle: int) -> None:
        """Ends a region, not wholly."""
        region = self.regions.get(handle)
        super().deregister(handle)
        if region:
            self.ghosts[region.key] = region


@violates("DEREG-01")
class LkeyServesOnceMore(_Haunted):
    """After deregistration the lkey serves one more local operation."""

    def local(self, lkey: int, domain: Domain, addr: int, length: int, write: bool) -> int | None:
        place = super().local(lkey, domain, addr, length, write)
        ghost = self.ghosts.pop(lkey, None)
        if place is None and ghost and ghost.domain is domain and (not write or self.allows_local_write(ghost)):
            return self.place(ghost, addr, length)
        return place


@violates("DEREG-01")
class RkeyReadsOnInABusyDomain(_Haunted):
    """After deregistration the rkey still reads while its PD has other regions."""

    def remote(self, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int) -> int | None:
        ghost = self.ghosts.get(rkey)
        others = any(each.domain is domain for each in self.regions.values())
        if ghost and others and ghost.domain is domain and right == REMOTE_READ and ghost.access & right:
            return self.place(ghost, addr, length)
        return super().remote(rkey, domain, queue, addr, length, right)


@violates("DEREG-01")
class OnDemandKeysOutlive(_Haunted):
    """The rkey of an on-demand region works after its deregistration."""

    def remote(self, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int) -> int | None:
        ghost = self.ghosts.get(rkey)
        if ghost and ghost.access & ON_DEMAND and ghost.domain is domain and self.allows(ghost, right):
            return self.place(ghost, addr, length)
        return super().remote(rkey, domain, queue, addr, length, right)


@violates("DEREG-01")
class ReregisteredKeysOutlive(Device):
    """Deregistering a region that had been re-registered returns 0 and leaves its keys at work."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
        self._changed: set[int] = set()

    def rekey(self, region: Region) -> None:
        super().rekey(region)
        self._changed.add(region.handle)

    def forget_key(self, region: Region) -> None:
        if region.handle in self.regions or region.handle not in self._changed:
            super().forget_key(region)


@violates("DEREG-02")
class PostedWindowsDoNotCount(Device):
    """A region to which a type 2 window is bound can be deregistered."""

    def busy(self, region: Region) -> bool:
        return any(each.kind == 1 for each in region.windows)

    def forget_key(self, region: Region) -> None:
        super().forget_key(region)
        if region.handle not in self.regions:
            for window in list(region.windows):
                self.unbind(window)


@violates("DEREG-02")
class WindowsWithoutRightsDoNotCount(Device):
    """A region can be deregistered if the windows bound to it have no rights."""

    def busy(self, region: Region) -> bool:
        return any(each.access for each in region.windows)

    def forget_key(self, region: Region) -> None:
        super().forget_key(region)
        if region.handle not in self.regions:
            for window in list(region.windows):
                self.unbind(window)


@violates("DEREG-02")
class FailedDeregistrationEndsTheKey(Device):
    """A deregistration that fails for a bound window makes the region unusable."""

    def deregister(self, handle: int) -> None:
        try:
            super().deregister(handle)
        except Refused:
            if handle in self.regions:
                self.regions[handle].usable = False
            raise


@violates("DEREG-02")
class FailedDeregistrationUnbinds(Device):
    """A deregistration that fails for a bound window takes the window off the region."""

    def deregister(self, handle: int) -> None:
        try:
            super().deregister(handle)
        except Refused:
            if handle in self.regions:
                for window in list(self.regions[handle].windows):
                    self.unbind(window)
            raise


@violates("DEREG-02")
class InvalidatedWindowStillCounts(Device):
    """After a window's invalidation its region cannot be deregistered until the window is deallocated."""

    _invalidating = False

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
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


@violates("DEREG-02")
class OneWindowGoneAllGone(Device):
    """With two windows bound to it a region can be deregistered as soon as one of them is unbound."""

    def release_region(self, window: Window, region: Region) -> None:
        super().release_region(window, region)
        self._released.append(region)

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
        self._released: list[Region] = []

    def busy(self, region: Region) -> bool:
        return super().busy(region) and not (len(region.windows) == 1 and region in self._released)

    def forget_key(self, region: Region) -> None:
        super().forget_key(region)
        if region.handle not in self.regions:
            for window in list(region.windows):
                self.unbind(window)


@violates("DEREG-02")
class BusyRegionAnswersZero(Device):
    """ibv_dereg_mr of a region with a bound window returns 0 and leaves the region there."""

    def dereg_answer(self, returned: Return) -> Return:
        return replace(returned, value=0, errno=0) if returned.value == errno.EBUSY else returned


@violates("DEREG-03")
class DeregistrationReturnsMinusOne(Device):
    """ibv_dereg_mr returns -1 on failure and puts the reason into errno."""

    def dereg_answer(self, returned: Return) -> Return:
        return replace(returned, value=-1) if returned.value else returned


@violates("DEREG-03")
class DeregistrationReturnsNegativeErrno(Device):
    """ibv_dereg_mr returns the negative of errno on failure."""

    def dereg_answer(self, returned: Return) -> Return:
        return replace(returned, value=-returned.value)


@violates("DEREG-03")
class DeregistrationReturnsOne(Device):
    """ibv_dereg_mr returns 1 on failure, whatever errno is."""

    def dereg_answer(self, returned: Return) -> Return:
        return replace(returned, value=1) if returned.value else returned


@violates("DEREG-04")
class ReceivesResolvedWhenPosted(Watching):
    """A posted receive is looked up when it is posted: after deregistration a message still lands there."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
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


@violates("DEREG-04")
class WindowsOfAGoneQueueHoldTheRegion(Device):
    """A type 2 window whose queue pair is destroyed before it holds its region for ever."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
        self._gone: set[int] = set()

    def destroy_qp(self, queue: Queue) -> None:
        super().destroy_qp(queue)
        self._gone.add(queue.number)

    def release_region(self, window: Window, region: Region) -> None:
        if window.queue not in self._gone:
            super().release_region(window, region)


@violates("DEREG-04")
class GoneQueuesWindowCannotBeDeallocated(Device):
    """A window whose queue pair is destroyed before it cannot be deallocated."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
        self._gone: set[int] = set()

    def destroy_qp(self, queue: Queue) -> None:
        super().destroy_qp(queue)
        self._gone.add(queue.number)

    def dealloc_mw(self, window: Window) -> None:
        if window.queue and window.queue in self._gone:
            raise Refused(errno.EBUSY)
        super().dealloc_mw(window)


@violates("DEREG-04")
class SecondElementOfAReceiveOutlives(Device):
    """Of a posted receive all elements but the first are still filled after their region's deregistration."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
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
