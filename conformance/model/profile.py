"""What a device must have and what it lacks, by the file of a profile. judging/ applies it to verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from conformance.errors import UserError


@dataclass(frozen=True)
class Profile:
    """The capabilities that a device must have (`present`) and the capabilities that it lacks (`absent`), with reasons.

    If `present` requires all capabilities that a case lacks, the case fails. The reason of an `absent` capability
    explains why a case is UNSUPPORTED. If a device has an `absent` capability, a remark is recorded: no documented rule
    is violated, but the profile has to be updated.
    """

    device: str = ""  # the name of the kernel driver
    present: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)

    def check(self, name: str, driver: str) -> None:
        """Raises UserError if the device `name` has a different driver than the profile."""
        if self.device and self.device != driver:
            raise UserError(
                f"the profile is for the driver {self.device}, but {name} has the driver {driver}",
            )

    def required_but_absent(self, undeclared: Sequence[str]) -> list[str]:
        """Returns the capabilities of `undeclared` that `present` requires. Returns [] if a capability of `undeclared`
        is neither required nor a part of the name of a required one: odp_ud_recv also requires odp and ud."""
        names = [name for name in undeclared if name in self.present]
        required = [set(name.split("_")) for name in names]
        for name in undeclared:
            parts = set(name.split("_"))
            if not any(parts <= larger for larger in required):
                return []
        return names
