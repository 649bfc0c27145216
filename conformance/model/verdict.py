"""The verdicts that a result can have, and their groups."""

from enum import StrEnum


class Verdict(StrEnum):
    """The verdict on one result. They are in the order of severity, the worst first."""

    CRASH = "CRASH"  # the kernel or process under test died in the case
    HANG = "HANG"  # the case or a request gave no answer within the deadline
    FAIL = "FAIL"  # it departed from what a document says
    BROKEN = "BROKEN"  # the harness or the environment failed: says nothing about the device
    MISSED = "MISSED"  # planned and not run
    WAIVED = "WAIVED"  # only as an effective verdict: of a violation that a waiver covers
    STACK = "STACK"  # only as an effective verdict, in a run about a device: the answer is the stack's
    UNREACHABLE = "UNREACHABLE"  # the situation cannot be set up on this stack
    UNSUPPORTED = "UNSUPPORTED"  # the device does not declare the capability, and refuses properly
    PARTIAL = "PARTIAL"  # only of a rule: what was seen passes, but not all of its evidence was seen
    PASS = "PASS"


# From the worst to the best: a rule's verdict is the worst of its cases', or PARTIAL instead of PASS.
OF_RULES = tuple(Verdict)
VERDICTS = tuple(verdict for verdict in Verdict if verdict != Verdict.PARTIAL)
VIOLATIONS = (Verdict.CRASH, Verdict.HANG, Verdict.FAIL)
INCOMPLETE = (Verdict.BROKEN, Verdict.MISSED)
