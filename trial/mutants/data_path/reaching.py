"""Violations that grant what must be refused: access by other domains, by other keys, and outside of a range."""

from reference.objects import LOCAL_WRITE, REMOTE_ATOMIC, REMOTE_READ
from trial.data_path.objects import QueuePair, Region, Sent
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
    """After a change of the PD, queue pairs of the old PD can still read the region."""

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


@violates("REG-04")
class ReadsFillUnwritableMemory(Granting):
    """A READ can fill a region without LOCAL_WRITE."""

    def wanted(self, sent: Sent) -> bool:
        """Whether the request may fill the region."""
        return sent.reads

    def granted(self, queue: QueuePair, sent: Sent) -> int | None:
        region = self.objects.region(sent.rkey)
        targets = [self.objects.source(each.lkey) for each in sent.elements]
        fine = region and region.access & (REMOTE_READ if sent.reads else REMOTE_ATOMIC) and self.wanted(sent)
        unwritable = any(each and not each.access & LOCAL_WRITE for each in targets)
        return region.place(sent.remote_addr, sent.length) if region and fine and unwritable else None


class _Iova(Granting):
    """A region can also be reached at an address other than its hca_va."""

    zero = False

    def shifted(self, remote_addr: int, region: Region) -> int:
        """Returns the address at which the request is carried out in place of `remote_addr`."""
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
    """A region whose hca_va differs from its address in memory can also be accessed by that address."""
