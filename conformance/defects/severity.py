"""Determines the severity of a violation, which depends on the observation and not on the rule."""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum

from conformance.defects.symptom import Symptom
from conformance.model.fault import Effect, Fault, FaultKind
from conformance.model.vocabulary import WIRE

# How a defect that a remote peer can trigger is reported.
_IN_PRIVATE = (
    "Report it first to the kernel's security contact and the driver's maintainers, as SECURITY.md "
    "says."
)


class Severity(Enum):
    """The severities, the most severe first. `rank` is 0 for the most severe. `label` is the name in reports,
    `meaning` the consequence for an application, and `advice` to whom a defect is reported first; empty for most."""

    rank: int
    label: str
    meaning: str
    advice: str

    REMOTE_CRASH = (
        "remote: kernel crash",
        "A peer that only sends packets crashes the kernel, and with it every process on the machine.",
        _IN_PRIVATE,
    )
    REMOTE_MEMORY = (
        "remote: memory",
        "A peer that only sends packets reads or writes memory without the right to do so.",
        _IN_PRIVATE,
    )
    KERNEL_CRASH = (
        "kernel crash",
        "A program without privileges, or a peer, crashes the kernel, and with it every process on the machine.",
    )
    HANG = (
        "hang",
        "A call or a request never completes: the program waits forever. A call that waits in the kernel cannot be "
        "killed.",
    )
    MEMORY = (
        "memory safety",
        "A request reads or writes bytes without the right to do so, or a successful request has lost or misplaced its "
        "data: programs read, overwrite or trust wrong data without any error.",
    )
    PROCESS_CRASH = (
        "process crash",
        "A call crashes the program instead of returning an error.",
    )
    NOT_REFUSED = (
        "not refused",
        "A request that must fail succeeds, and no forbidden byte has moved: mistakes of the caller are not detected.",
    )
    VALID_REFUSED = (
        "valid refused",
        "Programs that follow the documents do not work on this stack, or need a workaround.",
    )
    WRONG_REPORT = (
        "wrong report",
        "A code, a status or another report is wrong, or a packet that the device sends: programs and peers that act "
        "on it take a wrong action.",
    )

    def __new__(cls, label: str, meaning: str, advice: str = "") -> "Severity":
        member = object.__new__(cls)
        member._value_, member.rank = label, len(cls.__members__)
        member.label, member.meaning, member.advice = label, meaning, advice
        return member


_OF_EFFECT: Mapping[Effect, Severity] = {
    Effect.KERNEL_DIED: Severity.KERNEL_CRASH,
    Effect.HUNG: Severity.HANG,
    Effect.MOVED: Severity.MEMORY,
    Effect.MISPLACED: Severity.MEMORY,
    Effect.PROCESS_DIED: Severity.PROCESS_CRASH,
    Effect.ACCEPTED: Severity.NOT_REFUSED,
    Effect.REFUSED: Severity.VALID_REFUSED,
    Effect.KEPT: Severity.VALID_REFUSED,
    Effect.CODE: Severity.WRONG_REPORT,
    Effect.STATUS: Severity.WRONG_REPORT,
    Effect.REMARK: Severity.WRONG_REPORT,
    Effect.KERNEL_ALARM: Severity.WRONG_REPORT,
}
# Kinds of fault that are more severe than other kinds with the same effect.
_OF_KIND: Mapping[FaultKind, Severity] = {
    FaultKind.KERNEL_MEMORY: Severity.MEMORY,
    FaultKind.LIBRARY_MEMORY: Severity.MEMORY,
    FaultKind.KERNEL_OOPSED: Severity.KERNEL_CRASH,
}


def severity_of(symptom: Symptom) -> Severity:
    return severity_of_fault(symptom.fault)


_BY_PEER = f"poster={WIRE}"  # in a call whose packets a wire peer sends
# The severities of a fault that packets of a peer alone can cause.
_OF_PEER: Mapping[Severity, Severity] = {
    Severity.KERNEL_CRASH: Severity.REMOTE_CRASH,
    Severity.MEMORY: Severity.REMOTE_MEMORY,
}


def severity_of_fault(fault: Fault) -> Severity:
    severity = _OF_KIND.get(fault.kind, _OF_EFFECT[fault.effect])
    # What did not arrive, or arrived at the wrong place, is a mistake of the device that no peer can use.
    of_peer = fault.verb == WIRE or _BY_PEER in fault.call
    if of_peer and fault.effect is not Effect.MISPLACED:
        return _OF_PEER.get(severity, severity)
    return severity


def count_by_severity(severities: Iterable[Severity]) -> dict[Severity, int]:
    """Returns how often each severity occurs, the most severe first."""
    count = Counter(severities)
    return {severity: count[severity] for severity in Severity if count[severity]}
