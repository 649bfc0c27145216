"""Violations that grant what must be refused: other domains, other keys, and what is outside of a range."""

from trial.data_path.objects import LOCAL_WRITE, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE, QueuePair, Region, Sent
from trial.mutants.data_path.granting import Granting
from trial.violation import violates

_PAGE = 4096


class _OtherDomain(Granting):
    """A queue pair of another PD can use a region for some requests."""

    def allowed(self, sent: Sent, region: Region) -> bool:
        """Whether the PD is not checked."""
        return False

    def granted(self, queue: QueuePair, sent: Sent) -> int | None:
        region = self.objects.region(sent.rkey)
        domain = self.peer_pd(queue)
        if region is None or not domain or region.pd == domain or not self.allowed(sent, region):
            return None
        return region.place(sent.remote_addr, sent.length)


@violates("REREG-02")
class OldDomainReadsOn(_OtherDomain):
    """After a change of the PD, queue pairs of the old one can still read the region."""

    def granted(self, queue: QueuePair, sent: Sent) -> int | None:
        found = super().granted(queue, sent)
        region = self.objects.region(sent.rkey)
        was = any(
            each.ended == "changed" and region and each.addr == region.addr and each.pd == self.peer_pd(queue)
            for each in self.objects.regions
        )
        return found if was else None

    def allowed(self, sent: Sent, region: Region) -> bool:
        return sent.reads and bool(region.access & REMOTE_READ)


@violates("REG-22", Granting.granted)
def local_domain_not_checked(self: Granting, queue: QueuePair, sent: Sent) -> int | None:
    """A WRITE can send from a region of another PD."""
    sources = [self.objects.source(each.lkey) for each in sent.elements]
    region = self.objects.region(sent.rkey)
    foreign = any(each and each.pd != queue.pd for each in sources)
    fine = region and region.pd == self.peer_pd(queue) and region.access & REMOTE_WRITE and sent.writes
    return region.place(sent.remote_addr, sent.length) if region and foreign and fine else None


@violates("REG-21", Granting.granted)
def tags_not_read_with_reads(self: Granting, queue: QueuePair, sent: Sent) -> int | None:
    """A READ ignores the last eight bits of the rkey."""
    if not sent.reads or self.objects.valid(sent.rkey):
        return None
    places = (
        each.place(sent.remote_addr, sent.length)
        for each in self.objects.live_regions()
        if each.rkey >> 8 == sent.rkey >> 8 and each.access & REMOTE_READ
    )
    return next((each for each in places if each is not None), None)


@violates("REG-21", Granting.granted)
def tags_of_lkeys_ignored(self: Granting, queue: QueuePair, sent: Sent) -> int | None:
    """A WRITE ignores the last eight bits of an lkey."""
    region = self.objects.region(sent.rkey)
    wrong = any(
        not self.objects.source(each.lkey)
        and any(known.lkey >> 8 == each.lkey >> 8 for known in self.objects.live_regions())
        for each in sent.elements
    )
    fine = region and region.access & REMOTE_WRITE and sent.writes and wrong
    return region.place(sent.remote_addr, sent.length) if region and fine else None


class _Beyond(Granting):
    """Requests may exceed the range of a region."""

    right = REMOTE_READ

    def exceeds(self, sent: Sent, offset: int, region: Region) -> bool:
        """Whether a request at `offset`, which exceeds the region, is carried out."""
        return False

    def granted(self, queue: QueuePair, sent: Sent) -> int | None:
        region = self.objects.region(sent.rkey)
        if region is None or region.pd != self.peer_pd(queue) or not region.access & self.right:
            return None
        offset = sent.remote_addr - region.iova
        if region.place(sent.remote_addr, sent.length) is not None or not self.exceeds(sent, offset, region):
            return None
        return region.addr + offset


@violates("REG-20", Granting.granted)
def elements_exceed_their_region(self: Granting, queue: QueuePair, sent: Sent) -> int | None:
    """The data of a WRITE may end up to eight bytes beyond the region of their lkey."""
    region = self.objects.region(sent.rkey)
    for each in sent.elements:
        source = self.objects.source(each.lkey)
        over = each.addr + each.length - source.iova - source.length if source else 0
        if region and sent.writes and region.access & REMOTE_WRITE and 0 < over <= 8:
            return region.place(sent.remote_addr, sent.length)
    return None


@violates("REG-04")
class ReadsFillUnwritableMemory(Granting):
    """A READ can fill a region without LOCAL_WRITE."""

    def wanted(self, sent: Sent) -> bool:
        """Whether the request may fill it."""
        return sent.reads

    def granted(self, queue: QueuePair, sent: Sent) -> int | None:
        region = self.objects.region(sent.rkey)
        targets = [self.objects.source(each.lkey) for each in sent.elements]
        fine = region and region.access & (REMOTE_READ if sent.reads else REMOTE_ATOMIC) and self.wanted(sent)
        unwritable = any(each and not each.access & LOCAL_WRITE for each in targets)
        return region.place(sent.remote_addr, sent.length) if region and fine and unwritable else None


class _Iova(Granting):
    """A region can be reached at another address than from its hca_va on."""

    zero = False

    def shifted(self, remote_addr: int, region: Region) -> int:
        """The address to try."""
        return remote_addr - region.addr + region.iova

    def granted(self, queue: QueuePair, sent: Sent) -> int | None:
        region = self.objects.region(sent.rkey)
        if region is None or region.verb != "reg_mr_iova" or (region.iova == 0) != self.zero:
            return None
        if region.place(sent.remote_addr, sent.length) is not None:
            return None
        return region.place(self.shifted(sent.remote_addr, region), sent.length)


@violates("IOVA-02")
class MemoryAddressesWorkToo(_Iova):
    """A region with an hca_va of its own is reached by its address in memory as well."""
