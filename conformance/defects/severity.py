"""How bad a violation is, from what was observed; never from the rule. Not for verdicts (model/verdict.py)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum

from conformance.defects.fault import Fault
from conformance.defects.symptom import Symptom


class Severity(Enum):
    """The severities, the worst first.

    `label` is for tables, `counted` has the words behind a number (one, several), `meaning` says what it means to an
    application.
    """

    label: str
    counted: tuple[str, str]
    meaning: str

    KERNEL_CRASH = (
        "kernel crash",
        ("kernel crash", "kernel crashes"),
        "A program without privileges, or a peer, stops the kernel: every process on the machine is lost with it.",
    )
    HANG = (
        "hang",
        ("hang", "hangs"),
        "A call, or what it started, does not come back: the program waits for ever, and cannot be killed if it waits "
        "in the kernel.",
    )
    MEMORY = (
        "memory safety",
        ("memory-safety", "memory-safety"),
        "Bytes move that nobody granted, or a request that reports success has put them elsewhere or lost them: "
        "programs read, overwrite or trust wrong data without any error.",
    )
    PROCESS_CRASH = (
        "process crash",
        ("process crash", "process crashes"),
        "The call ends the program that makes it instead of returning an error.",
    )
    NOT_REFUSED = (
        "not refused",
        ("refusal not given", "refusals not given"),
        "A request that must fail succeeds: mistakes go unseen, and what the refusal protects is open.",
    )
    VALID_REFUSED = (
        "valid refused",
        ("valid call refused", "valid calls refused"),
        "Programs that keep to the documents do not work on this stack, or need a way around.",
    )
    WRONG_REPORT = (
        "wrong report",
        ("wrong code", "wrong codes"),
        "The effect is right and what is told about it is wrong: programs that act on the code, the status or the "
        "remark take the wrong action.",
    )

    def __new__(cls, label: str, counted: tuple[str, str], meaning: str) -> Severity:
        member = object.__new__(cls)
        member._value_ = label
        member.label, member.counted, member.meaning = label, counted, meaning
        return member

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(Severity).index(self)

    def count(self, number: int) -> str:
        """A number of results with this severity, in words: `43 valid calls refused`."""
        return f"{number:,} {self.counted[number != 1]}"


_OF_FAULT: Mapping[Fault, Severity] = {
    Fault.KERNEL_DIED: Severity.KERNEL_CRASH,
    Fault.HUNG: Severity.HANG,
    Fault.MOVED: Severity.MEMORY,
    Fault.MISPLACED: Severity.MEMORY,
    Fault.PROCESS_DIED: Severity.PROCESS_CRASH,
    Fault.ACCEPTED: Severity.NOT_REFUSED,
    Fault.REFUSED: Severity.VALID_REFUSED,
    Fault.KEPT: Severity.VALID_REFUSED,
    Fault.CODE: Severity.WRONG_REPORT,
    Fault.STATUS: Severity.WRONG_REPORT,
    Fault.REMARK: Severity.WRONG_REPORT,
    Fault.KERNEL_ALARM: Severity.WRONG_REPORT,
}
# What a kernel says that went on and whose memory is in doubt, and that it has ended the task that was running.
_MEMORY_IN_DOUBT = re.compile(r"KASAN:|refcount_t:|UBSAN: array-index")
_ENDED = re.compile(r"BUG:|Oops|general protection")


def severity_of(symptom: Symptom) -> Severity:
    """The severity of a symptom."""
    if symptom.fault is Fault.KERNEL_ALARM:
        evidence = "\n".join([symptom.line, *symptom.record["kernel"].get("log", ())])
        if _MEMORY_IN_DOUBT.search(evidence):
            return Severity.MEMORY
        if _ENDED.search(evidence):
            return Severity.KERNEL_CRASH
    return _OF_FAULT[symptom.fault]


def count_by_severity(severities: Iterable[Severity]) -> dict[Severity, int]:
    """How often each severity occurs, the worst first; those that do not occur are left out."""
    count = Counter(severities)
    return {severity: count[severity] for severity in Severity if count[severity]}
