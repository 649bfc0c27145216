"""The plan of a run, as the supervisor and its recording use it. Not for the file from which a run is resumed
(runs/plan.py).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from conformance.model.case import Case
from conformance.model.deadline import CASE_DEADLINE_S, longest_case_s
from conformance.model.profile import Profile
from conformance.model.record import SupervisorFacts
from conformance.results.waivers import Waivers
from conformance.tables.suite import Suite


def _alone(case: Case, _: str) -> str:
    return f"./rdma-cts run --only {case.id}"


@dataclass(frozen=True)
class RunPlan:
    """The cases of a run, and the data that decide on their verdicts.

    `facts` are those of the header that workers do not know. `reproduction` returns the command that runs one case on
    the same target, on the device of that name if several share the cases. `boot_id` returns what identifies the boot
    of the kernel under test if that is the kernel of a host, which may die together with this process: the file then
    records the start of each case, too. `waivers` determine effective verdicts, and `profile` what the device must
    have. `devices` are the names of the devices that a worker may have, if they are known. `durations` are the seconds
    that cases took in an earlier run, by id; they only decide which worker runs which case. Random sequences are tried
    for `sequences_s` seconds.
    """

    suite: Suite
    cases: Sequence[Case]
    facts: SupervisorFacts
    reproduction: Callable[[Case, str], str] = _alone
    boot_id: Callable[[], str] = str
    waivers: Waivers | None = None
    profile: Profile = field(default_factory=Profile)
    devices: Sequence[str] = ()
    case_deadline_s: float = CASE_DEADLINE_S
    durations: Mapping[str, float] = field(default_factory=dict)
    sequences_s: float = 0.0

    @property
    def longest_case_s(self) -> float:
        """The maximum duration of a case in seconds, whatever progress it makes."""
        return longest_case_s(self.case_deadline_s) + self.sequences_s
