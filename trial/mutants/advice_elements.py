"""Advice: lists whose elements are only partly followed or checked."""

from collections.abc import Sequence

from conformance.bench.calls import Sge
from reference.device import Device


class _SomeElementsServed(Device):
    """All elements of a list are checked, but only some are followed."""

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
