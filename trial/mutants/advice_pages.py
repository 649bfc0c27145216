"""Advice that is followed: which pages are present afterwards."""

from reference.advice import FLUSH, PREFETCH_NO_FAULT
from reference.device import Device
from trial.violation import permits


@permits("ADV-14", written="blind")
class OnlyFlushedAdviceIsFollowed(Device):
    """PREFETCH_NO_FAULT and advice without FLUSH do nothing at all."""

    def follow(self, addr: int, length: int, advice: int, flags: int) -> bool:
        return True if not flags & FLUSH or advice == PREFETCH_NO_FAULT else super().follow(addr, length, advice, flags)
