"""The effective verdict of a result: what a waiver covers, and, in a run about a device, what is of the stack.

A run has a subject: a device with its driver, firmware and provider, or the whole stack. Pure functions. Not for
verdicts, which are the same whatever the subject (judging/).
"""

from conformance.defects import is_of_stack
from conformance.model.record import HeaderRecord, ResultRecord
from conformance.model.verdict import VIOLATIONS, Verdict
from conformance.results.waivers import Waivers


def with_effective(record: ResultRecord, header: HeaderRecord, waivers: Waivers | None) -> ResultRecord:
    """The result with its effective verdict in the run of this header."""
    if waivers:
        record = waivers.applied(record, header)
    elif record["effective"] == Verdict.STACK:
        record = {**record, "effective": record["verdict"]}
    if header.get("subject") == "device" and record["effective"] in VIOLATIONS and is_of_stack(record):
        return {**record, "effective": Verdict.STACK}
    return record
