"""What a key opens: rights, ranges, keys, domains, elements of lists."""

from __future__ import annotations

from collections.abc import Sequence

from conformance.bench.calls import IbvMr, Pd, Sge
from conformance.bench.work_requests import Completion, SendRequest
from reference.device import Device
from reference.memory import PAGE
from reference.objects import (
    FLUSH_GLOBAL,
    FLUSH_PERSISTENT,
    LOCAL_WRITE,
    MW_BIND,
    ON_DEMAND,
    REMOTE_ATOMIC,
    REMOTE_READ,
    REMOTE_WRITE,
    ZERO_BASED,
    Domain,
    Region,
    Window,
)
from reference.queues import SUCCESS, Queue
from reference.stack import WHOLE, Stack
from trial.blind.watching import ATOMICS, SENDS, WRITES, Watching
from trial.violation import violates

_WORD = 8

# Local write


@violates("REG-04")
class ReadsLandWithoutLocalWrite(Watching):
    """An RDMA READ puts what it fetched into a region without LOCAL_WRITE."""

    def allows_local_write(self, region: Region) -> bool:
        return self.opcode == "RDMA_READ" or super().allows_local_write(region)


@violates("REG-04")
class AtomicsLandWithoutLocalWrite(Watching):
    """The eight bytes that come back from an atomic are put into a region without LOCAL_WRITE."""

    def allows_local_write(self, region: Region) -> bool:
        return self.opcode in ATOMICS or super().allows_local_write(region)


@violates("REG-04")
class SmallMessagesLandWithoutLocalWrite(Watching):
    """A message of up to 32 bytes comes with its completion and is put into a region without LOCAL_WRITE."""

    def local(self, lkey: int, domain: Domain, addr: int, length: int, write: bool) -> int | None:
        return super().local(lkey, domain, addr, length, write and not (self.opcode in SENDS and length <= 32))


@violates("REG-04")
class ImmediateSendsLandWithoutLocalWrite(Watching):
    """A SEND with immediate data is put into a region without LOCAL_WRITE."""

    def allows_local_write(self, region: Region) -> bool:
        return self.opcode == "SEND_WITH_IMM" or super().allows_local_write(region)


@violates("REG-04")
class LocalWriteLostBesideBinding(Device):
    """LOCAL_WRITE | MW_BIND without any remote right gives no local write."""

    def allows_local_write(self, region: Region) -> bool:
        return region.access != LOCAL_WRITE | MW_BIND and super().allows_local_write(region)


# Remote write


@violates("REG-05")
class ImmediateWritesNeedNoRight(Watching):
    """A write with immediate data needs no REMOTE_WRITE."""

    def allows(self, region: Region, right: int) -> bool:
        return self.opcode == "RDMA_WRITE_WITH_IMM" or super().allows(region, right)


@violates("REG-05")
class RefusedWriteLeavesItsFirstBytes(Device):
    """A write that is refused for want of REMOTE_WRITE is refused, but its first bytes are in memory."""

    def write(self, queue: Queue, request: SendRequest) -> str:
        status = super().write(queue, request)
        region = self.found(request.rkey)
        if status != SUCCESS and request.opcode in WRITES and isinstance(region, Region) and region.usable:
            content = (self.gather(queue, request.sges) or b"")[:4]
            if self.contains(region, request.remote_addr, 4) and not self.allows(region, REMOTE_WRITE):
                self.memory.write(self.translate(region, request.remote_addr), content)
        return status


@violates("REG-05")
class AtomicRightWrites(Device):
    """REMOTE_ATOMIC lets peers write as well."""

    def allows(self, region: Region, right: int) -> bool:
        return super().allows(region, right) or (right == REMOTE_WRITE and bool(region.access & REMOTE_ATOMIC))


@violates("REG-05")
class WriteRightIsLookedUpOnce(Device):
    """A queue pair through which a peer has written once may write to any region of its PD."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
        self._granted: set[int] = set()

    def remote(self, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int) -> int | None:
        place = super().remote(rkey, domain, queue, addr, length, right)
        found = self.found(rkey)
        if right == REMOTE_WRITE and place is not None:
            self._granted.add(queue)
        elif right == REMOTE_WRITE and queue in self._granted and isinstance(found, Region):
            return self.place(found, addr, length) if self.opens(found, domain) else None
        return place


@violates("REG-05")
class UnreliableWritesNeedNoRight(Watching):
    """On UC a write needs no REMOTE_WRITE."""

    def allows(self, region: Region, right: int) -> bool:
        return self.transport == "UC" or super().allows(region, right)


@violates("REG-05")
class WriteRightLostWithAtomics(Device):
    """REMOTE_WRITE does not work beside REMOTE_READ and REMOTE_ATOMIC together."""

    def allows(self, region: Region, right: int) -> bool:
        both = REMOTE_READ | REMOTE_ATOMIC
        return super().allows(region, right) and not (right == REMOTE_WRITE and region.access & both == both)


# Remote read


@violates("REG-06")
class WriteRightReads(Device):
    """REMOTE_WRITE lets peers read as well."""

    def allows(self, region: Region, right: int) -> bool:
        return super().allows(region, right) or (right == REMOTE_READ and bool(region.access & REMOTE_WRITE))


@violates("REG-06")
class RefusedReadLeaks(Device):
    """A read that is refused for want of REMOTE_READ brings the first four bytes all the same."""

    def read(self, queue: Queue, request: SendRequest) -> str:
        status = super().read(queue, request)
        region = self.found(request.rkey)
        if status == SUCCESS or not isinstance(region, Region) or not region.usable or not request.sges:
            return status
        if self.contains(region, request.remote_addr, 4) and not self.allows(region, REMOTE_READ):
            leaked = self.memory.read(self.translate(region, request.remote_addr), 4)
            self.scatter(queue, [request.sges[0]._replace(length=4)], leaked or b"")
        return status


@violates("REG-06")
class RemoteReadNeedsLocalWrite(Device):
    """REMOTE_READ does not work on a region without LOCAL_WRITE."""

    def allows(self, region: Region, right: int) -> bool:
        return super().allows(region, right) and (right != REMOTE_READ or bool(region.access & LOCAL_WRITE))


@violates("REG-06")
class PersistentFlushTakesRead(Device):
    """FLUSH_PERSISTENT takes the place of REMOTE_READ: beside it nothing can be read remotely."""

    def allows(self, region: Region, right: int) -> bool:
        return super().allows(region, right) and not (right == REMOTE_READ and region.access & FLUSH_PERSISTENT)


# Atomics


@violates("REG-07")
class FetchAndAddNeedsNoRight(Watching):
    """Fetch-and-add needs no REMOTE_ATOMIC where the region has REMOTE_WRITE."""

    def allows(self, region: Region, right: int) -> bool:
        adds = self.opcode == "ATOMIC_FETCH_AND_ADD" and region.access & REMOTE_WRITE
        return bool(adds) or super().allows(region, right)


@violates("REG-07")
class SwapComparesHalf(Device):
    """Compare-and-swap compares only the lower 32 bits."""

    def atomic_result(self, request: SendRequest, before: int) -> int:
        if request.opcode == "ATOMIC_CMP_AND_SWP":
            return request.swap if (before ^ request.compare_add) & 0xFFFFFFFF == 0 else before
        return super().atomic_result(request, before)


@violates("REG-07")
class AddLosesTheCarry(Device):
    """Fetch-and-add loses the carry from the lower 32 bits into the upper ones."""

    def atomic_result(self, request: SendRequest, before: int) -> int:
        if request.opcode == "ATOMIC_FETCH_AND_ADD":
            low = (before + request.compare_add) & 0xFFFFFFFF
            return (before + (request.compare_add & ~0xFFFFFFFF)) & ~0xFFFFFFFF | low
        return super().atomic_result(request, before)


@violates("REG-07")
class RefusedSwapSwaps(Device):
    """A compare-and-swap refused for want of REMOTE_ATOMIC on a writable region swaps all the same."""

    def atomic(self, queue: Queue, request: SendRequest) -> str:
        status = super().atomic(queue, request)
        region = self.found(request.rkey)
        if status == SUCCESS or request.opcode != "ATOMIC_CMP_AND_SWP" or not isinstance(region, Region):
            return status
        writable = region.usable and region.access & REMOTE_WRITE
        if writable and self.contains(region, request.remote_addr, _WORD):
            place = self.translate(region, request.remote_addr)
            before = self.memory.read(place, _WORD)
            if before == request.compare_add.to_bytes(_WORD, "little"):
                self.memory.write(place, request.swap.to_bytes(_WORD, "little"))
        return status


@violates("REG-07")
class FailedCompareGivesTheCompareValue(Device):
    """A compare-and-swap that does not match gives back the value it was compared with, not the one in memory."""

    def scatter(self, queue: Queue, sges: Sequence[Sge], content: bytes) -> bool:
        return super().scatter(queue, sges, self._instead or content)

    _instead = b""

    def atomic(self, queue: Queue, request: SendRequest) -> str:
        try:
            return super().atomic(queue, request)
        finally:
            self._instead = b""

    def atomic_result(self, request: SendRequest, before: int) -> int:
        if request.opcode == "ATOMIC_CMP_AND_SWP" and before != request.compare_add:
            self._instead = request.compare_add.to_bytes(_WORD, "little")
        return super().atomic_result(request, before)


# Flush


@violates("REG-08")
class GlobalFlushNeedsNoRight(Device):
    """A flush to global visibility needs no right where the region has REMOTE_WRITE."""

    def allows(self, region: Region, right: int) -> bool:
        return super().allows(region, right) or (right == FLUSH_GLOBAL and bool(region.access & REMOTE_WRITE))


@violates("REG-08")
class PersistentRightFlushesGlobally(Device):
    """FLUSH_PERSISTENT allows a flush to global visibility too."""

    def allows(self, region: Region, right: int) -> bool:
        return super().allows(region, right) or (right == FLUSH_GLOBAL and bool(region.access & FLUSH_PERSISTENT))


@violates("REG-08")
class GlobalFlushNeedsRemoteWrite(Device):
    """FLUSH_GLOBAL does not work on a region without REMOTE_WRITE."""

    def allows(self, region: Region, right: int) -> bool:
        return super().allows(region, right) and (right != FLUSH_GLOBAL or bool(region.access & REMOTE_WRITE))


@violates("REG-09")
class GlobalRightFlushesPersistently(Device):
    """FLUSH_GLOBAL allows a flush with persistence too."""

    def allows(self, region: Region, right: int) -> bool:
        return super().allows(region, right) or (right == FLUSH_PERSISTENT and bool(region.access & FLUSH_GLOBAL))


@violates("REG-09")
class PersistentFlushOfOnePageOnly(Device):
    """A flush with persistence that crosses into another page is refused."""

    def remote(self, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int) -> int | None:
        if right == FLUSH_PERSISTENT and addr // PAGE != (addr + length - 1) // PAGE:
            return None
        return super().remote(rkey, domain, queue, addr, length, right)


@violates("REG-09")
class PersistentFlushNeedsBothRights(Device):
    """A flush with persistence is refused where the region has not FLUSH_GLOBAL as well."""

    def allows(self, region: Region, right: int) -> bool:
        return super().allows(region, right) and (right != FLUSH_PERSISTENT or bool(region.access & FLUSH_GLOBAL))


# Binding needs its right


@violates("REG-10")
class PostedBindsNeedNoRight(Device):
    """A bind of a type 2 window needs no MW_BIND."""

    def bind_refused(self, window: Window, region: Region | None, addr: int, length: int, access: int) -> bool:
        if region is None or window.kind == 1 or not length or not region.usable:
            return super().bind_refused(window, region, addr, length, access)
        return self.lacks_local_write(region, access) or self.beyond(region, addr, length)


@violates("REG-10")
class ReadWindowsNeedNoRight(Device):
    """A window that only reads needs no MW_BIND."""

    def bind_refused(self, window: Window, region: Region | None, addr: int, length: int, access: int) -> bool:
        if region is None or access != REMOTE_READ or not length or not region.usable:
            return super().bind_refused(window, region, addr, length, access)
        return self.beyond(region, addr, length)


@violates("REG-10")
class BindingNeedsLocalWriteAlways(Device):
    """MW_BIND without LOCAL_WRITE allows no bind, not even one that only reads."""

    def forbids_binding(self, region: Region) -> bool:
        return super().forbids_binding(region) or not region.access & LOCAL_WRITE


@violates("REG-10")
class RemoteRightsAllowBinding(Device):
    """A region with LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ and REMOTE_ATOMIC needs no MW_BIND."""

    def forbids_binding(self, region: Region) -> bool:
        whole = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC
        return super().forbids_binding(region) and region.access & whole != whole


# Counting from zero


@violates("REG-11")
class ZeroBasedFromThePage(Device):
    """ZERO_BASED counts from the beginning of the region's first page instead of its first byte."""

    def register(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        made = super().register(pd, addr, length, hca_va, access)
        if access & ZERO_BASED:
            made.iova = addr % PAGE
        return made


@violates("REG-11")
class ZeroBasedForPeersOnly(Device):
    """ZERO_BASED is heeded for rkeys; elements of lists still take addresses."""

    def local(self, lkey: int, domain: Domain, addr: int, length: int, write: bool) -> int | None:
        found = self.found(lkey)
        if isinstance(found, Region) and found.access & ZERO_BASED:
            addr = addr - found.addr if addr >= found.addr else found.length + 1
        return super().local(lkey, domain, addr, length, write)


@violates("REG-11")
class ZeroBasedOrByAddress(Device):
    """A ZERO_BASED region can be reached by its addresses as well, for remote writes."""

    def remote(self, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int) -> int | None:
        found = self.found(rkey)
        if isinstance(found, Region) and found.access & ZERO_BASED and right == REMOTE_WRITE and addr >= found.addr:
            addr -= found.addr
        return super().remote(rkey, domain, queue, addr, length, right)


@violates("REG-11")
class ZeroBasedForgottenOnDemand(Device):
    """ZERO_BASED is ignored beside ON_DEMAND."""

    def base(self, hca_va: int, access: int) -> int:
        return hca_va if access & ON_DEMAND else super().base(hca_va, access)


@violates("REG-11")
class ZeroBasedAtomicsByAddress(Device):
    """Atomics on a ZERO_BASED region take addresses instead of offsets."""

    def remote(self, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int) -> int | None:
        found = self.found(rkey)
        if isinstance(found, Region) and found.access & ZERO_BASED and right == REMOTE_ATOMIC:
            addr = addr - found.addr if addr >= found.addr else found.length
        return super().remote(rkey, domain, queue, addr, length, right)


# Exactly so many bytes


@violates("REG-20")
class LastByteOfWholePagesClosed(Device):
    """The last byte of a region that ends with a page cannot be reached."""

    def contains(self, region: Region, addr: int, length: int) -> bool:
        end = region.iova + region.length
        return super().contains(region, addr, length) and not (end % PAGE == 0 and addr + length == end)


@violates("REG-20")
class RestOfTheLastPageOpen(Device):
    """A region that does not end with a page is open up to the end of its last page."""

    def contains(self, region: Region, addr: int, length: int) -> bool:
        end = -(-(region.iova + region.length) // PAGE) * PAGE
        return addr >= region.iova and addr + length <= end


@violates("REG-20")
class BeginningOfTheFirstPageReadable(Watching):
    """What lies before a region within its first page can be read remotely."""

    def contains(self, region: Region, addr: int, length: int) -> bool:
        start = region.iova // PAGE * PAGE if self.opcode == "RDMA_READ" else region.iova
        return addr >= start and addr + length <= region.iova + region.length


@violates("REG-20")
class LongOperationsCheckedAtTheirStart(Device):
    """Of an operation of more than a page only the first page's range is checked."""

    def contains(self, region: Region, addr: int, length: int) -> bool:
        return super().contains(region, addr, min(length, PAGE))


@violates("REG-20")
class FlushesOfAnyRange(Device):
    """A flush is not held to the region's end."""

    def contains(self, region: Region, addr: int, length: int) -> bool:
        return super().contains(region, addr, 1 if self._flushes else length)

    _flushes = False

    def target(self, queue: Queue, request: SendRequest, length: int) -> int | None:
        self._flushes = request.opcode.startswith("FLUSH")
        try:
            return super().target(queue, request, length)
        finally:
            self._flushes = False


@violates("REG-20")
class AtomicsNotOnTheLastWord(Watching):
    """An atomic on a region's last eight bytes is refused."""

    def contains(self, region: Region, addr: int, length: int) -> bool:
        last = self.opcode in ATOMICS and addr + length == region.iova + region.length and region.length > _WORD
        return super().contains(region, addr, length) and not last


@violates("REG-20")
class OneByteBehindForReceives(Watching):
    """A receive may end one byte behind its region."""

    def contains(self, region: Region, addr: int, length: int) -> bool:
        return super().contains(region, addr, length - (self.opcode in SENDS and length > 1))


@violates("REG-20")
class AtomicsHalfBehindTheEnd(Watching):
    """An atomic is checked as if it had four bytes: it may reach four bytes beyond the region's end."""

    def contains(self, region: Region, addr: int, length: int) -> bool:
        return super().contains(region, addr, 4 if self.opcode in ATOMICS and length == _WORD else length)


@violates("REG-20")
class RegionOfOneByteClosed(Device):
    """A region of one byte cannot be reached at all."""

    def contains(self, region: Region, addr: int, length: int) -> bool:
        return super().contains(region, addr, length) and region.length != 1


# Keys


@violates("REG-21")
class TagOfAKeyIgnored(Device):
    """A key is known by its index alone: the eight bits of its tag may be any."""

    def found(self, key: int) -> Region | Window | None:
        return super().found(key) or next((each for own, each in self.keys.items() if own >> 8 == key >> 8), None)


@violates("REG-21")
class KeyZeroOpensTheLatest(Device):
    """The invented key 0 opens the region registered last."""

    def found(self, key: int) -> Region | Window | None:
        latest = list(self.regions.values())[-1:]
        return latest[0] if key == 0 and latest else super().found(key)


@violates("REG-21")
class TopBitOfAKeyIgnored(Device):
    """A key with its highest bit turned on opens what the key without it opens."""

    def found(self, key: int) -> Region | Window | None:
        return super().found(key & 0x7FFFFFFF)


@violates("REG-21")
class WindowKeysServeElements(Device):
    """The key of a bound window is taken for an lkey."""

    def local(self, lkey: int, domain: Domain, addr: int, length: int, write: bool) -> int | None:
        found = self.found(lkey)
        if isinstance(found, Window):
            right = REMOTE_WRITE if write else REMOTE_READ
            return self.through_window(found, domain, found.queue, addr, length, right)
        return super().local(lkey, domain, addr, length, write)


@violates("REG-21")
class LkeyOfSixteenBits(Device):
    """After many objects the structure tells only the lower 16 bits of an lkey."""

    def reported_keys(self, region: Region) -> tuple[int, int]:
        lkey, rkey = super().reported_keys(region)
        return (lkey & 0xFFFF if lkey > 0x200000 else lkey), rkey


@violates("REG-21")
class TwinLosesItsKey(Device):
    """Deregistering one of two regions of the very same memory ends the keys of both."""

    def forget_key(self, region: Region) -> None:
        self.keys.pop(region.key, None)
        for other in self.regions.values():
            if (other.addr, other.length) == (region.addr, region.length):
                self.keys.pop(other.key, None)


@violates("REG-21")
class AnyKeyOfTheDomainWillDo(Device):
    """A remote read with the key of another region of the same PD is served by the region that has the address."""

    def remote(self, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int) -> int | None:
        place = super().remote(rkey, domain, queue, addr, length, right)
        found = self.found(rkey)
        if place is None and isinstance(found, Region) and right == REMOTE_READ and found.access & right:
            for other in self.regions.values():
                if other.domain is domain and other.access & right and self.contains(other, addr, length):
                    return self.translate(other, addr)
        return place


@violates("REG-21")
class EverySixteenthRegionHasTheKeysOfItsNeighbour(Device):
    """The structure of every sixteenth region tells the lkey of the region that was made before it."""

    _made = 0
    _before = 0

    def structure(self, region: Region, pd: Pd, addr: int, length: int) -> IbvMr:
        made = super().structure(region, pd, addr, length)
        self._made += 1
        if self._made % 16 == 0:
            made.lkey = self._before
        self._before = region.key
        return made


# Domains


@violates("REG-22")
class AtomicsFromAnyDomain(Watching):
    """Atomics through a queue pair of another PD are served."""

    def opens(self, region: Region, domain: Domain) -> bool:
        return super().opens(region, region.domain if self.opcode in ATOMICS else domain)


@violates("REG-22")
class ElementsFromAnyDomain(Device):
    """The lkey of another PD's region is accepted as the source of what is sent or written."""

    def local(self, lkey: int, domain: Domain, addr: int, length: int, write: bool) -> int | None:
        found = self.found(lkey)
        return super().local(
            lkey, found.domain if isinstance(found, Region) and not write else domain, addr, length, write
        )


@violates("REG-22")
class ReceivesFromAnyDomain(Watching):
    """Receives take the lkey of another PD's region."""

    def opens_locally(self, region: Region, domain: Domain) -> bool:
        return super().opens_locally(region, region.domain if self.opcode in SENDS else domain)


@violates("REG-22")
class UnreliableFromAnyDomain(Watching):
    """Through a UC queue pair the regions of every PD can be written."""

    def opens(self, region: Region, domain: Domain) -> bool:
        return super().opens(region, region.domain if self.transport == "UC" else domain)


@violates("REG-22")
class ImmediateWritesFromAnyDomain(Watching):
    """A write with immediate data goes to regions of another PD than the queue pair's."""

    def opens(self, region: Region, domain: Domain) -> bool:
        return super().opens(region, region.domain if self.opcode == "RDMA_WRITE_WITH_IMM" else domain)


@violates("REG-22")
class DomainCheckedAtFirstUse(Device):
    """Once a region has been used through its own PD, any PD's queue pairs may use it."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
        self._used: set[int] = set()

    def opens(self, region: Region, domain: Domain) -> bool:
        if super().opens(region, domain):
            self._used.add(region.handle)
            return True
        return region.usable and region.handle in self._used


@violates("REG-22")
class FlushesFromAnyDomain(Watching):
    """A flush is served whatever PD the queue pair is of."""

    def opens(self, region: Region, domain: Domain) -> bool:
        return super().opens(region, region.domain if self.opcode.startswith("FLUSH") else domain)


# Lists of elements


@violates("REG-26")
class SecondElementsRangeUnchecked(Device):
    """The range of every element but the first is not held against its region when it is read."""

    def gather(self, queue: Queue, sges: Sequence[Sge]) -> bytes | None:
        content = super().gather(queue, sges[:1])
        for sge in sges[1:]:
            found = self.found(sge.lkey)
            if not sge.length:
                continue
            if content is None or not isinstance(found, Region) or not self.opens_locally(found, queue.domain):
                return None
            part = self.memory.read(self.translate(found, sge.addr), sge.length)
            if part is None:
                return None
            content += part
        return content


@violates("REG-26")
class OnlyTheFirstElementNeedsLocalWrite(Device):
    """Of several elements that are filled only the first needs LOCAL_WRITE."""

    _filled = 0

    def scatter(self, queue: Queue, sges: Sequence[Sge], content: bytes) -> bool:
        self._filled = 0
        return super().scatter(queue, sges, content)

    def memory_of_sge(self, queue: Queue, sge: Sge, write: bool) -> int | None:
        self._filled += write
        return super().memory_of_sge(queue, sge, write and self._filled < 2)


@violates("REG-26")
class ElementsOfOneRegionOnly(Device):
    """Elements of two regions in one list are refused."""

    def gather(self, queue: Queue, sges: Sequence[Sge]) -> bytes | None:
        return super().gather(queue, sges) if len({sge.lkey for sge in sges}) < 2 else None


@violates("REG-26")
class LastOfThreeElementsTakesTheFirstKey(Device):
    """In lists of three or more the last element is looked up with the key of the first."""

    def gather(self, queue: Queue, sges: Sequence[Sge]) -> bytes | None:
        if len(sges) > 2:
            sges = [*sges[:-1], sges[-1]._replace(lkey=sges[0].lkey)]
        return super().gather(queue, sges)


@violates("REG-26")
class ElementsFilledFromTheEnd(Device):
    """What comes for three or more elements is put into the last two in exchanged order."""

    def scatter(self, queue: Queue, sges: Sequence[Sge], content: bytes) -> bool:
        if len(sges) > 2:
            sges = [*sges[:-2], sges[-1], sges[-2]]
        return super().scatter(queue, sges, content)


@violates("REG-26")
class BadLastElementIsLeftOut(Device):
    """A read whose last element has a bad key fills the others and succeeds."""

    def scatter(self, queue: Queue, sges: Sequence[Sge], content: bytes) -> bool:
        if len(sges) > 1 and self.memory_of_sge(queue, sges[-1], write=True) is None:
            sges = sges[:-1]
        return super().scatter(queue, sges, content)


@violates("REG-26")
class SecondElementFromAnyDomain(Device):
    """Of several elements only the first has to be of the queue pair's PD."""

    def gather(self, queue: Queue, sges: Sequence[Sge]) -> bytes | None:
        own, content = queue.domain, b""
        for number, sge in enumerate(sges):
            found = self.found(sge.lkey)
            if number and isinstance(found, Region):
                queue.domain = found.domain
            part = super().gather(queue, [sge])
            queue.domain = own
            if part is None:
                return None
            content += part
        return content


@violates("REG-14")
class ImmediateComesBeforeItsData(Device):
    """A write with immediate data completes at the receiver although the second half of long data is not there."""

    def put(self, addr: int, content: bytes) -> bool:
        return super().put(addr, content[: len(content) // 2] if self._immediate and len(content) > 64 else content)

    _immediate = False

    def write(self, queue: Queue, request: SendRequest) -> str:
        self._immediate = request.opcode == "RDMA_WRITE_WITH_IMM"
        return super().write(queue, request)


@violates("REG-20")
class DataShiftedBehindAPage(Device):
    """Of a remote write that crosses into another page, the part in the second page lands one byte too far."""

    def put(self, addr: int, content: bytes) -> bool:
        here = PAGE - addr % PAGE
        if len(content) > here + 1:
            done = super().put(addr, content[:here])
            return done and super().put(addr + here + 1, content[here:-1])
        return super().put(addr, content)


@violates("REG-14")
class FifthSendIsLost(Device):
    """Every fifth SEND on a relaxed region completes at both sides, but its data is not in memory."""

    _sends = 0

    def deliver(self, queue: Queue, content: bytes | None, imm: int | None, length: int) -> str:
        peer = queue.peer
        if content and peer.receives and peer.kind != "UD":
            sges = peer.receives[0][1]
            found = self.found(sges[0].lkey) if sges else None
            if isinstance(found, Region) and found.access & 1 << 20:
                self._sends += 1
                if self._sends % 5 == 0 and self.memory_of_sge(peer, sges[0], write=True) is not None:
                    wr_id, _ = self.next_receive(peer)
                    peer.polled.append(Completion(wr_id, SUCCESS, "RECV", length, imm))
                    return SUCCESS
        return super().deliver(queue, content, imm, length)
