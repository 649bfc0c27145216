"""Defines the verdicts that a result can have, and groups of verdicts."""

from conformance.older_python import StrEnum


class Verdict(StrEnum):
    """The verdict on one result. The members are in the order of severity, the worst first."""

    CRASH = "CRASH"  # the kernel or the process under test died during the case
    HANG = "HANG"  # the case or a request did not complete by the deadline
    FAIL = "FAIL"  # the stack violated a document
    BROKEN = "BROKEN"  # the harness or the environment failed; the device was not judged
    MISSED = "MISSED"  # planned but not run
    WAIVED = "WAIVED"  # an effective verdict: a waiver covers the violation
    STACK = "STACK"  # an effective verdict in a run about a device: the kernel's core or libibverbs is the cause
    UNREACHABLE = "UNREACHABLE"  # the situation cannot be set up on this stack
    # the device does not declare the capability, and refuses as documented
    UNSUPPORTED = "UNSUPPORTED"
    PARTIAL = "PARTIAL"  # only for a rule: all evidence that was seen passes, but some evidence was not seen
    PASS = "PASS"


# From the worst to the best. The verdict on a rule is the worst verdict of its cases, or PARTIAL instead of PASS.
OF_RULES = tuple(Verdict)
VERDICTS = tuple(verdict for verdict in Verdict if verdict != Verdict.PARTIAL)
KEPT = (Verdict.PASS, Verdict.PARTIAL)  # no violation was seen
VIOLATIONS = (Verdict.CRASH, Verdict.HANG, Verdict.FAIL)
INCOMPLETE = (Verdict.BROKEN, Verdict.MISSED)
EXCUSED = (Verdict.WAIVED, Verdict.STACK)  # violations that do not count against the device
# the behaviour cannot be tested on this stack
NOT_TESTABLE = (Verdict.UNSUPPORTED, Verdict.UNREACHABLE)
UNJUDGED = (*INCOMPLETE, *NOT_TESTABLE)  # no verdict on the device
