"""The fault of a case whose worker died or hung, from the worker's end and its last output.

Not for workers whose case in flight is not known.
"""

from collections.abc import Sequence

from conformance.judging import crash_location, first_alarm, located, site_in
from conformance.model.bounds import cut
from conformance.model.case import Case
from conformance.model.fault import Fault, FaultKind
from conformance.supervision.worker import WorkerEnd

SILENT = WorkerEnd("no answer within its deadline", kind=FaultKind.HUNG)


def loss_of(case: Case, end: WorkerEnd, log: Sequence[str], at: str = "") -> Fault:
    """The fault; `at` is the last point or sequence that the worker has named."""
    came = (end.what, end.by, at, first_alarm(log), crash_location(log))
    return located(Fault(end.kind, seen=tuple(cut(each) for each in came), site=site_in(log)), case)
