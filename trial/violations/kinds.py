"""Violations at special kinds of regions, and through keys of other regions."""

from __future__ import annotations

from conformance.bench.work_requests import Completion, SendRequest
from reference.device import Device
from reference.memory import PAGE
from reference.objects import ON_DEMAND, REMOTE_ATOMIC, ZERO_BASED, Domain, Region, Window
from reference.queues import SUCCESS, Queue
from trial.violation import violates


@violates("REG-11")
class ZeroBasedToThePagesEnd(Device):
    """A region with ZERO_BASED extends to the end of its last page."""

    def contains(self, region: Region, addr: int, length: int) -> bool:
        within = region.addr % PAGE
        size = -(-(within + region.length) // PAGE) * PAGE - within if region.access & ZERO_BASED else region.length
        return addr >= region.iova and addr + length <= region.iova + size


@violates("REG-12")
class OnDemandByPages(Device):
    """An on-demand region extends to the ends of its pages."""

    def contains(self, region: Region, addr: int, length: int) -> bool:
        if not region.access & ON_DEMAND:
            return super().contains(region, addr, length)
        start, end = region.iova // PAGE * PAGE, -(-(region.iova + region.length) // PAGE) * PAGE
        return start <= addr and addr + length <= end


@violates("REG-22")
class OnDemandForEveryDomain(Device):
    """Queue pairs of every PD can access on-demand regions."""

    def opens(self, region: Region, domain: Domain) -> bool:
        return super().opens(region, region.domain if region.access & ON_DEMAND else domain)


@violates("REG-22")
class WindowForEveryDomain(Device):
    """Queue pairs of every PD can access windows of type 1."""

    def window_opens(self, window: Window, domain: Domain, queue: int) -> bool:
        return window.queue in (0, queue)


@violates("REG-21")
class ForeignKeyServes(Device):
    """A key gives access to every region of its PD."""

    def place(self, region: Region, addr: int, length: int) -> int | None:
        at = super().place(region, addr, length)
        for other in self.regions.values() if at is None else ():
            if other.domain is region.domain and self.contains(other, addr, length):
                at = self.translate(other, addr)
        return at


@violates("DEREG-01")
class KeysOfOtherAddressesOutlive(Device):
    """Keys of a region with another hca_va than addr still work after its deregistration."""

    def forget_key(self, region: Region) -> None:
        if region.iova == region.addr:
            super().forget_key(region)


@violates("DEREG-01")
class KeysOfDmabufsOutlive(Device):
    """Keys of a dma-buf region still work after its deregistration."""

    def forget_key(self, region: Region) -> None:
        if not self.memory.in_dmabuf(region.addr):
            super().forget_key(region)


@violates("REG-22")
class DmabufForEveryDomain(Device):
    """Queue pairs of every PD can access dma-buf regions."""

    def opens(self, region: Region, domain: Domain) -> bool:
        return super().opens(region, region.domain if self.memory.in_dmabuf(region.addr) else domain)


@violates("DMA-03")
class DmabufWrittenLocally(Device):
    """Received data is written to dma-buf regions without LOCAL_WRITE."""

    def allows_local_write(self, region: Region) -> bool:
        return self.memory.in_dmabuf(region.addr) or super().allows_local_write(region)


@violates("DMA-06")
class DmabufByLkeyFromItsBeginning(Device):
    """Through its lkey, a dma-buf region begins at the beginning of the dma-buf."""

    def local(self, lkey: int, domain: Domain, addr: int, length: int, write: bool) -> int | None:
        at, found = super().local(lkey, domain, addr, length, write), self.found(lkey)
        if at is None or not isinstance(found, Region) or not self.memory.in_dmabuf(found.addr):
            return at
        before = found.addr
        while self.memory.in_dmabuf(before - PAGE):
            before -= PAGE
        return at - (found.addr - before)


class _TellingOfRefused(Device):
    """Delivers the immediate data of a refused write, on some types of queue pairs."""

    kinds: tuple[str, ...] = ()
    immediate: SendRequest | None = None

    def write(self, queue: Queue, request: SendRequest) -> str:
        self.immediate = request if request.opcode == "RDMA_WRITE_WITH_IMM" else None
        return super().write(queue, request)

    def refuse(self, queue: Queue, status: str) -> str:
        request, self.immediate = self.immediate, None
        if request and queue.kind in self.kinds and queue.peer.receives:
            self.deliver(queue, None, request.imm, sum(sge.length for sge in request.sges))
        return super().refuse(queue, status)


@violates("REG-05")
class RefusedImmediateTold(_TellingOfRefused):
    """A refused write with immediate data moves nothing, but its receiver gets a completion."""

    kinds = ("RC",)


@violates("REG-05")
class RefusedImmediateToldUnreliably(_TellingOfRefused):
    """Over UC, a refused write with immediate data moves nothing, but its receiver gets a completion."""

    kinds = ("UC",)


@violates("REG-05")
class ImmediateByLength(Device):
    """The receive of a write with immediate data is an error if its elements are shorter than the write."""

    def deliver(self, queue: Queue, content: bytes | None, imm: int | None, length: int) -> str:
        peer = queue.peer
        if content is None and peer.receives and length > sum(sge.length for sge in peer.receives[0][1]):
            wr_id, _ = self.next_receive(peer)
            peer.polled.append(Completion(wr_id, "LOC_LEN_ERR"))
            self.fail(peer)
            return SUCCESS
        return super().deliver(queue, content, imm, length)


@violates("REG-07")
class RefusedAtomicTells(Device):
    """A refused atomic changes nothing, but returns the value to the requester."""

    def atomic(self, queue: Queue, request: SendRequest) -> str:
        found = self.found(request.rkey)
        if isinstance(found, Region) and self.opens(found, queue.peer.domain) and not self.allows(found, REMOTE_ATOMIC):
            at = self.place(found, request.remote_addr, 8)
            content = self.memory.read(at, 8) if at is not None and not request.remote_addr % 8 else None
            if content is not None:
                self.scatter(queue, request.sges, content)
        return super().atomic(queue, request)
