"""Advice that is followed: which pages are present afterwards."""

from reference.advice import FLUSH, PREFETCH_NO_FAULT
from reference.device import Device
from reference.memory import PAGE
from trial.violation import permits, plain, violates


@violates("ADV-03", Device.follow, name="no-fault-faults", written="blind")
def no_fault_faults_for_writing(self: Device, addr: int, length: int, advice: int, flags: int) -> bool:
    """PREFETCH_NO_FAULT brings in the pages of its range."""
    if advice == PREFETCH_NO_FAULT:
        self.memory.fault_in(addr, length, write=True)
    return plain(self).follow(addr, length, advice, flags)


@permits("ADV-14", Device.follow, name="advice-of-whole-pages")
def advice_made_of_whole_pages(self: Device, addr: int, length: int, advice: int, flags: int) -> bool:
    """Advice makes all pages of its range resident as a whole, also without FLUSH and also for writing."""
    start = addr // PAGE * PAGE
    return plain(self).follow(start, -(-(addr + length) // PAGE) * PAGE - start, advice, flags)


@permits("ADV-14", written="blind")
class OnlyFlushedAdviceIsFollowed(Device):
    """PREFETCH_NO_FAULT and advice without FLUSH do nothing at all."""

    def follow(self, addr: int, length: int, advice: int, flags: int) -> bool:
        return True if not flags & FLUSH or advice == PREFETCH_NO_FAULT else super().follow(addr, length, advice, flags)
