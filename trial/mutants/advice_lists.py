"""Advice: keys, and lists of several elements."""

from collections.abc import Sequence

from conformance.bench.calls import Sge
from reference.advice import FLUSH
from reference.device import Device
from reference.objects import ON_DEMAND, Region
from trial.violation import permits, plain, violates


class _Asynchronous(Device):
    """A device that knows whether advice has FLUSH."""

    flushed = True

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        """Follows advice."""
        self.flushed = bool(flags & FLUSH)
        super().advise(pd, advice, flags, sg_list)


@violates("ADV-11", Device.advised, written="blind")
def any_tag_advised(self: Device, lkey: int) -> Region:
    """An lkey with the index of a region and another tag is accepted."""
    for key, found in self.keys.items():
        if key >> 8 == lkey >> 8 and isinstance(found, Region):
            return found
    return plain(self).advised(lkey)


@violates("ADV-15", Device.advise, written="blind")
def unflushed_advice_brings_foreign_pages_in(
    self: Device, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]
) -> None:
    """Without FLUSH the pages of another PD's on-demand region are brought in to be written."""
    if not flags & FLUSH:
        for sge in sg_list:
            found = self.keys.get(sge.lkey)
            if not isinstance(found, Region) or not found.access & ON_DEMAND or found.domain.handle == pd:
                continue
            if self.contains(found, sge.addr, sge.length):
                self.memory.fault_in(self.translate(found, sge.addr), sge.length, not self.not_writable(found))
    plain(self).advise(pd, advice, flags, sg_list)


@permits("ADV-15", Device.advise, written="blind")
def unflushed_advice_is_not_checked(self: Device, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
    """Without FLUSH an advice on a region of another PD is taken and nothing is done."""
    if not flags & FLUSH and self.stack.has("advise_mr") and pd in self.domains and not flags:
        regions = [self.keys.get(each.lkey) for each in sg_list]
        if regions and all(isinstance(each, Region) and each.domain.handle != pd for each in regions):
            return
    plain(self).advise(pd, advice, flags, sg_list)
