"""Advice: keys, and lists of several elements."""

from collections.abc import Sequence

from conformance.bench.calls import Sge
from reference.advice import FLUSH
from reference.device import Device


class _Asynchronous(Device):
    """A device that knows whether advice has FLUSH."""

    flushed = True

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        """Follows advice."""
        self.flushed = bool(flags & FLUSH)
        super().advise(pd, advice, flags, sg_list)
