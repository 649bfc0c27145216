"""Keys that are unknown, that have ended, and that belong to other objects or other processes."""

from reference.device import Device
from trial.violation import permits


@permits("REG-21", written="blind")
class KeysHaveTagZero(Device):
    """A new key always has the tag 0."""

    def new_key(self) -> int:
        return super().new_key() & ~0xFF
