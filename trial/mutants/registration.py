"""Registration: the fields of a region, leftovers of a refusal, and access 0."""

from reference.device import Device
from reference.extended import BUF, Attributes
from trial.violation import permits


@permits("REG-02")
class OtherErrnos(Device):
    """Every refusal of a registration has another errno, except those of buffers, whose page says EINVAL."""

    _named = False  # whether the manual page names the errno

    def buffer_fault(self, pd: int, asked: Attributes) -> int:
        fault = super().buffer_fault(pd, asked)
        self._named = bool(fault)
        return fault

    def mask_fault(self, asked: Attributes) -> int:
        fault = super().mask_fault(asked)
        self._named = bool(fault and asked.comp_mask & BUF)
        return fault

    def reported_errno(self, errno: int) -> int:
        named, self._named = self._named, False
        return errno if named else errno + 1
