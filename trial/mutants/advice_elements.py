"""Advice: lists of which only some elements are followed or looked at."""

from __future__ import annotations

from collections.abc import Sequence

from conformance.bench.calls import Sge
from reference.advice import PREFETCH
from reference.device import Device
from reference.objects import Region
from trial.violation import violates


class _SomeElementsServed(Device):
    """All elements of a list are checked, and only some are followed."""

    def setup(self) -> None:
        self.now_served: list[tuple[int, int]] = []

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        self.now_served = [(sge.addr, sge.length) for sge in self.served(sg_list)]
        super().advise(pd, advice, flags, sg_list)

    def served(self, sg_list: Sequence[Sge]) -> Sequence[Sge]:
        """The elements that are followed."""
        raise NotImplementedError

    def follow(self, addr: int, length: int, advice: int, flags: int) -> bool:
        return (addr, length) not in self.now_served or super().follow(addr, length, advice, flags)


@violates("ADV-13")
class LaterElementsOnlyToRead(Device):
    """PREFETCH_WRITE brings in the pages of later elements for reading only."""

    first = True

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        self.first = True
        super().advise(pd, advice, flags, sg_list)

    def follow(self, addr: int, length: int, advice: int, flags: int) -> bool:
        for_this = advice if self.first else PREFETCH
        self.first = False
        return super().follow(addr, length, for_this, flags)


@violates("ADV-10")
class RightsOfTheFirstTwoElements(Device):
    """PREFETCH_WRITE looks at the rights of the first two elements only."""

    looked_at = 0

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        self.looked_at = 0
        super().advise(pd, advice, flags, sg_list)

    def not_writable(self, region: Region) -> bool:
        self.looked_at += 1
        return self.looked_at <= 2 and super().not_writable(region)
