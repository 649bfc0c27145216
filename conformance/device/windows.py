"""Memory windows on the device under test: allocation and deallocation with exact codes.

Windows are bound and invalidated by requests of a queue pair (queue_pairs.py).
"""

from typing import Any, cast

from conformance.bench.calls import IbvMw, Pd, Return
from conformance.device.device import ProtectionDomain
from conformance.device.libibverbs import exact


class DeviceWindow:
    """A memory window. `old_rkey` is the key before the latest request to bind the window."""

    def __init__(self, pd: Pd, kind: int) -> None:
        """ibv_alloc_mw of type `kind`. Raises PyverbsRDMAError with the errno."""
        from pyverbs.mr import MW

        domain = cast(ProtectionDomain, pd)
        self.pyverbs: Any = MW(domain.pyverbs, kind)
        self.pointer = domain.device.pointers.mw(self.pyverbs)
        self._struct = IbvMw.from_address(self.pointer)
        self.old_rkey = self.rkey

    @property
    def handle(self) -> int:
        return int(self._struct.handle)

    @property
    def rkey(self) -> int:
        """The present key in struct ibv_mw."""
        return int(self._struct.rkey)

    @rkey.setter
    def rkey(self, value: int) -> None:
        # ibv_bind_mw(3) requires the caller to restore the old key after a failed bind.
        self._struct.rkey = value

    def dealloc(self) -> Return:
        return exact(self.pyverbs.close)


def allocate(pd: Pd, kind: int) -> tuple[DeviceWindow | None, Return]:
    """Allocates a window of a type; returns the window or None, and the result, whose `value` is 1 for a window, 0 for
    NULL."""
    allocated: list[DeviceWindow] = []
    returned = exact(lambda: allocated.append(DeviceWindow(pd, kind)))
    return (allocated[0], Return(1, 0)) if allocated else (None, Return(0, returned.errno))
