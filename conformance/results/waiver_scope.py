"""Where a waiver holds: a driver, kernels and firmware."""

import re
from dataclasses import dataclass

from conformance.model.record import HeaderRecord


@dataclass(frozen=True)
class WaiverScope:
    """Where a waiver holds: the driver, and kernels from one to another, both included; empty: any.

    "7.2" as the last one includes every 7.2.x. `firmware` is the whole text that the device gives.
    """

    driver: str
    kernel_from: str = ""
    kernel_to: str = ""
    firmware: str = ""

    def holds(self, header: HeaderRecord) -> bool:
        """Whether the run is on such a stack."""
        device, kernel = header["device"], version(str(header["env"].get("kernel", "")))
        first, last = version(self.kernel_from), version(self.kernel_to)
        return (
            device.get("driver") == self.driver
            and (not self.firmware or device.get("fw") == self.firmware)
            and first <= kernel
            and (not last or kernel[: len(last)] <= last)
        )


def version(text: str) -> tuple[int, ...]:
    """The numbers at the beginning of a kernel's version: 7.2.12+deb14 is (7, 2, 12)."""
    found = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(number[:9]) for number in found[0].split(".")) if found else ()
