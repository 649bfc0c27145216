"""What kind of fault a line of judging tells of, and the answer in it. Not for making these lines (judging/faults.py).

The lines are the only description that every result has: a row, a group of a sweep's points, a random sequence, and the
results of older versions.
"""

from __future__ import annotations

import re
from enum import StrEnum

from conformance.model.verdict import Verdict


class Fault(StrEnum):
    """The kinds of fault."""

    KERNEL_DIED = "kernel died"
    HUNG = "hung"
    PROCESS_DIED = "process died"
    KERNEL_ALARM = "kernel complained"  # it warned or became tainted, and went on
    MOVED = "moved"  # bytes that the request had no right to
    MISPLACED = "misplaced"  # a request that succeeded brought other bytes, or brought them elsewhere
    ACCEPTED = "accepted"  # what must be refused
    REFUSED = "refused"  # what must be done
    KEPT = "kept"  # what should be released is still held
    CODE = "code"  # refused as it should be, with another code
    STATUS = "status"  # refused as it should be, with another status of its completion
    REMARK = "remark"  # anything else that is told wrongly


# The first expression that is found in the line decides.
_FAULTS = tuple(
    (re.compile(pattern), fault)
    for pattern, fault in (
        (r"the kernel (became tainted|complained)", Fault.KERNEL_ALARM),
        (r"could not be released", Fault.KEPT),
        (r"moved bytes that it should not", Fault.MOVED),
        (r"flushed memory that it may not|told the receiver that it had come", Fault.ACCEPTED),
        (r"has arrived|completed with SUCCESS.*nothing arrived", Fault.MISPLACED),
        (r"before its data was there|changed bytes beside|remote bytes? changed", Fault.MISPLACED),
        (r"and at the other side with|should be refused with", Fault.STATUS),
        (r"the receiver was told", Fault.REMARK),
        (r"should find nothing posted and got", Fault.ACCEPTED),
        (r"should fail with|no value of errno|the value of errno|gave no errno|when it was called again", Fault.CODE),
        (r"should fail\b", Fault.ACCEPTED),
        (r"should succeed|must be present|was done when the same set-up was made again", Fault.REFUSED),
    )
)
_DEAD_PROCESS = re.compile(
    r"process( under test| that ran the case)? died|(process under test|command in the guest) ended with status"
)
# The clauses that name an answer. The last one counts: a code comes before the status of a completion.
_ANSWER = re.compile(r"(?:returned|failed with(?: errno)?|with errno|completed with|the other side with) ([A-Z]\w+)")
_POINTERS = ("NULL", "MR", "MW")


def fault_in(line: str, verdict: str = Verdict.FAIL) -> Fault:
    """The kind of fault of a violation with this verdict, from its line."""
    if verdict == Verdict.HANG:
        return Fault.HUNG
    if verdict == Verdict.CRASH:
        return Fault.PROCESS_DIED if _DEAD_PROCESS.search(line) and "kernel" not in line else Fault.KERNEL_DIED
    return next((fault for pattern, fault in _FAULTS if pattern.search(line)), Fault.REMARK)


def answer_in(line: str) -> str:
    """The errno, code or status that was the answer; empty if the line names none."""
    found = [answer for answer in _ANSWER.findall(line) if answer not in _POINTERS]
    return found[-1] if found else ""
