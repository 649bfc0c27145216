"""A device profile: capabilities that devices of one driver must have, and those that they are known not to have.

Data only. Not for reading profiles from files (tables/profile.py) and not for applying them to verdicts (judging/).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Profile:
    """`device` is the name of the kernel driver; `present` and `absent` map a capability to the reason.

    A case that finds a `present` capability missing fails. An `absent` one explains why a case is UNSUPPORTED. If a
    device has it nevertheless, a remark says so: no documented rule is violated, but the profile has to be updated.
    """

    device: str = ""
    present: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
