"""A judgement, and the facts about a device on which it depends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from conformance.judging.sentences import sentence
from conformance.model.case import Case
from conformance.model.declared import Capabilities
from conformance.model.fault import Fault, verdict_of
from conformance.model.kind import Kind
from conformance.model.profile import Profile
from conformance.model.rules import DECLARATIONS, OF_DECLARED


@dataclass(frozen=True)
class Judgement:
    """A verdict with its reason in one line. `notes` are remarks that do not change the verdict. Only a violation has a
    `fault`."""

    verdict: str
    reason: str
    notes: tuple[str, ...] = ()
    fault: Fault | None = None

    @classmethod
    def of_fault(cls, fault: Fault, notes: tuple[str, ...] = ()) -> Judgement:
        return cls(verdict_of(fault.kind), sentence(fault), notes, fault)


@dataclass(frozen=True)
class Basis:
    """The known facts about the device, on which a verdict depends in addition to the case and the observation."""

    capabilities: Capabilities
    profile: Profile = field(default_factory=Profile)

    def lacking(self, case: Case, names: Sequence[str]) -> list[str]:
        """Returns the capabilities among `names` that the entry of `case` does not have. For a case about declarations,
        a declared capability counts as present even if it did not work when it was tried."""
        lacking = self.capabilities.undeclared(names, case.entry)
        if is_about_declarations(case):
            return [name for name in lacking if name not in self.capabilities.absent]
        return lacking

    def resolved(self, case: Case) -> Case:
        """Returns the case of a sweep's point as a row with the point's expectation, and any other case unchanged."""
        if case.kind is not Kind.POINT:
            return case
        assert case.sweep is not None
        return case.sweep.judged_row(
            case,
            lambda name: not self.capabilities.undeclared([name], case.entry),
        )


def is_about_declarations(case: Case) -> bool:
    """Whether every rule of a case says that the device has what it declares."""
    return bool(case.rules) and all(rule.startswith(DECLARATIONS) for rule in case.rules)


def is_only_of_declared(case: Case) -> bool:
    """Whether every rule of a case is about what the device declares."""
    return bool(case.rules) and all(rule.startswith(OF_DECLARED) for rule in case.rules)
