"""The vendor's experimental re-registration."""

from reference.device import Device
from reference.objects import Region
from reference.reregistration import Change


class _Hurt(Device):
    """A failure of the vendor's verb changes the region."""

    def setup(self) -> None:
        self._hurt: set[int] = set()

    def experimental_code(self, handle: int, change: Change) -> tuple[int, Region | None]:
        code, region = super().experimental_code(handle, change)
        if code:
            self._hurt.add(handle)
        return code, region
